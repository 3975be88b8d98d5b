//! Sockets of the control plane. They are bound when the server starts, and served after the
//! workers have started.

use std::mem::take;
use std::os::unix::net::UnixListener;
use std::sync::Arc;

use admin::api::Access;
use admin::routes::Routes;
use admin::{AccessError, HttpListener, Other, Router, SocketFile, UnixSocket};
use rustls::ServerConfig;
use settings::Settings;
use tokio::net::TcpListener;

use crate::certificates::CertificateReloader;
use crate::failure::{Failure, Result};
use crate::handover::{self, Predecessor};
use crate::listeners::{self, Services};
use crate::signed_tokens;

/// Bound sockets. Fields are dropped in declaration order, which reverses the order of binding.
pub(super) struct ControlSockets {
    /// Listeners of the interface over the network, with true for loopback addresses.
    api: Vec<(TcpListener, bool)>,
    /// Listeners for monitoring.
    monitoring: Vec<HttpListener>,
    /// Copies of all HTTP listeners over TCP, for a successor.
    pub(super) services: Services,
    /// Socket file of [`Self::handover`].
    pub(super) handover_file: SocketFile,
    /// Socket that a successor connects to.
    pub(super) handover: UnixListener,
    /// Control socket, until served.
    control: Option<UnixSocket>,
}

impl ControlSockets {
    /// Binds all sockets, or adopts the predecessor's sockets. Members of the `group` can use the
    /// control socket. `other` determines the treatment of another server's Unix sockets.
    pub(super) fn bind(
        settings: &Settings,
        group: Option<u32>,
        other: Other,
        mut predecessor: Option<&mut Predecessor>,
    ) -> Result<Self> {
        let path = settings.control_socket();
        let control = UnixSocket::control(&path, group, other).map_err(control_socket_failed)?;
        let (handover, handover_file) =
            UnixSocket::waiting(&handover::socket(&path), other).map_err(control_socket_failed)?;
        let mut services = Services::new();
        let before = predecessor.as_deref_mut();
        let monitoring = listeners::monitoring(settings, before, other, &mut services)?;
        let api = listeners::api(settings, predecessor, &mut services)?;
        let control = Some(control);
        Ok(Self { api, monitoring, services, handover_file, handover, control })
    }

    /// Joins each HTTP listener with the routes of operators or of monitoring. After an error, the
    /// remaining listeners stay bound for the lifetime of this value.
    ///
    /// # Errors
    /// A file with certificate authorities or with keys of signed tokens cannot be used.
    pub(super) fn route(
        &mut self,
        settings: &Settings,
        certificates: &CertificateReloader,
        operators: &Routes,
        monitoring: &Router,
    ) -> Result<Vec<(HttpListener, Router)>> {
        let control = self.control.take().map(HttpListener::Control);
        let routed = |listener| (listener, admin::api::control(operators));
        let mut all: Vec<_> = control.into_iter().map(routed).collect();
        if !self.api.is_empty() {
            let (tls, access) = api_access(settings, certificates)?;
            let routes = admin::api::router(operators, access);
            for (listener, is_loopback) in take(&mut self.api) {
                let tls = (!is_loopback).then(|| Arc::clone(&tls));
                all.push((HttpListener::Api(listener, tls), routes.clone()));
            }
        }
        let tls = settings.http.tls.then(|| certificates.https_config(None)).transpose()?;
        for listener in take(&mut self.monitoring) {
            let listener = match &tls {
                Some(tls) => listener.over_tls(tls),
                None => listener,
            };
            all.push((listener, monitoring.clone()));
        }
        Ok(all)
    }
}

fn control_socket_failed(error: AccessError) -> Failure {
    let advice = "name a directory that belongs to you with --data, or run the server as the user \
                  that this one belongs to (with control.group, also as a member of the group)";
    match error {
        AccessError::Io { .. } => Failure::failed(error).hint(advice),
        AccessError::InUse(_) | AccessError::NotASocket(_) | AccessError::TooLong(_) => {
            Failure::failed(error)
        }
    }
}

/// Returns the TLS configuration of the interface over the network, and the access by tokens.
fn api_access(
    settings: &Settings,
    certificates: &CertificateReloader,
) -> Result<(Arc<ServerConfig>, Access)> {
    let authorities = settings.api_client_authorities();
    let tls = certificates.https_config(authorities.as_deref())?;
    let origins = settings.api.credential_origins.iter().map(ToString::to_string).collect();
    let access = Access::new(settings.api_tokens()).with_origins(origins);
    let access = match signed_tokens::start(settings)? {
        Some(verifier) => access.with_signed_tokens(verifier),
        None => access,
    };
    Ok((tls, access))
}
