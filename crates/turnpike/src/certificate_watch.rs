//! Repeated reads of certificates on another thread while the server runs.

use settings::Settings;

use crate::certificates::{CertificateReader, CertificateReading};
use crate::confinement::ReadableFiles;
use crate::file_reading::FileReading;

/// Result of a read of certificates. `confined` explains errors that the confinement causes.
#[derive(Debug)]
pub(crate) struct ConfinedReading {
    pub(crate) certificates: CertificateReading,
    pub(crate) confined: Option<String>,
}

impl ConfinedReading {
    /// Reads the certificates of a configuration. May block.
    pub(crate) fn read(
        reader: &CertificateReader,
        readable: &ReadableFiles,
        settings: &Settings,
    ) -> Self {
        Self::explain(reader.read(settings), readable, settings)
    }

    fn explain(
        certificates: CertificateReading,
        readable: &ReadableFiles,
        settings: &Settings,
    ) -> Self {
        let confined = if certificates.is_complete() {
            None
        } else {
            let files = settings.certificates().into_iter();
            let files = files.flat_map(|one| [one.chain, one.key].into_iter().chain(one.password));
            readable.reason_of(files)
        };
        Self { certificates, confined }
    }
}

/// Task that reads certificates again.
pub(crate) struct CertificateWatch {
    reading: FileReading<Option<ConfinedReading>>,
    /// True if the configuration has changed since the read started.
    is_outdated: bool,
    /// True if an operator has requested another read since the read started.
    is_wanted: bool,
}

impl CertificateWatch {
    pub(crate) fn new() -> Self {
        Self { reading: FileReading::new("the certificates"), is_outdated: false, is_wanted: false }
    }

    /// Starts to read changed files, if no read is in progress.
    pub(crate) fn read_changed(
        &mut self,
        reader: CertificateReader,
        readable: ReadableFiles,
        settings: &Settings,
    ) {
        let settings = settings.clone();
        let is_wanted = std::mem::take(&mut self.is_wanted);
        let read = move || {
            let read = if is_wanted {
                Some(reader.read(&settings))
            } else {
                reader.read_changed(&settings)
            };
            read.map(|read| ConfinedReading::explain(read, &readable, &settings))
        };
        if self.reading.start(read) {
            self.is_outdated = false;
        } else {
            self.is_wanted = is_wanted;
            self.reading.is_late();
        }
    }

    /// Forces a complete next read without a changed file.
    pub(crate) const fn want(&mut self) {
        self.is_wanted = true;
    }

    /// Drops the result of a read in progress: the configuration has changed.
    pub(crate) const fn forget(&mut self) {
        self.is_outdated = true;
    }

    /// Waits for certificates that were read. Returns `None` if no read is in progress, no file has
    /// changed, the configuration has changed, or the read has panicked.
    pub(crate) async fn next(&mut self) -> Option<ConfinedReading> {
        let read = self.reading.next().await?.ok()??;
        (!self.is_outdated).then_some(read)
    }
}

#[cfg(test)]
impl CertificateWatch {
    /// Returns a watch whose disk hangs until the sender is dropped.
    pub(crate) fn hanging() -> (Self, std::sync::mpsc::Sender<()>) {
        let mut watch = Self::new();
        let (release, hangs) = std::sync::mpsc::channel::<()>();
        watch.reading.start(move || {
            let _ = hangs.recv();
            None
        });
        (watch, release)
    }
}
