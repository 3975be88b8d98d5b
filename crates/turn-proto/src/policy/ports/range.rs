//! The range of ports to claim from, and the requirement of a client.

use core::fmt;

/// Ports in a word of the bitmap.
pub(crate) const BITS: usize = 64;

/// Ports that may be allocated: `min..=max`, none of them privileged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortRange {
    min: u16,
    max: u16,
}

impl PortRange {
    /// The ports above the privileged ones that IANA leaves to everybody (RFC 6335 §6), which RFC
    /// 8656 §7.2 recommends.
    pub const DYNAMIC: Self = Self { min: 49_152, max: 65_535 };

    /// The range `min..=max`; `None` if it is empty or reaches below 1024 (RFC 8656 §7.2).
    #[must_use]
    pub const fn new(min: u16, max: u16) -> Option<Self> {
        if min < 1024 || min > max { None } else { Some(Self { min, max }) }
    }

    /// The numbers `min..=max` of places that are no ports. `min` must not exceed `max`.
    pub(crate) const fn of_places(min: u16, max: u16) -> Self {
        debug_assert!(min <= max);
        Self { min, max }
    }

    /// The first port.
    #[must_use]
    pub const fn min(self) -> u16 {
        self.min
    }

    /// The last port.
    #[must_use]
    pub const fn max(self) -> u16 {
        self.max
    }

    /// Returns the number of ports, 1..=64512 (of places: 65,536 at most).
    #[must_use]
    pub const fn count(self) -> u32 {
        self.max as u32 - self.min as u32 + 1
    }

    /// The bits of the bitmap's `index`-th word that belong to the range.
    pub(crate) const fn mask(self, index: usize) -> u64 {
        let first = index * BITS;
        let (min, max) = (self.min as usize, self.max as usize);
        if max < first || min >= first + BITS {
            return 0;
        }
        let low = if min > first { u64::MAX << (min - first) } else { u64::MAX };
        let high =
            if max < first + BITS - 1 { u64::MAX >> (first + BITS - 1 - max) } else { u64::MAX };
        low & high
    }
}

impl Default for PortRange {
    fn default() -> Self {
        Self::DYNAMIC
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.min, self.max)
    }
}

/// Port requirement of a client (EVEN-PORT, RFC 8656 §18.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortRequirement {
    /// Any port.
    Any,
    /// An even port: EVEN-PORT without the R bit.
    Even,
    /// An even port, and the next one with it: EVEN-PORT with the R bit.
    EvenWithNext,
}

impl PortRequirement {
    /// Number of ports that it takes.
    pub(super) const fn ports(self) -> u32 {
        match self {
            Self::Any | Self::Even => 1,
            Self::EvenWithNext => 2,
        }
    }
}
