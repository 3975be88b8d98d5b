//! Addresses that a mobile client has left (RFC 8016): no data is to come there.

use std::net::SocketAddr;
use std::time::Duration;

use turn_types::Instant;

/// Longest time that a datagram is on its way.
const IN_FLIGHT: Duration = Duration::from_secs(3);

/// Former addresses of one client.
#[derive(Debug, Default)]
pub(crate) struct FormerAddresses {
    /// The server may still send data there: its allocation may not have moved.
    perhaps: Vec<SocketAddr>,
    /// The allocation has moved since this time.
    left: Vec<(SocketAddr, Instant)>,
}

impl FormerAddresses {
    /// The client has left an address with its allocation.
    pub(crate) fn leave(&mut self, address: SocketAddr) {
        self.perhaps.push(address);
    }

    /// Data came to the client's new address. Returns true if the allocation was elsewhere before.
    pub(crate) fn moved(&mut self, now: Instant) -> bool {
        let is_move = !self.perhaps.is_empty();
        self.left.extend(self.perhaps.drain(..).map(|address| (address, now)));
        is_move
    }

    /// The client has given up its allocation, wherever it is.
    pub(crate) fn give_up(&mut self) {
        self.perhaps.clear();
    }

    /// The server has died, and goes on with copies: the allocation may be where it was before.
    pub(crate) fn forget(&mut self) {
        self.perhaps.clear();
        self.left.clear();
    }

    /// Checks a datagram to an address that is not the client's present one.
    pub(crate) fn check(
        &self,
        now: Instant,
        to: SocketAddr,
        datagram: &[u8],
    ) -> Result<(), String> {
        let left = self.left.iter().find(|(address, _)| *address == to);
        match left {
            Some((_, since)) if now > *since + IN_FLIGHT && is_data(datagram) => {
                Err(format!("data came to {to}, which its client has left"))
            }
            Some(_) | None => Ok(()),
        }
    }
}

/// Returns true for ChannelData, a Data indication, and a DTLS record with either of them.
fn is_data(datagram: &[u8]) -> bool {
    matches!(datagram, [0x40..=0x4F, ..] | [0x00, 0x17, ..] | [23, ..])
}
