//! `attentive convert MODEL --out DIR`

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use attentive::assets;
use attentive::checkpoint::{self, Converted, SaveDType, SaveFormat, SaveOptions};
use attentive::hub::{self, FileSet};
use attentive::tasks::SentenceTransformersConfig;
use serde_json::json;

use crate::arguments::{Convert, ConvertTo, DtypeArgument};
use crate::failure::Usage;
use crate::model_folder;
use crate::output::note;

/// Converts a model to another format, dtype or shard size.
pub fn run(arguments: Convert) -> Result<ExitCode> {
    let out = &arguments.out;
    if out.extension().is_some_and(|ending| ending == "gguf") {
        let message = format!(
            "--out: {} would be a GGUF file, which is read and not written; name a folder",
            out.display()
        );
        return Err(Usage(message).into());
    }
    if out.is_file() {
        let message = format!("--out: {} is a file; name a folder", out.display());
        return Err(Usage(message).into());
    }
    let occupied = out.exists() && out.read_dir().map_or(true, |mut it| it.next().is_some());
    if occupied {
        let path = out.display();
        let message = format!("--out: {path} is not empty; name another folder");
        return Err(Usage(message).into());
    }
    let folder = model_folder::find(&arguments.model.model, FileSet::Model)?;
    // Checked before anything is written.
    let assets = Assets::of(&folder)?;
    let device = attentive::tensor::device(&arguments.model.device.device)?;
    let options = arguments.model.load_options();
    let (model, description) = checkpoint::load_with(&folder, &options, &device)?;
    let options = SaveOptions {
        format: match arguments.to {
            ConvertTo::Hf => SaveFormat::HuggingFace,
            ConvertTo::Attentive => SaveFormat::Attentive,
        },
        dtype: match arguments.dtype {
            DtypeArgument::Float32 => SaveDType::Float32,
            DtypeArgument::Float16 => SaveDType::Float16,
            DtypeArgument::Bfloat16 => SaveDType::BFloat16,
        },
        max_shard_bytes: arguments.shard_size,
    };
    let Converted { model_type, format } = checkpoint::convert(out, &model, &description, options)?;
    assets.save(out)?;
    if format != options.format {
        note(format_args!(
            "note: no Hugging Face architecture can express this model; it is saved in our own format"
        ));
    }
    let mut shown = std::io::stdout().lock();
    if arguments.json {
        let json = json!({ "out": out, "model_type": model_type, "dtype": options.dtype.name() });
        writeln!(shown, "{json}")?;
    } else {
        writeln!(
            shown,
            "saved {} as a {model_type} model, {}",
            out.display(),
            options.dtype.name()
        )?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Files that accompany a model's weights.
enum Assets {
    /// File names and contents.
    Texts(Vec<(&'static str, String)>),
    /// Files to copy, by their paths in the folder.
    Files { from: PathBuf, names: Vec<PathBuf> },
}

impl Assets {
    fn of(model: &Path) -> Result<Self> {
        if !model.is_dir() {
            // A GGUF file: its tokenizer metadata becomes files of its own.
            return Ok(Self::Texts(assets::tokenizer_files(model)?));
        }
        let present = |name: &PathBuf| model.join(name).is_file();
        let mut names: Vec<PathBuf> = hub::assets().map(PathBuf::from).collect();
        names.retain(present);
        let modules = SentenceTransformersConfig::module_files(model)?;
        if let Some(missing) = modules.iter().find(|name| !present(name)) {
            let path = model.join(missing);
            anyhow::bail!(
                "{} is missing, and modules.json names it; add it",
                path.display()
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
                    let path = to.join(name);
                    std::fs::write(&path, text).with_context(|| path.display().to_string())?;
                }
            }
            Self::Files { from, names } => {
                for name in names {
                    let target = to.join(name);
                    let path = || target.display().to_string();
                    if let Some(folder) = target.parent() {
                        std::fs::create_dir_all(folder).with_context(path)?;
                    }
                    std::fs::copy(from.join(name), &target).with_context(path)?;
                }
            }
        }
        Ok(())
    }
}
