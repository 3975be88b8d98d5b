//! Whole servers in many worlds: workers over simulated sockets, clients over UDP, DTLS, TCP and
//! TLS behind NATs, lossy links and load balancers, peers, strays, an operator, a slow user
//! directory, failing system calls, a suspended host, a wall clock that is wrong; processes that
//! pass everything on to others, which may fail in the middle, that are restarted, and that die,
//! with a keeper and without. Clients have passwords, time-limited names and access tokens (RFC
//! 7635), are redirected, move (RFC 8016), relay TCP (RFC 6062), and test NAT behaviour (RFC 5780,
//! RFC 3489).
//!
//! After each step: one fate for each packet, allocations within the quotas and with their sockets,
//! no byte to another client or peer, or to an address that a client has left, responses from the
//! requested address; now and then: each allocation at one worker of one process alone. At the end:
//! nothing is left. `SEED=… cargo test -p simulation --test worlds` runs one world.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod elsewhere;
mod support;

use std::sync::Mutex;
use std::thread;

use control::{AssociationEnd, CounterTotals, Series, StreamEnd};
use elsewhere::ELSEWHERE;
use support::Scene;
use support::settings::{TIMED, TOKEN};
use test_support::for_each_seed;
use turn_proto::{DropReason, EndReason};

/// Worlds with fixed seeds, and as many threads as share them.
const WORLDS: u64 = 400;
const THREADS: u64 = 2;

/// Sums over all worlds.
#[derive(Default)]
struct Sums {
    worlds: u64,
    counts: Vec<(Series, u64)>,
    allocations: u64,
    by_token: u64,
    by_timed_name: u64,
    moves: u64,
    handovers: u64,
    resumptions: u64,
    completed: u64,
    discovered: u64,
    at_clients: u64,
    at_peers: u64,
}

#[test]
fn many_worlds_keep_every_promise() {
    let sums = Mutex::new(Sums::default());
    let worlds = |seeds| {
        for_each_seed(seeds, |seed| {
            let mut scene = Scene::new(seed);
            let totals = scene.run();
            let mut sums = sums.lock().unwrap();
            totals.iter().for_each(|totals| sums.add(totals));
            sums.worlds += 1;
            sums.allocations += scene.allocations();
            sums.by_token += scene.allocations_of(TOKEN);
            sums.by_timed_name += scene.allocations_of(TIMED);
            sums.moves += scene.moves();
            sums.handovers += scene.handovers();
            sums.resumptions += scene.resumptions();
            sums.completed += scene.completed();
            sums.discovered += scene.discovered();
            sums.at_clients += scene.received_by_clients();
            sums.at_peers += scene.received_by_peers();
        });
    };
    thread::scope(|scope| {
        for part in 0..THREADS {
            let (worlds, each) = (&worlds, WORLDS / THREADS);
            scope.spawn(move || worlds(part * each..(part + 1) * each));
        }
    });
    let sums = sums.into_inner().unwrap();
    // Of a chosen seed there is one world, which shows little.
    if sums.worlds >= WORLDS {
        sums.assert_alive();
        sums.assert_complete();
    }
}

impl Sums {
    fn add(&mut self, totals: &CounterTotals) {
        let before = std::mem::take(&mut self.counts);
        let before = before.into_iter().map(|(_, count)| count).chain(std::iter::repeat(0));
        let added = totals.iter().zip(before);
        self.counts = added.map(|((series, count), before)| (series, before + count)).collect();
    }

    /// Worlds in which nothing happens show nothing.
    fn assert_alive(&self) {
        let Self {
            allocations,
            by_token,
            by_timed_name,
            moves,
            handovers,
            resumptions,
            completed,
            discovered,
            at_clients,
            at_peers,
            ..
        } = self;
        assert!(*allocations > WORLDS, "{allocations} allocations");
        assert!(*by_token > WORLDS / 10, "{by_token} allocations by access tokens");
        assert!(*by_timed_name > WORLDS / 10, "{by_timed_name} by time-limited names");
        assert!(*moves > WORLDS / 10, "{moves} moves of allocations");
        assert!(*handovers > WORLDS, "{handovers} hand-overs");
        assert!(*resumptions > WORLDS / 10, "{resumptions} resumptions by a keeper's copies");
        assert!(*completed > WORLDS / 2, "{completed} complete data connections");
        assert!(*discovered > 10 * WORLDS, "{discovered} responses of NAT behaviour discovery");
        assert!(*at_peers > 10 * WORLDS, "{at_peers} payloads at peers");
        assert!(*at_clients > 10 * WORLDS, "{at_clients} payloads at clients");
    }

    /// Every reason for a drop or an end happens in a world, or in a named test.
    fn assert_complete(&self) {
        let drops = DropReason::ALL.iter().map(|reason| Series::Drop(*reason));
        let ends = EndReason::ALL.iter().map(|reason| Series::AllocationsEnded(*reason));
        let streams = StreamEnd::ALL.iter().map(|end| Series::StreamsEnded(*end));
        let sessions = AssociationEnd::ALL.iter().map(|end| Series::AssociationsEnded(*end));
        let mut missing = Vec::new();
        for series in drops.chain(ends).chain(streams).chain(sessions) {
            let happened = self.counts.iter().any(|(other, n)| *other == series && *n > 0);
            let elsewhere = ELSEWHERE.iter().any(|(other, _)| *other == series);
            if !happened && !elsewhere {
                missing.push(format!("{series:?}"));
            }
        }
        assert!(missing.is_empty(), "no test produces {missing:?}");
    }
}

#[test]
fn the_tests_of_other_reasons_exist() {
    for (series, test) in ELSEWHERE {
        let (file, name) = test.split_once("::").unwrap();
        let path = format!("{}/../{file}", env!("CARGO_MANIFEST_DIR"));
        let source = std::fs::read_to_string(&path).expect(&path);
        assert!(source.contains(&format!("fn {name}(")), "{series:?}: there is no {test}");
    }
}

#[test]
fn the_same_seed_is_the_same_world() {
    let digest = |seed| {
        let mut scene = Scene::without_cryptography(seed);
        scene.run();
        scene.digest()
    };
    assert_eq!(digest(11), digest(11));
    assert_ne!(digest(11), digest(12));
}
