//! Datagrams that the kernel threw away.

use std::cell::Cell;

/// How many datagrams one socket has lost to a full receive buffer, as last heard: the kernel
/// tells the sum with each message, in 32 bits that wrap.
#[derive(Debug, Default)]
pub(crate) struct Losses(Cell<u32>);

impl Losses {
    /// Those since the last call; `total` is 0 in messages from before the first loss.
    pub(crate) fn since(&self, total: u32) -> u64 {
        let lost = total.wrapping_sub(self.0.replace(total));
        u64::from(lost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_each_loss_once_and_over_the_wrap() {
        let losses = Losses::default();
        let counted = [0, 3, 3, u32::MAX, 1].map(|total| losses.since(total));
        assert_eq!(counted, [0, 3, 0, u64::from(u32::MAX) - 3, 2]);
    }
}
