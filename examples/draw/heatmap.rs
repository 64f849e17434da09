//! Heat maps of attention weights side by side, as SVG: a row per query, a column per key, larger is darker.

use std::error::Error;
use std::path::Path;

use plotters::prelude::*;

/// A matrix of weights between zero and one.
pub struct Matrix<'a> {
    /// The caption.
    pub name: &'a str,
    /// The position of its first query.
    pub first_query: usize,
    /// One row for each query.
    pub rows: Vec<Vec<f32>>,
}

/// Plots the matrices.
pub fn draw(path: &Path, matrices: &[Matrix]) -> Result<(), Box<dyn Error>> {
    let size = (300 * matrices.len() as u32, 340);
    let root = SVGBackend::new(path, size).into_drawing_area();
    root.fill(&WHITE)?;
    for (area, matrix) in root.split_evenly((1, matrices.len())).iter().zip(matrices) {
        let (height, width) = (matrix.rows.len(), matrix.rows[0].len());
        let (first, last) = (matrix.first_query, matrix.first_query + height);
        let mut chart = ChartBuilder::on(area)
            .margin(12)
            .caption(matrix.name, ("sans-serif", 18))
            .x_label_area_size(30)
            .y_label_area_size(36)
            .build_cartesian_2d(0.0..width as f64, last as f64..first as f64)?;
        chart
            .configure_mesh()
            .disable_mesh()
            .x_label_formatter(&|key| format!("{key:.0}"))
            .y_label_formatter(&|query| format!("{query:.0}"))
            .x_desc("key")
            .y_desc("query")
            .draw()?;
        let cells = matrix.rows.iter().enumerate().flat_map(|(query, row)| {
            row.iter().enumerate().map(move |(key, weight)| {
                let shade = |full: f32| (255.0 - (255.0 - full) * weight.clamp(0.0, 1.0)) as u8;
                let colour = RGBColor(shade(20.0), shade(60.0), shade(120.0));
                let (x, y) = (key as f64, (first + query) as f64);
                Rectangle::new([(x, y), (x + 1.0, y + 1.0)], colour.filled())
            })
        });
        chart.draw_series(cells)?;
    }
    root.present()?;
    Ok(())
}
