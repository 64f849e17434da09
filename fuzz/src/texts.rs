//! Tokenizers, chat templates and corpora.

use std::path::Path;

use attentive_data::Corpus;
use attentive_text::{ChatEnd, ChatMessage, ChatTemplates, PadTo, Tokenizer, TokenizerConfig};

use crate::{DEFAULT_MEMORY, Files, Form, Target, checked, seeds, with_file};

pub(crate) const TARGETS: [Target; 3] = [
    Target {
        name: "tokenizer",
        run: |bytes| {
            let files = Files::parse(bytes).named(&TOKENIZER_FILES);
            files.with_folder(|folder| {
                if let Some(Some(tokenizer)) = checked(Tokenizer::from_folder(folder)) {
                    use_tokenizer(&tokenizer);
                }
                render(folder);
            });
        },
        form: Form::Files,
        seeds: seeds::tokenizers,
        memory: 2 * DEFAULT_MEMORY,
    },
    Target {
        name: "chat",
        run: |bytes| Files::of([("chat_template.jinja", bytes)]).with_folder(render),
        form: Form::Text,
        seeds: seeds::chats,
        memory: 8 * DEFAULT_MEMORY,
    },
    Target {
        name: "corpus_text",
        run: |bytes| {
            with_file("text.txt", bytes, |path| {
                let Some(corpus) = checked(Corpus::read(&[path.to_owned()])) else {
                    return;
                };
                for config in [TokenizerConfig::Bytes {}, TokenizerConfig::Characters {}] {
                    let tokenizer = checked(Tokenizer::train(&config, corpus.documents()));
                    if let Some(tokenizer) = tokenizer {
                        checked(corpus.split(&tokenizer, 0.1));
                    }
                }
            });
        },
        form: Form::Text,
        seeds: seeds::texts,
        memory: DEFAULT_MEMORY,
    },
];

/// The tokenizer files of a folder.
pub(crate) const TOKENIZER_FILES: [&str; 12] = [
    "config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.txt",
    "vocab.json",
    "merges.txt",
    "spiece.model",
    "tokenizer.model",
    "sentencepiece.bpe.model",
    "chat_template.jinja",
];

/// Encodes, decodes and pads texts.
pub(crate) fn use_tokenizer(tokenizer: &Tokenizer) {
    let text = "Hello, world! <s> [MASK] ünï \u{1F600}\u{0301}  \n\tthe end";
    if let Some(ids) = checked(tokenizer.encode(text)) {
        checked(tokenizer.decode(&ids));
    }
    checked(tokenizer.encode_without_special(text));
    for id in [0, 1, u32::MAX] {
        checked(tokenizer.decode(&[id]));
        checked(tokenizer.token(id));
    }
    let texts = [text, ""].map(|text| checked(tokenizer.encode_text(text, None)));
    if let [Some(long), Some(short)] = texts {
        checked(tokenizer.pad(&[long, short], PadTo::Longest));
    }
}

/// Renders a short conversation with all templates of a folder.
pub(crate) fn render(folder: &Path) {
    let Some(Some(templates)) = checked(ChatTemplates::from_folder(folder)) else {
        return;
    };
    render_all(&templates);
}

pub(crate) fn render_all(templates: &ChatTemplates) {
    let message = |role: &str, content: &str| ChatMessage {
        role: role.to_owned(),
        content: content.to_owned(),
    };
    let messages = [message("system", "Be kind."), message("user", "Hello?")];
    let names: Vec<&str> = templates.names().collect();
    for name in names {
        checked(templates.render(Some(name), &messages, ChatEnd::GenerationPrompt));
    }
}
