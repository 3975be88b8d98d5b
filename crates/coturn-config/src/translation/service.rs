//! TLS, protocol switches, the log, metrics.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::{Fate, Work};
use crate::syntax;
use crate::toml;

pub(super) fn translate(work: &mut Work) {
    certificates(work);
    dtls(work);
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

fn certificates(work: &mut Work) {
    if let Some(index) = work.last("no-tls") {
        for name in ["cert", "pkey", "CA-file"] {
            for index in work.all(name) {
                work.set(index, Fate::SameHere("no-tls is set".to_owned()));
            }
        }
        work.set(index, Fate::Taken("no tls.certificates".to_owned()));
        return;
    }
    let (chain, key) = (work.word("cert").map(toml::text), work.word("pkey").map(toml::text));
    match (chain, key) {
        (Some(chain), Some(key)) => {
            let entry = format!("[{{ chain = {chain}, key = {key} }}]");
            work.toml.set("tls.certificates", entry, "cert, pkey");
        }
        (None, None) => {}
        (Some(_), None) | (None, Some(_)) => {
            for name in ["cert", "pkey"] {
                for index in work.all(name) {
                    let reason = "cert and pkey are needed both; coturn serves no TLS, either";
                    work.set(index, Fate::Unreadable(reason.to_owned()));
                }
            }
        }
    }
    if let Some(file) = work.word("CA-file").map(toml::text) {
        work.toml.set("tls.client_authorities", file, "CA-file");
    }
}

/// On by default here, as in coturn before 4.17.
fn dtls(work: &mut Work) {
    let off = |work: &Work, name: &str, value| {
        work.last(name).is_some_and(|index| syntax::switch(work.value(index)) == Some(value))
    };
    if off(work, "no-dtls", true) || off(work, "dtls", false) {
        work.toml.set("dtls.enabled", "false".to_owned(), "no-dtls");
    }
}

fn switches(work: &mut Work) {
    if work.is_on("no-tlsv1_2") {
        work.toml.set("tls.minimum_version", toml::text("1.3"), "no-tlsv1_2");
        work.toml.set("dtls.enabled", "false".to_owned(), "no-tlsv1_2: DTLS is 1.2");
    }
    for (name, key) in [
        ("mobility", "mobility"),
        ("rfc3489-compatibility", "compatibility.rfc3489_clients"),
        ("rfc5766-channel-numbers", "compatibility.rfc5766_clients"),
    ] {
        if work.last(name).is_some() {
            work.toml.set(key, "true".to_owned(), name);
        }
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
