//! Import of the state of processes that have exited.

use std::net::UdpSocket as StdSocket;
use std::os::fd::AsFd as _;
use std::sync::mpsc::sync_channel;

use state_format::Bytes;

use super::*;
use crate::handover::messages::{ListenerKind, send_export, send_kernel_path};
use crate::handover::parked::Parking;

fn socket() -> StdSocket {
    StdSocket::bind("127.0.0.1:0").unwrap()
}

fn is_free(at: SocketAddr) -> bool {
    StdSocket::bind(at).is_ok()
}

/// Returns the parked state of a process with these listeners. Only the first `come` listeners are
/// included.
fn left(listeners: Vec<StdSocket>, come: usize) -> Parked {
    parked(&listeners[..], come).seal().unwrap()
}

fn parked(listeners: &[StdSocket], come: usize) -> Parking {
    parking_of(listeners, come, false)
}

/// Returns the offer of a server with one worker that has these listeners.
fn offer(listeners: &[StdSocket]) -> Offer {
    let names = listeners.iter().map(|one| (ListenerKind::Udp, one.local_addr().unwrap()));
    Offer {
        nonce_key: Secret::new([3; 32]),
        workers: vec![names.collect()],
        services: Vec::new(),
        relay_sockets: RelaySettings::default(),
        descriptors: 0,
        tables: None,
        unconfirmed: UnconfirmedUsers::default(),
    }
}

fn parking_of(listeners: &[StdSocket], come: usize, kernel_path: bool) -> Parking {
    let mut parking = Parking::new().unwrap();
    let since = Instant::from_nanos(5);
    let version = "1".to_owned();
    let orders = Orders::default();
    parking.send(&Origin { version, process: 77, since, kernel_path, orders }).unwrap();
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
    let [keeps_name, other_name] = [keeps, other].map(|at| (ListenerKind::Udp, at));
    assert!(found.has(keeps_name) && !found.has(other_name));
    assert!(!found.has((ListenerKind::Tcp, keeps)));
    assert!(is_free(other) && !is_free(keeps));
    let taken = StdSocket::from(found.take(0, keeps_name).unwrap());
    assert_eq!(taken.local_addr().unwrap(), keeps);
    // The worker's part is missing: the worker starts empty.
    let (worker, updates) = sync_channel(1);
    found.import(&[worker]).unwrap();
    assert!(matches!(updates.recv(), Ok(Update::Last(_))));
    assert!(found.commit(&[]).is_ok());
}

/// Last snapshot of a worker without allocations.
fn last() -> Export<OwnedFd> {
    Export::new(WorkerId(0))
}

/// Receives the last snapshot of the only worker.
fn received(parking: Parking) -> io::Result<(Predecessor, Export<OwnedFd>)> {
    let mut found = Predecessor::find(parking.seal()?)?;
    let (worker, updates) = sync_channel(1);
    found.import(&[worker])?;
    let Ok(Update::Last(export)) = updates.recv() else { panic!("not the last") };
    Ok((found, *export))
}

#[test]
fn snapshots_come_with_their_descriptors_in_order() {
    let sockets = [socket(), socket()];
    let addresses = sockets.each_ref().map(|socket| socket.local_addr().unwrap());
    let mut parking = parked(&[socket()], 1);
    let mut export = last();
    export.snapshot.sessions = vec![Bytes(vec![4]), Bytes(vec![5])];
    export.descriptors = sockets.into_iter().map(OwnedFd::from).collect();
    drop(send_export(&mut parking, export, News::Last).unwrap());
    let (_, export) = received(parking).unwrap();
    assert_eq!(export.snapshot.sessions, [Bytes(vec![4]), Bytes(vec![5])]);
    let come = export.descriptors.into_iter().map(|fd| StdSocket::from(fd).local_addr().unwrap());
    assert_eq!(come.collect::<Vec<_>>(), addresses);
}

/// Descriptors that are not those of a kernel path are closed, and the calls continue without a
/// path.
#[test]
fn a_kernel_path_that_is_none_is_closed() {
    let mut parking = parking_of(&[socket()], 1, true);
    send_export(&mut parking, last(), News::Last).unwrap();
    parking.send(&News::Progress(Vec::new())).unwrap();
    let no_path = [socket(), socket()];
    let addresses = no_path.each_ref().map(|socket| socket.local_addr().unwrap());
    send_kernel_path(&mut parking, &no_path).unwrap();
    drop(no_path);
    let (found, _) = received(parking).unwrap();
    assert!(!addresses.into_iter().any(is_free));
    let retiring = found.commit(&[]).unwrap();
    assert!(addresses.into_iter().all(is_free), "at once");
    retiring.wait();
}

/// Counters in a form that this version cannot parse.
fn unreadable_totals() -> News {
    News::Totals(Bytes(vec![6, 0, 0, 0, 200, 1, 0, 0, 0, 7]))
}

/// The last progress of one worker.
fn last_progress() -> News {
    News::Progress(vec![Vec::new()])
}

/// An upgrade succeeds without counters that cannot be read.
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
    old.send(&Step::Commit).unwrap();
    let (worker, updates) = sync_channel(1);
    let mut retiring = found.commit(&[worker]).unwrap();
    assert!(retiring.take_totals().is_none(), "they begin at 0");
    assert!(matches!(updates.try_recv(), Ok(Update::Progress(_))));
    old.expect(Step::Ready).unwrap();
}

/// Sockets are opened before the pause: the predecessor must pause only after the workers have
/// processed the earlier copies.
#[test]
fn the_old_process_leaves_when_all_copies_are_taken() {
    let (old, new) = UnixStream::pair().unwrap();
    let mut old = Wire::new(old).unwrap();
    old.send(&offer(&[socket()])).unwrap();
    old.send_descriptors(&[socket().as_fd(), io::stderr().as_fd()]).unwrap();
    let mut found = Predecessor::read_offer(Source::Running(Wire::new(new).unwrap())).unwrap();
    let (worker, updates) = sync_channel(2);
    let taker = std::thread::spawn(move || found.import(&[worker]).map(drop));
    old.expect(Step::Copy).unwrap();
    send_export(&mut old, last(), News::Snapshot).unwrap();
    assert!(matches!(updates.recv(), Ok(Update::Snapshot(_))));
    let Ok(Update::Reached(answer)) = updates.recv() else { panic!("not waited for") };
    assert!(!taker.is_finished());
    answer.send(()).unwrap();
    drop(answer);
    old.expect(Step::Pause).unwrap();
    send_export(&mut old, last(), News::Last).unwrap();
    assert!(matches!(updates.recv(), Ok(Update::Last(_))));
    drop(old);
    taker.join().unwrap().unwrap();
}

/// A restart succeeds without unreadable counters as well, and with the last progress.
#[test]
fn counters_that_cannot_be_read_stop_no_restart() {
    let known = || {
        let totals = EarlierTotals { turns: vec![5], ..EarlierTotals::default() };
        News::Totals(Bytes::of(&totals))
    };
    for (totals, turns) in [(known(), Some(vec![5])), (unreadable_totals(), None)] {
        let mut parking = parked(&[socket()], 1);
        send_export(&mut parking, last(), News::Last).unwrap();
        parking.send(&totals).unwrap();
        parking.send(&last_progress()).unwrap();
        let mut found = Predecessor::find(parking.seal().unwrap()).unwrap();
        let (worker, updates) = sync_channel(2);
        found.import(&[worker]).unwrap();
        assert!(matches!(updates.try_recv(), Ok(Update::Last(_))));
        assert!(matches!(updates.try_recv(), Ok(Update::Progress(_))), "{turns:?}");
        let totals = found.commit(&[]).unwrap().take_totals();
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
    // Not a state document.
    let mut parking = Parking::new().unwrap();
    parking.send(&Step::Commit).unwrap();
    let refused = Predecessor::find(parking.seal().unwrap()).map(|_| ()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidData);
}
