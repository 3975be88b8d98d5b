//! Results of looking at an item.

use crate::setting::Setting;

/// One value to set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The setting.
    pub setting: Setting,
    /// Its new value.
    pub to: String,
}

/// Advice about an item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing to do.
    Good,
    /// Changes for `apply`, in this order.
    Change {
        /// The advised value, for people.
        advised: String,
        /// The values to set.
        changes: Vec<Change>,
    },
    /// Changes that only the operator makes.
    ByHand {
        /// The advised value, for people.
        advised: String,
        /// Instructions or conditions.
        how: String,
        /// Commands, if there are any.
        commands: Vec<String>,
    },
    /// It cannot be read or set here.
    Cannot {
        /// Reason.
        reason: String,
    },
}

/// The value of an item and the advice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// The value now, for people; empty where it is unknown.
    pub(crate) now: String,
    /// The advice.
    pub(crate) verdict: Verdict,
}

/// Outcome of a look: an error ends it early, and is a result as well.
pub(crate) type Looked = Result<Found, Found>;

pub(crate) fn good(now: impl ToString) -> Found {
    Found { now: now.to_string(), verdict: Verdict::Good }
}

pub(crate) fn cannot(now: impl ToString, reason: impl ToString) -> Found {
    Found { now: now.to_string(), verdict: Verdict::Cannot { reason: reason.to_string() } }
}

pub(crate) fn by_hand(now: impl ToString, advised: &str, how: &str, commands: &[String]) -> Found {
    let verdict = Verdict::ByHand {
        advised: advised.to_owned(),
        how: how.to_owned(),
        commands: commands.to_owned(),
    };
    Found { now: now.to_string(), verdict }
}

/// Advice to change settings; good where there are none to change.
pub(crate) fn change(now: impl ToString, advised: &str, changes: Vec<Change>) -> Found {
    if changes.is_empty() {
        return good(now);
    }
    let verdict = Verdict::Change { advised: advised.to_owned(), changes };
    Found { now: now.to_string(), verdict }
}

/// Advice to change one setting to the value that is shown.
pub(crate) fn set(now: impl ToString, setting: Setting, to: impl ToString) -> Found {
    let to = to.to_string();
    change(now, &to, vec![Change { setting, to: to.clone() }])
}
