//! Errors of TLS connections.

use std::fmt;

use rustls::{AlertDescription, Error};

/// Reason why a connection is unusable.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub struct TlsError(pub(super) Reason);

/// Reason of a [`TlsError`].
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Reason {
    /// Protocol error, or an error of rustls.
    Protocol(Error),
    /// The client changes the keys of a resumed connection (RFC 8446 §4.6.3).
    KeyUpdate,
    /// The keys of a resumed connection have protected the maximum number of records (RFC 8446
    /// §5.5).
    KeysExhausted,
    /// The state to resume from does not describe a valid connection.
    ForeignState,
}

impl From<Error> for TlsError {
    fn from(error: Error) -> Self {
        Self(Reason::Protocol(error))
    }
}

impl TlsError {
    /// Returns the alert that notifies the client of an error in a record (RFC 8446 §6.2).
    pub(super) fn alert(&self) -> AlertDescription {
        match &self.0 {
            Reason::Protocol(Error::DecryptError) => AlertDescription::BadRecordMac,
            Reason::Protocol(Error::PeerSentOversizedRecord) => AlertDescription::RecordOverflow,
            Reason::Protocol(Error::InvalidMessage(_)) => AlertDescription::DecodeError,
            Reason::Protocol(Error::InappropriateMessage { .. } | Error::PeerMisbehaved(_)) => {
                AlertDescription::UnexpectedMessage
            }
            Reason::KeysExhausted => AlertDescription::CloseNotify,
            // The client is not at fault.
            Reason::Protocol(_) | Reason::KeyUpdate | Reason::ForeignState => {
                AlertDescription::InternalError
            }
        }
    }

    /// Returns the error for a caller that passes more ciphertext than
    /// [`Tls::most`](super::Tls::most) allows.
    pub(super) fn no_room() -> Self {
        Error::General("more than there is room for".to_owned()).into()
    }
}

/// Message of rustls' error if no certificate was found for a client.
const NO_CERTIFICATE: &str = "no server certificate chain resolved";

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Reason::Protocol(error) => write_protocol_error(error, f),
            Reason::KeyUpdate => f.write_str(
                "the client changes its keys (KeyUpdate), which a connection from before the last \
                 upgrade of this server cannot follow",
            ),
            Reason::KeysExhausted => f.write_str(
                "as many records were encrypted as its keys may protect, and a connection from \
                 before the last upgrade of this server cannot change them",
            ),
            Reason::ForeignState => {
                f.write_str("the state of another process is none of a TLS connection")
            }
        }
    }
}

fn write_protocol_error(error: &Error, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    if *error == Error::General(NO_CERTIFICATE.to_owned()) {
        let kinds = "ECDSA, RSA, Ed25519";
        return write!(
            f,
            "no certificate in tls.certificates has a kind of key ({kinds}) that the client verifies"
        );
    }
    let alert = |alert| *error == Error::AlertReceived(alert);
    if alert(AlertDescription::UnknownCA) {
        f.write_str(
            "the client does not trust the issuer of the certificate (unknown CA): often an \
             intermediate is missing in the chain",
        )
    } else if alert(AlertDescription::CertificateExpired) {
        f.write_str("the client refused the certificate as expired")
    } else if alert(AlertDescription::BadCertificate) || alert(AlertDescription::CertificateUnknown)
    {
        f.write_str("the client refused the certificate: it is not for the name, or not trusted")
    } else {
        fmt::Display::fmt(error, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_certificate_is_told_from_other_alerts() {
        use AlertDescription::{BadCertificate, CertificateUnknown, HandshakeFailure};
        for (alert, is_refused) in
            [(BadCertificate, true), (CertificateUnknown, true), (HandshakeFailure, false)]
        {
            let text = TlsError::from(Error::AlertReceived(alert)).to_string();
            assert_eq!(text.contains("refused the certificate"), is_refused, "{text}");
        }
    }
}
