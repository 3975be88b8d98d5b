//! Rights of the running server: the files that it opens, the system calls that it makes, the
//! capabilities that it keeps. See docs/adr/0010.
//!
//! Files and calls are confined first of all, while the process has one thread, so that every
//! thread that comes later is confined as well. Capabilities are given up behind the last step that
//! needs them, before the threads that serve clients begin.

mod calls;
mod capabilities;
mod files;
mod memory;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::anyhow;
use control::{ConfinementInfo, ConfinementLayer};
use settings::{OffloadMode, Settings};

pub(crate) use capabilities::without_capabilities;
pub(crate) use files::FilesGuard;

use self::calls::BpfCommands;
use self::capabilities::Keeper;
use crate::failure::{Failure, Result};
use crate::offload::KernelPath;
use crate::paths::{self, Configuration};

/// Confines a keeper, which starts no process, loads no program and opens no file. Must be called
/// before there is a second thread. Returns a line for each layer that the kernel does not offer,
/// and a guard of the others.
///
/// # Errors
/// The kernel refuses to take privileges away.
pub(crate) fn confine_keeper() -> Result<(Vec<String>, Option<FilesGuard>)> {
    protect()?;
    let mut warnings = Vec::new();
    let mut warn = |layer: &str, why: &str| {
        warnings.push(format!("confinement: {layer} is not in force: {why}"));
    };
    let files = files::confine_to_none().inspect_err(|why| warn("landlock", why)).ok();
    let _ = calls::confine(false).inspect_err(|why| warn("seccomp", why));
    Ok((warnings, files))
}

/// Drops all capabilities of the calling thread and its later children.
///
/// # Errors
/// The kernel refuses.
pub(crate) fn give_up_all_capabilities() -> Result<()> {
    capabilities::keep(Keeper::Others { foreign: None, maps_want_it: false }).map(drop)
}

/// Takes away the right to gain privileges, and the access of others to this process's memory.
fn protect() -> Result<()> {
    linux_net::gain_no_privileges()
        .map_err(|error| Failure::failed(error).hint("no_new_privs needs Linux 3.5"))?;
    memory::protect().map_err(|error| {
        Failure::failed(anyhow!("cannot forbid core dumps of this process: {error}"))
    })
}

/// Rights of worker threads, which read data from the network.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WorkerConfinement {
    limits_bpf: bool,
}

impl WorkerConfinement {
    /// Calls `start` in a thread with the rights of workers, which the threads that it starts
    /// inherit.
    ///
    /// # Errors
    /// The kernel refuses.
    pub(crate) fn start<T: Send>(self, start: impl FnOnce() -> T + Send) -> Result<T> {
        capabilities::as_worker(|| {
            if self.limits_bpf {
                calls::limit_bpf(BpfCommands::Elements)
                    .map_err(|why| Failure::failed(anyhow!("seccomp: {why}")))?;
            }
            Ok(start())
        })?
    }
}

/// The confinement of this process, as far as it goes.
#[derive(Debug)]
pub(crate) struct Confinement {
    info: ConfinementInfo,
    /// System calls are confined, and bpf(2) is among the permitted ones.
    limits_bpf: bool,
    readable: ReadableFiles,
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
        protect()?;
        let named = files::Named::of(configuration)?;
        let foreign = capabilities::foreign(named.all());
        let kernel_path = settings.offload.mode != OffloadMode::Off;
        let mut info = ConfinementInfo::default();
        let mut readable = ReadableFiles::default();
        (info.files, info.calls) = (off("landlock"), off("seccomp"));
        if settings.confinement.landlock {
            match files::confine(&named, kernel_path) {
                Ok(confined) => {
                    info.files = confined.layer();
                    readable = ReadableFiles(Some(Arc::new(confined)));
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
        let limits_bpf = info.calls.on && kernel_path;
        Ok(Self { info, limits_bpf, readable, foreign })
    }

    /// Drops every capability that a running server does not need: in the calling thread and its
    /// later children, and in the thread of the kernel path. From then on only that thread loads
    /// and attaches programs. `maps_want_it`: this kernel demands a capability for elements of
    /// maps.
    ///
    /// # Errors
    /// The kernel refuses.
    pub(crate) fn give_up_capabilities(
        &mut self,
        kernel_path: &KernelPath,
        maps_want_it: bool,
    ) -> Result<()> {
        let kept = kernel_path.confine(|| capabilities::keep(Keeper::KernelPath));
        let mut kept = kept.transpose()?.unwrap_or_default();
        self.limit_bpf(BpfCommands::ElementsAndLinks)?;
        let others = Keeper::Others { foreign: self.foreign.as_deref(), maps_want_it };
        for other in capabilities::keep(others)? {
            // The kernel path's reason holds for it as well.
            if kept.iter().all(|one| one.name != other.name) {
                kept.push(other);
            }
        }
        self.info.capabilities = kept;
        Ok(())
    }

    /// Limits bpf(2) in the calling thread and its later children.
    fn limit_bpf(&self, commands: BpfCommands) -> Result<()> {
        if !self.limits_bpf {
            return Ok(());
        }
        calls::limit_bpf(commands).map_err(|why| Failure::failed(anyhow!("seccomp: {why}")))
    }

    /// Calls `start` in a thread without capabilities that cannot load programs: the threads that
    /// it starts have none, either.
    ///
    /// # Errors
    /// The kernel refuses.
    pub(crate) fn without_privileges<T: Send>(
        &self,
        start: impl FnOnce() -> T + Send,
    ) -> Result<T> {
        without_capabilities(|| self.limit_bpf(BpfCommands::Elements).map(|()| start()))?
    }

    /// The rights of workers.
    pub(crate) const fn of_workers(&self) -> WorkerConfinement {
        WorkerConfinement { limits_bpf: self.limits_bpf }
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

    /// Files that the process may read.
    pub(crate) fn readable(&self) -> ReadableFiles {
        self.readable.clone()
    }
}

/// Files that a process may read. The default is all files.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReadableFiles(Option<Arc<files::Files>>);

impl ReadableFiles {
    /// The reason why a configuration could not be read, if that is this confinement. Reads the
    /// configuration.
    pub(crate) fn reason(&self, configuration: Option<&Path>) -> Option<String> {
        self.reason_of(settings::named_files(configuration, &paths::environment()))
    }

    /// Why a file could not be read, where this confinement is the reason: the first that is
    /// outside.
    pub(crate) fn reason_of(&self, named: impl IntoIterator<Item = PathBuf>) -> Option<String> {
        let files = self.0.as_ref()?;
        let outside = named.into_iter().find(|path| !files.allows(path))?;
        Some(format!(
            "{} is outside the directories that this process may read since its start, or its directory was made \
             anew since then (confinement): move it to one of them, or add its directory to confinement.readable and start the server again",
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
