//! Files in directories of the own user and of others.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use atomic_file::{
    Access, FileOwner, NewFile, Owner, append_to, create, make_directory, make_missing_directory,
    read, read_state, read_state_to_string, replace, rewrite,
};

/// Ids of the user and group `nobody`.
const OTHER: u32 = 54_321;

struct Directory(PathBuf);

impl Directory {
    fn new() -> Self {
        static MADE: AtomicUsize = AtomicUsize::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let path =
            std::env::temp_dir().join(format!("atomic-file-{}-{number}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        Self(path)
    }

    /// A directory of another user; `None` if the tests do not run as root.
    fn of_other() -> Option<Self> {
        let directory = Self::new();
        if chown(&directory.0, Some(OTHER), Some(OTHER)).is_err() {
            test_support::skip("only root can give files to others");
            return None;
        }
        Some(directory)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

fn make_pipe(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o7777
}

const FOR_OTHER: Access = Access { mode: 0o640, owner: Owner::User(OTHER, OTHER) };

#[test]
fn a_file_is_replaced_whole_and_leaves_nothing_else() {
    let directory = Directory::new();
    let path = directory.file("tokens.json");
    replace(&path, b"one", Access::PRIVATE).unwrap();
    replace(&path, b"two", Access { mode: 0o644, owner: Owner::Process }).unwrap();
    assert_eq!((fs::read_to_string(&path).unwrap(), mode(&path)), ("two".to_owned(), 0o644));
    assert_eq!(directory.names(), ["tokens.json"]);

    let mut abandoned = NewFile::open(&path, Access::PRIVATE).unwrap();
    abandoned.write_all(b"three").unwrap();
    assert_eq!(directory.names().len(), 2);
    drop(abandoned);
    assert_eq!(directory.names(), ["tokens.json"]);
    assert_eq!(fs::read_to_string(&path).unwrap(), "two");
}

#[test]
fn a_longest_name_has_a_temporary_one() {
    let directory = Directory::new();
    let path = directory.file(&"n".repeat(255));
    replace(&path, b"one", Access::PRIVATE).unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"one");
}

#[test]
fn a_link_is_replaced_and_its_target_remains() {
    let directory = Directory::new();
    let [path, other] = ["s", "other"].map(|name| directory.file(name));
    fs::write(&other, "mine").unwrap();
    symlink(&other, &path).unwrap();
    replace(&path, b"new", Access::PRIVATE).unwrap();
    assert_eq!(fs::read_to_string(&other).unwrap(), "mine");
    assert!(fs::symlink_metadata(&path).unwrap().is_file());
}

#[test]
fn a_new_file_takes_the_place_of_nothing() {
    let directory = Directory::new();
    let [path, link] = ["s", "link"].map(|name| directory.file(name));
    create(&path, b"one", Access::PRIVATE).unwrap();
    symlink(directory.file("nowhere"), &link).unwrap();
    for name in [&path, &link] {
        let refused = create(name, b"two", Access::PRIVATE).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::AlreadyExists, "{refused}");
    }
    assert_eq!(fs::read_to_string(&path).unwrap(), "one");
    assert_eq!(directory.names(), ["link", "s"]);
}

#[test]
fn root_writes_for_the_owner_of_the_directory() {
    let Some(directory) = Directory::of_other() else { return };
    let path = directory.file("tokens.json");
    for owner in [Owner::Directory, Owner::User(OTHER, OTHER)] {
        replace(&path, b"one", Access { mode: 0o600, owner }).unwrap();
        let metadata = fs::metadata(&path).unwrap();
        assert_eq!((metadata.uid(), metadata.gid(), mode(&path)), (OTHER, OTHER, 0o600));
    }
    let own = Directory::new();
    let path = own.file("tokens.json");
    replace(&path, b"one", Access { mode: 0o600, owner: Owner::Directory }).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().uid(), 0, "root's directory has root's files");
}

#[test]
fn a_log_in_a_directory_of_another_user_gives_no_file_away() {
    let Some(directory) = Directory::of_other() else { return };
    let own = Directory::new();
    let [secret, log] = [own.file("shadow"), directory.file("turn.log")];
    fs::write(&secret, "secret").unwrap();
    let links: [fn(&Path, &Path) -> io::Result<()>; 2] =
        [|from, to| symlink(from, to), |from, to| fs::hard_link(from, to)];
    for link in links {
        link(&secret, &log).unwrap();
        let refused = append_to(&log, FOR_OTHER).unwrap_err();
        assert!(refused.to_string().contains("remove it"), "{refused}");
        assert_eq!(fs::metadata(&secret).unwrap().uid(), 0);
        fs::remove_file(&log).unwrap();
    }

    // A log of root's, from before the server had a user: the log is used, and keeps its owner.
    fs::write(&log, "one\n").unwrap();
    append_to(&log, FOR_OTHER).unwrap().write_all(b"two\n").unwrap();
    assert_eq!(fs::read_to_string(&log).unwrap(), "one\ntwo\n");
    assert_eq!(fs::metadata(&log).unwrap().uid(), 0);

    fs::remove_file(&log).unwrap();
    append_to(&log, FOR_OTHER).unwrap();
    assert_eq!((fs::metadata(&log).unwrap().uid(), mode(&log)), (OTHER, 0o640));
    // The user owns a file made for that user.
    append_to(&log, FOR_OTHER).unwrap().write_all(b"three\n").unwrap();
}

/// The link is not the file's own name, but that of a directory above.
#[test]
fn root_follows_no_link_of_another_user_on_the_way_to_a_file() {
    let Some(directory) = Directory::of_other() else { return };
    let own = Directory::new();
    let secret = own.file("turn.log");
    fs::write(&secret, "secret").unwrap();
    fs::create_dir(own.file("logs")).unwrap();
    symlink(&own.0, directory.file("logs")).unwrap();
    for path in ["logs", "logs/logs"].map(|links| directory.file(links)) {
        let path = path.join("turn.log");
        let refusals = [
            append_to(&path, FOR_OTHER).map(drop),
            replace(&path, b"", FOR_OTHER),
            rewrite(&path, b"").map(drop),
        ];
        for refused in refusals.map(Result::unwrap_err) {
            assert!(refused.to_string().contains("is a symbolic link"), "{refused}");
        }
        let made = path.with_file_name("new").join("below");
        assert!(make_directory(&made, FOR_OTHER).is_err());
        assert!(make_missing_directory(&made, FOR_OTHER).is_err());
    }
    assert_eq!(fs::read_to_string(&secret).unwrap(), "secret");
    assert_eq!(fs::metadata(&secret).unwrap().uid(), 0);
    assert_eq!(own.names(), ["logs", "turn.log"]);
}

/// A link of root's leads to a directory of another user, who has a link there.
#[test]
fn root_follows_no_link_of_another_user_behind_a_link_of_its_own() {
    let Some(directory) = Directory::of_other() else { return };
    let own = Directory::new();
    let [secret, log] = ["secret", "turn.log"].map(|name| own.file(name));
    fs::write(&secret, "secret").unwrap();
    let foreign = directory.file("turn.log");
    symlink(&foreign, &log).unwrap();
    symlink(&secret, &foreign).unwrap();
    let refused = append_to(&log, FOR_OTHER).unwrap_err();
    assert!(refused.to_string().contains("it is a symbolic link"), "{refused}");
    assert_eq!(fs::read_to_string(&secret).unwrap(), "secret");
    fs::remove_file(&foreign).unwrap();
    append_to(&log, FOR_OTHER).unwrap();
    assert_eq!(fs::metadata(&foreign).unwrap().uid(), OTHER);
    // Links in a circle.
    fs::remove_file(&log).unwrap();
    symlink(&log, &log).unwrap();
    assert!(append_to(&log, FOR_OTHER).is_err());
}

/// `/proc/self` is a link, and so are the open files in it.
#[test]
fn root_follows_links_in_directories_of_root() {
    let directory = Directory::new();
    let log = directory.file("turn.log");
    let fd = fs::File::open(&directory.0).unwrap();
    let through = PathBuf::from(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&fd)));
    append_to(&through.join("turn.log"), Access::PRIVATE).unwrap();
    assert!(log.exists());
}

#[test]
fn a_log_in_a_directory_of_root_may_be_a_link_or_a_device() {
    let directory = Directory::new();
    let [log, other] = ["turn.log", "other"].map(|name| directory.file(name));
    fs::write(&other, "one\n").unwrap();
    symlink(&other, &log).unwrap();
    append_to(&log, FOR_OTHER).unwrap().write_all(b"two\n").unwrap();
    assert_eq!(fs::read_to_string(&other).unwrap(), "one\ntwo\n");
    // Rotation by another program.
    fs::rename(&other, directory.file("other.1")).unwrap();
    append_to(&log, FOR_OTHER).unwrap().write_all(b"three\n").unwrap();
    assert_eq!(fs::read_to_string(&other).unwrap(), "three\n");
    assert_eq!(fs::read_link(&log).unwrap(), other);
    append_to(Path::new("/dev/null"), Access::PRIVATE).unwrap().write_all(b"gone").unwrap();
}

#[test]
fn a_log_in_a_directory_of_root_is_given_to_its_user() {
    let directory = Directory::new();
    let log = directory.file("turn.log");
    fs::write(&log, "one\n").unwrap();
    if chown(&log, Some(OTHER), None).and_then(|()| chown(&log, Some(0), None)).is_err() {
        return test_support::skip("only root can give files to others");
    }
    append_to(&log, FOR_OTHER).unwrap();
    assert_eq!(fs::metadata(&log).unwrap().uid(), OTHER);
}

#[test]
fn a_file_is_rewritten_in_place_under_its_only_name() {
    let directory = Directory::new();
    let [path, other] = ["pid", "other"].map(|name| directory.file(name));
    fs::write(&path, "a longer text").unwrap();
    rewrite(&path, b"1\n").unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "1\n");
    fs::hard_link(&path, &other).unwrap();
    assert!(rewrite(&path, b"2\n").is_err());
    symlink(&path, directory.file("link")).unwrap();
    assert!(rewrite(&directory.file("link"), b"2\n").is_err());
    assert_eq!(fs::read_to_string(&path).unwrap(), "1\n");
}

#[test]
fn a_directory_is_made_for_its_user_and_those_above_it_for_all() {
    let directory = Directory::new();
    let path = directory.file("a/b");
    make_directory(&path, Access { mode: 0o750, owner: Owner::Process }).unwrap();
    assert_eq!((mode(&path), mode(&directory.file("a")) & 0o700), (0o750, 0o700));
    assert!(make_directory(&path, Access::PRIVATE).is_err());
    make_missing_directory(&path, Access::PRIVATE_DIRECTORY).unwrap();
    assert_eq!(mode(&path), 0o750, "it stays as it is");
    fs::write(directory.file("file"), "").unwrap();
    assert!(make_missing_directory(&directory.file("file"), Access::PRIVATE_DIRECTORY).is_err());
}

/// A log file that is a pipe without a reader would stop the start for ever.
#[test]
fn a_pipe_as_a_log_needs_a_reader_and_never_blocks() {
    let directory = Directory::new();
    let [pipe, link] = ["pipe", "link"].map(|name| directory.file(name));
    make_pipe(&pipe);
    symlink(&pipe, &link).unwrap();
    for path in [&pipe, &link] {
        let refused = append_to(path, Access::PRIVATE).unwrap_err().to_string();
        assert!(refused.contains("named pipe that no process reads"), "{refused}");
    }
    let mut reader =
        rustix::fs::open(&pipe, rustix::fs::OFlags::RDWR, rustix::fs::Mode::empty()).unwrap();
    for path in [&pipe, &link] {
        let mut log = append_to(path, Access::PRIVATE).unwrap();
        log.write_all(b"line").unwrap();
        let flags = rustix::fs::fcntl_getfl(&log).unwrap();
        assert!(!flags.contains(rustix::fs::OFlags::NONBLOCK), "a full pipe drops no line");
        let mut line = [0; 8];
        assert_eq!(rustix::io::read(&mut reader, &mut line).unwrap(), 4);
    }
}

#[test]
fn a_pipe_as_a_log_in_a_directory_of_another_user_is_refused() {
    let Some(directory) = Directory::of_other() else { return };
    let log = directory.file("turn.log");
    make_pipe(&log);
    let refused = append_to(&log, FOR_OTHER).unwrap_err().to_string();
    assert!(refused.contains("not a regular file"), "{refused}");
}

#[test]
fn only_regular_files_are_read_and_no_reader_blocks() {
    let directory = Directory::new();
    let [file, link, pipe] = ["file", "link", "pipe"].map(|name| directory.file(name));
    fs::write(&file, "12345").unwrap();
    symlink(&file, &link).unwrap();
    assert_eq!(read(&link, 5).unwrap(), b"12345");
    let refused = |path: &Path, bytes_max| read(path, bytes_max).unwrap_err().to_string();
    assert_eq!(refused(&file, 4), "it is longer than 4 bytes");
    make_pipe(&pipe);
    assert_eq!(refused(&pipe, 9), "it is a named pipe, and a regular file is needed");
    let device = refused(Path::new("/dev/zero"), 9);
    assert_eq!(device, "it is a device, and a regular file is needed");
    assert_eq!(refused(&directory.0, 9), "it is a directory");
    let none = read(&directory.file("none"), 9).unwrap_err();
    assert_eq!(none.kind(), io::ErrorKind::NotFound);
}

#[test]
fn state_is_read_through_no_link_of_another_user() {
    let Some(foreign) = Directory::of_other() else { return };
    let own = Directory::new();
    let secret = own.file("secret");
    fs::write(&secret, "12345").unwrap();
    let [link, second, pipe, file] =
        ["link", "second", "pipe", "file"].map(|name| foreign.file(name));
    symlink(&secret, &link).unwrap();
    fs::hard_link(&secret, &second).unwrap();
    make_pipe(&pipe);
    fs::write(&file, "6").unwrap();
    let refused = |path: &Path| read_state(path, 9).unwrap_err().to_string();
    assert!(refused(&link).starts_with("it is a symbolic link"), "{}", refused(&link));
    assert!(refused(&second).starts_with("it has several names"), "{}", refused(&second));
    assert!(refused(&pipe).starts_with("it is a named pipe"), "{}", refused(&pipe));
    assert_eq!(read_state(&file, 9).unwrap(), b"6");
    // Root's own links are followed, and those of the other user behind them are not.
    let [good, bad] = ["good", "bad"].map(|name| own.file(name));
    symlink(&file, &good).unwrap();
    symlink(&link, &bad).unwrap();
    assert_eq!(read_state_to_string(&good, 9).unwrap(), "6");
    assert!(refused(&bad).starts_with("it is a symbolic link"), "{}", refused(&bad));
}

/// Rights of `turnserver --proc-user` until its sockets are bound.
#[test]
fn a_process_with_the_capabilities_of_root_follows_no_link_of_its_user() {
    let Some(foreign) = Directory::of_other() else { return };
    let own = Directory::new();
    fs::set_permissions(&own.0, fs::Permissions::from_mode(0o700)).unwrap();
    symlink(&own.0, foreign.file("link")).unwrap();
    let existing = make_missing_directory(&foreign.file("link"), Access::PRIVATE_DIRECTORY);
    assert_eq!(existing.unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    let planted = foreign.file("link").join("file");
    let become_other_and_write = || {
        let user = rustix::process::Uid::from_raw(OTHER);
        rustix::thread::set_keep_capabilities(true).unwrap();
        rustix::thread::set_thread_res_uid(user, user, user).unwrap();
        let all = rustix::thread::capabilities(None).unwrap();
        let effective = all.permitted;
        let all = rustix::thread::CapabilitySets { effective, ..all };
        rustix::thread::set_capabilities(None, all).unwrap();
        let written = replace(&planted, b"text", Access::PRIVATE);
        let acting = FileOwner::of(&foreign.file("users.sqlite")).unwrap().act().unwrap();
        let reached = fs::read_dir(&own.0).map(drop);
        drop(acting);
        (written, reached, fs::read_dir(&own.0).map(drop))
    };
    let (written, reached, reached_again) =
        std::thread::scope(|scope| scope.spawn(become_other_and_write).join().unwrap());
    assert_eq!(written.unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    assert_eq!(own.names(), [""; 0]);
    assert_eq!(reached.unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    reached_again.unwrap();
}

#[test]
fn temporary_files_of_killed_processes_are_removed_by_the_next_writer() {
    let directory = Directory::new();
    let path = directory.file("revoked.json");
    let old = SystemTime::now() - Duration::from_secs(2 * 3600);
    let leave = |name: &str, at: SystemTime| {
        fs::write(directory.file(name), "part").unwrap();
        fs::File::options().write(true).open(directory.file(name)).unwrap().set_modified(at)
    };
    const DEAD: &str = ".revoked.json.0123456789abcdef.new";
    const OTHERS: [&str; 4] = [
        ".other.json.0123456789abcdef.new",
        ".revoked.json.0123456789ABCDEF.new",
        ".revoked.json.0123456789abcde.new",
        ".revoked.json.new",
    ];
    const YOUNG: &str = ".revoked.json.fedcba9876543210.new";
    for name in OTHERS.iter().chain([&DEAD]) {
        leave(name, old).unwrap();
    }
    leave(YOUNG, SystemTime::now()).unwrap();
    // A writer on a slow disk.
    let slow = NewFile::open(&path, Access::PRIVATE).unwrap();
    let before = directory.names();
    let slow_name = before
        .iter()
        .find(|name| !OTHERS.contains(&name.as_str()) && ![DEAD, YOUNG].contains(&name.as_str()));
    let slow_name = slow_name.unwrap().clone();
    leave(&slow_name, old).unwrap();
    leave(DEAD, old).unwrap();

    replace(&path, b"two", Access::PRIVATE).unwrap();
    let names = directory.names();
    assert!(!names.iter().any(|name| name == DEAD), "{names:?}");
    for stays in OTHERS.iter().copied().chain([YOUNG, &slow_name]) {
        assert!(names.iter().any(|name| name == stays), "{stays}: {names:?}");
    }
    slow.replace().unwrap();
}
