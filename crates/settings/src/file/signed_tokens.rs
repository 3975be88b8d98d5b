//! Signed tokens of an identity provider.

use std::path::PathBuf;

use crate::section::section;
use crate::value::{ServiceUrl, Text};

section! {
    /// Signed tokens (JWT, RFC 7519) of an identity provider, for which `/turn` makes time-limited
    /// credentials (docs/operate/credentials.md).
    SignedTokens {
        /// The issuer: what tokens have as `iss`. With it, `audience` and keys, signed tokens are
        /// accepted.
        #[schemars(example = &"https://login.example.org/")]
        restart issuer: Option<Text<1, 512>> = None;
        /// Name of this service at the issuer: what tokens have as, or among, `aud`.
        #[schemars(example = &"turn.example.org")]
        restart audience: Option<Text<1, 512>> = None;
        /// File of the issuer's public keys, a JSON Web Key Set (RFC 7517): Ed25519, P-256 and RSA
        /// keys, for `EdDSA`, `ES256` and `RS256`. Read again when it has changed; a set without
        /// any key withdraws all.
        #[schemars(example = &"/etc/turnpike/issuer-keys.json")]
        restart keys_file: Option<PathBuf> = None;
        /// Address at which the issuer publishes the same. Fetched at the start, every hour, and
        /// when a token names a key that is unknown. While it cannot be fetched, the known keys
        /// count for 24 hours.
        #[schemars(example = &"https://login.example.org/.well-known/jwks.json")]
        restart keys_url: Option<ServiceUrl> = None;
        /// Certificates of the authorities that may have signed the certificate of `keys_url`, in a
        /// PEM file; by default the ones that browsers trust.
        #[schemars(example = &"/etc/turnpike/our-ca.pem")]
        restart authorities: Option<PathBuf> = None;
        /// File of a secret shared with the issuer, for `HS256`; 16 bytes or more.
        #[schemars(example = &"/etc/turnpike/issuer-secret")]
        restart secret_file: Option<PathBuf> = None;
        /// The claim with the user's name: text or a number.
        #[schemars(example = &"preferred_username")]
        restart user_claim: Text<1, 64> = Text::fixed("sub");
    }
}
