//! Time as a value. Nothing here reads a clock.

use core::ops::{Add, Sub};
use core::time::Duration;

/// Time of the monotonic clock, in nanoseconds since an epoch chosen by the caller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Instant(u64);

impl Instant {
    /// The epoch.
    pub const ZERO: Self = Self(0);
    /// Time later than any event.
    pub const FAR_FUTURE: Self = Self(u64::MAX);

    /// Creates an instant from nanoseconds since the epoch.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Returns the nanoseconds since the epoch.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Returns the duration from `earlier` to `self`, or zero if `earlier` is later.
    #[must_use]
    pub const fn saturating_since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// Returns the earlier of both instants, for example of a new deadline and the current next
    /// deadline. `None` represents no other instant.
    #[must_use]
    pub fn earliest(self, other: Option<Self>) -> Self {
        other.map_or(self, |other| other.min(self))
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    fn add(self, rhs: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(rhs.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl Sub<Self> for Instant {
    type Output = Duration;

    fn sub(self, rhs: Self) -> Duration {
        self.saturating_since(rhs)
    }
}

/// Wall-clock time in seconds since 1970, for the expiry of credentials.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct UnixSeconds(pub u64);

/// Both clocks, read together: `instant` for deadlines, `unix` for credentials.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Time of the monotonic clock.
    pub instant: Instant,
    /// Time of the wall clock.
    pub unix: UnixSeconds,
}
