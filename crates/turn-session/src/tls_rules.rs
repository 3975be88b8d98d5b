//! Versions, cipher suites and key exchanges that handshakes may agree on, for TLS and DTLS.

use rustls::crypto::aws_lc_rs::{self, cipher_suite as suites, kx_group as groups};
use rustls::crypto::{CryptoProvider, SupportedKxGroup};
use rustls::version::{TLS12, TLS13};
use rustls::{SupportedCipherSuite, SupportedProtocolVersion};

/// Versions of TLS that clients may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TlsVersions {
    /// TLS 1.2 and 1.3.
    #[default]
    From12,
    /// Only TLS 1.3.
    Only13,
}

impl TlsVersions {
    pub(crate) fn rustls(self) -> &'static [&'static SupportedProtocolVersion] {
        static BOTH: [&SupportedProtocolVersion; 2] = [&TLS13, &TLS12];
        match self {
            Self::From12 => &BOTH,
            Self::Only13 => &BOTH[..1],
        }
    }
}

/// Cipher suite with forward secrecy and authenticated encryption (RFC 9325 §4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CipherSuite {
    /// `TLS_AES_256_GCM_SHA384`, only in TLS 1.3.
    Aes256,
    /// `TLS_AES_128_GCM_SHA256`, only in TLS 1.3.
    Aes128,
    /// `TLS_CHACHA20_POLY1305_SHA256`, only in TLS 1.3.
    ChaCha20,
    /// `TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384`, only in TLS 1.2.
    EcdsaAes256,
    /// `TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256`, only in TLS 1.2.
    EcdsaAes128,
    /// `TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256`, only in TLS 1.2.
    EcdsaChaCha20,
    /// `TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384`, only in TLS 1.2.
    RsaAes256,
    /// `TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256`, only in TLS 1.2.
    RsaAes128,
    /// `TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256`, only in TLS 1.2.
    RsaChaCha20,
}

impl CipherSuite {
    const fn rustls(self) -> SupportedCipherSuite {
        match self {
            Self::Aes256 => suites::TLS13_AES_256_GCM_SHA384,
            Self::Aes128 => suites::TLS13_AES_128_GCM_SHA256,
            Self::ChaCha20 => suites::TLS13_CHACHA20_POLY1305_SHA256,
            Self::EcdsaAes256 => suites::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
            Self::EcdsaAes128 => suites::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
            Self::EcdsaChaCha20 => suites::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
            Self::RsaAes256 => suites::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
            Self::RsaAes128 => suites::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
            Self::RsaChaCha20 => suites::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
        }
    }

    /// Returns OpenSSL's name of a suite of TLS and DTLS 1.2. `None` for suites of TLS 1.3.
    const fn openssl(self) -> Option<&'static str> {
        match self {
            Self::Aes256 | Self::Aes128 | Self::ChaCha20 => None,
            Self::EcdsaAes256 => Some("ECDHE-ECDSA-AES256-GCM-SHA384"),
            Self::EcdsaAes128 => Some("ECDHE-ECDSA-AES128-GCM-SHA256"),
            Self::EcdsaChaCha20 => Some("ECDHE-ECDSA-CHACHA20-POLY1305"),
            Self::RsaAes256 => Some("ECDHE-RSA-AES256-GCM-SHA384"),
            Self::RsaAes128 => Some("ECDHE-RSA-AES128-GCM-SHA256"),
            Self::RsaChaCha20 => Some("ECDHE-RSA-CHACHA20-POLY1305"),
        }
    }
}

/// Group of the key exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyExchange {
    /// X25519 with ML-KEM-768, resistant to quantum computers. Only in TLS 1.3.
    X25519MlKem768,
    /// X25519.
    X25519,
    /// Curve P-256.
    Secp256r1,
    /// Curve P-384.
    Secp384r1,
}

impl KeyExchange {
    fn rustls(self) -> &'static dyn SupportedKxGroup {
        match self {
            Self::X25519MlKem768 => groups::X25519MLKEM768,
            Self::X25519 => groups::X25519,
            Self::Secp256r1 => groups::SECP256R1,
            Self::Secp384r1 => groups::SECP384R1,
        }
    }

    /// Returns OpenSSL's name of a group of DTLS 1.2. `None` for groups of TLS 1.3.
    const fn openssl(self) -> Option<&'static str> {
        match self {
            Self::X25519MlKem768 => None,
            Self::X25519 => Some("X25519"),
            Self::Secp256r1 => Some("P-256"),
            Self::Secp384r1 => Some("P-384"),
        }
    }
}

/// Rules for the parameters of TLS and DTLS handshakes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsRules {
    /// Versions of TLS. DTLS always uses version 1.2.
    pub versions: TlsVersions,
    /// Cipher suites, the preferred one first. An empty list permits all.
    pub cipher_suites: Vec<CipherSuite>,
    /// Groups of the key exchange, the preferred one first. An empty list permits all.
    pub key_exchange: Vec<KeyExchange>,
}

/// Cipher suites of DTLS if [`TlsRules`] selects none: those of TLS 1.2 (RFC 9325 §4.2).
const DTLS_SUITES: &str = "ECDHE+AESGCM:ECDHE+CHACHA20";

impl TlsRules {
    /// Returns the cryptography that rustls may use.
    pub(crate) fn provider(&self) -> CryptoProvider {
        let mut provider = aws_lc_rs::default_provider();
        if !self.cipher_suites.is_empty() {
            provider.cipher_suites =
                self.cipher_suites.iter().map(|suite| suite.rustls()).collect();
        }
        if !self.key_exchange.is_empty() {
            provider.kx_groups = self.key_exchange.iter().map(|group| group.rustls()).collect();
        }
        provider
    }

    /// Returns the cipher suites of DTLS 1.2, in OpenSSL's notation.
    pub(crate) fn dtls_suites(&self) -> String {
        if self.cipher_suites.is_empty() {
            return DTLS_SUITES.to_owned();
        }
        let names: Vec<_> = self.cipher_suites.iter().filter_map(|suite| suite.openssl()).collect();
        names.join(":")
    }

    /// Returns the groups of DTLS 1.2, in OpenSSL's notation. `None` for OpenSSL's default groups.
    pub(crate) fn dtls_groups(&self) -> Option<String> {
        let names: Vec<_> = self.key_exchange.iter().filter_map(|group| group.openssl()).collect();
        (!self.key_exchange.is_empty()).then(|| names.join(":"))
    }
}
