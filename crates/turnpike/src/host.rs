//! What the host is: its addresses, in the order that suits a relay, and its processors.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use linux_net::{allowed_cores, interface_addresses, source_address_towards};
use settings::WorkerCount;

use crate::failure::{OrFail as _, Result};

/// Addresses in the public internet, to ask the routing table about. Nothing is sent to them.
const FAR_AWAY: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(1, 1, 1, 1)),
    IpAddr::V6(Ipv6Addr::new(0x2606, 0x4700, 0x4700, 0, 0, 0, 0, 0x1111)),
];

/// Every address of this host: the ones it reaches others from first, those of interfaces that are
/// down last.
pub(crate) fn addresses() -> Result<Vec<IpAddr>> {
    let mut addresses: Vec<IpAddr> =
        FAR_AWAY.into_iter().filter_map(|ip| source_address_towards(ip).ok()).collect();
    let mut interfaces = interface_addresses().or_fail("cannot list the addresses of this host")?;
    interfaces.sort_by_key(|interface| !interface.up);
    for interface in interfaces {
        if !addresses.contains(&interface.address) {
            addresses.push(interface.address);
        }
    }
    Ok(addresses)
}

/// The core of each worker; `None` leaves it to the scheduler.
pub(crate) fn cores(count: WorkerCount, pin: bool) -> Vec<Option<usize>> {
    // Where the kernel does not say, one worker that runs anywhere is right.
    place(count, pin, &allowed_cores().unwrap_or_default())
}

fn place(count: WorkerCount, pin: bool, allowed: &[usize]) -> Vec<Option<usize>> {
    let count = match count {
        WorkerCount::Auto => allowed.len(),
        WorkerCount::Fixed(count) => usize::from(count),
    };
    let count = count.max(1);
    // More workers than cores share them; pinned, two of them would be stuck with one core while
    // another is idle.
    let pinned = pin && count <= allowed.len();
    (0..count).map(|worker| allowed.get(worker).copied().filter(|_| pinned)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_worker_has_a_core_of_its_own_or_none_has() {
        let auto = WorkerCount::Auto;
        assert_eq!(place(auto, true, &[3, 5]), [Some(3), Some(5)]);
        assert_eq!(place(auto, false, &[3, 5]), [None, None]);
        assert_eq!(place(auto, true, &[]), [None]);
        assert_eq!(place(WorkerCount::Fixed(3), true, &[3, 5]), [None, None, None]);
        assert_eq!(place(WorkerCount::Fixed(1), true, &[3, 5]), [Some(3)]);
    }

    #[test]
    fn the_loopback_is_one_of_ours() {
        assert!(addresses().unwrap().contains(&IpAddr::V4(Ipv4Addr::LOCALHOST)));
    }
}
