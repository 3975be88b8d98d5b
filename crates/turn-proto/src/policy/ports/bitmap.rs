//! The ports in use of one relay address, over all workers.
//!
//! Bitmaps of atomics: claiming and giving back are lock-free, and asking about a port is one load.
//! A port is in use exactly as long as its [`PortLease`] lives, and open once a relay socket of
//! ours is bound to it: a port that is merely reserved may belong to somebody else on this host.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicU32, Ordering};
use core::{array, fmt};

use fair_share::Supply;
use turn_types::RelayProtocol;

use super::parts::{AtomicU64, DRAWS, WORDS};
use super::range::{BITS, PortRange, PortRequirement};

/// The even ports of a word. A port and its odd successor are always in the same word.
const EVEN: u64 = 0x5555_5555_5555_5555;

/// Broken pairs with a free port, from which single ports are taken: fewer would tell which port
/// comes next.
const BROKEN_MIN: u32 = 16;

/// Free ports that fit a request.
#[derive(Clone, Copy, Debug)]
enum Fit {
    /// Ports of a kind.
    Any(PortRequirement),
    /// Ports of broken pairs: the other port of the pair is in use.
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

/// The ports of one relay address. 32 KiB. A number is in use for UDP and TCP at once, though they
/// are different ports: a number that is free in one table is free in both.
pub struct RelayPorts {
    /// One bit per port, set while it is in use.
    words: Box<[AtomicU64; WORDS]>,
    /// One bit per port that is never claimed, set for good.
    excluded: Box<[AtomicU64; WORDS]>,
    /// One bit per port, set while a relay socket is bound to it.
    open: Box<[AtomicU64; WORDS]>,
    /// One bit per port, set while a relay listens on it: the same for TCP.
    listening: Box<[AtomicU64; WORDS]>,
    /// Number of bits in `words`, for a quick look.
    taken: AtomicU32,
    /// Maximum number of ports in use, approximately: concurrent claims of workers may exceed it.
    most: AtomicU32,
}

impl RelayPorts {
    /// An address of which no port is in use.
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

    /// Sets the maximum number of ports in use: each is a socket, and a process may open only so
    /// many files. Those in use stay.
    pub fn limit(&self, most: u32) {
        self.most.store(most, Ordering::Relaxed);
    }

    /// Returns the number of ports of a range that may be in use.
    pub(crate) fn capacity(&self, range: PortRange) -> u32 {
        range.count().min(self.most.load(Ordering::Relaxed))
    }

    /// Returns the number of ports that may still be claimed.
    fn left(&self) -> u32 {
        self.most.load(Ordering::Relaxed).saturating_sub(self.taken.load(Ordering::Relaxed))
    }

    /// Returns true if the process's files, not the range, limit the ports, and all are in use.
    pub(crate) fn is_at_limit(&self, range: PortRange) -> bool {
        self.left() == 0 && self.capacity(range) < range.count()
    }

    /// Never gives a port away again: a listener has it, of this server or another. A lease that
    /// there is stays as it is.
    pub fn exclude(&self, port: u16) {
        let (index, bit) = place(port);
        self.excluded[index].fetch_or(bit, Ordering::Relaxed);
    }

    /// Takes a free port, or two for [`PortRequirement::EvenWithNext`]. Every free port that fits
    /// is equally likely, as far as `random` is uniform, so that ports tell nothing about each
    /// other. `None` only if no free port fits, or the maximum is in use.
    ///
    /// Ports are drawn from the whole range until one is free, which while most are is the first.
    /// Only after `DRAWS` of them are the free ones counted.
    ///
    /// While pairs are scarce, single ports are taken from broken pairs: a client with many single
    /// ports does not use up the pairs.
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
            // Each port in use breaks one pair at most.
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

    /// Takes the first port that fits of a few drawn from the range.
    fn draw(&self, range: PortRange, fit: Fit, random: u64) -> Option<u16> {
        (0..DRAWS).find_map(|draw| {
            let port = range.min() + (spread(random, draw) % u64::from(range.count())) as u16;
            let (index, bit) = place(port);
            let fits = self.fitting(range, fit, index) & bit != 0;
            (fits && self.take(port, fit.requirement())).then_some(port)
        })
    }

    /// Takes one of all ports that fit.
    fn choose(&self, range: PortRange, fit: Fit, random: u64) -> Option<u16> {
        loop {
            let free = u64::from(self.count(range, fit));
            if free == 0 {
                return None;
            }
            // A round is lost only if somebody else took a port meanwhile, so somebody gets on.
            let port = self.nth_fitting(range, fit, random % free);
            if let Some(port) = port.filter(|port| self.take(*port, fit.requirement())) {
                return Some(port);
            }
        }
    }

    /// Returns true if a relay socket of ours is bound to a port: the only ports of ours that are
    /// peers.
    #[must_use]
    pub fn is_open(&self, port: u16) -> bool {
        let (index, bit) = place(port);
        self.open[index].load(Ordering::Acquire) & bit != 0
    }

    /// Returns true if a relay of ours listens for TCP on a port: the only ports of ours that are
    /// peers by TCP.
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

    /// Returns the number of free ports of a range, or of free pairs. While most ports are free,
    /// excluded ports count as free, and ports in use outside of the range as in use.
    pub(crate) fn free(&self, range: PortRange, requirement: PortRequirement) -> u32 {
        let free = range.count().saturating_sub(self.taken.load(Ordering::Relaxed));
        let free = if matches!(requirement, PortRequirement::Any) && free >= range.count() / 4 {
            free
        } else {
            self.count(range, Fit::Any(requirement))
        };
        free.min(self.left() / requirement.ports())
    }

    /// The free ports of the `index`-th word that fit.
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

    /// The `n`-th free port that fits; `None` if there are no longer so many.
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

    /// Marks a port, or it and the next one, as used; false if it no longer is free.
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

/// The word and the bit of a port.
const fn place(port: u16) -> (usize, u64) {
    (port as usize / BITS, 1 << (port as usize % BITS))
}

/// The `n`-th of many numbers made of one, which have nothing in common (SplitMix64).
const fn spread(random: u64, n: u64) -> u64 {
    let mut z = random.wrapping_add((n + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ z >> 31
}

/// A port in use. It is free again when the lease is dropped.
#[derive(Debug)]
pub struct PortLease {
    ports: Arc<RelayPorts>,
    port: u16,
}

impl PortLease {
    /// A relay socket has been bound to the port, or listens on it.
    pub(crate) fn mark_open(&self, protocol: RelayProtocol) {
        let (index, bit) = place(self.port);
        let table = match protocol {
            RelayProtocol::Udp => &self.ports.open,
            RelayProtocol::Tcp => &self.ports.listening,
        };
        table[index].fetch_or(bit, Ordering::AcqRel);
    }

    /// The port.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Returns true for a port of this address.
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
