//! The Hugging Face tokenizer classes that can be built from vocabulary files without a tokenizer.json, as a table: their
//! family, and their default special tokens.

use serde_json::Value;

use super::files::Files;
use crate::TextError;
use crate::padding::Side;

/// Tokenizers that differ in vocabulary, normalization or post-processing, each named after its first model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Family {
    /// vocab.txt. `[CLS] A [SEP] B [SEP]` with type ids. Devlin et al. 2019.
    Bert,
    /// vocab.json and merges.txt, no special tokens around the text. Radford et al. 2019.
    Gpt2,
    /// vocab.json and merges.txt, `<s> A </s></s> B </s>`. Liu et al. 2019.
    Roberta,
    /// SentencePiece, `A </s> B </s>`, with extra ids at the end. Raffel et al. 2020.
    T5,
    /// SentencePiece, `[CLS] A [SEP] B [SEP]`, text lower-cased and stripped of accents. Lan et al. 2020.
    Albert,
    /// SentencePiece, `[CLS] A [SEP] B [SEP]`. Zaheer et al. 2020.
    BigBird,
    /// SentencePiece, no special tokens around the text. Kitaev et al. 2020.
    Reformer,
    /// SentencePiece with byte fallback, `<s> A`. Touvron et al. 2023.
    Llama,
    /// SentencePiece with remapped first ids, `<s> A </s></s> B </s>`. Conneau et al. 2020.
    XlmRoberta,
    /// vocab.json with a SentencePiece model for the source language, `A B </s>`. Junczys-Dowmunt et al. 2018.
    Marian,
}

/// The kinds of vocabulary files.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum VocabularyKind {
    WordPiece,
    Bpe,
    SentencePiece,
    Marian,
}

/// A tokenizer class.
#[derive(Debug)]
pub(super) struct Class {
    /// Values of `tokenizer_class`, without "Fast".
    names: &'static [&'static str],
    /// Values of `model_type` in config.json, which Hugging Face uses if there is no `tokenizer_class`.
    model_types: &'static [&'static str],
    pub(super) family: Family,
    /// Default bos, eos, unk, sep, pad, cls and mask tokens; empty for none.
    pub(super) tokens: [&'static str; 7],
    /// `AddedToken.normalized` of special tokens that are given as strings.
    pub(super) normalized: bool,
    /// The settings of the mask token.
    pub(super) mask: MaskSettings,
    pub(super) padding_side: Side,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct MaskSettings {
    pub(super) lstrip: bool,
    pub(super) normalized: bool,
}

const BERT_TOKENS: [&str; 7] = ["", "", "[UNK]", "[SEP]", "[PAD]", "[CLS]", "[MASK]"];
const ROBERTA_TOKENS: [&str; 7] = ["<s>", "</s>", "<unk>", "</s>", "<pad>", "<s>", "<mask>"];
const PLAIN_MASK: MaskSettings = MaskSettings {
    lstrip: false,
    normalized: false,
};
const LSTRIP_MASK: MaskSettings = MaskSettings {
    lstrip: true,
    normalized: false,
};
const LSTRIP_NORMALIZED_MASK: MaskSettings = MaskSettings {
    lstrip: true,
    normalized: true,
};

static CLASSES: [Class; 11] = [
    Class {
        names: &[
            "BertTokenizer",
            "DistilBertTokenizer",
            "ElectraTokenizer",
            "MobileBertTokenizer",
            "ConvBertTokenizer",
            "LayoutLMTokenizer",
            "SqueezeBertTokenizer",
            "LxmertTokenizer",
        ],
        model_types: &[
            "bert",
            "distilbert",
            "electra",
            "mobilebert",
            "convbert",
            "layoutlm",
            "squeezebert",
            "lxmert",
        ],
        family: Family::Bert,
        tokens: BERT_TOKENS,
        normalized: false,
        mask: PLAIN_MASK,
        padding_side: Side::Right,
    },
    Class {
        names: &["GPT2Tokenizer"],
        model_types: &["gpt2", "gpt_neo", "gptj", "gpt_bigcode"],
        family: Family::Gpt2,
        tokens: [
            "<|endoftext|>",
            "<|endoftext|>",
            "<|endoftext|>",
            "",
            "",
            "",
            "",
        ],
        normalized: true,
        mask: PLAIN_MASK,
        padding_side: Side::Right,
    },
    Class {
        names: &["RobertaTokenizer", "LongformerTokenizer"],
        model_types: &["roberta", "longformer"],
        family: Family::Roberta,
        tokens: ROBERTA_TOKENS,
        normalized: true,
        mask: LSTRIP_MASK,
        padding_side: Side::Right,
    },
    Class {
        names: &["BartTokenizer", "LEDTokenizer", "MvpTokenizer"],
        model_types: &["bart", "led", "mvp"],
        family: Family::Roberta,
        tokens: ROBERTA_TOKENS,
        normalized: true,
        mask: LSTRIP_NORMALIZED_MASK,
        padding_side: Side::Right,
    },
    Class {
        names: &["T5Tokenizer", "MT5Tokenizer"],
        model_types: &["t5", "mt5", "umt5", "longt5", "switch_transformers"],
        family: Family::T5,
        tokens: ["", "</s>", "<unk>", "", "<pad>", "", ""],
        normalized: false,
        mask: PLAIN_MASK,
        padding_side: Side::Right,
    },
    Class {
        names: &["AlbertTokenizer"],
        model_types: &["albert"],
        family: Family::Albert,
        tokens: [
            "[CLS]", "[SEP]", "<unk>", "[SEP]", "<pad>", "[CLS]", "[MASK]",
        ],
        normalized: false,
        mask: LSTRIP_MASK,
        padding_side: Side::Right,
    },
    Class {
        names: &["BigBirdTokenizer"],
        model_types: &["big_bird"],
        family: Family::BigBird,
        tokens: ["<s>", "</s>", "<unk>", "[SEP]", "<pad>", "[CLS]", "[MASK]"],
        normalized: true,
        mask: LSTRIP_NORMALIZED_MASK,
        padding_side: Side::Right,
    },
    Class {
        names: &["ReformerTokenizer"],
        model_types: &["reformer"],
        family: Family::Reformer,
        tokens: ["", "</s>", "<unk>", "", "", "", ""],
        normalized: false,
        mask: PLAIN_MASK,
        padding_side: Side::Right,
    },
    Class {
        names: &["LlamaTokenizer"],
        model_types: &["llama", "mistral", "mixtral"],
        family: Family::Llama,
        tokens: ["<s>", "</s>", "<unk>", "", "", "", ""],
        normalized: false,
        mask: PLAIN_MASK,
        padding_side: Side::Left,
    },
    Class {
        names: &["XLMRobertaTokenizer"],
        model_types: &["xlm-roberta", "xlm-roberta-xl"],
        family: Family::XlmRoberta,
        tokens: ROBERTA_TOKENS,
        normalized: false,
        mask: LSTRIP_MASK,
        padding_side: Side::Right,
    },
    Class {
        names: &["MarianTokenizer"],
        model_types: &["marian"],
        family: Family::Marian,
        tokens: ["", "</s>", "<unk>", "", "<pad>", "", ""],
        normalized: false,
        mask: PLAIN_MASK,
        padding_side: Side::Right,
    },
];

impl Family {
    pub(super) fn vocabulary(self) -> VocabularyKind {
        match self {
            Self::Bert => VocabularyKind::WordPiece,
            Self::Gpt2 | Self::Roberta => VocabularyKind::Bpe,
            Self::Marian => VocabularyKind::Marian,
            _ => VocabularyKind::SentencePiece,
        }
    }

    /// Whether `do_lower_case` has an effect.
    pub(super) fn reads_lower_case(self) -> bool {
        matches!(self, Self::Bert | Self::Albert)
    }
}

impl Class {
    /// The class that the folder names, looked up as Hugging Face does: tokenizer_config.json, then config.json.
    pub(super) fn named(files: &Files) -> Result<NamedClass, TextError> {
        let of_config = files.text("tokenizer_class")?;
        let of_model = |key: &str| {
            files
                .model
                .get(key)
                .and_then(Value::as_str)
                .map(str::to_owned)
        };
        if let Some(name) = of_config.or_else(|| of_model("tokenizer_class")) {
            let plain = name.strip_suffix("Fast").unwrap_or(&name);
            let class = CLASSES.iter().find(|class| class.names.contains(&plain));
            return Ok(NamedClass {
                class,
                name: Some(name),
            });
        }
        let Some(model_type) = of_model("model_type") else {
            return Ok(NamedClass {
                class: None,
                name: None,
            });
        };
        let class = CLASSES
            .iter()
            .find(|class| class.model_types.contains(&model_type.as_str()));
        Ok(NamedClass {
            class,
            name: Some(model_type),
        })
    }

    /// The class of this name.
    pub(super) fn of(name: &str) -> Option<&'static Self> {
        CLASSES.iter().find(|class| class.names.contains(&name))
    }

    /// All class names, for an error message.
    pub(super) fn all_names() -> String {
        let names: Vec<&str> = CLASSES
            .iter()
            .flat_map(|class| class.names)
            .copied()
            .collect();
        names.join(", ")
    }
}

/// The class name in the folder, if there is one, and the class, if it is supported.
pub(super) struct NamedClass {
    pub(super) class: Option<&'static Class>,
    pub(super) name: Option<String>,
}
