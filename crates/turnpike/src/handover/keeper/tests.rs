//! Deaths, shutdowns and hand-overs of servers with a keeper.

use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};

use control::UnconfirmedUsers;
use dataplane::{AllocationSnapshot, Export, RelaySettings, RelaySnapshot};
use state_format::Bytes;
use turn_types::{AllocationId, RelayId, Secret};
use user_db::Table;

use super::super::import::Predecessor;
use super::*;
use crate::tables::LastRows;

fn socket() -> UdpSocket {
    UdpSocket::bind("127.0.0.1:0").unwrap()
}

/// Connects to a keeper with these orphans.
fn connect(orphans: &Orphans) -> Wire {
    let (own, other) = UnixStream::pair().unwrap();
    let orphans = Arc::clone(orphans);
    thread::spawn(move || drop(serve(other, &orphans)));
    Wire::new(own).unwrap()
}

fn id(number: u64) -> AllocationId {
    AllocationId::new(WorkerId(0), number)
}

/// An export without a change.
fn part<D>() -> Export<D> {
    let mut export = Export::new(WorkerId(0));
    export.snapshot.last_id = id(7);
    export
}

/// Adds an allocation with a state of one byte. Its socket is sent with the first snapshot.
fn add<'a>(
    export: &mut Export<BorrowedFd<'a>>,
    number: u64,
    state: u8,
    comes: Option<&'a UdpSocket>,
) {
    let socket = comes.map(|_| export.descriptors.len() as u32);
    export.descriptors.extend(comes.map(AsFd::as_fd));
    let at = SocketAddr::from(([127, 0, 0, 1], 1));
    let relays = vec![RelaySnapshot { relay: RelayId(number), at, own: true, socket }];
    let (id, state) = (id(number), Bytes(vec![state]));
    export.snapshot.allocations.push(AllocationSnapshot {
        id,
        state,
        relays,
        session: None,
        given: 0,
    });
}

fn send(wire: &mut Wire, export: Export<BorrowedFd<'_>>) {
    send_export(wire, export, News::Snapshot).unwrap();
}

/// Starts a server with a listener, which sends copies.
fn feed(orphans: &Orphans, listener: &UdpSocket) -> Wire {
    let mut wire = connect(orphans);
    wire.send(&Hello::new(true)).unwrap();
    let name = (ListenerKind::Udp, listener.local_addr().unwrap());
    let offer = Offer {
        nonce_key: Secret::new([3; 32]),
        workers: vec![vec![name]],
        services: Vec::new(),
        relay_sockets: RelaySettings::default(),
        descriptors: 0,
        tables: None,
        unconfirmed: UnconfirmedUsers::default(),
    };
    wire.send(&offer).unwrap();
    wire.send_descriptors(&[listener.as_fd()]).unwrap();
    wire.expect(Step::Copy).unwrap();
    wire
}

/// Starts a server with a listener and one allocation, which sends copies.
fn feed_one(orphans: &Orphans, listener: &UdpSocket, relay: &UdpSocket) -> Wire {
    let mut wire = feed(orphans, listener);
    let mut export = part();
    add(&mut export, 1, 10, Some(relay));
    send(&mut wire, export);
    wire
}

/// Returns the keeper of a dead server, with the server's listener and the socket of its
/// allocation.
fn of_dead_server() -> (Orphans, UdpSocket, UdpSocket) {
    let orphans = Orphans::default();
    let (listener, relay) = (socket(), socket());
    drop(feed_one(&orphans, &listener, &relay));
    (orphans, listener, relay)
}

/// Connects a server that takes over the calls and serves.
fn take(orphans: &Orphans, listener: &UdpSocket, relay: &UdpSocket) -> Wire {
    lock(orphans).taker = None;
    let (mut wire, ..) = ask(orphans).unwrap();
    wire.send(&Step::Ready).unwrap();
    wait_for_taker(orphans);
    feed_one(orphans, listener, relay)
}

fn wait_for_taker(orphans: &Orphans) {
    test_support::eventually("it has them", || lock(orphans).taker.is_some());
}

/// Waits until the copies of the server that took over the calls have replaced these calls.
fn wait_for_copies(orphans: &Orphans) {
    let is_given = |taker: &Taker| taker.given.is_some();
    test_support::eventually("its own copies", || {
        !lock(orphans).taker.as_ref().is_some_and(is_given)
    });
}

fn assert_closes(socket: UdpSocket) {
    let at = socket.local_addr().unwrap();
    drop(socket);
    test_support::eventually("its socket is closed", || UdpSocket::bind(at).is_ok());
}

fn wait_for_orphans(orphans: &Orphans, allocations: usize) {
    test_support::eventually("the keeper has them", || {
        let kept = lock(orphans);
        kept.holding.as_ref().is_some_and(|holding| holding.allocations() == allocations)
    });
}

/// Returns the states for a successor, and the addresses of the sockets.
fn ask(orphans: &Orphans) -> Option<(Wire, Vec<Vec<u8>>, Vec<SocketAddr>)> {
    let mut wire = connect(orphans);
    wire.send(&Hello::new(false)).unwrap();
    wire.receive::<Option<Origin>>().unwrap()?;
    let offer: Offer = wire.receive().unwrap();
    assert_eq!(offer.nonce_key.expose(), &[3; 32]);
    drop(wire.receive_descriptors(1).unwrap());
    wire.send(&Step::Copy).unwrap();
    let News::Last(snapshot, count) = wire.receive().unwrap() else { panic!("not the last") };
    assert_eq!(snapshot.last_id, id(7));
    let sockets = wire.receive_descriptors(count as usize).unwrap();
    let at = |fd: OwnedFd| UdpSocket::from(fd).local_addr().unwrap();
    let states = snapshot.allocations.into_iter().map(|one| one.state.0).collect();
    Some((wire, states, sockets.into_iter().map(at).collect()))
}

#[test]
fn the_next_server_gets_the_last_copies_once_it_asks() {
    let orphans = Orphans::default();
    assert!(ask(&orphans).is_none(), "nothing is kept");
    let (listener, [stays, ends]) = (socket(), [(); 2].map(|()| socket()));
    let mut wire = feed(&orphans, &listener);
    let mut export = part();
    add(&mut export, 1, 10, Some(&stays));
    add(&mut export, 2, 20, Some(&ends));
    send(&mut wire, export);
    let mut export = part();
    add(&mut export, 1, 11, None);
    export.snapshot.ended = vec![id(2)];
    send(&mut wire, export);
    // An incomplete snapshot at the death of the server.
    let late = socket();
    let mut export = part();
    add(&mut export, 1, 12, None);
    add(&mut export, 3, 30, Some(&late));
    wire.send(&News::Snapshot(export.snapshot, 1)).unwrap();
    assert!(ask(&orphans).is_none(), "the server is there");
    drop(wire);
    wait_for_orphans(&orphans, 1);
    let ended = ends.local_addr().unwrap();
    drop(ends);
    assert!(UdpSocket::bind(ended).is_ok(), "its socket was kept");
    let (mut wire, states, sockets) = ask(&orphans).unwrap();
    assert_eq!((states, sockets), (vec![vec![11]], vec![stays.local_addr().unwrap()]));
    wire.send(&Step::Ready).unwrap();
    wait_for_taker(&orphans);
    let mut wire = feed(&orphans, &listener);
    send(&mut wire, part());
    wait_for_copies(&orphans);
    assert!(ask(&orphans).is_none(), "another one has them");
}

/// The second server has sent no copies, or only a part.
#[test]
fn a_server_that_dies_before_its_copies_are_complete_leaves_all_calls() {
    for (comes, left) in [(None, [10, 20]), (Some(21), [10, 21])] {
        let orphans = Orphans::default();
        let (listener, relays) = (socket(), [(); 2].map(|()| socket()));
        let mut wire = feed(&orphans, &listener);
        let mut export = part();
        add(&mut export, 1, 10, Some(&relays[0]));
        add(&mut export, 2, 20, Some(&relays[1]));
        send(&mut wire, export);
        drop(wire);
        wait_for_orphans(&orphans, 2);
        let (mut wire, ..) = ask(&orphans).unwrap();
        wire.send(&Step::Ready).unwrap();
        wait_for_taker(&orphans);
        assert!(ask(&orphans).is_none(), "the server lives");
        if let Some(state) = comes {
            let mut wire = feed(&orphans, &listener);
            let mut export = part();
            add(&mut export, 2, state, Some(&relays[1]));
            export.snapshot.complete = false;
            send(&mut wire, export);
        }
        drop(wire);
        wait_for_orphans(&orphans, 2);
        let (wire, mut states, _) = ask(&orphans).unwrap();
        states.sort();
        assert_eq!(states, left.map(|state| vec![state]));
        drop(wire);
    }
}

/// A server that shuts down in an orderly way before sending copies has ended the calls.
#[test]
fn calls_that_the_next_server_has_ended_are_discarded() {
    let (orphans, _listener, relay) = of_dead_server();
    wait_for_orphans(&orphans, 1);
    let (mut wire, ..) = ask(&orphans).unwrap();
    wire.send(&Step::Ready).unwrap();
    wire.send(&Step::Discard).unwrap();
    assert_closes(relay);
    drop(wire);
    assert!(ask(&orphans).is_none());
}

/// The first worker's copy may be removed later.
#[test]
fn an_allocation_that_has_moved_to_another_worker_is_kept_once() {
    let orphans = Orphans::default();
    let (listener, relay) = (socket(), socket());
    let mut wire = feed_one(&orphans, &listener, &relay);
    let mut export = Export::new(WorkerId(1));
    add(&mut export, 1, 11, Some(&relay));
    send(&mut wire, export);
    drop(wire);
    wait_for_orphans(&orphans, 1);
}

#[test]
fn a_second_server_gets_what_the_first_did_not_serve_and_a_third_does_not() {
    let (orphans, _listener, relay) = of_dead_server();
    for _ in 0..TRIES_MAX {
        wait_for_orphans(&orphans, 1);
        assert!(ask(&orphans).is_some());
    }
    assert!(ask(&orphans).is_none());
    assert_closes(relay);
}

#[test]
fn a_server_that_serves_without_them_ends_the_calls_of_the_one_before() {
    let (orphans, listener, relay) = of_dead_server();
    wait_for_orphans(&orphans, 1);
    let _next = feed(&orphans, &listener);
    assert_closes(relay);
    assert!(ask(&orphans).is_none());
}

#[test]
fn a_server_whose_copies_cannot_be_read_is_not_taken_for_dead() {
    let orphans = Orphans::default();
    let (listener, relay) = (socket(), socket());
    let mut wire = feed_one(&orphans, &listener, &relay);
    // A step that no server with copies sends.
    wire.send(&Step::Commit).unwrap();
    assert_closes(relay);
    assert!(ask(&orphans).is_none());
}

#[test]
fn a_farewell_leaves_nothing() {
    let orphans = Orphans::default();
    let (listener, relay) = (socket(), socket());
    let mut wire = feed_one(&orphans, &listener, &relay);
    wire.send(&News::HandedOver).unwrap();
    assert_closes(relay);
    drop(wire);
    assert!(ask(&orphans).is_none());
}

#[test]
fn two_servers_that_die_soon_after_they_have_taken_over_end_the_calls() {
    let (orphans, listener, relay) = of_dead_server();
    for _ in 0..TRIES_MAX {
        wait_for_orphans(&orphans, 1);
        drop(take(&orphans, &listener, &relay));
    }
    assert_closes(relay);
    assert!(ask(&orphans).is_none());
}

#[test]
fn a_server_that_was_told_to_end_has_not_died() {
    let (orphans, listener, relay) = of_dead_server();
    for _ in 0..=TRIES_MAX {
        wait_for_orphans(&orphans, 1);
        let mut wire = take(&orphans, &listener, &relay);
        wire.send(&News::Stopped).unwrap();
    }
    wait_for_orphans(&orphans, 1);
}

#[test]
fn deaths_count_for_a_while() {
    let at = Instant::from_nanos(5);
    let taker = Some(Taker { process: 7, at, tries: 1, given: None });
    let kept = Kept { holding: None, taker };
    assert_eq!(kept.tries(7, at), 1);
    assert_eq!(kept.tries(8, at), 0, "another one");
    assert_eq!(kept.tries(7, at + EARLY_DEATH), 0);
    assert_eq!(Kept::default().tries(7, at), 0);
}

#[test]
fn a_server_that_cannot_go_on_with_the_calls_has_their_ports() {
    let (orphans, listener, relay) = of_dead_server();
    wait_for_orphans(&orphans, 1);
    let mut wire = connect(&orphans);
    wire.send(&Hello::new(false)).unwrap();
    assert!(wire.receive::<Option<Origin>>().unwrap().is_some());
    let _: Offer = wire.receive().unwrap();
    drop(wire.receive_descriptors(1).unwrap());
    wire.send(&Step::Discard).unwrap();
    wire.expect(Step::Released).unwrap();
    for socket in [listener, relay] {
        let at = socket.local_addr().unwrap();
        drop(socket);
        assert!(UdpSocket::bind(at).is_ok(), "it is kept");
    }
    assert!(ask(&orphans).is_none());
}

/// A listener of the predecessor cannot remain bound next to the new listener.
#[test]
fn a_server_with_an_overlapping_listener_begins_anew() {
    let directory = crate::testing::Directory::new("keeper");
    std::fs::create_dir_all(directory.path()).unwrap();
    let path = directory.path().join("control.keep");
    let waiting = UnixListener::bind(&path).unwrap();
    let (orphans, listener, _relay) = of_dead_server();
    wait_for_orphans(&orphans, 1);
    let own = Arc::clone(&orphans);
    thread::spawn(move || serve(waiting.accept().unwrap().0, &own));
    let before = Predecessor::ask_keeper(&path).unwrap().unwrap();
    let at = listener.local_addr().unwrap();
    let any = SocketAddr::from(([0, 0, 0, 0], at.port()));
    assert_eq!(before.in_the_way(&[at], &[]), None, "it is taken");
    let other = SocketAddr::from(([127, 0, 0, 9], at.port()));
    assert_eq!(before.in_the_way(&[other], &[other]), None);
    assert_eq!(before.in_the_way(&[any], &[]), Some((at, any)));
    assert_eq!(before.in_the_way(&[], &[at]), Some((at, at)), "a service is bound by another");
    drop(listener);
    before.discard();
    assert!(UdpSocket::bind(any).is_ok(), "it is kept");
}

#[test]
fn the_next_server_gets_the_rules_that_the_last_one_has_read() {
    let (orphans, [listener, relay]) = (Orphans::default(), [(); 2].map(|()| socket()));
    let mut wire = feed_one(&orphans, &listener, &relay);
    let read = LastRows::new(Secret::new([1; 32]), &[(Table::Secrets, vec!["a".to_owned()])]);
    let orders = Orders { tables: Some(read), ..Orders::default() };
    wire.send(&News::Orders(orders)).unwrap();
    drop(wire);
    wait_for_orphans(&orphans, 1);
    let mut next = connect(&orphans);
    next.send(&Hello::new(false)).unwrap();
    let origin = next.receive::<Option<Origin>>().unwrap().unwrap();
    let kept = origin.orders.tables.unwrap().of(Secret::new([1; 32])).unwrap();
    assert_eq!(kept, [(Table::Secrets, vec!["a".to_owned()])]);
}
