//! Certificates from a certificate authority.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::section::section;
use crate::value::{DomainName, HttpsUrl, Text};

section! {
    /// A certificate from a certificate authority, by ACME (RFC 8555): ordered at the start, and
    /// again when a third of its lifetime is left. It is stored in `data.directory`, and new
    /// connections get it at once. On once there are names.
    Acme {
        /// Names for one certificate. Each leads to this host in public DNS, and the authority
        /// connects to it at port 443 or 80. To name one is to agree to the authority's terms of
        /// service.
        #[schemars(example = serde_json::json!(["turn.example.org"]))]
        restart names: Vec<DomainName> = Vec::new();
        /// Mail address for the authority's messages.
        #[schemars(example = "admin@example.org")]
        restart contact: Option<Text<3, 254>> = None;
        /// Means of verification: `tls-alpn-01` at port 443, or `http-01` at port 80. `auto` takes
        /// the first one whose port has a listener, in `tls.listen` or `listen`. Name one where a
        /// router forwards the port to another one here.
        restart challenge: AcmeChallenge = AcmeChallenge::Auto;
        /// Directory URL of the authority. By default that of Let's Encrypt.
        restart directory: HttpsUrl = HttpsUrl::fixed("https://acme-v02.api.letsencrypt.org/directory");
        /// PEM file with the certificates that sign the one of the authority's own web server. By
        /// default the ones that browsers trust.
        #[schemars(example = "/etc/turnpike/ca.pem")]
        restart authorities: Option<Text<1, 4096>> = None;
    }
}

/// Means of verification of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum AcmeChallenge {
    /// By the listeners' ports.
    Auto,
    /// A TLS handshake at port 443 (RFC 8737).
    #[serde(rename = "tls-alpn-01")]
    TlsAlpn01,
    /// A request to port 80 (RFC 8555 §8.3).
    #[serde(rename = "http-01")]
    Http01,
}
