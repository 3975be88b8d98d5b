//! The process of a server under coturn's name: in the background, as another user, with a file of its id.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::failure::{OrFail as _, Result};
use crate::logging::LogTarget;

/// Place of a server in the system. The default is that of a service manager: in the foreground, the log on standard error.
#[derive(Clone, Debug, Default)]
pub(crate) struct ProcessOptions {
    /// Destination of the log.
    pub(crate) log: LogTarget,
    /// The file of the process id.
    pub(crate) pid_file: Option<Arc<PidFile>>,
    /// The process was started in the background, by one that waits for [`READY`].
    pub(crate) is_detached: bool,
}

/// Word on standard output of a server in the background: it serves.
pub(crate) const READY: &str = "ready";

impl ProcessOptions {
    /// Tells the process in the foreground that the server serves, and leaves its terminal.
    ///
    /// # Errors
    /// The system refuses.
    pub(crate) fn ready(&self) -> Result<()> {
        if !self.is_detached {
            return Ok(());
        }
        let null = tell_ready()?;
        rustix::stdio::dup2_stderr(&null).or_fail(CANNOT)
    }
}

const CANNOT: &str = "cannot leave the terminal";

/// Tells the process that waits at standard output that the server serves, and leaves that for the file that it returns, which
/// keeps nothing.
///
/// # Errors
/// The system refuses.
pub(crate) fn tell_ready() -> Result<fs::File> {
    let mut out = std::io::stdout();
    // The other process may be gone.
    let _ = writeln!(out, "{READY}").and_then(|()| out.flush());
    let null = fs::OpenOptions::new().read(true).write(true).open("/dev/null").or_fail(CANNOT)?;
    rustix::stdio::dup2_stdout(&null).or_fail(CANNOT)?;
    Ok(null)
}

/// A file with the process id.
#[derive(Debug)]
pub(crate) struct PidFile(PathBuf);

/// Directories that programs share: a server that may remove files there could remove others' files.
const SHARED: [&str; 5] = ["/run", "/var/run", "/var", "/tmp", "/var/tmp"];

impl PidFile {
    /// Writes the file; it belongs to `owner`, who may empty it later.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn write(path: &Path, owner: Option<(u32, u32)>) -> std::io::Result<Self> {
        // It is removed from wherever the process then is.
        let path = std::path::absolute(path)?;
        fs::write(&path, format!("{}\n", std::process::id()))?;
        if let Some((user, group)) = owner {
            chown(&path, Some(user), Some(group))?;
        }
        Ok(Self(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Its directory, where that is not shared with other programs.
    pub(crate) fn own_directory(&self) -> Option<&Path> {
        let parent = self.0.parent()?;
        (!SHARED.iter().any(|shared| Path::new(shared) == parent)).then_some(parent)
    }

    /// Removes the file, or empties it where the process may not remove it.
    pub(crate) fn end(&self) {
        // The process ends: there is nobody to tell.
        let _ = fs::remove_file(&self.0).or_else(|_| fs::write(&self.0, ""));
    }
}
