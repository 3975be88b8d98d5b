//! Datagrams that were lost at a full receive buffer.

use std::cell::Cell;

/// Number of datagrams that one socket has lost at a full receive buffer, as last read. The kernel
/// adds the sum to each message, as a 32-bit number that wraps around.
#[derive(Debug, Default)]
pub(crate) struct Losses(Cell<u32>);

impl Losses {
    /// Returns the sum as last read.
    pub(crate) const fn counted(&self) -> u32 {
        self.0.get()
    }

    /// Continues from the sum that another process has counted.
    pub(crate) fn go_on_from(&self, counted: u32) {
        self.0.set(counted);
    }

    /// Returns the losses since the last call. `total` is 0 in messages from before the first loss.
    ///
    /// A sum that is less than the last sum is ignored. If several processors queue messages
    /// concurrently, the order of the sums may differ from the order of the messages.
    pub(crate) fn since(&self, total: u32) -> u64 {
        let step = total.wrapping_sub(self.0.get());
        // A step of more than half of the range is a step backward.
        if step > u32::MAX / 2 {
            return 0;
        }
        self.0.set(total);
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
        let losses = Losses::default();
        losses.go_on_from(1000);
        assert_eq!([1000, 1003].map(|total| losses.since(total)), [0, 3]);
        assert_eq!(losses.counted(), 1003);
    }

    #[test]
    fn a_step_backward_counts_nothing_and_nothing_twice() {
        let losses = Losses::default();
        let counted = [7, 5, 7, 8, 0, 9].map(|total| losses.since(total));
        assert_eq!(counted, [7, 0, 0, 1, 0, 1]);
        let losses = Losses(Cell::new(1));
        assert_eq!([u32::MAX, 2].map(|total| losses.since(total)), [0, 1], "over the wrap");
    }
}
