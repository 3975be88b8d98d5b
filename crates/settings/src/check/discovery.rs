//! Listeners of NAT behaviour discovery: of each family two addresses with the same two ports (RFC
//! 5780 §6), and public ones of the same shape.

use std::net::{IpAddr, SocketAddr};

use turn_proto::DiscoverySockets;
use turn_types::IpFamily;

use crate::document::Document;
use crate::error::Errors;
use crate::file::{self, File};

const ADDRESSES: &str = "discovery.addresses";
const PORTS: &str = "discovery.ports";
const EXTERNAL: &str = "discovery.external";

pub(super) fn check(
    file: &File,
    document: &Document,
    errors: &mut Errors,
) -> Vec<DiscoverySockets> {
    let discovery = &file.discovery;
    let refused = document.is_refused(ADDRESSES) || document.is_refused(PORTS);
    if refused {
        return Vec::new();
    }
    if discovery.addresses.is_empty() {
        if !discovery.external.is_empty() {
            let what = "there are external addresses, and discovery.addresses is empty";
            errors.add(document.place(EXTERNAL), EXTERNAL, what, "name the two local addresses");
        }
        return Vec::new();
    }
    let Some(ports) = ports(file, document, errors) else { return Vec::new() };
    let mut sockets = Vec::new();
    for family in IpFamily::ALL {
        let all = discovery.addresses.iter().map(|host| host.0);
        let of_family: Vec<IpAddr> = all.filter(|ip| IpFamily::of(*ip) == family).collect();
        match *of_family.as_slice() {
            [] => {}
            [one, other] if one != other => {
                let local = [one, other].map(|ip| ports.map(|port| SocketAddr::new(ip, port)));
                sockets.push(DiscoverySockets { local, public: local });
            }
            [one, _] => errors.add(
                document.place(ADDRESSES),
                ADDRESSES,
                format!("{one} is there twice"),
                "name two addresses: a NAT is known by how it treats two",
            ),
            _ => errors.add(
                document.place(ADDRESSES),
                ADDRESSES,
                format!("there are {} {family} addresses", of_family.len()),
                "name two of a family, or none: a NAT is known by how it treats two",
            ),
        }
    }
    if !document.is_refused(EXTERNAL) {
        externals(&discovery.external, &mut sockets, document, errors);
    }
    sockets
}

fn ports(file: &File, document: &Document, errors: &mut Errors) -> Option<[u16; 2]> {
    let ports: Vec<u16> = file
        .discovery
        .ports
        .iter()
        .filter_map(|port| u16::try_from(port.get()).ok()) // the key's bounds are a port's
        .collect();
    let mut refuse = |what, help| errors.add(document.place(PORTS), PORTS, what, help);
    match *ports.as_slice() {
        [one, other] if one != other => Some([one, other]),
        [one, _] => {
            refuse(format!("port {one} is there twice"), "name two ports");
            None
        }
        _ => {
            refuse(format!("there are {} ports", ports.len()), "name two ports");
            None
        }
    }
}

/// Enters the public addresses.
fn externals(
    entries: &[file::ExternalEndpoint],
    all: &mut [DiscoverySockets],
    document: &Document,
    errors: &mut Errors,
) {
    let mut named: Vec<SocketAddr> = Vec::new();
    for (index, entry) in entries.iter().enumerate() {
        let mut refuse = |what: String, help| {
            errors.add(document.entry_place(EXTERNAL, index), EXTERNAL, what, help);
        };
        let (Some(local), Some(public)) = (entry.local, entry.public) else {
            let help = "write { local = \"10.0.0.5:3478\", public = \"203.0.113.7:3478\" }";
            refuse("the entry has not both of local and public".to_owned(), help);
            continue;
        };
        let (local, public) = (local.0, public.0);
        let place = all
            .iter_mut()
            .flat_map(|sockets| {
                sockets.local.iter().flatten().zip(sockets.public.iter_mut().flatten())
            })
            .find(|(at, _)| **at == local);
        let Some((_, place)) = place else {
            let help = "local is an address of discovery.addresses with a port of discovery.ports";
            refuse(format!("nothing is served at {local}"), help);
            continue;
        };
        if named.contains(&local) {
            refuse(format!("{local} is there twice"), "remove one of them");
        } else if local.is_ipv4() != public.is_ipv4() {
            let what = format!("local {local} and public {public} are of different families");
            refuse(what, "name the address that stands before the local one");
        } else {
            *place = public;
        }
        named.push(local);
    }
    for sockets in all {
        let count = sockets.local.iter().flatten().filter(|local| named.contains(local)).count();
        let mut refuse = |what: String, help| {
            errors.add(document.place(EXTERNAL), EXTERNAL, what, help);
        };
        if !matches!(count, 0 | 4) {
            let family = IpFamily::of(sockets.local[0][0].ip());
            let what = format!("{count} of the four {family} addresses have a public one");
            refuse(what, "write an entry for each of the four");
        } else if !is_square(&sockets.public) {
            let what = "the public addresses are not two addresses with the same two ports";
            refuse(what.to_owned(), "RFC 5780 needs each public address with each public port");
        }
    }
}

/// Returns whether rows share an address, columns a port, and nothing else is shared.
fn is_square([[a, b], [c, d]]: &[[SocketAddr; 2]; 2]) -> bool {
    let rows = a.ip() == b.ip() && c.ip() == d.ip() && a.ip() != c.ip();
    let columns = a.port() == c.port() && b.port() == d.port() && a.port() != b.port();
    rows && columns
}
