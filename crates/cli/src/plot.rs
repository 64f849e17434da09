//! `loss.svg`: both losses over the steps, redrawn at every save and at the end.

use anyhow::{Result, anyhow};
use attentive::checkpoint::replace_file;
use attentive::training::{Event, Listener, Metric, RunFolder};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

const FONT: &str = "sans-serif";
/// The line of the training loss, which is noisy and lies behind the other.
const LIGHT: RGBColor = RGBColor(160, 188, 224);
const TRAINING: RGBColor = RGBColor(90, 130, 190);
const HELD_OUT: RGBColor = RGBColor(200, 60, 40);

/// Plots the losses of a run.
pub struct LossPlot {
    folder: RunFolder,
    drawn: Result<()>,
}

impl LossPlot {
    /// A plot in the run's folder.
    pub fn new(folder: RunFolder) -> Self {
        Self {
            folder,
            drawn: Ok(()),
        }
    }

    /// The first plotting error.
    pub fn finish(self) -> Result<()> {
        self.drawn
    }

    fn draw(&self) -> Result<()> {
        let metrics = self.folder.metrics()?;
        let mut losses = Vec::new();
        let mut held_out = Vec::new();
        for metric in metrics {
            match metric {
                Metric::Step { step, loss, .. } => losses.push((step as f64, loss)),
                Metric::Evaluation {
                    step,
                    held_out_loss,
                } => held_out.push((step as f64, held_out_loss)),
            }
        }
        let svg = svg(&losses, &held_out)?;
        replace_file(&self.folder.path().join("loss.svg"), svg.as_bytes())?;
        Ok(())
    }
}

impl Listener for LossPlot {
    fn on(&mut self, event: &Event) {
        // The end as well: the run may have been killed between its last save and the plot.
        let drawn = matches!(event, Event::Saved { .. } | Event::Ended { .. });
        if drawn && self.drawn.is_ok() {
            self.drawn = self.draw();
        }
    }
}

fn svg(losses: &[(f64, f64)], held_out: &[(f64, f64)]) -> Result<String> {
    let all = || losses.iter().chain(held_out);
    let last_step = all().map(|point| point.0).fold(1.0, f64::max);
    let lowest = all().map(|point| point.1).fold(f64::INFINITY, f64::min);
    let highest = all().map(|point| point.1).fold(f64::NEG_INFINITY, f64::max);
    let (lowest, highest) = if lowest.is_finite() {
        (lowest, highest)
    } else {
        (0.0, 1.0)
    };
    let margin = 0.05 * (highest - lowest).max(0.1);
    let mut text = String::new();
    {
        let root = SVGBackend::with_string(&mut text, (800, 480)).into_drawing_area();
        let drawing = |error: &dyn std::fmt::Display| anyhow!("loss.svg: {error}");
        root.fill(&WHITE).map_err(|error| drawing(&error))?;
        let mut chart = ChartBuilder::on(&root)
            .margin(16)
            .x_label_area_size(36)
            .y_label_area_size(52)
            .build_cartesian_2d(0.0..last_step, lowest - margin..highest + margin)
            .map_err(|error| drawing(&error))?;
        chart
            .configure_mesh()
            .x_desc("step")
            .y_desc("loss (nats per token)")
            .x_label_formatter(&|step| format!("{step:.0}"))
            .y_label_formatter(&|loss| format!("{loss:.1}"))
            .axis_desc_style((FONT, 15))
            .label_style((FONT, 14))
            .bold_line_style(RGBColor(228, 228, 228))
            .light_line_style(WHITE)
            .draw()
            .map_err(|error| drawing(&error))?;
        for (points, colour) in [(losses, LIGHT), (held_out, HELD_OUT)] {
            let line = LineSeries::new(points.iter().copied(), colour.stroke_width(2));
            chart.draw_series(line).map_err(|error| drawing(&error))?;
        }
        // Labels stand above the lines: that of training where it falls, that of the held-out loss at its end.
        let above = 0.03 * (highest - lowest).max(0.1);
        let early = losses.get(losses.len() / 16).copied();
        let label = |text: String, (step, loss): (f64, f64), colour: RGBColor, side: HPos| {
            let style = (FONT, 15).into_font().color(&colour);
            let style = style.pos(Pos::new(side, VPos::Bottom));
            Text::new(text, (step, loss + above), style)
        };
        let labels = [
            early.map(|point| {
                let beside = (point.0 + 0.015 * last_step, point.1);
                label("training".to_owned(), beside, TRAINING, HPos::Left)
            }),
            held_out.last().map(|point| {
                let text = format!("held-out {:.2}", point.1);
                let noise = losses.iter().rev().take(losses.len() / 8);
                let top = noise.map(|it| it.1).fold(point.1, f64::max);
                label(text, (point.0, top), HELD_OUT, HPos::Right)
            }),
        ];
        chart
            .draw_series(labels.into_iter().flatten())
            .map_err(|error| drawing(&error))?;
        root.present().map_err(|error| drawing(&error))?;
    }
    Ok(text)
}
