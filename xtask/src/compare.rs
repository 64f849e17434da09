//! `cargo xtask compare`: one small recipe, trained once per change of one line, and how far each change ends from it. Trainings
//! that ended are not done again by a later run of the same program.

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

/// The name of a change, its line (`key=value`, of the block where not of the model), and how much more held-out loss than the
/// recipe's own we allow it.
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
    ("reformer", r#"attention={kind="reformer",heads=4,buckets=4,rounds=2,chunk=16}"#, 0.3),
    ("sinusoidal positions", r#"model.positions={kind="sinusoidal"}"#, 0.1),
    ("rotary positions", r#"model.positions={kind="rotary"}"#, 0.05),
    ("ALiBi", r#"model.positions={kind="alibi"}"#, 0.05),
    ("T5 buckets", r#"model.positions={kind="t5_buckets",buckets=16,furthest_distance=64,direction="causal"}"#, 0.05),
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

/// Trains the recipe and its changes, or only those whose names hold one of the words, and compares the held-out losses.
pub fn run(words: &[String]) -> Result<()> {
    let known = |word: &String| CHANGES.iter().any(|change| named(change, word));
    if let Some(word) = words.iter().find(|word| !known(word)) {
        let names: Vec<&str> = CHANGES.iter().map(|change| change.0).collect();
        bail!(
            "no change has `{word}` in its name; there are {}",
            names.join("; ")
        );
    }
    cargo(&["build", "--release", "--workspace"])?;
    let folder = std::env::temp_dir().join(format!("attentive-compare-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    // A copy: whoever builds meanwhile does not change what is compared.
    let program = folder.join("attentive");
    std::fs::copy(root().join("target/release/attentive"), &program)?;
    let compared = compare(&folder, words);
    // Nobody misses what stays behind in the folder of temporary files.
    let _ = std::fs::remove_dir_all(&folder);
    let (table, beyond) = compared?;
    println!("\n{table}");
    if words.is_empty() {
        let page = root().join("docs").join("attention.md");
        performance::replace_between(&page, "compared by `cargo xtask compare`", &table)?;
    }
    if !beyond.is_empty() {
        bail!("more above the recipe than allowed: {}", beyond.join(", "));
    }
    Ok(())
}

/// Whether the name of a change holds a word, in capitals or not.
fn named(change: &Change, word: &str) -> bool {
    change.0.to_lowercase().contains(&word.to_lowercase())
}

/// The table, and the names of those that ended too far away.
fn compare(folder: &Path, words: &[String]) -> Result<(String, Vec<&'static str>)> {
    let asked = |change: &Change| words.is_empty() || words.iter().any(|word| named(change, word));
    let changes: Vec<&Change> = CHANGES.iter().filter(|change| asked(change)).collect();
    let losses = held_out_losses(folder, &changes)?;
    let base = losses[0];
    let mut table = format!(
        "As of {}. The recipe itself (full attention, learned positions, layer norms before, GELU by the hyperbolic tangent) ends at a held-out loss of {base:.3}.\n\n\
         | change | `--set` | held-out loss | more than the recipe | allowed |\n|---|---|--:|--:|--:|\n",
        performance::machine_and_day()
    );
    let mut beyond = Vec::new();
    for ((name, line, allowed), loss) in changes.into_iter().zip(&losses[1..]) {
        let more = loss - base;
        let setting = setting(line);
        let _ = writeln!(
            table,
            "| {name} | `{setting}` | {loss:.3} | {more:+.3} | {allowed} |"
        );
        let within = more <= *allowed;
        if !within {
            beyond.push(*name);
        }
    }
    Ok((table, beyond))
}

/// The held-out losses of the recipe and of its changes. As many are trained at a time as there are processors, each on one.
fn held_out_losses(folder: &Path, changes: &[&Change]) -> Result<Vec<f64>> {
    let kept = Kept::open(&folder.join("attentive"))?;
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
            let loss = match kept.loss(line) {
                Some(loss) => Ok(loss),
                None => held_out_loss(&folder, line).and_then(|loss| kept.keep(line, loss)),
            };
            if loss.is_err() {
                // No use in training on: the comparison has failed.
                next.store(losses.len(), Ordering::Relaxed);
            }
            if let Ok(loss) = &loss {
                println!(
                    "{}: {loss:.3}",
                    change.map_or("full attention", |change| change.0)
                );
            }
            *slot.lock().expect("nobody panics with it") = Some(loss);
        }
    };
    std::thread::scope(|scope| {
        let work = &work;
        for worker in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(move || work(worker));
        }
    });
    let losses = losses.into_iter().map(|it| it.into_inner().ok().flatten());
    let (mut ended, mut all) = (Vec::new(), true);
    for loss in losses {
        all &= loss.is_some();
        ended.extend(loss.transpose()?);
    }
    if !all {
        bail!("a training did not end");
    }
    Ok(ended)
}

/// The losses of trainings that ended, by what was trained: an interrupted comparison goes on where it was.
struct Kept {
    file: PathBuf,
    /// Of the program and the recipe.
    trained: u64,
}

impl Kept {
    fn open(program: &Path) -> Result<Self> {
        let mut hasher = DefaultHasher::new();
        std::fs::read(program)?.hash(&mut hasher);
        std::fs::read(root().join(RECIPE))?.hash(&mut hasher);
        Ok(Self {
            file: root().join("target/compared.txt"),
            trained: hasher.finish(),
        })
    }

    /// What a line of the file begins with.
    fn key(&self, line: Option<&str>) -> String {
        format!("{:016x} {}", self.trained, line.unwrap_or("as it is"))
    }

    fn loss(&self, line: Option<&str>) -> Option<f64> {
        let key = self.key(line);
        let kept = std::fs::read_to_string(&self.file).ok()?;
        let mut losses = kept.lines().filter_map(|kept| kept.split_once('\t'));
        losses.find(|kept| kept.0 == key)?.1.parse().ok()
    }

    fn keep(&self, line: Option<&str>, loss: f64) -> Result<f64> {
        let mut file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&self.file)?;
        file.write_all(format!("{}\t{loss}\n", self.key(line)).as_bytes())?;
        Ok(loss)
    }
}

/// A change as `attentive train --set` takes it.
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
    fn losses_are_kept_for_the_program_and_line_that_gave_them() {
        let file = std::env::temp_dir().join(format!("compared-{}.txt", std::process::id()));
        let kept = Kept {
            file: file.clone(),
            trained: 7,
        };
        assert_eq!(kept.loss(None), None);
        kept.keep(None, 0.25).unwrap();
        kept.keep(Some("a=b"), 0.5).unwrap();
        assert_eq!(
            [kept.loss(None), kept.loss(Some("a=b"))],
            [Some(0.25), Some(0.5)]
        );
        assert_eq!(kept.loss(Some("a=c")), None);
        let other = Kept {
            file: file.clone(),
            trained: 8,
        };
        assert_eq!(other.loss(None), None);
        std::fs::remove_file(file).unwrap();
    }
}
