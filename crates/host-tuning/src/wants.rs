//! What the server will ask of the host, as far as tuning has to know it.

/// What the server will ask of the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wants {
    /// Bytes that each socket asks for with SO_RCVBUF.
    pub receive_buffer: u64,
    /// Bytes that each socket asks for with SO_SNDBUF.
    pub send_buffer: u64,
    /// Ports that relayed addresses are taken from, the first and the last.
    pub relay_ports: (u16, u16),
    /// Ports that the server listens on.
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
