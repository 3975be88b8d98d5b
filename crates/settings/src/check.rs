//! Checks of several keys together.

mod acme;
mod api;
mod auth;
mod authorizer;
mod database;
mod discovery;
mod http;
mod log;
mod nonce;
pub(crate) mod ports;
mod quotas;
mod realms;
mod relay;
mod secret;
mod services;
mod signed_tokens;
mod tls;
mod tokens;

use std::net::SocketAddr;
use std::path::Path;

use turn_types::quantity::show_duration;

use crate::database_rules::DatabaseRules;
use crate::document::Document;
use crate::error::Errors;
use crate::file::{self, File};
use crate::limits;
use crate::redirects::Redirects;
use crate::settings::Settings;
use crate::value::{Endpoint, InterfaceName, Prefix};

/// Checks a file; the result is valid only if no error was added.
pub(crate) fn check(file: File, document: &Document, errors: &mut Errors) -> Settings {
    listeners(&file, document, errors);
    lifetimes(&file.lifetimes, document, errors);
    paths(&file, document, errors);
    relay::check(&file.relay, document, errors);
    http::check(&file, document, errors);
    api::check(&file, document, errors);
    peers(&file.peers, document, errors);
    redirect(&file.redirect, document, errors);
    interfaces(&file.offload.interfaces, document, errors);
    quotas::check(&file, document, errors);
    services::check(&file, document, errors);
    tls::check(&file, document, errors);
    let acme_challenge = acme::check(&file, document, errors);
    let settings = Settings {
        acme_challenge,
        unused_variables: Vec::new(),
        secrets: auth::check(&file, document, errors),
        signed_secret: signed_tokens::check(&file, document, errors),
        authorization: authorizer::check(&file, document, errors),
        nonce_key: nonce::check(&file.auth, document, errors),
        address_key: log::check(&file.log, document, errors),
        tenants: realms::check(&file, document, errors),
        database_of_file: database::check(&file.users, document, errors),
        statistics_of_file: database::statistics(&file.accounting, document, errors),
        token_keys: tokens::check(&file.auth, document, errors),
        tls_listen: tls::listeners(&file),
        discovery_sockets: discovery::check(&file, document, errors),
        directory: document.directory().to_owned(),
        places: document.places(),
        found: Vec::new(),
        of_database: DatabaseRules::default(),
        file,
    };
    ports::check(&settings, document, errors);
    settings
}

fn listeners(file: &File, document: &Document, errors: &mut Errors) {
    const KEY: &str = "listen";
    let refused = [KEY, TLS_LISTEN, "tls.certificates", "udp.enabled", "tcp.enabled"];
    let tls = tls::listeners(file);
    let plain = !file.listen.is_empty() && (file.udp.enabled || file.tcp.enabled);
    let secure = !tls.is_empty() && (file.tls.enabled || file.dtls.enabled);
    if !plain && !secure && !refused.iter().any(|key| document.is_refused(key)) {
        let help = "name an address and port, such as \"0.0.0.0:3478\", or leave the key out for port 3478 everywhere; \
                    for TLS alone name tls.listen and tls.certificates";
        errors.add(document.place(KEY), KEY, "there is nothing to listen on", help);
    }
    for (index, Endpoint(listener)) in file.listen.iter().enumerate() {
        if file.listen[..index].contains(&Endpoint(*listener)) {
            let place = document.entry_place(KEY, index);
            errors.add(place, KEY, format!("\"{listener}\" is there twice"), "remove one of them");
        }
    }
    let plain: Vec<SocketAddr> = file.listen.iter().map(|endpoint| endpoint.0).collect();
    covered(KEY, &plain, (KEY, &plain), document, errors);
    for (index, Endpoint(listener)) in file.tls.listen.iter().enumerate() {
        let both =
            file.udp.enabled && !file.tcp.enabled && file.listen.contains(&Endpoint(*listener));
        if both && document.is_written(TLS_LISTEN) {
            let what =
                format!("\"{listener}\" is in listen too, which tcp.enabled = false leaves to UDP");
            let help = "name another port here, or take it out of listen";
            errors.add(document.entry_place(TLS_LISTEN, index), TLS_LISTEN, what, help);
        }
    }
    covered(TLS_LISTEN, &tls, (TLS_LISTEN, &tls), document, errors);
    covered(TLS_LISTEN, &tls, (KEY, &plain), document, errors);
    covered(KEY, &plain, (TLS_LISTEN, &tls), document, errors);
}

const TLS_LISTEN: &str = "tls.listen";

/// Refuses listeners that a wildcard of `others` covers: both would take the same packets.
fn covered(
    key: &'static str,
    listeners: &[SocketAddr],
    (other_key, others): (&str, &[SocketAddr]),
    document: &Document,
    errors: &mut Errors,
) {
    if document.is_refused(key) || document.is_refused(other_key) {
        return;
    }
    for listener in listeners.iter().filter(|listener| !listener.ip().is_unspecified()) {
        let wildcard = others.iter().find(|other| {
            other.ip().is_unspecified()
                && other.is_ipv4() == listener.is_ipv4()
                && other.port() == listener.port()
        });
        let Some(wildcard) = wildcard else { continue };
        // A default has no place: the written one of the two is named.
        let (at_key, at) =
            if document.is_written(key) { (key, listener) } else { (other_key, wildcard) };
        let place = document.place_of_text(at_key, &at.to_string());
        let of = if key == other_key { String::new() } else { format!(" of {other_key}") };
        let what = format!("\"{listener}\" is part of \"{wildcard}\"{of}");
        errors.add(place, key, what, "remove one of them, or use another port");
    }
}

fn lifetimes(lifetimes: &file::Lifetimes, document: &Document, errors: &mut Errors) {
    const KEY: &str = "lifetimes.allocation_max";
    let (default, max) = (lifetimes.allocation_default.get(), lifetimes.allocation_max.get());
    let refused = document.is_refused(KEY) || document.is_refused("lifetimes.allocation_default");
    if default > max && !refused {
        errors.add(
            document.place(KEY),
            KEY,
            format!(
                "{} is below lifetimes.allocation_default, {}",
                show_duration(max),
                show_duration(default)
            ),
            "raise the one or lower the other",
        );
    }
}

pub(crate) const DIRECTORY: &str = "data.directory";
pub(crate) const SOCKET: &str = "control.socket";

/// Checks the paths that commands need to reach a running server.
pub(crate) fn paths(file: &File, document: &Document, errors: &mut Errors) {
    if file.data.directory.as_os_str().is_empty() {
        errors.add(document.place(DIRECTORY), DIRECTORY, "the path is empty", "name a directory");
    }
    let Some(socket) = &file.control.socket else { return };
    if socket.as_os_str().is_empty() {
        let help = "name a path, or leave the key out for control.sock in data.directory";
        errors.add(document.place(SOCKET), SOCKET, "the path is empty", help);
    } else if let Some(error) = too_long(socket) {
        let help = "use a shorter one, such as \"/run/turnpike/control.sock\"";
        errors.add(document.place(SOCKET), SOCKET, error, help);
    }
}

/// The error of a Unix socket's path that clients could not connect to.
fn too_long(socket: &Path) -> Option<String> {
    let (length, most) = (socket.as_os_str().len(), limits::SOCKET_PATH_BYTES_MAX);
    (length > most)
        .then(|| format!("the path has {length} bytes, and a Unix socket's has at most {most}"))
}

fn peers(peers: &file::Peers, document: &Document, errors: &mut Errors) {
    const DENY: &str = "peers.deny";
    for (index, Prefix(prefix)) in peers.deny.iter().enumerate() {
        if peers.allow.contains(&Prefix(*prefix)) {
            let place = document.entry_place(DENY, index);
            let error = format!("\"{prefix}\" is in peers.allow too");
            errors.add(place, DENY, error, "remove it from one of the lists");
        }
    }
}

fn interfaces(names: &[InterfaceName], document: &Document, errors: &mut Errors) {
    const KEY: &str = "offload.interfaces";
    if names.len() > limits::INTERFACES_MAX {
        let error = format!("the list has {} interfaces", names.len());
        let help = format!("write at most {}", limits::INTERFACES_MAX);
        errors.add(document.place(KEY), KEY, error, help);
    }
    for (index, name) in names.iter().enumerate() {
        if names[..index].contains(name) {
            let error = format!("\"{}\" is there twice", name.as_str());
            errors.add(document.entry_place(KEY, index), KEY, error, "remove one of them");
        }
    }
}

fn redirect(redirect: &file::Redirect, document: &Document, errors: &mut Errors) {
    let key = |name: &str| format!("redirect.{name}");
    for fault in Redirects::of_all(redirect).faults(|name| document.is_refused(&key(name))) {
        let key = key(fault.key);
        errors.add(document.place(&key), &key, fault.what, fault.help);
    }
}
