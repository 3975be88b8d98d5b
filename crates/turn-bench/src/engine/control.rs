//! What the load and its peer say to each other, in packets of their own on the same way as the
//! traffic: nothing but the relay has to let them through.
//!
//! ```text
//! load                                    peer
//!   Hello(flow, token 0)          ──►           for each flow: who asks is told a token, at the
//!                                 ◄──  Challenge(flow, token)        address it asks from
//!   Hello(flow, token)            ──►           only who got it can say it
//!                                 ◄──  Welcome(flow)
//!   Start(plan)                   ──►           for the run, on flow 0
//!                                 ◄──  Started(plan as it stands)
//!   … packets of the run …
//!   Query(number)                 ──►           now and then, and at the end
//!                                 ◄──  Report(number, counts)
//!   Stop                          ──►           where a run ends before its time
//! ```
//!
//! The load repeats what is not answered; the peer only answers, never with more bytes than it was
//! asked with. Every message begins as [`packet`](crate::packet) says, with its kind and its run;
//! numbers are big-endian; each is padded with zeros to [`LEN`] bytes.

use std::time::Duration;

use clap::ValueEnum as _;

use crate::engine::clock::ClockId;
use crate::engine::plan::{Plan, Window, nanos};
use crate::outcome::Latency;
use crate::packet::{DATA, MAGIC};
use crate::traffic::{Direction, Shape, TrafficSpec};

/// Bytes of every message: all are as long as the longest, so that no answer is longer than its
/// question.
pub(crate) const LEN: usize = 144;

/// How long after it was told to a peer begins to send: time for its answer to arrive, and to be
/// asked for again if it does not, before the packets do.
pub(crate) const START_LEAD: Duration = Duration::from_millis(200);

/// One message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    /// The run it is about.
    pub(crate) run: u32,
    /// What it says.
    pub(crate) body: Body,
}

/// What a message says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Body {
    /// This address is flow `flow` of the run.
    Hello {
        /// The number of the flow.
        flow: u32,
        /// As the last challenge said, or 0.
        token: u64,
    },
    /// Say hello again, with this token.
    Challenge {
        /// The number of the flow.
        flow: u32,
        /// To be repeated.
        token: u64,
    },
    /// The flow is known.
    Welcome {
        /// The number of the flow.
        flow: u32,
    },
    /// Begin. When the load sends, the times are by its clock; when the peer does, it sets them.
    Start {
        /// The run.
        plan: Plan,
        /// Whose times they are.
        clock: ClockId,
    },
    /// It begins, or has begun, like this.
    Started {
        /// The run, with the times by the sender's clock.
        plan: Plan,
        /// The clock of the peer.
        clock: ClockId,
    },
    /// What do you have?
    Query {
        /// To tell answers apart.
        number: u32,
    },
    /// This.
    Report {
        /// As in the question.
        number: u32,
        /// What there is so far.
        report: Report,
    },
    /// The run is over.
    Stop,
    /// Not possible.
    Refused {
        /// Why.
        why: Why,
    },
}

/// Why a peer refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// As many flows, or runs, as it may have.
    Full,
    /// It does not know the run, or the flow that asks: it was started again, or the run is long
    /// over.
    Unknown,
    /// It cannot do what the run asks for.
    Unable,
}

/// What the peer sent and received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Report {
    /// Whether all that it had to send is sent.
    pub(crate) done: bool,
    /// Packets since the run began, whether they count or not: received, or sent where the peer
    /// sends. For whoever watches.
    pub(crate) so_far: u64,
    /// Packets sent and refused by the kernel, within the measured time.
    pub(crate) sent: u64,
    /// Packets that the kernel would not take.
    pub(crate) refused: u64,
    /// Packets that the schedule had, and those of them that were left out.
    pub(crate) scheduled: u64,
    /// Packets that were left out because the sender was late.
    pub(crate) missed: u64,
    /// Packets received, each once.
    pub(crate) delivered: u64,
    /// Packets that came again.
    pub(crate) duplicates: u64,
    /// Packets that came behind a later one.
    pub(crate) reordered: u64,
    /// Packets that were not as sent.
    pub(crate) damaged: u64,
    /// Packets that found the peer's own socket full.
    pub(crate) dropped: u64,
    /// How long they took; `None` when the clocks differ.
    pub(crate) latency: Option<Latency>,
}

impl Message {
    /// The bytes, as a payload.
    #[must_use]
    pub(crate) fn encode(&self) -> [u8; LEN] {
        let mut out = Writer { bytes: [0; LEN], at: 0 };
        out.put(&MAGIC);
        out.put(&[self.body.kind()]);
        out.u32(self.run);
        match &self.body {
            Body::Hello { flow, token } | Body::Challenge { flow, token } => {
                out.u32(*flow);
                out.u64(*token);
            }
            Body::Welcome { flow } => out.u32(*flow),
            Body::Start { plan, clock } | Body::Started { plan, clock } => {
                out.plan(plan);
                out.put(&clock.0);
            }
            Body::Query { number } => out.u32(*number),
            Body::Report { number, report } => {
                out.u32(*number);
                out.report(report);
            }
            Body::Stop => {}
            Body::Refused { why } => out.put(&[*why as u8]),
        }
        out.bytes
    }

    /// Reads a payload; `None` when it is no such message.
    #[must_use]
    pub(crate) fn decode(payload: &[u8]) -> Option<Self> {
        let mut bytes = Reader(payload.get(..LEN)?);
        let [m0, m1, m2, kind] = bytes.take()?;
        if [m0, m1, m2] != MAGIC {
            return None;
        }
        let run = bytes.u32()?;
        let body = match kind {
            1 => Body::Hello { flow: bytes.u32()?, token: bytes.u64()? },
            2 => Body::Challenge { flow: bytes.u32()?, token: bytes.u64()? },
            3 => Body::Welcome { flow: bytes.u32()? },
            4 => Body::Start { plan: bytes.plan(run)?, clock: ClockId(bytes.take()?) },
            5 => Body::Started { plan: bytes.plan(run)?, clock: ClockId(bytes.take()?) },
            6 => Body::Query { number: bytes.u32()? },
            7 => Body::Report { number: bytes.u32()?, report: bytes.report()? },
            8 => Body::Stop,
            9 => Body::Refused { why: Why::of(bytes.u8()?)? },
            _ => return None,
        };
        Some(Self { run, body })
    }

    /// Whether a payload is one of ours that is not a packet of a run.
    #[must_use]
    pub(crate) fn is_one(payload: &[u8]) -> bool {
        matches!(payload.first_chunk(), Some(&[m0, m1, m2, kind])
            if [m0, m1, m2] == MAGIC && kind != DATA)
    }
}

impl Body {
    const fn kind(&self) -> u8 {
        match self {
            Self::Hello { .. } => 1,
            Self::Challenge { .. } => 2,
            Self::Welcome { .. } => 3,
            Self::Start { .. } => 4,
            Self::Started { .. } => 5,
            Self::Query { .. } => 6,
            Self::Report { .. } => 7,
            Self::Stop => 8,
            Self::Refused { .. } => 9,
        }
    }
}

impl Why {
    fn of(number: u8) -> Option<Self> {
        [Self::Full, Self::Unknown, Self::Unable].into_iter().find(|why| *why as u8 == number)
    }
}

struct Writer {
    bytes: [u8; LEN],
    at: usize,
}

impl Writer {
    /// All messages fit, as the test of the longest shows.
    fn put(&mut self, bytes: &[u8]) {
        self.bytes[self.at..self.at + bytes.len()].copy_from_slice(bytes);
        self.at += bytes.len();
    }

    fn u32(&mut self, number: u32) {
        self.put(&number.to_be_bytes());
    }

    fn u64(&mut self, number: u64) {
        self.put(&number.to_be_bytes());
    }

    fn plan(&mut self, plan: &Plan) {
        let spec = &plan.spec;
        self.put(&[place(&spec.shape), place(&spec.direction)]);
        self.put(&spec.size.to_be_bytes());
        self.put(&[u8::from(spec.rate.is_some())]);
        self.u32(spec.rate.unwrap_or(0));
        self.u64(nanos(spec.warm_up));
        self.u64(nanos(spec.duration));
        self.u32(plan.flows);
        self.u64(plan.begin);
        self.u64(plan.window.start);
        self.u64(plan.window.end);
    }

    fn report(&mut self, report: &Report) {
        self.put(&[u8::from(report.done), u8::from(report.latency.is_some())]);
        let latency = report.latency.unwrap_or_default();
        for number in [
            report.so_far,
            report.sent,
            report.refused,
            report.scheduled,
            report.missed,
            report.delivered,
            report.duplicates,
            report.reordered,
            report.damaged,
            report.dropped,
            latency.p50,
            latency.p90,
            latency.p99,
            latency.p999,
            latency.max,
        ] {
            self.u64(number);
        }
    }
}

/// The place of a value among those of its type: how shapes and directions are numbered.
fn place<T: clap::ValueEnum + PartialEq>(value: &T) -> u8 {
    let place = T::value_variants().iter().position(|variant| variant == value);
    // Every value that can be given on the command line is among them, and they are few.
    place.and_then(|place| u8::try_from(place).ok()).unwrap_or(u8::MAX)
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*bytes)
    }

    fn u8(&mut self) -> Option<u8> {
        self.take().map(u8::from_be_bytes)
    }

    fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_be_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_be_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_be_bytes)
    }

    fn plan(&mut self, run: u32) -> Option<Plan> {
        let shape = *Shape::value_variants().get(usize::from(self.u8()?))?;
        let direction = *Direction::value_variants().get(usize::from(self.u8()?))?;
        let size = self.u16()?;
        let bounded = self.u8()? != 0;
        let rate = self.u32()?;
        let warm_up = Duration::from_nanos(self.u64()?);
        let duration = Duration::from_nanos(self.u64()?);
        let rate = bounded.then_some(rate);
        let spec = TrafficSpec { shape, direction, size, rate, warm_up, duration };
        let (flows, begin) = (self.u32()?, self.u64()?);
        let window = Window { start: self.u64()?, end: self.u64()? };
        Some(Plan { run, spec, flows, begin, window })
    }

    fn report(&mut self) -> Option<Report> {
        let (done, timed) = (self.u8()? != 0, self.u8()? != 0);
        let mut report = Report {
            done,
            so_far: self.u64()?,
            sent: self.u64()?,
            refused: self.u64()?,
            scheduled: self.u64()?,
            missed: self.u64()?,
            delivered: self.u64()?,
            duplicates: self.u64()?,
            reordered: self.u64()?,
            damaged: self.u64()?,
            dropped: self.u64()?,
            latency: None,
        };
        let latency = Latency {
            p50: self.u64()?,
            p90: self.u64()?,
            p99: self.u64()?,
            p999: self.u64()?,
            max: self.u64()?,
        };
        report.latency = timed.then_some(latency);
        Some(report)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> Plan {
        let spec = TrafficSpec {
            shape: Shape::Video,
            direction: Direction::Echo,
            size: 1200,
            rate: Some(123_456),
            warm_up: Duration::from_millis(500),
            duration: Duration::from_secs(10),
        };
        Plan::new(9, &spec, 1000, u64::MAX / 2)
    }

    fn every_body() -> Vec<Body> {
        let clock = ClockId([7; ClockId::BYTES]);
        let saturating = Plan { spec: TrafficSpec { rate: None, ..plan().spec }, ..plan() };
        let latency = Latency { p50: 1, p90: 2, p99: 3, p999: 4, max: u64::MAX };
        let report = Report {
            done: true,
            so_far: 9,
            sent: 10,
            refused: 11,
            scheduled: 12,
            missed: 13,
            delivered: 14,
            duplicates: 15,
            reordered: 16,
            damaged: 17,
            dropped: 18,
            latency: Some(latency),
        };
        vec![
            Body::Hello { flow: 1, token: u64::MAX },
            Body::Challenge { flow: 2, token: 3 },
            Body::Welcome { flow: 4 },
            Body::Start { plan: plan(), clock },
            Body::Started { plan: saturating, clock },
            Body::Query { number: 5 },
            Body::Report { number: 6, report },
            Body::Report { number: 6, report: Report::default() },
            Body::Stop,
            Body::Refused { why: Why::Full },
            Body::Refused { why: Why::Unknown },
            Body::Refused { why: Why::Unable },
        ]
    }

    #[test]
    fn what_is_written_reads_back() {
        for body in every_body() {
            let message = Message { run: 9, body };
            assert_eq!(Message::decode(&message.encode()), Some(message));
            assert!(Message::is_one(&message.encode()));
        }
    }

    #[test]
    fn short_or_strange_bytes_are_no_message() {
        for body in every_body() {
            let bytes = Message { run: 9, body }.encode();
            assert_eq!(Message::decode(&bytes[..LEN - 1]), None);
            for kind in [DATA, 10, 255] {
                let mut strange = bytes;
                strange[3] = kind;
                assert_eq!(Message::decode(&strange), None);
            }
        }
        let mut bytes = Message { run: 9, body: every_body()[3] }.encode();
        bytes[8] = 3;
        assert_eq!(Message::decode(&bytes), None, "there is no fourth shape");
    }

    #[test]
    fn a_packet_of_a_run_is_none() {
        let header = crate::packet::Header { run: 1, flow: 2, sequence: 3, sent: 4 };
        let mut payload = header.encode().to_vec();
        payload.resize(LEN, 0);
        assert!(!Message::is_one(&payload));
        assert_eq!(Message::decode(&payload), None);
        assert!(!Message::is_one(b"TpB"));
    }
}
