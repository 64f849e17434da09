//! Output of `attentive generate`.

use std::io::Write;
use std::ops::ControlFlow;
use std::time::Instant;

use anyhow::Result;
use attentive::Pretrained;
use attentive::generation::{Decoding, StopReason};
use attentive::pretrained::{GeneratedText, Generation, PreparedGeneration};
use serde_json::{Value, json};

use crate::arguments::Generate;
use crate::output::verbose;

/// Generates and prints the text: streamed as it grows, or as JSON at the end.
pub fn write(prepared: PreparedGeneration, model: &Pretrained, arguments: &Generate) -> Result<()> {
    let mut out = std::io::stdout().lock();
    let started = Instant::now();
    let shown = shown_before(&prepared, model, arguments)?;
    let done = match (&prepared.decoding, arguments.json) {
        (Decoding::Sample(config), true) => {
            let seed = config.sampling.seed;
            let done = prepared.stream(|_| ControlFlow::Continue(()))?;
            writeln!(out, "{}", sampled_json(&done, seed, started))?;
            done
        }
        (Decoding::Beams(config), true) => {
            let beams = config.num_beams;
            let done = prepared.stream(|_| ControlFlow::Continue(()))?;
            writeln!(out, "{}", beams_json(&done, beams, started))?;
            done
        }
        (Decoding::Sample(_), false) => stream(&mut out, prepared, model, &shown)?,
        (Decoding::Beams(_), false) => {
            let done = prepared.stream(|_| ControlFlow::Continue(()))?;
            for text in &done.texts {
                match model.tokenizer()? {
                    Some(_) => writeln!(out, "{shown}{}", text.text)?,
                    None => {
                        let ids: Vec<String> = text.ids.iter().map(u32::to_string).collect();
                        writeln!(out, "{}", ids.join(" "))?;
                    }
                }
            }
            done
        }
    };
    verbose(format_args!(
        "{} prompt tokens, {} new tokens in {:.2} s, {:.1} tokens/s",
        done.prompt_ids.len(),
        new_tokens(&done),
        started.elapsed().as_secs_f64(),
        tokens_per_second(&done, started),
    ));
    Ok(())
}

/// The prompt that is printed before its continuation: not that of a chat, of an encoder-decoder or without a tokenizer.
fn shown_before(
    prepared: &PreparedGeneration,
    model: &Pretrained,
    arguments: &Generate,
) -> Result<String> {
    let is_continued =
        model.tokenizer()?.is_some() && model.model().config().encoder.is_none() && !arguments.chat;
    Ok(match is_continued {
        true => prepared.prompt.clone(),
        false => String::new(),
    })
}

/// Streams the prompt and its continuation: text with a tokenizer, ids without. Stops when the output is closed.
fn stream(
    out: &mut impl Write,
    prepared: PreparedGeneration,
    model: &Pretrained,
    shown: &str,
) -> Result<Generation> {
    write!(out, "{shown}")?;
    out.flush()?;
    let has_tokenizer = model.tokenizer()?.is_some();
    let mut written = Ok(());
    let done = prepared.stream(|chunk| {
        written = match chunk.id.filter(|_| !has_tokenizer) {
            Some(id) => write!(out, "{id} "),
            None => write!(out, "{}", chunk.text),
        }
        .and_then(|()| out.flush());
        match written {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    })?;
    written?;
    writeln!(out)?;
    Ok(done)
}

fn sampled_json(done: &Generation, seed: u64, started: Instant) -> Value {
    let text = &done.texts[0];
    json!({
        "prompt": done.prompt,
        "prompt_ids": done.prompt_ids,
        "ids": text.ids,
        "text": text.text,
        "stop_reason": reason(text.reason),
        "seed": seed,
        "tokens_per_second": tokens_per_second(done, started),
    })
}

fn beams_json(done: &Generation, beams: usize, started: Instant) -> Value {
    let text = |text: &GeneratedText| {
        json!({
            "ids": text.ids,
            "text": text.text,
            "score": text.score,
            "stop_reason": reason(text.reason),
        })
    };
    json!({
        "prompt": done.prompt,
        "prompt_ids": done.prompt_ids,
        "beams": beams,
        "texts": done.texts.iter().map(text).collect::<Vec<_>>(),
        "tokens_per_second": tokens_per_second(done, started),
    })
}

fn new_tokens(done: &Generation) -> usize {
    done.texts.iter().map(|text| text.ids.len()).sum()
}

fn tokens_per_second(done: &Generation, started: Instant) -> f64 {
    new_tokens(done) as f64 / started.elapsed().as_secs_f64()
}

fn reason(reason: StopReason) -> &'static str {
    match reason {
        StopReason::Eos => "end",
        StopReason::StopString => "stop",
        StopReason::Length => "length",
        StopReason::Cancelled => "cancelled",
    }
}
