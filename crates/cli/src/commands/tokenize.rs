//! `attentive tokenize MODEL TEXT…`

use std::io::Write;
use std::process::ExitCode;

use anyhow::Result;
use attentive::checkpoint;
use attentive::hub::FileSet;
use attentive::text::{Encoded, Tokenizer, TokenizerOptions};
use attentive::{PretrainedError, assets};
use serde_json::json;

use crate::arguments::Tokenize;
use crate::failure::Usage;
use crate::{input, model_folder};

/// Shows the tokens of texts, or the text of ids.
pub fn run(arguments: Tokenize) -> Result<ExitCode> {
    let folder = model_folder::find(&arguments.model, FileSet::Tokenizer)?;
    if checkpoint::is_gguf(&folder) && arguments.model_type.is_some() {
        let message = "--model-type: a GGUF file has its own metadata; leave it out";
        return Err(Usage(message.to_owned()).into());
    }
    let options = TokenizerOptions {
        model_type: arguments.model_type,
        do_lower_case: arguments.lower_case,
    };
    let tokenizer = assets::tokenizer_with(&folder, &options)?;
    let tokenizer = tokenizer.ok_or_else(|| PretrainedError::NoTokenizer {
        path: arguments.model.clone(),
    })?;
    let mut out = std::io::stdout().lock();
    if !arguments.ids.is_empty() {
        let text = match arguments.skip_special_tokens {
            true => tokenizer.decode(&arguments.ids)?,
            false => tokenizer.decode_with_special(&arguments.ids)?,
        };
        match arguments.json {
            true => writeln!(out, "{}", json!({ "ids": arguments.ids, "text": text }))?,
            false => writeln!(out, "{text}")?,
        }
        return Ok(ExitCode::SUCCESS);
    }
    let texts = match arguments.texts.is_empty() {
        true => input::lines_of_standard_input()?,
        false => arguments.texts,
    };
    for (index, text) in texts.iter().enumerate() {
        let encoded = match &arguments.pair {
            Some(second) => tokenizer.encode_pair(text, second, None)?,
            None => tokenizer.encode_text(text, None)?,
        };
        let tokens = tokens(&tokenizer, &encoded)?;
        if arguments.json {
            let json = json!({
                "text": text,
                "pair": arguments.pair,
                "ids": encoded.ids,
                "tokens": tokens,
                "type_ids": encoded.type_ids,
                "offsets": encoded.offsets.iter().map(|it| [it.start, it.end]).collect::<Vec<_>>(),
            });
            writeln!(out, "{json}")?;
            continue;
        }
        if index > 0 {
            writeln!(out)?;
        }
        for (id, token) in encoded.ids.iter().zip(&tokens) {
            writeln!(out, "{id:>8}  {}", token.escape_debug())?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn tokens(tokenizer: &Tokenizer, encoded: &Encoded) -> Result<Vec<String>> {
    let tokens = encoded.ids.iter().map(|id| tokenizer.token(*id));
    Ok(tokens.collect::<Result<_, _>>()?)
}
