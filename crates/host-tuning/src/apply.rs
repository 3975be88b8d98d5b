//! Making changes, each recorded before it is made.

use crate::catalogue::CHANNELS;
use crate::host::Host;
use crate::item::{Change, Verdict};
use crate::setting::{Setting, SettingError};
use crate::state::{State, StateError};
use crate::survey::{Item, Scope};

/// A change and its outcome.
#[derive(Debug)]
pub struct Applied {
    /// The item that it was for.
    pub item: &'static str,
    /// Place of its value.
    pub scope: Scope,
    /// The setting.
    pub setting: Setting,
    /// Its new value.
    pub to: String,
    /// Outcome.
    pub outcome: Outcome,
}

/// Outcome of a change.
#[derive(Debug)]
pub enum Outcome {
    /// It was made.
    Changed {
        /// The value before.
        before: String,
    },
    /// The value was there already.
    Already,
    /// It was made, and the kernel chose another value.
    Differs {
        /// The value before.
        before: String,
        /// The value now.
        now: String,
    },
    /// It was refused, and the value is unchanged.
    Failed(SettingError),
}

/// Makes the changes that items advise, in their order. After a change of the channels, which makes
/// other queues and interrupts, `again` looks at the items behind it once more.
///
/// # Errors
/// The state cannot be written: nothing is changed without a record.
pub fn apply(
    host: &Host,
    state: &mut State,
    items: Vec<Item>,
    again: impl FnOnce() -> Vec<Item>,
) -> Result<Vec<Applied>, StateError> {
    let (channels, rest): (Vec<_>, Vec<_>) =
        items.into_iter().partition(|item| item.entry.name == CHANNELS);
    let mut applied = Vec::new();
    for item in &channels {
        make(host, state, item, &mut applied)?;
    }
    let changed = applied.iter().any(|applied| match applied.outcome {
        Outcome::Changed { .. } | Outcome::Differs { .. } => true,
        Outcome::Already | Outcome::Failed(_) => false,
    });
    let rest = if changed { again() } else { rest };
    for item in rest.iter().filter(|item| item.entry.name != CHANNELS) {
        make(host, state, item, &mut applied)?;
    }
    Ok(applied)
}

fn make(
    host: &Host,
    state: &mut State,
    item: &Item,
    applied: &mut Vec<Applied>,
) -> Result<(), StateError> {
    let changes = match &item.verdict {
        Verdict::Change { changes, .. } => changes.as_slice(),
        Verdict::Good | Verdict::ByHand { .. } | Verdict::Cannot { .. } => &[],
    };
    for change in changes {
        applied.push(Applied {
            item: item.entry.name,
            scope: item.scope.clone(),
            setting: change.setting.clone(),
            to: change.to.clone(),
            outcome: set(host, state, item.entry.name, change)?,
        });
    }
    Ok(())
}

fn set(
    host: &Host,
    state: &mut State,
    item: &str,
    Change { setting, to }: &Change,
) -> Result<Outcome, StateError> {
    let before = match setting.read(host) {
        Ok(before) => before,
        Err(error) => return Ok(Outcome::Failed(error)),
    };
    if before == *to {
        return Ok(Outcome::Already);
    }
    let earlier = state.noted(setting).map(|record| record.after.clone());
    state.note(item, setting, (&before, to))?;
    let refused = setting.write(host, to).err();
    let now = setting.read(host).unwrap_or_else(|_| before.clone());
    if now == before {
        match earlier {
            Some(earlier) => state.note(item, setting, (&before, &earlier))?,
            None => state.forget(setting)?,
        }
        let unmoved = || SettingError::Kernel(std::io::Error::other("the value did not change"));
        return Ok(Outcome::Failed(refused.unwrap_or_else(unmoved)));
    }
    if now == *to {
        return Ok(Outcome::Changed { before });
    }
    state.note(item, setting, (&before, &now))?;
    Ok(Outcome::Differs { before, now })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::survey::survey;
    use crate::testing::{Fake, wants};

    fn items(fake: &Fake) -> Vec<Item> {
        survey(fake.host(), &wants(), &[]).unwrap().items
    }

    fn apply_all(fake: &Fake) -> Vec<Applied> {
        apply(fake.host(), &mut fake.state(), items(fake), || items(fake)).unwrap()
    }

    #[test]
    fn advised_values_are_good_afterwards() {
        let fake = Fake::whole();
        let applied = apply_all(&fake);
        assert!(applied.len() > 10, "{applied:?}");
        for applied in &applied {
            assert!(matches!(applied.outcome, Outcome::Changed { .. }), "{applied:?}");
        }
        assert_eq!(applied[0].item, "channels", "they make the queues that the rest is about");
        for item in items(&fake) {
            assert!(!matches!(item.verdict, Verdict::Change { .. }), "{item:?}");
        }
        assert_eq!(fake.state().records().len(), applied.len());
        assert!(apply_all(&fake).is_empty(), "nothing is left to change");
        assert_eq!(fake.state().records().len(), applied.len());
    }

    #[test]
    fn queues_that_new_channels_bring_are_looked_at_again() {
        let fake = Fake::whole();
        let before = items(&fake);
        let again = || {
            fake.put("/sys/class/net/eth0/queues/rx-0/rps_cpus", "7");
            items(&fake)
        };
        let applied = apply(fake.host(), &mut fake.state(), before, again).unwrap();
        assert!(!applied.is_empty());
        assert!(applied.iter().all(|applied| applied.item != "rps"), "{applied:?}");
    }

    #[test]
    fn a_change_that_is_refused_is_not_noted() {
        let fake = Fake::whole();
        fake.set("eth0", "refuse", "gro");
        let applied = apply_all(&fake);
        let gro = applied.iter().find(|applied| applied.item == "gro").unwrap();
        let Outcome::Failed(error) = &gro.outcome else { panic!("{gro:?}") };
        assert!(error.to_string().contains("Could not change any device features"), "{error}");
        assert!(fake.state().noted(&gro.setting).is_none());
    }

    #[test]
    fn values_that_the_kernel_changed_are_recorded() {
        let fake = Fake::whole();
        fake.set("eth0", "rounds", "2048");
        let applied = apply_all(&fake);
        let ring = applied.iter().find(|applied| applied.item == "rx-ring").unwrap();
        assert!(matches!(&ring.outcome, Outcome::Differs { now, .. } if now == "2048"), "{ring:?}");
        assert_eq!(fake.state().noted(&ring.setting).unwrap().after, "2048");
    }
}
