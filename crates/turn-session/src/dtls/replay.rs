//! Replay window, which accepts each record once (RFC 6347 §4.1.2.6).

use state_format::fields;

/// Width of the window in records. RFC 6347 requires at least 32. Batches from several queues of a
/// network card can be reordered by more.
const WIDTH: u64 = 128;

/// Set of received record numbers. Contains only numbers of authentic records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ReplayWindow {
    /// Number after the newest record's.
    next: u64,
    /// Bit `n`: the record `n` numbers before the newest was received.
    seen: u128,
}

fields!(ReplayWindow { 1 => next, 2 => seen });

impl ReplayWindow {
    /// Returns true if a number is within or after the window, and was not received.
    pub(super) const fn is_new(&self, number: u64) -> bool {
        if number >= self.next {
            return true;
        }
        let behind = self.next - 1 - number;
        behind < WIDTH && self.seen >> behind & 1 == 0
    }

    /// Returns the number after the newest record's.
    pub(super) const fn end(&self) -> u64 {
        self.next
    }

    /// Marks a record as received.
    pub(super) const fn mark(&mut self, number: u64) {
        if number >= self.next {
            let by = number - self.next + 1;
            self.seen = if by < WIDTH { self.seen << by | 1 } else { 1 };
            self.next = number + 1;
        } else {
            let behind = self.next - 1 - number;
            if behind < WIDTH {
                self.seen |= 1 << behind;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Equivalence to a set of all numbers, for numbers within the window.
        #[test]
        fn a_number_is_new_once(steps in prop::collection::vec((0..3_u8, 0..200_u64), 0..300)) {
            let mut window = ReplayWindow::default();
            let (mut seen, mut newest) = (BTreeSet::new(), 0);
            for (kind, by) in steps {
                let number = match kind {
                    0 => newest + by % 3,
                    1 => newest + by,
                    _ => newest.saturating_sub(by),
                };
                let is_too_old = !seen.is_empty() && number + WIDTH <= newest;
                prop_assert_eq!(window.is_new(number), !is_too_old && !seen.contains(&number));
                window.mark(number);
                newest = newest.max(number);
                if !is_too_old {
                    seen.insert(number);
                }
            }
        }
    }

    #[test]
    fn the_last_numbers_that_there_are_have_a_place() {
        let mut window = ReplayWindow::default();
        for number in [0, 127, 128, 5000, (1 << 48) - 1] {
            assert!(window.is_new(number));
            window.mark(number);
            assert!(!window.is_new(number));
        }
        assert!(!window.is_new(0) && window.is_new((1 << 48) - 2));
    }
}
