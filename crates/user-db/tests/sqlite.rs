//! The SQLite back end, on real files.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use stun_wire::{long_term_key_md5, long_term_key_sha256, userhash};
use turn_types::Secret;
use user_db::{NewUser, Page, Position, SqliteStore, StoreError, UserEditor as _, UserQuery};

use crate::support::{TempDir, by_name, user};

const REALM: &str = "example.org";

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

fn all() -> Page {
    Page { realm: None, after: None, limit: 1000 }
}

fn names(store: &mut SqliteStore, page: &Page) -> Vec<String> {
    store
        .list(page)
        .unwrap()
        .into_iter()
        .map(|user| format!("{}/{}", user.realm, user.name))
        .collect()
}

#[test]
fn a_user_is_found_by_name_and_by_hash_with_both_keys() {
    let dir = TempDir::new();
    let mut store = SqliteStore::open(&dir.database()).unwrap();
    let new =
        NewUser::new(REALM, "alice", &Secret::new("correct horse".to_owned()), Some(7)).unwrap();
    store.add(&new).unwrap();

    let found = store.user(REALM, &by_name("alice")).unwrap().unwrap();
    assert_eq!(&*found.name, "alice");
    assert_eq!(
        *found.keys.md5.expose(),
        long_term_key_md5("alice", REALM, "correct horse").unwrap()
    );
    assert_eq!(
        *found.keys.sha256.unwrap().expose(),
        long_term_key_sha256("alice", REALM, "correct horse").unwrap()
    );
    assert_eq!(found.allocations_max, Some(7));

    let hash = userhash("alice", REALM).unwrap();
    assert_eq!(store.user(REALM, &UserQuery::Hash(hash)).unwrap().unwrap(), found);

    assert_eq!(store.user("other.example", &by_name("alice")).unwrap(), None);
    assert_eq!(store.user("other.example", &UserQuery::Hash(hash)).unwrap(), None);
    assert_eq!(store.user(REALM, &by_name("ALICE")).unwrap(), None);
    assert_eq!(store.user(REALM, &by_name("' OR '1'='1")).unwrap(), None);
}

#[test]
fn the_password_is_nowhere_in_the_files() {
    let dir = TempDir::new();
    let mut store = SqliteStore::open(&dir.database()).unwrap();
    store.add(&user("alice", "correct-horse-battery")).unwrap();
    let mut read = 0;
    for entry in fs::read_dir(dir.database().parent().unwrap()).unwrap() {
        let bytes = fs::read(entry.unwrap().path()).unwrap();
        read += bytes.len();
        assert!(!bytes.windows(13).any(|part| part == b"correct-horse"));
    }
    assert!(read > 4096, "the files were looked at");
}

#[test]
fn files_are_their_owners_alone() {
    let dir = TempDir::new();
    let path = dir.database();
    let mut store = SqliteStore::open(&path).unwrap();
    store.add(&user("alice", "p")).unwrap();
    assert_eq!(mode(path.parent().unwrap()), 0o700);
    for name in ["users.sqlite", "users.sqlite-wal", "users.sqlite-shm"] {
        assert_eq!(mode(&path.with_file_name(name)), 0o600, "{name}");
    }
}

#[test]
fn a_file_that_others_can_read_is_refused() {
    let dir = TempDir::new();
    let path = dir.database();
    drop(SqliteStore::open(&path).unwrap());
    fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
    assert_eq!(
        SqliteStore::open(&path).unwrap_err().to_string(),
        format!(
            "{}: other users of this host can read it (mode 644); run `chmod 600` on it, and replace its users if \
             one may have",
            path.display()
        )
    );
    // A group may have access: volumes of containers have one.
    fs::set_permissions(&path, Permissions::from_mode(0o660)).unwrap();
    SqliteStore::open(&path).unwrap();
}

#[test]
fn a_name_is_added_once_and_replaced_on_request() {
    let dir = TempDir::new();
    let mut store = SqliteStore::open(&dir.database()).unwrap();
    store.add(&user("alice", "old")).unwrap();
    assert_eq!(
        store.add(&user("alice", "new")).unwrap_err().to_string(),
        "there is a user \"alice\" in realm \"example.org\" already"
    );
    let old = store.user(REALM, &by_name("alice")).unwrap().unwrap();
    assert_eq!(*old.keys.md5.expose(), long_term_key_md5("alice", REALM, "old").unwrap());

    assert!(store.replace(&user("alice", "new")).unwrap());
    assert!(!store.replace(&user("bob", "new")).unwrap());
    let new = store.user(REALM, &by_name("alice")).unwrap().unwrap();
    assert_eq!(*new.keys.md5.expose(), long_term_key_md5("alice", REALM, "new").unwrap());
    assert_eq!(names(&mut store, &all()), ["example.org/alice", "example.org/bob"]);
}

#[test]
fn a_deleted_user_is_gone() {
    let dir = TempDir::new();
    let mut store = SqliteStore::open(&dir.database()).unwrap();
    store.add(&user("alice", "p")).unwrap();
    assert!(!store.delete("other.example", "alice").unwrap());
    assert!(store.delete(REALM, "alice").unwrap());
    assert!(!store.delete(REALM, "alice").unwrap());
    assert_eq!(store.user(REALM, &by_name("alice")).unwrap(), None);
    store.add(&user("alice", "p")).unwrap();
}

#[test]
fn users_are_listed_in_order_and_page_by_page() {
    let dir = TempDir::new();
    let mut store = SqliteStore::open(&dir.database()).unwrap();
    for (realm, name) in [
        ("b.example", "bob"),
        ("a.example", "carol"),
        ("b.example", "alice"),
        ("a.example", "dave"),
    ] {
        store.add(&NewUser::new(realm, name, &Secret::new("p".to_owned()), None).unwrap()).unwrap();
    }
    let everybody = ["a.example/carol", "a.example/dave", "b.example/alice", "b.example/bob"];
    assert_eq!(names(&mut store, &all()), everybody);
    assert_eq!(
        names(&mut store, &Page { realm: Some("b.example".to_owned()), ..all() }),
        everybody[2..]
    );

    let first = Page { limit: 3, ..all() };
    assert_eq!(names(&mut store, &first), everybody[..3]);
    let rest = Page {
        after: Some(Position { realm: "b.example".to_owned(), name: "alice".to_owned() }),
        ..first
    };
    assert_eq!(names(&mut store, &rest), everybody[3..]);
    assert!(store.list(&all()).unwrap().iter().all(|user| user.created > Some(1_700_000_000)));
}

#[test]
fn one_handle_sees_what_another_changed() {
    let dir = TempDir::new();
    let mut server = SqliteStore::open(&dir.database()).unwrap();
    let mut command = SqliteStore::open(&dir.database()).unwrap();
    let begin = server.revision().unwrap();
    assert_eq!(server.revision().unwrap(), begin, "nothing changed");

    command.add(&user("alice", "p")).unwrap();
    let added = server.revision().unwrap();
    assert_ne!(added, begin);
    assert!(server.user(REALM, &by_name("alice")).unwrap().is_some());

    command.user(REALM, &by_name("alice")).unwrap();
    assert_eq!(server.revision().unwrap(), added, "reading is no change");

    command.delete(REALM, "alice").unwrap();
    assert_ne!(server.revision().unwrap(), added);
    assert_eq!(server.user(REALM, &by_name("alice")).unwrap(), None);
}

/// Locks of this process on a file (proc_locks(5)).
fn locks(path: &Path) -> usize {
    let (process, inode) = (std::process::id(), fs::metadata(path).unwrap().ino());
    let all = fs::read_to_string("/proc/locks").unwrap();
    all.lines()
        .filter(|line| {
            let fields: Vec<_> = line.split_ascii_whitespace().collect();
            let is_own = fields.get(4) == Some(&&*process.to_string());
            let place = fields.get(5).and_then(|place| place.rsplit(':').next());
            is_own && place == Some(&*inode.to_string())
        })
        .count()
}

/// The lock of this process survives. Another process that closes the file would otherwise treat
/// itself as the last one, and remove the log that this process reads.
#[test]
fn a_second_handle_leaves_the_locks_of_the_first() {
    let dir = TempDir::new();
    let path = dir.database();
    let mut first = SqliteStore::open(&path).unwrap();
    assert_eq!(names(&mut first, &all()), [""; 0]);
    let before = locks(&path);
    assert!(before > 0, "SQLite holds a lock while a file is open in WAL mode");
    drop(SqliteStore::open(&path).unwrap());
    assert_eq!(locks(&path), before);
}

#[test]
fn a_restored_file_is_opened_again_and_a_lost_one_is_not_missed() {
    let dir = TempDir::new();
    let (path, backup) = (dir.database(), dir.file("backup.sqlite"));
    let mut server = SqliteStore::open(&path).unwrap();
    server.add(&user("before", "p")).unwrap();
    let begin = server.revision().unwrap();

    SqliteStore::open(&backup).unwrap().add(&user("restored", "p")).unwrap();
    fs::rename(&backup, &path).unwrap();
    for name in ["users.sqlite-wal", "users.sqlite-shm"] {
        fs::remove_file(path.with_file_name(name)).unwrap();
    }
    assert_ne!(server.revision().unwrap(), begin);
    assert!(server.user(REALM, &by_name("restored")).unwrap().is_some());
    assert_eq!(server.user(REALM, &by_name("before")).unwrap(), None);

    fs::remove_file(&path).unwrap();
    server.revision().unwrap();
    assert!(server.user(REALM, &by_name("restored")).unwrap().is_some());
}

#[test]
fn many_processes_may_begin_at_once() {
    let dir = TempDir::new();
    let path = dir.database();
    std::thread::scope(|scope| {
        for number in 0..8 {
            let path = &path;
            scope.spawn(move || {
                let mut store = SqliteStore::open(path).unwrap();
                store.add(&user(&format!("user{number}"), "p")).unwrap();
            });
        }
    });
    assert_eq!(SqliteStore::open(&path).unwrap().list(&all()).unwrap().len(), 8);
}

#[test]
fn a_user_with_an_md5_key_alone_is_known_of() {
    let dir = TempDir::new();
    let path = dir.database();
    let mut store = SqliteStore::open(&path).unwrap();
    let password = Secret::new("correct horse".to_owned());
    store.add(&NewUser::new(REALM, "alice", &password, None).unwrap()).unwrap();
    assert!(!store.has_md5_only(REALM).unwrap());
    let raw = rusqlite::Connection::open(&path).unwrap();
    raw.execute("UPDATE users SET sha256 = NULL WHERE name = 'alice'", []).unwrap();
    assert!(store.has_md5_only(REALM).unwrap());
    assert!(!store.has_md5_only("another realm").unwrap());
}

#[test]
fn a_file_of_a_newer_version_is_left_alone() {
    let dir = TempDir::new();
    let path = dir.database();
    drop(SqliteStore::open(&path).unwrap());
    let raw = rusqlite::Connection::open(&path).unwrap();
    raw.execute("UPDATE schema_version SET version = 9", []).unwrap();
    drop(raw);
    let error = SqliteStore::open(&path).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "{}: its format is version 9, and this program knows version 1; use a newer turnpike",
            path.display()
        )
    );
}

#[test]
fn what_is_no_database_is_said_to_be_none() {
    let dir = TempDir::new();
    let path = dir.file("users.sqlite");
    fs::write(&path, "dear diary, today I configured a relay".repeat(100)).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    assert_eq!(
        SqliteStore::open(&path).unwrap_err().to_string(),
        format!(
            "{}: this is not a user database; move it away, or name another directory",
            path.display()
        )
    );
    let blocked = dir.file("users.sqlite/users.sqlite");
    assert!(matches!(SqliteStore::open(&blocked).unwrap_err(), StoreError::Database { .. }));
}

#[test]
fn a_change_leaves_the_rest_of_a_user_as_it_is() {
    let dir = TempDir::new();
    let mut store = SqliteStore::open(&dir.database()).unwrap();
    let user = |password: &str, most| {
        NewUser::new(REALM, "alice", &Secret::new(password.to_owned()), most).unwrap()
    };
    assert!(!store.set_keys(&user("new", None)).unwrap());
    assert!(!store.set_allocations_max(REALM, "alice", Some(1)).unwrap());
    store.add(&user("old", Some(7))).unwrap();

    let old = store.user(REALM, &by_name("alice")).unwrap().unwrap();
    assert!(store.set_keys(&user("new", None)).unwrap());
    let found = store.user(REALM, &by_name("alice")).unwrap().unwrap();
    assert_eq!((&found.keys, found.allocations_max), (user("new", None).keys(), Some(7)));
    assert_ne!(found.keys, old.keys);
    for most in [Some(0), None] {
        assert!(store.set_allocations_max(REALM, "alice", most).unwrap());
        let found = store.user(REALM, &by_name("alice")).unwrap().unwrap();
        assert_eq!((&found.keys, found.allocations_max), (user("new", None).keys(), most));
    }
}

#[test]
fn realms_are_counted_the_largest_first() {
    let dir = TempDir::new();
    let mut store = SqliteStore::open(&dir.database()).unwrap();
    assert_eq!(store.realms().unwrap(), []);
    for (realm, name) in [("b", "x"), ("a", "x"), ("c", "x"), ("c", "y")] {
        store.add(&NewUser::new(realm, name, &Secret::new("p".to_owned()), None).unwrap()).unwrap();
    }
    let realms = [("c", 2), ("a", 1), ("b", 1)].map(|(realm, n)| (realm.to_owned(), n));
    assert_eq!(store.realms().unwrap(), realms);
}

/// Directory of a test's database that belongs to another user; `None` unless root runs the tests.
fn directory_of_another(dir: &TempDir) -> Option<PathBuf> {
    if fs::metadata("/proc/self").unwrap().uid() != 0 {
        test_support::skip("only root has a directory of another user");
        return None;
    }
    let directory = dir.database().parent().unwrap().to_owned();
    fs::create_dir_all(&directory).unwrap();
    chown(&directory, Some(12_345), Some(54_321)).unwrap();
    Some(directory)
}

/// Root adds users before the server, which runs as another user, has started.
#[test]
fn a_database_that_root_creates_belongs_to_the_owner_of_its_directory() {
    let dir = TempDir::new();
    let Some(directory) = directory_of_another(&dir) else { return };
    let mut store = SqliteStore::open(&dir.database()).unwrap();
    store.add(&user("alice", "a password")).unwrap();
    for file in fs::read_dir(&directory).unwrap() {
        let metadata = file.unwrap().metadata().unwrap();
        assert_eq!((metadata.uid(), metadata.gid()), (12_345, 54_321));
    }
    drop(store);
    // The owner of an existing file is unchanged: the name may be a link to any file.
    chown(dir.database(), Some(1), Some(1)).unwrap();
    let refused = SqliteStore::open(&dir.database()).unwrap_err().to_string();
    assert!(refused.contains("need to belong to the user"), "{refused}");
    assert_eq!(fs::metadata(dir.database()).unwrap().uid(), 1);
}

/// Links to root's files under the names that SQLite opens automatically.
#[test]
fn root_opens_nothing_of_its_own_in_a_directory_of_another_user() {
    let (dir, own) = (TempDir::new(), TempDir::new());
    let Some(directory) = directory_of_another(&dir) else { return };
    let of_root = own.file("of-root");
    let links: [fn(&Path, &Path) -> std::io::Result<()>; 2] =
        [|from, to| symlink(from, to), |from, to| fs::hard_link(from, to)];
    for (ending, link) in ["", "-wal", "-shm"].iter().flat_map(|ending| links.map(|l| (ending, l)))
    {
        fs::write(&of_root, "").unwrap();
        fs::set_permissions(&of_root, Permissions::from_mode(0o600)).unwrap();
        link(&of_root, &directory.join(format!("users.sqlite{ending}"))).unwrap();
        let added = SqliteStore::open(&dir.database())
            .and_then(|mut store| store.add(&user("alice", "a password")));
        let metadata = fs::metadata(&of_root).unwrap();
        assert_eq!((metadata.uid(), metadata.len()), (0, 0), "users.sqlite{ending}: {added:?}");
        assert!(added.is_err(), "users.sqlite{ending}");
        fs::read_dir(&directory).unwrap().for_each(|file| {
            fs::remove_file(file.unwrap().path()).unwrap();
        });
    }
    // The thread acts as root again.
    fs::write(own.file("of-root"), "").unwrap();
}

/// SQLite removes files when closing. The directory's owner has replaced such a file with a link.
#[test]
fn root_removes_nothing_of_its_own_through_a_directory_of_another_user() {
    let (dir, own) = (TempDir::new(), TempDir::new());
    let Some(directory) = directory_of_another(&dir) else { return };
    let mut store = SqliteStore::open(&dir.database()).unwrap();
    store.add(&user("alice", "a password")).unwrap();
    let victim = own.database().parent().unwrap().to_owned();
    fs::create_dir_all(&victim).unwrap();
    fs::set_permissions(&victim, Permissions::from_mode(0o700)).unwrap();
    let files = ["-wal", "-shm"].map(|ending| victim.join(format!("users.sqlite{ending}")));
    files.iter().for_each(|file| fs::write(file, "of root").unwrap());
    fs::rename(&directory, dir.file("moved")).unwrap();
    symlink(&victim, &directory).unwrap();
    drop(store);
    assert!(files.iter().all(|file| file.exists()));
}

/// Directories such as `/tmp`, and the volumes of some containers.
#[test]
fn root_follows_no_link_in_a_directory_that_all_write_to() {
    if fs::metadata("/proc/self").unwrap().uid() != 0 {
        return test_support::skip("only root has files that others may not name");
    }
    let (dir, own) = (TempDir::new(), TempDir::new());
    let directory = dir.database().parent().unwrap().to_owned();
    fs::create_dir_all(&directory).unwrap();
    fs::set_permissions(&directory, Permissions::from_mode(0o777)).unwrap();
    drop(SqliteStore::open(&dir.database()).unwrap());
    let of_root = own.file("of-root");
    fs::write(&of_root, "").unwrap();
    let planted = directory.join("users.sqlite-wal");
    symlink(&of_root, &planted).unwrap();
    let refused = SqliteStore::open(&dir.database()).unwrap_err().to_string();
    assert!(refused.contains("users.sqlite-wal is a link"), "{refused}");
    fs::remove_file(&planted).unwrap();
    SqliteStore::open(&dir.database()).unwrap();
}

/// SQLite opens a journal automatically, and would wait for a writer of the pipe.
#[test]
fn a_named_pipe_is_refused_and_nothing_waits_for_it() {
    let dir = TempDir::new();
    drop(SqliteStore::open(&dir.database()).unwrap());
    for ending in ["-journal", "-wal", "-shm"] {
        let pipe = dir.database().with_extension(format!("sqlite{ending}"));
        let _ = fs::remove_file(&pipe);
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let refused = SqliteStore::open(&dir.database()).unwrap_err().to_string();
        assert!(refused.contains("no regular file"), "{refused}");
        fs::remove_file(&pipe).unwrap();
    }
}

/// Triggers of another writer of the file must not affect commands.
#[test]
fn triggers_in_the_file_do_not_run() {
    let dir = TempDir::new();
    let mut store = SqliteStore::open(&dir.database()).unwrap();
    store.add(&user("alice", "a password")).unwrap();
    let other = rusqlite::Connection::open(dir.database()).unwrap();
    other
        .execute_batch(
            "CREATE TRIGGER keep BEFORE DELETE ON users BEGIN SELECT raise(IGNORE); END;",
        )
        .unwrap();
    drop(other);
    assert!(store.delete(REALM, "alice").unwrap());
    assert_eq!(names(&mut store, &all()), [""; 0]);
}

#[test]
fn the_database_of_another_program_is_refused_and_not_changed() {
    let dir = TempDir::new();
    let path = dir.database();
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let other = rusqlite::Connection::open(&path).unwrap();
    other.execute_batch("CREATE TABLE bookmarks (url TEXT)").unwrap();
    drop(other);
    fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    let before = fs::read(&path).unwrap();
    let error = SqliteStore::open(&path).unwrap_err().to_string();
    assert!(error.contains("another program (its tables: bookmarks)"), "{error}");
    assert_eq!(fs::read(&path).unwrap(), before);
}
