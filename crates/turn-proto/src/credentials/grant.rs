//! The result of authentication: one value, whatever proved it.

use alloc::sync::Arc;
use core::time::Duration;

use fair_share::Claimant;
use state_format::{fields, variants};
use stun_wire::{IntegrityKey, IntegrityKind, UserName};
use turn_types::{ClientAddr, Realm, Secret, UnixSeconds};

use crate::policy::revoked::Revoked;
use crate::policy::{GrantLimits, Policy};

/// The long-term keys of a user (RFC 8489 §9.2.2). The password itself is never kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserKeys {
    /// MD5(username ":" realm ":" password).
    pub md5: Secret<[u8; 16]>,
    /// SHA-256 of the same; absent for users imported from a database that only has MD5 keys.
    pub sha256: Option<Secret<[u8; 32]>>,
}

/// Keys of the MESSAGE-INTEGRITY of a client's requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Keys {
    /// The keys of a password.
    LongTerm(UserKeys),
    /// The key of an access token.
    Token(TokenKeys),
}

/// The session key of an access token, and the key that encrypts the token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TokenKeys {
    /// Name of the encryption key.
    pub(crate) kid: Arc<str>,
    pub(crate) mac: Secret<Arc<[u8]>>,
    /// Encryption key; `None` in grants of earlier versions.
    pub(crate) sealed_by: Option<TokenKeyDigest>,
}

/// Digest of an encryption key, which tells it from a later key of the same name.
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

/// MESSAGE-INTEGRITY of the responses to a request.
#[derive(Clone, Debug)]
pub(crate) struct Integrity {
    /// Follows from the presence of password algorithms in the request, not from its kind of
    /// integrity (RFC 8489 §9.2.4).
    pub(crate) kind: IntegrityKind,
    /// The key of the request.
    pub(crate) key: IntegrityKey,
}

/// Permission to use the server, proved by a password, a shared secret or an access token. An
/// allocation keeps the grant of its Allocate or of a later Refresh: keys, never a password (RFC
/// 8656 §6).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Grant {
    pub(crate) realm: Realm,
    /// The authenticated name in its form ([`UserName`]); empty on an open
    /// relay.
    pub(crate) user: Arc<str>,
    /// USERNAME of a time-limited credential as sent, where `user` is another spelling: the
    /// password is made of it.
    pub(crate) other_spelling: Option<Arc<str>>,
    /// Account of the quotas: the name without the time stamp of a time-limited one.
    pub(crate) account: Arc<str>,
    /// Account of the latest token, if the allocation was created with another token.
    pub(crate) renewed_by: Option<Arc<str>>,
    /// Meaningless on an open relay.
    pub(crate) keys: Keys,
    /// End of a time-limited credential or an access token.
    pub(crate) expires: Option<UnixSeconds>,
    /// Limit of live allocations of this user instead of the realm's.
    pub(crate) allocations_max: Option<u32>,
    /// Limits of this credential beside those of its realm and user.
    pub(crate) limits: Option<Arc<GrantLimits>>,
    /// The database no longer has the user, or has other keys: the keys count in no outage.
    pub(crate) is_refuted: bool,
}

impl Grant {
    /// A client of an open relay.
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

    /// The client of the grant as it is counted in bounded tables and budgets.
    pub(crate) fn claimant(&self, client: ClientAddr) -> Claimant<'_> {
        Claimant::at(client.ip()).with_account(&self.realm, &self.account)
    }

    /// The same where realms compete: the only realm of a server is not counted.
    pub(crate) fn competing_claimant(&self, policy: &Policy, client: ClientAddr) -> Claimant<'_> {
        let claimant = self.claimant(client);
        if policy.realms.is_empty() { claimant.within_realm() } else { claimant }
    }

    /// Returns the name that the credential was made for.
    pub(crate) fn sent_name(&self) -> &str {
        self.other_spelling.as_ref().unwrap_or(&self.user)
    }

    /// Brings the name into its form: earlier versions kept names as clients sent them.
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

    /// Returns true if its name, account or token key is refused, or the account of the token that
    /// was shown last. USERNAME of a token is no user's name.
    pub(crate) fn is_revoked(&self, revoked: &Revoked) -> bool {
        let is_refused = |name: &Arc<str>| revoked.has_name(&self.realm, name);
        is_refused(&self.account)
            || self.renewed_by.as_ref().is_some_and(is_refused)
            || match &self.keys {
                Keys::Token(token) => revoked.has_token_key(&self.realm, &token.kid),
                Keys::LongTerm(_) => revoked.has_name(&self.realm, &self.user),
            }
    }

    /// Returns true if both are of one user (RFC 8656 §5), and so of one realm. A token does not
    /// name its user, and the next token of a session may have another key, so that any token of a
    /// realm matches any other.
    pub(crate) fn is_same_user(&self, other: &Self) -> bool {
        let same = match (&self.keys, &other.keys) {
            (Keys::Token(_), Keys::Token(_)) => true,
            (Keys::LongTerm(_), Keys::LongTerm(_)) => self.user == other.user,
            (Keys::Token(_), Keys::LongTerm(_)) | (Keys::LongTerm(_), Keys::Token(_)) => false,
        };
        same && self.realm == other.realm
    }

    /// Returns true if `other` may take the allocation of this grant to another 5-tuple. A token
    /// has to be the one shown last: a kid is shared by many users.
    pub(crate) fn may_be_moved_by(&self, other: &Self) -> bool {
        let same_token = match (&self.keys, &other.keys) {
            (Keys::Token(own), Keys::Token(shown)) => own.kid == shown.kid && own.mac == shown.mac,
            (Keys::LongTerm(_) | Keys::Token(_), _) => true,
        };
        self.is_same_user(other) && same_token
    }

    /// Takes over the name, keys and expiry of a token, or of another secret or password, in a
    /// Refresh: the allocation ends with what its client uses now. The account of the quotas stays.
    pub(crate) fn renew(&mut self, other: &Self) {
        self.is_refuted = other.is_refuted;
        // On a relay that was opened later, an equal key has proved no expiry.
        if other.keys.are_of_token() || other.keys != self.keys {
            self.user = Arc::clone(&other.user);
            self.other_spelling.clone_from(&other.other_spelling);
            self.renewed_by = (other.account != self.account).then(|| Arc::clone(&other.account));
            self.keys = other.keys.clone();
            self.expires = other.expires;
        }
    }

    /// Narrows its limits.
    pub(crate) fn limit(&mut self, by: &GrantLimits) {
        if !by.is_empty() {
            let limits = self.limits.as_ref().map_or_else(|| by.clone(), |own| own.and(by));
            self.limits = Some(Arc::new(limits));
        }
    }

    /// Live allocations that its account may have, in a realm with this quota; 0 is unlimited.
    pub(crate) fn allocations(&self, quota: u32) -> u32 {
        let quota = self.allocations_max.unwrap_or(quota);
        self.limits.as_ref().map_or(quota, |limits| limits.allocations(quota))
    }

    /// Bytes per second of an allocation in a realm with this rate; 0 is unlimited.
    pub(crate) fn rate(&self, quota: u64) -> u64 {
        self.limits.as_ref().map_or(quota, |limits| limits.rate(quota))
    }

    /// The part of `lifetime` that its limits allow.
    pub(crate) fn limited(&self, lifetime: Duration) -> Duration {
        self.limits.as_ref().map_or(lifetime, |limits| limits.lifetime(lifetime))
    }

    /// The part of `lifetime` that its limits allow, and before the end of the token: no allocation
    /// outlives its token (RFC 7635 §9).
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

    /// Users of tokens share the key's name: the session key tells one user from another.
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
