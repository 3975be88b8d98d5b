//! Process of a server under coturn's name: in the background, as another user, with a file of the
//! process id.

use std::fs;
use std::io::ErrorKind::NotFound;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use atomic_file::{Access, NewFile, Owner};

use crate::failure::{OrFail as _, Result};
use crate::logging::LogTarget;

/// Environment of the server process: log, file of the process id, foreground or background. The
/// defaults suit a service manager: foreground, log on standard error.
#[derive(Clone, Debug, Default)]
pub(crate) struct ProcessOptions {
    /// Destination of the log.
    pub(crate) log: LogTarget,
    /// File with the process id.
    pub(crate) pid_file: Option<Arc<PidFile>>,
    /// True if the process was started in the background by a process that waits for [`READY`].
    pub(crate) is_detached: bool,
}

/// Line that a background server writes to standard output when it serves.
pub(crate) const READY: &str = "ready";

impl ProcessOptions {
    /// Notifies the foreground process that the server serves, and detaches standard output and
    /// standard error from the terminal.
    ///
    /// # Errors
    /// `/dev/null` cannot be opened or duplicated.
    pub(crate) fn ready(&self) -> Result<()> {
        if !self.is_detached {
            return Ok(());
        }
        let null = tell_ready()?;
        rustix::stdio::dup2_stderr(&null).or_fail(CANNOT)
    }
}

const CANNOT: &str = "cannot leave the terminal";

/// Notifies the process that reads standard output that the server serves. Standard output is
/// redirected to `/dev/null`, which is returned.
///
/// # Errors
/// `/dev/null` cannot be opened or duplicated.
pub(crate) fn tell_ready() -> Result<fs::File> {
    let mut out = std::io::stdout();
    // The other process may have exited.
    let _ = writeln!(out, "{READY}").and_then(|()| out.flush());
    let null = fs::OpenOptions::new().read(true).write(true).open("/dev/null").or_fail(CANNOT)?;
    rustix::stdio::dup2_stdout(&null).or_fail(CANNOT)?;
    Ok(null)
}

/// File with the process id.
#[derive(Debug)]
pub(crate) struct PidFile {
    path: PathBuf,
    file: fs::File,
    /// True for a device or a pipe, which other programs use and which is not removed.
    is_special: bool,
}

/// Mode of the file: every user may read the process id.
const MODE: u32 = 0o644;

/// Directories that programs share. A server with permission to remove files there could remove
/// files of other programs.
const SHARED: [&str; 5] = ["/run", "/var/run", "/var", "/tmp", "/var/tmp"];

impl PidFile {
    /// Writes the file, and replaces a file of an earlier server. The file belongs to `owner`, who
    /// can empty it later.
    ///
    /// The old file is replaced rather than opened. Root cannot open the file of another user in a
    /// sticky directory (`fs.protected_regular`). The old file may also be a link to a foreign
    /// file. If the process may not write to the directory, the old file is written in place and
    /// keeps its owner. A device, such as `/dev/null`, or a pipe with a reader is also written in
    /// place, and is not removed at exit.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn write(path: &Path, owner: Owner) -> std::io::Result<Self> {
        // The file is removed later, when the process may have another working directory.
        let path = std::path::absolute(path)?;
        let text = format!("{}\n", std::process::id());
        if is_special(&path) {
            let mut file = atomic_file::append_to(&path, Access { mode: MODE, owner })?;
            file.write_all(text.as_bytes())?;
            return Ok(Self { path, file, is_special: true });
        }
        let replaced = NewFile::open(&path, Access { mode: MODE, owner }).and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            file.replace()
        });
        let file = replaced.or_else(|error| {
            let written = atomic_file::rewrite(&path, text.as_bytes());
            written.map_err(|other| if other.kind() == NotFound { error } else { other })
        })?;
        Ok(Self { path, file, is_special: false })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the directory of the file, unless other programs share it.
    pub(crate) fn own_directory(&self) -> Option<&Path> {
        let parent = self.path.parent()?;
        (!SHARED.iter().any(|shared| Path::new(shared) == parent)).then_some(parent)
    }

    /// Removes the file. If the process may not remove the file, empties it.
    pub(crate) fn end(&self) {
        if self.is_special {
            return;
        }
        // The process exits, so an error has no recipient.
        let _ = fs::remove_file(&self.path).or_else(|_| self.file.set_len(0));
    }
}

/// Returns true if the path is a device, a pipe or a socket.
fn is_special(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|metadata| {
        let kind = metadata.file_type();
        !kind.is_file() && !kind.is_dir() && !kind.is_symlink()
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileTypeExt as _;

    use super::*;

    #[test]
    fn a_device_stays_a_device() {
        let directory = std::env::temp_dir().join(format!("pid-device-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let path = directory.join("null");
        let made = std::process::Command::new("mknod").arg(&path).args(["c", "1", "3"]).status();
        if !made.is_ok_and(|status| status.success()) {
            return test_support::skip("only root can make a device");
        }
        let pid_file = PidFile::write(&path, Owner::User(65_534, 65_534)).unwrap();
        pid_file.end();
        assert!(fs::symlink_metadata(&path).unwrap().file_type().is_char_device());
        fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn a_file_that_was_left_is_replaced_and_not_written_into() {
        let directory = std::env::temp_dir().join(format!("pid-file-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let [path, other] = ["turnserver.pid", "other"].map(|name| directory.join(name));
        let own = format!("{}\n", std::process::id());

        // A second name of the old file shows whether that file is written.
        fs::write(&path, "").unwrap();
        fs::hard_link(&path, &other).unwrap();
        let pid_file = PidFile::write(&path, Owner::Process).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), own);
        assert_eq!(fs::read_to_string(&other).unwrap(), "");

        // A link to another user's file.
        fs::remove_file(&path).unwrap();
        fs::write(&other, "mine").unwrap();
        std::os::unix::fs::symlink(&other, &path).unwrap();
        pid_file.end();
        PidFile::write(&path, Owner::Process).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), own);
        assert_eq!(fs::read_to_string(&other).unwrap(), "mine");

        // A directory at the path is an error.
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert!(PidFile::write(&path, Owner::Process).is_err());
        fs::remove_dir_all(&directory).unwrap();
    }
}
