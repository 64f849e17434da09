//! Output of `attentive generate`.

use std::io::Write;
use std::ops::ControlFlow;
use std::time::Instant;

use anyhow::Result;
use attentive::generation::{
    Beam, BeamConfig, GenerationConfig, StopReason, TextChunk, beam_search, generate,
};
use attentive::model::Model;
use attentive::text::Tokenizer;
use serde_json::{Value, json};

/// A model and its prompt.
pub struct Task<'a> {
    pub model: &'a Model,
    pub tokenizer: Option<&'a Tokenizer>,
    /// The prompt as text; empty if token ids were given.
    pub text: &'a str,
    /// The part of the prompt to print before the continuation.
    pub shown: &'a str,
    pub prompt: &'a [u32],
    pub as_json: bool,
}

impl Task<'_> {
    /// The prompt to print before the continuation; empty for an encoder-decoder or without a tokenizer.
    fn shown_before(&self) -> &str {
        let continued = self.tokenizer.is_some() && self.model.config().encoder.is_none();
        if continued { self.shown } else { "" }
    }

    fn text_of(&self, ids: &[u32]) -> Result<String> {
        Ok(match self.tokenizer {
            Some(tokenizer) => tokenizer.decode(ids)?,
            None => String::new(),
        })
    }
}

/// Samples a text: streamed, or as JSON at the end.
pub fn write_sampled(task: &Task, config: &GenerationConfig) -> Result<()> {
    let mut out = std::io::stdout().lock();
    if !task.as_json {
        return stream(&mut out, task, config);
    }
    let started = Instant::now();
    let on_chunk = |_: TextChunk| ControlFlow::Continue(());
    let done = generate(task.model, task.tokenizer, task.prompt, config, on_chunk)?;
    let json = json!({
        "prompt": task.text,
        "prompt_ids": task.prompt,
        "ids": done.ids,
        "text": done.text,
        "stop_reason": reason(done.reason),
        "seed": config.sampling.seed,
        "tokens_per_second": done.ids.len() as f64 / started.elapsed().as_secs_f64(),
    });
    writeln!(out, "{json}")?;
    Ok(())
}

/// Beam search; prints the texts, best first.
pub fn write_beams(task: &Task, config: &BeamConfig) -> Result<()> {
    let mut out = std::io::stdout().lock();
    let mut beams = beam_search(task.model, &[task.prompt.to_vec()], config)?;
    let beams = beams.remove(0);
    if task.as_json {
        let text = |beam: &Beam| -> Result<Value> {
            Ok(json!({
                "ids": beam.ids,
                "text": task.text_of(&beam.ids)?,
                "score": beam.score,
                "stop_reason": reason(beam.reason),
            }))
        };
        let json = json!({
            "prompt": task.text,
            "prompt_ids": task.prompt,
            "beams": config.num_beams,
            "texts": beams.iter().map(text).collect::<Result<Vec<_>>>()?,
        });
        writeln!(out, "{json}")?;
        return Ok(());
    }
    for beam in beams {
        match task.tokenizer {
            Some(_) => writeln!(out, "{}{}", task.shown_before(), task.text_of(&beam.ids)?)?,
            None => {
                let ids: Vec<String> = beam.ids.iter().map(u32::to_string).collect();
                writeln!(out, "{}", ids.join(" "))?;
            }
        }
    }
    Ok(())
}

/// Streams the prompt and its continuation: text with a tokenizer, ids without. Stops when the output is closed.
fn stream(out: &mut impl Write, task: &Task, config: &GenerationConfig) -> Result<()> {
    write!(out, "{}", task.shown_before())?;
    out.flush()?;
    let mut shown = Ok(());
    generate(task.model, task.tokenizer, task.prompt, config, |chunk| {
        shown = match chunk.id.filter(|_| task.tokenizer.is_none()) {
            Some(id) => write!(out, "{id} "),
            None => write!(out, "{}", chunk.text),
        }
        .and_then(|()| out.flush());
        match shown {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    })?;
    shown?;
    writeln!(out)?;
    Ok(())
}

fn reason(reason: StopReason) -> &'static str {
    match reason {
        StopReason::EndToken => "end",
        StopReason::StopString => "stop",
        StopReason::Length => "length",
        StopReason::Cancelled => "cancelled",
    }
}
