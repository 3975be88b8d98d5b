//! Rules that relay from a prefix. All addresses of 127.0.0.0/8 are delivered to this host.

use std::net::UdpSocket;
use std::sync::atomic::{AtomicU8, Ordering};

use turn_proto::{PeerRules, Policy, RelayPrefix};
use turn_types::Prefix;

use super::{LOCALHOST, PEER};

/// Returns rules that relay from a /24 of this world only, at ports that are free at all addresses.
pub(crate) fn policy(workers: u16) -> Policy {
    static LAST: AtomicU8 = AtomicU8::new(0);
    let number = LAST.fetch_add(1, Ordering::Relaxed);
    let network: Prefix = format!("127.77.{number}.0/24").parse().unwrap();
    let prefix = RelayPrefix::new(network, free_ports(workers), workers).unwrap();
    let own = [Prefix::host(LOCALHOST), network];
    let peer_rules = PeerRules::with_own_prefixes(&[Prefix::host(PEER)], &[], &own);
    Policy { prefixes: vec![prefix], peer_rules, tcp_relaying: true, ..super::policy() }
}

/// Returns the first of two free ports for each worker.
fn free_ports(workers: u16) -> u16 {
    let free = |port| UdpSocket::bind(("0.0.0.0", port)).is_ok();
    for _ in 0..100 {
        let any = UdpSocket::bind(("0.0.0.0", 0)).unwrap().local_addr().unwrap().port();
        let first = any & !1;
        let fits = first.checked_add(2 * workers).is_some();
        if fits && (first..first + 2 * workers).all(free) {
            return first;
        }
    }
    panic!("no free ports");
}
