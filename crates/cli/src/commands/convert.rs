//! `attentive convert MODEL --out DIR`

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use attentive::companions;
use attentive::hub::{self, Wanted};
use attentive::model::checkpoint::{self, SaveOptions, Saved, SavedAs, SavedNumbers};
use attentive::tasks::SentenceFolder;
use serde_json::json;

use crate::arguments::{Convert, ConvertTo, NumbersArgument};
use crate::failure::Usage;
use crate::model_folder;
use crate::output::note;

/// Saves a model anew: in other words, as other numbers, in several files.
pub fn run(arguments: Convert) -> Result<ExitCode> {
    let out = &arguments.out;
    if out.is_file() {
        let sentence = format!("--out: {} is a file; name a folder", out.display());
        return Err(Usage(sentence).into());
    }
    let occupied = out.exists() && out.read_dir().map_or(true, |mut it| it.next().is_some());
    if occupied {
        let place = out.display();
        let sentence = format!("--out: {place} is there and not empty; name another folder");
        return Err(Usage(sentence).into());
    }
    let folder = model_folder::find(&arguments.model, Wanted::Model)?;
    // A folder that cannot be copied as a whole is not begun.
    let companions = Companions::of(&folder)?;
    let device = attentive::tensor::device("cpu")?;
    let (model, description) = checkpoint::load(&folder, &device)?;
    let options = SaveOptions {
        format: match arguments.to {
            ConvertTo::Hf => SavedAs::HuggingFace,
            ConvertTo::Attentive => SavedAs::Attentive,
        },
        numbers: match arguments.dtype {
            NumbersArgument::Float32 => SavedNumbers::Float32,
            NumbersArgument::Float16 => SavedNumbers::Float16,
            NumbersArgument::Bfloat16 => SavedNumbers::BFloat16,
        },
        shard_bytes: arguments.shard_size,
    };
    let Saved { model_type, format } = checkpoint::convert(out, &model, &description, options)?;
    companions.save(out)?;
    if format != options.format {
        note(format_args!(
            "note: no architecture of Hugging Face can express this model; it is saved in our own words"
        ));
    }
    let mut shown = std::io::stdout().lock();
    if arguments.json {
        let words =
            json!({ "out": out, "model_type": model_type, "dtype": options.numbers.word() });
        writeln!(shown, "{words}")?;
    } else {
        writeln!(
            shown,
            "saved {} as a {model_type} model, {}",
            out.display(),
            options.numbers.word()
        )?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What lies beside a model's weights.
enum Companions {
    /// Texts of files, by their names.
    Texts(Vec<(&'static str, String)>),
    /// Files of a folder, by their names in it.
    Files { from: PathBuf, names: Vec<PathBuf> },
}

impl Companions {
    fn of(model: &Path) -> Result<Self> {
        if !model.is_dir() {
            // A file that holds all: what it says of its tokenizer becomes files of its own.
            return Ok(Self::Texts(companions::tokenizer_files(model)?));
        }
        let present = |name: &PathBuf| model.join(name).is_file();
        let mut names: Vec<PathBuf> = hub::companions().map(PathBuf::from).collect();
        names.retain(present);
        let modules = SentenceFolder::module_files(model)?;
        if let Some(missing) = modules.iter().find(|name| !present(name)) {
            let place = model.join(missing);
            anyhow::bail!(
                "{} is missing, and modules.json names it; add it",
                place.display()
            );
        }
        names.extend(modules);
        let from = model.to_owned();
        Ok(Self::Files { from, names })
    }

    fn save(&self, to: &Path) -> Result<()> {
        match self {
            Self::Texts(texts) => {
                for (name, text) in texts {
                    let place = to.join(name);
                    std::fs::write(&place, text).with_context(|| place.display().to_string())?;
                }
            }
            Self::Files { from, names } => {
                for name in names {
                    let target = to.join(name);
                    let place = || target.display().to_string();
                    if let Some(folder) = target.parent() {
                        std::fs::create_dir_all(folder).with_context(place)?;
                    }
                    std::fs::copy(from.join(name), &target).with_context(place)?;
                }
            }
        }
        Ok(())
    }
}
