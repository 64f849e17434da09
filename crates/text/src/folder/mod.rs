//! The tokenizer of a Hugging Face model folder: from tokenizer.json, or else built from the vocabulary files.
//!
//! The tokenizer class is read from the files, never guessed:
//!
//! ```text
//! tokenizer_class in tokenizer_config.json, in config.json → model_type in config.json → what the special tokens imply
//! ```

mod added_tokens;
mod bpe;
mod classes;
mod files;
mod marian;
mod metaspace;
mod pieces;
mod special_tokens;
mod tokenizer_json;
mod word_piece;

use std::path::{Path, PathBuf};

use classes::{Class, NamedClass, VocabularyKind};
use special_tokens::ConfiguredTokens;

pub(crate) use added_tokens::AddedTokens;
pub(crate) use files::{Files, broken, read_text_if_exists, unsupported};
pub(crate) use special_tokens::AddedToken;
pub use special_tokens::{SpecialToken, SpecialTokens};
pub(crate) use tokenizer_json::{SPACE, TemplatePart, TokenizerJson, template_of};

use crate::padding::{PaddingSettings, Side};
use crate::{TextError, Tokenizer};

const PIECE_FILES: [&str; 3] = ["spiece.model", "tokenizer.model", "sentencepiece.bpe.model"];

/// The settings of a folder beyond tokenizer.json.
#[derive(Clone, Debug, Default)]
pub(crate) struct TokenizerSettings {
    pub(crate) special: SpecialTokens,
    pub(crate) padding: PaddingSettings,
}

/// What the files of a tokenizer may not say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TokenizerOptions {
    /// The `model_type` that config.json lacks.
    pub model_type: Option<String>,
    /// Whether text is lower-cased, which tokenizer_config.json does not say.
    pub do_lower_case: Option<bool>,
}

impl Tokenizer {
    /// Loads the tokenizer of a Hugging Face model folder; `None` if it has no tokenizer files.
    ///
    /// That is tokenizer.json if there is one. Otherwise the tokenizer is built from vocab.txt, vocab.json with merges.txt, or
    /// a SentencePiece model (spiece.model, tokenizer.model, sentencepiece.bpe.model), as Hugging Face's fast classes do, or
    /// from vocab.json with source.spm for Marian. Ambiguous files are an error, never a guess.
    pub fn from_folder(folder: &Path) -> Result<Option<Self>, TextError> {
        Self::from_folder_with(folder, &TokenizerOptions::default())
    }

    /// [`Tokenizer::from_folder`] with what the files do not say.
    pub fn from_folder_with(
        folder: &Path,
        options: &TokenizerOptions,
    ) -> Result<Option<Self>, TextError> {
        if !folder.is_dir() {
            return Err(TextError::NotAFolder {
                path: folder.to_owned(),
            });
        }
        let json = folder.join("tokenizer.json");
        let vocabularies = Vocabularies::find(folder)?;
        if !json.exists() && vocabularies.count() == 0 {
            return Ok(None);
        }
        let mut files = Files::read(folder)?;
        if let Some(model_type) = &options.model_type {
            let value = model_type.as_str().into();
            files.model.insert("model_type".to_owned(), value);
        }
        if let Some(lower_case) = options.do_lower_case {
            let refuse = |reason| {
                let path = folder.to_owned();
                Err(TextError::NoLowerCase { path, reason })
            };
            match files.flag("do_lower_case")? {
                _ if json.exists() => return refuse("tokenizer.json settles it"),
                Some(said) if said != lower_case => {
                    return refuse("tokenizer_config.json says the opposite");
                }
                _ => {}
            }
            let value = lower_case.into();
            files.config.insert("do_lower_case".to_owned(), value);
        }
        let named = Class::named(&files)?;
        if json.exists() {
            let settings = FolderSettings {
                files: &files,
                class: named.class,
            };
            return settings.complete(Self::load(&json)?).map(Some);
        }
        let class = vocabularies.class(&files, named)?;
        let special_tokens = ConfiguredTokens::read(&files, Some(class))?;
        let path = vocabularies.path(&files, class)?;
        let family = class.family;
        if options.do_lower_case.is_some() && !family.reads_lower_case() {
            return Err(TextError::NoLowerCase {
                path: folder.to_owned(),
                reason: "only the vocabularies of BERT and ALBERT have it",
            });
        }
        let tokenizer = match family.vocabulary() {
            VocabularyKind::WordPiece => {
                Self::wrap(word_piece::build(&files, &special_tokens, path)?)
            }
            VocabularyKind::Bpe => Self::wrap(bpe::build(&files, &special_tokens, family, path)?),
            VocabularyKind::SentencePiece => {
                Self::wrap(pieces::build(&files, special_tokens, family, path)?)
            }
            VocabularyKind::Marian => marian::build(&files, &special_tokens, path)?,
        };
        let settings = FolderSettings {
            files: &files,
            class: Some(class),
        };
        settings.complete(tokenizer).map(Some)
    }
}

/// The special tokens by variable name (`bos_token`), for chat templates.
pub(crate) fn special_token_map(files: &Files) -> Result<Vec<(&'static str, String)>, TextError> {
    let special_tokens = ConfiguredTokens::read(files, Class::named(files)?.class)?;
    let text = |key: &'static str| special_tokens.text(key).map(|text| (key, text.to_owned()));
    Ok(special_tokens::TOKEN_KEYS
        .into_iter()
        .filter_map(text)
        .collect())
}

struct FolderSettings<'files> {
    files: &'files Files,
    class: Option<&'static Class>,
}

impl FolderSettings<'_> {
    /// Adds the special tokens and padding settings, which tokenizer.json lacks.
    fn complete(&self, mut tokenizer: Tokenizer) -> Result<Tokenizer, TextError> {
        let special_tokens = ConfiguredTokens::read(self.files, self.class)?;
        let side = |name: &str, default: Side| match self.files.text(name)?.as_deref() {
            None => Ok(default),
            Some("left") => Ok(Side::Left),
            Some("right") => Ok(Side::Right),
            Some(_) => Err(self
                .files
                .broken_config(format!("`{name}` is neither \"left\" nor \"right\""))),
        };
        let default = self.class.map_or(Side::Right, |class| class.padding_side);
        let settings = TokenizerSettings {
            special: special_tokens.with_ids(|token| tokenizer.id(token)),
            padding: PaddingSettings {
                side: side("padding_side", default)?,
                truncation_side: side("truncation_side", Side::Right)?,
                type_id: self.files.number("pad_token_type_id")?.unwrap_or(0),
            },
        };
        tokenizer.set_settings(settings);
        Ok(tokenizer)
    }
}

/// The vocabulary files of a folder.
struct Vocabularies {
    word_piece: Option<PathBuf>,
    bpe: Option<PathBuf>,
    pieces: Vec<PathBuf>,
}

impl Vocabularies {
    fn find(folder: &Path) -> Result<Self, TextError> {
        let file = |name: &str| Some(folder.join(name)).filter(|path| path.exists());
        let (vocabulary, merges) = (file("vocab.json"), file("merges.txt"));
        if let (None, Some(merges)) = (&vocabulary, &merges) {
            return Err(broken(merges, "there is no vocab.json beside it"));
        }
        Ok(Self {
            word_piece: file("vocab.txt"),
            // A vocab.json alone belongs to other tokenizers; reading merges.txt then gives the error.
            bpe: vocabulary,
            pieces: PIECE_FILES.into_iter().filter_map(file).collect(),
        })
    }

    /// The number of kinds of vocabularies.
    fn count(&self) -> usize {
        usize::from(self.word_piece.is_some())
            + usize::from(self.bpe.is_some())
            + usize::from(!self.pieces.is_empty())
    }

    fn class(&self, files: &Files, named: NamedClass) -> Result<&'static Class, TextError> {
        if let Some(class) = named.class {
            return Ok(class);
        }
        if let Some(name) = named.name {
            let problem = format!(
                "the tokenizer class {name:?} is not supported without a tokenizer.json; add it; supported are {}",
                Class::all_names()
            );
            return Err(unsupported(&files.folder, problem));
        }
        let special_tokens = ConfiguredTokens::read(files, None)?;
        self.inferred_class(&special_tokens).ok_or_else(|| {
            files.ambiguous("neither `tokenizer_class` in tokenizer_config.json nor `model_type` in config.json names the tokenizer class")
        })
    }

    /// The class, if the special tokens imply it.
    fn inferred_class(&self, special_tokens: &ConfiguredTokens) -> Option<&'static Class> {
        let is = |key: &str, text: &str| special_tokens.text(key) == Some(text);
        if self.count() > 1 {
            return None;
        }
        if self.word_piece.is_some()
            && is("cls_token", "[CLS]")
            && is("sep_token", "[SEP]")
            && is("unk_token", "[UNK]")
        {
            return Class::of("BertTokenizer");
        }
        if self.bpe.is_some() {
            if is("cls_token", "<s>") && is("sep_token", "</s>") && is("mask_token", "<mask>") {
                return Class::of("RobertaTokenizer");
            }
            let has_no_cls_or_sep = special_tokens.text("cls_token").is_none()
                && special_tokens.text("sep_token").is_none();
            if has_no_cls_or_sep
                && is("bos_token", "<|endoftext|>")
                && is("eos_token", "<|endoftext|>")
                && is("unk_token", "<|endoftext|>")
            {
                return Class::of("GPT2Tokenizer");
            }
        }
        let extra = special_tokens
            .additional
            .iter()
            .any(|token| token.content == "<extra_id_0>");
        if !self.pieces.is_empty() && extra && is("eos_token", "</s>") && is("pad_token", "<pad>") {
            return Class::of("T5Tokenizer");
        }
        None
    }

    /// The vocabulary file of a class.
    fn path(&self, files: &Files, class: &Class) -> Result<&Path, TextError> {
        let (found, required) = match class.family.vocabulary() {
            VocabularyKind::WordPiece => (self.word_piece.as_ref(), "vocab.txt"),
            VocabularyKind::Bpe | VocabularyKind::Marian => (self.bpe.as_ref(), "vocab.json"),
            VocabularyKind::SentencePiece if self.pieces.len() > 1 => {
                return Err(files.ambiguous("it holds more than one SentencePiece model"));
            }
            VocabularyKind::SentencePiece => (self.pieces.first(), "SentencePiece model"),
        };
        found.map(PathBuf::as_path).ok_or_else(|| {
            files.ambiguous(format!(
                "its tokenizer needs a {required}, which is missing"
            ))
        })
    }
}
