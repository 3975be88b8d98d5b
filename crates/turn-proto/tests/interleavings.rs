//! Workers that claim and release ports concurrently: every interleaving, and every value that the
//! memory model permits them to read.
//!
//! The bitmap is compiled again here with loom's atomics.
#![allow(clippy::unwrap_used, reason = "panics are a test's verdict")]

extern crate alloc;

#[path = "../src/policy/ports/bitmap.rs"]
#[allow(dead_code, unreachable_pub, reason = "a part of the library")]
mod bitmap;
#[path = "../src/policy/ports/range.rs"]
#[allow(dead_code, unreachable_pub, reason = "a part of the library")]
mod range;

/// Smallest bitmap with the lowest permitted ports, because loom stores a history of each word.
mod parts {
    pub(super) use loom::sync::atomic::AtomicU64;

    pub(super) const WORDS: usize = super::FIRST as usize / super::range::BITS + 1;
    pub(super) const DRAWS: u64 = 1;
}

use std::sync::Arc;

use bitmap::{PortLease, RelayPorts};
use loom::{model, thread};
use range::{PortRange, PortRequirement};
use turn_types::RelayProtocol;

/// The first port that is not privileged.
const FIRST: u16 = 1024;

fn claim(ports: &Arc<RelayPorts>, count: u16, wish: PortRequirement) -> Option<Vec<PortLease>> {
    let range = PortRange::new(FIRST, FIRST + count - 1).unwrap();
    let (lease, next) = ports.claim(range, wish, 0)?;
    Some([Some(lease), next].into_iter().flatten().collect())
}

/// Two workers claim at the same time; returns the ports of each.
fn both(count: u16, wishes: [PortRequirement; 2]) -> [Option<Vec<PortLease>>; 2] {
    let ports = RelayPorts::new();
    let other = Arc::clone(&ports);
    let second = thread::spawn(move || claim(&other, count, wishes[1]));
    let first = claim(&ports, count, wishes[0]);
    let got = [first, second.join().unwrap()];
    let leases: usize = got.iter().flatten().map(Vec::len).sum();
    assert_eq!(ports.used() as usize, leases, "each lease has a port of its own");
    got
}

#[test]
fn a_port_goes_to_one_of_two() {
    model(|| {
        let got = both(1, [PortRequirement::Any; 2]);
        assert_eq!(got.iter().flatten().count(), 1);
    });
}

#[test]
fn nobody_goes_without_while_there_is_one_for_each() {
    model(|| {
        let got = both(2, [PortRequirement::Any; 2]);
        assert_eq!(got.iter().flatten().count(), 2);
    });
}

#[test]
fn a_pair_is_whole_or_not_there() {
    model(|| {
        let [any, pair] = both(2, [PortRequirement::Any, PortRequirement::EvenWithNext]);
        // The single port leaves no pair, and the pair leaves no port.
        assert!(any.is_some() != pair.is_some());
        assert!(pair.is_none_or(|pair| pair.len() == 2));
    });
}

#[test]
fn a_port_given_back_is_free_and_not_open_for_the_next() {
    model(|| {
        let ports = RelayPorts::new();
        let lease = claim(&ports, 1, PortRequirement::Any).unwrap().remove(0);
        for protocol in [RelayProtocol::Udp, RelayProtocol::Tcp] {
            lease.mark_open(protocol);
        }
        let other = Arc::clone(&ports);
        let next = thread::spawn(move || {
            let lease = claim(&other, 1, PortRequirement::Any);
            // Until its own socket is bound no peer may be reached there.
            let is_open = other.is_open(FIRST) || other.is_listening(FIRST);
            assert!(lease.is_none() || !is_open);
            lease
        });
        drop(lease);
        let next = next.join().unwrap();
        assert_eq!(ports.used() == 1, next.is_some());
        drop(next);
        assert!(claim(&ports, 1, PortRequirement::Any).is_some());
    });
}

#[test]
fn giving_back_takes_nothing_of_a_neighbour() {
    model(|| {
        let ports = RelayPorts::new();
        let first = claim(&ports, 2, PortRequirement::Any).unwrap();
        let other = Arc::clone(&ports);
        let second = thread::spawn(move || {
            let second = claim(&other, 2, PortRequirement::Any).unwrap();
            second[0].mark_open(RelayProtocol::Udp);
            second
        });
        drop(first);
        let second = second.join().unwrap();
        assert!(ports.is_open(second[0].port()));
        assert_eq!(ports.used(), 1);
    });
}
