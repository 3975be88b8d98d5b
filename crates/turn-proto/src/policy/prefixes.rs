//! Routed prefixes. Each allocation has a separate address, and all allocations of a worker share
//! one port and one socket. A relayed address is unique (RFC 8656 §7.2) by IP address instead of
//! port, so an allocation costs no descriptor.
//!
//! Each worker has a dedicated even port, so two workers never assign the same transport address.
//! The following odd port is free for the pairs of EVEN-PORT. The low bits of an address are a
//! number claimed in a bitmap. The bits between the number and the prefix are random.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::fmt;
use core::net::{IpAddr, Ipv6Addr, SocketAddr};

use fair_share::Supply;
use turn_types::{IpFamily, Prefix, RelayProtocol, WorkerId};

use super::ports::{PortLease, PortRange, PortRequirement, RelayPorts};
use crate::limits::{PREFIX_PAIR_ATTEMPTS_MAX, PREFIX_TABLES_MAX};

/// Number of bits of a slot index within a table.
const PLACE_BITS: u32 = 16;

/// Prefix that is routed to this host, and delivered to this host completely. Clones refer to the
/// same prefix.
#[derive(Clone)]
pub struct RelayPrefix(Arc<Addresses>);

struct Addresses {
    network: Prefix,
    first_port: u16,
    /// Number of low bits that form the number of an address.
    number_bits: u32,
    /// Numbers in use of each worker.
    workers: Box<[Box<[Table]>]>,
}

/// Table of 65,536 numbers.
struct Table {
    /// Numbers in use with the worker's port.
    first: Arc<RelayPorts>,
    /// Numbers in use with the next port.
    next: Arc<RelayPorts>,
}

/// Claimed transport address.
pub(crate) struct ClaimedAddress {
    pub(crate) at: SocketAddr,
    pub(crate) lease: PortLease,
    /// Lease of the transport address with the next port, if requested.
    pub(crate) next: Option<PortLease>,
}

/// Error of a prefix that cannot be relayed from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RelayPrefixError {
    /// The prefix is longer than a `/30` of IPv4 or a `/112` of IPv6.
    TooLong,
    /// The prefix is shorter than a `/8` of IPv4 or a `/32` of IPv6.
    TooShort,
    /// The first port is odd, or too high for two ports per worker.
    Ports,
}

impl RelayPrefix {
    /// Returns the addresses of a network, all unused. The `n`-th worker relays from port
    /// `first_port + 2 n`, where `n` starts at 0.
    ///
    /// # Errors
    /// The network has too few or too many addresses, or the first port is unsuitable.
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

    /// Returns the network.
    #[must_use]
    pub fn network(&self) -> Prefix {
        self.0.network
    }

    /// Returns the family of the addresses.
    #[must_use]
    pub fn family(&self) -> IpFamily {
        IpFamily::of(self.0.network.first())
    }

    /// Returns true for an address of the prefix.
    #[must_use]
    pub fn contains(&self, ip: IpAddr) -> bool {
        IpFamily::of(ip) == self.family() && self.0.network.contains(ip)
    }

    /// Returns the ports that workers relay from.
    pub fn ports(&self) -> impl Iterator<Item = u16> {
        (self.0.first_port..).step_by(2).take(self.0.workers.len())
    }

    /// Returns the maximum number of concurrent allocations with an address of this prefix, over
    /// all workers.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        let of_worker: u64 = (0..self.tables())
            .filter_map(|table| self.places(table))
            .map(|range| u64::from(range.count()))
            .sum();
        of_worker * self.0.workers.len() as u64
    }

    /// Returns the maximum and the free number of allocations of a worker with an address of this
    /// prefix.
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

    /// Returns true if a UDP relay of this server is open at an address and port. Only the number
    /// within the address and the port are compared.
    #[must_use]
    pub fn is_relay(&self, at: SocketAddr) -> bool {
        self.contains(at.ip())
            && self.is_open(self.number_of(at.ip()), at.port(), RelayProtocol::Udp)
    }

    /// Claims a free address of a worker, and the next port too for
    /// [`PortRequirement::EvenWithNext`]. `random` must be 128 bits that reveal nothing about
    /// earlier values. Returns `None` if no address is free.
    pub(crate) fn claim(
        &self,
        worker: WorkerId,
        requirement: PortRequirement,
        random: u128,
    ) -> Option<ClaimedAddress> {
        let tables = self.0.workers.get(usize::from(worker.0))?;
        // Use bits that occur in no address.
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
                        // The second allocation of an ended pair may still have the next port.
                        let Some((next, _)) = next else { continue };
                        Some(next)
                    }
                };
                return Some(ClaimedAddress { at, lease, next });
            }
        }
        None
    }

    /// Claims an address of the predecessor. Returns `None` if the address is in use, or no worker
    /// has the port.
    pub(crate) fn claim_again(&self, at: SocketAddr) -> Option<PortLease> {
        let (number, offset) = (self.number_of(at.ip()), at.port().checked_sub(self.0.first_port)?);
        let tables = self.0.workers.get(usize::from(offset / 2))?;
        let Table { first, next } = tables.get((number >> PLACE_BITS) as usize)?;
        let ports = if offset % 2 == 0 { first } else { next };
        let only = PortRange::of_places(number as u16, number as u16);
        ports.claim(only, PortRequirement::Any, 0).map(|(lease, _)| lease)
    }

    /// Returns true if a lease belongs to this prefix.
    pub(crate) fn has_lease(&self, lease: &PortLease) -> bool {
        let mut tables = self.0.workers.iter().flatten();
        tables.any(|table| lease.is_of(&table.first) || lease.is_of(&table.next))
    }

    /// Returns true if a relay of this server is open at the port of the address with this number.
    /// The random bits of the address are unknown here, and need no comparison. With other random
    /// bits nothing is reached. The shared socket receives datagrams to all addresses at the
    /// worker's port, and drops datagrams without an allocation. A pair's next port and a TCP port
    /// are claimed only while no other socket of this host has the port at all addresses. The
    /// kernel enforces this.
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

    /// Returns the number of an address of the prefix.
    pub(crate) fn number_of(&self, ip: IpAddr) -> u32 {
        let bits = match ip {
            IpAddr::V4(v4) => u128::from(v4.to_bits()),
            IpAddr::V6(v6) => v6.to_bits(),
        };
        (bits & low_bits(self.0.number_bits)) as u32
    }

    /// Returns the port of a worker; `None` if the worker does not exist.
    #[must_use]
    pub fn port_of(&self, worker: WorkerId) -> Option<u16> {
        (usize::from(worker.0) < self.0.workers.len()).then(|| self.0.first_port + 2 * worker.0)
    }

    /// Returns the address with a number.
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

    /// Returns the slots of a table that can be claimed. The address with the number 0 belongs to
    /// the network itself (RFC 4291 §2.6.1: to all its routers). The last IPv4 address is the
    /// broadcast address.
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
