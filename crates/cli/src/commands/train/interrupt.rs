//! Ctrl-C, and the SIGTERM of schedulers: the first ends the run after its step and saves it, the second exits at once.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};

use anyhow::Result;
use attentive::training::{Event, Listener, RunFolder};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::output::note;

/// In place of the last saved step, before there is one.
const NOTHING: u64 = u64::MAX;

/// The signals of a run, and what it has saved.
pub struct Interrupt {
    stop: Arc<AtomicBool>,
    signal: Arc<AtomicI32>,
    saved: Arc<AtomicU64>,
}

impl Interrupt {
    /// Takes over the signals of the process. SIGHUP is left alone: `nohup` ignores it.
    pub fn install(folder: &RunFolder) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let signal = Arc::new(AtomicI32::new(SIGINT));
        let saved = Arc::new(AtomicU64::new(NOTHING));
        let mut signals = Signals::new([SIGINT, SIGTERM])?;
        let (flag, first, kept) = (stop.clone(), signal.clone(), saved.clone());
        let (checkpoint, folder) = (folder.state_path(), folder.path().display().to_string());
        std::thread::Builder::new().spawn(move || {
            for received in signals.forever() {
                if !flag.swap(true, Ordering::Relaxed) {
                    first.store(received, Ordering::Relaxed);
                    note("\nfinishing this step, then saving; press Ctrl-C again to exit immediately");
                    continue;
                }
                match kept.load(Ordering::Relaxed) {
                    NOTHING if checkpoint.exists() => {
                        note(format!("\nstopped; {folder} keeps what it held"));
                    }
                    NOTHING => note(format!("\nstopped; nothing is saved in {folder} yet")),
                    step => note(format!("\nstopped; {folder} keeps step {step}")),
                }
                std::process::exit(code(received).into());
            }
        })?;
        Ok(Self {
            stop,
            signal,
            saved,
        })
    }

    /// Set by the first signal.
    pub fn stop(&self) -> Arc<AtomicBool> {
        self.stop.clone()
    }

    /// The exit code of an interrupted run: 130 after Ctrl-C, 143 after SIGTERM.
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(code(self.signal.load(Ordering::Relaxed)))
    }
}

impl Listener for Interrupt {
    fn on(&mut self, event: &Event) {
        if let Event::Saved { step } = event {
            self.saved.store(*step, Ordering::Relaxed);
        }
    }
}

/// As shells report a signal.
fn code(signal: i32) -> u8 {
    u8::try_from(128 + signal).unwrap_or(u8::MAX)
}
