//! Rights of the running server: the files that it may open, the system calls that it may make, and
//! the capabilities that it retains. See docs/adr/0010.
//!
//! Files and calls are confined first, while the process has one thread, because later threads
//! inherit the confinement. Capabilities are dropped after the last step that needs them, and
//! before the threads that serve clients start.

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
/// while the process has one thread. Returns a line for each layer that the kernel does not
/// support, and the guard of the file layer.
///
/// # Errors
/// The kernel refuses to remove privileges.
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
/// The kernel refuses the change.
pub(crate) fn give_up_all_capabilities() -> Result<()> {
    capabilities::keep(Keeper::Others { foreign: None, maps_want_it: false }).map(drop)
}

/// Removes the right to gain privileges, and other processes' access to this process's memory.
///
/// # Errors
/// The kernel refuses the change.
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
    /// Calls `start` in a thread with the rights of workers. Threads that `start` creates inherit
    /// these rights.
    ///
    /// # Errors
    /// The kernel refuses the change.
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

/// Confinement of this process, by the layers that the kernel supports.
#[derive(Debug)]
pub(crate) struct Confinement {
    info: ConfinementInfo,
    /// True if system calls are confined and bpf(2) is permitted.
    limits_bpf: bool,
    readable: ReadableFiles,
    /// File of another user that a server running as root must nevertheless read or write.
    foreign: Option<PathBuf>,
}

impl Confinement {
    /// Confines the process to the files of a configuration and to the calls that a server makes.
    /// Must be called while the process has one thread. Layers that the kernel does not support are
    /// omitted, and reported by [`Self::warnings`].
    ///
    /// # Errors
    /// The data directory cannot be created, or the kernel refuses to remove privileges.
    pub(crate) fn begin(configuration: &Configuration) -> Result<Self> {
        let settings = &configuration.settings;
        // OpenSSL and its resolver read their configuration files before the confinement.
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

    /// Drops every capability that a running server does not need, in the calling thread, its later
    /// children, and the thread of the kernel path. Afterwards only the thread of the kernel path
    /// loads and attaches programs. `maps_want_it` is true if this kernel demands a capability for
    /// elements of maps.
    ///
    /// # Errors
    /// The kernel refuses the change.
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
            // The kernel path's reason takes precedence for a capability of both.
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

    /// Calls `start` in a thread without capabilities that cannot load programs. Threads that
    /// `start` creates inherit the restrictions.
    ///
    /// # Errors
    /// The kernel refuses the change.
    pub(crate) fn without_privileges<T: Send>(
        &self,
        start: impl FnOnce() -> T + Send,
    ) -> Result<T> {
        without_capabilities(|| self.limit_bpf(BpfCommands::Elements).map(|()| start()))?
    }

    /// Returns the rights of workers.
    pub(crate) const fn of_workers(&self) -> WorkerConfinement {
        WorkerConfinement { limits_bpf: self.limits_bpf }
    }

    /// Returns the facts about the confinement, for an operator.
    pub(crate) fn info(&self) -> ConfinementInfo {
        self.info.clone()
    }

    /// Returns one line for each configured layer that is not in effect.
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

    /// Returns the files that the process may read.
    pub(crate) fn readable(&self) -> ReadableFiles {
        self.readable.clone()
    }
}

/// Files that a process may read. The default is all files.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReadableFiles(Option<Arc<files::Files>>);

impl ReadableFiles {
    /// Returns the reason why a configuration could not be read, if this confinement is the reason.
    /// Reads the configuration to find the files that it names.
    pub(crate) fn reason(&self, configuration: Option<&Path>) -> Option<String> {
        self.reason_of(settings::named_files(configuration, &paths::environment()))
    }

    /// Returns the reason why a file could not be read, if this confinement is the reason. The text
    /// names the first file outside the permitted directories.
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
