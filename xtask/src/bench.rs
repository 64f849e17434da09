//! `cargo xtask bench`: this library and PyTorch, interleaved, each benchmark in a process of its own.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::{cargo, performance, python, root, scaling};

/// All benchmarks.
const WORK: &[&str] = &[
    "train_gpt",
    "train_tiny",
    "attention_1024",
    "attention_4096",
    "attention_16384",
    "prefill",
    "decode",
    "encoder",
    "load_gpt2",
    "load_llama",
    "naive",
];

/// Minimum and median time in milliseconds, peak memory in megabytes, page faults.
#[derive(Clone, Copy, Debug)]
struct Measured {
    min: f64,
    median: f64,
    peak: f64,
    /// Page faults per repetition; only our side reports them.
    faults: f64,
}

/// `cargo xtask bench [WORK…] [--rounds N] [--json FILE]`
pub fn run(arguments: &[String]) -> Result<()> {
    let Arguments {
        work,
        rounds,
        json_path,
    } = parse(arguments)?;
    cargo(&["build", "--release", "--workspace"])?;
    if work == ["scaling"] {
        return scaling::run(rounds);
    }
    let peer = python().map(|python| (python, root().join("reference/torch_peer.py")));
    if let Err(error) = &peer {
        println!("PyTorch is not available ({error:#}); measuring only this library");
    }
    let mut peaks = peaks()?;
    let complete = WORK.iter().all(|it| work.iter().any(|work| work == it));
    let mut table = Table::default();
    let mut naive_lines = Vec::new();
    for work in &work {
        if work == "naive" {
            println!("kernels and their naive versions");
            naive_lines = lines(&mut ours(work))?;
            continue;
        }
        if work.starts_with("load_") {
            println!("creating the model of {work}, unless it exists");
            lines(&mut ours(&format!("make:{work}")))?;
        }
        for round in 0..rounds {
            println!("{work}, round {} of {rounds}", round + 1);
            table.add(Side::Ours, lines(&mut ours(work))?);
            if let Ok((python, script)) = &peer {
                table.add(
                    Side::Peer,
                    lines(
                        Command::new(python)
                            .arg(script)
                            .arg(work)
                            .env(FOLDERS, folders()),
                    )?,
                );
            }
        }
    }
    // Measured again at the end, in case other processes disturbed the first measurement.
    peaks.raise(&self::peaks()?);
    let mut tables = table.text(&peaks);
    if !naive_lines.is_empty() {
        tables.push_str(&naive_table(&naive_lines));
    }
    println!("\n{tables}");
    if complete && let Ok((python, _)) = &peer {
        performance::write(&tables, python)?;
    }
    if let Some(path) = json_path {
        std::fs::write(&path, table.json(&peaks, &naive_lines).to_string())
            .with_context(|| path.display().to_string())?;
    }
    Ok(())
}

struct Arguments {
    work: Vec<String>,
    rounds: usize,
    json_path: Option<PathBuf>,
}

fn parse(arguments: &[String]) -> Result<Arguments> {
    let mut parsed = Arguments {
        work: Vec::new(),
        rounds: 3,
        json_path: None,
    };
    let mut rest = arguments.iter();
    while let Some(word) = rest.next() {
        match word.as_str() {
            "--rounds" => {
                let value = rest.next().context("--rounds needs a number")?;
                parsed.rounds = value
                    .parse()
                    .ok()
                    .filter(|rounds| *rounds > 0)
                    .with_context(|| {
                        format!("--rounds: {value} is not a number of rounds; use 1 or more")
                    })?;
            }
            "--json" => parsed.json_path = Some(rest.next().context("--json needs a file")?.into()),
            "load" => parsed
                .work
                .extend(["load_gpt2", "load_llama"].map(str::to_owned)),
            name if WORK.contains(&name) || name == "scaling" => parsed.work.push(name.to_owned()),
            name => bail!(
                "there is no benchmark `{name}`; there are {}, load (both of them), scaling",
                WORK.join(", ")
            ),
        }
    }
    if parsed.work.len() > 1 && parsed.work.iter().any(|name| name == "scaling") {
        bail!("scaling runs alone; leave the other benchmarks out");
    }
    if parsed.work.is_empty() {
        parsed.work = WORK.iter().map(|it| (*it).to_owned()).collect();
    }
    Ok(parsed)
}

/// Our side, with as many threads as the PyTorch script.
pub fn ours(work: &str) -> Command {
    let mut command = Command::new(root().join("target/release/bench"));
    command
        .arg(work)
        .env("ATTENTIVE_THREADS", "2")
        .env(FOLDERS, folders());
    command
}

/// The environment variable with the folder of the models to load.
const FOLDERS: &str = "ATTENTIVE_BENCH_FOLDERS";

/// Models of half a gigabyte each.
fn folders() -> PathBuf {
    root().join("target/bench")
}

/// The JSON lines that a process prints.
pub fn lines(command: &mut Command) -> Result<Vec<Value>> {
    let output = command.output().with_context(|| format!("{command:?}"))?;
    if !output.status.success() {
        bail!(
            "{command:?} failed: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let lines = text.lines().map(serde_json::from_str);
    lines
        .collect::<Result<_, _>>()
        .with_context(|| format!("{command:?} printed no JSON"))
}

/// The machine's peak throughput.
struct Peaks {
    flops_per_second: f64,
    bytes_per_second: f64,
}

fn peaks() -> Result<Peaks> {
    let line = lines(&mut ours("limits"))?.remove(0);
    let number = |key: &str| {
        line[key]
            .as_f64()
            .with_context(|| format!("the peaks have no {key}"))
    };
    let peaks = Peaks {
        flops_per_second: number("flops_per_second")?,
        bytes_per_second: number("bytes_per_second")?,
    };
    println!(
        "this machine: {:.0} GFLOP/s, {:.1} GB/s read",
        peaks.flops_per_second / 1e9,
        peaks.bytes_per_second / 1e9
    );
    Ok(peaks)
}

impl Peaks {
    fn raise(&mut self, other: &Self) {
        let max = |a: &mut f64, b: f64| *a = a.max(b);
        max(&mut self.flops_per_second, other.flops_per_second);
        max(&mut self.bytes_per_second, other.bytes_per_second);
    }

    /// The lower bound of a benchmark's time by the roofline model, in milliseconds, where it is known.
    fn lower_bound_ms(&self, work: &str) -> Option<f64> {
        // FLOPs of the matrix products; causal attention computes half of the pairs.
        let gpt = |layers: f64, width: f64, length: f64, tokens: f64, head: f64| {
            let weights = 24.0 * width * width * layers + 2.0 * width * head;
            let attention = 2.0 * width * length * layers;
            tokens * (weights + attention)
        };
        let attention = |length: f64| 2.0 * 12.0 * 64.0 * length * length;
        let flops = match work {
            "train_gpt" => 3.0 * gpt(6.0, 384.0, 256.0, 2048.0, 65.0),
            "train_tiny" => 3.0 * gpt(4.0, 128.0, 64.0, 768.0, 65.0),
            "prefill" => gpt(12.0, 768.0, 512.0, 512.0, 0.0) + 2.0 * 768.0 * 50257.0,
            // Bidirectional attention computes all pairs.
            "encoder" => gpt(6.0, 384.0, 2.0 * 128.0, 4096.0, 0.0),
            "decode" => {
                let weights = 12.0 * 12.0 * 768.0 * 768.0 + 768.0 * 50257.0;
                return Some(4.0 * weights / self.bytes_per_second * 1e3);
            }
            other => {
                let (length, kind) = other.strip_prefix("attention_")?.split_once('_')?;
                let passes = if kind == "both" { 3.5 } else { 1.0 };
                passes * attention(length.parse().ok()?)
            }
        };
        Some(flops / self.flops_per_second * 1e3)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Side {
    Ours,
    Peer,
}

/// All measurements, by benchmark and side.
#[derive(Default)]
struct Table(BTreeMap<(String, Side), Measured>);

impl Table {
    fn add(&mut self, side: Side, lines: Vec<Value>) {
        for line in lines {
            let number = |key: &str| line[key].as_f64().unwrap_or(f64::NAN);
            let work = line["work"].as_str().unwrap_or_default().to_owned();
            let new = Measured {
                min: number("min_ms"),
                median: number("median_ms"),
                peak: number("peak_mb"),
                faults: number("page_faults"),
            };
            let best = self.0.entry((work, side)).or_insert(new);
            best.min = best.min.min(new.min);
            best.median = best.median.min(new.median);
            best.peak = best.peak.min(new.peak);
            best.faults = best.faults.min(new.faults);
        }
    }

    fn rows(&self) -> impl Iterator<Item = (&str, Measured, Option<Measured>)> {
        self.0
            .iter()
            .filter(|((_, side), _)| *side == Side::Ours)
            .map(|((work, _), ours)| {
                let peer = self.0.get(&(work.clone(), Side::Peer)).copied();
                (work.as_str(), *ours, peer)
            })
    }

    /// In Markdown.
    fn text(&self, peaks: &Peaks) -> String {
        let mut text = format!(
            "Peak of the machine: {:.0} GFLOP/s, {:.1} GB/s read.\n\n\
             | benchmark | ours, min ms | median | PyTorch, min ms | ratio | ours, MB | PyTorch, MB | ours, % of peak | PyTorch, % of peak | page faults |\n\
             |---|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n",
            peaks.flops_per_second / 1e9,
            peaks.bytes_per_second / 1e9
        );
        for (work, ours, peer) in self.rows() {
            let cell = |value: Option<f64>, digits: usize| match value {
                Some(value) => format!("{value:.digits$}"),
                None => "–".to_owned(),
            };
            let share = |time: f64| {
                let min = peaks.lower_bound_ms(work)?;
                Some(100.0 * min / time)
            };
            let percent = |value: Option<f64>| match value {
                Some(value) => format!("{value:.0} %"),
                None => "–".to_owned(),
            };
            text.push_str(&format!(
                "| `{work}` | {:.2} | {:.2} | {} | {} | {:.0} | {} | {} | {} | {:.0} |\n",
                ours.min,
                ours.median,
                cell(peer.map(|it| it.min), 2),
                cell(peer.map(|it| ours.min / it.min), 2),
                ours.peak,
                cell(peer.map(|it| it.peak), 0),
                percent(share(ours.min)),
                percent(peer.and_then(|it| share(it.min))),
                ours.faults,
            ));
        }
        text
    }

    /// Kernels are compared with their naive versions instead of PyTorch.
    fn json(&self, peaks: &Peaks, naive_lines: &[Value]) -> Value {
        let rows = self.rows().map(|(work, ours, peer)| {
            json!({
                "work": work,
                "ours_min_ms": ours.min,
                "peer_min_ms": peer.map(|it| it.min),
                "ratio": peer.map(|it| ours.min / it.min),
                "ours_peak_mb": ours.peak,
                "peer_peak_mb": peer.map(|it| it.peak),
                "share_of_limit": peaks.lower_bound_ms(work).map(|min| min / ours.min),
            })
        });
        let naive_lines = naive_lines.iter().map(|line| {
            let number = |key: &str| line[key].as_f64();
            let (ours, naive) = (number("min_ms"), number("naive_min_ms"));
            json!({
                "work": line["work"], "ours_min_ms": ours, "peer_min_ms": naive,
                "ratio": ours.zip(naive).map(|(ours, naive)| ours / naive),
                "ours_peak_mb": null, "peer_peak_mb": null, "share_of_limit": null,
            })
        });
        Value::Array(rows.chain(naive_lines).collect())
    }
}

/// In Markdown: kernels beside their naive versions.
fn naive_table(lines: &[Value]) -> String {
    let mut text = "\nEach kernel and its naive reference (scalar, in f64, on one thread):\n\n\
                    | kernel | ours, min ms | naive, min ms | naive over ours |\n|---|--:|--:|--:|\n"
        .to_owned();
    for line in lines {
        let number = |key: &str| line[key].as_f64().unwrap_or(f64::NAN);
        let (ours, naive) = (number("min_ms"), number("naive_min_ms"));
        let name = line["work"].as_str().unwrap_or_default();
        let name = name.trim_start_matches("naive_");
        text.push_str(&format!(
            "| {name} | {ours:.3} | {naive:.2} | {:.0} |\n",
            naive / ours
        ));
    }
    text
}
