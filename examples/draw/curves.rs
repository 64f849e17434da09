//! Curves and points in one SVG.

use std::error::Error;
use std::path::Path;

use plotters::prelude::*;

/// A curve, or the points of one.
pub struct Series<'a> {
    /// What the legend says.
    pub name: &'a str,
    /// Places, from left to right.
    pub points: Vec<(f64, f64)>,
    /// How they are drawn.
    pub mark: Mark,
}

/// How a series is drawn.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// Joined by a line.
    Line,
    /// Each for itself.
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

/// Writes the series under the names of both axes.
pub fn draw(path: &Path, axes: [&str; 2], series: &[Series]) -> Result<(), Box<dyn Error>> {
    let all = || series.iter().flat_map(|it| it.points.iter().copied());
    let ends = |pick: fn((f64, f64)) -> f64| {
        let least = all().map(pick).fold(f64::INFINITY, f64::min);
        let most = all().map(pick).fold(f64::NEG_INFINITY, f64::max);
        let room = 0.03 * (most - least).max(1e-9);
        least - room..most + room
    };
    let root = SVGBackend::new(path, (800, 480)).into_drawing_area();
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&root)
        .margin(16)
        .x_label_area_size(36)
        .y_label_area_size(52)
        .build_cartesian_2d(ends(|point| point.0), ends(|point| point.1))?;
    chart
        .configure_mesh()
        .x_desc(axes[0])
        .y_desc(axes[1])
        .light_line_style(WHITE)
        .draw()?;
    for (series, colour) in series.iter().zip(COLOURS.into_iter().cycle()) {
        let drawn = match series.mark {
            Mark::Line => chart.draw_series(LineSeries::new(
                series.points.iter().copied(),
                colour.stroke_width(2),
            ))?,
            Mark::Points => chart.draw_series(
                (series.points.iter()).map(|point| Circle::new(*point, 3, colour.filled())),
            )?,
        };
        drawn
            .label(series.name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)));
    }
    chart
        .configure_series_labels()
        .background_style(WHITE)
        .border_style(BLACK)
        .draw()?;
    root.present()?;
    Ok(())
}
