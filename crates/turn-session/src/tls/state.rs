//! State of a TLS connection that goes to another process.

use std::fmt;

use rustls::pki_types::DnsName;
use rustls::{ConnectionTrafficSecrets, ProtocolVersion};
use state_format::{fields, variants};

use crate::aead::{Cipher, KeyBytes};

/// State of a TLS connection after its handshake, as it goes to another process: the keys of both
/// directions, and all bytes on their way. Keys are wiped when it is dropped; the bytes of its
/// [`Value`](state_format::Value) are as secret as the keys.
///
/// Only one process may go on from a state: two would encrypt different data with the same nonce,
/// which reveals both. The process that [left](super::Tls::leave) may [resume](super::Tls::resume)
/// from it only if the other one has sent nothing.
pub struct TlsState {
    pub(super) version: Version,
    /// From the client.
    pub(super) reading: DirectionState,
    /// To the client.
    pub(super) writing: DirectionState,
    /// SNI, in lower case.
    pub(super) server_name: Option<String>,
    /// Records that were not taken, and the beginning of an incomplete one.
    pub(super) untaken: Vec<u8>,
    /// Plaintext that was not read.
    pub(super) unread: Vec<u8>,
    /// Ciphertext that was not written.
    pub(super) unwritten: Vec<u8>,
    /// The client has sent close_notify.
    pub(super) has_ended: bool,
    /// An alert has ended the direction to the client.
    pub(super) is_closed: bool,
}

/// Keys and position of one direction.
pub(super) struct DirectionState {
    pub(super) cipher: Cipher,
    /// Sequence number of the next record; no record was protected with it.
    pub(super) sequence: u64,
    pub(super) key: KeyBytes,
    /// Of 12 bytes. For AES-GCM in TLS 1.2: the salt, and the explicit nonce of record 0.
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
    /// Returns false for values that no connection has, except keys and untaken bytes.
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
    /// Returns that of a connection of rustls.
    pub(super) fn of(version: Option<ProtocolVersion>) -> Option<Self> {
        if version == Some(ProtocolVersion::TLSv1_3) {
            Some(Self::V13)
        } else {
            (version == Some(ProtocolVersion::TLSv1_2)).then_some(Self::V12)
        }
    }
}

impl DirectionState {
    /// Returns that of a connection of rustls; `None` for an unknown cipher.
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
