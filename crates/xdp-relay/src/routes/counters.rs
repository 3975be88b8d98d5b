//! Counters of a flow.

/// Traffic relayed by the kernel, since the last report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowCounters {
    /// Datagrams to peers.
    pub to_peer_packets: u64,
    /// Bytes of their payload.
    pub to_peer_bytes: u64,
    /// Datagrams to clients.
    pub to_client_packets: u64,
    /// Bytes of their payload, without the ChannelData header.
    pub to_client_bytes: u64,
    /// Datagrams of clients that were dropped because they were over the bandwidth.
    pub to_peer_over: u64,
    /// The same of peers.
    pub to_client_over: u64,
}

impl FlowCounters {
    /// True if all are zero.
    #[must_use]
    pub fn is_zero(&self) -> bool {
        *self == Self::default()
    }

    pub(super) const fn add(&mut self, more: &Self) {
        self.to_peer_packets = self.to_peer_packets.wrapping_add(more.to_peer_packets);
        self.to_peer_bytes = self.to_peer_bytes.wrapping_add(more.to_peer_bytes);
        self.to_client_packets = self.to_client_packets.wrapping_add(more.to_client_packets);
        self.to_client_bytes = self.to_client_bytes.wrapping_add(more.to_client_bytes);
        self.to_peer_over = self.to_peer_over.wrapping_add(more.to_peer_over);
        self.to_client_over = self.to_client_over.wrapping_add(more.to_client_over);
    }

    pub(super) const fn less(&self, before: &Self) -> Self {
        Self {
            to_peer_packets: self.to_peer_packets.wrapping_sub(before.to_peer_packets),
            to_peer_bytes: self.to_peer_bytes.wrapping_sub(before.to_peer_bytes),
            to_client_packets: self.to_client_packets.wrapping_sub(before.to_client_packets),
            to_client_bytes: self.to_client_bytes.wrapping_sub(before.to_client_bytes),
            to_peer_over: self.to_peer_over.wrapping_sub(before.to_peer_over),
            to_client_over: self.to_client_over.wrapping_sub(before.to_client_over),
        }
    }
}
