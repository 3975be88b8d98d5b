//! Loads and servers in words.

use crate::outcome::{ComparedCell, ComparedServer};
use crate::traffic::Transport;

/// Cells of the memory and of allocations: they are told last, and their sentences have words of
/// their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Packets,
    Allocations,
    Memory,
}

pub(super) fn kind(cell: &ComparedCell) -> Kind {
    match cell.name.as_str() {
        "alloc" => Kind::Allocations,
        "footprint" => Kind::Memory,
        _ => Kind::Packets,
    }
}

/// A load in words: shape, direction, transport; and its flows and size where it has them.
pub(super) fn load(transport: Transport, cell: &ComparedCell) -> (String, String) {
    let over = match transport {
        Transport::Udp => "UDP",
        Transport::Tcp => "TCP",
        Transport::Tls => "TLS 1.3",
        Transport::Tls12 => "TLS 1.2",
        Transport::Dtls => "DTLS 1.2",
    };
    let parts: Vec<&str> = cell.name.split(':').collect();
    match parts.as_slice() {
        [shape, flows, direction, bytes] => {
            let direction = match *direction {
                "c2p" => "client to peer",
                "p2c" => "peer to client",
                "echo" => "there and back",
                other => other,
            };
            let plural = if *flows == "1" { "" } else { "s" };
            (
                format!("{shape}, {direction}, {over}"),
                format!("{flows} flow{plural} of {bytes} bytes"),
            )
        }
        ["alloc"] => (format!("allocations, {over}"), String::new()),
        ["footprint"] => (format!("memory of an idle allocation, {over}"), String::new()),
        _ => (format!("{}, {over}", cell.name), String::new()),
    }
}

/// A server by its way through the host: `Turnpike by sockets`.
pub(super) fn server(name: &str) -> String {
    // Servers of equal names are numbered.
    let numbered = name.rsplit_once('-').filter(|(_, number)| number.parse::<u32>().is_ok());
    let (name, number) = numbered.map_or((name, None), |(name, number)| (name, Some(number)));
    let words = match name {
        "turnpike" => "Turnpike",
        "turnpike-sockets" => "Turnpike by sockets",
        "turnpike-prefix" => "Turnpike from a prefix",
        "turnpike-tc" => "Turnpike by tc",
        "turnpike-xdp" => "Turnpike by XDP",
        "turnpike-xdp-generic" => "Turnpike by generic XDP",
        "bare" => "bare forwarder",
        other => other,
    };
    number.map_or_else(|| words.to_owned(), |number| format!("{words} ({number})"))
}

/// A server with its version, which matters most where it is an old one.
pub(super) fn server_with_version(server: &ComparedServer) -> String {
    let name = self::server(&server.name);
    if !server.name.starts_with("coturn") {
        return name;
    }
    // Builds of the project itself say `Coturn-4.17.1 'Gorst'`.
    let is_number = |c: char| c.is_ascii_digit() || c == '.';
    let version = server.version.trim_start_matches(|c: char| !c.is_ascii_digit());
    let version: String = version.chars().take_while(|c| is_number(*c)).collect();
    if version.is_empty() { name } else { format!("{name} {version}") }
}

/// Servers that the others are judged by.
pub(super) fn is_opponent(name: &str) -> bool {
    !is_own(name) && name != "bare"
}

/// Ways and builds of Turnpike.
pub(super) fn is_own(name: &str) -> bool {
    name.starts_with("turnpike")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_named_by_their_way() {
        let names = ["turnpike", "turnpike-sockets-2", "turnpike-xdp", "coturn-fastest", "pion-2"];
        let words = [
            "Turnpike",
            "Turnpike by sockets (2)",
            "Turnpike by XDP",
            "coturn-fastest",
            "pion (2)",
        ];
        assert_eq!(names.map(server), words);
    }
}
