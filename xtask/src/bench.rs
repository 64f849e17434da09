//! `cargo xtask bench`: us and PyTorch, interleaved, each work item in a process of its own.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::{cargo, performance, python, root, scaling};

/// Every work item.
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
    "twins",
];

/// What a run measured: least and middle time in milliseconds, peak memory in megabytes, page faults.
#[derive(Clone, Copy, Debug)]
struct Measured {
    least: f64,
    middle: f64,
    peak: f64,
    /// Pages asked for per repeat; only our side tells.
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
        println!("without PyTorch, because {error:#}; measuring us alone");
    }
    let mut limits = limits()?;
    let whole = WORK.iter().all(|it| work.iter().any(|work| work == it));
    let mut table = Table::default();
    let mut twins = Vec::new();
    for work in &work {
        if work == "twins" {
            println!("kernels and their naive twins");
            twins = lines(&mut ours(work))?;
            continue;
        }
        if work.starts_with("load_") {
            println!("making the folder of {work}, unless it is there");
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
    // Once more at the end: a machine that was disturbed at the start would seem to have lower limits.
    limits.raise(&self::limits()?);
    let mut tables = table.text(&limits);
    if !twins.is_empty() {
        tables.push_str(&text_of_twins(&twins));
    }
    println!("\n{tables}");
    if whole && let Ok((python, _)) = &peer {
        performance::write(&tables, python)?;
    }
    if let Some(path) = json_path {
        std::fs::write(&path, table.json(&limits, &twins).to_string())
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
                "there is no work item `{name}`; the items are {}, load (both of them), scaling",
                WORK.join(", ")
            ),
        }
    }
    if parsed.work.len() > 1 && parsed.work.iter().any(|name| name == "scaling") {
        bail!("scaling is measured alone; leave the other work items out");
    }
    if parsed.work.is_empty() {
        parsed.work = WORK.iter().map(|it| (*it).to_owned()).collect();
    }
    Ok(parsed)
}

/// Our side, on as many threads as the peer's script takes.
pub fn ours(work: &str) -> Command {
    let mut command = Command::new(root().join("target/release/bench"));
    command
        .arg(work)
        .env("ATTENTIVE_THREADS", "2")
        .env(FOLDERS, folders());
    command
}

/// What names the place of the folders that are loaded.
const FOLDERS: &str = "ATTENTIVE_BENCH_FOLDERS";

/// Models of half a gigabyte each.
fn folders() -> PathBuf {
    root().join("target/bench")
}

/// The lines of JSON that a process prints.
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

/// The machine's peaks.
struct Limits {
    operations_per_second: f64,
    bytes_per_second: f64,
}

fn limits() -> Result<Limits> {
    let line = lines(&mut ours("limits"))?.remove(0);
    let number = |key: &str| {
        line[key]
            .as_f64()
            .with_context(|| format!("limits lack {key}"))
    };
    let limits = Limits {
        operations_per_second: number("operations_per_second")?,
        bytes_per_second: number("bytes_per_second")?,
    };
    println!(
        "this machine: {:.0} GFLOP/s, {:.1} GB/s read",
        limits.operations_per_second / 1e9,
        limits.bytes_per_second / 1e9
    );
    Ok(limits)
}

impl Limits {
    fn raise(&mut self, other: &Self) {
        let most = |a: &mut f64, b: f64| *a = a.max(b);
        most(&mut self.operations_per_second, other.operations_per_second);
        most(&mut self.bytes_per_second, other.bytes_per_second);
    }

    /// The least time a measurement could take, in milliseconds; none where no limit is known.
    fn least_milliseconds(&self, work: &str) -> Option<f64> {
        // Multiplications and additions of the products, in 10^9; causal attention meets half of the pairs.
        let gpt = |layers: f64, width: f64, length: f64, tokens: f64, head: f64| {
            let weights = 24.0 * width * width * layers + 2.0 * width * head;
            let attention = 2.0 * width * length * layers;
            tokens * (weights + attention)
        };
        let attention = |length: f64| 2.0 * 12.0 * 64.0 * length * length;
        let operations = match work {
            "train_gpt" => 3.0 * gpt(6.0, 384.0, 256.0, 2048.0, 65.0),
            "train_tiny" => 3.0 * gpt(4.0, 128.0, 64.0, 768.0, 65.0),
            "prefill" => gpt(12.0, 768.0, 512.0, 512.0, 0.0) + 2.0 * 768.0 * 50257.0,
            // Every position sees all: twice the pairs.
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
        Some(operations / self.operations_per_second * 1e3)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Side {
    Ours,
    Peer,
}

/// All measurements, by work and side.
#[derive(Default)]
struct Table(BTreeMap<(String, Side), Measured>);

impl Table {
    fn add(&mut self, side: Side, lines: Vec<Value>) {
        for line in lines {
            let number = |key: &str| line[key].as_f64().unwrap_or(f64::NAN);
            let work = line["work"].as_str().unwrap_or_default().to_owned();
            let new = Measured {
                least: number("min_ms"),
                middle: number("median_ms"),
                peak: number("peak_mb"),
                faults: number("page_faults"),
            };
            let held = self.0.entry((work, side)).or_insert(new);
            held.least = held.least.min(new.least);
            held.middle = held.middle.min(new.middle);
            held.peak = held.peak.min(new.peak);
            held.faults = held.faults.min(new.faults);
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
    fn text(&self, limits: &Limits) -> String {
        let mut text = format!(
            "The machine's limits: {:.0} GFLOP/s, {:.1} GB/s read.\n\n\
             | work | ours, least ms | middle | PyTorch, least ms | ratio | ours, MB | PyTorch, MB | ours, of the limit | PyTorch, of the limit | page faults |\n\
             |---|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n",
            limits.operations_per_second / 1e9,
            limits.bytes_per_second / 1e9
        );
        for (work, ours, peer) in self.rows() {
            let cell = |value: Option<f64>, digits: usize| match value {
                Some(value) => format!("{value:.digits$}"),
                None => "–".to_owned(),
            };
            let share = |time: f64| {
                let least = limits.least_milliseconds(work)?;
                Some(100.0 * least / time)
            };
            let percent = |value: Option<f64>| match value {
                Some(value) => format!("{value:.0} %"),
                None => "–".to_owned(),
            };
            text.push_str(&format!(
                "| `{work}` | {:.2} | {:.2} | {} | {} | {:.0} | {} | {} | {} | {:.0} |\n",
                ours.least,
                ours.middle,
                cell(peer.map(|it| it.least), 2),
                cell(peer.map(|it| ours.least / it.least), 2),
                ours.peak,
                cell(peer.map(|it| it.peak), 0),
                percent(share(ours.least)),
                percent(peer.and_then(|it| share(it.least))),
                ours.faults,
            ));
        }
        text
    }

    /// Kernels have their naive twins for peers.
    fn json(&self, limits: &Limits, twins: &[Value]) -> Value {
        let rows = self.rows().map(|(work, ours, peer)| {
            json!({
                "work": work,
                "ours_min_ms": ours.least,
                "peer_min_ms": peer.map(|it| it.least),
                "ratio": peer.map(|it| ours.least / it.least),
                "ours_peak_mb": ours.peak,
                "peer_peak_mb": peer.map(|it| it.peak),
                "share_of_limit": limits.least_milliseconds(work).map(|least| least / ours.least),
            })
        });
        let twins = twins.iter().map(|line| {
            let number = |key: &str| line[key].as_f64();
            let (ours, twin) = (number("min_ms"), number("twin_min_ms"));
            json!({
                "work": line["work"], "ours_min_ms": ours, "peer_min_ms": twin,
                "ratio": ours.zip(twin).map(|(ours, twin)| ours / twin),
                "ours_peak_mb": null, "peer_peak_mb": null, "share_of_limit": null,
            })
        });
        Value::Array(rows.chain(twins).collect())
    }
}

/// In Markdown: kernels beside their naive twins.
fn text_of_twins(lines: &[Value]) -> String {
    let mut text = "\n| kernel | ours, least ms | naive twin, least ms | twin over ours |\n|---|--:|--:|--:|\n".to_owned();
    for line in lines {
        let number = |key: &str| line[key].as_f64().unwrap_or(f64::NAN);
        let (ours, twin) = (number("min_ms"), number("twin_min_ms"));
        let name = line["work"].as_str().unwrap_or_default();
        let name = name.trim_start_matches("twin_");
        text.push_str(&format!(
            "| {name} | {ours:.3} | {twin:.2} | {:.0} |\n",
            twin / ours
        ));
    }
    text
}
