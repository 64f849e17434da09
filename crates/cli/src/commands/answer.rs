//! `attentive answer MODEL QUESTION CONTEXT`

use std::io::Write;
use std::process::ExitCode;

use anyhow::Result;
use attentive::tasks::AnswerSpan;
use serde_json::{Value, json};

use crate::arguments::Answer;
use crate::failure::Usage;
use crate::input::standard_input;
use crate::model_folder;

/// Answers a question from a text.
pub fn run(arguments: Answer) -> Result<ExitCode> {
    let context = match &arguments.context {
        Some(context) => context.clone(),
        None => standard_input()?.unwrap_or_default(),
    };
    if context.trim().is_empty() || arguments.question.trim().is_empty() {
        let message = "an answer needs a question and a text that holds it; give both";
        return Err(Usage(message.to_owned()).into());
    }
    let model = model_folder::load(&arguments.model, Some(&arguments.tokenizer))?;
    let answers = model
        .answer(&arguments.question, &context)
        .top(arguments.top as usize)
        .max_answer_tokens(arguments.max_answer_tokens as usize)
        .run()?;
    let mut out = std::io::stdout().lock();
    if arguments.json {
        let answer = |it: &AnswerSpan| json!({ "answer": it.text, "score": it.score, "start": it.span.start, "end": it.span.end });
        let answers: Vec<Value> = answers.iter().map(answer).collect();
        let json = json!({ "question": arguments.question, "answers": answers });
        writeln!(out, "{json}")?;
        return Ok(ExitCode::SUCCESS);
    }
    for answer in answers {
        let percent = 100.0 * answer.score;
        writeln!(out, "{percent:>6.2} %  {}", answer.text.escape_debug())?;
    }
    Ok(ExitCode::SUCCESS)
}
