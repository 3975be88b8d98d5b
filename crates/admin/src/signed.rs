//! Signed tokens of an identity provider, which the binary verifies.

use std::fmt;

use turn_proto::GrantLimits;

/// Proof of a signed token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signed {
    /// The user.
    pub user: String,
    /// Limits of the user's credentials.
    pub limits: GrantLimits,
}

/// A verifier of signed tokens.
pub trait SignedTokens: fmt::Debug + Send + Sync {
    /// Verifies a token.
    ///
    /// # Errors
    /// The token is wrong, or nothing can be said about it at this time.
    fn verify(&self, token: &str) -> Result<Signed, SignedTokenError>;
}

/// Reason why a signed token proves nothing, in words for the developer of an application. It tells
/// nothing about keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SignedTokenError {
    /// The token is wrong: another one is needed.
    Denied(String),
    /// The issuer's keys are missing: the same token may be right a minute later.
    Unavailable(String),
}
