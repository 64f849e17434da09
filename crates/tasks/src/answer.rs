//! Extractive question answering: the spans of a text that answer a question. Devlin et al. 2019.

use std::ops::Range;

use attentive_generation::softmax;
use attentive_model::ForwardOptions;
use attentive_model::head::TokenTask;
use attentive_text::{Encoded, SequenceId};

use crate::batcher::rows;
use crate::{Batcher, TaskError, Text};

/// Tokens that the windows of a long text share, as in Hugging Face's `doc_stride`.
const OVERLAP: usize = 128;

/// An answer to a question.
#[derive(Clone, Debug, PartialEq)]
pub struct AnswerSpan {
    /// The text of the answer.
    pub text: String,
    /// Its byte range in the context.
    pub span: Range<usize>,
    /// The product of the probabilities of its first and last token.
    pub score: f64,
}

/// The `top` best answers to a question, most probable first, each of at most `max_tokens` tokens. A context that exceeds the
/// model's length is read in windows.
pub fn answer(
    batcher: Batcher,
    question: &str,
    context: &str,
    top: usize,
    max_tokens: usize,
) -> Result<Vec<AnswerSpan>, TaskError> {
    let config = batcher.model.config();
    if config.token_classifier.as_ref().map(|it| it.task) != Some(TokenTask::Span) {
        return Err(TaskError::NoHead {
            missing: "question answering head",
            advice: "use one for question answering (BertForQuestionAnswering, …)",
        });
    }
    let length = config.stack.length;
    let text = Text::pair(question, context);
    let windows = batcher.encode_windows(&text, length, OVERLAP.min(length / 2))?;
    let mut found = Vec::new();
    for batch in batcher.batches(&windows)? {
        let output = batcher
            .model
            .forward(batch.input, ForwardOptions::default());
        let logits = output.token_logits.expect("checked above");
        let [_, width, _] = logits.dims();
        let logits = rows(logits)?;
        for (row, index) in batch.indices.iter().enumerate() {
            let window = &windows[*index];
            let start = row * width + batch.non_padding[row].start;
            let logits = &logits[start..start + window.ids.len()];
            found.extend(spans(window, logits, top, max_tokens));
        }
    }
    found.sort_by(|a, b| b.score.total_cmp(&a.score));
    // Windows overlap, so a span may occur twice.
    let mut best: Vec<AnswerSpan> = Vec::new();
    for (range, score) in found.into_iter().map(|it| (it.span, it.score)) {
        if best.len() < top && best.iter().all(|other| other.span != range) {
            let text = context.get(range.clone()).unwrap_or_default().to_owned();
            best.push(AnswerSpan {
                text,
                span: range,
                score,
            });
        }
    }
    Ok(best)
}

/// A candidate answer.
struct Candidate {
    span: Range<usize>,
    score: f64,
}

/// The best spans of one window of the context. The first token, which stands for "no answer", takes part in the softmax.
fn spans(window: &Encoded, logits: &[Vec<f32>], top: usize, max_tokens: usize) -> Vec<Candidate> {
    let in_context = |token: usize| window.sequence_ids[token] == Some(SequenceId::Second);
    let probabilities = |end: usize| {
        let masked = logits.iter().enumerate().map(|(token, logits)| {
            match token == 0 || in_context(token) {
                true => logits[end],
                false => f32::NEG_INFINITY,
            }
        });
        softmax(&masked.collect::<Vec<f32>>())
    };
    let [starts, ends] = [0, 1].map(probabilities);
    let mut all = Vec::new();
    for start in (0..starts.len()).filter(|token| in_context(*token)) {
        let last = (start + max_tokens).min(ends.len());
        for end in (start..last).filter(|token| in_context(*token)) {
            all.push(Candidate {
                span: window.offsets[start].start..window.offsets[end].end,
                score: starts[start] * ends[end],
            });
        }
    }
    all.sort_by(|a, b| b.score.total_cmp(&a.score));
    all.truncate(top);
    all
}
