//! One session as the generator sees it: what it sent, and what of that arrived.

use super::protocol::SessionId;

/// Sequence numbers behind the highest that are remembered one by one.
const REMEMBERED: u32 = 64;

/// A session's numbers.
#[derive(Debug)]
pub(super) struct FlowState {
    /// Its id.
    pub(super) id: SessionId,
    /// Its number, from 0 over all sessions.
    pub(super) number: u32,
    /// The sequence number of the next packet.
    pub(super) next: u32,
    arrived: Arrived,
}

/// What a packet that arrived is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    /// The first of its sequence number. So many packets are no longer on their way as it says:
    /// itself, and those before it that did not arrive.
    New {
        /// How many more than before are behind us.
        passed: u32,
    },
    /// It was here before, or is so late that nobody remembers.
    Again,
}

impl FlowState {
    pub(super) fn new(number: u32) -> Self {
        Self { id: SessionId::of_number(number), number, next: 0, arrived: Arrived::default() }
    }

    /// Takes note of a packet with this sequence number.
    pub(super) const fn note(&mut self, sequence: u32) -> Arrival {
        self.arrived.note(sequence)
    }
}

/// Which sequence numbers arrived: a window that moves with the highest.
#[derive(Debug, Default)]
struct Arrived {
    /// One more than the highest, 0 at first.
    end: u32,
    /// Bit n: `end - 1 - n` arrived.
    recent: u64,
}

impl Arrived {
    const fn note(&mut self, sequence: u32) -> Arrival {
        if sequence >= self.end {
            let passed = sequence + 1 - self.end;
            self.recent = if passed < REMEMBERED { self.recent << passed | 1 } else { 1 };
            self.end = sequence + 1;
            return Arrival::New { passed };
        }
        let behind = self.end - 1 - sequence;
        if behind >= REMEMBERED || self.recent & 1 << behind != 0 {
            return Arrival::Again;
        }
        self.recent |= 1 << behind;
        Arrival::New { passed: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_is_new_once_whatever_the_order() {
        let mut flow = FlowState::new(0);
        let mut note = |sequence| flow.note(sequence);
        assert_eq!(note(0), Arrival::New { passed: 1 });
        assert_eq!(note(0), Arrival::Again);
        assert_eq!(note(3), Arrival::New { passed: 3 });
        assert_eq!(note(1), Arrival::New { passed: 0 });
        assert_eq!(note(1), Arrival::Again);
        assert_eq!(note(3), Arrival::Again);
        assert_eq!(note(66), Arrival::New { passed: 63 });
        assert_eq!(note(3), Arrival::Again);
        assert_eq!(note(2), Arrival::Again, "too late to be told from one that was here");
        assert_eq!(note(4), Arrival::New { passed: 0 });
        assert_eq!(note(1000), Arrival::New { passed: 934 });
        assert_eq!(note(937), Arrival::New { passed: 0 });
        assert_eq!(note(936), Arrival::Again);
    }
}
