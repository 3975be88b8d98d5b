//! Grant: the result of authentication, regardless of the kind of credential.

use alloc::sync::Arc;
use core::time::Duration;

use fair_share::Claimant;
use state_format::{fields, variants};
use stun_wire::{IntegrityKey, IntegrityKind, UserName};
use turn_types::{ClientAddr, Realm, Secret, UnixSeconds};

use crate::policy::revoked::Revoked;
use crate::policy::{GrantLimits, Policy};

/// Long-term keys of a user (RFC 8489 §9.2.2). The password is never stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserKeys {
    /// MD5(username ":" realm ":" password).
    pub md5: Secret<[u8; 16]>,
    /// SHA-256(username ":" realm ":" password). Absent for users imported from a database that has
    /// only MD5 keys.
    pub sha256: Option<Secret<[u8; 32]>>,
}

/// Keys for the MESSAGE-INTEGRITY of a client's requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Keys {
    /// Keys of a password.
    LongTerm(UserKeys),
    /// Key of an access token.
    Token(TokenKeys),
}

/// Session key of an access token, and the key that encrypts the token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TokenKeys {
    /// Name of the encryption key.
    pub(crate) kid: Arc<str>,
    pub(crate) mac: Secret<Arc<[u8]>>,
    /// Encryption key; `None` in grants of earlier versions.
    pub(crate) sealed_by: Option<TokenKeyDigest>,
}

/// Digest of an encryption key, to distinguish the key from a later key of the same name.
pub(crate) type TokenKeyDigest = [u8; 16];

fields!(Grant {
    1 => realm,
    2 => user,
    3 => account,
    4 => keys,
    5 => expires,
    6 => allocations_max,
    7 => limits,
    8 => other_spelling or None,
    9 => renewed_by or None,
    10 => is_refuted or false,
});
fields!(UserKeys { 1 => md5, 2 => sha256 });
fields!(TokenKeys { 1 => kid, 2 => mac, 3 => sealed_by or None });

variants!(Keys, "kind of keys" { 1 => LongTerm(keys), 2 => Token(keys) });

impl Keys {
    /// Returns true for the key of an access token.
    pub(crate) const fn are_of_token(&self) -> bool {
        matches!(self, Self::Token(_))
    }
}

/// MESSAGE-INTEGRITY for the responses to a request.
#[derive(Clone, Debug)]
pub(crate) struct Integrity {
    /// Kind of integrity. This depends on whether the request has password algorithms, not on the
    /// request's kind of integrity (RFC 8489 §9.2.4).
    pub(crate) kind: IntegrityKind,
    /// Key that verified the request.
    pub(crate) key: IntegrityKey,
}

/// Permission to use the server, proved by a password, a shared secret or an access token. An
/// allocation stores the grant of its Allocate or of a later Refresh. Grants contain keys, never a
/// password (RFC 8656 §6).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Grant {
    pub(crate) realm: Realm,
    /// Authenticated name in canonical form ([`UserName`]); empty on an open relay.
    pub(crate) user: Arc<str>,
    /// USERNAME of a time-limited credential as sent, if different from `user`. The password is
    /// derived from this spelling.
    pub(crate) other_spelling: Option<Arc<str>>,
    /// Account of the quotas: the user name without the time stamp of a time-limited name.
    pub(crate) account: Arc<str>,
    /// Account of the latest token, if different from `account`.
    pub(crate) renewed_by: Option<Arc<str>>,
    /// Keys of the user, not used on an open relay.
    pub(crate) keys: Keys,
    /// Expiry of a time-limited credential or an access token.
    pub(crate) expires: Option<UnixSeconds>,
    /// Maximum number of live allocations of this user, instead of the realm's limit.
    pub(crate) allocations_max: Option<u32>,
    /// Limits of this credential, in addition to the limits of the realm and user.
    pub(crate) limits: Option<Arc<GrantLimits>>,
    /// True if the database no longer has the user, or has other keys. The keys are then not
    /// accepted during an outage of the database.
    pub(crate) is_refuted: bool,
}

impl Grant {
    /// Returns the grant of a client of an open relay.
    pub(crate) fn anonymous(realm: Realm) -> Self {
        Self {
            realm,
            user: Arc::default(),
            other_spelling: None,
            account: Arc::default(),
            renewed_by: None,
            keys: Keys::LongTerm(UserKeys { md5: Default::default(), sha256: None }),
            expires: None,
            allocations_max: None,
            limits: None,
            is_refuted: false,
        }
    }

    /// Returns the client of the grant in the form counted by bounded tables and budgets.
    pub(crate) fn claimant(&self, client: ClientAddr) -> Claimant<'_> {
        Claimant::at(client.ip()).with_account(&self.realm, &self.account)
    }

    /// Returns [`Self::claimant`] for tables in which realms compete. The only realm of a server is
    /// not counted.
    pub(crate) fn competing_claimant(&self, policy: &Policy, client: ClientAddr) -> Claimant<'_> {
        let claimant = self.claimant(client);
        if policy.realms.is_empty() { claimant.within_realm() } else { claimant }
    }

    /// Returns the name for which the credential was made.
    pub(crate) fn sent_name(&self) -> &str {
        self.other_spelling.as_ref().unwrap_or(&self.user)
    }

    /// Brings the name into canonical form. Earlier versions stored names as clients sent them.
    pub(crate) fn in_form(self) -> Self {
        let form = UserName::form_of(&self.user);
        if *form == *self.user {
            return self;
        }
        let (user, account) = (form.into(), UserName::form_of(&self.account).into());
        Self { user, account, other_spelling: Some(self.user.clone()), ..self }
    }

    /// Returns true for a grant without credentials.
    pub(crate) fn is_anonymous(&self) -> bool {
        self.user.is_empty()
    }

    /// Returns true for a user of the database.
    pub(crate) fn is_of_database(&self) -> bool {
        let is_stored = !self.keys.are_of_token() && self.expires.is_none();
        is_stored && !self.is_anonymous()
    }

    /// Returns true if the user name, account or token key is revoked, or the account of the latest
    /// token. USERNAME of a token is not the name of a user.
    pub(crate) fn is_revoked(&self, revoked: &Revoked) -> bool {
        let is_refused = |name: &Arc<str>| revoked.has_name(&self.realm, name);
        is_refused(&self.account)
            || self.renewed_by.as_ref().is_some_and(is_refused)
            || match &self.keys {
                Keys::Token(token) => revoked.has_token_key(&self.realm, &token.kid),
                Keys::LongTerm(_) => revoked.has_name(&self.realm, &self.user),
            }
    }

    /// Returns true if both grants belong to the same user of the same realm (RFC 8656 §5). A token
    /// does not name its user, and the next token of a session may have another key. Any two tokens
    /// of a realm therefore match.
    pub(crate) fn is_same_user(&self, other: &Self) -> bool {
        let same = match (&self.keys, &other.keys) {
            (Keys::Token(_), Keys::Token(_)) => true,
            (Keys::LongTerm(_), Keys::LongTerm(_)) => self.user == other.user,
            (Keys::Token(_), Keys::LongTerm(_)) | (Keys::LongTerm(_), Keys::Token(_)) => false,
        };
        same && self.realm == other.realm
    }

    /// Returns true if `other` may move the allocation of this grant to another 5-tuple. A token
    /// must be the latest token of the allocation, because many users share a kid.
    pub(crate) fn may_be_moved_by(&self, other: &Self) -> bool {
        let same_token = match (&self.keys, &other.keys) {
            (Keys::Token(own), Keys::Token(shown)) => own.kid == shown.kid && own.mac == shown.mac,
            (Keys::LongTerm(_) | Keys::Token(_), _) => true,
        };
        self.is_same_user(other) && same_token
    }

    /// Replaces name, keys and expiry by those of another token, secret or password in a Refresh.
    /// The allocation then depends on the client's current credential. The account of the quotas is
    /// unchanged.
    pub(crate) fn renew(&mut self, other: &Self) {
        self.is_refuted = other.is_refuted;
        // If the relay has since become an open relay, an equal key has proved no expiry.
        if other.keys.are_of_token() || other.keys != self.keys {
            self.user = Arc::clone(&other.user);
            self.other_spelling.clone_from(&other.other_spelling);
            self.renewed_by = (other.account != self.account).then(|| Arc::clone(&other.account));
            self.keys = other.keys.clone();
            self.expires = other.expires;
        }
    }

    /// Narrows the limits of the grant.
    pub(crate) fn limit(&mut self, by: &GrantLimits) {
        if !by.is_empty() {
            let limits = self.limits.as_ref().map_or_else(|| by.clone(), |own| own.and(by));
            self.limits = Some(Arc::new(limits));
        }
    }

    /// Returns the maximum number of live allocations of the account, in a realm with this quota; 0
    /// is unlimited.
    pub(crate) fn allocations(&self, quota: u32) -> u32 {
        let quota = self.allocations_max.unwrap_or(quota);
        self.limits.as_ref().map_or(quota, |limits| limits.allocations(quota))
    }

    /// Returns the maximum bytes per second of an allocation, in a realm with this rate; 0 is
    /// unlimited.
    pub(crate) fn rate(&self, quota: u64) -> u64 {
        self.limits.as_ref().map_or(quota, |limits| limits.rate(quota))
    }

    /// Returns `lifetime`, reduced to the limits of the grant.
    pub(crate) fn limited(&self, lifetime: Duration) -> Duration {
        self.limits.as_ref().map_or(lifetime, |limits| limits.lifetime(lifetime))
    }

    /// Returns `lifetime`, reduced to the limits of the grant and to the expiry of a token. No
    /// allocation outlives its token (RFC 7635 §9).
    pub(crate) fn at_most(&self, lifetime: Duration, now: UnixSeconds) -> Duration {
        let lifetime = self.limited(lifetime);
        match (&self.keys, self.expires) {
            (Keys::Token(_), Some(expires)) => {
                lifetime.min(Duration::from_secs(expires.0.saturating_sub(now.0)))
            }
            (Keys::Token(_) | Keys::LongTerm(_), _) => lifetime,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant(user: &str, keys: Keys) -> Grant {
        Grant { user: user.into(), keys, ..Grant::anonymous("example.org".into()) }
    }

    fn password(user: &str, byte: u8) -> Grant {
        let keys = UserKeys { md5: Secret::new([byte; 16]), sha256: None };
        grant(user, Keys::LongTerm(keys))
    }

    fn token(byte: u8) -> Grant {
        let mac = Secret::new(Arc::from([byte; 20]));
        grant("kid", Keys::Token(TokenKeys { kid: "kid".into(), mac, sealed_by: None }))
    }

    #[test]
    fn a_name_of_an_earlier_version_takes_its_form() {
        let grant = Grant { account: "zoe\u{308}".into(), ..password("1900000000:zoe\u{308}", 1) };
        let grant = grant.in_form();
        assert_eq!((&*grant.user, &*grant.account), ("1900000000:zo\u{eb}", "zo\u{eb}"));
        assert_eq!(grant.sent_name(), "1900000000:zoe\u{308}");
        let ann = password("ann", 1);
        assert_eq!(ann.clone().in_form(), ann);
    }

    /// Users of tokens share the name of the key. The session key distinguishes the users.
    #[test]
    fn an_allocation_moves_with_its_user_or_its_own_token() {
        let ann = password("ann", 1);
        assert!(ann.may_be_moved_by(&ann));
        assert!(ann.may_be_moved_by(&password("ann", 2)), "a new password");
        assert!(!ann.may_be_moved_by(&password("bob", 1)));
        assert!(token(1).may_be_moved_by(&token(1)));
        assert!(!token(1).may_be_moved_by(&token(2)));
        assert!(!token(1).may_be_moved_by(&password("kid", 1)));
        assert!(!password("kid", 1).may_be_moved_by(&token(1)));
        let elsewhere = Grant { realm: "elsewhere.example".into(), ..ann.clone() };
        assert!(!ann.may_be_moved_by(&elsewhere));
    }
}
