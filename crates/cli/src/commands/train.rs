//! `attentive train [RECIPE]`

mod dry_run;
mod interrupt;

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use attentive::training::{
    DataConfig, Listener, Outcome, Plan, Recipe, RunFolder, Start, Summary, Trainer, recipes,
};
use serde_json::{Value, json};

use crate::arguments::Train;
use crate::commands::recipes::no_such_recipe;
use crate::commands::train::interrupt::Interrupt;
use crate::failure::Usage;
use crate::input::utf8;
use crate::output::{Verbosity, note, quoted, verbosity};
use crate::plot::LossPlot;
use crate::progress::{Bar, JsonLines, PlainLines, Silent};
use crate::sample::Sample;

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
    let starts_over = match start {
        Start::Resume => starts_over(&folder),
        Start::New | Start::Overwrite => None,
    };
    if arguments.dry_run {
        let plan = Plan::new(recipe, &folder, start, &device)?;
        starts_over.iter().for_each(note);
        dry_run::describe(&plan, folder.path(), arguments.json)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut trainer = Trainer::start(recipe, folder.clone(), start, &device)?;
    starts_over.iter().for_each(note);
    let mut interrupt = Interrupt::install(&folder)?;
    let stop = interrupt.stop();
    let (mut json_lines, mut silent, mut bar, mut plain_lines) = (
        JsonLines::new(stop.clone()),
        Silent,
        Bar::default(),
        PlainLines::default(),
    );
    let progress: &mut dyn Listener = if arguments.json {
        &mut json_lines
    } else if verbosity() == Verbosity::Quiet {
        &mut silent
    } else if std::io::stderr().is_terminal() {
        &mut bar
    } else {
        &mut plain_lines
    };
    let mut plot = LossPlot::new(folder.clone());
    let summary = trainer.run(&mut [progress, &mut plot, &mut interrupt], &stop)?;
    json_lines.finish()?;
    let mut out = std::io::stdout().lock();
    let code = match summary.outcome {
        Outcome::Interrupted => {
            print_how_to_resume(&mut out, &summary, &folder, arguments.json)?;
            interrupt.exit_code()
        }
        Outcome::Finished => {
            let sample = Sample::write(&trainer, &stop);
            if arguments.json {
                writeln!(out, "{}", summary_json(&summary, &folder, &sample))?;
            } else {
                print_summary(&mut out, &summary, &folder, &sample)?;
            }
            ExitCode::SUCCESS
        }
    };
    plot.finish()?;
    Ok(code)
}

/// What to say where a run to resume has to start over.
fn starts_over(folder: &RunFolder) -> Option<String> {
    let holds = match folder.holds_run() {
        _ if folder.state_path().exists() => return None,
        true => "no checkpoint yet: its run starts at step 0",
        false => "no run: a new one starts",
    };
    Some(format!("{} holds {holds}", folder.path().display()))
}

/// The recipe with all overrides applied.
fn resolve(arguments: &Train, folder: &RunFolder) -> Result<Recipe> {
    let mut changes = arguments.changes.clone();
    changes.extend(arguments.seed.map(|seed| format!("seed={seed}")));
    changes.extend(
        arguments
            .steps
            .map(|steps| format!("training.steps={steps}")),
    );
    let previous = match arguments.resume {
        true => folder.recipe()?,
        false => None,
    };
    let mut recipe = match (&arguments.recipe, &previous) {
        (None, Some(previous)) => previous.with_changes(&changes)?,
        (None, None) if arguments.resume => {
            let folder = folder.path().display();
            let message = format!(
                "{folder} holds no run to resume; name its folder with --out, or a recipe to begin a run"
            );
            return Err(Usage(message).into());
        }
        (None, None) => recipes::BUILT_IN[0].parse(&changes)?,
        (Some(name), _) => named(name, &changes)?,
    };
    let changed = changes
        .iter()
        .any(|change| change.trim().starts_with("data"));
    let paths = match (previous.map(|previous| previous.data), &recipe.data) {
        _ if !arguments.data.is_empty() => arguments.data.clone(),
        // The recipe names no files, so the run keeps its own.
        (Some(DataConfig::Files { paths, .. }), _) if !changed => paths,
        (_, DataConfig::Files { paths, .. }) => paths.clone(),
        (_, DataConfig::Stories { .. }) => return Ok(recipe),
    };
    // Absolute, since a run may be resumed from another folder.
    let absolute = paths.iter().map(std::path::absolute);
    recipe.data = DataConfig::Files {
        paths: absolute.collect::<Result<_, _>>()?,
        held_out: recipe.data.held_out(),
    };
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
    let bytes = std::fs::read(path).with_context(|| name.to_owned())?;
    let text = utf8(name, bytes)?;
    Recipe::parse(&text, changes)
        .map_err(|error| anyhow::Error::from(error).context(name.to_owned()))
}

/// The run's folder: from --out, or named after the recipe.
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

fn print_how_to_resume(
    out: &mut impl Write,
    summary: &Summary,
    folder: &RunFolder,
    json: bool,
) -> Result<()> {
    let step = summary.step;
    let path = quoted(&folder.path().display().to_string());
    let resume = format!("attentive train --resume --out {path}");
    if json {
        let json = json!({ "event": "interrupted", "step": step, "resume": resume });
        writeln!(out, "{json}")?;
    } else {
        writeln!(
            out,
            "stopped after step {step} and saved; resume with\n  {resume}"
        )?;
    }
    Ok(())
}

fn summary_json(summary: &Summary, folder: &RunFolder, sample: &Sample) -> Value {
    json!({
        "event": "summary",
        "folder": folder.path(),
        "step": summary.step,
        "held_out_loss": summary.held_out_loss,
        "best": summary.best.map(|(loss, step)| json!({ "held_out_loss": loss, "step": step })),
        "unigram_entropy": summary.unigram_entropy,
        "sample": sample.text,
        "sample_note": sample.note,
    })
}

fn print_summary(
    out: &mut impl Write,
    summary: &Summary,
    folder: &RunFolder,
    sample: &Sample,
) -> Result<()> {
    writeln!(out)?;
    if summary.session_steps == 0 {
        let step = summary.step;
        writeln!(out, "nothing to do: all {step} steps are done already")?;
    }
    if let Some(loss) = summary.held_out_loss {
        let entropy = summary.unigram_entropy;
        writeln!(
            out,
            "held-out loss  {loss:.4} nats per token (unigram entropy {entropy:.4})"
        )?;
    }
    if let Some((loss, step)) = summary.best.filter(|(_, step)| *step != summary.step) {
        let best = folder.best();
        writeln!(
            out,
            "lowest         {loss:.4} at step {step}, kept in {}",
            best.display()
        )?;
    }
    if let Some(note) = &sample.note {
        writeln!(out, "\n({note})")?;
    }
    writeln!(out, "\n{}\n", sample.text.trim_end())?;
    let path = folder.path().display().to_string();
    writeln!(
        out,
        "saved {path} (model, recipe.toml, metrics.jsonl, loss.svg); try next:"
    )?;
    let path = quoted(&path);
    match &sample.prompt {
        Some(prompt) => writeln!(out, "  attentive generate {path} {}", quoted(prompt))?,
        None => writeln!(out, "  attentive generate {path}")?,
    }
    Ok(())
}
