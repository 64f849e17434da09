//! Training progress: a bar on a terminal, plain lines elsewhere, JSON lines for programs.

use std::io::{IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use attentive::training::{Event, Listener, Outcome};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};

use crate::output::{Verbosity, note, verbosity};

/// A bar with step, losses, tokens per second and ETA.
#[derive(Default)]
pub struct Bar {
    bar: Option<ProgressBar>,
    rate: Rate,
    loss: f64,
    held_out_loss: Option<f64>,
}

impl Listener for Bar {
    fn on(&mut self, event: &Event) {
        self.rate.on(event);
        match event {
            Event::Started { step, steps, .. } => {
                note(headline(event));
                let bar = ProgressBar::new(*steps).with_style(style("  left {eta}"));
                bar.set_position(*step);
                bar.reset_eta();
                self.bar = Some(bar);
            }
            Event::Stepped { step, loss, .. } => {
                self.loss = *loss;
                self.refresh(*step);
            }
            Event::Evaluated {
                step,
                held_out_loss,
                ..
            } => {
                self.held_out_loss = Some(*held_out_loss);
                self.refresh(*step);
            }
            Event::Saved { .. } => {}
            Event::Ended { .. } => {
                if let Some(bar) = &self.bar {
                    // A stopped bar has no ETA.
                    bar.set_style(style(""));
                    bar.abandon();
                }
            }
        }
    }
}

fn style(end: &str) -> ProgressStyle {
    let template = format!("{{bar:30}} step {{pos}}/{{len}}  {{msg}}{end}");
    ProgressStyle::with_template(&template).expect("the template is valid")
}

impl Bar {
    fn refresh(&self, step: u64) {
        if let Some(bar) = &self.bar {
            bar.set_position(step);
            bar.set_message(self.message());
        }
    }

    fn message(&self) -> String {
        let held_out = match self.held_out_loss {
            Some(loss) => format!("{loss:.3}"),
            None => "-".to_owned(),
        };
        format!(
            "loss {:.3}  held-out {held_out}  {:.0} tokens/s",
            self.loss,
            self.rate.tokens_per_second()
        )
    }
}

/// One line per evaluation, and one every [`MAX_SILENCE`] in between.
#[derive(Default)]
pub struct PlainLines {
    rate: Rate,
    steps: u64,
    last: Option<Instant>,
}

/// The longest a plain log stays silent.
pub const MAX_SILENCE: std::time::Duration = std::time::Duration::from_secs(10);

impl Listener for PlainLines {
    fn on(&mut self, event: &Event) {
        self.rate.on(event);
        match event {
            Event::Started { steps, .. } => {
                self.steps = *steps;
                self.last = Some(Instant::now());
                note(headline(event));
            }
            Event::Stepped { step, loss, .. } => {
                if self.last.is_some_and(|last| last.elapsed() >= MAX_SILENCE) {
                    self.last = Some(Instant::now());
                    let (steps, pace) = (self.steps, self.pace(*step));
                    note(format_args!("step {step}/{steps}  loss {loss:.4}  {pace}"));
                }
            }
            Event::Evaluated {
                step,
                held_out_loss,
                ..
            } => {
                self.last = Some(Instant::now());
                let steps = self.steps;
                let pace = self.pace(*step);
                note(format_args!(
                    "step {step}/{steps}  held-out loss {held_out_loss:.4}  {pace}"
                ));
            }
            Event::Saved { .. } | Event::Ended { .. } => {}
        }
    }
}

impl PlainLines {
    fn pace(&self, step: u64) -> String {
        format!(
            "{:.0} tokens/s  {:.0} s left",
            self.rate.tokens_per_second(),
            self.rate.seconds_left(self.steps - step)
        )
    }
}

/// Shows nothing.
pub struct Silent;

impl Listener for Silent {
    fn on(&mut self, _: &Event) {}
}

/// A bar over many inputs; only on a terminal, and only where there are many.
pub struct Count {
    bar: Option<ProgressBar>,
}

/// So few inputs need no bar.
const FEW_INPUTS: usize = 64;

impl Count {
    /// A bar over this many inputs.
    pub fn of(inputs: usize) -> Self {
        let terminal = std::io::stderr().is_terminal() && !std::io::stdout().is_terminal();
        let is_shown = terminal && inputs > FEW_INPUTS && verbosity() > Verbosity::Quiet;
        let template = "{wide_bar} {pos}/{len}  {per_sec}  left {eta}";
        let style = ProgressStyle::with_template(template).expect("the template is valid");
        Self {
            bar: is_shown.then(|| ProgressBar::new(inputs as u64).with_style(style)),
        }
    }

    /// Counts more inputs.
    pub fn advance(&mut self, inputs: usize) {
        if let Some(bar) = &self.bar {
            bar.inc(inputs as u64);
        }
    }

    /// Sets the number of inputs so far.
    pub fn reach(&mut self, inputs: usize) {
        if let Some(bar) = &self.bar {
            bar.set_position(inputs as u64);
        }
    }
}

impl Drop for Count {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// Events as JSON lines on standard output; a closed pipe stops the run.
pub struct JsonLines {
    stop: Arc<AtomicBool>,
    written: std::io::Result<()>,
}

impl JsonLines {
    /// Sets `stop` on a write error.
    pub fn new(stop: Arc<AtomicBool>) -> Self {
        Self {
            stop,
            written: Ok(()),
        }
    }

    /// The first write error.
    pub fn finish(self) -> std::io::Result<()> {
        self.written
    }
}

impl Listener for JsonLines {
    fn on(&mut self, event: &Event) {
        if self.written.is_ok() {
            self.written = writeln!(std::io::stdout(), "{}", to_json(event));
        }
        if self.written.is_err() {
            self.stop.store(true, Ordering::Relaxed);
        }
    }
}

fn to_json(event: &Event) -> Value {
    match event {
        Event::Started {
            step,
            steps,
            parameters,
            training_tokens,
            held_out_tokens,
            unigram_entropy,
        } => json!({
            "event": "started", "step": step, "steps": steps, "parameters": parameters,
            "training_tokens": training_tokens, "held_out_tokens": held_out_tokens,
            "unigram_entropy": unigram_entropy,
        }),
        Event::Stepped {
            step,
            loss,
            learning_rate,
            gradient_norm,
            tokens,
        } => json!({
            "event": "step", "step": step, "loss": loss, "learning_rate": learning_rate,
            "gradient_norm": gradient_norm, "tokens": tokens,
        }),
        Event::Evaluated {
            step,
            held_out_loss,
            best,
        } => {
            json!({ "event": "evaluation", "step": step, "held_out_loss": held_out_loss, "best": best })
        }
        Event::Saved { step } => json!({ "event": "saved", "step": step }),
        Event::Ended { step, outcome } => json!({
            "event": "ended", "step": step,
            "outcome": match outcome {
                Outcome::Finished => "finished",
                Outcome::Interrupted => "interrupted",
            },
        }),
    }
}

fn headline(event: &Event) -> String {
    let Event::Started {
        step,
        parameters,
        training_tokens,
        held_out_tokens,
        unigram_entropy,
        ..
    } = event
    else {
        return String::new();
    };
    let resumed = match step {
        0 => String::new(),
        step => format!("resuming after step {step}; "),
    };
    format!(
        "{resumed}{parameters} parameters, {training_tokens} training and {held_out_tokens} held-out tokens, \
         unigram entropy {unigram_entropy:.4}"
    )
}

/// Tokens and steps per second of this session.
#[derive(Default)]
struct Rate {
    started: Option<Instant>,
    tokens: usize,
    steps: u64,
}

impl Rate {
    fn on(&mut self, event: &Event) {
        match event {
            Event::Started { .. } => self.started = Some(Instant::now()),
            Event::Stepped { tokens, .. } => {
                self.tokens += tokens;
                self.steps += 1;
            }
            _ => {}
        }
    }

    fn seconds(&self) -> f64 {
        self.started
            .map_or(0.0, |started| started.elapsed().as_secs_f64())
    }

    fn tokens_per_second(&self) -> f64 {
        self.tokens as f64 / self.seconds().max(1e-9)
    }

    fn seconds_left(&self, steps: u64) -> f64 {
        self.seconds() / self.steps.max(1) as f64 * steps as f64
    }
}
