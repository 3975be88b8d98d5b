//! Long-term credential mechanism of a client (RFC 8489 §9.2).

use alloc::string::String;
use alloc::vec::Vec;

use stun_wire::{
    AttributeType, IntegrityKey, IntegrityKind, Message, MessageBuilder, PasswordAlgorithm,
    PrecisError, SecurityFeatures, ValueError, long_term_key_md5, long_term_key_sha256,
    opaque_string, userhash, value,
};

use crate::config::{AlgorithmChoice, ClientConfig};
use crate::event::Failure;
use crate::limits::{ALGORITHMS_BYTES_MAX, QUOTED_MAX, USERNAME_MAX};

/// Data for the authentication of requests, derived from the last challenge.
#[derive(Clone, Debug)]
pub(crate) struct Login {
    realm: String,
    nonce: String,
    user: User,
    /// PASSWORD-ALGORITHMS as received, to be repeated, and the chosen algorithm.
    algorithms: Option<(Vec<u8>, PasswordAlgorithm)>,
    key: IntegrityKey,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum User {
    Name(String),
    Hash([u8; 32]),
}

impl Login {
    /// Derives credentials for a challenge (401 or 438).
    pub(crate) fn from_challenge(
        config: &ClientConfig,
        message: &Message<'_>,
    ) -> Result<Self, Failure> {
        let realm = quoted(message, AttributeType::REALM, value::realm)?;
        let nonce = quoted(message, AttributeType::NONCE, value::nonce)?;
        let features = SecurityFeatures::of_nonce(nonce).unwrap_or_default();
        let offered = message.first(AttributeType::PASSWORD_ALGORITHMS);
        if features.password_algorithms && offered.is_none() {
            return Err(Failure::BidDown);
        }
        let algorithms = choose(config.algorithms, offered)?;
        let chosen = algorithms.as_ref().map_or(PasswordAlgorithm::MD5, |(_, chosen)| *chosen);
        let by_hash = config.userhash && features.username_anonymity;
        let (user, key) =
            identify(config, realm, by_hash, chosen).map_err(|_| Failure::Credentials)?;
        if matches!(&user, User::Name(name) if name.len() > USERNAME_MAX) {
            return Err(Failure::Credentials);
        }
        Ok(Self { realm: realm.into(), nonce: nonce.into(), user, algorithms, key })
    }

    /// Returns true if the server would treat requests with both credentials alike. A 401 to such a
    /// request is final (RFC 8489 §9.2.5).
    pub(crate) fn is_same_credential(&self, other: &Self) -> bool {
        let chosen = |login: &Self| login.algorithms.as_ref().map(|(_, chosen)| *chosen);
        self.realm == other.realm && self.user == other.user && chosen(self) == chosen(other)
    }

    /// Adds all attributes except the integrity attribute.
    pub(crate) fn write(&self, builder: &mut MessageBuilder<'_>) {
        match &self.user {
            User::Name(name) => builder.username(name),
            User::Hash(hash) => builder.userhash(hash),
        };
        builder.realm(&self.realm).nonce(&self.nonce);
        if let Some((offered, chosen)) = &self.algorithms {
            // Byte for byte as offered, because the server compares the attribute.
            builder.attribute(AttributeType::PASSWORD_ALGORITHMS, offered);
            builder.password_algorithm(*chosen);
        }
    }

    /// Returns the key of requests and responses.
    pub(crate) const fn key(&self) -> &IntegrityKey {
        &self.key
    }

    /// Returns the integrity attribute of requests, which responses must contain too. After a
    /// negotiation of algorithms, this is SHA-256 (RFC 8489 §9.2.4).
    pub(crate) const fn integrity(&self) -> IntegrityKind {
        match self.algorithms {
            Some(_) => IntegrityKind::Sha256,
            None => IntegrityKind::Sha1,
        }
    }

    /// Returns true if a response has valid integrity. A weaker attribute than the required one is
    /// invalid.
    pub(crate) fn authenticates(&self, message: &Message<'_>) -> bool {
        let integrity = message.integrity();
        let valid = match self.integrity() {
            IntegrityKind::Sha1 => integrity.sha1.is_some() && integrity.sha256.is_none(),
            IntegrityKind::Sha256 => integrity.sha256.is_some(),
        };
        valid && message.verify(&self.key)
    }
}

/// Returns true if the nonce of a response announces password algorithms that the response does not
/// list. Such a response must be ignored, unless it is a challenge (RFC 8489 §9.2.5).
pub(crate) fn breaks_nonce_promise(message: &Message<'_>) -> bool {
    let nonce = message.first(AttributeType::NONCE).and_then(|value| value::nonce(value).ok());
    nonce.and_then(SecurityFeatures::of_nonce).is_some_and(|features| features.password_algorithms)
        && message.first(AttributeType::PASSWORD_ALGORITHMS).is_none()
}

/// Derives the user attribute of requests, and the key.
fn identify(
    config: &ClientConfig,
    realm: &str,
    by_hash: bool,
    algorithm: PasswordAlgorithm,
) -> Result<(User, IntegrityKey), PrecisError> {
    if let Some(token) = &config.token {
        let key = IntegrityKey::new(token.mac_key.expose());
        return Ok((User::Name((*config.username).into()), key));
    }
    let name = opaque_string(&config.username)?;
    let password = config.password.expose();
    let key = if algorithm == PasswordAlgorithm::SHA256 {
        IntegrityKey::new(&long_term_key_sha256(&name, realm, password)?)
    } else {
        IntegrityKey::new(&long_term_key_md5(&name, realm, password)?)
    };
    let user =
        if by_hash { User::Hash(userhash(&name, realm)?) } else { User::Name(name.into_owned()) };
    Ok((user, key))
}

fn quoted<'a>(
    message: &Message<'a>,
    kind: AttributeType,
    decode: impl Fn(&'a [u8]) -> Result<&'a str, ValueError>,
) -> Result<&'a str, Failure> {
    let text = message.first(kind).and_then(|value| decode(value).ok());
    text.filter(|text| text.len() <= QUOTED_MAX).ok_or(Failure::Malformed)
}

fn choose(
    choice: AlgorithmChoice,
    offered: Option<&[u8]>,
) -> Result<Option<(Vec<u8>, PasswordAlgorithm)>, Failure> {
    let acceptable = |algorithm: &PasswordAlgorithm| match choice {
        AlgorithmChoice::AsOffered => {
            [PasswordAlgorithm::MD5, PasswordAlgorithm::SHA256].contains(algorithm)
        }
        AlgorithmChoice::Sha256 => *algorithm == PasswordAlgorithm::SHA256,
        AlgorithmChoice::Rfc5389 => false,
    };
    let offered = match (choice, offered) {
        (AlgorithmChoice::Rfc5389, _) | (AlgorithmChoice::AsOffered, None) => return Ok(None),
        (AlgorithmChoice::Sha256, None) => return Err(Failure::NoAlgorithm),
        (_, Some(offered)) if offered.len() > ALGORITHMS_BYTES_MAX => {
            return Err(Failure::Malformed);
        }
        (_, Some(offered)) => offered,
    };
    let known = value::password_algorithms(offered).filter_map(Result::ok).find(acceptable);
    let chosen = known.ok_or(Failure::NoAlgorithm)?;
    Ok(Some((offered.to_vec(), chosen)))
}
