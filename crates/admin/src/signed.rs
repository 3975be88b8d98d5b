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
    /// The reason, in words for the developer of an application; it tells nothing about keys.
    fn verify(&self, token: &str) -> Result<Signed, String>;
}
