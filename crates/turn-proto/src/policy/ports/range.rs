//! Range of ports to claim from, and port requirement of a client.

use core::fmt;

/// Number of ports in a word of the bitmap.
pub(crate) const BITS: usize = 64;

/// Ports for allocations: `min..=max`, without privileged ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortRange {
    min: u16,
    max: u16,
}

impl PortRange {
    /// IANA's dynamic ports (RFC 6335 §6), the range recommended by RFC 8656 §7.2.
    pub const DYNAMIC: Self = Self { min: 49_152, max: 65_535 };

    /// Returns the range `min..=max`; `None` if the range is empty or contains ports below 1024
    /// (RFC 8656 §7.2).
    #[must_use]
    pub const fn new(min: u16, max: u16) -> Option<Self> {
        if min < 1024 || min > max { None } else { Some(Self { min, max }) }
    }

    /// Returns the range `min..=max` of numbers that are not ports. `min` must not exceed `max`.
    pub(crate) const fn of_places(min: u16, max: u16) -> Self {
        debug_assert!(min <= max);
        Self { min, max }
    }

    /// Returns the first port.
    #[must_use]
    pub const fn min(self) -> u16 {
        self.min
    }

    /// Returns the last port.
    #[must_use]
    pub const fn max(self) -> u16 {
        self.max
    }

    /// Returns the number of ports, 1..=64512. A range of other numbers may have up to 65,536.
    #[must_use]
    pub const fn count(self) -> u32 {
        self.max as u32 - self.min as u32 + 1
    }

    /// Returns the bits of the bitmap's `index`-th word that belong to the range.
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
    /// Any port is acceptable.
    Any,
    /// The port must be even: EVEN-PORT without the R bit.
    Even,
    /// The port must be even, and the next port is claimed too: EVEN-PORT with the R bit.
    EvenWithNext,
}

impl PortRequirement {
    /// Returns the number of claimed ports.
    pub(super) const fn ports(self) -> u32 {
        match self {
            Self::Any | Self::Even => 1,
            Self::EvenWithNext => 2,
        }
    }
}
