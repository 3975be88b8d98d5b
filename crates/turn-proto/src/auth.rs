//! Long-term credential mechanism (RFC 8489 §9.2.4).
//!
//! The checks follow the order of the RFC, and the first failed check decides:
//!
//! ```text
//! no integrity attribute                            401   the first step of every client
//! USERNAME or USERHASH, REALM or NONCE is missing   400
//! the nonce was never issued to this client         438   departure, see below
//! password algorithms differ from the offer         400   bid-down protection
//! unknown realm, USERNAME is not a valid name       401
//! user unknown, integrity wrong                     401
//! an access token is bad, or its key is unknown     401
//! the credential was revoked, or has expired        401
//! the nonce is too old                              438
//! ```
//!
//! **Departure.** A nonce that was never issued to this address is refused before any look-up or
//! key derivation. RFC 8489 requires the checks of user and integrity before the check of the
//! nonce. That order would let a sender of forged addresses cause a look-up and a hash computation
//! with each datagram.
//!
//! This module has no state. A request that waits for the look-up of its user is read again after
//! the look-up ([`authenticate_found`]).

use alloc::sync::Arc;

use stun_wire::{
    AttributeType, IntegrityKey, IntegrityKind, Message, MessageBuilder, Method, PasswordAlgorithm,
    SecurityFeatures, UserName, value,
};
use turn_types::{ClientAddr, Now, UnixSeconds};

use crate::credentials::{Grant, Integrity, Keys};
use crate::io::{Refusal, UserAnswer, UserQuery};
use crate::policy::{AuthPolicy, RealmRules};

mod claim;
mod nonce;

pub use self::nonce::shared_nonce_key;
pub(crate) use self::time_limited::account_of;
pub use self::time_limited::expiry_and_account;
mod time_limited;
mod token;

use self::claim::{Claim, ClaimedUser};
use self::time_limited::TimeLimitedName;

/// Result of a step of authentication.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "one per request, passed on at once")]
pub(crate) enum AuthStep {
    /// The request is authentic.
    Granted(Grant, Option<Integrity>),
    /// The keys must be looked up, and [`authenticate_found`] then continues.
    NeedUser {
        user: UserQuery,
        /// True if the request has the keys of the allocation on this 5-tuple.
        known: bool,
    },
    /// Too many verifications have failed for the customer, and this request was not verified.
    BudgetSpent,
    /// Too many look-ups wait, and the user was not looked up.
    LookupsOverloaded,
    /// The request is refused.
    Refuse {
        reason: Refusal,
        /// User of a request with correct integrity.
        user: Option<Arc<str>>,
    },
}

/// Request with the rules, time and claim for authentication.
#[derive(Clone)]
struct Case<'a> {
    rules: RealmRules<'a>,
    now: Now,
    message: &'a Message<'a>,
    claim: Claim<'a>,
}

/// Grant of the allocation on the 5-tuple of a request.
#[derive(Clone, Copy)]
pub(crate) struct KnownGrant<'a> {
    pub(crate) grant: &'a Grant,
    /// True if the keys were not confirmed within [`CONFIRMED_FOR`](crate::limits::CONFIRMED_FOR).
    pub(crate) is_due: bool,
}

/// Authenticates a request, if possible without a look-up. `known` is the grant of the allocation
/// on the 5-tuple. The keys of `known` need no look-up, except for a Refresh, and for requests for
/// peers after the database has refuted the keys.
///
/// If the keys are due for confirmation, a request for peers verifies keys of a shared secret or
/// token again. An outage of the user database ends no allocation. Without `may_verify`, a request
/// is verified only if `known` belongs to the claimed user.
pub(crate) fn authenticate(
    rules: RealmRules<'_>,
    now: Now,
    from: ClientAddr,
    message: &Message<'_>,
    known: Option<KnownGrant<'_>>,
    may_verify: bool,
) -> AuthStep {
    if rules.auth.open {
        let step = known.and_then(|known| still_known(rules, now, from, message, known.grant));
        let anybody = || AuthStep::Granted(Grant::anonymous(rules.name.clone()), None);
        return step.unwrap_or_else(anybody);
    }
    let claim = match Claim::read(rules, now, from, message) {
        Ok(claim) => claim,
        Err(Refusal::WrongRealm) if rules.auth.incomplete => {
            return refuse(Refusal::UserDatabaseUnavailable);
        }
        Err(reason) => return refuse(reason),
    };
    let case = Case { rules, now, message, claim };
    let known = known.filter(|known| case.is_of(known.grant));
    if !may_verify && known.is_none() {
        return AuthStep::BudgetSpent;
    }
    if let Some(step) = case.by_token() {
        return step;
    }
    if let Some(KnownGrant { grant: known, is_due }) = known
        && let Some(integrity) = case.verify(&known.keys)
    {
        // A look-up confirms due keys of database users, and the request does not wait for the
        // result.
        let is_doubtful = known.is_refuted || is_due && !known.is_of_database();
        if !(case.is_refresh() || is_doubtful && is_for_peers(message)) {
            return case.accept(known.clone(), integrity);
        }
        if let Keys::Token(token) = &known.keys {
            // A removed key refreshes no allocation.
            let tokens = rules.auth.tokens.as_ref();
            let is_kept = tokens.is_some_and(|tokens| token::is_accepted(tokens, token));
            return if is_kept || rules.auth.incomplete {
                case.accept(known.clone(), integrity)
            } else {
                refuse(Refusal::UnknownTokenKey)
            };
        }
        let from_database = known.expires.is_none();
        return match case.time_limited() {
            Some(step) => step,
            None if from_database => case.ask(true),
            None if rules.auth.incomplete => case.accept(known.clone(), integrity),
            None => refuse(Refusal::WrongSecret),
        };
    }
    if !may_verify {
        return AuthStep::BudgetSpent;
    }
    case.time_limited().unwrap_or_else(|| case.ask(false))
}

/// Authenticates the client of an allocation that is older than the open relay. Such a client
/// continues to use MESSAGE-INTEGRITY, and expects it in responses. `None` for any other client.
fn still_known(
    rules: RealmRules<'_>,
    now: Now,
    from: ClientAddr,
    message: &Message<'_>,
    known: &Grant,
) -> Option<AuthStep> {
    let claim = Claim::read(rules, now, from, message).ok()?;
    let case = Case { rules, now, message, claim };
    let integrity = case.verify(&known.keys).filter(|_| case.is_of(known))?;
    // An open relay needs no credentials, so expiry does not matter.
    Some(case.accept(Grant { expires: None, ..known.clone() }, integrity))
}

/// Returns the number of failed verifications for a refused request: one for each shared secret
/// that may have made the name, at least one in total. A correct integrity counts none, even with
/// an expired credential, because the sender guesses nothing.
pub(crate) fn failed_verifications(
    rules: RealmRules<'_>,
    message: &Message<'_>,
    reason: Refusal,
) -> u32 {
    let failed = matches!(
        reason,
        Refusal::UnknownUser | Refusal::WrongPassword | Refusal::WrongSecret | Refusal::BadToken
    );
    // The known secrets were tried.
    let failed = failed || rules.auth.incomplete && reason == Refusal::UserDatabaseUnavailable;
    let name = message.first(AttributeType::USERNAME).and_then(|name| value::username(name).ok());
    let name = name.and_then(|name| UserName::new(name).ok());
    // The result does not depend on the current time, which only selects between two numbers.
    let is_limited = name.is_some_and(|name| {
        TimeLimitedName::parse(name.as_str(), rules.auth.separator, UnixSeconds(0)).is_some()
    });
    let secrets =
        if is_limited { u32::try_from(rules.auth.secrets.len()).unwrap_or(u32::MAX) } else { 0 };
    if failed { secrets.max(1) } else { 0 }
}

/// Returns false if the realm of a grant was removed, or the secret or key that proved the grant.
/// Users of the database are not looked up.
pub(crate) fn is_still_accepted(rules: RealmRules<'_>, grant: &Grant) -> bool {
    let is_unknown =
        rules.auth.incomplete && (grant.expires.is_some() || grant.keys.are_of_token());
    // If the realm of the grant no longer exists, the rules belong to another realm. While a
    // database is unread, its realms are unknown.
    if grant.realm != *rules.name {
        return rules.auth.incomplete;
    }
    if rules.auth.open || grant.is_anonymous() || is_unknown {
        return true;
    }
    match &grant.keys {
        Keys::Token(token) => {
            let tokens = rules.auth.tokens.as_ref();
            tokens.is_some_and(|tokens| token::is_accepted(tokens, token))
        }
        Keys::LongTerm(keys) if grant.expires.is_some() => {
            let made = |secret| time_limited::keys(secret, grant.sent_name(), &grant.realm);
            rules.auth.secrets.iter().any(|secret| made(secret).as_ref() == Some(keys))
        }
        Keys::LongTerm(_) => rules.auth.users,
    }
}

/// Authenticates a request after the user look-up that [`authenticate`] required. `known` has the
/// same meaning there.
pub(crate) fn authenticate_found(
    rules: RealmRules<'_>,
    now: Now,
    from: ClientAddr,
    message: &Message<'_>,
    known: Option<&Grant>,
    answer: &UserAnswer,
) -> AuthStep {
    let claim = match Claim::read(rules, now, from, message) {
        Ok(claim) => claim,
        Err(reason) => return refuse(reason),
    };
    let case = Case { rules, now, message, claim };
    let user = match answer {
        UserAnswer::Known(user) | UserAnswer::LastKnown(user) => user,
        UserAnswer::Unknown => {
            // The work equals that for a known user, so the response time does not reveal names.
            let _ = case.proves(&IntegrityKey::for_one_exchange(&[0; 32]));
            return refuse(case.unknown_user());
        }
        UserAnswer::Overloaded => return AuthStep::LookupsOverloaded,
        UserAnswer::Unconfirmed => return refuse(Refusal::UserDatabaseUnavailable),
        UserAnswer::Unavailable => {
            let known = known.filter(|known| case.is_of(known) && !known.keys.are_of_token());
            let known = known.filter(|known| !known.is_refuted);
            return match known.and_then(|known| Some((known, case.verify(&known.keys)?))) {
                Some((known, integrity)) => case.accept(known.clone(), integrity),
                None => refuse(Refusal::UserDatabaseUnavailable),
            };
        }
    };
    let keys = Keys::LongTerm(user.keys);
    let Some(integrity) = case.verify(&keys) else { return refuse(Refusal::WrongPassword) };
    let grant = Grant {
        realm: rules.name.clone(),
        user: Arc::clone(&user.name),
        other_spelling: None,
        renewed_by: None,
        account: Arc::clone(&user.name),
        keys,
        expires: None,
        allocations_max: user.allocations_max,
        limits: None,
        is_refuted: false,
    };
    case.accept(grant, integrity)
}

/// Returns true if the response of the database refutes an allocation: the user does not exist, or
/// has other keys than the allocation.
pub(crate) fn is_refuted(
    rules: RealmRules<'_>,
    now: Now,
    from: ClientAddr,
    message: &Message<'_>,
    (known, answer): (&Grant, &UserAnswer),
) -> bool {
    let has_other_keys = match answer {
        UserAnswer::Known(user) | UserAnswer::LastKnown(user) => {
            Keys::LongTerm(user.keys) != known.keys
        }
        UserAnswer::Unknown => true,
        UserAnswer::Overloaded | UserAnswer::Unavailable | UserAnswer::Unconfirmed => false,
    };
    let is_of = |claim| Case { rules, now, message, claim }.is_of(known);
    has_other_keys
        && known.is_of_database()
        && Claim::read(rules, now, from, message).is_ok_and(is_of)
}

/// Appends the attributes that a client needs for another attempt. A 401 or 438 has REALM, NONCE
/// and, where there are SHA-256 keys, PASSWORD-ALGORITHMS (RFC 8489 §9.2.4). Where access tokens
/// are accepted, a 401 also has the server's name for tokens (RFC 7635 §5). Other responses get no
/// attributes.
pub(crate) fn challenge(
    builder: &mut MessageBuilder<'_>,
    rules: RealmRules<'_>,
    now: Now,
    from: ClientAddr,
    reason: Refusal,
) {
    if matches!(reason.code(), 401 | 438) {
        let nonce = nonce::mint(claim::issuer(rules), now.unix, from, features(rules));
        builder.realm(rules.name);
        builder.attribute(AttributeType::NONCE, nonce.as_bytes());
        if rules.auth.sha256 {
            builder.password_algorithms(&claim::OFFERED);
        }
    }
    if let Some(tokens) = &rules.auth.tokens
        && reason.code() == 401
    {
        builder.third_party_authorization(&tokens.server_name);
    }
}

/// Returns the security features announced by nonces.
fn features(rules: RealmRules<'_>) -> SecurityFeatures {
    let &AuthPolicy { sha256, userhash, .. } = rules.auth;
    SecurityFeatures { password_algorithms: sha256, username_anonymity: userhash }
}

/// Returns true for a request that adds or refreshes peers of an allocation.
pub(crate) fn is_for_peers(message: &Message<'_>) -> bool {
    matches!(message.method(), Method::CREATE_PERMISSION | Method::CHANNEL_BIND | Method::CONNECT)
}

fn refuse(reason: Refusal) -> AuthStep {
    AuthStep::Refuse { reason, user: None }
}

impl Case<'_> {
    /// Returns true if a grant belongs to the claimed user.
    fn is_of(&self, known: &Grant) -> bool {
        known.realm == *self.rules.name && self.claim.user.is(&known.user, self.rules.name)
    }

    /// Authenticates only by the access token of a request. `None` without a token, or where tokens
    /// do not apply. Tokens apply to Allocate and Refresh (RFC 7635 §9), and to ConnectionBind,
    /// which arrives on a separate connection (RFC 6062).
    fn by_token(&self) -> Option<AuthStep> {
        let authority = self.rules.auth.tokens.as_ref()?;
        let counts = [Method::ALLOCATE, Method::REFRESH, Method::CONNECTION_BIND];
        if !counts.contains(&self.message.method()) {
            return None;
        }
        let token = self.message.first(AttributeType::ACCESS_TOKEN)?;
        let ClaimedUser::Name(kid) = &self.claim.user else {
            return Some(refuse(Refusal::UnknownTokenKey));
        };
        let opened = token::open(self.rules.name, authority, kid.form(), token, self.now.unix);
        let grant = match opened {
            Ok(grant) => grant,
            Err(Refusal::UnknownTokenKey) if self.rules.auth.incomplete => {
                return Some(refuse(Refusal::UserDatabaseUnavailable));
            }
            Err(reason) => return Some(refuse(reason)),
        };
        let Some(integrity) = self.verify(&grant.keys) else {
            return Some(refuse(Refusal::WrongPassword));
        };
        Some(self.accept(grant, integrity))
    }

    /// Authenticates a time-limited name, which contains the expiry. The password is derived from
    /// the name and a shared secret.
    fn time_limited(&self) -> Option<AuthStep> {
        let ClaimedUser::Name(name) = &self.claim.user else {
            return None;
        };
        let form = name.form();
        let limited = TimeLimitedName::parse(form, self.rules.auth.separator, self.now.unix)?;
        self.rules.auth.secrets.iter().find_map(|secret| {
            // Services derive the password from the spelling that they issued.
            let keys = Keys::LongTerm(time_limited::keys(secret, name.sent, self.rules.name)?);
            let integrity = self.verify(&keys)?;
            // Limits are parsed only after the proof, to do no work for unauthenticated sources.
            let (account, limits) = limited.limits(self.rules.auth.limits_in_names);
            let Ok(limits) = limits else {
                let reason = Refusal::UnreadableLimits;
                return Some(AuthStep::Refuse { reason, user: Some(form.into()) });
            };
            let grant = Grant {
                realm: self.rules.name.clone(),
                user: form.into(),
                other_spelling: name.other_spelling().map(Arc::from),
                renewed_by: None,
                account: account.into(),
                keys,
                expires: Some(limited.expires),
                allocations_max: None,
                limits: limits.map(Arc::new),
                is_refuted: false,
            };
            Some(self.accept(grant, integrity))
        })
    }

    /// Returns the reason for an unknown name. Where there are shared secrets, another secret has
    /// most likely made a time-limited name.
    fn unknown_user(&self) -> Refusal {
        let ClaimedUser::Name(name) = &self.claim.user else {
            return Refusal::UnknownUser;
        };
        let has_time = || {
            TimeLimitedName::parse(name.form(), self.rules.auth.separator, self.now.unix).is_some()
        };
        let has_token = || self.message.first(AttributeType::ACCESS_TOKEN).is_some();
        if self.rules.auth.incomplete && (has_time() || has_token()) {
            return Refusal::UserDatabaseUnavailable;
        }
        let limited = !self.rules.auth.secrets.is_empty() && has_time();
        if limited { Refusal::WrongSecret } else { Refusal::UnknownUser }
    }

    /// Requests a look-up in the user database, if there is a database. Called when no known key
    /// proves the claim.
    fn ask(&self, known: bool) -> AuthStep {
        if !self.rules.auth.users {
            return refuse(self.unknown_user());
        }
        let user = match &self.claim.user {
            ClaimedUser::Name(name) => UserQuery::Name(name.form().into()),
            ClaimedUser::Hash(hash) if self.rules.auth.userhash => UserQuery::Hash(*hash),
            // USERHASH was never offered, and names no user.
            ClaimedUser::Hash(_) => return refuse(Refusal::UnknownUser),
        };
        AuthStep::NeedUser { user, known }
    }

    /// Performs the last checks after a correct integrity: revocation and expiry of the credential,
    /// and age of the nonce.
    fn accept(&self, grant: Grant, integrity: Integrity) -> AuthStep {
        let expired = grant.expires.is_some_and(|expires| self.now.unix >= expires);
        let reason = if grant.is_revoked(self.rules.revoked) && !self.rules.auth.open {
            Refusal::CredentialRevoked
        } else if expired && self.is_bound_by_expiry(&grant.keys) {
            Refusal::CredentialExpired
        } else if self.claim.nonce_is_stale {
            Refusal::StaleNonce
        } else {
            return AuthStep::Granted(grant, Some(integrity));
        };
        AuthStep::Refuse { reason, user: Some(grant.user) }
    }

    /// Returns true if an expired credential is not accepted for this request. Allocate always
    /// refuses expired credentials. Refresh and requests for peers refuse expired tokens, and other
    /// credentials by the policy's choice. Deleting an allocation is always possible.
    fn is_bound_by_expiry(&self, keys: &Keys) -> bool {
        let at_refresh = self.rules.auth.expiry_at_refresh || keys.are_of_token();
        let prolongs = self.is_refresh() || is_for_peers(self.message);
        self.message.method() == Method::ALLOCATE || at_refresh && prolongs
    }

    /// Returns true for a Refresh that does not delete the allocation.
    fn is_refresh(&self) -> bool {
        let lifetime = self.message.first(AttributeType::LIFETIME).map(value::lifetime);
        self.message.method() == Method::REFRESH && lifetime != Some(Ok(0))
    }

    /// Verifies the request with these keys, and returns the integrity for the responses.
    fn verify(&self, keys: &Keys) -> Option<Integrity> {
        let keys = match keys {
            Keys::LongTerm(keys) => keys,
            Keys::Token(token) => {
                // One key serves both kinds of integrity, and responses have the kind of the
                // request.
                let sha256 = self.message.integrity().sha256.is_some();
                let kind = if sha256 { IntegrityKind::Sha256 } else { IntegrityKind::Sha1 };
                let key = self.session_key(token.mac.expose())?;
                return Some(Integrity { kind, key });
            }
        };
        let (kind, key) = match self.claim.algorithm {
            None => (IntegrityKind::Sha1, IntegrityKey::for_one_exchange(keys.md5.expose())),
            Some(PasswordAlgorithm::SHA256) => {
                let Some(key) = &keys.sha256 else {
                    // The MD5 key proves nothing here. The refusal takes as long as for an unknown
                    // user.
                    let _ = self.proves(&IntegrityKey::for_one_exchange(&[0; 32]));
                    return None;
                };
                (IntegrityKind::Sha256, IntegrityKey::for_one_exchange(key.expose()))
            }
            // The only other offered algorithm is MD5.
            Some(_) => (IntegrityKind::Sha256, IntegrityKey::for_one_exchange(keys.md5.expose())),
        };
        self.proves(&key).then_some(Integrity { kind, key })
    }

    /// Returns the key of the request's integrity, if the token's session key made the integrity.
    fn session_key(&self, mac_key: &[u8]) -> Option<IntegrityKey> {
        let coturn = self.rules.auth.tokens.as_ref().is_some_and(|tokens| tokens.coturn_clients);
        let first = mac_key.get(..token::COTURN_KEY_LEN).filter(|_| coturn);
        let mut keys =
            [Some(mac_key), first].into_iter().flatten().map(IntegrityKey::for_one_exchange);
        keys.find(|key| self.proves(key))
    }

    /// Returns true if this key made the request's integrity.
    fn proves(&self, key: &IntegrityKey) -> bool {
        self.message.verify(key)
    }
}

#[cfg(test)]
mod tests;
