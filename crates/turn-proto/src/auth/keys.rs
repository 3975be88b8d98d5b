//! The keys that somebody proved themselves by.

use alloc::sync::Arc;

use turn_types::Secret;

use crate::event::UserKeys;

/// What seals somebody's requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Keys {
    /// Those of a password.
    LongTerm(UserKeys),
    /// That of an access token.
    Token(TokenKeys),
}

/// The session key of an access token, and the name of the key that the token was sealed with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TokenKeys {
    pub(crate) kid: Arc<str>,
    pub(crate) mac: Secret<Arc<[u8]>>,
}

impl Keys {
    /// Whether they came in an access token.
    pub(crate) const fn are_of_token(&self) -> bool {
        matches!(self, Self::Token(_))
    }
}
