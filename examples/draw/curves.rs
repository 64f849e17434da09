//! A plot of curves and points, as SVG.

use std::error::Error;
use std::path::Path;

use plotters::prelude::*;

/// A curve or a set of points.
pub struct Series<'a> {
    /// The legend entry.
    pub name: &'a str,
    /// The points, from left to right.
    pub points: Vec<(f64, f64)>,
    /// How they are drawn.
    pub mark: Mark,
}

/// How a series is drawn.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// A line.
    Line,
    /// Separate points.
    #[allow(dead_code, reason = "not every program has points")]
    Points,
}

const COLOURS: [RGBColor; 8] = [
    RGBColor(90, 90, 90),
    RGBColor(200, 60, 40),
    RGBColor(40, 110, 190),
    RGBColor(60, 150, 80),
    RGBColor(220, 150, 30),
    RGBColor(130, 80, 170),
    RGBColor(20, 160, 170),
    RGBColor(220, 110, 160),
];

/// Plots the series; `axes` labels x and y.
pub fn draw(path: &Path, axes: [&str; 2], series: &[Series]) -> Result<(), Box<dyn Error>> {
    let all = || series.iter().flat_map(|it| it.points.iter().copied());
    let range = |pick: fn((f64, f64)) -> f64| {
        let min = all().map(pick).fold(f64::INFINITY, f64::min);
        let max = all().map(pick).fold(f64::NEG_INFINITY, f64::max);
        let margin = 0.03 * (max - min).max(1e-9);
        min - margin..max + margin
    };
    let root = SVGBackend::new(path, (900, 480)).into_drawing_area();
    root.fill(&WHITE)?;
    // The legend is beside the curves, where it covers none.
    let (chart, legend) = root.split_horizontally(700);
    let mut chart = ChartBuilder::on(&chart)
        .margin(16)
        .x_label_area_size(36)
        .y_label_area_size(52)
        .build_cartesian_2d(range(|point| point.0), range(|point| point.1))?;
    chart
        .configure_mesh()
        .x_desc(axes[0])
        .y_desc(axes[1])
        .light_line_style(WHITE)
        .draw()?;
    for (i, (series, colour)) in series.iter().zip(COLOURS.into_iter().cycle()).enumerate() {
        let points = series.points.iter().copied();
        let y = 30 + 22 * i as i32;
        match series.mark {
            Mark::Line => {
                chart.draw_series(LineSeries::new(points, colour.stroke_width(2)))?;
                let line = [(0, y), (18, y)];
                legend.draw(&PathElement::new(line, colour.stroke_width(2)))?;
            }
            Mark::Points => {
                chart.draw_series(points.map(|point| Circle::new(point, 3, colour.filled())))?;
                legend.draw(&Circle::new((9, y), 3, colour.filled()))?;
            }
        }
        let font = ("sans-serif", 14).into_font();
        legend.draw(&Text::new(series.name, (26, y - 6), font))?;
    }
    root.present()?;
    Ok(())
}
