//! Ports of listeners are no relay ports: a relay socket at one of them would take the server's
//! packets.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use crate::document::Document;
use crate::error::{Errors, Place};
use crate::settings::Settings;

const RELAY_PORTS: &str = "relay.ports";
const LISTEN: &str = "listen";
const DISCOVERY: &str = "discovery.ports";
const TLS_LISTEN: &str = "tls.listen";

/// A listener at a port that relay sockets of the same protocol may be bound to.
struct Overlap {
    /// The key that names the listener.
    key: &'static str,
    listener: SocketAddr,
    /// The protocol, and the key that brings it there where it is not the listener's alone.
    protocol: &'static str,
}

/// Every listener of a configuration whose port is one of `relay.ports`. Relayed addresses are of
/// UDP, and of TCP where `tcp.relaying` is on.
fn overlaps(settings: &Settings) -> Vec<Overlap> {
    let tcp = settings.tls.enabled && settings.tcp.relaying;
    // All but those for TLS alone are of UDP.
    let tls = match (settings.serves_dtls(), tcp) {
        (true, _) => Some("UDP, for DTLS"),
        (false, true) => Some("TCP, which tcp.relaying relays"),
        (false, false) => None,
    };
    let udp = |key, listener| Overlap { key, listener, protocol: "UDP" };
    // Sockets of the kernel's choice for TCP relays avoid ports of listeners.
    let plain = settings.listen().filter(|_| settings.udp.enabled).map(|at| udp(LISTEN, at));
    let discovery =
        settings.discovery_sockets.iter().flat_map(|sockets| sockets.local.as_flattened());
    let discovery = discovery.map(|at| udp(DISCOVERY, *at));
    let tls = settings
        .tls_listen
        .iter()
        .filter_map(|at| tls.map(|protocol| Overlap { key: TLS_LISTEN, listener: *at, protocol }));
    let range = settings.relay.ports;
    let relayed = |one: &Overlap| (range.min..=range.max).contains(&one.listener.port());
    plain.chain(discovery).chain(tls).filter(relayed).collect()
}

/// Refuses them in a file, each where it is written: a port once, whatever its addresses.
pub(super) fn check(settings: &Settings, document: &Document, errors: &mut Errors) {
    if document.is_refused(RELAY_PORTS) {
        return;
    }
    let range = settings.relay.ports;
    let mut reported = BTreeSet::new();
    for Overlap { key, listener, protocol } in overlaps(settings) {
        let port = listener.port();
        if document.is_refused(key) || !reported.insert((key, port)) {
            continue;
        }
        if !document.is_written(key) {
            let what = format!("port {port} of {range} is a listener's ({key}, {protocol})");
            errors.add(document.place(RELAY_PORTS), RELAY_PORTS, what, HELP);
            continue;
        }
        let list = if key == LISTEN { &settings.listen } else { &settings.tls.listen };
        let index = list.iter().position(|endpoint| endpoint.0 == listener);
        let place = match index {
            Some(index) if key != DISCOVERY => document.entry_place(key, index),
            Some(_) | None => document.place(key),
        };
        let by = if key == TLS_LISTEN { format!(" ({protocol})") } else { String::new() };
        let what = format!("port {port}{by} is one of relay.ports ({range})");
        errors.add(place, key, what, HELP);
    }
}

const HELP: &str = "listen on another port, or take relayed addresses from other ports";

/// Refuses them in the outcome of a reload: listeners of the start beside ports of the file.
pub(crate) fn check_in_force(settings: &Settings, errors: &mut Errors) {
    let range = settings.relay.ports;
    let mut reported = BTreeSet::new();
    for Overlap { key, listener, protocol } in overlaps(settings) {
        let port = listener.port();
        if reported.insert(port) {
            let what = format!(
                "port {port} of {range} is a listener's until the server is started again \
                 ({key}, {protocol})"
            );
            let help = "take relayed addresses from other ports, or start the server again";
            errors.add(Place::Default, RELAY_PORTS, what, help);
        }
    }
}
