//! Reads the configuration for a reload on another thread: a disk that hangs holds up the reload,
//! and not the watchdog.

use control::ReloadReport;
use settings::{CertificateFiles, Settings};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use crate::cli::PathOptions;
use crate::failure::Result;
use crate::handover::Change;
use crate::paths;

/// A request to reload.
#[derive(Default)]
pub(crate) struct ReloadRequest {
    /// Sessions end whose secret or key is not in the configuration any more.
    pub(crate) end_sessions: bool,
    /// Receives the report; `None` for a signal.
    pub(crate) reply: Option<oneshot::Sender<ReloadReport>>,
    /// Permit of the change, which keeps hand-overs waiting.
    pub(crate) change: Option<Change>,
}

/// A request, and the configuration that was read for the request.
pub(crate) type LoadedConfiguration = (ReloadRequest, Result<Settings>);

/// The reload whose configuration is being read, if there is one.
#[derive(Default)]
pub(crate) struct ReloadJob {
    loading: JoinSet<LoadedConfiguration>,
    /// A signal to reload has arrived since the reading started.
    is_wanted_again: bool,
}

impl ReloadJob {
    /// Returns true if no configuration is being read.
    pub(crate) fn is_idle(&self) -> bool {
        self.loading.is_empty()
    }

    /// Starts to read. Certificates in effect are not checked. While another configuration is being
    /// read, only notes that the request is wanted again; returns false then.
    pub(crate) fn begin(
        &mut self,
        request: ReloadRequest,
        paths: &PathOptions,
        certificates: Vec<CertificateFiles>,
    ) -> bool {
        if !self.is_idle() {
            self.is_wanted_again = true;
            return false;
        }
        let paths = paths.clone();
        self.loading.spawn_blocking(move || {
            let loaded = paths::load_again(&paths, &certificates);
            (request, loaded.map(|configuration| configuration.settings))
        });
        true
    }

    /// Waits for the configuration; `None` without a job, or after a panic, which has reported
    /// itself.
    pub(crate) async fn next(&mut self) -> Option<LoadedConfiguration> {
        self.loading.join_next().await?.ok()
    }

    /// Returns true once after a signal that arrived while another reload was read.
    pub(crate) const fn take_wanted_again(&mut self) -> bool {
        std::mem::replace(&mut self.is_wanted_again, false)
    }
}
