//! An item on a host: what it is now, what is advised, and how it is set.

use std::fmt;

use crate::entry::Entry;
use crate::setting::Setting;

/// Where an item's value belongs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The host.
    Host,
    /// An interface.
    Interface(String),
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host => f.write_str("host"),
            Self::Interface(name) => f.write_str(name),
        }
    }
}

/// One value to set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Where.
    pub setting: Setting,
    /// To what.
    pub to: String,
}

/// What is to be done about an item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing.
    Good,
    /// These changes, in this order.
    Change {
        /// The value that is advised, for people.
        advised: String,
        /// What sets it.
        changes: Vec<Change>,
    },
    /// Something that only the operator does.
    ByHand {
        /// The value that is advised, for people.
        advised: String,
        /// What to do, or to know before doing it.
        how: String,
        /// Commands that do it, if there are any.
        commands: Vec<String>,
    },
    /// It cannot be read or set here.
    Cannot {
        /// Why.
        reason: String,
    },
}

/// An item on a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// What it is.
    pub entry: &'static Entry,
    /// Where its value belongs.
    pub scope: Scope,
    /// What it is now, for people; empty where that is not known.
    pub now: String,
    /// What is to be done.
    pub verdict: Verdict,
}

impl Item {
    /// An item with the value it has now and what is to be done about it.
    pub(crate) fn new(entry: &'static Entry, now: impl Into<String>, verdict: Verdict) -> Self {
        Self { entry, scope: Scope::Host, now: now.into(), verdict }
    }

    /// An item that is as it should be.
    pub(crate) fn good(entry: &'static Entry, now: impl Into<String>) -> Self {
        Self::new(entry, now, Verdict::Good)
    }

    /// An item that cannot be read or set.
    pub(crate) fn cannot(
        entry: &'static Entry,
        now: impl Into<String>,
        reason: impl Into<String>,
    ) -> Self {
        Self::new(entry, now, Verdict::Cannot { reason: reason.into() })
    }

    /// The same item of an interface.
    pub(crate) fn of(self, interface: &str) -> Self {
        Self { scope: Scope::Interface(interface.to_owned()), ..self }
    }
}
