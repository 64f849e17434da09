//! `loss.svg`: both losses over the steps, redrawn at every save and at the end.

use anyhow::{Result, anyhow};
use attentive::checkpoint::replace_file;
use attentive::training::{Event, Listener, Metric, RunFolder};
use plotters::prelude::*;

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
            .light_line_style(WHITE)
            .draw()
            .map_err(|error| drawing(&error))?;
        for (name, points, colour) in [
            ("training", losses, RGBColor(150, 180, 220)),
            ("held-out", held_out, RGBColor(200, 60, 40)),
        ] {
            chart
                .draw_series(LineSeries::new(
                    points.iter().copied(),
                    colour.stroke_width(2),
                ))
                .map_err(|error| drawing(&error))?
                .label(name)
                .legend(move |(x, y)| {
                    PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2))
                });
        }
        chart
            .configure_series_labels()
            .background_style(WHITE)
            .border_style(BLACK)
            .draw()
            .map_err(|error| drawing(&error))?;
        root.present().map_err(|error| drawing(&error))?;
    }
    Ok(text)
}
