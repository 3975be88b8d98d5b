//! Protocol switches, the log, metrics.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::{Fate, Work, access};
use crate::syntax;
use crate::toml;

pub(super) fn translate(work: &mut Work) {
    switches(work);
    log(work);
    metrics(work);
    if work.replaces() {
        replace(work);
    } else {
        if !work.is_on("no-tcp-relay") {
            work.notes.push(
                "coturn relays TCP (RFC 6062) unless no-tcp-relay is set. Here it is off, since calls do not need it: \
                 `tcp.relaying = true` switches it on."
                    .to_owned(),
            );
        }
        work.notes.push(
            "Channel numbers are those of RFC 8656: clients of RFC 5766, such as the turnutils_uclient of coturn 4.6, need \
             `compatibility.rfc5766_clients = true`."
                .to_owned(),
        );
    }
    limits(work);
    without_options(work);
}

/// Tells of limits that coturn does not have.
fn limits(work: &mut Work) {
    let of_user = if work.last("user-quota").is_some() {
        ""
    } else {
        "a user has 1,000 allocations at most, "
    };
    let user_quota = if of_user.is_empty() { "" } else { "user-quota, " };
    work.notes.push(format!(
        "There are limits without an option: {of_user}an address 2,000 allocations, 1,000 connections and 100 new peers a \
         second. To change them, set {user_quota}`quotas`, `tcp.connections_per_address` or variables such as \
         TURNPIKE_QUOTAS__ALLOCATIONS_PER_ADDRESS."
    ));
}

/// Tells of other behaviour of coturn without an option.
fn without_options(work: &mut Work) {
    let alternates = [
        "alternate-server",
        "udp-alternate-server",
        "tcp-alternate-server",
        "tls-alternate-server",
    ];
    if alternates.iter().any(|name| work.last(name).is_some()) {
        work.notes.push(
            "Clients are redirected to servers that answer: while none does, they are served here."
                .to_owned(),
        );
    }
    if !work.is_on("no-stun-backward-compatibility") {
        work.notes.push(
            "STUN of before 2008 (RFC 3489) is not answered, unless `compatibility.rfc3489_clients` is on.".to_owned(),
        );
    }
    if !work.is_on("no-cli") {
        work.notes.push(
            "There is no console over telnet: `turnpike status`, `turnpike sessions` and `turnpike why` are commands of this \
             host's shell."
                .to_owned(),
        );
    }
}

/// Serves whom coturn serves without an option.
fn replace(work: &mut Work) {
    let comment = "coturn up to 4.6 takes the channel numbers of RFC 5766";
    work.toml.set("compatibility.rfc5766_clients", "true".to_owned(), comment);
    if !work.is_on("no-tcp-relay") {
        let comment = "coturn relays TCP unless no-tcp-relay is set";
        work.toml.set("tcp.relaying", "true".to_owned(), comment);
    }
}

/// Responses to Binding for users only. coturn ignores the option where nobody can log in.
fn secure_stun(work: &mut Work) {
    if work.is_on("stun-only") && !access::authenticates(work) {
        let reason = "without users and secrets coturn answers everyone as well";
        for index in work.all("secure-stun") {
            work.set(index, Fate::SameHere(reason.to_owned()));
        }
    } else if work.last("secure-stun").is_some() {
        work.toml.set("auth.binding", "true".to_owned(), "secure-stun");
    }
}

fn switches(work: &mut Work) {
    for (name, key) in [
        ("mobility", "mobility"),
        ("rfc3489-compatibility", "compatibility.rfc3489_clients"),
        ("rfc5766-channel-numbers", "compatibility.rfc5766_clients"),
    ] {
        if work.last(name).is_some() {
            work.toml.set(key, "true".to_owned(), name);
        }
    }
    secure_stun(work);
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

/// Options of metrics besides the one that serves them.
const MORE: [&str; 6] = [
    "prometheus-port",
    "prometheus-address",
    "prometheus-path",
    "prometheus-tls",
    "prometheus-cert",
    "prometheus-key",
];

fn metrics_path(work: &mut Work) {
    let Some(index) = work.last("prometheus-path") else { return };
    let path = syntax::word(work.value(index)).to_owned();
    let is_name = |name: &str| {
        !matches!(name, "" | "." | "..")
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
    };
    match path.strip_prefix('/') {
        Some(names) if names.split('/').all(is_name) && path.len() <= 256 => {
            work.toml.set("http.metrics_path", toml::text(&path), "prometheus-path");
        }
        Some(_) | None => work.unreadable(index, "a path such as /metrics"),
    }
}

/// Metrics have the certificates of the server; one of their own becomes one more of them.
fn metrics_over_tls(work: &mut Work) {
    if !work.is_on("prometheus-tls") {
        for name in ["prometheus-cert", "prometheus-key"] {
            for index in work.all(name) {
                work.set(index, Fate::SameHere("prometheus-tls is off".to_owned()));
            }
        }
        return;
    }
    let own = ["cert", "pkey"].map(|name| work.word(name).map(str::to_owned));
    let theirs =
        ["prometheus-cert", "prometheus-key"].map(|name| work.word(name).map(str::to_owned));
    let has_own = own.iter().all(Option::is_some) && !work.is_on("no-tls");
    match theirs {
        [Some(chain), Some(key)] if !has_own => {
            let entry =
                format!("[{{ chain = {}, key = {} }}]", toml::text(&chain), toml::text(&key));
            work.toml.set("tls.certificates", entry, "prometheus-cert, prometheus-key");
            // Clients get none in coturn.
            for key in ["tls.enabled", "dtls.enabled"] {
                work.toml.set(key, "false".to_owned(), "the certificate is for metrics alone");
            }
        }
        [Some(_), Some(_)] if theirs != own => {
            let reason = "add it to tls.certificates: which one is shown depends on the name that is asked for";
            for name in ["prometheus-cert", "prometheus-key"] {
                for index in work.all(name) {
                    work.set(index, Fate::Unsupported(reason.to_owned()));
                }
            }
        }
        [None, None] if !has_own => {
            for index in work.all("prometheus-tls") {
                work.unreadable(index, "prometheus-cert and prometheus-key, or cert and pkey");
            }
            return;
        }
        _ => {}
    }
    work.toml.set("http.tls", "true".to_owned(), "prometheus-tls");
}

fn metrics(work: &mut Work) {
    const PORT: u16 = 9641;
    if !work.is_on("prometheus") && !work.is_on("prometheus-tls") {
        for name in MORE {
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
        None => "prometheus",
    };
    if address.is_none() {
        work.notes.push(
            "coturn serves Prometheus at every address, here it is served at loopback alone: name the \
             address that your monitoring reaches in `prometheus-address` (here `http.listen`)."
                .to_owned(),
        );
    }
    let address = address.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
    let listen = SocketAddr::new(address, port.unwrap_or(PORT)).to_string();
    work.toml.set("http.listen", toml::list(&[listen]), comment);
    metrics_path(work);
    metrics_over_tls(work);
    work.toml.set("http.coturn_metrics", "true".to_owned(), "coturn's names, besides others");
}
