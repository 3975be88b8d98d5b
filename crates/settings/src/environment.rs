//! Environment variables that override keys: `TURNPIKE_RELAY__PORTS` is `relay.ports`.
//!
//! A variable is the key in capitals, with two underscores between table and key. Other variables
//! that begin with `TURNPIKE_` are left alone, because other software makes such variables too
//! (Kubernetes does for a service called "turnpike"), unless they are so near to one of ours that they
//! must be a slip: a setting that silently does nothing is worse than an error.

use std::collections::BTreeMap;
use std::fmt;

use crate::error::{Errors, Place};
use crate::keys::{Key, keys};
use crate::suggest::nearest;

/// What every variable of ours begins with.
pub(crate) const PREFIX: &str = "TURNPIKE_";

/// The `TURNPIKE_` variables of a process.
#[derive(Clone, Default)]
pub struct Environment(BTreeMap<String, String>);

impl Environment {
    /// No variables: the file alone counts.
    #[must_use]
    pub const fn empty() -> Self {
        Self(BTreeMap::new())
    }

    pub(crate) fn of(&self, key: &Key) -> Option<&str> {
        self.0.get(&key.variable()).map(String::as_str)
    }

    /// Refuses variables that are a slip of one of ours.
    pub(crate) fn check_names(&self, errors: &mut Errors) {
        let known: Vec<String> = keys().map(Key::variable).collect();
        for name in self.0.keys().filter(|name| !known.contains(name)) {
            let suggestion = nearest(name, known.iter().map(String::as_str));
            // Two underscores are nobody's but ours.
            if suggestion.is_none() && !name.trim_start_matches(PREFIX).contains("__") {
                continue;
            }
            let help = suggestion.map_or_else(
                || {
                    "remove it; docs/configuration.md lists the keys, and the variable of each"
                        .to_owned()
                },
                |name| format!("did you mean {name}?"),
            );
            errors.add(Place::Environment(name.clone()), "", "there is no such key", help);
        }
    }
}

impl FromIterator<(String, String)> for Environment {
    /// Of all variables (`std::env::vars()`), those that concern the server.
    fn from_iter<I: IntoIterator<Item = (String, String)>>(all: I) -> Self {
        Self(all.into_iter().filter(|(name, _)| name.starts_with(PREFIX)).collect())
    }
}

impl fmt::Debug for Environment {
    /// Names alone: there may be secrets among the values.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}
