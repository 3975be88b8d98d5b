//! Datagrams lost to a full receive buffer.

use std::cell::Cell;

/// Count of datagrams that one socket has lost to a full receive buffer, as last read. The kernel adds the sum to
/// each message, in 32 bits that wrap. `None`: as another process has read it.
#[derive(Debug)]
pub(crate) struct Losses(Cell<Option<u32>>);

impl Default for Losses {
    fn default() -> Self {
        Self(Cell::new(Some(0)))
    }
}

impl Losses {
    /// Of a socket of another process, which has counted the losses until then: the first message tells the sum.
    pub(crate) const fn inherited() -> Self {
        Self(Cell::new(None))
    }

    /// Returns the losses since the last call; `total` is 0 in messages from before the first one. A sum
    /// that is less than before counts nothing: messages that several processors queue at once may carry
    /// their sums in another order than they stand in the queue.
    pub(crate) fn since(&self, total: u32) -> u64 {
        let before = self.0.get().unwrap_or(total);
        let step = total.wrapping_sub(before);
        // More than half of the circle is a step backward.
        if step > u32::MAX / 2 {
            return 0;
        }
        self.0.set(Some(total));
        u64::from(step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_each_loss_once_and_over_the_wrap() {
        let losses = Losses::default();
        let half = u32::MAX / 2;
        let counted = [0, 3, 3, half, u32::MAX - 1, 1].map(|total| losses.since(total));
        assert_eq!(counted, [0, 3, 0, u64::from(half) - 3, u64::from(half), 3]);
    }

    #[test]
    fn losses_that_another_process_has_counted_are_not_counted_again() {
        let losses = Losses::inherited();
        assert_eq!([1000, 1000, 1003].map(|total| losses.since(total)), [0, 0, 3]);
    }

    #[test]
    fn a_step_backward_counts_nothing_and_nothing_twice() {
        let losses = Losses::default();
        let counted = [7, 5, 7, 8, 0, 9].map(|total| losses.since(total));
        assert_eq!(counted, [7, 0, 0, 1, 0, 1]);
        let losses = Losses(Cell::new(Some(1)));
        assert_eq!([u32::MAX, 2].map(|total| losses.since(total)), [0, 1], "over the wrap");
    }
}
