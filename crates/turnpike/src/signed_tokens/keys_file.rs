//! Keys of a file. Another thread reads the file again after each change.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use anyhow::anyhow;
use tokio::time::{MissedTickBehavior, interval};

use super::Verifier;
use super::keys::Keys;
use crate::failure::{Failure, Result};
use crate::file_reading::FileReading;

/// Interval of checks for a changed file. A key that an operator removes is refused after this
/// interval.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Maximum size of the file in bytes: some hundred keys.
const FILE_BYTES_MAX: u64 = 256 << 10;

/// File of keys. Look-ups of keys do not access the file.
#[derive(Debug)]
pub(super) struct KeysFile {
    path: PathBuf,
    known: RwLock<KnownKeys>,
}

#[derive(Clone, Debug, Default)]
struct KnownKeys {
    changed: Option<SystemTime>,
    keys: Arc<Keys>,
    /// True if a log line has reported the failure.
    is_failing: bool,
}

/// Keys of a changed file, with the time of the change. `None` if the file has not changed.
type KeysReading = std::result::Result<Option<(SystemTime, Keys)>, String>;

impl KeysFile {
    /// Reads the file for the first time.
    ///
    /// # Errors
    /// The file cannot be read, or contains no usable keys.
    pub(super) fn open(path: PathBuf) -> Result<Self> {
        let file = Self { path, known: RwLock::default() };
        let read = read(&file.path, None).map_err(|why| {
            Failure::failed(anyhow!("signed_tokens.keys_file: {}: {why}", file.path.display()))
                .hint("name a JSON Web Key Set with public keys of the issuer")
        })?;
        file.put(Ok(read));
        Ok(file)
    }

    /// Returns the keys of the last successful read.
    pub(super) fn keys(&self) -> Arc<Keys> {
        Arc::clone(&self.known.read().unwrap_or_else(PoisonError::into_inner).keys)
    }

    /// Returns a closure that reads the file if it has changed, for another thread.
    pub(super) fn reader(&self) -> impl FnOnce() -> KeysReading + Send + 'static {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner).changed;
        let path = self.path.clone();
        move || read(&path, known)
    }

    /// Applies the keys of a read, or logs the first failure.
    pub(super) fn put(&self, read: KeysReading) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        match read {
            Ok(changed) => {
                known.is_failing = false;
                if let Some((at, keys)) = changed {
                    (known.changed, known.keys) = (Some(at), Arc::new(keys));
                }
            }
            Err(why) => {
                if !std::mem::replace(&mut known.is_failing, true) {
                    let path = self.path.display();
                    tracing::warn!("signed_tokens.keys_file: {path}: {why}: the known keys stay");
                }
            }
        }
    }
}

fn read(path: &Path, known: Option<SystemTime>) -> KeysReading {
    let changed = fs::metadata(path).and_then(|file| file.modified());
    let changed = changed.map_err(|error| error.to_string())?;
    if known == Some(changed) {
        return Ok(None);
    }
    let text = atomic_file::read(path, FILE_BYTES_MAX).map_err(|error| error.to_string())?;
    Ok(Some((changed, Keys::read(&text)?)))
}

/// Reads the file again after each change, while the server runs.
pub(super) async fn watch(verifier: Arc<Verifier>) {
    let Some(file) = &verifier.file else { return };
    let mut reading = FileReading::new("the keys of signed tokens");
    let mut look = interval(LOOK_EVERY);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = look.tick() => {
                reading.is_late();
                reading.start(file.reader());
            }
            Some(Ok(read)) = reading.next() => file.put(read),
        }
    }
}
