//! Addresses of the servers that clients are redirected to.

use std::net::SocketAddr;

use crate::value::Endpoint;

/// The addresses of a list, each once.
pub(crate) fn addresses<'a>(list: impl IntoIterator<Item = &'a Endpoint>) -> Vec<SocketAddr> {
    let mut addresses = Vec::new();
    for Endpoint(address) in list {
        if !addresses.contains(address) {
            addresses.push(*address);
        }
    }
    addresses
}
