//! One file from the hub into the cache. It is written beside its place, goes on where an earlier attempt stopped, and gets
//! its name only when it is whole.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ureq::http::StatusCode;

use crate::cache::{RepoCache, create_parent};
use crate::remote::{Announced, Remote, Response};
use crate::wanted::kind_of;
use crate::{Event, HubError, Listener};

/// How often a file may break off without a byte more than before.
const ATTEMPTS: u32 = 4;

/// The pause before the second attempt; it doubles.
const PAUSE: Duration = Duration::from_millis(250);

/// How many bytes are read at once.
const PORTION: usize = 1 << 17;

/// Puts a file of a commit into its snapshot, from the hub where the cache does not hold it yet.
pub(crate) fn fetch(
    remote: &Remote,
    cache: &RepoCache,
    commit: &str,
    name: &str,
    on: &mut Listener,
) -> Result<(), HubError> {
    if cache.snapshot(commit).join(name).exists() {
        return Ok(());
    }
    let announced = remote.announced(commit, name)?;
    let blob = cache.blob(&announced.etag);
    let is_whole = || std::fs::metadata(&blob).is_ok_and(|it| it.len() == announced.size);
    if !is_whole() {
        let _lock = cache.lock(&announced.etag, name, on)?;
        // Whoever held the lock before may have fetched it.
        if !is_whole() {
            Transfer::begin(remote, &announced, name, &blob)?.finish(&blob, on)?;
        }
    }
    cache.link(&announced.etag, commit, name)
}

/// A file on its way.
struct Transfer<'a> {
    remote: &'a Remote<'a>,
    announced: &'a Announced,
    name: &'a str,
    path: PathBuf,
    file: File,
    received: u64,
}

/// Why a portion did not come.
enum Stop {
    /// Another attempt may go better.
    Broken(String),
    /// No attempt will.
    Final(HubError),
}

impl From<HubError> for Stop {
    fn from(error: HubError) -> Self {
        match error {
            HubError::Network { problem } => Self::Broken(problem),
            error => Self::Final(error),
        }
    }
}

impl<'a> Transfer<'a> {
    fn begin(
        remote: &'a Remote<'a>,
        announced: &'a Announced,
        name: &'a str,
        blob: &Path,
    ) -> Result<Self, HubError> {
        create_parent(blob)?;
        // The name that Hugging Face's own programs give it, so that each goes on with what the other began.
        let path = blob.with_file_name(format!("{}.incomplete", announced.etag));
        let failed = |error| HubError::of_file(&path, error);
        let mut options = File::options();
        let options = options.create(true).write(true).truncate(false);
        let mut file = options.open(&path).map_err(failed)?;
        let mut received = file.seek(SeekFrom::End(0)).map_err(failed)?;
        if received > announced.size {
            received = 0;
        }
        Ok(Self {
            remote,
            announced,
            name,
            path,
            file,
            received,
        })
    }

    fn finish(mut self, blob: &Path, on: &mut Listener) -> Result<(), HubError> {
        self.restart(self.received, on)?;
        let (mut furthest, mut failures) = (self.received, 0);
        while self.received < self.announced.size {
            match self.attempt(on) {
                Ok(()) => {}
                Err(Stop::Final(error)) => {
                    if matches!(error, HubError::WrongSize { .. }) {
                        // It cannot be gone on with.
                        let _ = std::fs::remove_file(&self.path);
                    }
                    return Err(error);
                }
                Err(Stop::Broken(problem)) => {
                    // A server that always begins anew must not keep us for ever, so only new bytes count.
                    failures = if self.received > furthest {
                        1
                    } else {
                        failures + 1
                    };
                    furthest = furthest.max(self.received);
                    if failures >= ATTEMPTS {
                        return Err(self.interrupted(problem));
                    }
                    on(Event::Retrying { problem: &problem });
                    std::thread::sleep(PAUSE * (1 << failures) / 2);
                }
            }
        }
        let place = self.file.sync_all();
        place
            .and_then(|()| std::fs::rename(&self.path, blob))
            .map_err(|error| HubError::of_file(blob, error))?;
        on(Event::Finished);
        Ok(())
    }

    /// One request, and as much of its answer as comes.
    fn attempt(&mut self, on: &mut Listener) -> Result<(), Stop> {
        let response = self.remote.open(&self.announced.url, self.received)?;
        match response.status() {
            StatusCode::OK => {
                self.check_size(response.body().content_length())?;
                if self.received > 0 {
                    self.restart(0, on)?;
                }
            }
            StatusCode::PARTIAL_CONTENT => self.check_range(&response, on)?,
            // What we have is not the beginning of what the server has.
            StatusCode::RANGE_NOT_SATISFIABLE if self.received > 0 => {
                self.restart(0, on)?;
                return Err(Stop::Broken("it cannot go on".to_owned()));
            }
            _ => return Err(self.remote.refusal(&response).into()),
        }
        self.receive(response, on)
    }

    fn receive(&mut self, response: Response, on: &mut Listener) -> Result<(), Stop> {
        let mut reader = response.into_body().into_reader();
        let mut portion = vec![0; PORTION];
        loop {
            let count = reader.read(&mut portion);
            let count = count.map_err(|error| Stop::Broken(error.to_string()))?;
            if count == 0 {
                break;
            }
            self.check_end(self.received + count as u64)?;
            let written = self.file.write_all(&portion[..count]);
            written.map_err(|error| self.failed(error))?;
            self.received += count as u64;
            on(Event::Received {
                bytes: count as u64,
            });
        }
        match self.received < self.announced.size {
            true => Err(Stop::Broken("the connection ended".to_owned())),
            false => Ok(()),
        }
    }

    /// Goes on behind the first `received` bytes, and forgets what lies behind them.
    fn restart(&mut self, received: u64, on: &mut Listener) -> Result<(), HubError> {
        let cut = self.file.set_len(received);
        cut.and_then(|()| self.file.seek(SeekFrom::Start(received)))
            .map_err(|error| self.failed(error))?;
        self.received = received;
        on(Event::Started {
            file: self.name,
            kind: kind_of(self.name),
            size: self.announced.size,
            present: received,
        });
        Ok(())
    }

    /// That an answer continues what we have, of a file as large as announced: `bytes 100-199/200`.
    fn check_range(&mut self, response: &Response, on: &mut Listener) -> Result<(), Stop> {
        let range = response.headers().get("content-range");
        let range = range.and_then(|range| range.to_str().ok());
        let parsed = range.and_then(|range| {
            let (part, size) = range.strip_prefix("bytes ")?.split_once('/')?;
            let (start, _) = part.split_once('-')?;
            Some((start.parse::<u64>().ok()?, size.parse::<u64>().ok()))
        });
        match parsed {
            Some((start, size)) if start == self.received => Ok(self.check_size(size)?),
            _ => {
                self.restart(0, on)?;
                Err(Stop::Broken("it sent another part".to_owned()))
            }
        }
    }

    /// That a file is as large as announced, where its size is told.
    fn check_size(&self, came: Option<u64>) -> Result<(), HubError> {
        let announced = self.announced.size;
        match came {
            Some(came) if came != announced => Err(self.wrong_size(came)),
            _ => Ok(()),
        }
    }

    /// That no more came than was announced.
    fn check_end(&self, came: u64) -> Result<(), HubError> {
        match came > self.announced.size {
            true => Err(self.wrong_size(came)),
            false => Ok(()),
        }
    }

    fn wrong_size(&self, came: u64) -> HubError {
        HubError::WrongSize {
            file: self.name.to_owned(),
            announced: self.announced.size,
            came,
        }
    }

    fn interrupted(&self, problem: String) -> HubError {
        HubError::Interrupted {
            file: self.name.to_owned(),
            received: self.received,
            size: self.announced.size,
            problem,
        }
    }

    fn failed(&self, error: std::io::Error) -> HubError {
        HubError::of_file(&self.path, error)
    }
}
