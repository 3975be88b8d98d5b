//! The file that sets the sysctls again at every start of the host.

use std::fs;
use std::io;
use std::path::PathBuf;

use atomic_file::Access;

use crate::host::Host;
use crate::setting::sysctl_path;
use crate::state::{self, Record, State, StateError};

/// The file.
pub const FILE: &str = "/etc/sysctl.d/60-turnpike.conf";

/// Its first line, by which it is known again.
const HEADING: &str =
    "# Written by `turnpike tune apply --persist`; `turnpike tune revert` removes it.";

/// Sysctls of a module that may not be loaded yet: a minus in front has the host go on without them
/// (sysctl.d(5)).
const MAY_BE_MISSING: &str = "net.netfilter.";

/// A sysctl that the kernel shows in the machine's own network namespace and in no other. (The link
/// /proc/1/ns/net would say it too, but not to every root.)
const OF_THE_MACHINE: &str = "net.core.netdev_max_backlog";

/// Error of writing or removing the file.
#[derive(Debug, thiserror::Error)]
pub enum PersistError {
    /// It is not ours.
    #[error(
        "{} was not written by this program, and is left as it is: move it away, or keep it and \
         leave --persist out", .0.display()
    )]
    Foreign(PathBuf),
    /// It would be read for the machine, and not for this network namespace.
    #[error(
        "this is not the machine's own network namespace, and {FILE} sets the values of that one: \
         leave --persist out"
    )]
    Namespace,
    /// The system refused.
    #[error("cannot write {}: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Error of the system.
        #[source]
        error: io::Error,
    },
    /// The state could not be written.
    #[error(transparent)]
    State(#[from] StateError),
}

/// Writes the file with every changed sysctl, and returns its path; `None` where none was changed.
///
/// # Errors
/// It is not ours, this is a network namespace of its own, or it cannot be written.
pub fn persist(host: &Host, state: &mut State) -> Result<Option<PathBuf>, PersistError> {
    if !host.exists(&sysctl_path(OF_THE_MACHINE)) {
        return Err(PersistError::Namespace);
    }
    let records = state.records().iter();
    let lasting: Vec<Record> = records
        .filter(|record| record.setting.is_sysctl() && state.is_here(record))
        .cloned()
        .collect();
    if lasting.is_empty() {
        return Ok(None);
    }
    check_ours(host)?;
    // The record first: a crash then leaves a file too few, which `revert` ignores.
    state.set_persisted(true)?;
    write(host, &lasting).map(Some)
}

/// Removes restored values from the file, and the file with the last of them.
pub(crate) fn withdraw(
    host: &Host,
    state: &mut State,
    goes: impl Fn(&Record) -> bool,
) -> Result<(), PersistError> {
    let stays: Vec<Record> = state
        .records()
        .iter()
        .filter(|record| record.setting.is_sysctl() && state.is_here(record) && !goes(record))
        .cloned()
        .collect();
    if host.exists(FILE) {
        check_ours(host)?;
        if stays.is_empty() {
            let path = host.path(FILE);
            fs::remove_file(&path).map_err(|error| PersistError::Io { path, error })?;
        } else {
            write(host, &stays)?;
        }
    }
    if stays.is_empty() {
        state.set_persisted(false)?;
    }
    Ok(())
}

fn write(host: &Host, records: &[Record]) -> Result<PathBuf, PersistError> {
    let path = host.path(FILE);
    let io = |error| PersistError::Io { path: path.clone(), error };
    if let Some(directory) = path.parent() {
        let access = Access { mode: 0o755, ..Access::PRIVATE_DIRECTORY };
        atomic_file::make_missing_directory(directory, access).map_err(io)?;
    }
    state::replace(&path, &text(records), 0o644).map_err(io)?;
    Ok(path)
}

fn check_ours(host: &Host) -> Result<(), PersistError> {
    match host.read(FILE) {
        Ok(text) if !text.starts_with(HEADING) => Err(PersistError::Foreign(host.path(FILE))),
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(PersistError::Io { path: host.path(FILE), error }),
    }
}

fn text(records: &[Record]) -> String {
    let mut text = format!("{HEADING}\n");
    for record in records {
        let name = record.setting.to_string();
        let minus = if name.starts_with(MAY_BE_MISSING) { "-" } else { "" };
        text.push_str(&format!("{minus}{name} = {}\n", record.after));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apply::apply;
    use crate::revert::revert;
    use crate::survey::survey;
    use crate::testing::{Fake, wants};

    fn applied() -> Fake {
        let fake = Fake::whole();
        let items = || survey(fake.host(), &wants(), &[]).unwrap().items;
        apply(fake.host(), &mut fake.state(), items(), items).unwrap();
        fake
    }

    #[test]
    fn the_file_sets_what_was_changed_and_goes_with_it() {
        let fake = applied();
        let before = fs::read_dir(fake.host().path("/etc/sysctl.d")).is_ok();
        assert!(!before, "nothing is written unasked");
        persist(fake.host(), &mut fake.state()).unwrap().unwrap();
        let text = fake.host().read(FILE).unwrap();
        assert!(text.starts_with(HEADING), "{text}");
        assert!(text.contains("\nnet.core.rmem_max = 4194304\n"), "{text}");
        assert!(text.contains("\n-net.netfilter.nf_conntrack_max = "), "{text}");
        assert!(!text.contains("smp_affinity"), "{text}");

        let only_rmem = |record: &Record| record.item == "net.core.rmem_max";
        revert(fake.host(), &mut fake.state(), false, only_rmem).unwrap();
        let text = fake.host().read(FILE).unwrap();
        assert!(!text.contains("rmem_max") && text.contains("wmem_max"), "{text}");
        revert(fake.host(), &mut fake.state(), false, |_| true).unwrap();
        assert!(!fake.host().exists(FILE));
        assert!(!fake.state().is_persisted());
    }

    #[test]
    fn after_a_restart_the_originals_are_still_known() {
        let fake = applied();
        persist(fake.host(), &mut fake.state()).unwrap();
        fake.put("/proc/sys/kernel/random/boot_id", "second");
        revert(fake.host(), &mut fake.state(), false, |_| true).unwrap();
        assert_eq!(fake.host().read("/proc/sys/net/core/rmem_max").unwrap(), "212992");
    }

    #[test]
    fn a_foreign_file_is_left_alone() {
        let fake = applied();
        fake.put(FILE, "vm.swappiness = 1\n");
        let error = persist(fake.host(), &mut fake.state()).unwrap_err();
        assert!(matches!(error, PersistError::Foreign(_)), "{error}");
        assert_eq!(fake.host().read(FILE).unwrap(), "vm.swappiness = 1");
    }

    #[test]
    fn a_namespace_is_not_the_machine() {
        let fake = applied();
        fs::remove_file(fake.host().path(&sysctl_path(OF_THE_MACHINE))).unwrap();
        let error = persist(fake.host(), &mut fake.state()).unwrap_err();
        assert!(matches!(error, PersistError::Namespace), "{error}");
    }
}
