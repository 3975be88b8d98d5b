use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::vec::Vec;
use turn_types::RelayProtocol;

const fn range(min: u16, max: u16) -> PortRange {
    PortRange::new(min, max).unwrap()
}

fn is_used(ports: &Arc<RelayPorts>, port: u16) -> bool {
    ports.claim(range(port, port), PortRequirement::Any, 0).is_none()
}

/// Returns a sequence of numbers that look random (SplitMix64).
fn random(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *seed;
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

#[test]
fn a_range_is_never_empty_or_privileged() {
    assert_eq!(PortRange::new(1023, 2000), None);
    assert_eq!(PortRange::new(0, 65_535), None);
    assert_eq!(PortRange::new(2000, 1999), None);
    assert_eq!(range(1024, 65_535).count(), 64_512);
    assert_eq!(range(2000, 2000).count(), 1);
    assert_eq!((PortRange::DYNAMIC.min(), PortRange::DYNAMIC.max()), (49_152, 65_535));
    assert_eq!(std::format!("{}", PortRange::DYNAMIC), "49152-65535");
}

#[test]
fn every_port_of_a_range_is_given_once_and_none_outside() {
    for (min, max) in [(1024, 1024), (1087, 1089), (5000, 5200), (65_472, 65_535), (49_152, 65_535)]
    {
        let ports = RelayPorts::new();
        let mut seed = 7;
        let mut leases = Vec::new();
        while let Some((lease, None)) =
            ports.claim(range(min, max), PortRequirement::Any, random(&mut seed))
        {
            leases.push(lease);
        }
        let given: BTreeSet<u16> = leases.iter().map(PortLease::port).collect();
        assert!(given.iter().copied().eq(min..=max), "{min}-{max}");
        assert_eq!(leases.len(), given.len(), "no port twice");
        assert_eq!(ports.used(), range(min, max).count());
        leases.clear();
        assert_eq!(ports.used(), 0);
    }
}

/// A process with a limited number of files.
#[test]
fn no_more_ports_are_given_than_there_are_files_for() {
    let (ports, range) = (RelayPorts::new(), range(5000, 5999));
    ports.limit(10);
    assert_eq!(ports.capacity(range), 10);
    assert_eq!(ports.free(range, PortRequirement::EvenWithNext), 5);
    let mut leases = Vec::new();
    while let Some(lease) = ports.claim(range, PortRequirement::EvenWithNext, 7) {
        leases.push(lease);
    }
    assert_eq!((ports.used(), ports.free(range, PortRequirement::Any)), (10, 0));
    assert!(ports.claim(range, PortRequirement::Any, 7).is_none());
    leases.pop();
    assert_eq!(ports.free(range, PortRequirement::Any), 2);
    ports.limit(u32::MAX);
    assert_eq!(ports.free(range, PortRequirement::Any), 992);
}

#[test]
fn an_excluded_port_is_never_given() {
    let ports = RelayPorts::new();
    let lease = ports.claim(range(2001, 2001), PortRequirement::Any, 0).unwrap();
    for port in [2000, 2001, 2005] {
        ports.exclude(port);
    }
    assert_eq!(ports.used(), 1, "it is no relay's");
    drop(lease);
    let claim = |wish, random| ports.claim(range(2000, 2005), wish, random);
    for random in 0..100 {
        let port = claim(PortRequirement::Any, random).unwrap().0.port();
        assert!((2002..=2004).contains(&port), "{port}");
        let (even, next) = claim(PortRequirement::EvenWithNext, random).unwrap();
        assert_eq!((even.port(), next.unwrap().port()), (2002, 2003));
    }
    assert!(ports.claim(range(2000, 2001), PortRequirement::Any, 7).is_none());
}

#[test]
fn the_last_free_port_is_found_wherever_the_search_begins() {
    let ports = RelayPorts::new();
    let all: Vec<_> = (0..1000)
        .map(|i| ports.claim(range(2000, 2999), PortRequirement::Any, i).unwrap().0)
        .collect();
    for mut free in all {
        let port = free.port();
        for random in [0, 1, u64::MAX, 12_345] {
            drop(free);
            free = ports.claim(range(2000, 2999), PortRequirement::Any, random).unwrap().0;
            assert_eq!(free.port(), port);
        }
        std::mem::forget(free); // stays in use
    }
    assert_eq!(ports.claim(range(2000, 2999), PortRequirement::Any, 3), None);
}

#[test]
fn even_ports_and_pairs() {
    let ports = RelayPorts::new();
    let mut seed = 1;
    let mut even = Vec::new();
    while let Some((lease, next)) =
        ports.claim(range(3001, 3010), PortRequirement::Even, random(&mut seed))
    {
        assert!(next.is_none());
        even.push(lease);
    }
    let mut given: Vec<u16> = even.iter().map(PortLease::port).collect();
    given.sort_unstable();
    assert_eq!(given, [3002, 3004, 3006, 3008, 3010]);
    drop(even);

    // 3001 and 3010 have no partner within the range.
    let mut pairs = Vec::new();
    while let Some((lease, next)) =
        ports.claim(range(3001, 3010), PortRequirement::EvenWithNext, random(&mut seed))
    {
        let next = next.unwrap();
        assert_eq!((lease.port() % 2, next.port()), (0, lease.port() + 1));
        pairs.push((lease, next));
    }
    assert_eq!(pairs.len(), 4);
    assert_eq!(ports.used(), 8);
    assert!(!is_used(&ports, 3001) && !is_used(&ports, 3010));

    // A pair with only one free port is not a pair.
    let (_even, next) = pairs.pop().unwrap();
    drop(next);
    assert_eq!(ports.claim(range(3001, 3010), PortRequirement::EvenWithNext, 0), None);
}

#[test]
fn a_pair_at_the_end_of_the_port_numbers() {
    let ports = RelayPorts::new();
    let (even, odd) = ports.claim(range(65_534, 65_535), PortRequirement::EvenWithNext, 9).unwrap();
    assert_eq!((even.port(), odd.unwrap().port()), (65_534, 65_535));
}

#[test]
fn a_port_is_free_again_when_its_lease_is_dropped() {
    let ports = RelayPorts::new();
    let (lease, _) = ports.claim(range(4000, 4000), PortRequirement::Any, 0).unwrap();
    assert!(is_used(&ports, 4000) && !is_used(&ports, 4001));
    assert!(lease.is_of(&ports) && !lease.is_of(&RelayPorts::new()));
    assert_eq!(ports.claim(range(4000, 4000), PortRequirement::Any, 0), None);
    drop(lease);
    assert!(!is_used(&ports, 4000));
    assert!(ports.claim(range(4000, 4000), PortRequirement::Any, 0).is_some());
}

#[test]
fn free_ports_are_equally_likely_however_the_others_lie() {
    // Ten free ports: a single port after a long run of used ports, and nine adjacent ports.
    let ports = RelayPorts::new();
    let free: Vec<u16> = [5900].into_iter().chain(6000..6009).collect();
    let mut leases: Vec<_> = (0..1000)
        .map(|i| ports.claim(range(5500, 6499), PortRequirement::Any, i).unwrap().0)
        .collect();
    leases.retain(|lease| !free.contains(&lease.port()));
    let mut counts = [0u32; 10];
    let mut seed = 3;
    for _ in 0..10_000 {
        let (lease, _) =
            ports.claim(range(5500, 6499), PortRequirement::Any, random(&mut seed)).unwrap();
        counts[free.iter().position(|port| *port == lease.port()).unwrap()] += 1;
    }
    // 1000 each is expected; 200 is more than six standard deviations.
    assert!(counts.iter().all(|count| count.abs_diff(1000) < 200), "{counts:?}");
}

#[test]
fn threads_never_share_a_port_and_leave_none_behind() {
    let ports = RelayPorts::new();
    let seen = [const { AtomicU64::new(0) }; 128];
    thread::scope(|scope| {
        for thread in 0..4u64 {
            let (ports, seen) = (&ports, &seen);
            scope.spawn(move || {
                let mut seed = thread;
                let mut held: Vec<PortLease> = Vec::new();
                for _ in 0..5000 {
                    let wish = match random(&mut seed) % 3 {
                        0 => PortRequirement::Any,
                        1 => PortRequirement::Even,
                        _ => PortRequirement::EvenWithNext,
                    };
                    // Few ports for four threads, which collide all the time.
                    if let Some((lease, next)) =
                        ports.claim(range(7000, 7127), wish, random(&mut seed))
                    {
                        for lease in [Some(lease), next].into_iter().flatten() {
                            let before = seen[usize::from(lease.port() - 7000)]
                                .fetch_add(1, Ordering::SeqCst);
                            assert_eq!(before, 0, "port {} was given twice", lease.port());
                            held.push(lease);
                        }
                    }
                    while held.len() > 40
                        || (!held.is_empty() && random(&mut seed).is_multiple_of(2))
                    {
                        let index = usize::try_from(random(&mut seed)).unwrap() % held.len();
                        let lease = held.swap_remove(index);
                        seen[usize::from(lease.port() - 7000)].fetch_sub(1, Ordering::SeqCst);
                        drop(lease);
                    }
                }
                for lease in held {
                    seen[usize::from(lease.port() - 7000)].fetch_sub(1, Ordering::SeqCst);
                }
            });
        }
    });
    assert_eq!(ports.used(), 0);
}

proptest! {
    /// Ports in use are exactly the ports of live leases, in any order of claims and returns. Each
    /// requirement is met, and a claim fails only when no port fits.
    #[test]
    fn ports_in_use_are_those_of_live_leases(
        min in 1024u16..2000, len in 0u16..200,
        steps in prop::collection::vec((0u8..4, any::<u64>()), 1..300),
    ) {
        let range = range(min, min + len);
        let ports = RelayPorts::new();
        let mut held: Vec<PortLease> = Vec::new();
        for (step, random) in steps {
            let used: BTreeSet<u16> = held.iter().map(PortLease::port).collect();
            let free = |port: u16| port >= min && port <= min + len && !used.contains(&port);
            let wish = match step {
                0 => PortRequirement::Any,
                1 => PortRequirement::Even,
                2 => PortRequirement::EvenWithNext,
                _ => {
                    if !held.is_empty() {
                        let index = usize::try_from(random % held.len() as u64).unwrap();
                        held.swap_remove(index);
                    }
                    continue;
                }
            };
            let fits = |port: u16| free(port) && match wish {
                PortRequirement::Any => true,
                PortRequirement::Even => port.is_multiple_of(2),
                PortRequirement::EvenWithNext => port.is_multiple_of(2) && free(port + 1),
            };
            match ports.claim(range, wish, random) {
                Some((lease, next)) => {
                    prop_assert!(fits(lease.port()));
                    prop_assert_eq!(next.is_some(), wish == PortRequirement::EvenWithNext);
                    held.push(lease);
                    held.extend(next);
                }
                None => prop_assert!(!(min..=min + len).any(fits)),
            }
            prop_assert_eq!(ports.used() as usize, held.len());
            let distinct: BTreeSet<u16> = held.iter().map(PortLease::port).collect();
            prop_assert_eq!(distinct.len(), held.len());
        }
    }
}

#[test]
fn a_port_is_open_from_its_socket_to_the_end_of_its_lease() {
    let ports = RelayPorts::new();
    let (even, next) = ports.claim(PortRange::DYNAMIC, PortRequirement::EvenWithNext, 5).unwrap();
    let next = next.unwrap();
    assert!(!ports.is_open(even.port()), "claimed, not bound");
    even.mark_open(RelayProtocol::Udp);
    assert!(ports.is_open(even.port()) && !ports.is_open(next.port()), "the other is reserved");
    let port = even.port();
    drop(even);
    assert!(!ports.is_open(port) && !is_used(&ports, port));
}

/// Client that tries to get a single port of each pair.
#[test]
fn single_ports_leave_pairs_to_others() {
    let (ports, range, mut seed) = (RelayPorts::new(), range(50_000, 50_255), 7);
    let mut claim = |requirement| ports.claim(range, requirement, random(&mut seed));
    let (mut pairs, mut leases) = (BTreeSet::new(), Vec::new());
    for _ in 0..10_000 {
        let (lease, _) = claim(PortRequirement::Any).unwrap();
        if pairs.insert(lease.port() / 2) {
            leases.push(lease);
        }
    }
    let others: Vec<_> = (0..15).map(|_| claim(PortRequirement::EvenWithNext)).collect();
    assert!(others.iter().all(Option::is_some), "{} pairs are broken", pairs.len());
    // The last ports are for all clients.
    drop(others);
    let rest: Vec<_> = std::iter::from_fn(|| claim(PortRequirement::Any)).collect();
    assert_eq!(rest.len() + leases.len(), 256);
}
