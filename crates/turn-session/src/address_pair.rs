//! Pair of addresses that identifies a connection.

use std::net::SocketAddr;

/// Client and server address of a connection or a DTLS handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressPair {
    /// Address and port of the client.
    pub client: SocketAddr,
    /// Address and port of the server, as addressed by the client.
    pub server: SocketAddr,
}
