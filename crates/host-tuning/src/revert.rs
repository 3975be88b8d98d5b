//! Restoring the values before.

use crate::host::Host;
use crate::persist;
use crate::setting::{Setting, SettingError};
use crate::state::{Record, State, StateError};

/// A value to restore, and its outcome.
#[derive(Debug)]
pub struct Restored {
    /// The item that it was changed for.
    pub item: String,
    /// The setting.
    pub setting: Setting,
    /// The value before.
    pub to: String,
    /// Outcome.
    pub outcome: RevertOutcome,
}

/// Outcome of restoring a value.
#[derive(Debug)]
pub enum RevertOutcome {
    /// It has the value before.
    Restored {
        /// The value until now.
        from: String,
    },
    /// It had the value before already.
    Already,
    /// It was changed since, and is left alone.
    ChangedSince {
        /// The value.
        now: String,
    },
    /// It does not exist any more: nothing to restore.
    Gone,
    /// It is of another network namespace, and left for a `revert` there.
    Elsewhere,
    /// It was refused.
    Failed(SettingError),
}

/// Restores every value that `select` takes, the last change first; with `force` also those that
/// were changed since. Records of restored values are removed, the rest is kept. The file that sets
/// sysctls at every start is removed with the last of them.
///
/// # Errors
/// The state or that file cannot be written.
pub fn revert(
    host: &Host,
    state: &mut State,
    force: bool,
    select: impl Fn(&Record) -> bool,
) -> Result<Vec<Restored>, persist::PersistError> {
    let records: Vec<Record> =
        state.records().iter().rev().filter(|record| select(record)).cloned().collect();
    if state.is_persisted() {
        persist::withdraw(host, state, &select)?;
    }
    let mut restored = Vec::new();
    for record in records {
        let outcome = restore(host, state, &record, force)?;
        let Record { item, setting, before: to, .. } = record;
        restored.push(Restored { item, setting, to, outcome });
    }
    Ok(restored)
}

fn restore(
    host: &Host,
    state: &mut State,
    record: &Record,
    force: bool,
) -> Result<RevertOutcome, StateError> {
    let Record { setting, before, after, .. } = record;
    if !state.is_here(record) {
        return Ok(RevertOutcome::Elsewhere);
    }
    let outcome = match setting.read(host) {
        Err(SettingError::Absent) => RevertOutcome::Gone,
        Err(_) if is_gone(host, setting) => RevertOutcome::Gone,
        Err(error) => return Ok(RevertOutcome::Failed(error)),
        Ok(now) if now == *before => RevertOutcome::Already,
        Ok(now) if now != *after && !force => return Ok(RevertOutcome::ChangedSince { now }),
        Ok(now) => {
            if let Err(error) = setting.write(host, before) {
                return Ok(RevertOutcome::Failed(error));
            }
            match setting.read(host) {
                Ok(then) if then == *before => RevertOutcome::Restored { from: now },
                Ok(_) | Err(_) => {
                    let unmoved = std::io::Error::other("the value did not change");
                    return Ok(RevertOutcome::Failed(SettingError::Kernel(unmoved)));
                }
            }
        }
    };
    state.forget(setting)?;
    Ok(outcome)
}

/// Returns whether the interface of a setting is gone; the complaint of `ethtool` is no evidence.
fn is_gone(host: &Host, setting: &Setting) -> bool {
    let Setting::Ethtool { interface, .. } = setting else { return false };
    !host.exists(&format!("/sys/class/net/{interface}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apply::apply;
    use crate::survey::survey;
    use crate::testing::{Fake, wants};

    const RMEM: &str = "/proc/sys/net/core/rmem_max";

    fn apply_all(fake: &Fake) {
        let items = || survey(fake.host(), &wants(), &[]).unwrap().items;
        apply(fake.host(), &mut fake.state(), items(), items).unwrap();
    }

    fn revert_all(fake: &Fake, force: bool) -> Vec<Restored> {
        revert(fake.host(), &mut fake.state(), force, |_| true).unwrap()
    }

    #[test]
    fn everything_is_as_it_was_before() {
        let fake = Fake::whole();
        let before = fake.snapshot();
        apply_all(&fake);
        assert_ne!(fake.snapshot(), before);
        let restored = revert_all(&fake, false);
        for restored in &restored {
            assert!(matches!(restored.outcome, RevertOutcome::Restored { .. }), "{restored:?}");
        }
        assert_eq!(restored.last().unwrap().item, "channels", "the last change goes first");
        assert_eq!(fake.snapshot(), before);
        assert!(revert_all(&fake, false).is_empty());
    }

    #[test]
    fn applying_twice_keeps_the_first_originals() {
        let fake = Fake::whole();
        let before = fake.snapshot();
        apply_all(&fake);
        // Somebody lowers a value in between, and tuning raises it again.
        fake.put(RMEM, "300000");
        apply_all(&fake);
        revert_all(&fake, false);
        assert_eq!(fake.snapshot(), before);
    }

    #[test]
    fn a_crash_between_note_and_change_is_no_obstacle() {
        let fake = Fake::whole();
        let before = fake.snapshot();
        let rmem = Setting::sysctl("net.core.rmem_max");
        fake.state().note("net.core.rmem_max", &rmem, ("212992", "4194304")).unwrap();
        let restored = revert_all(&fake, false);
        assert!(matches!(restored[0].outcome, RevertOutcome::Already), "{restored:?}");
        assert_eq!(fake.snapshot(), before);
        // The same, and the rest of the changes are made later.
        fake.state().note("net.core.rmem_max", &rmem, ("212992", "4194304")).unwrap();
        apply_all(&fake);
        revert_all(&fake, false);
        assert_eq!(fake.snapshot(), before);
    }

    #[test]
    fn values_changed_since_are_left_alone_unless_forced() {
        let fake = Fake::whole();
        let before = fake.snapshot();
        apply_all(&fake);
        fake.put(RMEM, "9999999");
        let restored = revert_all(&fake, false);
        let left: Vec<_> = restored
            .iter()
            .filter(|restored| matches!(restored.outcome, RevertOutcome::ChangedSince { .. }))
            .collect();
        assert_eq!(left.len(), 1);
        assert_eq!(left[0].item, "net.core.rmem_max");
        assert_eq!(fake.state().records().len(), 1, "kept for another time");
        revert_all(&fake, true);
        assert_eq!(fake.snapshot(), before);
    }

    #[test]
    fn an_interface_that_went_away_needs_nothing() {
        let fake = Fake::whole();
        apply_all(&fake);
        fake.remove("/sys/class/net/eth0");
        fake.remove_card("eth0");
        for restored in revert_all(&fake, false) {
            let gone = matches!(restored.outcome, RevertOutcome::Gone);
            let of_eth0 = restored.setting.to_string().contains("eth0");
            assert_eq!(gone, of_eth0, "{restored:?}");
        }
        assert_eq!(fake.state().records(), []);
    }

    #[test]
    fn values_of_another_namespace_are_left_for_it() {
        let fake = Fake::whole();
        apply_all(&fake);
        let applied = fake.snapshot();
        fake.link("/proc/self/ns/net", "net:[2]");
        let restored = revert_all(&fake, true);
        assert!(restored.iter().all(|r| matches!(r.outcome, RevertOutcome::Elsewhere)));
        assert_eq!(fake.snapshot(), applied);
        assert_eq!(fake.state().records().len(), restored.len());
    }
}
