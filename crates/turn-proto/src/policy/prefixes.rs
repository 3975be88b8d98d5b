//! Routed prefixes: each allocation has an address of its own, all on one port and one socket of a
//! worker. A relayed address is unique (RFC 8656 §7.2) by its address instead of its port, so that
//! an allocation costs no descriptor.
//!
//! A worker has an even port of its own, so that no two workers can give the same transport
//! address, and the odd port behind it is free for the pairs of EVEN-PORT. The low bits of an
//! address are a number that is taken in a bitmap; the bits between it and the prefix are random.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::fmt;
use core::net::{IpAddr, Ipv6Addr, SocketAddr};

use fair_share::Supply;
use turn_types::{IpFamily, Prefix, RelayProtocol, WorkerId};

use super::ports::{PortLease, PortRange, PortRequirement, RelayPorts};
use crate::limits::{PREFIX_PAIR_ATTEMPTS_MAX, PREFIX_TABLES_MAX};

/// Bits of a place within one table.
const PLACE_BITS: u32 = 16;

/// A prefix that is routed to this host and delivered to it as a whole. Clones are the same one.
#[derive(Clone)]
pub struct RelayPrefix(Arc<Addresses>);

struct Addresses {
    network: Prefix,
    first_port: u16,
    /// Low bits of an address that are its number.
    number_bits: u32,
    /// The numbers in use of each worker.
    workers: Box<[Box<[Table]>]>,
}

/// 65,536 numbers.
struct Table {
    /// Those whose transport address with the worker's port is in use.
    first: Arc<RelayPorts>,
    /// The same with the next port.
    next: Arc<RelayPorts>,
}

/// A transport address that was claimed.
pub(crate) struct ClaimedAddress {
    pub(crate) at: SocketAddr,
    pub(crate) lease: PortLease,
    /// That with the next port, if it was asked for.
    pub(crate) next: Option<PortLease>,
}

/// The prefix cannot be relayed from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RelayPrefixError {
    /// It is longer than a `/30` of IPv4 or a `/112` of IPv6.
    TooLong,
    /// It is shorter than a `/8` of IPv4 or a `/32` of IPv6.
    TooShort,
    /// There are not two ports for each worker from the first port on, or that is not even.
    Ports,
}

impl RelayPrefix {
    /// The addresses of a network, none of them in use. The `n`-th worker relays from port
    /// `first_port + 2 n`.
    ///
    /// # Errors
    /// It has too few or too many addresses, or there are too few ports.
    pub fn new(network: Prefix, first_port: u16, workers: u16) -> Result<Self, RelayPrefixError> {
        let host_bits = u32::from(128 - network.len_128());
        let (least, most) = if network.first().is_ipv4() { (2, 24) } else { (16, 96) };
        if host_bits < least {
            return Err(RelayPrefixError::TooLong);
        }
        if host_bits > most {
            return Err(RelayPrefixError::TooShort);
        }
        let last_port = u32::from(first_port) + 2 * u32::from(workers) - 1;
        if !first_port.is_multiple_of(2) || last_port > u32::from(u16::MAX) {
            return Err(RelayPrefixError::Ports);
        }
        let number_bits = host_bits.min(PLACE_BITS + PREFIX_TABLES_MAX.ilog2());
        let tables = 1 << number_bits.saturating_sub(PLACE_BITS);
        let table = || Table { first: RelayPorts::new(), next: RelayPorts::new() };
        let of_worker = || (0..tables).map(|_| table()).collect();
        let workers = (0..workers).map(|_| of_worker()).collect();
        Ok(Self(Arc::new(Addresses { network, first_port, number_bits, workers })))
    }

    /// The network.
    #[must_use]
    pub fn network(&self) -> Prefix {
        self.0.network
    }

    /// The family of its addresses.
    #[must_use]
    pub fn family(&self) -> IpFamily {
        IpFamily::of(self.0.network.first())
    }

    /// Returns true for an address of the prefix.
    #[must_use]
    pub fn contains(&self, ip: IpAddr) -> bool {
        IpFamily::of(ip) == self.family() && self.0.network.contains(ip)
    }

    /// The ports that workers relay from.
    pub fn ports(&self) -> impl Iterator<Item = u16> {
        (self.0.first_port..).step_by(2).take(self.0.workers.len())
    }

    /// Returns the number of allocations that can have an address at a time, over all workers.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        let of_worker: u64 = (0..self.tables())
            .filter_map(|table| self.places(table))
            .map(|range| u64::from(range.count()))
            .sum();
        of_worker * self.0.workers.len() as u64
    }

    /// Returns the number of allocations of one worker that can have an address, and can still get
    /// one.
    pub(crate) fn supply(&self, worker: WorkerId) -> Supply {
        let tables = self.0.workers.get(usize::from(worker.0)).into_iter().flatten();
        let mut supply = Supply { free: 0, capacity: 0 };
        for (index, table) in tables.enumerate() {
            if let Some(range) = self.places(index) {
                supply.free += table.first.free(range, PortRequirement::Any);
                supply.capacity += range.count();
            }
        }
        supply
    }

    /// Returns the number of transport addresses in use.
    #[must_use]
    pub fn used(&self) -> u32 {
        let tables = self.0.workers.iter().flatten();
        tables.map(|table| table.first.used() + table.next.used()).sum()
    }

    /// Returns true if a relay for UDP of ours is open at an address and port, as far as its number
    /// and port tell.
    #[must_use]
    pub fn is_relay(&self, at: SocketAddr) -> bool {
        self.contains(at.ip())
            && self.is_open(self.number_of(at.ip()), at.port(), RelayProtocol::Udp)
    }

    /// Takes a free address of a worker, with the next port as well for
    /// [`PortRequirement::EvenWithNext`]. `random` is 128 bits that tell nothing of those before.
    /// `None` if none is free.
    pub(crate) fn claim(
        &self,
        worker: WorkerId,
        requirement: PortRequirement,
        random: u128,
    ) -> Option<ClaimedAddress> {
        let tables = self.0.workers.get(usize::from(worker.0))?;
        // Of the bits that are in no address.
        let start = (random >> 80) as usize % tables.len();
        let mut seed = (random >> 96) as u64;
        for index in (0..tables.len()).cycle().skip(start).take(tables.len()) {
            let (table, Some(range)) = (&tables[index], self.places(index)) else { continue };
            for _ in 0..PREFIX_PAIR_ATTEMPTS_MAX {
                seed = seed.wrapping_add(1);
                let Some((lease, _)) = table.first.claim(range, PortRequirement::Any, seed) else {
                    break;
                };
                let place = lease.port();
                let number = (index as u32) << PLACE_BITS | u32::from(place);
                let at = SocketAddr::new(self.address(number, random), self.port_of(worker)?);
                let next = match requirement {
                    PortRequirement::Any | PortRequirement::Even => None,
                    PortRequirement::EvenWithNext => {
                        let only = PortRange::of_places(place, place);
                        let next = table.next.claim(only, PortRequirement::Any, 0);
                        // The pair of an allocation that has ended may have the next port still.
                        let Some((next, _)) = next else { continue };
                        Some(next)
                    }
                };
                return Some(ClaimedAddress { at, lease, next });
            }
        }
        None
    }

    /// Takes an address that a server had before this one; `None` if it is in use, or has a port of
    /// no worker.
    pub(crate) fn claim_again(&self, at: SocketAddr) -> Option<PortLease> {
        let (number, offset) = (self.number_of(at.ip()), at.port().checked_sub(self.0.first_port)?);
        let tables = self.0.workers.get(usize::from(offset / 2))?;
        let Table { first, next } = tables.get((number >> PLACE_BITS) as usize)?;
        let ports = if offset % 2 == 0 { first } else { next };
        let only = PortRange::of_places(number as u16, number as u16);
        ports.claim(only, PortRequirement::Any, 0).map(|(lease, _)| lease)
    }

    /// Returns true for a lease of one of its addresses.
    pub(crate) fn has_lease(&self, lease: &PortLease) -> bool {
        let mut tables = self.0.workers.iter().flatten();
        tables.any(|table| lease.is_of(&table.first) || lease.is_of(&table.next))
    }

    /// Returns true if a relay of ours is open at an address and port of the prefix, as far as the
    /// address's number tells: its random bits are not known here. With other ones nothing is
    /// reached: the shared socket has the worker's port of all addresses and drops what is not for
    /// an allocation, and a pair's next port and a port for TCP are only given while no other
    /// socket of this host has them at all addresses, as the kernel sees to.
    pub(crate) fn is_open(&self, number: u32, port: u16, protocol: RelayProtocol) -> bool {
        let Some(offset) = port.checked_sub(self.0.first_port) else { return false };
        let tables = self.0.workers.get(usize::from(offset / 2));
        let table = tables.and_then(|tables| tables.get((number >> PLACE_BITS) as usize));
        let Some(Table { first, next }) = table else { return false };
        let (place, ports) = (number as u16, if offset % 2 == 0 { first } else { next });
        match protocol {
            RelayProtocol::Udp => ports.is_open(place),
            RelayProtocol::Tcp => ports.is_listening(place),
        }
    }

    /// The number of an address of the prefix.
    pub(crate) fn number_of(&self, ip: IpAddr) -> u32 {
        let bits = match ip {
            IpAddr::V4(v4) => u128::from(v4.to_bits()),
            IpAddr::V6(v6) => v6.to_bits(),
        };
        (bits & low_bits(self.0.number_bits)) as u32
    }

    /// Returns the port of a worker; `None` if there is no such worker.
    #[must_use]
    pub fn port_of(&self, worker: WorkerId) -> Option<u16> {
        (usize::from(worker.0) < self.0.workers.len()).then(|| self.0.first_port + 2 * worker.0)
    }

    /// An address with a number.
    fn address(&self, number: u32, random: u128) -> IpAddr {
        let host_bits = u32::from(128 - self.0.network.len_128());
        let above = random << self.0.number_bits & low_bits(host_bits);
        let ip = Ipv6Addr::from_bits(self.0.network.bits() | above | u128::from(number));
        match self.family() {
            IpFamily::V4 => ip.to_canonical(),
            IpFamily::V6 => IpAddr::V6(ip),
        }
    }

    fn tables(&self) -> usize {
        1 << self.0.number_bits.saturating_sub(PLACE_BITS)
    }

    /// The places that may be claimed of a table: not the address with the number 0, which is that
    /// of the network itself (RFC 4291 §2.6.1: of all its routers), and of IPv4 not the last one,
    /// to which a network broadcasts.
    fn places(&self, table: usize) -> Option<PortRange> {
        let last = low_bits(self.0.number_bits.min(PLACE_BITS)) as u16;
        let is_last = table + 1 == self.tables() && self.family() == IpFamily::V4;
        let (min, max) = (u16::from(table == 0), last - u16::from(is_last));
        (min <= max).then(|| PortRange::of_places(min, max))
    }
}

impl fmt::Debug for RelayPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Addresses { network, first_port, .. } = &*self.0;
        write!(f, "RelayPrefix({network}, port {first_port})")
    }
}

impl PartialEq for RelayPrefix {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for RelayPrefix {}

const fn low_bits(count: u32) -> u128 {
    (1 << count) - 1
}

#[cfg(test)]
mod tests;
