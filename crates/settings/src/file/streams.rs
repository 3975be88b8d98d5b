//! Transports without encryption: UDP and TCP.

use crate::section::section;
use crate::value::{Count, Prefix, WebPrefix};

section! {
    /// Clients over TCP, as in networks that block UDP.
    Tcp {
        /// Accepts clients over TCP, at the addresses and ports of `listen`. Off leaves TLS at
        /// `tls.listen`, where connections without TLS are refused then.
        restart enabled: bool = true;
        /// Connections at a time; 0 is any number for which there are files. More are closed at
        /// once. Each is an open file, and two during an upgrade: a process that may open too few
        /// takes fewer, and says how many at its start. Seven eighths of them may have an
        /// allocation, or five eighths with `relaying`; more allocations are refused with 508. The
        /// others make room for newcomers.
        restart connections: Count<0, 1_000_000> = Count::new(20_000);
        /// Connections of one address, or one /64 of IPv6, at a time; 0 is no limit. A whole
        /// company may share one address.
        restart connections_per_address: Count<0, 1_000_000> = Count::new(1000);
        /// Relays TCP connections as well as datagrams for clients over TCP and TLS (RFC 6062): to
        /// peers that `peers` allows, and from peers that the client has permitted, by ports of
        /// `relay.ports`. Calls do not need it. Each connection is two open files, and all of them
        /// take up to a quarter of `connections`. Connections that are open when it is switched off
        /// stay open. Switched on by a reload, it leaves fewer allocations over TCP and TLS: while
        /// more than that are live, further ones get 508.
        live relaying: bool = false;
        /// Load balancers that send the client's address by the PROXY protocol, version 1 or 2:
        /// every connection from these networks has to begin with it, before TLS as well, and no
        /// other may.
        #[schemars(example = serde_json::json!(["10.0.0.0/24"]))]
        restart proxy_protocol: Vec<Prefix> = Vec::new();
        /// URL to redirect a certificate authority to when it verifies this host (ACME, HTTP-01):
        /// the token is appended. Without it every web client gets status 400.
        #[schemars(example = "http://acme.example.org/.well-known/acme-challenge/")]
        restart acme_redirect: Option<WebPrefix> = None;
    }
}

section! {
    /// Clients over UDP, as most are.
    Udp {
        /// Accepts clients over UDP, at the addresses and ports of `listen`. Off leaves DTLS at
        /// `tls.listen`, where datagrams without DTLS are dropped then.
        restart enabled: bool = true;
        /// Relays datagrams, as calls need. Off refuses allocations for UDP with 442 and leaves
        /// `tcp.relaying`, for clients over TCP and TLS. Live allocations stay when it is switched
        /// off.
        live relaying: bool = true;
    }
}
