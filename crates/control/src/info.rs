//! What a server is, as an operator is told.

use std::net::{IpAddr, SocketAddr};
use std::time::SystemTime;

/// Facts about a running server. They change at a reload, if at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerInfo {
    /// Version of the program.
    pub version: String,
    /// When it started.
    pub started: SystemTime,
    /// The realm that users belong to.
    pub realm: String,
    /// Addresses that clients talk to.
    pub listeners: Vec<SocketAddr>,
    /// Addresses that are relayed from.
    pub relay: Vec<RelayInfo>,
    /// First and last relay port.
    pub relay_ports: (u16, u16),
    /// Worker threads.
    pub workers: usize,
    /// Whether datagrams arrive merged (`UDP_GRO`).
    pub gro: bool,
    /// Whether equal datagrams are sent as one (`UDP_SEGMENT`).
    pub gso: bool,
}

/// An address that is relayed from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RelayInfo {
    /// What relay sockets are bound to.
    pub local: IpAddr,
    /// What clients are told; differs behind 1:1 NAT.
    pub public: IpAddr,
}
