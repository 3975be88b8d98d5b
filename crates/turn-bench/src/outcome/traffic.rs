//! Runs of packets, and searches for the highest rate.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Latency, Used, loss};
use crate::traffic::{Backend, Direction, TrafficSpec, Transport};

/// Result of one run of packets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Traffic {
    /// The offered load.
    pub spec: TrafficSpec,
    /// Backend that sent and received.
    pub backend: Backend,
    /// Transport between clients and server.
    #[serde(default)]
    pub transport: Transport,
    /// Number of flows, each with an allocation of its own.
    pub flows: u32,
    /// Packets that the kernel took within the measured time.
    pub sent: u64,
    /// Packets that the kernel refused (no buffer, queue full) within the measured time. Over a
    /// stream: those that the connections did not take because of backpressure.
    pub refused: u64,
    /// Share of the offered packets, 0 to 1, that the sender skipped because it was late. 0 where
    /// the rate is unlimited.
    pub behind: f64,
    /// Packets of `sent` that arrived, without duplicates.
    pub delivered: u64,
    /// Duplicates.
    pub duplicates: u64,
    /// Packets that arrived after a later one of their flow.
    pub reordered: u64,
    /// Packets of the run whose header was changed.
    pub damaged: u64,
    /// Packets dropped by full sockets of the load tool. The server did its work on them; they
    /// count as lost all the same.
    pub dropped: u64,
    /// From the sender's call to the receiver's, `None` when their clocks differ. For `Echo` the
    /// round trip.
    pub latency: Option<Latency>,
    /// Utilisation during the measured time.
    #[serde(flatten)]
    pub used: Used,
}

impl Traffic {
    /// Packets delivered per second of the measured time.
    #[must_use]
    pub fn delivered_per_second(&self) -> f64 {
        self.delivered as f64 / self.spec.duration.as_secs_f64()
    }

    /// Share of the sent packets that did not arrive, 0 to 1.
    #[must_use]
    pub fn loss(&self) -> f64 {
        loss(self.sent, self.delivered)
    }

    /// Share of the packets, 0 to 1, that the clients' connections refused: backpressure. 0 over
    /// datagrams and where clients do not send.
    #[must_use]
    pub fn held_back(&self) -> f64 {
        if !self.transport.is_stream() || self.spec.direction == Direction::PeerToClient {
            return 0.0;
        }
        loss(self.sent + self.refused, self.sent)
    }
}

#[cfg(test)]
impl Traffic {
    /// 1990 of 2000 packets delivered in 2 s.
    pub(crate) fn example(direction: Direction) -> Self {
        let (warm_up, duration) = (Duration::ZERO, Duration::from_secs(2));
        let shape = crate::traffic::Shape::Video;
        Self {
            spec: TrafficSpec { shape, direction, size: 1200, rate: Some(1000), warm_up, duration },
            backend: Backend::Sockets,
            transport: Transport::Udp,
            flows: 3,
            sent: 2000,
            refused: 0,
            behind: 0.0,
            delivered: 1990,
            duplicates: 1,
            reordered: 2,
            damaged: 0,
            dropped: 0,
            latency: None,
            used: Used::default(),
        }
    }
}

/// The highest rate that was delivered, and the search for it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FindMax {
    /// Acceptable share of lost packets, 0 to 1.
    pub loss_max: f64,
    /// Measured time of each try.
    pub step: Duration,
    /// Cause of the limit.
    pub limit: Limit,
    /// All runs in order, the confirming ones last.
    pub points: Vec<Point>,
    /// The confirming run.
    pub confirmed: Traffic,
}

/// Cause of a highest rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Limit {
    /// The server, or the path to it: above it packets were lost, or over streams late or held
    /// back.
    Server,
    /// The load tool: the server delivered all that it could send.
    Generator,
    /// Unknown: no confirming run had so little loss.
    Unconfirmed,
}

/// Offered and delivered rate of one run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Packets per second sent.
    pub offered: f64,
    /// Packets per second delivered.
    pub delivered: f64,
    /// Share lost, 0 to 1.
    pub loss: f64,
    /// Over streams: share held back, 0 to 1 ([`Traffic::held_back`]).
    #[serde(default)]
    pub held_back: f64,
}
