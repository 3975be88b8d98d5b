//! The long-term credential mechanism (RFC 8489 §9.2.4): who sent a request?
//!
//! The checks run in the order of the RFC, and the first that fails decides:
//!
//! ```text
//! no integrity attribute                            401   the first step of every client
//! USERNAME or USERHASH, REALM or NONCE is missing   400
//! the nonce was never given to this client          438   departure, see below
//! password algorithms are not those offered         400   bid-down protection
//! realm is not ours, user unknown, integrity wrong  401
//! an access token is bad, or its key is unknown     401
//! a time-limited credential or token has run out    401
//! the nonce is too old                              438
//! ```
//!
//! **Departure.** A nonce that was never given to this address is refused before anything is looked up or
//! derived, although RFC 8489 asks for the user and the integrity first. Otherwise whoever forges source
//! addresses could make the server look users up and hash for them, datagram by datagram.
//!
//! Nothing here keeps state: a request that waits for a user to be looked up is read again when the
//! answer is there ([`authenticate_found`]).

use alloc::sync::Arc;
use core::time::Duration;

use stun_wire::{
    AttributeType, IntegrityKey, IntegrityKind, Message, MessageBuilder, Method, PasswordAlgorithm,
    SecurityFeatures, value,
};
use turn_types::{ClientAddr, Now, UnixSeconds};

use crate::command::UserQuery;
use crate::event::{UserAnswer, UserKeys};
use crate::nonce;
use crate::notice::Refusal;
use crate::policy::{AuthPolicy, Policy};

mod claim;
mod keys;
mod time_limited;
mod token;

pub(crate) use keys::Keys;

use claim::{Claim, ClaimedUser};
use time_limited::TimeLimitedName;

/// What is known about the sender of a request.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "one per request, passed on at once")]
pub(crate) enum AuthStep {
    /// They have proved who they are.
    Authenticated(Authenticated),
    /// Their keys have to be looked up; go on with [`authenticate_found`].
    NeedUser {
        /// Whom to look up.
        user: UserQuery,
        /// They hold the keys of the allocation on this 5-tuple: no stranger.
        known: bool,
    },
    /// Too many verifications have failed for their customer: nothing was verified.
    Spent,
    /// They have not.
    Refuse {
        /// Why.
        reason: Refusal,
        /// Who it was, if at least that was proved.
        user: Option<Arc<str>>,
    },
}

/// Somebody who has proved who they are.
#[derive(Clone, Debug)]
pub(crate) struct Authenticated {
    /// The name; empty on an open relay.
    pub(crate) user: Arc<str>,
    /// Whom quotas count: the name without the time stamp of a time-limited one.
    pub(crate) account: Arc<str>,
    /// The keys that proved it. On an open relay they mean nothing.
    pub(crate) keys: Keys,
    /// How answers to this request are sealed; not at all on an open relay.
    pub(crate) seal: Option<Seal>,
    /// When the credential runs out, if it does.
    pub(crate) expires: Option<UnixSeconds>,
    /// The user's own limit of live allocations, instead of the policy's.
    pub(crate) allocations_max: Option<u32>,
}

/// How the answers to a request are sealed.
#[derive(Clone, Debug)]
pub(crate) struct Seal {
    /// Decided by the presence of password algorithms in the request, not by the kind of integrity
    /// that it had (RFC 8489 §9.2.4).
    pub(crate) kind: IntegrityKind,
    /// The key of the request.
    pub(crate) key: IntegrityKey,
}

/// The credentials of the allocation on this 5-tuple: while the same user asks, nobody needs to be
/// looked up. But for prolonging it: a user who was deleted, or has another password now, or whose
/// shared secret is gone, is let in no longer than what was granted. An outage of the user database
/// ends nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known<'a> {
    pub(crate) user: &'a Arc<str>,
    pub(crate) account: &'a Arc<str>,
    pub(crate) keys: &'a Keys,
    pub(crate) expires: Option<UnixSeconds>,
}

/// A request and what it is judged by.
#[derive(Clone, Copy)]
struct Case<'a> {
    policy: &'a Policy,
    now: Now,
    message: &'a Message<'a>,
    claim: Claim<'a>,
}

/// Judges who sent a request, as far as that goes without asking anybody. Unless it `may_verify`, only the
/// keys of the allocation on this 5-tuple are tried.
pub(crate) fn authenticate(
    policy: &Policy,
    now: Now,
    from: ClientAddr,
    message: &Message<'_>,
    (known, may_verify): (Option<Known<'_>>, bool),
) -> AuthStep {
    if policy.auth.open {
        let step = known.and_then(|known| still_known(policy, now, from, message, known));
        return step.unwrap_or_else(|| AuthStep::Authenticated(Authenticated::nobody()));
    }
    let claim = match Claim::read(policy, now, from, message) {
        Ok(claim) => claim,
        Err(reason) => return refuse(reason),
    };
    let case = Case { policy, now, message, claim };
    let known = known.filter(|known| claim.user.is(known.user, &policy.realm));
    if !may_verify && known.is_none() {
        return AuthStep::Spent;
    }
    if let Some(step) = case.by_token() {
        return step;
    }
    if let Some(known) = known
        && let Some(seal) = case.seal(known.keys)
    {
        if !case.prolongs() {
            return case.accept(known.authenticated(seal));
        }
        if let Keys::Token(token) = known.keys {
            // A key that was taken away prolongs nothing.
            let kept = policy.auth.tokens.as_ref().and_then(|tokens| tokens.key(&token.kid));
            return match kept {
                Some(_) => case.accept(known.authenticated(seal)),
                None => refuse(Refusal::UnknownTokenKey),
            };
        }
        let from_database = known.expires.is_none();
        return match case.time_limited() {
            Some(who) => case.accept(who),
            None if from_database => case.ask(true),
            None => refuse(Refusal::WrongPassword),
        };
    }
    if !may_verify {
        return AuthStep::Spent;
    }
    match case.time_limited() {
        Some(who) => case.accept(who),
        None => case.ask(false),
    }
}

/// The client of an allocation that was made before the relay was opened: it seals its requests as before,
/// and expects sealed responses. `None`: anybody.
fn still_known(
    policy: &Policy,
    now: Now,
    from: ClientAddr,
    message: &Message<'_>,
    known: Known<'_>,
) -> Option<AuthStep> {
    let claim = Claim::read(policy, now, from, message).ok()?;
    let case = Case { policy, now, message, claim };
    // What has run out matters no more where nobody needs credentials.
    let known = Known { expires: None, ..known };
    let seal = case.seal(known.keys).filter(|_| claim.user.is(known.user, &policy.realm))?;
    Some(case.accept(known.authenticated(seal)))
}

/// How many verifications a refused request has cost: one for each shared secret that its name may have
/// been made with.
pub(crate) fn failed_verifications(policy: &Policy, message: &Message<'_>, reason: Refusal) -> u32 {
    let failed = matches!(
        reason,
        Refusal::UnknownUser
            | Refusal::WrongPassword
            | Refusal::BadToken
            | Refusal::CredentialExpired
    );
    let name = message.first(AttributeType::USERNAME).and_then(|name| value::username(name).ok());
    // Whether there is a time in it does not depend on what time it is.
    let limited = |name| TimeLimitedName::parse(name, UnixSeconds(0));
    let secrets = match name.and_then(limited) {
        Some(_) => u32::try_from(policy.auth.secrets.len()).unwrap_or(u32::MAX),
        None => 0,
    };
    if failed { secrets.max(1) } else { 0 }
}

/// Judges who sent a request for which [`authenticate`] said that a user is needed. `known` is as it
/// was there.
pub(crate) fn authenticate_found(
    policy: &Policy,
    now: Now,
    from: ClientAddr,
    message: &Message<'_>,
    (known, answer): (Option<Known<'_>>, &UserAnswer),
) -> AuthStep {
    let claim = match Claim::read(policy, now, from, message) {
        Ok(claim) => claim,
        Err(reason) => return refuse(reason),
    };
    let case = Case { policy, now, message, claim };
    let user = match answer {
        UserAnswer::Known(user) => user,
        UserAnswer::Unknown => {
            // As much work as for a known user, so that names cannot be told from the time.
            let _ = case.proves(&IntegrityKey::for_one_exchange(&[0; 32]));
            return refuse(case.nobody());
        }
        UserAnswer::Unavailable => {
            let known = known.filter(|known| claim.user.is(known.user, &policy.realm));
            let known = known.filter(|known| !known.keys.are_of_token());
            return match known.and_then(|known| Some((known, case.seal(known.keys)?))) {
                Some((known, seal)) => case.accept(known.authenticated(seal)),
                None => refuse(Refusal::UserDatabaseUnavailable),
            };
        }
    };
    let keys = Keys::LongTerm(user.keys);
    match case.seal(&keys) {
        Some(seal) => case.accept(Authenticated {
            user: Arc::clone(&user.name),
            account: Arc::clone(&user.name),
            keys,
            seal: Some(seal),
            expires: None,
            allocations_max: user.allocations_max,
        }),
        None => refuse(Refusal::WrongPassword),
    }
}

/// Appends what a client needs to try again: REALM, NONCE and, where there are SHA-256 keys,
/// PASSWORD-ALGORITHMS in a 401 or 438, nothing in any other answer (RFC 8489 §9.2.4). In a 401
/// also the name to ask an access token for, where they are taken (RFC 7635 §5).
pub(crate) fn challenge(
    builder: &mut MessageBuilder<'_>,
    policy: &Policy,
    now: Now,
    from: ClientAddr,
    reason: Refusal,
) {
    if matches!(reason.code(), 401 | 438) {
        let nonce = nonce::mint(&policy.auth.nonce_key, now.unix, from, features(policy));
        builder.realm(&policy.realm);
        builder.attribute(AttributeType::NONCE, nonce.as_bytes());
        if policy.auth.sha256 {
            builder.password_algorithms(&claim::OFFERED);
        }
    }
    if let Some(tokens) = &policy.auth.tokens
        && reason.code() == 401
    {
        builder.third_party_authorization(&tokens.server_name);
    }
}

/// The security features that nonces announce.
fn features(policy: &Policy) -> SecurityFeatures {
    let AuthPolicy { sha256, userhash, .. } = policy.auth;
    SecurityFeatures { password_algorithms: sha256, username_anonymity: userhash }
}

fn refuse(reason: Refusal) -> AuthStep {
    AuthStep::Refuse { reason, user: None }
}

impl Authenticated {
    /// A lifetime that may be granted: nothing outlives the token that it was granted under
    /// (RFC 7635 §9).
    pub(crate) fn at_most(&self, lifetime: Duration, now: UnixSeconds) -> Duration {
        match (&self.keys, self.expires) {
            (Keys::Token(_), Some(expires)) => {
                lifetime.min(Duration::from_secs(expires.0.saturating_sub(now.0)))
            }
            (Keys::Token(_) | Keys::LongTerm(_), _) => lifetime,
        }
    }

    /// Anybody, on an open relay.
    fn nobody() -> Self {
        Self {
            user: Arc::default(),
            account: Arc::default(),
            keys: Keys::LongTerm(UserKeys { md5: Default::default(), sha256: None }),
            seal: None,
            expires: None,
            allocations_max: None,
        }
    }
}

impl Known<'_> {
    fn authenticated(&self, seal: Seal) -> Authenticated {
        Authenticated {
            user: Arc::clone(self.user),
            account: Arc::clone(self.account),
            keys: self.keys.clone(),
            seal: Some(seal),
            expires: self.expires,
            allocations_max: None,
        }
    }
}

impl Case<'_> {
    /// Whoever shows an access token is judged by it and by nothing else. It counts in requests that
    /// begin or prolong something (RFC 7635 §9) or come by a connection of their own (RFC 6062), and where
    /// tokens are taken.
    fn by_token(&self) -> Option<AuthStep> {
        let authority = self.policy.auth.tokens.as_ref()?;
        let counts = [Method::ALLOCATE, Method::REFRESH, Method::CONNECTION_BIND];
        if !counts.contains(&self.message.method()) {
            return None;
        }
        let token = self.message.first(AttributeType::ACCESS_TOKEN)?;
        let ClaimedUser::Name(kid) = self.claim.user else {
            return Some(refuse(Refusal::UnknownTokenKey));
        };
        let grant = match token::open(authority, kid, token, self.now.unix) {
            Ok(grant) => grant,
            Err(reason) => return Some(refuse(reason)),
        };
        let (user, keys) = (Arc::clone(&grant.keys.kid), Keys::Token(grant.keys));
        let Some(seal) = self.seal(&keys) else {
            return Some(refuse(Refusal::WrongPassword));
        };
        Some(self.accept(Authenticated {
            user,
            account: grant.account,
            keys,
            seal: Some(seal),
            expires: Some(grant.expires),
            allocations_max: None,
        }))
    }

    /// A user whose password follows from a shared secret: the name says until when it is good.
    fn time_limited(&self) -> Option<Authenticated> {
        let ClaimedUser::Name(name) = self.claim.user else {
            return None;
        };
        let limited = TimeLimitedName::parse(name, self.now.unix)?;
        self.policy.auth.secrets.iter().find_map(|secret| {
            let keys = Keys::LongTerm(time_limited::keys(secret, name, &self.policy.realm)?);
            let seal = self.seal(&keys)?;
            Some(Authenticated {
                user: name.into(),
                account: limited.account.into(),
                keys,
                seal: Some(seal),
                expires: Some(limited.expires),
                allocations_max: None,
            })
        })
    }

    /// What to call it when nobody has the claimed name: where there are shared secrets, a
    /// time-limited name was most likely sealed with another one.
    fn nobody(&self) -> Refusal {
        let limited = matches!(self.claim.user, ClaimedUser::Name(name)
            if !self.policy.auth.secrets.is_empty()
                && TimeLimitedName::parse(name, self.now.unix).is_some());
        if limited { Refusal::WrongPassword } else { Refusal::UnknownUser }
    }

    /// What is left when nothing at hand proves the claim: the user database, if there is one.
    fn ask(&self, known: bool) -> AuthStep {
        if !self.policy.auth.users {
            return refuse(self.nobody());
        }
        let user = match self.claim.user {
            ClaimedUser::Name(name) => UserQuery::Name(name.into()),
            ClaimedUser::Hash(hash) if self.policy.auth.userhash => UserQuery::Hash(hash),
            // Never offered, so it names nobody.
            ClaimedUser::Hash(_) => return refuse(Refusal::UnknownUser),
        };
        AuthStep::NeedUser { user, known }
    }

    /// The last checks of somebody whose integrity is right: is the credential still good, is the
    /// nonce?
    fn accept(&self, who: Authenticated) -> AuthStep {
        let run_out = who.expires.is_some_and(|expires| self.now.unix >= expires);
        let reason = if run_out && self.is_bound_by_expiry(&who.keys) {
            Refusal::CredentialExpired
        } else if self.claim.nonce_is_stale {
            Refusal::StaleNonce
        } else {
            return AuthStep::Authenticated(who);
        };
        AuthStep::Refuse { reason, user: Some(who.user) }
    }

    /// Whether a credential that has run out no longer counts for this request: always for Allocate;
    /// for Refresh by choice, or if it is a token. Giving an allocation back is never refused for that.
    fn is_bound_by_expiry(&self, keys: &Keys) -> bool {
        let at_refresh = self.policy.auth.expiry_at_refresh || keys.are_of_token();
        self.message.method() == Method::ALLOCATE || (at_refresh && self.prolongs())
    }

    /// Whether the request would prolong an allocation.
    fn prolongs(&self) -> bool {
        let lifetime = self.message.first(AttributeType::LIFETIME).map(value::lifetime);
        self.message.method() == Method::REFRESH && lifetime != Some(Ok(0))
    }

    /// How to seal answers, if the request was sealed with these keys.
    fn seal(&self, keys: &Keys) -> Option<Seal> {
        let keys = match keys {
            Keys::LongTerm(keys) => keys,
            Keys::Token(token) => {
                // The key of both kinds of integrity: answers have the kind that the request had.
                let sha256 = self.message.integrity().sha256.is_some();
                let kind = if sha256 { IntegrityKind::Sha256 } else { IntegrityKind::Sha1 };
                let key = self.session_key(token.mac.expose())?;
                return Some(Seal { kind, key });
            }
        };
        let (kind, key) = match self.claim.algorithm {
            None => (IntegrityKind::Sha1, IntegrityKey::for_one_exchange(keys.md5.expose())),
            Some(PasswordAlgorithm::SHA256) => {
                let Some(key) = &keys.sha256 else {
                    // A user of whom only the MD5 key is known cannot prove anything by the other,
                    // and takes as long to be refused as one who is not known.
                    let _ = self.proves(&IntegrityKey::for_one_exchange(&[0; 32]));
                    return None;
                };
                (IntegrityKind::Sha256, IntegrityKey::for_one_exchange(key.expose()))
            }
            // MD5, the only other one that is offered.
            Some(_) => (IntegrityKind::Sha256, IntegrityKey::for_one_exchange(keys.md5.expose())),
        };
        self.proves(&key).then_some(Seal { kind, key })
    }

    /// The key that the request was sealed with, if it is that of the token.
    fn session_key(&self, mac_key: &[u8]) -> Option<IntegrityKey> {
        let coturn = self.policy.auth.tokens.as_ref().is_some_and(|tokens| tokens.coturn_clients);
        let first = mac_key.get(..token::COTURN_KEY_LEN).filter(|_| coturn);
        let mut keys =
            [Some(mac_key), first].into_iter().flatten().map(IntegrityKey::for_one_exchange);
        keys.find(|key| self.proves(key))
    }

    /// Whether the request was sealed with this key.
    fn proves(&self, key: &IntegrityKey) -> bool {
        self.message.verify(key)
    }
}

#[cfg(test)]
mod tests;
