//! The two addresses of a connection.

use std::net::SocketAddr;

/// The client's and the server's address of a connection or a DTLS handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressPair {
    /// The client's address and port.
    pub client: SocketAddr,
    /// The server's address and port, as the client addressed it.
    pub server: SocketAddr,
}
