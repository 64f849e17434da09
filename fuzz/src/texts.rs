//! Tokenizers, chat templates and corpora.

use std::path::Path;

use attentive_text::{
    ChatEnd, ChatMessage, ChatTemplates, Corpus, PadTo, Tokenizer, TokenizerConfig,
};

use crate::{Files, Form, LITTLE, Target, seeds, told, with_file};

pub(crate) const TARGETS: [Target; 3] = [
    Target {
        name: "tokenizer",
        run: |bytes| {
            let files = Files::parse(bytes).named(&TOKENIZER_FILES);
            files.with_folder(|folder| {
                if let Some(Some(tokenizer)) = told(Tokenizer::of_folder(folder)) {
                    use_tokenizer(&tokenizer);
                }
                render(folder);
            });
        },
        form: Form::Files,
        seeds: seeds::tokenizers,
        memory: 2 * LITTLE,
    },
    Target {
        name: "chat",
        run: |bytes| Files::of([("chat_template.jinja", bytes)]).with_folder(render),
        form: Form::Text,
        seeds: seeds::chats,
        memory: 8 * LITTLE,
    },
    Target {
        name: "corpus_text",
        run: |bytes| {
            with_file("text.txt", bytes, |path| {
                let Some(corpus) = told(Corpus::read(&[path.to_owned()])) else {
                    return;
                };
                for config in [TokenizerConfig::Bytes {}, TokenizerConfig::Characters {}] {
                    let tokenizer = told(Tokenizer::train(&config, corpus.documents()));
                    if let Some(tokenizer) = tokenizer {
                        told(corpus.split(&tokenizer, 0.1));
                    }
                }
            });
        },
        form: Form::Text,
        seeds: seeds::texts,
        memory: LITTLE,
    },
];

/// What a folder may say of its tokenizer.
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

/// Texts there and back, and a batch of them.
pub(crate) fn use_tokenizer(tokenizer: &Tokenizer) {
    let text = "Hello, world! <s> [MASK] ünï \u{1F600}\u{0301}  \n\tthe end";
    if let Some(ids) = told(tokenizer.encode(text)) {
        told(tokenizer.decode(&ids));
    }
    told(tokenizer.encode_bare(text));
    for id in [0, 1, u32::MAX] {
        told(tokenizer.decode(&[id]));
        told(tokenizer.token(id));
    }
    let texts = [text, ""].map(|text| told(tokenizer.encode_text(text, None)));
    if let [Some(long), Some(short)] = texts {
        told(tokenizer.pad(&[long, short], PadTo::Longest));
    }
}

/// A short conversation by all templates of a folder.
pub(crate) fn render(folder: &Path) {
    let Some(Some(templates)) = told(ChatTemplates::of_folder(folder)) else {
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
        told(templates.render(Some(name), &messages, ChatEnd::AwaitsAnswer));
    }
}
