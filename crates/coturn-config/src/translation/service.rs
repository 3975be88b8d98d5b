//! Protocol switches, the log, metrics.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::{Fate, Work};
use crate::syntax;
use crate::toml;

pub(super) fn translate(work: &mut Work) {
    switches(work);
    log(work);
    metrics(work);
    if !work.is_on("no-tcp-relay") {
        work.notes.push(
            "coturn relays TCP (RFC 6062) unless no-tcp-relay is set. Here it is off, since calls do not need it: \
             `tcp.relaying = true` switches it on."
                .to_owned(),
        );
    }
}

fn switches(work: &mut Work) {
    for (name, key) in [
        ("mobility", "mobility"),
        ("secure-stun", "auth.binding"),
        ("rfc3489-compatibility", "compatibility.rfc3489_clients"),
        ("rfc5766-channel-numbers", "compatibility.rfc5766_clients"),
    ] {
        if work.last(name).is_some() {
            work.toml.set(key, "true".to_owned(), name);
        }
    }
    for (name, key) in [("no-udp-relay", "udp.relaying"), ("no-stun", "binding")] {
        if work.last(name).is_some() {
            work.toml.set(key, "false".to_owned(), name);
        }
    }
    if work.is_on("no-udp-relay") && !work.is_on("no-tcp-relay") {
        // Otherwise nothing would be relayed.
        work.toml.set("tcp.relaying", "true".to_owned(), "no-udp-relay");
    }
    if work.last("software-attribute").is_some() {
        work.toml.set("software", toml::text("Turnpike"), "software-attribute");
    }
    if let Some(index) = work.last("acme-redirect") {
        let url = syntax::word(work.value(index)).to_owned();
        if url.ends_with('/') {
            work.toml.set("tcp.acme_redirect", toml::text(&url), "acme-redirect");
        } else {
            work.unreadable(index, "a URL that ends with /");
        }
    }
}

fn log(work: &mut Work) {
    if work.is_on("Verbose") {
        work.toml.set("log.level", toml::text("debug"), "Verbose");
    }
    let Some(index) = work.last("log-min-level") else { return };
    match syntax::word(work.value(index)) {
        "error" => work.toml.set("log.level", toml::text("error"), "log-min-level"),
        "warning" => work.toml.set("log.level", toml::text("warn"), "log-min-level"),
        "info" | "debug" => {
            let reason = "each allocation and each kind of refusal has a line at the default level";
            work.set(index, Fate::SameHere(reason.to_owned()));
        }
        _ => work.unreadable(index, "debug, info, warning or error"),
    }
}

fn metrics(work: &mut Work) {
    const PORT: u16 = 9641;
    if !work.is_on("prometheus") {
        for name in ["prometheus-port", "prometheus-address"] {
            for index in work.all(name) {
                work.set(index, Fate::SameHere("prometheus is off".to_owned()));
            }
        }
        return;
    }
    let port = work.number("prometheus-port").and_then(|port| u16::try_from(port).ok());
    let address =
        work.word("prometheus-address").and_then(|address| address.parse::<IpAddr>().ok());
    if let (None, Some(index)) = (address, work.last("prometheus-address")) {
        work.unreadable(index, "an address");
    }
    let comment = match address {
        Some(_) => "prometheus-address, prometheus-port",
        None => {
            "prometheus; coturn serves it at every address, here at loopback: name an address that your monitoring reaches"
        }
    };
    let address = address.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
    let listen = SocketAddr::new(address, port.unwrap_or(PORT)).to_string();
    work.toml.set("http.listen", toml::list(&[listen]), comment);
    work.toml.set("http.coturn_metrics", "true".to_owned(), "coturn's names, besides others");
}
