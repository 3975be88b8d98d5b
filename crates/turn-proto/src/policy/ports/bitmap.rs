//! Ports in use of a relay address, over all workers.
//!
//! The bitmaps consist of atomics. Claiming and releasing are lock-free, and querying a port is a
//! single load. A port is in use exactly as long as its [`PortLease`] lives. A port is open after a
//! relay socket of this server is bound to it. A port that is only reserved may belong to another
//! process on this host.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicU32, Ordering};
use core::{array, fmt};

use fair_share::Supply;
use turn_types::RelayProtocol;

use super::parts::{AtomicU64, DRAWS, WORDS};
use super::range::{BITS, PortRange, PortRequirement};

/// Even ports of a word. A port and its odd successor are always in the same word.
const EVEN: u64 = 0x5555_5555_5555_5555;

/// Minimum number of broken pairs with a free port to take single ports from. With fewer pairs,
/// clients could predict the next port.
const BROKEN_MIN: u32 = 16;

/// Free ports that fit a request.
#[derive(Clone, Copy, Debug)]
enum Fit {
    /// Ports that fit the requirement.
    Any(PortRequirement),
    /// Ports of broken pairs, whose other port is in use.
    Broken,
}

impl Fit {
    const fn requirement(self) -> PortRequirement {
        match self {
            Self::Any(requirement) => requirement,
            Self::Broken => PortRequirement::Any,
        }
    }
}

/// Ports of a relay address, in 32 KiB. A port number is claimed for UDP and TCP together, although
/// these are different ports. A number that is free in one table is free in both.
pub struct RelayPorts {
    /// Ports in use, one bit per port.
    words: Box<[AtomicU64; WORDS]>,
    /// Ports that are never claimed, one bit per port. These bits are never cleared.
    excluded: Box<[AtomicU64; WORDS]>,
    /// Ports with a bound relay socket, one bit per port.
    open: Box<[AtomicU64; WORDS]>,
    /// Ports with a listening TCP relay, one bit per port.
    listening: Box<[AtomicU64; WORDS]>,
    /// Number of bits in `words`, for a fast check.
    taken: AtomicU32,
    /// Maximum number of ports in use. Concurrent claims of workers may exceed this number
    /// slightly.
    most: AtomicU32,
}

impl RelayPorts {
    /// Returns an address without a port in use.
    #[must_use]
    pub fn new() -> Arc<Self> {
        let none = || Box::new(array::from_fn(|_| AtomicU64::new(0)));
        Arc::new(Self {
            words: none(),
            excluded: none(),
            open: none(),
            listening: none(),
            taken: AtomicU32::new(0),
            most: AtomicU32::new(u32::MAX),
        })
    }

    /// Sets the maximum number of ports in use. Each port is a socket, and the number of files of a
    /// process is limited. Ports in use remain.
    pub fn limit(&self, most: u32) {
        self.most.store(most, Ordering::Relaxed);
    }

    /// Returns the number of ports of a range that may be in use.
    pub(crate) fn capacity(&self, range: PortRange) -> u32 {
        range.count().min(self.most.load(Ordering::Relaxed))
    }

    /// Returns the number of ports that can still be claimed.
    fn left(&self) -> u32 {
        self.most.load(Ordering::Relaxed).saturating_sub(self.taken.load(Ordering::Relaxed))
    }

    /// Returns true if all ports are in use and the limit is the number of files, not the range.
    pub(crate) fn is_at_limit(&self, range: PortRange) -> bool {
        self.left() == 0 && self.capacity(range) < range.count()
    }

    /// Excludes a port from all later claims, because a listener of this server or of another
    /// process uses the port. An existing lease remains valid.
    pub fn exclude(&self, port: u16) {
        let (index, bit) = place(port);
        self.excluded[index].fetch_or(bit, Ordering::Relaxed);
    }

    /// Claims a free port, or two for [`PortRequirement::EvenWithNext`]. Returns `None` only if no
    /// free port fits, or the maximum is in use.
    ///
    /// If `random` is uniform, every free port that fits is equally likely. Ports therefore reveal
    /// nothing about other ports.
    ///
    /// Ports are drawn from the complete range until a drawn port is free. While most ports are
    /// free, this is the first. Only after `DRAWS` failures are the free ports counted.
    ///
    /// While pairs are scarce, single ports are taken from broken pairs. A client with many single
    /// ports therefore does not use up the pairs.
    #[must_use]
    pub fn claim(
        self: &Arc<Self>,
        range: PortRange,
        requirement: PortRequirement,
        random: u64,
    ) -> Option<(PortLease, Option<PortLease>)> {
        if self.left() < requirement.ports() {
            return None;
        }
        let broken = self.spares_pairs(range, requirement).then_some(Fit::Broken);
        let port = [broken, Some(Fit::Any(requirement))]
            .into_iter()
            .flatten()
            .find_map(|fit| self.find(range, fit, random))?;
        let lease = |port| PortLease { ports: Arc::clone(self), port };
        let next = match requirement {
            PortRequirement::Any | PortRequirement::Even => None,
            PortRequirement::EvenWithNext => Some(lease(port + 1)),
        };
        Some((lease(port), next))
    }

    /// Returns true if a request must not break another pair.
    fn spares_pairs(&self, range: PortRange, requirement: PortRequirement) -> bool {
        let (taken, capacity) = (self.taken.load(Ordering::Relaxed), range.count() / 2);
        let is_scarce = |free| Supply { free, capacity }.is_scarce();
        matches!(requirement, PortRequirement::Any)
            // Each port in use breaks at most one pair.
            && is_scarce(capacity.saturating_sub(taken))
            && is_scarce(self.count(range, Fit::Any(PortRequirement::EvenWithNext)))
            && self.count(range, Fit::Broken) >= BROKEN_MIN
    }

    /// Returns the number of free ports that fit.
    fn count(&self, range: PortRange, fit: Fit) -> u32 {
        (0..WORDS).map(|index| self.fitting(range, fit, index).count_ones()).sum()
    }

    fn find(&self, range: PortRange, fit: Fit, random: u64) -> Option<u16> {
        self.draw(range, fit, random).or_else(|| self.choose(range, fit, random))
    }

    /// Claims the first fitting port of a few draws from the range.
    fn draw(&self, range: PortRange, fit: Fit, random: u64) -> Option<u16> {
        (0..DRAWS).find_map(|draw| {
            let port = range.min() + (spread(random, draw) % u64::from(range.count())) as u16;
            let (index, bit) = place(port);
            let fits = self.fitting(range, fit, index) & bit != 0;
            (fits && self.take(port, fit.requirement())).then_some(port)
        })
    }

    /// Claims a random port among all fitting ports.
    fn choose(&self, range: PortRange, fit: Fit, random: u64) -> Option<u16> {
        loop {
            let free = u64::from(self.count(range, fit));
            if free == 0 {
                return None;
            }
            // An iteration fails only if another worker claimed a port in the meantime. Some worker
            // therefore always makes progress.
            let port = self.nth_fitting(range, fit, random % free);
            if let Some(port) = port.filter(|port| self.take(*port, fit.requirement())) {
                return Some(port);
            }
        }
    }

    /// Returns true if a relay socket is bound to a port. Only such ports of this server are peers.
    #[must_use]
    pub fn is_open(&self, port: u16) -> bool {
        let (index, bit) = place(port);
        self.open[index].load(Ordering::Acquire) & bit != 0
    }

    /// Returns true if a relay listens for TCP on a port. Only such ports of this server are peers
    /// over TCP.
    #[must_use]
    pub fn is_listening(&self, port: u16) -> bool {
        let (index, bit) = place(port);
        self.listening[index].load(Ordering::Acquire) & bit != 0
    }

    /// Returns the number of ports in use.
    #[must_use]
    pub fn used(&self) -> u32 {
        self.words.iter().map(|word| word.load(Ordering::Relaxed).count_ones()).sum()
    }

    /// Returns the number of free ports of a range, or of free even ports or pairs. While most
    /// ports are free, the result is approximate. Excluded ports are then treated as free, and
    /// ports in use outside of the range reduce the result.
    pub(crate) fn free(&self, range: PortRange, requirement: PortRequirement) -> u32 {
        let free = range.count().saturating_sub(self.taken.load(Ordering::Relaxed));
        let free = if matches!(requirement, PortRequirement::Any) && free >= range.count() / 4 {
            free
        } else {
            self.count(range, Fit::Any(requirement))
        };
        free.min(self.left() / requirement.ports())
    }

    /// Returns the free ports of the `index`-th word that fit.
    fn fitting(&self, range: PortRange, fit: Fit, index: usize) -> u64 {
        let mask = range.mask(index);
        if mask == 0 {
            return 0;
        }
        let [used, excluded] =
            [&self.words, &self.excluded].map(|table| table[index].load(Ordering::Relaxed));
        let free = !used & !excluded & mask;
        let pairs = free & free >> 1 & EVEN;
        match fit {
            Fit::Any(PortRequirement::Any) => free,
            Fit::Any(PortRequirement::Even) => free & EVEN,
            Fit::Any(PortRequirement::EvenWithNext) => pairs,
            Fit::Broken => free & !(pairs | pairs << 1),
        }
    }

    /// Returns the `n`-th free port that fits; `None` if fewer ports fit by now.
    fn nth_fitting(&self, range: PortRange, fit: Fit, mut n: u64) -> Option<u16> {
        for index in 0..WORDS {
            let mut fitting = self.fitting(range, fit, index);
            let count = u64::from(fitting.count_ones());
            if n >= count {
                n -= count;
                continue;
            }
            for _ in 0..n {
                fitting &= fitting - 1; // clears the lowest set bit
            }
            return u16::try_from(index * BITS + fitting.trailing_zeros() as usize).ok();
        }
        None
    }

    /// Marks a port, or a port and the next port, as used. Returns false if a port is not free any
    /// more.
    fn take(&self, port: u16, requirement: PortRequirement) -> bool {
        let (index, bit) = place(port);
        let bits = match requirement {
            PortRequirement::Any | PortRequirement::Even => bit,
            PortRequirement::EvenWithNext => bit | bit << 1,
        };
        let taken = self.words[index]
            .fetch_update(Ordering::AcqRel, Ordering::Relaxed, |word| {
                (word & bits == 0).then_some(word | bits)
            })
            .is_ok();
        if taken {
            self.taken.fetch_add(bits.count_ones(), Ordering::Relaxed);
        }
        taken
    }

    fn give_back(&self, port: u16) {
        let (index, bit) = place(port);
        self.open[index].fetch_and(!bit, Ordering::AcqRel);
        self.listening[index].fetch_and(!bit, Ordering::AcqRel);
        let before = self.words[index].fetch_and(!bit, Ordering::AcqRel);
        debug_assert!(before & bit != 0, "port {port} was given back twice");
        self.taken.fetch_sub(1, Ordering::Relaxed);
    }
}

impl fmt::Debug for RelayPorts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RelayPorts").field("used", &self.used()).finish_non_exhaustive()
    }
}

/// Returns the word index and the bit of a port.
const fn place(port: u16) -> (usize, u64) {
    (port as usize / BITS, 1 << (port as usize % BITS))
}

/// Returns the `n`-th of many unrelated numbers derived from `random` (SplitMix64).
const fn spread(random: u64, n: u64) -> u64 {
    let mut z = random.wrapping_add((n + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ z >> 31
}

/// Port in use. Dropping the lease frees the port.
#[derive(Debug)]
pub struct PortLease {
    ports: Arc<RelayPorts>,
    port: u16,
}

impl PortLease {
    /// Records that a relay socket is bound to the port, or listens on the port.
    pub(crate) fn mark_open(&self, protocol: RelayProtocol) {
        let (index, bit) = place(self.port);
        let table = match protocol {
            RelayProtocol::Udp => &self.ports.open,
            RelayProtocol::Tcp => &self.ports.listening,
        };
        table[index].fetch_or(bit, Ordering::AcqRel);
    }

    /// Returns the port.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Returns true if the port belongs to this address.
    #[must_use]
    pub fn is_of(&self, ports: &Arc<RelayPorts>) -> bool {
        Arc::ptr_eq(&self.ports, ports)
    }
}

impl Drop for PortLease {
    fn drop(&mut self) {
        self.ports.give_back(self.port);
    }
}

impl PartialEq for PortLease {
    fn eq(&self, other: &Self) -> bool {
        self.port == other.port && Arc::ptr_eq(&self.ports, &other.ports)
    }
}

impl Eq for PortLease {}
