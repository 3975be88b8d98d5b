//! Offered load: shapes, directions, transports, rates.

use std::time::Duration;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// Order of flows and burst of each in its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Shape {
    /// One small packet of each flow in turn, as of many calls
    Audio,
    /// Ten packets of each flow in turn, as of video frames
    Video,
    /// Sixteen packets of each flow in turn, as of a bulk transfer. (They arrive at once, each in a
    /// page of its own, and some servers' sockets hold only thirty pages)
    Flood,
    /// One packet of each flow in turn, but of the first flow as many as make 64 KiB, as of one
    /// bulk transfer among calls. The latency is that of the others. By sockets alone
    Uneven,
}

/// Packets of 1200 bytes that make 64 KiB, the most that a socket sends at once.
const BULK: u32 = 54;

impl Shape {
    /// Packets of a flow in its turn; of most flows where they differ.
    #[must_use]
    pub const fn burst(self) -> u32 {
        match self {
            Self::Audio | Self::Uneven => 1,
            Self::Video => 10,
            Self::Flood => 16,
        }
    }

    /// Packets of this flow in its turn.
    #[must_use]
    pub const fn burst_of(self, flow: u32) -> u32 {
        if self.is_bulk(flow) { BULK } else { self.burst() }
    }

    /// Packets in one turn of each of so many flows.
    #[must_use]
    pub const fn round(self, flows: u32) -> u64 {
        let even = self.burst() as u64 * flows as u64;
        if flows > 0 { even - self.burst() as u64 + self.burst_of(0) as u64 } else { even }
    }

    /// True if this flow's latency is not that of the load, since its packets are a bulk transfer.
    #[must_use]
    pub const fn is_bulk(self, flow: u32) -> bool {
        matches!(self, Self::Uneven) && flow == 0
    }

    /// Default payload bytes.
    #[must_use]
    pub const fn default_size(self) -> u16 {
        match self {
            Self::Audio => 200,
            Self::Video | Self::Flood | Self::Uneven => 1200,
        }
    }
}

/// Direction of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// ChannelData from the client, relayed to the peer.
    ClientToPeer,
    /// From the peer to the relayed address, ChannelData to the client.
    PeerToClient,
    /// To the peer and back.
    Echo,
}

/// Transport between clients and server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Transport {
    /// UDP.
    #[default]
    Udp,
    /// TCP, one connection for each client.
    Tcp,
    /// TLS 1.3 over TCP, always with the same cipher (AES-128-GCM) and the same exchange of keys
    /// (X25519), so that servers can be compared. Certificates are not verified: this tool measures
    /// servers, it does not judge them.
    Tls,
    /// TLS 1.2, with the same cipher and keys exchanged on P-256: coturn 4.6 of Debian 12 has
    /// nothing newer.
    Tls12,
    /// DTLS 1.2 over UDP, with the same cipher and exchange of keys as TLS 1.2.
    Dtls,
}

impl Transport {
    /// As on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Udp => "udp",
            Self::Tcp => "tcp",
            Self::Tls => "tls",
            Self::Tls12 => "tls12",
            Self::Dtls => "dtls",
        }
    }

    /// As results name it. Clients offer one version and one suite only: nothing else is
    /// negotiated.
    #[must_use]
    pub const fn describe(self) -> &'static str {
        match self {
            Self::Udp => "UDP",
            Self::Tcp => "TCP",
            Self::Tls => "TLS 1.3 (TLS_AES_128_GCM_SHA256, X25519)",
            Self::Tls12 => "TLS 1.2 (ECDHE-ECDSA-AES128-GCM-SHA256, P-256)",
            Self::Dtls => "DTLS 1.2 (ECDHE-ECDSA-AES128-GCM-SHA256, P-256)",
        }
    }

    /// Returns `true` for streams of bytes: no loss, and backpressure for senders.
    #[must_use]
    pub const fn is_stream(self) -> bool {
        matches!(self, Self::Tcp | Self::Tls | Self::Tls12)
    }

    /// Returns `true` where a handshake precedes the first message, and the end of the connection
    /// ends the allocation. Frames cannot be made in advance.
    #[must_use]
    pub const fn has_connections(self) -> bool {
        !matches!(self, Self::Udp)
    }

    /// Returns `true` where the server has a certificate.
    #[must_use]
    pub const fn has_certificates(self) -> bool {
        matches!(self, Self::Tls | Self::Tls12 | Self::Dtls)
    }
}

/// Way of sending and receiving packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Backend {
    /// UDP sockets. Works everywhere, also across a real network
    Sockets,
    /// Whole frames, sent and counted on a link by XDP programs. Wants privileges
    Frames,
}

impl Backend {
    /// As on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sockets => "sockets",
            Self::Frames => "frames",
        }
    }
}

/// Offered load of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrafficSpec {
    /// Order of flows.
    pub shape: Shape,
    /// Direction of packets.
    pub direction: Direction,
    /// Payload bytes of each packet, [`HEADER`](crate::packet::HEADER) to 1400.
    pub size: u16,
    /// Packets per second over all flows; `None` is unlimited.
    pub rate: Option<u32>,
    /// Warm-up, discarded.
    pub warm_up: Duration,
    /// Measured time.
    pub duration: Duration,
}
