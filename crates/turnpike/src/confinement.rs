//! Rights of the running server: the files that it opens, the system calls that it makes, the
//! capabilities that it keeps. See docs/adr/0010.
//!
//! Files and calls are confined first of all, while the process has one thread, so that every
//! thread that comes later is confined as well. Capabilities are given up behind the last step that
//! needs them, before the threads that serve clients begin.

mod calls;
mod capabilities;
mod files;

use std::path::{Path, PathBuf};

use control::{ConfinementInfo, ConfinementLayer};
use settings::{OffloadMode, Settings};

pub(crate) use capabilities::without_capabilities;

use crate::failure::{Failure, Result};
use crate::paths::{self, Configuration};

/// The confinement of this process, as far as it goes.
#[derive(Debug)]
pub(crate) struct Confinement {
    info: ConfinementInfo,
    files: Option<files::Files>,
    /// A file that belongs to another user, and is read or written all the same by a server that
    /// runs as root.
    foreign: Option<PathBuf>,
}

impl Confinement {
    /// Confines the process to the files of a configuration and to the calls that a server makes.
    /// Must be called before there is a second thread. Layers that the kernel does not offer are
    /// left out and reported by [`Self::warnings`].
    ///
    /// # Errors
    /// The data directory cannot be made, or the kernel refuses to take privileges away.
    pub(crate) fn begin(configuration: &Configuration) -> Result<Self> {
        let settings = &configuration.settings;
        // What OpenSSL and the resolver of its settings read, they read now.
        openssl::init();
        linux_net::gain_no_privileges()
            .map_err(|error| Failure::failed(error).hint("no_new_privs needs Linux 3.5"))?;
        let named = files::Named::of(configuration)?;
        let foreign = capabilities::foreign(named.all());
        let kernel_path = settings.offload.mode != OffloadMode::Off;
        let mut info = ConfinementInfo::default();
        let mut files = None;
        (info.files, info.calls) = (off("landlock"), off("seccomp"));
        if settings.confinement.landlock {
            match files::confine(&named, kernel_path) {
                Ok(confined) => {
                    info.files = confined.layer();
                    files = Some(confined);
                }
                Err(why) => info.files = missing(why),
            }
        }
        if settings.confinement.seccomp {
            info.calls = match calls::confine(kernel_path) {
                Ok(()) => ConfinementLayer { on: true, why: String::new() },
                Err(why) => missing(why),
            };
        }
        Ok(Self { info, files, foreign })
    }

    /// Gives up every capability that a running server does not need, in the calling thread and its
    /// later children.
    ///
    /// # Errors
    /// The kernel refuses.
    pub(crate) fn give_up_capabilities(&mut self, kernel_path: bool) -> Result<()> {
        self.info.capabilities = capabilities::keep(kernel_path, self.foreign.as_deref())?;
        Ok(())
    }

    /// The facts, for an operator.
    pub(crate) fn info(&self) -> ConfinementInfo {
        self.info.clone()
    }

    /// Configured layers that are not in force, one line each.
    pub(crate) fn warnings(&self, settings: &Settings) -> Vec<String> {
        let wanted = &settings.confinement;
        let layers = [
            ("landlock", wanted.landlock, &self.info.files),
            ("seccomp", wanted.seccomp, &self.info.calls),
        ];
        let missing = layers.into_iter().filter(|(_, wanted, layer)| *wanted && !layer.on);
        missing
            .map(|(name, _, layer)| format!("confinement: {name} is not in force: {}", layer.why))
            .collect()
    }

    /// Why a configuration could not be read, where this confinement is the reason.
    pub(crate) fn reason(&self, configuration: Option<&Path>) -> Option<String> {
        self.reason_of(settings::named_files(configuration, &paths::environment()))
    }

    /// Why a file could not be read, where this confinement is the reason: the first that is
    /// outside.
    pub(crate) fn reason_of(&self, named: impl IntoIterator<Item = PathBuf>) -> Option<String> {
        let files = self.files.as_ref()?;
        let outside = named.into_iter().find(|path| !files.allows(path))?;
        Some(format!(
            "{} is outside the directories that this process may read since its start (confinement): move it \
             to one of them, or add its directory to confinement.readable and start the server again",
            outside.display()
        ))
    }
}

fn off(name: &str) -> ConfinementLayer {
    ConfinementLayer { on: false, why: format!("confinement.{name} is false") }
}

fn missing(why: String) -> ConfinementLayer {
    ConfinementLayer { on: false, why }
}
