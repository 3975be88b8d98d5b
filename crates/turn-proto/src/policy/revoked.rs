//! Revoked credentials, which are refused although the credentials would still prove a user.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;

use stun_wire::UserName;
use turn_types::Realm;

use super::grant_limits::GrantLimits;

/// Refused names and refused token keys, by realm. Allocations of these credentials are removed
/// when a policy with this value takes effect.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Revoked {
    names: BTreeMap<Realm, BTreeSet<Arc<str>>>,
    token_keys: BTreeMap<Realm, BTreeSet<Arc<str>>>,
}

impl Revoked {
    /// Refuses a name: the name of a user, the account or complete name of time-limited
    /// credentials, or the account of an access token. Grants store names in the same form.
    ///
    /// A name with limits and the name without limits are refused together, even if the policy has
    /// no limits in names. A reload may change this setting, and thereby the account of a
    /// credential.
    pub fn refuse_name(&mut self, realm: Realm, name: &UserName<'_>) {
        self.names.entry(realm).or_default().insert(without_limits(name.as_str()).into());
    }

    /// Refuses all access tokens encrypted with a key. `kid` is the name of the key.
    pub fn refuse_token_key(&mut self, realm: Realm, kid: Arc<str>) {
        self.token_keys.entry(realm).or_default().insert(kid);
    }

    /// Returns true if a name is refused.
    pub(crate) fn has_name(&self, realm: &Realm, name: &str) -> bool {
        self.names.get(realm).is_some_and(|names| names.contains(without_limits(name)))
    }

    /// Returns true if the tokens of a key are refused.
    pub(crate) fn has_token_key(&self, realm: &Realm, kid: &str) -> bool {
        self.token_keys.get(realm).is_some_and(|kids| kids.contains(kid))
    }
}

/// Returns a name without the [limits](GrantLimits) after a question mark. Any other text after a
/// question mark is part of the name.
#[must_use]
pub fn without_limits(name: &str) -> &str {
    match name.split_once('?') {
        Some((account, limits)) if !account.is_empty() && limits.parse::<GrantLimits>().is_ok() => {
            account
        }
        Some(_) | None => name,
    }
}
