//! TLS handshake rules from the configuration.

use settings::{CipherSuite as Suite, KeyExchange as Group, Tls, TlsVersion};
use turn_session::{CipherSuite, KeyExchange, TlsRules, TlsVersions};

/// Returns the handshake rules of a configuration.
pub(super) fn of(tls: &Tls) -> TlsRules {
    TlsRules {
        versions: match tls.minimum_version {
            TlsVersion::V12 => TlsVersions::From12,
            TlsVersion::V13 => TlsVersions::Only13,
        },
        cipher_suites: tls.cipher_suites.iter().copied().map(suite).collect(),
        key_exchange: tls.key_exchange.iter().copied().map(group).collect(),
    }
}

const fn suite(suite: Suite) -> CipherSuite {
    match suite {
        Suite::Aes256 => CipherSuite::Aes256,
        Suite::Aes128 => CipherSuite::Aes128,
        Suite::ChaCha20 => CipherSuite::ChaCha20,
        Suite::EcdsaAes256 => CipherSuite::EcdsaAes256,
        Suite::EcdsaAes128 => CipherSuite::EcdsaAes128,
        Suite::EcdsaChaCha20 => CipherSuite::EcdsaChaCha20,
        Suite::RsaAes256 => CipherSuite::RsaAes256,
        Suite::RsaAes128 => CipherSuite::RsaAes128,
        Suite::RsaChaCha20 => CipherSuite::RsaChaCha20,
    }
}

const fn group(group: Group) -> KeyExchange {
    match group {
        Group::X25519MlKem768 => KeyExchange::X25519MlKem768,
        Group::X25519 => KeyExchange::X25519,
        Group::Secp256r1 => KeyExchange::Secp256r1,
        Group::Secp384r1 => KeyExchange::Secp384r1,
    }
}
