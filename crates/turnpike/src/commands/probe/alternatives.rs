//! Probes of other transports if a server does not respond over UDP. A response over another
//! transport means that UDP is blocked.

use std::net::SocketAddr;

use super::link::Link;
use super::report::{Report, Step};
use super::session::Session;
use super::tls;
use super::trust::Trust;
use crate::uri::Uri;

/// Ports of TLS, in addition to the URI's port.
const TLS_PORTS: [u16; 2] = [5349, 443];

/// Probes TCP and TLS, and reports the result.
pub(super) fn look(uri: &Uri, server: SocketAddr, trust: &Trust<'_>, report: &mut Report) {
    const NAME: &str = "udp";
    let host = if server.is_ipv6() && uri.host.contains(':') {
        format!("[{}]", uri.host)
    } else {
        uri.host.clone()
    };
    let plain = if uri.secure { 3478 } else { uri.port };
    let works = if answers_over_tcp(SocketAddr::new(server.ip(), plain)) {
        Some(format!("turn:{host}:{plain}?transport=tcp"))
    } else {
        let ports = TLS_PORTS
            .into_iter()
            .find(|port| answers_over_tls(SocketAddr::new(server.ip(), *port), trust));
        ports.map(|port| format!("turns:{host}:{port}?transport=tcp"))
    };
    report.add(match works {
        Some(works) => Step::failed(NAME, format!("UDP is blocked, or not served: {works} answers"))
            .advise(format!(
                "let UDP port {} and the relay ports in at the server's firewall, and out at this network's; \
                 until then clients use {works}",
                uri.port
            )),
        None => Step::failed(NAME, format!("no answer over TCP port {plain} and TLS either"))
            .advise("the server does not run, or the host or all its ports cannot be reached from here"),
    });
}

fn answers_over_tcp(server: SocketAddr) -> bool {
    Link::tcp(server).is_ok_and(|link| Session::new(link, server, None).binding().is_ok())
}

fn answers_over_tls(server: SocketAddr, trust: &Trust<'_>) -> bool {
    let Ok(Link::Tcp(socket, _)) = Link::tcp(server) else { return false };
    let mut unread = Report::new(String::new());
    // The probe sends no secrets, so any certificate is accepted.
    let any = Trust { insecure: true, ..*trust };
    let Some(stream) = tls::shake_hands(socket, &any, &mut unread) else { return false };
    let link = Link::Tls(Box::new(stream), Vec::new());
    Session::new(link, server, None).binding().is_ok()
}
