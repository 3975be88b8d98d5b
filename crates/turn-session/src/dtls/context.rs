//! The rules of DTLS for all associations.

use std::fmt;
use std::sync::Arc;

use ::openssl::ssl::{
    AlpnError, NameType, SniError, SslAlert, SslContext, SslContextBuilder, SslMethod, SslOptions,
    SslRef, SslSessionCacheMode, SslVerifyMode, SslVersion,
};

use super::cookie_handler::CookieHandler;
use super::engine::DtlsEngine;
use super::hello::Hello;
use super::openssl::{DtlsError, OpenSsl};
use crate::Certificates;
use crate::certificates::ALPN;

/// The cipher suites, which are those of TLS 1.2 here: the keys of a session are of no use to who learns
/// the server's later, and data cannot be changed (RFC 9325 §4.2).
const CIPHER_SUITES: &str = "ECDHE+AESGCM:ECDHE+CHACHA20";

/// How DTLS is spoken: certificates, rules, and what answers strangers.
#[derive(Clone)]
pub struct DtlsConfig {
    context: SslContext,
    certificates: Arc<Certificates>,
    front: CookieHandler,
}

impl DtlsConfig {
    /// With these certificates, or what they are replaced by later: they are chosen for each handshake.
    ///
    /// # Errors
    /// The OpenSSL of this host lacks something.
    pub fn new(certificates: Arc<Certificates>, front: CookieHandler) -> Result<Self, DtlsError> {
        let mut context = SslContext::builder(SslMethod::dtls())?;
        context.set_min_proto_version(Some(SslVersion::DTLS1_2))?;
        // DTLS 1.3 has cookies of another kind than the front's.
        context.set_max_proto_version(Some(SslVersion::DTLS1_2))?;
        context.set_cipher_list(CIPHER_SUITES)?;
        context.set_options(
            SslOptions::COOKIE_EXCHANGE
                | SslOptions::CIPHER_SERVER_PREFERENCE
                | SslOptions::NO_QUERY_MTU
                | SslOptions::NO_RENEGOTIATION
                | SslOptions::NO_TICKET,
        );
        // Clients of TURN stay: what a session would save its beginning is not worth being kept, or keys
        // for tickets that would have to be changed.
        context.set_session_cache_mode(SslSessionCacheMode::OFF);
        context.set_verify(SslVerifyMode::NONE);
        context.set_alpn_select_callback(|_, offered| choose(offered));
        verify_elsewhere(&mut context);
        let chooser = Arc::clone(&certificates);
        context.set_servername_callback(move |handshake, alert| show(handshake, alert, &chooser));
        Ok(Self { context: context.build(), certificates, front })
    }

    /// Whether there is a certificate: without one nobody can begin.
    #[must_use]
    pub fn can_serve(&self) -> bool {
        !self.certificates.is_empty()
    }

    /// What answers strangers.
    #[must_use]
    pub const fn front(&self) -> &CookieHandler {
        &self.front
    }

    /// Begins an association. The client's hello is to be [taken](DtlsEngine::take) by it next.
    ///
    /// # Errors
    /// No memory.
    pub fn begin(&self, hello: &Hello<'_>) -> Result<Box<dyn DtlsEngine>, DtlsError> {
        Ok(Box::new(OpenSsl::begin(&self.context, hello)?))
    }
}

impl fmt::Debug for DtlsConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DtlsConfig").field("front", &self.front).finish_non_exhaustive()
    }
}

/// Only hellos with a cookie that the front has verified come as far as this, and what OpenSSL would
/// answer to others is thrown away.
fn verify_elsewhere(context: &mut SslContextBuilder) {
    context.set_cookie_generate_cb(|_, cookie| {
        cookie[0] = 0;
        Ok(1)
    });
    context.set_cookie_verify_cb(|_, _| true);
}

/// Chooses the application protocol (RFC 7443): ours first, and none that we do not have. It is not asked
/// when the client names none.
fn choose(mut offered: &[u8]) -> Result<&[u8], AlpnError> {
    let mut known = Vec::new();
    while let Some((&len, rest)) = offered.split_first() {
        let Some((name, rest)) = rest.split_at_checked(usize::from(len)) else { break };
        known.push(name);
        offered = rest;
    }
    let of_both = ALPN.iter().find_map(|ours| known.iter().find(|name| **name == *ours));
    of_both.copied().ok_or(AlpnError::ALERT_FATAL)
}

/// Has a handshake use the certificates for the name that the client asks for. It is called for each,
/// with a name or without.
fn show(
    handshake: &mut SslRef,
    alert: &mut SslAlert,
    certificates: &Certificates,
) -> Result<(), SniError> {
    let chosen = certificates.identities(handshake.servername(NameType::HOST_NAME));
    for identity in &chosen {
        if identity.put_in(handshake).is_err() {
            *alert = SslAlert::INTERNAL_ERROR;
            return Err(SniError::ALERT_FATAL);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_application_protocol_is_chosen_among_ours() {
        let ours = b"\x02h2\x12stun.nat-discovery\x09stun.turn";
        assert_eq!(choose(ours).ok(), Some(&b"stun.turn"[..]));
        assert_eq!(choose(b"\x12stun.nat-discovery").ok(), Some(&b"stun.nat-discovery"[..]));
        for foreign in [&b"\x02h2"[..], b"\x09stun.tur", b""] {
            assert!(choose(foreign).is_err());
        }
    }
}
