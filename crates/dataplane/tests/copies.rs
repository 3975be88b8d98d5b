//! Copies of a worker's allocations for a keeper. The limit of open files belongs to the process,
//! so this program runs one test at a time.

use std::os::fd::OwnedFd;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;

use crate::support;

use control::Request;
use dataplane::limits::COPIES_WAITING;
use dataplane::{AllocationSnapshot, Export};
use test_support::eventually;
use turn_types::{AllocationId, IpMeta};

use crate::support::end::End;
use crate::support::user::TurnUser;
use crate::support::{LOCALHOST, NOBODY, PATIENCE, World};

/// Lock that each test holds.
static ALONE: Mutex<()> = Mutex::new(());

/// Makes the worker send copies of all allocations to the returned receiver.
fn copy(world: &World) -> Receiver<Export<OwnedFd>> {
    let (to, received) = sync_channel(COPIES_WAITING);
    world.channels.copy_to_keeper(&to);
    received
}

/// Makes the worker send copies to the returned receiver, as to a successor. Waits until all copies
/// are sent.
fn copy_to_next(world: &World) -> Receiver<Export<OwnedFd>> {
    let (to, received) = sync_channel(COPIES_WAITING);
    world.channels.copy_to_successor(&to);
    while !received.recv_timeout(PATIENCE).unwrap().snapshot.complete {}
    received
}

/// Returns the allocations of the next nonempty copies.
fn next(received: &Receiver<Export<OwnedFd>>) -> Vec<(AllocationId, bool)> {
    loop {
        let copies = received.recv_timeout(PATIENCE).unwrap().snapshot;
        if !copies.allocations.is_empty() {
            let comes = |one: &AllocationSnapshot| {
                (one.id, one.relays.iter().all(|relay| relay.socket.is_some()))
            };
            return copies.allocations.iter().map(comes).collect();
        }
    }
}

#[test]
fn a_worker_without_descriptors_copies_when_it_has_some_again() {
    let _alone = ALONE.lock().unwrap();
    let world = World::new();
    let _alice = TurnUser::allocated(LOCALHOST, world.server);
    let id = world.all_sessions()[0].id;
    let received = {
        let _limited = lab_net::NoMoreFiles::begin().unwrap();
        let received = copy(&world);
        // The worker has made an attempt by then.
        world.totals();
        let copies = received.recv_timeout(Duration::ZERO);
        let is_empty = |copies: &Export<OwnedFd>| copies.snapshot.allocations.is_empty();
        let nothing =
            copies.as_ref().map_or_else(|error| *error == RecvTimeoutError::Timeout, is_empty);
        assert!(nothing, "{copies:?}");
        received
    };
    assert_eq!(next(&received), [(id, true)]);
    // Later copies do not contain the socket.
    let mut bob = TurnUser::allocated(LOCALHOST, world.server);
    bob.bind_channel(End::at(support::PEER).addr());
    assert!(next(&received).iter().all(|(copied, _)| *copied != id));
}

#[test]
fn a_worker_that_ends_sends_what_has_changed_and_no_end() {
    let _alone = ALONE.lock().unwrap();
    let world = World::new();
    let _alice = TurnUser::allocated(LOCALHOST, world.server);
    let received = copy(&world);
    assert_eq!(next(&received).len(), 1);
    // The next copies are due later.
    let _bob = TurnUser::allocated(LOCALHOST, world.server);
    let bob = world.all_sessions().into_iter().map(|one| one.id).max().unwrap();
    assert!(!world.ask(|reply| Request::End { id: NOBODY, reply }));
    world.stop();
    let rest: Vec<_> = received.iter().collect();
    assert!(rest.iter().all(|copies| copies.snapshot.ended.is_empty()), "{rest:?}");
    let mut changed = rest.iter().flat_map(|copies| &copies.snapshot.allocations);
    assert!(changed.any(|copied| copied.id == bob), "{rest:?}");
}

/// Packets wait in the sockets while progress is sent. Thousands of idle allocations have no
/// progress.
#[test]
fn the_next_process_hears_of_progress_since_the_copies_alone() {
    let _alone = ALONE.lock().unwrap();
    let world = World::new();
    let mut peer = End::at(support::PEER);
    let _idle = TurnUser::allocated(LOCALHOST, world.server);
    let mut busy = TurnUser::allocated(LOCALHOST, world.server);
    let channel = busy.bind_channel(peer.addr());
    let id = world.all_sessions().into_iter().map(|one| one.id).max().unwrap();
    let received = copy_to_next(&world);
    busy.say(channel, &[b"since then"], IpMeta::DEFAULT);
    peer.receive();
    let left = world.channels.export().unwrap();
    assert_eq!(left.iter().map(|worker| worker.snapshot.total).sum::<u64>(), 2);
    assert!(left.iter().all(|worker| worker.snapshot.allocations.is_empty()), "{left:?}");
    let progress = left.iter().flat_map(|worker| &worker.snapshot.progress);
    assert_eq!(progress.map(|(id, _)| *id).collect::<Vec<_>>(), [id]);
    drop(received);
    world.channels.roll_back();
}

#[test]
fn a_keeper_hears_of_changes_behind_two_next_processes_that_fail() {
    let _alone = ALONE.lock().unwrap();
    let world = World::new();
    let received = copy(&world);
    for _ in 0..2 {
        let (to, next_process) = sync_channel(COPIES_WAITING);
        world.channels.copy_to_successor(&to);
        next_process.recv_timeout(PATIENCE).unwrap();
    }
    let _alice = TurnUser::allocated(LOCALHOST, world.server);
    assert_eq!(next(&received).len(), 1);
}

#[test]
fn a_keeper_that_comes_in_the_pause_gets_its_copies_behind_it() {
    let _alone = ALONE.lock().unwrap();
    let world = World::new();
    let _alice = TurnUser::allocated(LOCALHOST, world.server);
    let id = world.all_sessions()[0].id;
    let left = world.channels.export().unwrap();
    assert!(left.iter().any(|worker| worker.snapshot.allocations.iter().any(|one| one.id == id)));
    let received = copy(&world);
    world.channels.roll_back();
    assert_eq!(next(&received), [(id, true)]);
}

/// Later ends of allocations would be missing at the successor.
#[test]
fn nothing_is_exported_after_a_failure_of_the_snapshots() {
    let _alone = ALONE.lock().unwrap();
    let world = World::new();
    let mut alice = TurnUser::allocated(LOCALHOST, world.server);
    let peer = End::at(support::PEER).addr();
    eventually("an export is refused", || {
        drop(copy_to_next(&world));
        alice.bind_channel(peer);
        // The change is sent within some milliseconds, to a closed receiver.
        std::thread::sleep(Duration::from_millis(20));
        let refused = world.channels.export().is_err();
        world.channels.roll_back();
        refused
    });
    drop(copy_to_next(&world));
    assert!(world.channels.export().is_ok(), "another successor");
    world.channels.roll_back();
}
