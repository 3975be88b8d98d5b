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
