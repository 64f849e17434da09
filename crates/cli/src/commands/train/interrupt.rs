//! Ctrl-C, and the SIGTERM of schedulers: the first ends the run after its step and saves it, the second exits at once.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use anyhow::Result;
use attentive::training::{Event, Listener, Trainer};

use crate::output::note;

/// Exit code after Ctrl-C or SIGTERM (128 + SIGINT).
pub const INTERRUPTED: u8 = 130;

/// The signals of a run, and what it has saved.
pub struct Interrupt {
    stop: Arc<AtomicBool>,
    /// The last saved step; 0 before the first.
    saved: Arc<AtomicU64>,
}

impl Interrupt {
    /// Takes over the signals of the process.
    pub fn install(trainer: &Trainer, folder: &Path) -> Result<Self> {
        // A trainer starts at the step that it resumes.
        let saved = Arc::new(AtomicU64::new(trainer.step_count()));
        let stop = Arc::new(AtomicBool::new(false));
        let (flag, kept, folder) = (stop.clone(), saved.clone(), folder.display().to_string());
        ctrlc::set_handler(move || {
            if !flag.swap(true, Ordering::Relaxed) {
                note("\nfinishing this step, then saving; press Ctrl-C again to exit immediately");
                return;
            }
            match kept.load(Ordering::Relaxed) {
                0 => note(format!("\nstopped; nothing is saved in {folder} yet")),
                step => note(format!("\nstopped; {folder} keeps step {step}")),
            }
            std::process::exit(i32::from(INTERRUPTED));
        })?;
        Ok(Self { stop, saved })
    }

    /// Set by the first signal.
    pub fn stop(&self) -> Arc<AtomicBool> {
        self.stop.clone()
    }
}

impl Listener for Interrupt {
    fn on(&mut self, event: &Event) {
        if let Event::Saved { step } = event {
            self.saved.store(*step, Ordering::Relaxed);
        }
    }
}
