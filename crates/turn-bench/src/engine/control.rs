//! Control messages between the load and its peer, in packets of their own on the path of the
//! traffic: only the relay has to let them through.
//!
//! ```text
//! load                                    peer
//!   Hello(flow, token 0)          ──►           for each flow: the address is told a token
//!                                 ◄──  Challenge(flow, token)
//!   Hello(flow, token)            ──►           proof that the address receives
//!                                 ◄──  Welcome(flow)
//!   Start(plan)                   ──►           for the run, on flow 0
//!                                 ◄──  Started(plan in force)
//!   … packets of the run …
//!   Query(number)                 ──►           four times a second, and at the end
//!                                 ◄──  Report(number, counts)
//!   Stop                          ──►           when a run is aborted
//! ```
//!
//! The load repeats unanswered messages; the peer only answers, never with more bytes than the
//! question. A message is the magic and a kind as in [`packet`](crate::packet), its fields
//! (postcard), and zeros up to [`LEN`].

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::engine::clock::ClockId;
use crate::engine::plan::Plan;
use crate::outcome::Latency;
use crate::packet::{DATA, MAGIC};

/// Bytes of every message: as long as the longest, so that no answer is longer than its question.
pub(crate) const LEN: usize = 256;

/// The kind of control messages, behind the magic.
const KIND: u8 = 1;

/// Time from a peer's answer to its first packet: enough for the answer to arrive, and to be
/// repeated.
pub(crate) const START_LEAD: Duration = Duration::from_millis(200);

/// One message.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Message {
    /// The run.
    pub(crate) run: u32,
    /// The rest.
    pub(crate) body: Body,
}

/// Kind and fields of a message.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Body {
    /// The sender's address is this flow of the run; `token` is that of the last challenge, or 0.
    Hello { flow: u32, token: u64 },
    /// Repeat the hello with this token.
    Challenge { flow: u32, token: u64 },
    /// The flow is registered.
    Welcome { flow: u32 },
    /// Begin. Times are by the load's clock when the load sends; else the peer sets them.
    Start { plan: Plan, clock: ClockId },
    /// The run begins, or has begun, by this plan, with times by the sender's clock; the peer's
    /// clock.
    Started { plan: Plan, clock: ClockId },
    /// Request for a report.
    Query { number: u32 },
    /// Counts so far, with the number of the query.
    Report { number: u32, report: Report },
    /// The run is over.
    Stop,
    /// Not possible.
    Refused { reason: Refusal },
}

/// Reason of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Refusal {
    /// The limit of flows, or of runs, is reached.
    Full,
    /// The run, or the flow, is unknown: the peer restarted, or the run is long over.
    Unknown,
    /// The peer cannot execute the run.
    Unable,
}

/// Packets sent and received by the peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Report {
    /// All packets that the peer had to send are sent.
    pub(crate) done: bool,
    /// Packets received, or sent where the peer sends, since the begin of the run: for progress.
    pub(crate) so_far: u64,
    /// Packets sent within the measured time.
    pub(crate) sent: u64,
    /// Packets that the kernel refused.
    pub(crate) refused: u64,
    /// Packets of the schedule.
    pub(crate) scheduled: u64,
    /// Packets skipped because the sender was late.
    pub(crate) missed: u64,
    /// Packets received, without duplicates.
    pub(crate) delivered: u64,
    /// Duplicates.
    pub(crate) duplicates: u64,
    /// Packets that arrived after a later one.
    pub(crate) reordered: u64,
    /// Packets that were changed.
    pub(crate) damaged: u64,
    /// Packets dropped by the peer's full sockets.
    pub(crate) dropped: u64,
    /// One-way latency; `None` when the clocks differ.
    pub(crate) latency: Option<Latency>,
}

impl Body {
    /// Returns `true` for messages of the load.
    pub(crate) const fn is_request(&self) -> bool {
        matches!(self, Self::Hello { .. } | Self::Start { .. } | Self::Query { .. } | Self::Stop)
    }
}

impl Message {
    /// The bytes, as a payload.
    #[must_use]
    pub(crate) fn encode(&self) -> [u8; LEN] {
        let mut bytes = [0; LEN];
        bytes[..3].copy_from_slice(&MAGIC);
        bytes[3] = KIND;
        // The longest fits, by the test.
        postcard::to_slice(self, &mut bytes[4..]).expect("a message fits");
        bytes
    }

    /// Parses a payload; `None` when it is no control message.
    #[must_use]
    pub(crate) fn decode(payload: &[u8]) -> Option<Self> {
        let fields = payload.get(..LEN)?.strip_prefix(&MAGIC)?.strip_prefix(&[KIND])?;
        postcard::from_bytes(fields).ok()
    }

    /// Returns `true` for a payload of this tool that is no packet of a run.
    #[must_use]
    pub(crate) fn is_one(payload: &[u8]) -> bool {
        let kind = payload.strip_prefix(&MAGIC).and_then(<[u8]>::first);
        kind.is_some_and(|kind| *kind != DATA)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::traffic::{Direction, Shape, TrafficSpec};

    #[test]
    fn messages_read_as_they_were_written_and_the_longest_fits() {
        let spec = TrafficSpec {
            shape: Shape::Flood,
            direction: Direction::Echo,
            size: u16::MAX,
            rate: Some(u32::MAX),
            warm_up: Duration::MAX,
            duration: Duration::MAX,
        };
        let plan = Plan::new(u32::MAX, &spec, u32::MAX, u64::MAX - 1);
        let clock = ClockId([255; ClockId::BYTES]);
        let max = u64::MAX;
        let latency = Some(Latency { p50: max, p90: max, p99: max, p999: max, max });
        let report = Report {
            done: true,
            so_far: max,
            sent: max,
            refused: max,
            scheduled: max,
            missed: max,
            delivered: max,
            duplicates: max,
            reordered: max,
            damaged: max,
            dropped: max,
            latency,
        };
        for body in [
            Body::Hello { flow: 1, token: max },
            Body::Start { plan, clock },
            Body::Report { number: u32::MAX, report },
            Body::Stop,
            Body::Refused { reason: Refusal::Unable },
        ] {
            let message = Message { run: u32::MAX, body };
            let bytes = message.encode();
            assert_eq!(Message::decode(&bytes), Some(message));
            assert!(Message::is_one(&bytes));
            assert_eq!(Message::decode(&bytes[..LEN - 1]), None);
            let mut other = bytes;
            other[3] = 7;
            assert_eq!(Message::decode(&other), None);
        }
    }

    #[test]
    fn a_packet_of_a_run_is_no_message() {
        let header = crate::packet::Header { run: 1, flow: 2, sequence: 3, sent: 4 };
        let mut payload = header.encode().to_vec();
        payload.resize(LEN, 0);
        assert!(!Message::is_one(&payload) && !Message::is_one(b"TpB"));
        assert_eq!(Message::decode(&payload), None);
    }
}
