//! Encryption: TLS and DTLS.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::section::section;
use crate::value::{Count, Endpoint, Text};

section! {
    /// TLS, for clients in networks that block everything else; on once there is a certificate.
    Tls {
        /// Accepts clients over TLS, once there is a certificate.
        restart enabled: bool = true;
        /// Lowest version that clients may speak, `"1.2"` or `"1.3"`. With `"1.3"` turn
        /// `dtls.enabled` off as well: DTLS is 1.2.
        restart minimum_version: TlsVersion = TlsVersion::V12;
        /// Cipher suites that clients may use, the preferred one first, over DTLS as well: those of
        /// `TLS_ECDHE_` are for TLS and DTLS 1.2, the others for TLS 1.3. All nine have forward
        /// secrecy and authenticated encryption, and an empty list permits them all. Without one of
        /// 1.2 turn `dtls.enabled` off.
        #[schemars(
            example = serde_json::json!(["TLS_AES_256_GCM_SHA384", "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"])
        )]
        restart cipher_suites: Vec<CipherSuite> = Vec::new();
        /// Groups of the key exchange that clients may use, the preferred one first, over DTLS as
        /// well. An empty list permits all four.
        #[schemars(example = serde_json::json!(["X25519MLKEM768", "secp384r1"]))]
        restart key_exchange: Vec<KeyExchange> = Vec::new();
        /// More addresses and ports, for TLS over TCP and (see `[dtls]`) DTLS over UDP: both are
        /// served at `listen` as well, where `tcp.enabled` and `udp.enabled` are on. Not used
        /// without a certificate. Port 443 passes most firewalls.
        #[schemars(example = serde_json::json!(["203.0.113.7:443"]))]
        restart listen: Vec<Endpoint> = Endpoint::everywhere(5349); // RFC 8489 §8.1
        /// Certificates, each with its key. A client gets the one for the name that it requests, of
        /// a kind that it can verify; the first is for all others. The files are checked every few
        /// seconds and reloaded automatically, for new connections; existing ones stay open. Prefer
        /// ECDSA keys: a handshake with RSA of 4,096 bits takes a worker 8 ms, in which it relays
        /// nothing, and strangers can start one.
        #[schemars(
            example = serde_json::json!([{ "chain": "/etc/turnpike/fullchain.pem", "key": "/etc/turnpike/privkey.pem" }])
        )]
        live certificates: Vec<CertificateEntry> = Vec::new();
        /// A start with a certificate that cannot be read or used: `"wait"` serves without the
        /// certificate, tries again every few seconds, and says so in the log, in
        /// `turnpike status` and in metrics; `"refuse"` does not start. A renewal that went wrong
        /// should not stop the clients over UDP and TCP as well. `turnpike check` fails in both
        /// cases.
        restart when_unusable: WhenUnusable = WhenUnusable::Wait;
        /// PEM file with the certificates of authorities: every client over TLS has to present a
        /// certificate that one of them signed, in addition to its password. Without it none is
        /// requested.
        #[schemars(example = "/etc/turnpike/clients-ca.pem")]
        restart client_authorities: Option<Text<1, 4096>> = None;
    }
}

section! {
    /// DTLS, which is TLS over UDP; on once there is a certificate, at all addresses of `listen`
    /// and of `tls.listen`.
    Dtls {
        /// Accepts clients over DTLS 1.2. Off where `tls.client_authorities` requires client
        /// certificates, which only TLS requests.
        restart enabled: bool = true;
        /// DTLS sessions at a time; 0 is no limit. More are not answered. Each takes about 45 KB.
        /// Seven eighths of them may have an allocation; more allocations are refused with 508.
        restart sessions: Count<0, 1_000_000> = Count::new(10_000); // 450 MB
        /// DTLS sessions of one address, or one /64 of IPv6, at a time; 0 is no limit. A whole
        /// company may share one address.
        restart sessions_per_address: Count<0, 1_000_000> = Count::new(1000);
    }
}

/// Values of `tls.when_unusable`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum WhenUnusable {
    /// The server serves without the certificate.
    Wait,
    /// The server does not start.
    Refuse,
}

/// A version of TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub enum TlsVersion {
    /// RFC 5246.
    #[serde(rename = "1.2")]
    V12,
    /// RFC 8446.
    #[serde(rename = "1.3")]
    V13,
}

/// A cipher suite, by its registered name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub enum CipherSuite {
    /// Of TLS 1.3.
    #[serde(rename = "TLS_AES_256_GCM_SHA384")]
    Aes256,
    /// Of TLS 1.3.
    #[serde(rename = "TLS_AES_128_GCM_SHA256")]
    Aes128,
    /// Of TLS 1.3.
    #[serde(rename = "TLS_CHACHA20_POLY1305_SHA256")]
    ChaCha20,
    /// Of TLS 1.2, for certificates with an ECDSA key.
    #[serde(rename = "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384")]
    EcdsaAes256,
    /// Of TLS 1.2, for certificates with an ECDSA key.
    #[serde(rename = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256")]
    EcdsaAes128,
    /// Of TLS 1.2, for certificates with an ECDSA key.
    #[serde(rename = "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256")]
    EcdsaChaCha20,
    /// Of TLS 1.2, for certificates with an RSA key.
    #[serde(rename = "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384")]
    RsaAes256,
    /// Of TLS 1.2, for certificates with an RSA key.
    #[serde(rename = "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256")]
    RsaAes128,
    /// Of TLS 1.2, for certificates with an RSA key.
    #[serde(rename = "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256")]
    RsaChaCha20,
}

impl CipherSuite {
    /// True of suites of TLS and DTLS 1.2.
    #[must_use]
    pub const fn is_of_12(self) -> bool {
        !matches!(self, Self::Aes256 | Self::Aes128 | Self::ChaCha20)
    }
}

/// A group of the key exchange, by its registered name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub enum KeyExchange {
    /// Safe from quantum computers as well; of TLS 1.3.
    #[serde(rename = "X25519MLKEM768")]
    X25519MlKem768,
    /// RFC 7748.
    #[serde(rename = "x25519")]
    X25519,
    /// P-256.
    #[serde(rename = "secp256r1")]
    Secp256r1,
    /// P-384.
    #[serde(rename = "secp384r1")]
    Secp384r1,
}

impl KeyExchange {
    /// True of groups of TLS and DTLS 1.2.
    #[must_use]
    pub const fn is_of_12(self) -> bool {
        !matches!(self, Self::X25519MlKem768)
    }
}

/// An entry of `tls.certificates`. Paths are relative to the configuration file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CertificateEntry {
    /// PEM file with the certificate chain, the server's own certificate first.
    pub chain: Option<PathBuf>,
    /// PEM file with the private key.
    pub key: Option<PathBuf>,
    /// File with the password of the key, if the key is encrypted.
    pub password_file: Option<PathBuf>,
}
