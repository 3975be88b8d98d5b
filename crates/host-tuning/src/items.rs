//! Looks at the items that the catalogue names.

pub(crate) mod coalescing;
pub(crate) mod conntrack;
pub(crate) mod features;
pub(crate) mod host;
pub(crate) mod irq;
pub(crate) mod queues;
pub(crate) mod steering;
pub(crate) mod sysctl;

/// Needs of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wants {
    /// SO_RCVBUF of each socket, in bytes.
    pub receive_buffer: u64,
    /// SO_SNDBUF of each socket, in bytes.
    pub send_buffer: u64,
    /// Relay ports, the first and the last.
    pub relay_ports: (u16, u16),
    /// Ports of listeners.
    pub listen_ports: Vec<u16>,
    /// Threads that relay.
    pub workers: u64,
    /// Relayed addresses that may be live at once; each is a socket.
    pub relayed: u64,
    /// Descriptors that the process may need.
    pub files: u64,
}

impl Wants {
    /// Listener sockets: one per worker and port.
    pub(crate) fn listeners(&self) -> u64 {
        self.workers.saturating_mul(self.listen_ports.len().max(1) as u64)
    }
}
