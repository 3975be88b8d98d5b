//! What is sent: shapes, directions, rates.

use std::time::Duration;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// In what order the flows take turns, and how many packets each sends when it has its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Shape {
    /// One small packet of each flow in turn, as many calls at once look like.
    Audio,
    /// Ten packets of each flow in turn, as frames of a picture are cut.
    Video,
    /// Sixteen packets of each flow in turn, as a bulk transfer sends. No more: they arrive at once,
    /// each in a page of its own, and there are servers whose sockets hold only thirty of those.
    Flood,
}

impl Shape {
    /// Packets that a flow sends back to back when it has its turn.
    #[must_use]
    pub const fn burst(self) -> u32 {
        match self {
            Self::Audio => 1,
            Self::Video => 10,
            Self::Flood => 16,
        }
    }

    /// Payload bytes where none are asked for.
    #[must_use]
    pub const fn default_size(self) -> u16 {
        match self {
            Self::Audio => 200,
            Self::Video | Self::Flood => 1200,
        }
    }
}

/// Which way packets go.
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

/// What carries messages between clients and the server.
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
    /// TLS 1.2, with the same cipher and keys exchanged on P-256: coturn 4.6 of Debian 12 speaks nothing
    /// newer.
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

    /// As results name it. Clients offer one version and one suite only: nothing else is negotiated.
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

    /// Whether it delivers a stream of bytes: nothing is lost on it, and whoever sends too much is
    /// held back.
    #[must_use]
    pub const fn is_stream(self) -> bool {
        matches!(self, Self::Tcp | Self::Tls | Self::Tls12)
    }

    /// Whether something is agreed on before the first message, and ends the allocation when it ends.
    /// Frames cannot be made ready for it.
    #[must_use]
    pub const fn has_connections(self) -> bool {
        !matches!(self, Self::Udp)
    }

    /// Whether the server shows a certificate.
    #[must_use]
    pub const fn has_certificates(self) -> bool {
        matches!(self, Self::Tls | Self::Tls12 | Self::Dtls)
    }
}

/// What hands packets to the kernel, and takes them from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Backend {
    /// UDP sockets. Works everywhere, also across a real network.
    Sockets,
    /// Whole frames, put on a link and counted there by XDP programs. Wants privileges.
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

/// One run of traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrafficSpec {
    /// In what order flows take turns.
    pub shape: Shape,
    /// Which way packets go.
    pub direction: Direction,
    /// Payload bytes of each packet, [`HEADER`](crate::packet::HEADER) to 1400.
    pub size: u16,
    /// Packets per second over all flows; `None` is as many as the machine can send.
    pub rate: Option<u32>,
    /// Sent first and not counted.
    pub warm_up: Duration,
    /// How long packets that count are sent.
    pub duration: Duration,
}
