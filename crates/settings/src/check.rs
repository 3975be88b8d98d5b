//! What single keys cannot know: how they go together.

mod auth;
mod discovery;
pub(crate) mod ports;
mod relay;
mod secret;
mod tls;
mod tokens;

use std::sync::Arc;

use turn_proto::{AlternateServer, UnauthenticatedBudget};
use turn_types::Prefix;

use crate::document::Document;
use crate::error::Errors;
use crate::file::{self, File};
use crate::limits;
use crate::settings::{Confinement, Dtls, Log, Offload, Peers, Settings, Sockets, Tcp, Workers};
use crate::value::Endpoint;

/// Checks a file; what comes back is good only if no error was added.
pub(crate) fn check(file: File, document: &Document, errors: &mut Errors) -> Settings {
    listeners(&file, document, errors);
    lifetimes(&file.lifetimes, document, errors);
    paths(&file, document, errors);
    let relay = relay::check(&file.relay, document, errors);
    let auth = auth::check(&file.auth, document, errors);
    let peers = peers(&file.peers, document, errors);
    let discovery = discovery::check(&file, document, errors);
    let redirect = redirect(&file.redirect, document, errors);
    let offload = offload(&file.offload, document, errors);
    let tls = tls::check(&file, document, errors);
    let settings = Settings {
        realm: file.realm.as_str().into(),
        software: file.software.as_ref().map(|text| Arc::from(text.as_str())),
        listen: file.listen.iter().map(|endpoint| endpoint.0).collect(),
        mobility: file.mobility,
        relay,
        auth,
        peers,
        quotas: turn_proto::Quotas {
            allocations_per_user: file.quotas.allocations_per_user.get(),
            allocations_per_customer: file.quotas.allocations_per_address.get(),
            allocations_total: file.quotas.allocations_total.get(),
            permissions: file.quotas.permissions.get(),
            channels: file.quotas.channels.get(),
            new_peers_per_second: file.quotas.new_peers_per_second.get(),
            bytes_per_second: file.quotas.bytes_per_second.get(),
        },
        unauthenticated: UnauthenticatedBudget {
            per_second: file.quotas.unauthenticated_responses_per_second.get(),
        },
        lifetimes: turn_proto::Lifetimes {
            allocation_default: file.lifetimes.allocation_default.get(),
            allocation_max: file.lifetimes.allocation_max.get(),
            permission: file.lifetimes.permission.get(),
            channel: file.lifetimes.channel.get(),
            nonce: file.lifetimes.nonce.get(),
            reservation: file.lifetimes.reservation.get(),
        },
        rfc5766_clients: file.compatibility.rfc5766_clients,
        coturn_tokens: file.compatibility.coturn_tokens,
        rfc3489_clients: file.compatibility.rfc3489_clients,
        discovery,
        redirect,
        workers: Workers { count: file.workers.count, pin: file.workers.pin },
        tcp: Tcp {
            enabled: file.tcp.enabled,
            connections: file.tcp.connections.get(),
            connections_per_address: file.tcp.connections_per_address.get(),
            relaying: file.tcp.relaying,
            proxy_protocol: file.tcp.proxy_protocol.iter().map(|prefix| prefix.0).collect(),
            acme_redirect: file.tcp.acme_redirect.as_ref().map(|url| url.as_str().to_owned()),
        },
        dtls: Dtls {
            // There is no way to it then that would not go past the certificates of clients.
            enabled: file.dtls.enabled && tls.client_authorities.is_none(),
            associations: file.dtls.associations.get(),
            associations_per_address: file.dtls.associations_per_address.get(),
        },
        tls,
        sockets: Sockets {
            receive_buffer: kernel_size(file.sockets.receive_buffer.get()),
            send_buffer: kernel_size(file.sockets.send_buffer.get()),
            gro: file.sockets.gro,
            gso: file.sockets.gso,
        },
        offload,
        confinement: Confinement {
            landlock: file.confinement.landlock,
            seccomp: file.confinement.seccomp,
            readable: (file.confinement.readable.iter())
                .map(|path| document.directory().join(path.as_str()))
                .collect(),
        },
        log: Log { format: file.log.format, level: file.log.level },
        control: file.control.socket.clone().map(Into::into),
        data_directory: file.data.directory.clone().into(),
        drain: file.shutdown.drain.get(),
    };
    ports::check(&settings, &file, document, errors);
    settings
}

/// The bounds of the keys lie far below: nothing is cut off.
fn kernel_size(bytes: u64) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

fn listeners(file: &File, document: &Document, errors: &mut Errors) {
    const KEY: &str = "listen";
    if file.listen.is_empty() && !document.is_refused(KEY) {
        let help = "name an address and port, such as \"0.0.0.0:3478\", or leave the key out for port 3478 everywhere";
        errors.add(document.place(KEY), KEY, "there is nothing to listen on", help);
    }
    for (index, Endpoint(listener)) in file.listen.iter().enumerate() {
        if file.listen[..index].contains(&Endpoint(*listener)) {
            let place = document.entry_place(KEY, index);
            errors.add(place, KEY, format!("\"{listener}\" is there twice"), "remove one of them");
        }
    }
}

fn lifetimes(lifetimes: &file::Lifetimes, document: &Document, errors: &mut Errors) {
    const KEY: &str = "lifetimes.allocation_max";
    let (default, max) = (lifetimes.allocation_default.get(), lifetimes.allocation_max.get());
    let refused = document.is_refused(KEY) || document.is_refused("lifetimes.allocation_default");
    if default > max && !refused {
        let shown = crate::value::show_duration;
        errors.add(
            document.place(KEY),
            KEY,
            format!("{} is below lifetimes.allocation_default, {}", shown(max), shown(default)),
            "raise the one or lower the other",
        );
    }
}

pub(crate) const DIRECTORY: &str = "data.directory";
pub(crate) const SOCKET: &str = "control.socket";

/// What places may be.
pub(crate) fn paths(file: &File, document: &Document, errors: &mut Errors) {
    if file.data.directory.is_empty() {
        errors.add(document.place(DIRECTORY), DIRECTORY, "the path is empty", "name a directory");
    }
    let Some(socket) = &file.control.socket else { return };
    if socket.is_empty() {
        let help = "name a path, or leave the key out for control.sock in data.directory";
        errors.add(document.place(SOCKET), SOCKET, "the path is empty", help);
    } else if socket.len() > limits::SOCKET_PATH_BYTES_MAX {
        errors.add(
            document.place(SOCKET),
            SOCKET,
            format!(
                "the path has {} bytes, and a Unix socket's has at most {}",
                socket.len(),
                limits::SOCKET_PATH_BYTES_MAX
            ),
            "use a shorter one, such as \"/run/turnpike/control.sock\"",
        );
    }
}

fn peers(peers: &file::Peers, document: &Document, errors: &mut Errors) -> Peers {
    const DENY: &str = "peers.deny";
    let prefixes =
        |list: &[crate::value::Prefix]| list.iter().map(|prefix| prefix.0).collect::<Vec<Prefix>>();
    let (allow, deny) = (prefixes(&peers.allow), prefixes(&peers.deny));
    for (index, prefix) in deny.iter().enumerate().filter(|(_, prefix)| allow.contains(prefix)) {
        let what = format!("\"{prefix}\" is in peers.allow too");
        errors.add(
            document.entry_place(DENY, index),
            DENY,
            what,
            "remove it from one of the lists",
        );
    }
    Peers { allow, deny }
}

fn offload(offload: &file::Offload, document: &Document, errors: &mut Errors) -> Offload {
    const KEY: &str = "offload.interfaces";
    let names = &offload.interfaces;
    if names.len() > limits::INTERFACES_MAX {
        let what = format!("the list has {} interfaces", names.len());
        let help = format!("write at most {}", limits::INTERFACES_MAX);
        errors.add(document.place(KEY), KEY, what, help);
    }
    for (index, name) in names.iter().enumerate() {
        if names[..index].contains(name) {
            let what = format!("\"{}\" is there twice", name.0);
            errors.add(document.entry_place(KEY, index), KEY, what, "remove one of them");
        }
    }
    Offload {
        mode: offload.mode,
        interfaces: names.iter().map(|name| name.0.clone()).collect(),
        flows: offload.flows.get(),
    }
}

fn redirect(
    redirect: &file::Redirect,
    document: &Document,
    errors: &mut Errors,
) -> Option<AlternateServer> {
    let (v4, v6) =
        (redirect.ipv4.map(|endpoint| endpoint.0), redirect.ipv6.map(|endpoint| endpoint.0));
    for (key, server, fits) in [
        ("redirect.ipv4", v4, v4.is_none_or(|server| server.is_ipv4())),
        ("redirect.ipv6", v6, v6.is_none_or(|server| server.is_ipv6())),
    ] {
        if let Some(server) = server {
            if !fits {
                let what = format!("\"{server}\" is of the other family");
                errors.add(
                    document.place(key),
                    key,
                    what,
                    "clients are sent to a server of the family they came over",
                );
            } else if server.ip().is_unspecified() {
                errors.add(
                    document.place(key),
                    key,
                    format!("\"{server}\" is a wildcard"),
                    "name the server's address",
                );
            }
        }
    }
    let domain = redirect.domain.as_ref().map(|domain| domain.as_str().to_owned());
    if v4.is_none() && v6.is_none() {
        let refused = document.is_refused("redirect.ipv4") || document.is_refused("redirect.ipv6");
        if domain.is_some() && !refused {
            errors.add(
                document.place("redirect.domain"),
                "redirect.domain",
                "there is a name, and no address to send clients to",
                "set redirect.ipv4, redirect.ipv6 or both",
            );
        }
        return None;
    }
    Some(AlternateServer { v4, v6, domain })
}
