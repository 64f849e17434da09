//! `attentive train [RECIPE]`

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};
use attentive::generation::{GenerationConfig, Sampling, generate};
use attentive::training::{
    DataConfig, Listener, Outcome, Recipe, RunFolder, Start, Summary, Trainer, recipes,
};
use serde_json::json;

use crate::arguments::Train;
use crate::commands::recipes::no_such_recipe;
use crate::failure::Usage;
use crate::plot::LossPlot;
use crate::progress::{Bar, JsonLines, PlainLines};

/// What a shell gives a program that was ended by Ctrl-C.
const INTERRUPTED: u8 = 130;

/// Trains a model.
pub fn run(arguments: Train) -> Result<ExitCode> {
    let device = attentive::tensor::device(&arguments.device.device)?;
    let folder = RunFolder::new(folder(&arguments));
    let start = match (arguments.resume, arguments.overwrite) {
        (true, _) => Start::Resume,
        (_, true) => Start::Overwrite,
        _ => Start::New,
    };
    let recipe = resolve(&arguments, &folder)?;
    let mut trainer = Trainer::start(recipe, folder.clone(), start, &device)?;
    let stop = stop_on_interrupt()?;
    let mut progress: Box<dyn Listener> = if arguments.json {
        Box::new(JsonLines)
    } else if std::io::stderr().is_terminal() {
        Box::new(Bar::default())
    } else {
        Box::new(PlainLines::default())
    };
    let mut plot = LossPlot::new(folder.clone());
    let summary = trainer.run(&mut [progress.as_mut(), &mut plot], &stop)?;
    drop(progress);
    plot.finish()?;
    if summary.outcome == Outcome::Interrupted {
        let resume = format!("attentive train --resume --out {}", folder.path().display());
        if arguments.json {
            println!(
                "{}",
                json!({ "event": "interrupted", "step": summary.step, "resume": resume })
            );
        } else {
            println!(
                "stopped after step {} and saved; go on with\n  {resume}",
                summary.step
            );
        }
        return Ok(ExitCode::from(INTERRUPTED));
    }
    let sample = sample(&trainer)?;
    let mut out = std::io::stdout().lock();
    if arguments.json {
        let words = json!({
            "event": "summary",
            "folder": folder.path(),
            "step": summary.step,
            "held_out_loss": summary.held_out_loss,
            "best": summary.best.map(|(loss, step)| json!({ "held_out_loss": loss, "step": step })),
            "unigram_entropy": summary.unigram_entropy,
            "sample": sample,
        });
        writeln!(out, "{words}")?;
    } else {
        conclude(&mut out, &summary, &folder, &sample)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The recipe that was asked for, with all changes made.
fn resolve(arguments: &Train, folder: &RunFolder) -> Result<Recipe> {
    let mut changes = arguments.changes.clone();
    changes.extend(arguments.seed.map(|seed| format!("seed={seed}")));
    let held = if arguments.resume {
        folder.recipe()?
    } else {
        None
    };
    let mut recipe = match (&arguments.recipe, held) {
        (None, Some(held)) => held.with_changes(&changes)?,
        (None, None) => recipes::BUILT_IN[0].parse(&changes)?,
        (Some(name), _) => named(name, &changes)?,
    };
    if !arguments.data.is_empty() {
        let absolute = |path: &PathBuf| std::path::absolute(path);
        recipe.data = DataConfig::Files {
            // Resuming may happen from another folder.
            paths: arguments
                .data
                .iter()
                .map(absolute)
                .collect::<Result<_, _>>()?,
            held_out: recipe.data.held_out(),
        };
    }
    Ok(recipe)
}

fn named(name: &str, changes: &[String]) -> Result<Recipe> {
    if let Some(recipe) = recipes::find(name) {
        return Ok(recipe.parse(changes)?);
    }
    let path = Path::new(name);
    if !path.exists() {
        return Err(Usage(no_such_recipe(name)).into());
    }
    let text = std::fs::read_to_string(path).with_context(|| name.to_owned())?;
    Recipe::parse(&text, changes)
        .map_err(|error| anyhow::Error::from(error).context(name.to_owned()))
}

/// The run's folder: as asked for, or named after the recipe.
fn folder(arguments: &Train) -> PathBuf {
    arguments.out.clone().unwrap_or_else(|| {
        let recipe = arguments
            .recipe
            .as_deref()
            .unwrap_or(recipes::BUILT_IN[0].name);
        let stem = Path::new(recipe).file_stem().unwrap_or_default();
        Path::new("runs").join(stem)
    })
}

/// Set by the first Ctrl-C; the second ends the program at once.
fn stop_on_interrupt() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    let flag = stop.clone();
    ctrlc::set_handler(move || {
        if flag.swap(true, Ordering::Relaxed) {
            std::process::exit(i32::from(INTERRUPTED));
        }
        eprintln!("\nfinishing this step, then saving; press Ctrl-C again to end at once");
    })?;
    Ok(stop)
}

/// Lets the trained model write.
fn sample(trainer: &Trainer) -> Result<String> {
    let settings = &trainer.recipe().sample;
    let tokenizer = &trainer.data().tokenizer;
    let end = tokenizer.end_of_text();
    let mut prompt = tokenizer.encode(&settings.prompt)?;
    if prompt.is_empty() {
        // Without a mark for the beginning of a text, the sample goes on where the held-out text begins.
        prompt.extend(end.or(trainer.data().tokens.held_out.first().copied()));
    }
    let config = GenerationConfig {
        max_tokens: settings.tokens,
        sampling: Sampling {
            temperature: 0.8,
            seed: trainer.recipe().seed,
            ..Sampling::default()
        },
        stop: Vec::new(),
        end: end.into_iter().collect(),
    };
    let done = generate(&trainer.model(), Some(tokenizer), &prompt, &config, |_| ())?;
    Ok(format!("{}{}", settings.prompt, done.text))
}

fn conclude(
    out: &mut impl Write,
    summary: &Summary,
    folder: &RunFolder,
    sample: &str,
) -> Result<()> {
    let path = folder.path().display();
    let entropy = summary.unigram_entropy;
    match summary.held_out_loss {
        Some(loss) => writeln!(
            out,
            "\nheld-out loss  {loss:.4} nats per token (unigram entropy {entropy:.4})"
        )?,
        None => writeln!(
            out,
            "\nnothing to do: all {} steps are done already",
            summary.step
        )?,
    }
    if let Some((loss, step)) = summary.best.filter(|(_, step)| *step != summary.step) {
        let best = folder.best();
        writeln!(
            out,
            "lowest         {loss:.4} at step {step}, kept in {}",
            best.display()
        )?;
    }
    writeln!(out, "\n{}\n", sample.trim_end())?;
    writeln!(
        out,
        "saved {path} (model, recipe.toml, metrics.jsonl, loss.svg); next try"
    )?;
    writeln!(
        out,
        "  attentive generate {path} --prompt \"{}\"",
        first_words(sample)
    )?;
    Ok(())
}

/// A prompt to try: how the sample begins.
fn first_words(sample: &str) -> String {
    let words: Vec<&str> = sample.split_whitespace().take(3).collect();
    words.join(" ").replace('"', "")
}
