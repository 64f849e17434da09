//! The tokenizer classes of Hugging Face that this crate can build from the older files, as a table: how the parts are
//! arranged, and the special tokens that hold where the folder names none.

use serde_json::Value;

use super::files::Files;
use crate::TextError;
use crate::padding::Side;

/// How vocabulary, normalization and special tokens go together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Arrangement {
    /// vocab.txt. `[CLS] A [SEP] B [SEP]` with type ids. Devlin et al. 2019.
    WordPieces,
    /// vocab.json and merges.txt, nothing around the text. Radford et al. 2019.
    BytePairs,
    /// vocab.json and merges.txt, `<s> A </s></s> B </s>`. Liu et al. 2019.
    BytePairsInside,
    /// A SentencePiece model, `A </s> B </s>`, with extra ids at the end. Raffel et al. 2020.
    PiecesWithExtraIds,
    /// A SentencePiece model, `[CLS] A [SEP] B [SEP]`, text lower-cased and without accents first. Lan et al. 2020.
    PiecesLowered,
    /// A SentencePiece model, `[CLS] A [SEP] B [SEP]`. Zaheer et al. 2020.
    PiecesInside,
    /// A SentencePiece model, nothing around the text. Kitaev et al. 2020.
    PiecesAlone,
    /// A SentencePiece model with byte fallback, `<s> A`. Touvron et al. 2023.
    PiecesAfterBeginning,
    /// A SentencePiece model whose first ids are moved, `<s> A </s></s> B </s>`. Conneau et al. 2020.
    PiecesMoved,
    /// vocab.json with a SentencePiece model for texts that are read, `A B </s>`. Junczys-Dowmunt et al. 2018.
    PiecesOfSource,
}

/// The files that hold a vocabulary.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum VocabularyKind {
    WordPieces,
    BytePairs,
    Pieces,
    PiecesOfSource,
}

/// A row of the table.
#[derive(Debug)]
pub(super) struct Class {
    /// `tokenizer_class`, without "Fast".
    names: &'static [&'static str],
    /// `model_type` of config.json, which Hugging Face goes by when there is no `tokenizer_class`.
    model_types: &'static [&'static str],
    pub(super) arrangement: Arrangement,
    /// Beginning, end, unknown, separator, padding, class, mask; empty for none.
    pub(super) tokens: [&'static str; 7],
    /// Whether special tokens that are named by their text only are looked for in normalized text.
    pub(super) normalized: bool,
    /// The same for the mask, and whether the mask takes in the space before it.
    pub(super) mask: MaskForm,
    pub(super) padding_side: Side,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct MaskForm {
    pub(super) takes_space: bool,
    pub(super) normalized: bool,
}

const BERT_TOKENS: [&str; 7] = ["", "", "[UNK]", "[SEP]", "[PAD]", "[CLS]", "[MASK]"];
const ROBERTA_TOKENS: [&str; 7] = ["<s>", "</s>", "<unk>", "</s>", "<pad>", "<s>", "<mask>"];
const PLAIN_MASK: MaskForm = MaskForm {
    takes_space: false,
    normalized: false,
};
const SPACED_MASK: MaskForm = MaskForm {
    takes_space: true,
    normalized: false,
};
const SPACED_NORMALIZED_MASK: MaskForm = MaskForm {
    takes_space: true,
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
        arrangement: Arrangement::WordPieces,
        tokens: BERT_TOKENS,
        normalized: false,
        mask: PLAIN_MASK,
        padding_side: Side::Right,
    },
    Class {
        names: &["GPT2Tokenizer"],
        model_types: &["gpt2", "gpt_neo", "gptj", "gpt_bigcode"],
        arrangement: Arrangement::BytePairs,
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
        arrangement: Arrangement::BytePairsInside,
        tokens: ROBERTA_TOKENS,
        normalized: true,
        mask: SPACED_MASK,
        padding_side: Side::Right,
    },
    Class {
        names: &["BartTokenizer", "LEDTokenizer", "MvpTokenizer"],
        model_types: &["bart", "led", "mvp"],
        arrangement: Arrangement::BytePairsInside,
        tokens: ROBERTA_TOKENS,
        normalized: true,
        mask: SPACED_NORMALIZED_MASK,
        padding_side: Side::Right,
    },
    Class {
        names: &["T5Tokenizer", "MT5Tokenizer"],
        model_types: &["t5", "mt5", "umt5", "longt5", "switch_transformers"],
        arrangement: Arrangement::PiecesWithExtraIds,
        tokens: ["", "</s>", "<unk>", "", "<pad>", "", ""],
        normalized: false,
        mask: PLAIN_MASK,
        padding_side: Side::Right,
    },
    Class {
        names: &["AlbertTokenizer"],
        model_types: &["albert"],
        arrangement: Arrangement::PiecesLowered,
        tokens: [
            "[CLS]", "[SEP]", "<unk>", "[SEP]", "<pad>", "[CLS]", "[MASK]",
        ],
        normalized: false,
        mask: SPACED_MASK,
        padding_side: Side::Right,
    },
    Class {
        names: &["BigBirdTokenizer"],
        model_types: &["big_bird"],
        arrangement: Arrangement::PiecesInside,
        tokens: ["<s>", "</s>", "<unk>", "[SEP]", "<pad>", "[CLS]", "[MASK]"],
        normalized: true,
        mask: SPACED_NORMALIZED_MASK,
        padding_side: Side::Right,
    },
    Class {
        names: &["ReformerTokenizer"],
        model_types: &["reformer"],
        arrangement: Arrangement::PiecesAlone,
        tokens: ["", "</s>", "<unk>", "", "", "", ""],
        normalized: false,
        mask: PLAIN_MASK,
        padding_side: Side::Right,
    },
    Class {
        names: &["LlamaTokenizer"],
        model_types: &["llama", "mistral", "mixtral"],
        arrangement: Arrangement::PiecesAfterBeginning,
        tokens: ["<s>", "</s>", "<unk>", "", "", "", ""],
        normalized: false,
        mask: PLAIN_MASK,
        padding_side: Side::Left,
    },
    Class {
        names: &["XLMRobertaTokenizer"],
        model_types: &["xlm-roberta", "xlm-roberta-xl"],
        arrangement: Arrangement::PiecesMoved,
        tokens: ROBERTA_TOKENS,
        normalized: false,
        mask: SPACED_MASK,
        padding_side: Side::Right,
    },
    Class {
        names: &["MarianTokenizer"],
        model_types: &["marian"],
        arrangement: Arrangement::PiecesOfSource,
        tokens: ["", "</s>", "<unk>", "", "<pad>", "", ""],
        normalized: false,
        mask: PLAIN_MASK,
        padding_side: Side::Right,
    },
];

impl Arrangement {
    pub(super) fn vocabulary(self) -> VocabularyKind {
        match self {
            Self::WordPieces => VocabularyKind::WordPieces,
            Self::BytePairs | Self::BytePairsInside => VocabularyKind::BytePairs,
            Self::PiecesOfSource => VocabularyKind::PiecesOfSource,
            _ => VocabularyKind::Pieces,
        }
    }
}

impl Class {
    /// The class that the folder names, in the order in which Hugging Face looks: tokenizer_config.json, then config.json.
    /// `None` if it names none, or one that is not in the table; the name comes with it.
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

    /// The class whose first name this is.
    pub(super) fn of(name: &str) -> Option<&'static Self> {
        CLASSES.iter().find(|class| class.names.contains(&name))
    }

    /// All names, for an error.
    pub(super) fn all_names() -> String {
        let names: Vec<&str> = CLASSES
            .iter()
            .flat_map(|class| class.names)
            .copied()
            .collect();
        names.join(", ")
    }
}

/// What the folder calls its tokenizer, and the row of the table with that name.
pub(super) struct NamedClass {
    pub(super) class: Option<&'static Class>,
    pub(super) name: Option<String>,
}
