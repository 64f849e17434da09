//! `cargo xtask compare`: an ablation. Trains one small recipe with each of a list of one-line changes and compares the
//! held-out losses. Finished runs are cached for later calls of the same program.

use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::{cargo, performance, root};

/// The name of a change, its line (`key=value`, of the block unless it starts with `model.`), and by how much its held-out
/// loss may exceed that of the recipe.
type Change = (&'static str, &'static str, f64);

const RECIPE: &str = "recipes/compare.toml";

#[rustfmt::skip]
const CHANGES: &[Change] = &[
    ("full, two key-value heads", r#"attention={kind="full",heads=4,key_value_heads=2}"#, 0.05),
    ("sliding window of 16", r#"attention={kind="sliding_window",heads=4,window=16}"#, 0.05),
    ("cosine", r#"attention={kind="cosine",heads=4}"#, 0.05),
    ("argmax", r#"attention={kind="argmax",heads=4}"#, 0.3),
    ("dot", r#"attention={kind="scored",score={kind="dot"},heads=4}"#, 0.3),
    ("scaled dot", r#"attention={kind="scored",score={kind="scaled_dot"},heads=4}"#, 0.3),
    ("bilinear", r#"attention={kind="scored",score={kind="bilinear"},heads=4}"#, 0.3),
    ("additive", r#"attention={kind="scored",score={kind="additive",hidden_width=8},heads=4}"#, 0.3),
    ("gaussian kernel", r#"attention={kind="nadaraya_watson",kernel="gaussian",width=4.0,learn_width="learned",heads=4}"#, 0.6),
    ("transformer-xl", r#"attention={kind="transformer_xl",heads=4,memory=64}"#, 0.05),
    ("linear", r#"attention={kind="linear",heads=4,map="elu_plus_one"}"#, 0.15),
    ("performer, 64 features", r#"attention={kind="performer",heads=4,features=64}"#, 0.15),
    ("longformer, window of 16, dilation 2", r#"attention={kind="longformer",heads=4,window=16,dilation=2}"#, 0.3),
    ("reformer", r#"attention={kind="reformer",heads=4,buckets=4,hashes=2,chunk=16}"#, 0.3),
    ("sinusoidal positions", r#"model.positions={kind="sinusoidal"}"#, 0.1),
    ("rotary positions", r#"model.positions={kind="rotary"}"#, 0.05),
    ("ALiBi", r#"model.positions={kind="alibi"}"#, 0.05),
    ("T5 buckets", r#"model.positions={kind="t5_buckets",buckets=16,max_distance=64,direction="causal"}"#, 0.05),
    ("no positions", r#"model.positions={kind="none"}"#, 0.1),
    ("norm after", r#"model.blocks.0.placement="after""#, 0.15),
    ("norm on both sides", r#"model.blocks.0.placement="both""#, 0.05),
    ("RMS norm", r#"model.blocks.0.norm={kind="rms"}"#, 0.05),
    ("ReLU", r#"feed_forward={kind="plain",hidden_width=256,activation="relu"}"#, 0.05),
    ("GELU, exact", r#"feed_forward={kind="plain",hidden_width=256,activation="gelu"}"#, 0.05),
    ("SiLU", r#"feed_forward={kind="plain",hidden_width=256,activation="silu"}"#, 0.05),
    ("GLU", r#"feed_forward={kind="gated",hidden_width=172,activation="sigmoid"}"#, 0.05),
    ("GeGLU", r#"feed_forward={kind="gated",hidden_width=172,activation="gelu"}"#, 0.05),
    ("SwiGLU", r#"feed_forward={kind="gated",hidden_width=172,activation="silu"}"#, 0.05),
    ("4 experts, 2 active", r#"feed_forward={kind="experts",experts=4,active=2,hidden_width=128,activation="silu"}"#, 0.05),
];

/// Trains the recipe and its changes, or only those whose names contain one of the filters, and compares the held-out losses.
pub fn run(filters: &[String]) -> Result<()> {
    let known = |filter: &String| CHANGES.iter().any(|change| name_contains(change, filter));
    if let Some(filter) = filters.iter().find(|filter| !known(filter)) {
        let names: Vec<&str> = CHANGES.iter().map(|change| change.0).collect();
        bail!(
            "no change has `{filter}` in its name; there are {}",
            names.join("; ")
        );
    }
    cargo(&["build", "--release", "--workspace"])?;
    let folder = std::env::temp_dir().join(format!("attentive-compare-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    // A copy, so that a build in the meantime does not change the program.
    let program = folder.join("attentive");
    std::fs::copy(root().join("target/release/attentive"), &program)?;
    let compared = compare(&folder, filters);
    // A temporary folder that cannot be removed is harmless.
    let _ = std::fs::remove_dir_all(&folder);
    let (table, exceeding) = compared?;
    println!("\n{table}");
    if filters.is_empty() {
        let page = root().join("docs").join("attention.md");
        performance::replace_between(&page, "compared by `cargo xtask compare`", &table)?;
    }
    if !exceeding.is_empty() {
        bail!(
            "the held-out loss exceeds the recipe's by more than the tolerance: {}",
            exceeding.join(", ")
        );
    }
    Ok(())
}

/// Whether the name of a change contains a filter, ignoring case.
fn name_contains(change: &Change, filter: &str) -> bool {
    change.0.to_lowercase().contains(&filter.to_lowercase())
}

/// The table, and the names of the changes that exceed their tolerance.
fn compare(folder: &Path, filters: &[String]) -> Result<(String, Vec<&'static str>)> {
    let selected = |change: &Change| {
        filters.is_empty() || filters.iter().any(|filter| name_contains(change, filter))
    };
    let changes: Vec<&Change> = CHANGES.iter().filter(|change| selected(change)).collect();
    let losses = held_out_losses(folder, &changes)?;
    let base = losses[0];
    let mut table = format!(
        "As of {}. The recipe itself (full attention, learned positions, layer norms before, tanh GELU) ends at a held-out loss of {base:.3}.\n\n\
         | change | `--set` | held-out loss | difference | tolerance |\n|---|---|--:|--:|--:|\n",
        performance::date_and_machine()
    );
    let mut exceeding = Vec::new();
    for ((name, line, tolerance), loss) in changes.into_iter().zip(&losses[1..]) {
        let difference = loss - base;
        let setting = setting(line);
        let _ = writeln!(
            table,
            "| {name} | `{setting}` | {loss:.3} | {difference:+.3} | {tolerance} |"
        );
        let within = difference <= *tolerance;
        if !within {
            exceeding.push(*name);
        }
    }
    Ok((table, exceeding))
}

/// The held-out losses of the recipe and of its changes. Trains one on each core at a time.
fn held_out_losses(folder: &Path, changes: &[&Change]) -> Result<Vec<f64>> {
    let cache = LossCache::open(&folder.join("attentive"))?;
    let next = AtomicUsize::new(0);
    let losses: Vec<Mutex<Option<Result<f64>>>> =
        (0..=changes.len()).map(|_| Mutex::new(None)).collect();
    let work = |worker: usize| {
        let folder = folder.join(worker.to_string());
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(slot) = losses.get(index) else { break };
            let change = index.checked_sub(1).map(|index| changes[index]);
            let line = change.map(|change| change.1);
            let loss = match cache.loss(line) {
                Some(loss) => Ok(loss),
                None => held_out_loss(&folder, line).and_then(|loss| cache.store(line, loss)),
            };
            if loss.is_err() {
                // The comparison has failed, so the other workers stop.
                next.store(losses.len(), Ordering::Relaxed);
            }
            if let Ok(loss) = &loss {
                println!(
                    "{}: {loss:.3}",
                    change.map_or("full attention", |change| change.0)
                );
            }
            *slot.lock().expect("no worker panics") = Some(loss);
        }
    };
    std::thread::scope(|scope| {
        let work = &work;
        for worker in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(move || work(worker));
        }
    });
    let losses = losses.into_iter().map(|it| it.into_inner().ok().flatten());
    let (mut finished, mut all) = (Vec::new(), true);
    for loss in losses {
        all &= loss.is_some();
        finished.extend(loss.transpose()?);
    }
    if !all {
        bail!("a training run did not finish");
    }
    Ok(finished)
}

/// Held-out losses of finished runs, so that an interrupted comparison resumes.
struct LossCache {
    file: PathBuf,
    /// A hash of the program and the recipe.
    fingerprint: u64,
}

impl LossCache {
    fn open(program: &Path) -> Result<Self> {
        let mut hasher = DefaultHasher::new();
        std::fs::read(program)?.hash(&mut hasher);
        std::fs::read(root().join(RECIPE))?.hash(&mut hasher);
        Ok(Self {
            file: root().join("target/compared.txt"),
            fingerprint: hasher.finish(),
        })
    }

    /// The key of a line of the file.
    fn key(&self, line: Option<&str>) -> String {
        format!("{:016x} {}", self.fingerprint, line.unwrap_or("as it is"))
    }

    fn loss(&self, line: Option<&str>) -> Option<f64> {
        let key = self.key(line);
        let cache = std::fs::read_to_string(&self.file).ok()?;
        let mut losses = cache.lines().filter_map(|line| line.split_once('\t'));
        losses.find(|loss| loss.0 == key)?.1.parse().ok()
    }

    fn store(&self, line: Option<&str>, loss: f64) -> Result<f64> {
        let mut file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&self.file)?;
        file.write_all(format!("{}\t{loss}\n", self.key(line)).as_bytes())?;
        Ok(loss)
    }
}

/// A change as an argument of `attentive train --set`.
fn setting(line: &str) -> String {
    match line.starts_with("model.") {
        true => line.to_owned(),
        false => format!("model.blocks.0.{line}"),
    }
}

/// The held-out loss after training the recipe with this change.
fn held_out_loss(folder: &Path, change: Option<&str>) -> Result<f64> {
    let run = folder.join("run");
    let mut command = Command::new(folder.with_file_name("attentive"));
    command.env("ATTENTIVE_THREADS", "1");
    command.arg("train").arg(root().join(RECIPE));
    command
        .arg("--out")
        .arg(&run)
        .args(["--overwrite", "--json"]);
    if let Some(line) = change {
        command.args(["--set", &setting(line)]);
    }
    let output = command.output()?;
    if !output.status.success() {
        bail!(
            "{command:?}: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    let metrics = std::fs::read_to_string(run.join("metrics.jsonl"))?;
    let mut losses = metrics.lines().rev().filter_map(|line| {
        let line: Value = serde_json::from_str(line).ok()?;
        line["held_out_loss"].as_f64()
    });
    losses.next().context("the run has no held-out loss")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_are_cached_by_program_and_line() {
        let file = std::env::temp_dir().join(format!("compared-{}.txt", std::process::id()));
        let cache = LossCache {
            file: file.clone(),
            fingerprint: 7,
        };
        assert_eq!(cache.loss(None), None);
        cache.store(None, 0.25).unwrap();
        cache.store(Some("a=b"), 0.5).unwrap();
        assert_eq!(
            [cache.loss(None), cache.loss(Some("a=b"))],
            [Some(0.25), Some(0.5)]
        );
        assert_eq!(cache.loss(Some("a=c")), None);
        let other = LossCache {
            file: file.clone(),
            fingerprint: 8,
        };
        assert_eq!(other.loss(None), None);
        std::fs::remove_file(file).unwrap();
    }
}
