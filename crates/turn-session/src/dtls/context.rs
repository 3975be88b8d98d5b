//! Configuration of DTLS for all sessions.

use std::fmt;
use std::sync::Arc;

use openssl::ssl::{
    AlpnError, NameType, SniError, SslAlert, SslContext, SslContextBuilder, SslMethod, SslOptions,
    SslRef, SslSessionCacheMode, SslVerifyMode, SslVersion,
};

use super::association::Association;
use super::cookie_handler::CookieHandler;
use super::engine::DtlsEngine;
use super::handshake::{DtlsError, Handshake};
use super::hello::Hello;
use crate::Certificates;
use crate::certificates::ALPN;
use crate::tls_rules::TlsRules;

/// Configuration of DTLS: certificates, protocol options, and the cookie handler.
#[derive(Clone)]
pub struct DtlsConfig {
    context: SslContext,
    certificates: Arc<Certificates>,
    front: CookieHandler,
}

impl DtlsConfig {
    /// Creates a configuration. Certificates are selected in each handshake, and may be replaced
    /// later.
    ///
    /// # Errors
    /// The OpenSSL of this host lacks a feature, or the rules permit no cipher suite or group of
    /// DTLS 1.2.
    pub fn new(
        certificates: Arc<Certificates>,
        front: CookieHandler,
        rules: &TlsRules,
    ) -> Result<Self, DtlsError> {
        let mut context = SslContext::builder(SslMethod::dtls())?;
        context.set_min_proto_version(Some(SslVersion::DTLS1_2))?;
        // The cookies of DTLS 1.3 differ from those of the cookie handler.
        context.set_max_proto_version(Some(SslVersion::DTLS1_2))?;
        context.set_cipher_list(&rules.dtls_suites())?;
        if let Some(groups) = rules.dtls_groups() {
            context.set_groups_list(&groups)?;
        }
        context.set_options(
            SslOptions::COOKIE_EXCHANGE
                | SslOptions::CIPHER_SERVER_PREFERENCE
                | SslOptions::NO_QUERY_MTU
                | SslOptions::NO_RENEGOTIATION
                | SslOptions::NO_TICKET,
        );
        // TURN clients stay connected: resumption would save little. It also needs stored sessions,
        // or rotated ticket keys.
        context.set_session_cache_mode(SslSessionCacheMode::OFF);
        context.set_verify(SslVerifyMode::NONE);
        context.set_alpn_select_callback(|_, offered| choose(offered));
        verify_elsewhere(&mut context);
        let chooser = Arc::clone(&certificates);
        context.set_servername_callback(move |handshake, alert| show(handshake, alert, &chooser));
        Ok(Self { context: context.build(), certificates, front })
    }

    /// Returns true if there is a certificate. Handshakes fail without a certificate.
    #[must_use]
    pub fn can_serve(&self) -> bool {
        !self.certificates.is_empty()
    }

    /// Returns the cookie handler.
    #[must_use]
    pub const fn front(&self) -> &CookieHandler {
        &self.front
    }

    /// Starts a session. Pass the client's hello to [`DtlsEngine::take`] next.
    ///
    /// # Errors
    /// OpenSSL cannot create the session, for example because memory is exhausted.
    pub fn begin(&self, hello: &Hello<'_>) -> Result<Box<dyn DtlsEngine>, DtlsError> {
        let handshake = Handshake::begin(&self.context, hello)?;
        Ok(Box::new(Association::Handshake(Box::new(handshake))))
    }
}

impl fmt::Debug for DtlsConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DtlsConfig").field("front", &self.front).finish_non_exhaustive()
    }
}

/// Disables OpenSSL's own cookies. OpenSSL receives only hellos whose cookie the cookie handler has
/// verified, and OpenSSL's HelloVerifyRequests are discarded.
fn verify_elsewhere(context: &mut SslContextBuilder) {
    context.set_cookie_generate_cb(|_, cookie| {
        cookie[0] = 0;
        Ok(1)
    });
    context.set_cookie_verify_cb(|_, _| true);
}

/// Selects the application protocol (RFC 7443), in the server's order of preference. Returns an
/// error if there is no common protocol. OpenSSL does not call this for clients that offer none.
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

/// Selects the certificates for the client's server name. OpenSSL calls this in each handshake,
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
