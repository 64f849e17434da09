//! The tokenizer of a Hugging Face model folder: tokenizer.json, or else built from the older files that say the same.
//!
//! Which arrangement holds is read from the files, never guessed from a folder's name or a vocabulary's looks:
//!
//! ```text
//! tokenizer_class in tokenizer_config.json, in config.json → model_type in config.json → what the special tokens prove
//! ```

mod added;
mod byte_pairs;
mod classes;
mod files;
mod parts;
mod pieces;
mod roles;
mod source;
mod spaces;
mod word_pieces;

use std::path::{Path, PathBuf};

use classes::{Class, NamedClass, VocabularyKind};
use roles::Roles;

pub(crate) use added::AddedTokens;
pub(crate) use files::{Files, broken, text_if_there};
pub(crate) use parts::{Parts, Place, SPACE, template_of};
pub(crate) use roles::TokenForm;
pub use roles::{SpecialToken, SpecialTokens};

use crate::padding::{FolderPadding, Side};
use crate::{TextError, Tokenizer};

const PIECE_FILES: [&str; 3] = ["spiece.model", "tokenizer.model", "sentencepiece.bpe.model"];

/// What a folder says besides ids and text.
#[derive(Clone, Debug, Default)]
pub(crate) struct FolderFacts {
    pub(crate) special: SpecialTokens,
    pub(crate) padding: FolderPadding,
}

impl Tokenizer {
    /// Reads the tokenizer of a Hugging Face model folder, or `None` if the folder holds no tokenizer file at all.
    ///
    /// That is tokenizer.json if it is there. Else the tokenizer is built from vocab.txt, from vocab.json with
    /// merges.txt, from a SentencePiece model (spiece.model, tokenizer.model, sentencepiece.bpe.model), as the fast
    /// classes of Hugging Face do it, or from vocab.json with source.spm, as Marian has it. What the files leave open is an
    /// error, never a guess.
    pub fn of_folder(folder: &Path) -> Result<Option<Self>, TextError> {
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
        let files = Files::read(folder)?;
        let named = Class::named(&files)?;
        if json.exists() {
            let facts = Facts {
                files: &files,
                class: named.class,
            };
            return facts.complete(Self::load(&json)?).map(Some);
        }
        let class = vocabularies.class(&files, named)?;
        let roles = Roles::read(&files, Some(class))?;
        let path = vocabularies.path(&files, class)?;
        let arrangement = class.arrangement;
        let tokenizer = match arrangement.vocabulary() {
            VocabularyKind::WordPieces => Self::wrap(word_pieces::build(&files, &roles, path)?),
            VocabularyKind::BytePairs => {
                Self::wrap(byte_pairs::build(&files, &roles, arrangement, path)?)
            }
            VocabularyKind::Pieces => Self::wrap(pieces::build(&files, roles, arrangement, path)?),
            VocabularyKind::PiecesOfSource => source::build(&files, &roles, path)?,
        };
        let facts = Facts {
            files: &files,
            class: Some(class),
        };
        facts.complete(tokenizer).map(Some)
    }
}

/// The texts of the special tokens by Hugging Face's names for their roles, for chat templates.
pub(crate) fn role_texts(files: &Files) -> Result<Vec<(&'static str, String)>, TextError> {
    let roles = Roles::read(files, Class::named(files)?.class)?;
    let text = |key: &'static str| roles.text(key).map(|text| (key, text.to_owned()));
    Ok(roles::ROLE_KEYS.into_iter().filter_map(text).collect())
}

struct Facts<'files> {
    files: &'files Files,
    class: Option<&'static Class>,
}

impl Facts<'_> {
    /// Adds the special tokens by role and how to pad, which no tokenizer.json holds.
    fn complete(&self, mut tokenizer: Tokenizer) -> Result<Tokenizer, TextError> {
        let roles = Roles::read(self.files, self.class)?;
        let side = |name: &str, default: Side| match self.files.text(name)?.as_deref() {
            None => Ok(default),
            Some("left") => Ok(Side::Left),
            Some("right") => Ok(Side::Right),
            Some(_) => Err(self
                .files
                .broken_config(format!("`{name}` is neither \"left\" nor \"right\""))),
        };
        let default = self.class.map_or(Side::Right, |class| class.padding_side);
        let facts = FolderFacts {
            special: roles.with_ids(|token| tokenizer.id(token)),
            padding: FolderPadding {
                side: side("padding_side", default)?,
                truncation_side: side("truncation_side", Side::Right)?,
                type_id: self.files.number("pad_token_type_id")?.unwrap_or(0),
            },
        };
        tokenizer.set_facts(facts);
        Ok(tokenizer)
    }
}

/// The files with a vocabulary that the folder holds.
struct Vocabularies {
    word_pieces: Option<PathBuf>,
    byte_pairs: Option<PathBuf>,
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
            word_pieces: file("vocab.txt"),
            // A vocab.json alone belongs to other kinds of tokenizers; reading the merges gives the sentence.
            byte_pairs: vocabulary,
            pieces: PIECE_FILES.into_iter().filter_map(file).collect(),
        })
    }

    /// How many kinds there are.
    fn count(&self) -> usize {
        usize::from(self.word_pieces.is_some())
            + usize::from(self.byte_pairs.is_some())
            + usize::from(!self.pieces.is_empty())
    }

    fn class(&self, files: &Files, named: NamedClass) -> Result<&'static Class, TextError> {
        if let Some(class) = named.class {
            return Ok(class);
        }
        if let Some(name) = named.name {
            return Err(files.undecided(format!(
                "it names its tokenizer {name:?}, which can only be read from a tokenizer.json; without one these can be read: {}",
                Class::all_names()
            )));
        }
        let roles = Roles::read(files, None)?;
        self.proven_class(&roles).ok_or_else(|| {
            files.undecided("neither `tokenizer_class` in tokenizer_config.json nor `model_type` in config.json says which tokenizer it is")
        })
    }

    /// The class that the given special tokens leave no doubt about.
    fn proven_class(&self, roles: &Roles) -> Option<&'static Class> {
        let is = |key: &str, text: &str| roles.text(key) == Some(text);
        if self.count() > 1 {
            return None;
        }
        if self.word_pieces.is_some()
            && is("cls_token", "[CLS]")
            && is("sep_token", "[SEP]")
            && is("unk_token", "[UNK]")
        {
            return Class::of("BertTokenizer");
        }
        if self.byte_pairs.is_some() {
            if is("cls_token", "<s>") && is("sep_token", "</s>") && is("mask_token", "<mask>") {
                return Class::of("RobertaTokenizer");
            }
            let alone = roles.text("cls_token").is_none() && roles.text("sep_token").is_none();
            if alone
                && is("bos_token", "<|endoftext|>")
                && is("eos_token", "<|endoftext|>")
                && is("unk_token", "<|endoftext|>")
            {
                return Class::of("GPT2Tokenizer");
            }
        }
        let extra = roles
            .additional
            .iter()
            .any(|form| form.content == "<extra_id_0>");
        if !self.pieces.is_empty() && extra && is("eos_token", "</s>") && is("pad_token", "<pad>") {
            return Class::of("T5Tokenizer");
        }
        None
    }

    /// The one file that the class needs.
    fn path(&self, files: &Files, class: &Class) -> Result<&Path, TextError> {
        let (found, wanted) = match class.arrangement.vocabulary() {
            VocabularyKind::WordPieces => (self.word_pieces.as_ref(), "vocab.txt"),
            VocabularyKind::BytePairs | VocabularyKind::PiecesOfSource => {
                (self.byte_pairs.as_ref(), "vocab.json")
            }
            VocabularyKind::Pieces if self.pieces.len() > 1 => {
                return Err(files.undecided("it holds more than one SentencePiece model"));
            }
            VocabularyKind::Pieces => (self.pieces.first(), "SentencePiece model"),
        };
        found.map(PathBuf::as_path).ok_or_else(|| {
            files.undecided(format!(
                "its tokenizer needs a {wanted}, which is not there"
            ))
        })
    }
}
