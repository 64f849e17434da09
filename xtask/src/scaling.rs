//! `cargo xtask bench scaling`: time and memory of every attention against the length, fitted exponents, and a plot.

use std::fmt::Write as _;

use anyhow::{Context, Result, anyhow};
use plotters::prelude::*;

use crate::bench::{lines, ours};
use crate::{performance, root};

const LENGTHS: [usize; 6] = [512, 1024, 2048, 4096, 8192, 16_384];
/// Exponents are fitted from here on: below, constant costs dominate.
const FITTED_FROM: usize = 2048;

/// Minimum time in milliseconds and peak memory in megabytes.
#[derive(Clone, Copy, Debug)]
struct Point {
    length: usize,
    milliseconds: f64,
    megabytes: f64,
}

/// One attention, or another layer to compare it with.
struct Measured {
    name: String,
    /// The full attention with the same role.
    full: String,
    points: Vec<Point>,
}

impl Measured {
    fn at(&self, length: usize) -> Option<f64> {
        let point = self.points.iter().find(|it| it.length == length)?;
        Some(point.milliseconds)
    }
}

/// Measures everything, and writes the tables and the plot to docs/.
pub fn run(rounds: usize) -> Result<()> {
    let mut measured = Vec::new();
    for line in lines(&mut ours("scaling"))? {
        let name = line["name"].as_str().context("no name")?.to_owned();
        let full = line["full"]
            .as_str()
            .context("no full attention")?
            .to_owned();
        let longest = line["longest"].as_u64().context("no longest length")? as usize;
        let mut points = Vec::new();
        for length in LENGTHS.into_iter().filter(|length| *length <= longest) {
            points.push(measure(&name, length, rounds)?);
        }
        println!("{name}: {}", summary(&points));
        measured.push(Measured { name, full, points });
    }
    let tables = text(&measured);
    println!("\n{tables}");
    let docs = root().join("docs");
    std::fs::write(docs.join("scaling.svg"), plot(&measured)?)?;
    performance::replace_between(&docs.join("attention.md"), "scaling", &tables)
}

fn measure(name: &str, length: usize, rounds: usize) -> Result<Point> {
    let mut min = Point {
        length,
        milliseconds: f64::INFINITY,
        megabytes: f64::INFINITY,
    };
    for _ in 0..rounds {
        let line = lines(&mut ours(&format!("scaling:{name}:{length}")))?.remove(0);
        let value = |key: &str| line[key].as_f64().with_context(|| format!("{name}: {key}"));
        min.milliseconds = min.milliseconds.min(value("min_ms")?);
        min.megabytes = min.megabytes.min(value("peak_mb")?);
    }
    Ok(min)
}

fn summary(points: &[Point]) -> String {
    let times = points
        .iter()
        .map(|it| format!("{} {:.1} ms", it.length, it.milliseconds));
    times.collect::<Vec<_>>().join(", ")
}

/// The exponent of the power law by which time or memory grows with the length: a least-squares fit on log-log axes.
fn exponent(points: &[Point], of: impl Fn(&Point) -> f64) -> Option<f64> {
    let logarithms: Vec<(f64, f64)> = points
        .iter()
        .filter(|point| point.length >= FITTED_FROM)
        .map(|point| ((point.length as f64).ln(), of(point).ln()))
        .collect();
    let count = logarithms.len() as f64;
    if logarithms.len() < 2 {
        return None;
    }
    let mean_x = logarithms.iter().map(|it| it.0).sum::<f64>() / count;
    let mean_y = logarithms.iter().map(|it| it.1).sum::<f64>() / count;
    let covariance: f64 = logarithms
        .iter()
        .map(|(x, y)| (x - mean_x) * (y - mean_y))
        .sum();
    let variance: f64 = logarithms.iter().map(|(x, _)| (x - mean_x).powi(2)).sum();
    Some(covariance / variance)
}

fn text(measured: &[Measured]) -> String {
    let mut text = format!("Measured on {}.\n\n", performance::date_and_machine());
    let full = |name: &str| measured.iter().find(|it| it.name == name)?.at(8192);
    text.push_str("| min ms |");
    for length in LENGTHS {
        let _ = write!(text, " {length} |");
    }
    text.push_str(" exponent | speed-up over full attention at 8,192 |\n|---|");
    text.push_str(&"--:|".repeat(LENGTHS.len() + 2));
    text.push('\n');
    for it in measured {
        row(&mut text, &it.name, &it.points, |it| it.milliseconds);
        match (it.at(8192), full(&it.full)) {
            (Some(here), Some(full)) => {
                let _ = writeln!(text, " {:.1} |", full / here);
            }
            _ => text.push_str(" – |\n"),
        }
    }
    text.push_str("\n| peak MB |");
    for length in LENGTHS {
        let _ = write!(text, " {length} |");
    }
    text.push_str(" exponent |\n|---|");
    text.push_str(&"--:|".repeat(LENGTHS.len() + 1));
    text.push('\n');
    for it in measured {
        row(&mut text, &it.name, &it.points, |it| it.megabytes);
        text.push('\n');
    }
    text
}

fn row(text: &mut String, name: &str, points: &[Point], of: impl Fn(&Point) -> f64 + Copy) {
    let _ = write!(text, "| `{name}` |");
    for length in LENGTHS {
        match points.iter().find(|point| point.length == length) {
            Some(point) => {
                let _ = write!(text, " {:.1} |", of(point));
            }
            None => text.push_str(" – |"),
        }
    }
    match exponent(points, of) {
        Some(exponent) => {
            let _ = write!(text, " {exponent:.2} |");
        }
        None => text.push_str(" – |"),
    }
}

/// Time against length on log-log axes, one line per attention.
fn plot(measured: &[Measured]) -> Result<String> {
    let times = || {
        measured
            .iter()
            .flat_map(|it| &it.points)
            .map(|it| it.milliseconds)
    };
    let lowest = times().fold(f64::INFINITY, f64::min);
    let highest = times().fold(0.0, f64::max);
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (960, 640)).into_drawing_area();
        let failed = |error: &dyn std::fmt::Display| anyhow!("scaling.svg: {error}");
        area.fill(&WHITE).map_err(|error| failed(&error))?;
        let lengths = (LENGTHS[0] as f64..LENGTHS[5] as f64).log_scale();
        let mut chart = ChartBuilder::on(&area)
            .margin(16)
            .x_label_area_size(36)
            .y_label_area_size(64)
            .right_y_label_area_size(170)
            .build_cartesian_2d(lengths, (lowest * 0.8..highest * 1.2).log_scale())
            .map_err(|error| failed(&error))?;
        chart
            .configure_mesh()
            .disable_mesh()
            .x_desc("length")
            .y_desc("milliseconds")
            .x_label_formatter(&|length| format!("{length:.0}"))
            .draw()
            .map_err(|error| failed(&error))?;
        for (index, Measured { name, points, .. }) in measured.iter().enumerate() {
            let color = Palette99::pick(index).to_rgba();
            let line = points.iter().map(|it| (it.length as f64, it.milliseconds));
            chart
                .draw_series(LineSeries::new(line, color.stroke_width(2)))
                .map_err(|error| failed(&error))?
                .label(name)
                .legend(move |(x, y)| {
                    PathElement::new([(x, y), (x + 16, y)], color.stroke_width(2))
                });
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperLeft)
            .border_style(BLACK)
            .background_style(WHITE)
            .draw()
            .map_err(|error| failed(&error))?;
        area.present().map_err(|error| failed(&error))?;
    }
    Ok(svg)
}

#[cfg(test)]
mod tests {
    use super::*;
    use attentive_testing::{Scale, assert_near};

    #[test]
    fn the_exponent_of_a_square_is_two() {
        let points = LENGTHS.map(|length| Point {
            length,
            milliseconds: 3e-6 * (length as f64).powi(2),
            megabytes: 7.0,
        });
        let of_time = exponent(&points, |it| it.milliseconds).unwrap();
        assert_near("time", of_time, 2.0, Scale::One, 1e-9);
        let of_memory = exponent(&points, |it| it.megabytes).unwrap();
        assert_near("memory", of_memory, 0.0, Scale::One, 1e-9);
        assert!(exponent(&points[..3], |it| it.milliseconds).is_none());
    }
}
