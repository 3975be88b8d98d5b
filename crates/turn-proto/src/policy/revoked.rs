//! Credentials that count no longer, though they would still prove their user.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;

use stun_wire::UserName;
use turn_types::Realm;

/// Names and keys of tokens that are refused, each in its realm. Their allocations end when a
/// policy with them comes in force.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Revoked {
    names: BTreeMap<Realm, BTreeSet<Arc<str>>>,
    token_keys: BTreeMap<Realm, BTreeSet<Arc<str>>>,
}

impl Revoked {
    /// Refuses a name: of a user, the account or the whole name of time-limited credentials, or the
    /// account of an access token. Grants have names in the same form.
    pub fn refuse_name(&mut self, realm: Realm, name: &UserName<'_>) {
        self.names.entry(realm).or_default().insert(name.as_str().into());
    }

    /// Refuses all access tokens that a key encrypts, by its name.
    pub fn refuse_token_key(&mut self, realm: Realm, kid: Arc<str>) {
        self.token_keys.entry(realm).or_default().insert(kid);
    }

    /// Returns true if a name is refused.
    pub(crate) fn has_name(&self, realm: &Realm, name: &str) -> bool {
        self.names.get(realm).is_some_and(|names| names.contains(name))
    }

    /// Returns true if the tokens of a key are refused.
    pub(crate) fn has_token_key(&self, realm: &Realm, kid: &str) -> bool {
        self.token_keys.get(realm).is_some_and(|kids| kids.contains(kid))
    }
}
