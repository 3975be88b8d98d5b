//! Parts of processes that have ended.

use std::net::UdpSocket as StdSocket;
use std::os::fd::AsFd as _;
use std::sync::mpsc::sync_channel;

use turn_types::RelayId;

use super::*;
use crate::handover::messages::{Bytes, CopyPart, ProgressPart};
use crate::handover::parked::Parking;

fn socket() -> StdSocket {
    StdSocket::bind("127.0.0.1:0").unwrap()
}

fn is_free(at: SocketAddr) -> bool {
    StdSocket::bind(at).is_ok()
}

/// The parts that a process leaves that has these listeners, of which the first `come` come with
/// it.
fn left(listeners: Vec<StdSocket>, come: usize) -> Parked {
    parked(&listeners[..], come).seal().unwrap()
}

fn parked(listeners: &[StdSocket], come: usize) -> Parking {
    parking_of(listeners, come, false)
}

/// The offer of a server with one worker that has these listeners.
fn offer(listeners: &[StdSocket]) -> Offer {
    let udp = listeners.iter().map(|one| one.local_addr().unwrap()).collect();
    Offer {
        nonce_key: Secret::new([3; 32]),
        workers: vec![Listening { udp, tcp: Vec::new() }],
        services: Vec::new(),
        relay_sockets: RelaySettings::default().into(),
        descriptors: 0,
    }
}

fn parking_of(listeners: &[StdSocket], come: usize, kernel_path: bool) -> Parking {
    let mut parking = Parking::new().unwrap();
    let since = Instant::from_nanos(5);
    let version = "1".to_owned();
    parking.send(&Leaving { version, process: 77, since, kernel_path }).unwrap();
    parking.send(&offer(listeners)).unwrap();
    let come: Vec<_> = listeners[..come].iter().map(|one| one.as_fd()).collect();
    parking.send_descriptors(&come).unwrap();
    parking
}

#[test]
fn what_a_process_has_left_is_taken_and_listeners_of_no_use_are_closed() {
    let sockets = vec![socket(), socket()];
    let [keeps, other] = [0, 1].map(|index: usize| sockets[index].local_addr().unwrap());
    let found = Predecessor::find(left(sockets, 2)).unwrap();
    assert_eq!((found.process(), found.workers()), (77, 1));
    assert_eq!(found.silent_since(), Some(Instant::from_nanos(5)));
    let mut found = found.with_listeners_at(&[keeps], &[]);
    assert_eq!((found.listens(keeps), found.listens(other)), ((true, false), (false, false)));
    assert!(is_free(other) && !is_free(keeps));
    let taken = StdSocket::from(found.take_udp(0, keeps).unwrap());
    assert_eq!(taken.local_addr().unwrap(), keeps);
    // The part of the worker is missing: it begins anew.
    let (worker, updates) = sync_channel(1);
    assert_eq!(found.leave(&[worker]).unwrap().allocations, 0);
    assert!(matches!(updates.recv(), Ok(Update::Last(_))));
    assert!(found.enter(&[]).is_ok());
}

/// The rest of a worker without allocations.
fn last_part() -> LastPart {
    let nothing = CopyPart::nothing(WorkerId(0), AllocationId(0));
    LastPart::of_copies(CopyPart { complete: true, ..nothing })
}

/// The rest of its only worker, as it comes.
fn received(parking: Parking) -> io::Result<(Predecessor, WorkerImport)> {
    let mut found = Predecessor::find(parking.seal()?)?;
    let (worker, updates) = sync_channel(1);
    found.leave(&[worker])?;
    let Ok(Update::Last(inherited)) = updates.recv() else { panic!("not the rest") };
    Ok((found, *inherited))
}

/// A connection with another socket than was meant is closed, and its call ends with it.
#[test]
fn connections_come_with_their_sockets() {
    let acceptor = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let at = acceptor.local_addr().unwrap();
    let connect = || {
        let other = std::net::TcpStream::connect(at).unwrap();
        let (accepted, remote) = acceptor.accept().unwrap();
        (other, accepted, remote)
    };
    let ((client, of_client, client_at), (peer, of_peer, peer_at)) = (connect(), connect());
    let no_connection = socket();
    let mut parking = parked(&[socket()], 1);
    let part = |byte, remote| StreamPart { state: Bytes(vec![byte]), remote };
    let streams = vec![part(1, client_at), part(2, client_at)];
    let tcp_relays = vec![TcpRelayPart { relay: RelayId(7), at }];
    let peers = vec![part(3, peer_at)];
    let sessions = vec![Bytes(vec![4]), Bytes(vec![5])];
    let last = LastPart { streams, sessions, tcp_relays, peers, ..last_part() };
    parking.send(&News::Last(last)).unwrap();
    parking.send_descriptors(&[of_client.as_fd(), no_connection.as_fd()]).unwrap();
    parking.send_descriptors(&[acceptor.as_fd()]).unwrap();
    parking.send_descriptors(&[of_peer.as_fd()]).unwrap();
    drop((of_client, of_peer, acceptor));
    let (_, inherited) = received(parking).unwrap();
    let [one] = &inherited.streams[..] else { panic!("not one connection") };
    assert_eq!((&one.state[..], one.remote), (&[1][..], client.local_addr().unwrap()));
    assert_eq!(one.socket.remote_addr().unwrap(), client_at);
    let [relay] = &inherited.tcp_relays[..] else { panic!("not one relay") };
    assert_eq!((relay.relay, relay.at), (RelayId(7), at));
    std::net::TcpStream::connect(at).expect("it listens");
    let sessions: Vec<_> = inherited.sessions.iter().map(|session| &session.state[..]).collect();
    assert_eq!(sessions, [[4], [5]]);
    let [one] = &inherited.peers[..] else { panic!("not one peer") };
    assert_eq!((&one.state[..], one.remote), (&[3][..], peer.local_addr().unwrap()));
}

/// A socket that does not listen is no relay: all that has come is closed.
#[test]
fn a_relay_that_does_not_listen_is_refused() {
    let no_relay = socket();
    let at = no_relay.local_addr().unwrap();
    let mut parking = parked(&[socket()], 1);
    let tcp_relays = vec![TcpRelayPart { relay: RelayId(7), at }];
    parking.send(&News::Last(LastPart { tcp_relays, ..last_part() })).unwrap();
    parking.send_descriptors(&[no_relay.as_fd()]).unwrap();
    drop(no_relay);
    let (_, inherited) = received(parking).unwrap();
    assert!(inherited.tcp_relays.is_empty() && is_free(at));
}

/// Descriptors in place of a kernel path are closed, and the calls go on without it.
#[test]
fn a_kernel_path_that_is_none_is_closed() {
    let mut parking = parking_of(&[socket()], 1, true);
    parking.send(&News::Last(last_part())).unwrap();
    parking.send(&News::Progress(Vec::new())).unwrap();
    parking.send(&KernelPathPart { descriptors: 2 }).unwrap();
    let no_path = [socket(), socket()];
    let addresses = no_path.each_ref().map(|socket| socket.local_addr().unwrap());
    parking.send_descriptors(&no_path.each_ref().map(|socket| socket.as_fd())).unwrap();
    drop(no_path);
    let (found, _) = received(parking).unwrap();
    assert!(!addresses.into_iter().any(is_free));
    let retiring = found.enter(&[]).unwrap();
    assert!(addresses.into_iter().all(is_free), "at once");
    retiring.wait();
}

/// Counters as no version that this one knows writes them.
fn unreadable_totals() -> News {
    News::Totals(Bytes(vec![6, 0, 0, 0, 200, 1, 0, 0, 0, 7]))
}

/// The last progress of one worker.
fn last_progress() -> News {
    News::Progress(vec![ProgressPart { allocations: Vec::new() }])
}

/// An upgrade goes on without counters that cannot be read.
#[test]
fn counters_that_cannot_be_read_stop_no_upgrade() {
    let (old, new) = UnixStream::pair().unwrap();
    let mut old = Wire::new(old).unwrap();
    old.send(&offer(&[socket()])).unwrap();
    old.send_descriptors(&[socket().as_fd(), io::stderr().as_fd()]).unwrap();
    let found = Predecessor::read_offer(Source::Running(Wire::new(new).unwrap())).unwrap();
    for news in [unreadable_totals(), last_progress()] {
        old.send(&news).unwrap();
    }
    old.send(&Step::Go).unwrap();
    let (worker, updates) = sync_channel(1);
    let mut retiring = found.enter(&[worker]).unwrap();
    assert!(retiring.take_totals().is_none(), "they begin at 0");
    assert!(matches!(updates.try_recv(), Ok(Update::Progress(_))));
    old.expect(Step::Prepared).unwrap();
}

/// Sockets are opened before the pause: the old process is to leave when the workers have taken
/// what has come until then.
#[test]
fn the_old_process_leaves_when_all_copies_are_taken() {
    let (old, new) = UnixStream::pair().unwrap();
    let mut old = Wire::new(old).unwrap();
    old.send(&offer(&[socket()])).unwrap();
    old.send_descriptors(&[socket().as_fd(), io::stderr().as_fd()]).unwrap();
    let mut found = Predecessor::read_offer(Source::Running(Wire::new(new).unwrap())).unwrap();
    let (worker, updates) = sync_channel(2);
    let taker = std::thread::spawn(move || found.leave(&[worker]).map(|left| left.allocations));
    old.expect(Step::Copy).unwrap();
    old.send(&News::Copies(last_part().copies)).unwrap();
    assert!(matches!(updates.recv(), Ok(Update::Copies(_))));
    let Ok(Update::Reached(answer)) = updates.recv() else { panic!("not waited for") };
    assert!(!taker.is_finished());
    answer.send(()).unwrap();
    drop(answer);
    old.expect(Step::Leave).unwrap();
    old.send(&News::Last(last_part())).unwrap();
    assert!(matches!(updates.recv(), Ok(Update::Last(_))));
    drop(old);
    assert_eq!(taker.join().unwrap().unwrap(), 0);
}

/// A restart goes on without them as well, and with its last progress.
#[test]
fn counters_that_cannot_be_read_stop_no_restart() {
    let known = || {
        let totals = EarlierTotals { turns: vec![5], ..EarlierTotals::default() };
        News::Totals(counting::write(totals))
    };
    for (totals, turns) in [(known(), Some(vec![5])), (unreadable_totals(), None)] {
        let mut parking = parked(&[socket()], 1);
        parking.send(&News::Last(last_part())).unwrap();
        parking.send(&totals).unwrap();
        parking.send(&last_progress()).unwrap();
        let mut found = Predecessor::find(parking.seal().unwrap()).unwrap();
        let (worker, updates) = sync_channel(2);
        found.leave(&[worker]).unwrap();
        assert!(matches!(updates.try_recv(), Ok(Update::Last(_))));
        assert!(matches!(updates.try_recv(), Ok(Update::Progress(_))), "{turns:?}");
        let totals = found.enter(&[]).unwrap().take_totals();
        assert_eq!(totals.map(|totals| totals.turns), turns);
    }
}

#[test]
fn what_is_not_whole_is_refused_and_closed() {
    let sockets = vec![socket(), socket()];
    let addresses = [0, 1].map(|index: usize| sockets[index].local_addr().unwrap());
    let refused = Predecessor::find(left(sockets, 1)).map(|_| ()).unwrap_err();
    assert!(refused.to_string().contains("sockets are missing"), "{refused}");
    assert!(addresses.into_iter().all(is_free));
    let cut = Predecessor::find(Parking::new().unwrap().seal().unwrap()).map(|_| ());
    assert!(cut.unwrap_err().to_string().contains("cut off"));
    // Another form than a state's.
    let mut parking = Parking::new().unwrap();
    parking.send(&Step::Go).unwrap();
    let refused = Predecessor::find(parking.seal().unwrap()).map(|_| ()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidData);
}
