//! The values before: a file that is written before each change, and read to restore them.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use atomic_file::{Access, Owner};
use serde::{Deserialize, Serialize};

use crate::host::Host;
use crate::setting::Setting;

/// Default path of the state.
pub const FILE: &str = "/var/lib/turnpike/tune.json";

/// The version of the file's format.
const VERSION: u32 = 1;

/// Bytes of a state file at most: a record is some 300, and a machine with 512 queues on each of 16
/// cards has some 30,000.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// A value that was changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// The item that it was changed for.
    pub item: String,
    /// The setting.
    pub setting: Setting,
    /// The value before the first change.
    pub before: String,
    /// The value that it was changed to.
    pub after: String,
    /// The start of the host that the change was made in: a restart undoes most of them.
    boot: String,
    /// The network namespace that the change was made in: another has its own values.
    namespace: String,
}

/// Contents of the file.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Contents {
    version: u32,
    /// True if a file of ours sets the sysctls at every start.
    persisted: bool,
    records: Vec<Record>,
}

/// The values before every change that is still in force.
#[derive(Debug)]
pub struct State {
    path: PathBuf,
    contents: Contents,
    boot: String,
    namespace: String,
    /// The directory, locked for as long as this value is there.
    lock: File,
}

/// Error of reading or writing the state.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// The file cannot be made, read or written.
    #[error("cannot {doing} {}: {error}", path.display())]
    Io {
        /// The operation.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// Error of the system.
        #[source]
        error: io::Error,
    },
    /// It was not written by this program.
    #[error("{} is not a state of this program: {what}", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// Reason.
        what: String,
    },
    /// Another process has it.
    #[error("another `turnpike tune` is at work with {}", path.display())]
    Busy {
        /// The file.
        path: PathBuf,
    },
}

impl State {
    /// Opens a state, or begins one; its directory is made where it is missing. No other process
    /// opens it at the same time.
    ///
    /// # Errors
    /// It cannot be read or written, other users may write to it, it was not written by this
    /// program, or another process has it.
    pub fn open(path: &Path, host: &Host) -> Result<Self, StateError> {
        let io = |doing, error| StateError::Io { doing, path: path.to_owned(), error };
        if path.is_dir() {
            let what = "it is a directory, and the state is a file".to_owned();
            return Err(StateError::Foreign { path: path.to_owned(), what });
        }
        let directory = directory(path);
        let made = atomic_file::make_missing_directory(directory, Access::PRIVATE_DIRECTORY);
        made.map_err(|error| io("make the directory of", error))?;
        // The directory is locked: a lock file would stay behind, and could be somebody's link.
        let lock = File::open(directory).map_err(|error| io("lock", error))?;
        lock.try_lock().map_err(|error| match error {
            fs::TryLockError::WouldBlock => StateError::Busy { path: path.to_owned() },
            fs::TryLockError::Error(error) => io("lock", error),
        })?;
        let mut state = Self {
            path: path.to_owned(),
            contents: read(path)?,
            boot: host.read("/proc/sys/kernel/random/boot_id").unwrap_or_default(),
            namespace: host.link_name("/proc/self/ns/net").unwrap_or_default(),
            lock,
        };
        state.forget_values_of_another_boot();
        Ok(state)
    }

    /// Every change that is still in force, the first first.
    #[must_use]
    pub fn records(&self) -> &[Record] {
        &self.contents.records
    }

    /// Returns whether a file of ours sets the sysctls at every start of the host.
    #[must_use]
    pub fn is_persisted(&self) -> bool {
        self.contents.persisted
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns whether a record is of the network namespace of this process.
    pub(crate) fn is_here(&self, record: &Record) -> bool {
        record.namespace == self.namespace
    }

    /// Records the value of a setting before a change. Of several changes the first counts: its
    /// value before is the one to restore. The record is on the disk when this returns.
    pub(crate) fn note(
        &mut self,
        item: &str,
        setting: &Setting,
        (before, after): (&str, &str),
    ) -> Result<(), StateError> {
        match self.position(setting) {
            Some(at) => after.clone_into(&mut self.contents.records[at].after),
            None => self.contents.records.push(Record {
                item: item.to_owned(),
                setting: setting.clone(),
                before: before.to_owned(),
                after: after.to_owned(),
                boot: self.boot.clone(),
                namespace: self.namespace.clone(),
            }),
        }
        self.save()
    }

    /// The record of a setting in this namespace.
    pub(crate) fn noted(&self, setting: &Setting) -> Option<&Record> {
        self.position(setting).map(|at| &self.contents.records[at])
    }

    /// Removes the record of a setting that has its value before.
    pub(crate) fn forget(&mut self, setting: &Setting) -> Result<(), StateError> {
        if let Some(at) = self.position(setting) {
            self.contents.records.remove(at);
        }
        self.save()
    }

    /// Records whether a file of ours sets the sysctls at every start.
    pub(crate) fn set_persisted(&mut self, persisted: bool) -> Result<(), StateError> {
        self.contents.persisted = persisted;
        self.save()
    }

    fn position(&self, setting: &Setting) -> Option<usize> {
        let records = self.contents.records.iter();
        records.clone().position(|record| record.setting == *setting && self.is_here(record))
    }

    /// A restart restores every value except sysctls that a file sets again; interrupt numbers may
    /// belong to other devices since.
    fn forget_values_of_another_boot(&mut self) {
        let (boot, persisted) = (&self.boot, self.contents.persisted);
        self.contents
            .records
            .retain(|record| record.boot == *boot || persisted && record.setting.is_sysctl());
    }

    /// Replaces the file atomically, so that a crash leaves the old one or the new one. Without
    /// records there is no file.
    fn save(&self) -> Result<(), StateError> {
        let io = |doing, error| StateError::Io { doing, path: self.path.clone(), error };
        if self.contents.records.is_empty() && !self.contents.persisted {
            return match fs::remove_file(&self.path) {
                Err(error) if error.kind() != ErrorKind::NotFound => Err(io("remove", error)),
                Ok(()) | Err(_) => Ok(()),
            };
        }
        let mut text = serde_json::to_string_pretty(&self.contents)
            .map_err(|error| io("write", error.into()))?;
        text.push('\n');
        replace(&self.path, &text, 0o600).map_err(|error| io("write", error))
    }
}

/// A child process may hold a copy of the lock's descriptor for a moment longer; unlocking ends the
/// lock for both.
impl Drop for State {
    fn drop(&mut self) {
        let _ = self.lock.unlock();
    }
}

/// Replaces a file atomically; it is on the disk when this returns.
pub(crate) fn replace(path: &Path, text: &str, mode: u32) -> io::Result<()> {
    atomic_file::replace(path, text.as_bytes(), Access { mode, owner: Owner::Process })
}

fn directory(path: &Path) -> &Path {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    parent.unwrap_or_else(|| Path::new("."))
}

fn read(path: &Path) -> Result<Contents, StateError> {
    let io = |error| StateError::Io { doing: "read", path: path.to_owned(), error };
    let foreign = |what: String| StateError::Foreign { path: path.to_owned(), what };
    let metadata = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Ok(Contents { version: VERSION, ..Contents::default() });
        }
        found => found.map_err(io)?,
    };
    // A user who can write to it would set values with our rights.
    let me = fs::metadata("/proc/self").map_err(io)?.uid();
    if !metadata.is_file() || metadata.uid() != me || metadata.mode() & 0o022 != 0 {
        return Err(foreign(
            "it has to be a file that only the user of this command may write".into(),
        ));
    }
    if metadata.len() > FILE_BYTES_MAX {
        return Err(foreign(format!("it is larger than {FILE_BYTES_MAX} bytes")));
    }
    let text = fs::read_to_string(path).map_err(io)?;
    let contents: Contents =
        serde_json::from_str(&text).map_err(|error| foreign(error.to_string()))?;
    if contents.version != VERSION {
        let version = contents.version;
        return Err(foreign(format!("version {version} of the format, and not {VERSION}")));
    }
    let allowed = |record: &Record| {
        record.setting.allows(&record.before) && record.setting.allows(&record.after)
    };
    match contents.records.iter().find(|record| !allowed(record)) {
        Some(record) => Err(foreign(format!("{} is not set by it", record.setting))),
        None => Ok(contents),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;
    use crate::testing::Fake;

    const RMEM: &str = "net.core.rmem_max";

    #[test]
    fn the_first_value_before_is_kept() {
        let fake = Fake::new();
        let rmem = Setting::sysctl(RMEM);
        let mut state = fake.state();
        state.note(RMEM, &rmem, ("1", "2")).unwrap();
        state.note(RMEM, &rmem, ("2", "3")).unwrap();
        drop(state);
        let mut state = fake.state();
        let noted = state.noted(&rmem).unwrap();
        assert_eq!((noted.before.as_str(), noted.after.as_str()), ("1", "3"));
        state.forget(&rmem).unwrap();
        assert!(!state.path().exists(), "nothing to say, no file");
    }

    #[test]
    fn a_restart_undoes_values_without_a_file() {
        let fake = Fake::new();
        let (rmem, irq) = (Setting::sysctl(RMEM), Setting::IrqAffinity { irq: 40 });
        let note = |state: &mut State| {
            state.note(RMEM, &rmem, ("1", "2")).unwrap();
            state.note("irq-affinity", &irq, ("0", "1")).unwrap();
        };
        note(&mut fake.state());
        assert_eq!(fake.state().records().len(), 2);
        fake.put("/proc/sys/kernel/random/boot_id", "second");
        assert_eq!(fake.state().records(), []);
        note(&mut fake.state());
        fake.state().set_persisted(true).unwrap();
        fake.put("/proc/sys/kernel/random/boot_id", "third");
        let state = fake.state();
        assert_eq!(state.records().len(), 1);
        assert!(state.noted(&rmem).is_some());
    }

    #[test]
    fn another_namespace_has_values_of_its_own() {
        let fake = Fake::new();
        let rmem = Setting::sysctl(RMEM);
        fake.state().note(RMEM, &rmem, ("1", "2")).unwrap();
        fake.link("/proc/self/ns/net", "net:[2]");
        let mut state = fake.state();
        assert!(state.noted(&rmem).is_none());
        state.note(RMEM, &rmem, ("5", "6")).unwrap();
        assert_eq!(state.records().len(), 2);
        state.forget(&rmem).unwrap();
        assert_eq!(state.records()[0].before, "1");
    }

    #[test]
    fn files_of_others_are_refused() {
        let fake = Fake::new();
        let path = fake.state_path();
        fs::create_dir(path.parent().unwrap()).unwrap();
        let open = || State::open(&path, fake.host()).unwrap_err().to_string();
        let record = r#"{"item":"x","setting":{"kind":"sysctl","name":"kernel.core_pattern"},
                         "before":"a","after":"b","boot":"","namespace":""}"#;
        for (text, what) in [
            ("{}", "missing field"),
            (r#"{"version":2,"persisted":false,"records":[]}"#, "version 2"),
            (
                &format!(r#"{{"version":1,"persisted":false,"records":[{record}]}}"#),
                "kernel.core_pattern is not set by it",
            ),
        ] {
            replace(&path, text, 0o600).unwrap();
            let error = open();
            assert!(error.contains(what), "{error}");
        }
        let good = r#"{"version":1,"persisted":false,"records":[]}"#;
        replace(&path, good, 0o600).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        assert!(open().contains("only the user of this command may write"));
        fs::rename(&path, path.with_extension("real")).unwrap();
        symlink(path.with_extension("real"), &path).unwrap();
        assert!(open().contains("only the user of this command may write"));
        let error = State::open(path.parent().unwrap(), fake.host()).unwrap_err().to_string();
        assert!(error.contains("is a directory"), "{error}");
    }

    #[test]
    fn one_at_a_time() {
        let fake = Fake::new();
        let state = fake.state();
        let second = State::open(&fake.state_path(), fake.host()).unwrap_err();
        assert!(matches!(second, StateError::Busy { .. }), "{second}");
        drop(state);
        assert_eq!(fake.state().records(), []);
    }
}
