//! A client and its wire.

use std::io;
use std::net::SocketAddr;

use turn_client::{Client, ClientConfig};

use crate::endpoint::Endpoint;
use crate::wire::Wire;

/// A client and its wire.
#[derive(Debug)]
pub struct Link {
    /// The socket or connection to the server.
    pub wire: Wire,
    /// The client.
    pub client: Client,
}

impl Link {
    /// A client on a socket or a connection of its own.
    ///
    /// # Errors
    /// As [`Endpoint::open`].
    pub fn open(endpoint: &Endpoint, config: ClientConfig) -> io::Result<Self> {
        Ok(Self { wire: endpoint.open()?, client: Client::new(config) })
    }

    /// The first relayed address of the allocation, if there is one.
    #[must_use]
    pub fn relayed(&self) -> Option<SocketAddr> {
        let allocation = self.client.allocation()?;
        allocation.relayed.iter().flatten().next().map(|relayed| relayed.0)
    }

    /// Sends the pending requests of the client, and returns how many messages the kernel took. The
    /// others are retransmitted like lost datagrams; a broken connection is reported by receiving.
    pub fn send(&mut self) -> u64 {
        let mut sent = 0;
        while let Some(request) = self.client.poll_transmit() {
            sent += u64::from(self.wire.send(request).unwrap_or(false));
        }
        sent
    }
}
