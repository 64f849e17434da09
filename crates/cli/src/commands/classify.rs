//! `attentive classify MODEL TEXT|IMAGE…`

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use attentive::Pretrained;
use attentive::checkpoint::ClassificationFunction;
use attentive::tasks::{ClassScore, ClassifiedToken, Text};
use serde_json::{Value, json};

use super::reading::Reader;
use crate::arguments::Classify;
use crate::failure::Usage;
use crate::model_folder;

/// The default number of classes to show.
const TOP: usize = 5;

/// Classifies texts or images, or labels tokens.
pub fn run(arguments: Classify) -> Result<ExitCode> {
    let model = model_folder::load(&arguments.model, Some(&arguments.tokenizer))?;
    if model.reads_images() {
        return classify_files(&arguments, &model);
    }
    let function = model.description().classification_function();
    let mut reader = Reader::of(&arguments.input)?;
    let mut out = std::io::stdout().lock();
    while let Some((lines, batch)) = reader.next_chunk() {
        let inputs: Vec<Text> = lines
            .iter()
            .map(|line| text(line, arguments.pairs))
            .collect::<Result<_>>()?;
        if model.labels_tokens() {
            if arguments.top.is_some() {
                let message =
                    "--top: the model labels tokens, and each has one label; leave it out";
                return Err(Usage(message.to_owned()).into());
            }
            let found = model.label(inputs).batch(batch).run()?;
            for (line, tokens) in lines.iter().zip(&found) {
                show_tokens(&mut out, line, tokens, arguments.input.json)?;
            }
            continue;
        }
        let found = model.classify(inputs).batch(batch).run()?;
        for (line, classes) in lines.iter().zip(&found) {
            show(&mut out, ("text", line), (classes, function), &arguments)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// One text, or a pair separated by a tab.
fn text(line: &str, pair: bool) -> Result<Text> {
    if !pair {
        return Ok(line.into());
    }
    let (first, second) = line.split_once('\t').ok_or_else(|| {
        Usage(format!(
            "--pairs: {line:?} has no tab between two texts; separate them by one"
        ))
    })?;
    Ok(Text {
        first: first.to_owned(),
        second: Some(second.to_owned()),
    })
}

/// Classifies image files.
fn classify_files(arguments: &Classify, model: &Pretrained) -> Result<ExitCode> {
    let refused = [
        ("--tokenizer", arguments.tokenizer.tokenizer.is_some()),
        ("--lower-case", arguments.tokenizer.lower_case.is_some()),
        ("--pairs", arguments.pairs),
        ("--truncate", arguments.input.truncate),
    ];
    if let Some((option, _)) = refused.into_iter().find(|(_, given)| *given) {
        let message = format!("{option}: the model classifies images; leave it out");
        return Err(Usage(message).into());
    }
    let mut files = Vec::new();
    for name in Reader::of(&arguments.input)?.texts() {
        files.extend(image_files(Path::new(name))?);
    }
    let mut out = std::io::stdout().lock();
    let function = model.description().classification_function();
    for files in files.chunks(usize::from(arguments.input.batch_size)) {
        let found = model.classify_files(files)?.run()?;
        for (file, classes) in files.iter().zip(&found) {
            let name = file.display().to_string();
            show(&mut out, ("file", &name), (classes, function), arguments)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// A file, or the image files of a folder, sorted by name.
fn image_files(path: &Path) -> Result<Vec<PathBuf>> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    const EXTENSIONS: [&str; 6] = ["png", "jpg", "jpeg", "gif", "bmp", "webp"];
    let shown = || path.display().to_string();
    let mut files = Vec::new();
    for entry in std::fs::read_dir(path).with_context(shown)? {
        let file = entry.with_context(shown)?.path();
        let extension = file.extension().and_then(|it| it.to_str());
        let known = extension.is_some_and(|it| EXTENSIONS.contains(&it.to_lowercase().as_str()));
        files.extend(known.then_some(file));
    }
    files.sort();
    match files.is_empty() {
        true => Err(Usage(format!(
            "{} holds no image files ({}); give files, or another folder",
            shown(),
            EXTENSIONS.join(", ")
        ))
        .into()),
        false => Ok(files),
    }
}

fn to_json(scored: &ClassScore, scores: ClassificationFunction) -> Value {
    let name = match scores {
        ClassificationFunction::None => "score",
        ClassificationFunction::Softmax | ClassificationFunction::Sigmoid => "probability",
    };
    json!({ "label": scored.label, "class": scored.class, name: scored.score })
}

fn show(
    out: &mut impl Write,
    (kind, name): (&str, &str),
    (classes, scores): (&[ClassScore], ClassificationFunction),
    arguments: &Classify,
) -> Result<()> {
    let top = arguments.top.map_or(TOP, |top| top as usize);
    let classes = &classes[..classes.len().min(top)];
    if arguments.input.json {
        let classes = classes.iter().map(|it| to_json(it, scores));
        let classes: Vec<Value> = classes.collect();
        writeln!(out, "{}", json!({ kind: name, "classes": classes }))?;
        return Ok(());
    }
    writeln!(out, "{name}")?;
    for scored in classes {
        match scores {
            ClassificationFunction::None => {
                writeln!(out, "  {:>8.4}  {}", scored.score, scored.label)?
            }
            _ => writeln!(out, "  {:>6.2} %  {}", 100.0 * scored.score, scored.label)?,
        }
    }
    Ok(())
}

fn show_tokens(
    out: &mut impl Write,
    text: &str,
    tokens: &[ClassifiedToken],
    as_json: bool,
) -> Result<()> {
    if as_json {
        let token = |it: &ClassifiedToken| {
            let mut json = to_json(&it.best, ClassificationFunction::Softmax);
            json["token"] = json!(it.token);
            json["start"] = json!(it.span.start);
            json["end"] = json!(it.span.end);
            json
        };
        let tokens: Vec<Value> = tokens.iter().map(token).collect();
        writeln!(out, "{}", json!({ "text": text, "tokens": tokens }))?;
        return Ok(());
    }
    writeln!(out, "{text}")?;
    for ClassifiedToken { token, best, .. } in tokens {
        let shown = token.escape_debug().to_string();
        writeln!(
            out,
            "  {shown:<16} {:<12} {:>6.2} %",
            best.label,
            100.0 * best.score
        )?;
    }
    Ok(())
}
