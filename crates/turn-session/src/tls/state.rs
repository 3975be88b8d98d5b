//! State of a TLS connection that moves to another process.

use std::fmt;

use rustls::pki_types::DnsName;
use rustls::{ConnectionTrafficSecrets, ProtocolVersion};
use state_format::{fields, variants};

use crate::aead::{Cipher, KeyBytes};

/// Exported state of a TLS connection after the handshake: the keys of both directions, and all
/// bytes not yet read or written. Keys are wiped on drop. The serialised bytes
/// ([`Value`](state_format::Value)) are as secret as the keys.
///
/// Only one process may continue from a state. Two would encrypt different data with one nonce,
/// which reveals both. The process that [exported](super::Tls::leave) the state may
/// [resume](super::Tls::resume) from it only if the other process has sent nothing.
pub struct TlsState {
    pub(super) version: Version,
    /// Direction from the client.
    pub(super) reading: DirectionState,
    /// Direction to the client.
    pub(super) writing: DirectionState,
    /// Server name from the client (SNI), in lower case.
    pub(super) server_name: Option<String>,
    /// Records not yet decrypted, and the first part of an incomplete record.
    pub(super) untaken: Vec<u8>,
    /// Decrypted plaintext that was not read.
    pub(super) unread: Vec<u8>,
    /// Ciphertext that was not written.
    pub(super) unwritten: Vec<u8>,
    /// True after close_notify from the client.
    pub(super) has_ended: bool,
    /// True after an alert that closed the direction to the client.
    pub(super) is_closed: bool,
}

/// Keys and sequence number of one direction.
pub(super) struct DirectionState {
    pub(super) cipher: Cipher,
    /// Sequence number of the next record. No record was protected with this number.
    pub(super) sequence: u64,
    pub(super) key: KeyBytes,
    /// IV of 12 bytes. For AES-GCM in TLS 1.2: the salt, and the explicit nonce of record 0.
    pub(super) iv: KeyBytes,
}

/// Version of the record protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    V12,
    V13,
}

fields!(TlsState {
    1 => version,
    2 => reading,
    3 => writing,
    4 => server_name,
    5 => untaken,
    6 => unread,
    7 => unwritten,
    8 => has_ended or false,
    9 => is_closed or false,
});
fields!(DirectionState { 1 => cipher, 2 => sequence, 3 => key, 4 => iv });
variants!(Version, "version of TLS" { 2 => V12, 3 => V13 });

impl TlsState {
    /// Returns false for values that no connection has. Keys and untaken bytes are not checked
    /// here.
    pub(super) fn is_plausible(&self) -> bool {
        let is_name = |name: &String| DnsName::try_from(name.as_str()).is_ok();
        self.reading.cipher == self.writing.cipher && self.server_name.as_ref().is_none_or(is_name)
    }
}

impl fmt::Debug for TlsState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { version, reading: DirectionState { cipher, .. }, .. } = self;
        f.debug_struct("TlsState")
            .field("version", version)
            .field("cipher", cipher)
            .finish_non_exhaustive()
    }
}

impl Version {
    /// Converts the version of a rustls connection. Returns `None` for versions other than 1.2 and
    /// 1.3.
    pub(super) fn of(version: Option<ProtocolVersion>) -> Option<Self> {
        if version == Some(ProtocolVersion::TLSv1_3) {
            Some(Self::V13)
        } else {
            (version == Some(ProtocolVersion::TLSv1_2)).then_some(Self::V12)
        }
    }
}

impl DirectionState {
    /// Converts the secrets of a rustls connection. Returns `None` for an unknown cipher.
    pub(super) fn of((sequence, secrets): (u64, ConnectionTrafficSecrets)) -> Option<Self> {
        let (cipher, key, iv) = match &secrets {
            ConnectionTrafficSecrets::Aes128Gcm { key, iv } => (Cipher::Aes128Gcm, key, iv),
            ConnectionTrafficSecrets::Aes256Gcm { key, iv } => (Cipher::Aes256Gcm, key, iv),
            ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => {
                (Cipher::ChaCha20Poly1305, key, iv)
            }
            _ => return None,
        };
        let (key, iv) = (KeyBytes::new(key.as_ref()), KeyBytes::new(iv.as_ref()));
        Some(Self { cipher, sequence, key, iv })
    }
}
