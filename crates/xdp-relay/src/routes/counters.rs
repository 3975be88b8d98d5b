//! Traffic counters of a flow.

/// Traffic that the kernel relayed: in a report, the traffic since the last report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowCounters {
    /// Number of datagrams to peers.
    pub to_peer_packets: u64,
    /// Payload bytes of the datagrams to peers.
    pub to_peer_bytes: u64,
    /// Number of datagrams to clients.
    pub to_client_packets: u64,
    /// Payload bytes of the datagrams to clients, without the ChannelData header.
    pub to_client_bytes: u64,
    /// Number of datagrams from clients that were dropped because they exceeded the bandwidth.
    pub to_peer_over: u64,
    /// Number of datagrams from peers that were dropped because they exceeded the bandwidth.
    pub to_client_over: u64,
}

impl FlowCounters {
    /// Returns true if all counters are zero.
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
