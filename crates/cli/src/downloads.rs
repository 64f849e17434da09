//! Download progress: a bar per large file on a terminal, plain lines elsewhere.

use std::io::IsTerminal;
use std::time::Instant;

use attentive::hub::{Event, FileKind, ModelId};
use indicatif::{HumanBytes, ProgressBar, ProgressStyle};

use crate::output::{Verbosity, note, verbosity};
use crate::progress::MAX_SILENCE;

/// Smaller files are not reported.
const SMALL: u64 = 1 << 20;

/// Reports downloads.
pub struct Downloads {
    id: String,
    terminal: bool,
    file: Option<Shown>,
}

/// The current file.
struct Shown {
    name: String,
    size: u64,
    received: u64,
    /// Bytes downloaded by this process, for the rate.
    fresh: u64,
    started: Instant,
    last: Instant,
    /// None if stderr is not a terminal.
    bar: Option<ProgressBar>,
}

impl Downloads {
    /// Shows the files of a model; a local one has none to show.
    pub fn new(id: Option<&ModelId>) -> Self {
        Self {
            id: id.map(ModelId::to_string).unwrap_or_default(),
            terminal: std::io::stderr().is_terminal() && verbosity() > Verbosity::Quiet,
            file: None,
        }
    }

    /// Reports an event.
    pub fn on(&mut self, event: &Event) {
        match event {
            Event::Started {
                file,
                kind,
                size,
                present,
            } => {
                self.end();
                if *kind == FileKind::Weights || *size >= SMALL {
                    self.file = Some(Shown::begin(self.terminal, file, *size, *present));
                }
            }
            Event::Received { bytes } => {
                if let Some(file) = &mut self.file {
                    file.advance(*bytes);
                }
            }
            Event::Retrying { problem } => self.say(&format!("{problem}; resuming")),
            Event::Waiting { file } => self.say(&format!(
                "another process is downloading {file}; waiting until it is done"
            )),
            Event::UsingCache { problem } => self.say(&format!(
                "{problem}\nusing {} as it was last downloaded",
                self.id
            )),
            Event::Finished => self.end(),
        }
    }

    /// A line above the bar, if there is one.
    fn say(&self, text: &str) {
        match self.file.as_ref().and_then(|file| file.bar.as_ref()) {
            Some(bar) => bar.suspend(|| note(text)),
            None => note(text),
        }
    }

    fn end(&mut self) {
        if let Some(bar) = self.file.take().and_then(|file| file.bar) {
            // A stopped bar would show an ETA of zero, also after an interruption.
            bar.set_style(style(""));
            bar.abandon();
        }
    }
}

impl Drop for Downloads {
    fn drop(&mut self) {
        self.end();
    }
}

impl Shown {
    fn begin(terminal: bool, name: &str, size: u64, present: u64) -> Self {
        let bar = terminal.then(|| {
            let end = "  {binary_bytes_per_sec}  left {eta}";
            let bar = ProgressBar::new(size).with_style(style(end));
            bar.set_message(name.to_owned());
            bar.set_position(present);
            bar.reset_eta();
            bar
        });
        if bar.is_none() {
            let (size, there) = (HumanBytes(size), HumanBytes(present));
            match present {
                0 => note(format_args!("downloading {name}, {size}")),
                _ => note(format_args!(
                    "downloading {name}, resuming at {there} of {size}"
                )),
            }
        }
        let now = Instant::now();
        Self {
            name: name.to_owned(),
            size,
            received: present,
            fresh: 0,
            started: now,
            last: now,
            bar,
        }
    }

    fn advance(&mut self, bytes: u64) {
        self.received += bytes;
        self.fresh += bytes;
        if let Some(bar) = &self.bar {
            bar.inc(bytes);
        } else if self.last.elapsed() >= MAX_SILENCE {
            self.last = Instant::now();
            let rate = self.fresh as f64 / self.started.elapsed().as_secs_f64();
            let left = (self.size - self.received) as f64 / rate;
            note(format_args!(
                "{}  {}/{}  {}/s  {left:.0} s left",
                self.name,
                HumanBytes(self.received),
                HumanBytes(self.size),
                HumanBytes(rate as u64)
            ));
        }
    }
}

fn style(end: &str) -> ProgressStyle {
    let template = format!("{{bar:30}} {{msg}}  {{binary_bytes}}/{{binary_total_bytes}}{end}");
    ProgressStyle::with_template(&template).expect("the template is valid")
}
