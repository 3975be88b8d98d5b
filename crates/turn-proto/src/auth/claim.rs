//! Claims in a request about the sender, before any proof.

use stun_wire::{AttributeType, Message, Method, PasswordAlgorithm, UserName, userhash, value};
use turn_types::{ClientAddr, Now};

use super::nonce::{self, Issuer, NonceState, Ports};
use crate::io::Refusal;
use crate::policy::RealmRules;

/// Password algorithms offered to clients, preferred first. MD5 is for old clients (RFC 8489
/// §16.1.3).
pub(super) const OFFERED: [PasswordAlgorithm; 2] =
    [PasswordAlgorithm::SHA256, PasswordAlgorithm::MD5];

/// PASSWORD-ALGORITHMS as sent to clients. A client repeats these bytes exactly, unless an attacker
/// on the path has shortened the list.
const OFFERED_BYTES: [u8; 8] = {
    let [[a0, a1], [b0, b1]] = [OFFERED[0].0.to_be_bytes(), OFFERED[1].0.to_be_bytes()];
    [a0, a1, 0, 0, b0, b1, 0, 0]
};

/// Returns the issuer of a realm's nonces.
pub(super) fn issuer(rules: RealmRules<'_>) -> Issuer<'_> {
    Issuer { key: &rules.auth.nonce_key, realm: rules.name }
}

/// Claimed user of a request with a nonce issued to the sender's address.
#[derive(Clone, Debug)]
pub(super) struct Claim<'a> {
    pub(super) user: ClaimedUser<'a>,
    /// PASSWORD-ALGORITHM. `None`: an old client, whose key is MD5.
    pub(super) algorithm: Option<PasswordAlgorithm>,
    pub(super) nonce_is_stale: bool,
}

/// User attribute of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ClaimedUser<'a> {
    /// USERNAME.
    Name(ClaimedName<'a>),
    /// USERHASH.
    Hash([u8; 32]),
}

/// USERNAME of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ClaimedName<'a> {
    /// Name in the client's spelling. The client's key is derived from these bytes (RFC 8489
    /// §9.2.2).
    pub(super) sent: &'a str,
    /// Canonical form of the name, which identifies the user everywhere else.
    pub(super) form: UserName<'a>,
}

impl ClaimedName<'_> {
    /// Returns the canonical form of the name.
    pub(super) fn form(&self) -> &str {
        self.form.as_str()
    }

    /// Returns the client's spelling of the name, if different from the canonical form.
    pub(super) fn other_spelling(&self) -> Option<&str> {
        (self.sent != self.form()).then_some(self.sent)
    }
}

impl<'a> Claim<'a> {
    /// Reads the claims of a request, and refuses impossible claims.
    pub(super) fn read(
        rules: RealmRules<'_>,
        now: Now,
        from: ClientAddr,
        message: &Message<'a>,
    ) -> Result<Self, Refusal> {
        if !message.integrity().is_present() {
            return Err(Refusal::NoCredentials);
        }
        let user = UserAttribute::read(message)?;
        let realm = message.first(AttributeType::REALM).ok_or(Refusal::IncompleteCredentials)?;
        let nonce = message.first(AttributeType::NONCE).ok_or(Refusal::IncompleteCredentials)?;
        // A data connection may use the nonce of the connection that has the allocation. Some
        // client libraries treat a 438 on data connections as final (RFC 6062 §4.3).
        let ports =
            if message.method() == Method::CONNECTION_BIND { Ports::Any } else { Ports::Own };
        let judged =
            nonce::judge(issuer(rules), now.unix, rules.lifetimes.nonce, from, ports, nonce);
        let (features, nonce_is_stale) = match judged {
            NonceState::Fresh(features) => (features, false),
            NonceState::Stale(features) => (features, true),
            NonceState::Invalid => return Err(Refusal::InvalidNonce),
        };
        // The nonce contains the features offered with it, which may differ from the current offer.
        let algorithm = algorithm(message, features.password_algorithms)?;
        if realm != rules.name.as_bytes() {
            return Err(Refusal::WrongRealm);
        }
        Ok(Self { user: user.claimed()?, algorithm, nonce_is_stale })
    }
}

/// User attribute of a request as sent.
enum UserAttribute<'a> {
    Name(&'a str),
    Hash([u8; 32]),
}

impl<'a> UserAttribute<'a> {
    fn read(message: &Message<'a>) -> Result<Self, Refusal> {
        let name = message.first(AttributeType::USERNAME).map(value::username);
        let hash = message.first(AttributeType::USERHASH).map(value::userhash);
        match (name, hash) {
            (Some(Ok(name)), _) => Ok(Self::Name(name)),
            (None, Some(Ok(hash))) => Ok(Self::Hash(hash)),
            (None, None) | (Some(Err(_)), _) | (None, Some(Err(_))) => {
                Err(Refusal::IncompleteCredentials)
            }
        }
    }

    /// Converts a name to canonical form. Called only after the nonce check.
    fn claimed(self) -> Result<ClaimedUser<'a>, Refusal> {
        Ok(match self {
            Self::Name(sent) => {
                let form = UserName::new(sent).map_err(|_| Refusal::InvalidUsername)?;
                ClaimedUser::Name(ClaimedName { sent, form })
            }
            Self::Hash(hash) => ClaimedUser::Hash(hash),
        })
    }
}

impl ClaimedUser<'_> {
    /// Returns true if the claimed user has this name.
    pub(super) fn is(&self, name: &str, realm: &str) -> bool {
        match self {
            Self::Name(claimed) => claimed.form() == name,
            Self::Hash(claimed) => userhash(name, realm).is_ok_and(|hash| hash == *claimed),
        }
    }
}

/// Returns the algorithm of the key. Either the request has neither attribute, or the list equals
/// the `offered` list and contains the choice (RFC 8489 §9.2.4).
fn algorithm(message: &Message<'_>, offered: bool) -> Result<Option<PasswordAlgorithm>, Refusal> {
    let chosen = message.first(AttributeType::PASSWORD_ALGORITHM);
    let list = message.first(AttributeType::PASSWORD_ALGORITHMS);
    let (Some(chosen), Some(list)) = (chosen, list) else {
        let neither = chosen.is_none() && list.is_none();
        return if neither { Ok(None) } else { Err(Refusal::PasswordAlgorithms) };
    };
    value::password_algorithm(chosen)
        .ok()
        .filter(|chosen| offered && list == OFFERED_BYTES && OFFERED.contains(chosen))
        .map(Some)
        .ok_or(Refusal::PasswordAlgorithms)
}
