//! Downloads a file into the cache. It is written to `ETAG.incomplete`, resumed after interruptions, and renamed when complete.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ureq::http::StatusCode;

use crate::cache::{RepoCache, create_parent};
use crate::file_set::file_kind;
use crate::remote::{FileMetadata, Remote, Response};
use crate::{Event, HubError, Listener};

/// Consecutive failures without progress before giving up.
const MAX_ATTEMPTS: u32 = 4;

/// The initial backoff, which doubles.
const BACKOFF: Duration = Duration::from_millis(250);

/// Bytes per read.
const CHUNK_BYTES: usize = 1 << 17;

/// Adds a file to the snapshot of a commit, and downloads it unless its blob is cached.
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
    let metadata = remote.file_metadata(commit, name)?;
    let blob = cache.blob(&metadata.etag);
    let is_complete = || std::fs::metadata(&blob).is_ok_and(|it| it.len() == metadata.size);
    if !is_complete() {
        let _lock = cache.lock(&metadata.etag, name, on)?;
        // The previous holder of the lock may have downloaded it.
        if !is_complete() {
            Download::open(remote, &metadata, name, &blob)?.run(&blob, on)?;
        }
    }
    cache.link(&metadata.etag, commit, name)
}

/// A download in progress.
struct Download<'a> {
    remote: &'a Remote<'a>,
    metadata: &'a FileMetadata,
    name: &'a str,
    path: PathBuf,
    file: File,
    received: u64,
}

/// Why an attempt failed.
enum DownloadError {
    /// Another attempt may succeed.
    Retryable(String),
    /// Retrying is pointless.
    Fatal(HubError),
}

impl From<HubError> for DownloadError {
    fn from(error: HubError) -> Self {
        match error {
            HubError::Network { problem } => Self::Retryable(problem),
            error => Self::Fatal(error),
        }
    }
}

impl<'a> Download<'a> {
    fn open(
        remote: &'a Remote<'a>,
        metadata: &'a FileMetadata,
        name: &'a str,
        blob: &Path,
    ) -> Result<Self, HubError> {
        create_parent(blob)?;
        // The name that huggingface_hub uses, so that either can resume what the other began.
        let path = blob.with_file_name(format!("{}.incomplete", metadata.etag));
        let failed = |error| HubError::io(&path, error);
        let mut options = File::options();
        let options = options.create(true).write(true).truncate(false);
        let mut file = options.open(&path).map_err(failed)?;
        let mut received = file.seek(SeekFrom::End(0)).map_err(failed)?;
        if received > metadata.size {
            received = 0;
        }
        Ok(Self {
            remote,
            metadata,
            name,
            path,
            file,
            received,
        })
    }

    fn run(mut self, blob: &Path, on: &mut Listener) -> Result<(), HubError> {
        self.resume_at(self.received, on)?;
        let (mut high_water, mut failures) = (self.received, 0);
        while self.received < self.metadata.size {
            match self.attempt(on) {
                Ok(()) => {}
                Err(DownloadError::Fatal(error)) => {
                    if matches!(error, HubError::WrongSize { .. }) {
                        // It cannot be resumed.
                        let _ = std::fs::remove_file(&self.path);
                    }
                    return Err(error);
                }
                Err(DownloadError::Retryable(problem)) => {
                    // A server without ranges must not make us loop forever, so only progress resets the count.
                    failures = if self.received > high_water {
                        1
                    } else {
                        failures + 1
                    };
                    high_water = high_water.max(self.received);
                    if failures >= MAX_ATTEMPTS {
                        return Err(self.interrupted(problem));
                    }
                    on(Event::Retrying { problem: &problem });
                    std::thread::sleep(BACKOFF * (1 << failures) / 2);
                }
            }
        }
        let synced = self.file.sync_all();
        synced
            .and_then(|()| std::fs::rename(&self.path, blob))
            .map_err(|error| HubError::io(blob, error))?;
        on(Event::Finished);
        Ok(())
    }

    /// Sends one request, and receives as much of the response as possible.
    fn attempt(&mut self, on: &mut Listener) -> Result<(), DownloadError> {
        let response = self.remote.open(&self.metadata.url, self.received)?;
        match response.status() {
            StatusCode::OK => {
                self.check_size(response.body().content_length())?;
                if self.received > 0 {
                    self.resume_at(0, on)?;
                }
            }
            StatusCode::PARTIAL_CONTENT => self.check_range(&response, on)?,
            // The partial file does not match the server's file.
            StatusCode::RANGE_NOT_SATISFIABLE if self.received > 0 => {
                self.resume_at(0, on)?;
                return Err(DownloadError::Retryable("it refused to resume".to_owned()));
            }
            _ => return Err(self.remote.status_error(&response).into()),
        }
        self.receive(response, on)
    }

    fn receive(&mut self, response: Response, on: &mut Listener) -> Result<(), DownloadError> {
        let mut reader = response.into_body().into_reader();
        let mut chunk = vec![0; CHUNK_BYTES];
        loop {
            let count = reader.read(&mut chunk);
            let count = count.map_err(|error| DownloadError::Retryable(error.to_string()))?;
            if count == 0 {
                break;
            }
            self.check_overrun(self.received + count as u64)?;
            let written = self.file.write_all(&chunk[..count]);
            written.map_err(|error| self.failed(error))?;
            self.received += count as u64;
            on(Event::Received {
                bytes: count as u64,
            });
        }
        match self.received < self.metadata.size {
            true => Err(DownloadError::Retryable("the connection ended".to_owned())),
            false => Ok(()),
        }
    }

    /// Truncates the file to `received` bytes, and continues from there.
    fn resume_at(&mut self, received: u64, on: &mut Listener) -> Result<(), HubError> {
        let truncated = self.file.set_len(received);
        truncated
            .and_then(|()| self.file.seek(SeekFrom::Start(received)))
            .map_err(|error| self.failed(error))?;
        self.received = received;
        on(Event::Started {
            file: self.name,
            kind: file_kind(self.name),
            size: self.metadata.size,
            present: received,
        });
        Ok(())
    }

    /// Checks `Content-Range`: `bytes 100-199/200`.
    fn check_range(&mut self, response: &Response, on: &mut Listener) -> Result<(), DownloadError> {
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
                self.resume_at(0, on)?;
                Err(DownloadError::Retryable(
                    "it sent a different range".to_owned(),
                ))
            }
        }
    }

    /// Checks the size of the file, if the server sends it.
    fn check_size(&self, actual: Option<u64>) -> Result<(), HubError> {
        let expected = self.metadata.size;
        match actual {
            Some(actual) if actual != expected => Err(self.size_mismatch(actual)),
            _ => Ok(()),
        }
    }

    /// Checks that no more than the expected bytes were received.
    fn check_overrun(&self, actual: u64) -> Result<(), HubError> {
        match actual > self.metadata.size {
            true => Err(self.size_mismatch(actual)),
            false => Ok(()),
        }
    }

    fn size_mismatch(&self, actual: u64) -> HubError {
        HubError::WrongSize {
            file: self.name.to_owned(),
            expected: self.metadata.size,
            actual,
        }
    }

    fn interrupted(&self, problem: String) -> HubError {
        HubError::Interrupted {
            file: self.name.to_owned(),
            received: self.received,
            size: self.metadata.size,
            problem,
        }
    }

    fn failed(&self, error: std::io::Error) -> HubError {
        HubError::io(&self.path, error)
    }
}
