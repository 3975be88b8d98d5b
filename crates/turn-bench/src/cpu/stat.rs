//! Shares of a core's time by `/proc/stat`.

use std::fs;

/// Time that a core spent, by kind, in ticks since boot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Ticks([u64; 6]);

impl Ticks {
    /// Reads them; zeros where `/proc/stat` cannot be read or does not know the core.
    pub(super) fn of(core: usize) -> Self {
        let text = fs::read_to_string("/proc/stat").unwrap_or_default();
        Self::parse(&text, core).unwrap_or_default()
    }

    /// Takes a core's line apart: `cpu1 user nice system idle iowait irq softirq steal ...`.
    fn parse(text: &str, core: usize) -> Option<Self> {
        let name = format!("cpu{core} ");
        let line = text.lines().find_map(|line| line.strip_prefix(&name))?;
        let mut fields = line.split_ascii_whitespace().map(|field| field.parse::<u64>());
        let mut next = || fields.next()?.ok();
        let (user, nice, system, idle) = (next()?, next()?, next()?, next()?);
        let (iowait, irq, softirq, steal) = (next()?, next()?, next()?, next()?);
        // The idle meter's time is accounted as nice.
        Some(Self([user, system, softirq, irq, steal, idle + iowait + nice]))
    }

    /// The shares of the time since, in the order of [`CoreUse::stat`](crate::outcome::CoreUse):
    /// user, system, softirq, irq, steal, idle. Zeros when no tick has passed.
    pub(super) fn shares_since(&self, earlier: &Self) -> [f64; 6] {
        // A counter may be corrected downwards by the kernel: that is no time.
        let spent: [u64; 6] = std::array::from_fn(|i| self.0[i].saturating_sub(earlier.0[i]));
        let total = spent.iter().sum::<u64>().max(1) as f64;
        spent.map(|ticks| ticks as f64 / total)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = "cpu  11 22 33 44 55 66 77 88 0 0\n\
                        cpu0 1 2 3 4 5 6 7 8 0 0\n\
                        cpu1 10 20 30 40 50 60 70 80 0 0\n\
                        cpu10 9 9 9 9 9 9 9 9 0 0\n\
                        intr 1\n";

    #[test]
    fn the_line_of_the_core_is_taken() {
        assert_eq!(Ticks::parse(STAT, 1), Some(Ticks([10, 30, 70, 60, 80, 110])));
        assert_eq!(Ticks::parse(STAT, 10), Some(Ticks([9, 9, 9, 9, 9, 27])));
        assert_eq!(Ticks::parse(STAT, 2), None);
        assert_eq!(Ticks::parse("cpu1 1 2 3", 1), None);
    }

    #[test]
    fn shares_are_of_the_time_in_between() {
        let (earlier, later) = (Ticks([1, 1, 1, 1, 1, 1]), Ticks([3, 5, 1, 1, 1, 5]));
        assert_eq!(later.shares_since(&earlier), [0.2, 0.4, 0.0, 0.0, 0.0, 0.4]);
        assert_eq!(earlier.shares_since(&earlier), [0.0; 6]);
    }
}
