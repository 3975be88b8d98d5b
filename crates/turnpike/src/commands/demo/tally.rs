//! Tallies of sent and received packets, per flow and direction.

use hdrhistogram::Histogram;
use turn_types::Instant;

use crate::commands::demo::flow::FlowKind;
use crate::commands::demo::packet::{Direction, Stamp};

/// Maximum recorded latency in microseconds, which is a minute. Latencies have three digits.
const LATENCY_MICROS_MAX: u64 = 60_000_000;

/// Tally with the flow and the direction.
#[derive(Debug)]
pub(crate) struct FlowTally<'a> {
    pub(crate) flow: FlowKind,
    pub(crate) direction: Direction,
    pub(crate) tally: &'a Tally,
}

/// Tally of a flow in one direction.
#[derive(Debug)]
pub(crate) struct Tally {
    pub(crate) sent: u64,
    pub(crate) arrived: u64,
    /// Number of packets received more than once.
    pub(crate) repeated: u64,
    latency: Histogram<u64>,
    /// Bitmap of the received packets. A day of video needs 3 MiB.
    seen: Vec<u64>,
}

impl Tally {
    fn new() -> Self {
        // The histogram accepts these constant bounds, as each test shows.
        let latency = Histogram::new_with_max(LATENCY_MICROS_MAX, 3).expect("valid bounds");
        Self { sent: 0, arrived: 0, repeated: 0, latency, seen: Vec::new() }
    }

    /// Returns the number of packets that did not arrive.
    pub(crate) const fn lost(&self) -> u64 {
        self.sent.saturating_sub(self.arrived)
    }

    /// Returns the share of packets that did not arrive, from 0 to 1.
    pub(crate) fn loss(&self) -> f64 {
        self.lost() as f64 / self.sent.max(1) as f64
    }

    /// Returns a quantile of the latency in microseconds.
    pub(crate) fn latency_micros(&self, quantile: f64) -> u64 {
        self.latency.value_at_quantile(quantile)
    }

    fn note_arrival(&mut self, sequence: u64, latency_micros: u64) {
        // The sequence number belongs to a packet of the demo, and is below `sent`. The bitmap thus
        // grows with the demo and no further.
        let (word, bit) = ((sequence / 64) as usize, 1 << (sequence % 64));
        if self.seen.len() <= word {
            self.seen.resize(word + 1, 0);
        }
        if self.seen[word] & bit != 0 {
            self.repeated += 1;
            return;
        }
        self.seen[word] |= bit;
        self.arrived += 1;
        self.latency.saturating_record(latency_micros);
    }
}

/// Tallies of all flows in both directions.
#[derive(Debug)]
pub(crate) struct Tallies {
    tallies: [[Tally; 2]; 2],
    /// Number of packets that were damaged or did not belong to the demo.
    pub(crate) damaged: u64,
}

impl Tallies {
    pub(crate) fn new() -> Self {
        let pair = || [Tally::new(), Tally::new()];
        Self { tallies: [pair(), pair()], damaged: 0 }
    }

    /// Returns the tally of a flow in one direction.
    pub(crate) const fn of(&self, flow: FlowKind, direction: Direction) -> &Tally {
        &self.tallies[flow.index()][direction.index()]
    }

    /// Returns the tally of each flow in each direction.
    pub(crate) fn iter(&self) -> impl Iterator<Item = FlowTally<'_>> {
        let pairs =
            FlowKind::ALL.into_iter().flat_map(|f| Direction::ALL.into_iter().map(move |d| (f, d)));
        pairs.map(|(flow, direction)| FlowTally {
            flow,
            direction,
            tally: self.of(flow, direction),
        })
    }

    /// Counts a packet that was sent.
    pub(crate) const fn note_sent(&mut self, flow: FlowKind, direction: Direction) {
        self.tallies[flow.index()][direction.index()].sent += 1;
    }

    /// Counts a packet that arrived from `direction`.
    pub(crate) fn note_arrived(&mut self, now: Instant, direction: Direction, packet: &[u8]) {
        match Stamp::read(packet) {
            Some(stamp)
                if stamp.direction == direction
                    && stamp.sequence < self.of(stamp.flow, direction).sent =>
            {
                let micros = now.saturating_since(stamp.sent).as_micros();
                self.tallies[stamp.flow.index()][direction.index()]
                    .note_arrival(stamp.sequence, u64::try_from(micros).unwrap_or(u64::MAX));
            }
            Some(_) | None => self.damaged += 1,
        }
    }

    /// Returns the number of packets sent over all flows.
    pub(crate) fn sent(&self) -> u64 {
        self.iter().map(|flow| flow.tally.sent).sum()
    }

    /// Returns the number of packets that arrived over all flows.
    pub(crate) fn arrived(&self) -> u64 {
        self.iter().map(|flow| flow.tally.arrived).sum()
    }

    /// Returns true if every flow sent packets, and lost at most the share `loss_max` of them.
    pub(crate) fn good(&self, loss_max: f64) -> bool {
        self.iter().all(|flow| flow.tally.sent > 0 && flow.tally.loss() <= loss_max)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::commands::demo::flow::PACKET_MAX;

    fn packet(sequence: u64, direction: Direction) -> Vec<u8> {
        let stamp = Stamp { flow: FlowKind::Video, direction, sequence, sent: Instant::ZERO };
        let mut packet = vec![0; PACKET_MAX];
        stamp.write(&mut packet);
        packet
    }

    #[test]
    fn counts_what_arrives_once_and_measures_it() {
        let mut tallies = Tallies::new();
        let later = |micros| Instant::ZERO + Duration::from_micros(micros);
        for _ in 0..200 {
            tallies.note_sent(FlowKind::Video, Direction::Forth);
        }
        for sequence in (0..200).filter(|n| n % 10 != 0) {
            let packet = packet(sequence, Direction::Forth);
            tallies.note_arrived(later(sequence), Direction::Forth, &packet);
            tallies.note_arrived(later(5_000_000), Direction::Forth, &packet);
        }
        tallies.note_arrived(later(1), Direction::Forth, &packet(200, Direction::Forth));
        tallies.note_arrived(later(1), Direction::Forth, &packet(1, Direction::Back));
        tallies.note_arrived(later(1), Direction::Forth, b"noise");

        let tally = tallies.of(FlowKind::Video, Direction::Forth);
        assert_eq!((tally.sent, tally.arrived, tally.lost(), tally.repeated), (200, 180, 20, 180));
        assert_eq!(tallies.damaged, 3, "never sent, wrong way, noise");
        let median = tally.latency_micros(0.5);
        assert!((95..=105).contains(&median), "{median}");
        assert!((195..=200).contains(&tally.latency_micros(0.99)));
        assert_eq!((tallies.sent(), tallies.arrived()), (200, 180));
    }

    #[test]
    fn is_good_when_every_flow_flows() {
        let mut tallies = Tallies::new();
        assert!(!tallies.good(0.01), "nothing was sent");
        for flow in FlowKind::ALL {
            for direction in Direction::ALL {
                for sequence in 0..100 {
                    tallies.note_sent(flow, direction);
                    let mut packet = vec![0; flow.packet_len(sequence)];
                    Stamp { flow, direction, sequence, sent: Instant::ZERO }.write(&mut packet);
                    if (flow, direction, sequence) != (FlowKind::Audio, Direction::Back, 7) {
                        tallies.note_arrived(Instant::ZERO, direction, &packet);
                    }
                }
            }
        }
        assert!(tallies.good(0.01));
        tallies.note_sent(FlowKind::Audio, Direction::Back);
        assert!(!tallies.good(0.01));
    }
}
