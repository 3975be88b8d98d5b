//! Unix sockets: the control socket, for the user that the server runs as, root, and a group if
//! there is one; sockets for monitoring, for all that may enter their directory. The file mode sets
//! it, and the kernel enforces it.

mod of_host;

pub use self::of_host::control_sockets_of_host;

use std::fs::{self, Permissions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, chown};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use rustix::fs::{Mode, OFlags, open};
use tokio::net::UnixListener;

/// The kernel's `sun_path` has room for 108 bytes with the final zero.
const PATH_BYTES_MAX: usize = 107;

/// A bound Unix socket. Its file goes away with it, unless it is another process's by then.
#[derive(Debug)]
pub struct UnixSocket {
    pub(crate) listener: UnixListener,
    file: SocketFile,
}

/// The file of a Unix socket.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    /// The file until it is put in place.
    staging: Option<PathBuf>,
    inode: u64,
    /// The next process puts its own there.
    passed_on: PassedOn,
    /// Keeps the inode, whose number the kernel would give to another file behind it.
    _kept: OwnedFd,
}

/// Mark that the path of a socket's file is the next process's: then the file is left there at the
/// end. To look which file is there and then remove it would be two steps, and the next process
/// could put its own there between them.
#[derive(Clone, Debug, Default)]
pub struct PassedOn(Arc<AtomicBool>);

impl PassedOn {
    /// Sets it.
    pub fn set(&self, passed_on: bool) {
        self.0.store(passed_on, Ordering::Relaxed);
    }
}

/// Fate of a server that answers on the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Other {
    /// It is another one: an error.
    Stays,
    /// This process takes its place, when it is [put there](SocketFile::put_in_place).
    IsReplaced,
}

/// Why a Unix socket cannot be bound.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    /// A server answers on the socket.
    #[error(
        "another server already answers on the socket {}; stop it, or give this one \
         its own --data directory", .0.display()
    )]
    InUse(PathBuf),
    /// There is a file of another kind.
    #[error("{} is in the way of the server's socket and is not a socket; move it", .0.display())]
    NotASocket(PathBuf),
    /// Clients could not connect to so long a path.
    #[error(
        "the path of the socket is longer than {PATH_BYTES_MAX} bytes: {}; name a shorter \
         one with --socket, or a shorter data directory", .0.display()
    )]
    TooLong(PathBuf),
    /// The kernel refused.
    #[error("cannot {what} {}: {source}", path.display())]
    Io {
        /// The operation.
        what: &'static str,
        /// The path.
        path: PathBuf,
        /// Error of the kernel.
        source: io::Error,
    },
}

/// Sockets that were bound under names of their own, which differ.
static STAGED: AtomicU32 = AtomicU32::new(0);

/// Access to a socket.
#[derive(Clone, Copy, Debug)]
enum Access {
    /// The owner's.
    Owner,
    /// The owner's and a group's, by its id.
    Group(u32),
    /// All users'.
    All,
}

impl UnixSocket {
    /// Binds the control socket: mode 0600, or 0660 with a group (by its id), in a directory that
    /// is made with mode 0700 if it is not there. A socket left behind by a server that is gone is
    /// replaced; one that answers only if the `other` server is.
    ///
    /// Must be called within a tokio runtime.
    ///
    /// # Errors
    /// [`AccessError`], when somebody answers there, another file is in the way, or the kernel
    /// refuses: a process can give a file to its own groups alone.
    pub fn control(path: &Path, group: Option<u32>, other: Other) -> Result<Self, AccessError> {
        Self::bind(path, group.map_or(Access::Owner, Access::Group), other)
    }

    /// Binds a socket for monitoring, with mode 0666; otherwise as [`Self::control`].
    ///
    /// Must be called within a tokio runtime.
    ///
    /// # Errors
    /// [`AccessError`], when somebody answers there, another file is in the way, or the kernel
    /// refuses.
    pub fn monitoring(path: &Path, other: Other) -> Result<Self, AccessError> {
        Self::bind(path, Access::All, other)
    }

    /// Binds a socket for a thread that waits, for the owner alone; otherwise as [`Self::control`].
    ///
    /// # Errors
    /// As [`Self::control`].
    pub fn waiting(
        path: &Path,
        other: Other,
    ) -> Result<(std::os::unix::net::UnixListener, SocketFile), AccessError> {
        SocketFile::bind(path, Access::Owner, other)
    }

    fn bind(path: &Path, access: Access, other: Other) -> Result<Self, AccessError> {
        let (listener, file) = SocketFile::bind(path, access, other)?;
        let listener =
            listener.set_nonblocking(true).and_then(|()| UnixListener::from_std(listener));
        let failed =
            |source| AccessError::Io { what: "bind the socket", path: path.to_owned(), source };
        Ok(Self { listener: listener.map_err(failed)?, file })
    }

    /// Its file.
    pub const fn file(&mut self) -> &mut SocketFile {
        &mut self.file
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.file.path
    }
}

impl SocketFile {
    fn bind(
        path: &Path,
        access: Access,
        other: Other,
    ) -> Result<(std::os::unix::net::UnixListener, Self), AccessError> {
        let failed = |what, path: &Path| {
            let path = path.to_owned();
            move |source| AccessError::Io { what, path, source }
        };
        if path.as_os_str().len() > PATH_BYTES_MAX {
            return Err(AccessError::TooLong(path.to_owned()));
        }
        let directory = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            Some(_) | None => Path::new("."),
        };
        atomic_file::make_missing_directory(directory, atomic_file::Access::PRIVATE_DIRECTORY)
            .map_err(failed("create the directory", directory))?;
        make_way(path, other)?;

        // Bound under another name, closed to others, and only then put in place: there is no
        // moment at which somebody else could connect, and none at which nothing is there.
        let number = STAGED.fetch_add(1, Ordering::Relaxed);
        let staging = directory.join(of_host::staging_name(std::process::id(), number));
        // Left over from a process of the same id that died between the two steps, if at all.
        let _ = fs::remove_file(&staging);
        let listener = std::os::unix::net::UnixListener::bind(&staging)
            .map_err(failed("bind the socket", path))?;
        let kept = open(&staging, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
        let kept = kept.map_err(|error| failed("bind the socket", path)(error.into()))?;
        let mut file = Self {
            path: path.to_owned(),
            staging: Some(staging.clone()),
            inode: 0,
            passed_on: PassedOn::default(),
            _kept: kept,
        };
        access
            .apply(&staging)
            .and_then(|()| fs::metadata(&staging))
            .map(|metadata| file.inode = metadata.ino())
            .map_err(failed("set the group and mode of the socket", path))?;
        if other == Other::Stays {
            file.put_in_place()?;
        }
        Ok((listener, file))
    }

    /// Mark that its path is the next process's, to be set from elsewhere.
    #[must_use]
    pub fn passed_on(&self) -> PassedOn {
        self.passed_on.clone()
    }

    /// Puts it at its path, in place of another server's.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn put_in_place(&mut self) -> Result<(), AccessError> {
        let Some(staging) = self.staging.take() else { return Ok(()) };
        fs::rename(&staging, &self.path).map_err(|source| {
            let what = "put in place the socket";
            AccessError::Io { what, path: self.path.clone(), source }
        })
    }
}

impl Access {
    /// Sets the group and the mode of a file that its owner alone may use so far.
    fn apply(self, file: &Path) -> io::Result<()> {
        let mode = match self {
            Self::Owner => 0o600,
            Self::Group(group) => {
                // A service under a filter of system calls may not change groups at all.
                if fs::metadata(file)?.gid() != group {
                    chown(file, None, Some(group))?;
                }
                0o660
            }
            Self::All => 0o666,
        };
        fs::set_permissions(file, Permissions::from_mode(mode))
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let path = self.staging.as_ref().unwrap_or(&self.path);
        if self.staging.is_none() && self.passed_on.0.load(Ordering::Relaxed) {
            return;
        }
        // Somebody else may have put another one there.
        if fs::symlink_metadata(path).is_ok_and(|metadata| metadata.ino() == self.inode) {
            // Nobody to tell, and a socket left behind is replaced at the next start.
            let _ = fs::remove_file(path);
        }
    }
}

/// Removes the socket of a server that is gone.
fn make_way(path: &Path, other: Other) -> Result<(), AccessError> {
    let Ok(metadata) = fs::symlink_metadata(path) else {
        return Ok(());
    };
    if !metadata.file_type().is_socket() {
        return Err(AccessError::NotASocket(path.to_owned()));
    }
    if other == Other::IsReplaced {
        return Ok(());
    }
    let failed = |what| {
        let path = path.to_owned();
        move |source| AccessError::Io { what, path, source }
    };
    match UnixStream::connect(path).map_err(|error| (error.kind(), error)) {
        Err((io::ErrorKind::ConnectionRefused, _)) => {
            fs::remove_file(path).map_err(failed("remove the stale socket"))
        }
        Err((io::ErrorKind::PermissionDenied, error)) => Err(failed("use the socket")(error)),
        // Connected, or its queue is full: somebody is there.
        Ok(_) | Err(_) => Err(AccessError::InUse(path.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Directory(PathBuf);

    impl Directory {
        fn new(name: &str) -> Self {
            let path =
                std::env::temp_dir().join(format!("turnpike-access-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            Self(path)
        }
    }

    impl Drop for Directory {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[tokio::test]
    async fn only_the_owner_may_open_it_and_it_goes_away() {
        let directory = Directory::new("modes");
        let path = directory.0.join("data").join("control.sock");
        let socket = UnixSocket::control(&path, None, Other::Stays).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(fs::metadata(path.parent().unwrap()).unwrap().mode() & 0o777, 0o700);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
        drop(socket);
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn a_group_may_open_it_as_well() {
        let directory = Directory::new("group");
        let path = directory.0.join("control.sock");
        // root may give files to any group; others have their own.
        let own = fs::metadata("/proc/self").unwrap();
        let group = if own.uid() == 0 { 12_345 } else { own.gid() };
        let _socket = UnixSocket::control(&path, Some(group), Other::Stays).unwrap();
        let metadata = fs::metadata(&path).unwrap();
        assert_eq!((metadata.mode() & 0o777, metadata.gid()), (0o660, group));
        assert_eq!(fs::read_dir(&directory.0).unwrap().count(), 1);
    }

    #[tokio::test]
    async fn a_socket_for_monitoring_is_for_all() {
        let directory = Directory::new("monitoring");
        let path = directory.0.join("http.sock");
        let _socket = UnixSocket::monitoring(&path, Other::Stays).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o666);
    }

    #[tokio::test]
    async fn a_stale_socket_is_replaced_and_a_live_one_is_not() {
        let directory = Directory::new("stale");
        fs::create_dir_all(&directory.0).unwrap();
        let path = directory.0.join("control.sock");
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert!(path.exists(), "the standard library leaves the file behind");

        let socket = UnixSocket::control(&path, None, Other::Stays).unwrap();
        let second = UnixSocket::control(&path, None, Other::Stays).unwrap_err();
        assert!(matches!(second, AccessError::InUse(_)), "{second}");
        assert!(UnixStream::connect(&path).is_ok(), "the first one still answers");
        drop(socket);
    }

    #[tokio::test]
    async fn a_path_that_nobody_could_connect_to_is_refused() {
        let directory = Directory::new("long");
        let room = PATH_BYTES_MAX - directory.0.as_os_str().len() - 1;
        let longest = directory.0.join("x".repeat(room));
        let socket = UnixSocket::control(&longest, None, Other::Stays).unwrap();
        assert!(UnixStream::connect(socket.path()).is_ok());
        let error =
            UnixSocket::control(&directory.0.join("x".repeat(room + 1)), None, Other::Stays)
                .unwrap_err();
        assert!(matches!(error, AccessError::TooLong(_)), "{error}");
    }

    #[tokio::test]
    async fn another_file_is_left_alone() {
        let directory = Directory::new("file");
        fs::create_dir_all(&directory.0).unwrap();
        let path = directory.0.join("control.sock");
        fs::write(&path, "precious").unwrap();
        for other in [Other::Stays, Other::IsReplaced] {
            let error = UnixSocket::control(&path, None, other).unwrap_err();
            assert!(matches!(error, AccessError::NotASocket(_)), "{error}");
            assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
        }
    }

    #[tokio::test]
    async fn the_next_process_takes_the_place_and_keeps_it() {
        let directory = Directory::new("next");
        let path = directory.0.join("control.sock");
        let first = UnixSocket::control(&path, None, Other::Stays).unwrap();
        let before = fs::metadata(&path).unwrap().ino();
        let next = UnixSocket::control(&path, None, Other::IsReplaced).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().ino(), before, "not yet");
        drop(next);
        let mut next = UnixSocket::control(&path, None, Other::IsReplaced).unwrap();
        next.file().put_in_place().unwrap();
        drop(first);
        assert!(UnixStream::connect(&path).is_ok(), "it is not the first one's");
        drop(next);
        assert_eq!(fs::read_dir(&directory.0).unwrap().count(), 0);
    }

    #[test]
    fn a_path_that_is_passed_on_is_left_alone() {
        let directory = Directory::new("passed-on");
        let path = directory.0.join("control.next");
        let (_listener, first) = UnixSocket::waiting(&path, Other::Stays).unwrap();
        first.passed_on().set(true);
        drop(first);
        assert!(path.exists(), "the next process may have put its own there at any moment");
        let (_listener, next) = UnixSocket::waiting(&path, Other::IsReplaced).unwrap();
        next.passed_on().set(true);
        drop(next);
        assert_eq!(fs::read_dir(&directory.0).unwrap().count(), 1, "its own name is nobody else's");
        let (_listener, mut last) = UnixSocket::waiting(&path, Other::IsReplaced).unwrap();
        last.put_in_place().unwrap();
        last.passed_on().set(true);
        last.passed_on().set(false);
        drop(last);
        assert!(!path.exists(), "no process came");
    }

    #[test]
    fn a_late_end_leaves_the_socket_of_the_process_after_the_next() {
        let directory = Directory::new("late");
        let path = directory.0.join("control.next");
        let (listener, first) = UnixSocket::waiting(&path, Other::Stays).unwrap();
        drop(listener);
        let mut last = None;
        // A file system may give the number of a free inode to the next file.
        for _ in 0..20 {
            let (listener, mut next) = UnixSocket::waiting(&path, Other::IsReplaced).unwrap();
            next.put_in_place().unwrap();
            let before = last.replace((listener, next));
            drop(before);
        }
        drop(first);
        assert!(UnixStream::connect(&path).is_ok(), "removed");
    }
}
