//! Reading of the configuration for a reload, on another thread. A disk that hangs delays the
//! reload, and not the watchdog.

use anyhow::anyhow;
use control::ReloadReport;
use settings::Settings;
use tokio::sync::oneshot;

use crate::certificate_watch::ConfinedReading;
use crate::certificates::CertificateReader;
use crate::cli::PathOptions;
use crate::confinement::ReadableFiles;
use crate::failure::{Failure, Result};
use crate::file_reading::FileReading;
use crate::handover::Change;
use crate::paths;

/// Request to reload.
#[derive(Default)]
pub(crate) struct ReloadRequest {
    /// True if the reload closes sessions whose secret or key was removed from the configuration.
    pub(crate) end_sessions: bool,
    /// Receiver of the report. `None` for a signal.
    pub(crate) reply: Option<oneshot::Sender<ReloadReport>>,
    /// Permit for the change, which delays hand-overs.
    pub(crate) change: Option<Change>,
}

/// Configuration that was read.
#[derive(Debug)]
pub(crate) struct LoadedConfiguration {
    pub(crate) settings: Settings,
    /// Certificates of the configuration. If `None`, the certificates in effect remain.
    pub(crate) certificates: Option<ConfinedReading>,
}

/// Inputs of a reload: paths, and parts of the state in effect.
pub(crate) struct ReloadInputs {
    pub(crate) paths: PathOptions,
    pub(crate) settings: Settings,
    pub(crate) certificates: CertificateReader,
    pub(crate) readable: ReadableFiles,
}

impl ReloadInputs {
    /// Reads the configuration and its certificates. Certificates in effect may be unreadable. May
    /// block.
    fn load(self) -> Result<LoadedConfiguration> {
        let loaded = paths::load_again(&self.paths, &self.certificates.files());
        let settings = match loaded {
            Ok(configuration) => configuration.settings,
            Err(failure) => {
                let file = paths::configuration_file(&self.paths);
                return Err(match self.readable.reason(file.as_deref()) {
                    Some(why) => failure.hint(why),
                    None => failure,
                });
            }
        };
        // Contradictory settings are an error of the subsequent reload.
        let kept = self.settings.reloaded(&settings).ok();
        let certificates =
            kept.map(|kept| ConfinedReading::read(&self.certificates, &self.readable, &kept));
        Ok(LoadedConfiguration { settings, certificates })
    }
}

/// Result of a request whose read was not started.
pub(crate) enum RefusedReload {
    /// The request joins the reload in progress.
    Joined,
    /// The disk has not returned the configuration of an earlier request.
    DiskHangs(ReloadRequest, Failure),
}

/// Reload whose configuration is being read.
pub(crate) struct ReloadJob {
    reading: FileReading<Result<LoadedConfiguration>>,
    /// Request that waits for the read. `None` after the response to a late request.
    request: Option<ReloadRequest>,
    /// True if another request has arrived since the read started.
    is_wanted_again: bool,
}

impl ReloadJob {
    pub(crate) fn new() -> Self {
        let reading = FileReading::new("the configuration");
        Self { reading, request: None, is_wanted_again: false }
    }

    /// Returns true if no request waits for a read.
    pub(crate) const fn is_idle(&self) -> bool {
        self.request.is_none()
    }

    /// Starts to read the configuration.
    ///
    /// # Errors
    /// Another read is in progress. If an earlier request waits for this read, a repetition is
    /// noted: see [`take_wanted_again`](Self::take_wanted_again).
    pub(crate) fn begin(
        &mut self,
        request: ReloadRequest,
        inputs: ReloadInputs,
    ) -> std::result::Result<(), RefusedReload> {
        self.start(request, move || inputs.load())
    }

    fn start(
        &mut self,
        request: ReloadRequest,
        read: impl FnOnce() -> Result<LoadedConfiguration> + Send + 'static,
    ) -> std::result::Result<(), RefusedReload> {
        if self.request.is_some() {
            self.is_wanted_again = true;
            return Err(RefusedReload::Joined);
        }
        if !self.reading.start(read) {
            return Err(RefusedReload::DiskHangs(request, self.hangs()));
        }
        self.request = Some(request);
        Ok(())
    }

    /// Waits for the configuration. Returns `None` without a request, or if the read has panicked.
    /// The panic has already been logged.
    pub(crate) async fn next(&mut self) -> Option<(ReloadRequest, Result<LoadedConfiguration>)> {
        let read = self.reading.next().await?;
        // A late request has already got a response, and its outdated configuration is dropped.
        let request = self.request.take()?;
        Some((request, read.ok()?))
    }

    /// Returns the request of a late read, once. Other requests must not wait for the disk.
    pub(crate) fn late(&mut self) -> Option<(ReloadRequest, Failure)> {
        if !self.reading.is_late() {
            return None;
        }
        Some((self.request.take()?, self.hangs()))
    }

    fn hangs(&self) -> Failure {
        let seconds = self.reading.seconds();
        Failure::failed(anyhow!(
            "the disk has not returned the configuration or a file that it names for {seconds} s"
        ))
        .hint("check the disk or the network file system, and reload again")
    }

    /// Returns true once after a request that arrived during another reload's read.
    pub(crate) const fn take_wanted_again(&mut self) -> bool {
        std::mem::replace(&mut self.is_wanted_again, false)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    fn broken() -> Result<LoadedConfiguration> {
        Err(Failure::usage(anyhow!("line 3: no")))
    }

    #[tokio::test]
    async fn a_disk_that_hangs_ends_the_reload_and_not_what_follows() {
        let mut job = ReloadJob::new();
        let (release, hangs) = channel::<()>();
        let read = move || {
            let _ = hangs.recv();
            broken()
        };
        assert!(
            job.start(ReloadRequest { end_sessions: true, ..Default::default() }, read).is_ok()
        );
        assert!(!job.is_idle() && job.late().is_none());
        assert!(matches!(job.start(Default::default(), broken), Err(RefusedReload::Joined)));
        job.reading.make_late();
        let (request, failure) = job.late().unwrap();
        assert!(request.end_sessions && job.late().is_none());
        assert!(failure.reason().contains("has not returned the configuration"));
        assert!(job.is_idle(), "other requests of operators go on");
        let again = job.start(Default::default(), broken);
        assert!(matches!(again, Err(RefusedReload::DiskHangs(..))), "one read at a time");

        drop(release);
        assert!(job.next().await.is_none(), "the response to its request was sent");
        assert!(job.start(Default::default(), broken).is_ok());
        let (_, loaded) = job.next().await.unwrap();
        assert!(loaded.unwrap_err().reason().contains("line 3"));
    }
}
