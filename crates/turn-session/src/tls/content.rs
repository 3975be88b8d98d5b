//! Content of records after the handshake.

use rustls::{AlertDescription, Error, HandshakeType, InvalidMessage};

use super::error::{Reason, TlsError};
use super::record::{Kind, unexpected};
use super::state::Version;

/// Content of a client's record after the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// Application data of this length in bytes.
    Data(usize),
    Alert(AlertLevel, AlertDescription),
    /// ClientHello in TLS 1.2: the client requests another handshake.
    Renegotiation,
}

/// Level of an alert (RFC 5246 §7.2). TLS 1.3 ignores the level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AlertLevel {
    Warning = 1,
    Fatal = 2,
}

impl Content {
    /// Parses the plaintext of a record.
    ///
    /// # Errors
    /// The content is malformed, or not permitted after the handshake.
    pub(super) fn read(version: Version, kind: Kind, plaintext: &[u8]) -> Result<Self, TlsError> {
        match kind {
            Kind::Data => Ok(Self::Data(plaintext.len())),
            Kind::Alert => read_alert(plaintext),
            Kind::Handshake => read_handshake(version, plaintext),
            // Never protected in TLS 1.3 (RFC 8446 §5).
            Kind::ChangeCipherSpec => Err(unexpected(kind as u8).into()),
        }
    }
}

fn read_alert(alert: &[u8]) -> Result<Content, TlsError> {
    let [level, description] = *alert else {
        return Err(Error::from(InvalidMessage::MissingData("Alert")).into());
    };
    let is_warning = level == AlertLevel::Warning as u8;
    let level = if is_warning { AlertLevel::Warning } else { AlertLevel::Fatal };
    Ok(Content::Alert(level, AlertDescription::from(description)))
}

fn read_handshake(version: Version, message: &[u8]) -> Result<Content, TlsError> {
    // Empty fragments are forbidden (RFC 8446 §5.1).
    let Some(&number) = message.first() else {
        return Err(Error::from(InvalidMessage::InvalidEmptyPayload).into());
    };
    let kind = HandshakeType::from(number);
    match version {
        Version::V13 if kind == HandshakeType::KeyUpdate => Err(TlsError(Reason::KeyUpdate)),
        Version::V12 if kind == HandshakeType::ClientHello => Ok(Content::Renegotiation),
        Version::V12 | Version::V13 => Err(unexpected(Kind::Handshake as u8).into()),
    }
}
