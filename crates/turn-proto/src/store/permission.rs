//! Permissions of an allocation (RFC 8656 §9): IP addresses of peers with expiries. Ports are
//! irrelevant.

use alloc::vec::Vec;
use core::net::IpAddr;

use turn_types::Instant;

use crate::policy::peers::OwnPorts;

#[derive(Clone, Debug)]
pub(crate) struct Permission {
    pub(crate) ip: IpAddr,
    pub(crate) expires: Instant,
    pub(crate) own: OwnPorts,
}

/// Permissions sorted by address. The policy limits the number of permissions, so the list is
/// short.
#[derive(Debug, Default)]
pub(crate) struct Permissions {
    sorted: Vec<Permission>,
}

impl Permissions {
    /// Returns the permission for an address, unless the permission has expired.
    pub(crate) fn live(&self, ip: IpAddr, now: Instant) -> Option<&Permission> {
        self.find(ip).ok().map(|at| &self.sorted[at]).filter(|found| now < found.expires)
    }

    /// Returns true if the address has an entry. The entry may have expired without being reclaimed
    /// yet.
    pub(crate) fn holds(&self, ip: IpAddr) -> bool {
        self.find(ip).is_ok()
    }

    /// Creates or extends a permission.
    pub(crate) fn install(&mut self, permission: Permission) {
        match self.find(permission.ip) {
            Ok(at) => self.sorted[at] = permission,
            Err(at) => insert_sparingly(&mut self.sorted, at, permission),
        }
    }

    /// Keeps the permissions for which `keep` returns true, and passes the addresses of removed
    /// permissions to `gone`.
    pub(crate) fn retain(
        &mut self,
        mut keep: impl FnMut(&mut Permission) -> bool,
        gone: impl FnMut(IpAddr),
    ) {
        let removed = self.sorted.extract_if(.., |permission| !keep(permission));
        removed.map(|permission| permission.ip).for_each(gone);
    }

    /// Returns all permissions, sorted by address.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Permission> {
        self.sorted.iter()
    }

    /// Returns the number of permissions, including expired permissions that are not reclaimed yet.
    pub(crate) fn len(&self) -> usize {
        self.sorted.len()
    }

    /// Returns the earliest expiry.
    pub(crate) fn next_expiry(&self) -> Option<Instant> {
        self.sorted.iter().map(|permission| permission.expires).min()
    }

    fn find(&self, ip: IpAddr) -> Result<usize, usize> {
        self.sorted.binary_search_by(|permission| permission.ip.cmp(&ip))
    }
}

/// Inserts an element, and doubles a full list from a capacity of one. Most allocations have a
/// single peer, and `Vec` starts with a capacity of four.
pub(crate) fn insert_sparingly<T>(list: &mut Vec<T>, at: usize, element: T) {
    if list.len() == list.capacity() {
        list.reserve_exact(list.len().max(1));
    }
    list.insert(at, element);
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::time::Duration;

    fn ip(last: u8) -> IpAddr {
        IpAddr::from([198, 51, 100, last])
    }

    #[test]
    fn one_peer_takes_the_memory_of_one() {
        let mut list = Vec::new();
        let capacities = [1_u64, 2, 3, 4, 5].map(|peer| {
            insert_sparingly(&mut list, 0, peer);
            list.capacity()
        });
        assert_eq!(capacities, [1, 2, 4, 4, 8]);
    }

    #[test]
    fn ends_exactly_and_is_replaced_not_doubled() {
        let mut permissions = Permissions::default();
        let end = Instant::ZERO + Duration::from_secs(300);
        for last in [9, 1, 5, 5] {
            permissions.install(Permission { ip: ip(last), expires: end, own: None });
        }
        let before = Instant::from_nanos(end.as_nanos() - 1);
        assert_eq!(permissions.len(), 3);
        assert!(permissions.live(ip(5), before).is_some());
        assert!(permissions.live(ip(5), end).is_none());
        assert!(permissions.live(ip(2), before).is_none());

        let mut gone = Vec::new();
        permissions.retain(|permission| permission.ip == ip(5), |ip| gone.push(ip));
        assert_eq!(gone, [ip(1), ip(9)]);
        assert!(permissions.holds(ip(5)) && !permissions.holds(ip(1)));
    }
}
