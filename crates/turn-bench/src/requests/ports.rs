//! Ports that were not used for a long time.

use std::io;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};

use client_driver::{Endpoint, Wire};
use linux_net::random_bytes;

/// The first of the ports used in turn: above well-known services.
const FIRST: u32 = 10_000;

/// Number of ports: at 10,000 exchanges per second one is reused after five seconds.
const COUNT: u32 = 50_000;

/// The next port, counted from [`FIRST`]. It begins at random, so that a server's state of an
/// earlier run does not matter.
static NEXT: LazyLock<AtomicU32> =
    LazyLock::new(|| AtomicU32::new(u32::from_be_bytes(random_bytes()) % COUNT));

/// A socket on the next free port, or a new connection: its port the kernel chooses, since servers
/// know a connection from an earlier one. The kernel, when asked for any port, may well give one
/// back that was closed a moment ago.
pub(super) fn open(endpoint: &Endpoint) -> io::Result<Wire> {
    if endpoint.transport.is_stream() {
        return endpoint.open();
    }
    let mut last = io::Error::from(io::ErrorKind::AddrInUse);
    for _ in 0..COUNT {
        let number = NEXT.fetch_add(1, Ordering::Relaxed) % COUNT;
        // Below 60,000.
        match endpoint.open_at((FIRST + number) as u16) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => last = error,
            outcome => return outcome,
        }
    }
    Err(last)
}
