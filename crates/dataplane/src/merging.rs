//! Whether the sockets that clients send to ask the kernel to merge packets that come together (UDP GRO).
//!
//! Merged packets are the sockets' alone: the program at tc leaves them to them, for each datagram of a
//! burst has a header of its own. Where sockets do all, a burst is several times cheaper merged. Where the
//! program relays, it is not: it takes each packet for less than a socket takes its share of a burst, and
//! what waits in front of sockets that cannot follow is merged more and more. So listeners ask for it only
//! while packets come merged whoever asks: from senders on this machine that hand over several as one, or
//! where the system merges for its own sake. Relay sockets always ask: what other relay sockets of this
//! server send them comes by no program, and in bursts.

use turn_types::Instant;

use crate::limits::{MERGED_SWEEPS, MERGING_FOR};

/// What was seen since the last look.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    /// A program at tc relays flows.
    pub(crate) by_tc: bool,
    /// Packets of their clients came merged.
    pub(crate) came_merged: bool,
}

/// Whether to ask.
#[derive(Debug, Default)]
pub(crate) struct Merging {
    by_tc: bool,
    /// Looks in a row by which packets came merged that nobody had asked for.
    unasked: u32,
    /// Until when it is asked for though a program at tc relays.
    until: Option<Instant>,
}

impl Merging {
    /// Whether to ask: also while no flow is the program's.
    pub(crate) const fn is_asked_for(&self) -> bool {
        !self.by_tc || self.until.is_some()
    }

    /// Judges by what was seen.
    pub(crate) fn look(&mut self, now: Instant, seen: Seen) {
        let asked = self.is_asked_for();
        self.by_tc = seen.by_tc;
        self.until = self.until.filter(|until| now < *until && seen.by_tc);
        if asked {
            // What came merged was asked for.
            self.unasked = 0;
            return;
        }
        self.unasked = if seen.came_merged { self.unasked + 1 } else { 0 };
        // Some of what came by the first look may have been merged while it was still asked for.
        if self.unasked >= MERGED_SWEEPS {
            self.until = Some(now + MERGING_FOR);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const TC: Seen = Seen { by_tc: true, came_merged: false };
    const MERGED: Seen = Seen { came_merged: true, ..TC };

    fn at(seconds: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(seconds)
    }

    /// Whether it is asked for after each look, one a second.
    fn looks(merging: &mut Merging, from: u64, seen: &[Seen]) -> Vec<bool> {
        let look = |(second, seen): (u64, &Seen)| {
            merging.look(at(second), *seen);
            merging.is_asked_for()
        };
        (from..).zip(seen).map(look).collect()
    }

    #[test]
    fn sockets_alone_ask() {
        let mut merging = Merging::default();
        let seen = Seen { by_tc: false, ..MERGED };
        assert_eq!(looks(&mut merging, 1, &[seen; 4]), [true; 4]);
    }

    #[test]
    fn where_a_program_relays_they_do_not() {
        let mut merging = Merging::default();
        assert!(merging.is_asked_for(), "it relays nothing yet");
        // Merged by the first look: as it was asked for. By the second: what was still on its way.
        assert_eq!(looks(&mut merging, 1, &[MERGED, MERGED, TC, TC]), [false; 4]);
        let none = Seen { by_tc: false, ..TC };
        assert_eq!(looks(&mut merging, 5, &[none]), [true], "it relays nothing now");
    }

    #[test]
    fn what_comes_merged_unasked_is_taken_merged_for_a_while() {
        let mut merging = Merging::default();
        looks(&mut merging, 1, &[MERGED, MERGED]);
        assert_eq!(looks(&mut merging, 3, &[MERGED; 5]), [true; 5]);
        let end = 3 + MERGING_FOR.as_secs();
        assert_eq!(looks(&mut merging, end - 1, &[MERGED]), [true]);
        assert_eq!(looks(&mut merging, end, &[MERGED, MERGED]), [false; 2]);
        assert_eq!(looks(&mut merging, end + 2, &[TC]), [false], "they have ceased");
    }
}
