//! Temporary directory of a test, removed after the test.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use turn_types::Secret;
use user_db::{NewUser, UserQuery};

pub(crate) struct TempDir(PathBuf);

impl TempDir {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("user-db-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// Returns a path in the directory, without creating a file.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Returns the path of the test's database. Neither the file nor its directory exists yet.
    pub(crate) fn database(&self) -> PathBuf {
        self.file("data/users.sqlite")
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub(crate) fn user(name: &str, password: &str) -> NewUser {
    NewUser::new("example.org", name, &Secret::new(password.to_owned()), None).unwrap()
}

pub(crate) fn by_name(name: &str) -> UserQuery {
    UserQuery::Name(name.into())
}
