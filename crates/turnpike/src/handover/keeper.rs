//! The keeper: a small process that has copies of a server's calls, and gives them to the next server when that one has died.
//!
//! ```text
//! a server                                  the keeper
//! KeeperHello (feeds), Offer, listeners -->
//! CopyPart, sockets; again and again    -->
//! (dies)                                    keeps everything for a while
//!
//! the next one                          <--
//! KeeperHello                           -->
//!                                       <-- Leaving, Offer, listeners, the part of each worker, sockets
//! Prepared: serves                      --> forgets them
//! ```
//!
//! It takes no part in what is relayed: packets wait in the sockets while no server is there.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, sleep};
use std::time::Duration;

use linux_net::{Clock, force_receive_buffer};
use turn_types::{AllocationId, WorkerId};

use super::messages::{
    Bytes, ChangedPart, ChangedRelayPart, CopyPart, KeeperHello, LastPart, Leaving, Listening,
    News, Offer, RelayPart, Step,
};
use super::passing::{Inlet as _, Outlet as _};
use super::wire::Wire;
use super::{PAUSE_ROOM, PREPARATION_MAX};

/// Time in which the next server has to come. Calls of which nothing is heard for so long have ended for their users.
const KEPT_FOR: Duration = Duration::from_secs(60);

/// Servers that get the same calls. If the second dies with them as well, it may be that they are why.
const TRIES_MAX: u32 = 2;

/// Pause after a connection that could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);

/// Copies of a server's calls.
struct Holding {
    from: Leaving,
    offer: Offer,
    listeners: Vec<OwnedFd>,
    workers: BTreeMap<WorkerId, KeptWorker>,
    /// Servers that have got it and have not served.
    tries: u32,
}

/// Copies of one worker's calls.
struct KeptWorker {
    last_id: AllocationId,
    shared: Vec<OwnedFd>,
    allocations: HashMap<AllocationId, KeptAllocation>,
}

struct KeptAllocation {
    state: Bytes,
    relays: Vec<(RelayPart, Option<OwnedFd>)>,
}

/// Calls of a server that has died.
type Orphans = Arc<Mutex<Option<Holding>>>;

/// Serves one server after another, and the next one while the last is there.
pub(crate) fn keep(listener: &UnixListener) {
    let orphans = Orphans::default();
    for stream in listener.incoming() {
        let served = stream.and_then(|stream| {
            let orphans = Arc::clone(&orphans);
            let serve = move || {
                if let Err(error) = serve(stream, &orphans) {
                    tracing::warn!("a server's copies are not kept: {error}");
                }
            };
            thread::Builder::new().name("server".to_owned()).spawn(serve)
        });
        if served.is_err() {
            // No descriptors or threads left: it would be so again at once.
            sleep(ACCEPT_PAUSE);
        }
    }
}

fn lock(orphans: &Orphans) -> MutexGuard<'_, Option<Holding>> {
    orphans.lock().unwrap_or_else(PoisonError::into_inner)
}

fn serve(stream: UnixStream, orphans: &Orphans) -> io::Result<()> {
    let mut wire = Wire::new(stream)?;
    let KeeperHello { version, process, feeds } = wire.receive()?;
    if feeds {
        let since = Clock::instant();
        let mut holding = Holding::receive(&mut wire, Leaving { version, process, since })?;
        if lock(orphans).take().is_some() {
            tracing::warn!(
                process,
                "this server serves without the calls of the one before: they have ended"
            );
        }
        tracing::info!(process, "copies of this server's calls are kept");
        match holding.follow(&mut wire)? {
            Followed::Farewell => tracing::info!(process, "the calls are another process's now"),
            Followed::End => keep_orphan(holding, orphans),
        }
        return Ok(());
    }
    let found = lock(orphans).take();
    let Some(mut holding) = found else { return wire.send(&None::<Leaving>) };
    match holding.give(&mut wire) {
        Ok(()) => tracing::info!(process, "this server serves the calls of the one before"),
        Err(error) if holding.tries < TRIES_MAX => {
            tracing::warn!(process, "this server has not taken the calls over: {error}");
            keep_orphan(holding, orphans);
        }
        Err(error) => tracing::warn!(process, "the calls have ended with this server: {error}"),
    }
    Ok(())
}

/// Keeps the calls of a server that has died until the next one comes, or for a while.
fn keep_orphan(mut holding: Holding, orphans: &Orphans) {
    if holding.tries == 0 {
        holding.from.since = Clock::instant();
        holding.make_room();
    }
    let (process, since) = (holding.from.process, holding.from.since);
    let allocations = holding.allocations();
    tracing::warn!(process, allocations, "the server has ended: its calls wait for the next one");
    *lock(orphans) = Some(holding);
    sleep(KEPT_FOR.saturating_sub(Clock::instant().saturating_since(since)));
    let mut orphans = lock(orphans);
    if orphans.as_ref().is_some_and(|holding| holding.from.since == since) {
        *orphans = None;
        drop(orphans);
        tracing::warn!(process, "no server came: the calls have ended");
    }
}

/// The other end is gone.
fn is_end(error: &io::Error) -> bool {
    [io::ErrorKind::UnexpectedEof, io::ErrorKind::ConnectionReset].contains(&error.kind())
}

/// How a server's copies end.
enum Followed {
    /// Another process has them.
    Farewell,
    /// The server is gone.
    End,
}

impl Holding {
    fn receive(wire: &mut Wire, from: Leaving) -> io::Result<Self> {
        let offer: Offer = wire.receive()?;
        let of_workers = offer.workers.iter().map(|one| one.udp.len() + one.tcp.len());
        let count = of_workers.sum::<usize>() + offer.services.len();
        let listeners = wire.receive_descriptors(count)?;
        Ok(Self { from, offer, listeners, workers: BTreeMap::new(), tries: 0 })
    }

    /// Gives the UDP listeners room for what comes until the next server is there, where this process may; that one takes it back.
    fn make_room(&self) {
        let mut listeners = self.listeners.iter();
        for Listening { udp, tcp } in &self.offer.workers {
            for listener in listeners.by_ref().take(udp.len()) {
                // Without the capability they have the room that they had.
                let _ = force_receive_buffer(listener.as_fd(), PAUSE_ROOM);
            }
            listeners.by_ref().take(tcp.len()).for_each(drop);
        }
    }

    fn allocations(&self) -> usize {
        self.workers.values().map(|worker| worker.allocations.len()).sum()
    }

    /// Takes copies as long as they come. What came in part when the server died is not taken.
    ///
    /// # Errors
    /// The server lives, and its copies are of no use: it sends them anew.
    fn follow(&mut self, wire: &mut Wire) -> io::Result<Followed> {
        let mut next = || -> io::Result<(CopyPart, Vec<OwnedFd>)> {
            wire.wait_for_ever()?;
            let part: CopyPart = wire.receive()?;
            wire.set_patience(super::PATIENCE)?;
            let sockets = wire.receive_descriptors(part.sockets())?;
            Ok((part, sockets))
        };
        loop {
            let (part, sockets) = match next() {
                Ok(next) => next,
                Err(error) if is_end(&error) => return Ok(Followed::End),
                Err(error) => return Err(error),
            };
            if part.farewell {
                return Ok(Followed::Farewell);
            }
            let worker = part.worker;
            let kept = self.workers.entry(worker).or_insert_with(|| KeptWorker::new(worker));
            kept.change(part, sockets);
        }
    }

    /// Gives everything to the next server, which says when it serves.
    fn give(&mut self, wire: &mut Wire) -> io::Result<()> {
        self.tries += 1;
        let Leaving { version, process, since } = &self.from;
        let from = Leaving { version: version.clone(), process: *process, since: *since };
        wire.send(&Some(from))?;
        wire.send(&self.offer)?;
        wire.send_descriptors(&borrowed(&self.listeners))?;
        for worker in (0..).map(WorkerId).take(self.offer.workers.len()) {
            self.workers
                .entry(worker)
                .or_insert_with(|| KeptWorker::new(worker))
                .give(worker, wire)?;
        }
        wire.set_patience(PREPARATION_MAX)?;
        wire.expect(Step::Prepared)
    }
}

impl KeptWorker {
    /// Of a worker that has no calls.
    fn new(worker: WorkerId) -> Self {
        let last_id = AllocationId::new(worker, 0);
        Self { last_id, shared: Vec::new(), allocations: HashMap::new() }
    }

    fn change(&mut self, part: CopyPart, sockets: Vec<OwnedFd>) {
        let CopyPart { worker: _, last_id, shared, changed, ended, .. } = part;
        self.last_id = last_id;
        let mut sockets = sockets.into_iter();
        self.shared.extend(sockets.by_ref().take(shared as usize));
        for ChangedPart { id, state, relays } in changed {
            let before = self.allocations.remove(&id).map(|before| before.relays);
            let mut before = before.unwrap_or_default();
            let relays = relays.into_iter().map(|ChangedRelayPart { part, comes }| {
                let known = before.iter_mut().find(|(known, _)| known.relay == part.relay);
                let known = known.and_then(|(_, socket)| socket.take());
                (part, if comes { sockets.next() } else { known })
            });
            let relays = relays.collect();
            self.allocations.insert(id, KeptAllocation { state, relays });
        }
        for id in ended {
            self.allocations.remove(&id);
        }
    }

    fn give(&self, worker: WorkerId, wire: &mut Wire) -> io::Result<()> {
        let whole = self.allocations.iter().filter(|(_, one)| one.is_whole());
        let whole: Vec<(&AllocationId, &KeptAllocation)> = whole.collect();
        let part = |(id, one): &(&AllocationId, &KeptAllocation)| ChangedPart {
            id: **id,
            state: Bytes(one.state.0.clone()),
            relays: one.relays.iter().map(|(part, _)| of_own(*part)).collect(),
        };
        let copies = CopyPart {
            worker,
            last_id: self.last_id,
            shared: u32::try_from(self.shared.len()).unwrap_or(u32::MAX),
            changed: whole.iter().map(part).collect(),
            ended: Vec::new(),
            farewell: false,
            complete: true,
        };
        // What has been read from connections since the last copies would be missing.
        let (progress, staying, streams) = (Vec::new(), Vec::new(), Vec::new());
        wire.send(&News::Last(LastPart { copies, progress, staying, streams }))?;
        let own =
            whole.iter().flat_map(|(_, one)| one.relays.iter().filter_map(|(_, own)| own.as_ref()));
        let all = self.shared.iter().chain(own);
        wire.send_descriptors(&all.map(|socket| socket.as_fd()).collect::<Vec<_>>())
    }
}

/// A relay that comes with its socket, if it has one.
const fn of_own(part: RelayPart) -> ChangedRelayPart {
    ChangedRelayPart { part, comes: part.own }
}

impl KeptAllocation {
    /// Each relay that has a socket of its own came with it.
    fn is_whole(&self) -> bool {
        self.relays.iter().all(|(part, socket)| part.own == socket.is_some())
    }
}

fn borrowed(descriptors: &[OwnedFd]) -> Vec<BorrowedFd<'_>> {
    descriptors.iter().map(|one| one.as_fd()).collect()
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, UdpSocket};

    use turn_types::{RelayId, Secret};

    use super::super::messages::RelaySocketsPart;
    use super::*;

    fn socket() -> UdpSocket {
        UdpSocket::bind("127.0.0.1:0").unwrap()
    }

    /// A connection with a keeper of these orphans.
    fn connect(orphans: &Orphans) -> Wire {
        let (own, other) = UnixStream::pair().unwrap();
        let orphans = Arc::clone(orphans);
        thread::spawn(move || drop(serve(other, &orphans)));
        Wire::new(own).unwrap()
    }

    fn id(number: u64) -> AllocationId {
        AllocationId::new(WorkerId(0), number)
    }

    fn part() -> CopyPart {
        CopyPart {
            worker: WorkerId(0),
            last_id: id(7),
            shared: 0,
            changed: Vec::new(),
            ended: Vec::new(),
            farewell: false,
            complete: false,
        }
    }

    /// A copy with a state of one byte; its socket comes with the first one.
    fn copy(number: u64, state: u8, comes: Option<&UdpSocket>) -> ChangedPart {
        let at = SocketAddr::from(([127, 0, 0, 1], 1));
        let part = RelayPart { relay: RelayId(number), at, own: true };
        let relays = vec![ChangedRelayPart { part, comes: comes.is_some() }];
        ChangedPart { id: id(number), state: Bytes(vec![state]), relays }
    }

    /// A server with a listener, which sends copies.
    fn feed(orphans: &Orphans, listener: &UdpSocket) -> Wire {
        let mut wire = connect(orphans);
        wire.send(&KeeperHello::new(true)).unwrap();
        let udp = vec![listener.local_addr().unwrap()];
        let offer = Offer {
            nonce_key: Secret::new([3; 32]),
            workers: vec![Listening { udp, tcp: Vec::new() }],
            services: Vec::new(),
            relay_sockets: RelaySocketsPart::default(),
            descriptors: 0,
        };
        wire.send(&offer).unwrap();
        wire.send_descriptors(&[listener.as_fd()]).unwrap();
        wire
    }

    fn wait_for_orphans(orphans: &Orphans, allocations: usize) {
        test_support::eventually("the keeper has them", || {
            lock(orphans).as_ref().is_some_and(|holding| holding.allocations() == allocations)
        });
    }

    /// What the next server is given: the states, and the addresses of the sockets.
    fn ask(orphans: &Orphans) -> Option<(Wire, Vec<Vec<u8>>, Vec<SocketAddr>)> {
        let mut wire = connect(orphans);
        wire.send(&KeeperHello::new(false)).unwrap();
        wire.receive::<Option<Leaving>>().unwrap()?;
        let offer: Offer = wire.receive().unwrap();
        assert_eq!(offer.nonce_key.expose(), &[3; 32]);
        drop(wire.receive_descriptors(1).unwrap());
        let News::Last(LastPart { copies, .. }) = wire.receive().unwrap() else {
            panic!("not the rest")
        };
        assert_eq!(copies.last_id, id(7));
        let sockets = wire.receive_descriptors(copies.sockets()).unwrap();
        let at = |fd: OwnedFd| UdpSocket::from(fd).local_addr().unwrap();
        let states = copies.changed.into_iter().map(|one| one.state.0).collect();
        Some((wire, states, sockets.into_iter().map(at).collect()))
    }

    #[test]
    fn the_next_server_gets_the_last_copies_once_it_asks() {
        let orphans = Orphans::default();
        assert!(ask(&orphans).is_none(), "nothing is kept");
        let (listener, [stays, ends]) = (socket(), [(); 2].map(|()| socket()));
        let mut wire = feed(&orphans, &listener);
        let changed = vec![copy(1, 10, Some(&stays)), copy(2, 20, Some(&ends))];
        wire.send(&CopyPart { changed, ..part() }).unwrap();
        wire.send_descriptors(&[stays.as_fd(), ends.as_fd()]).unwrap();
        let (changed, ended) = (vec![copy(1, 11, None)], vec![id(2)]);
        wire.send(&CopyPart { changed, ended, ..part() }).unwrap();
        // A copy that has come in part when the server dies.
        let late = socket();
        let changed = vec![copy(1, 12, None), copy(3, 30, Some(&late))];
        wire.send(&CopyPart { changed, ..part() }).unwrap();
        assert!(ask(&orphans).is_none(), "the server is there");
        drop(wire);
        wait_for_orphans(&orphans, 1);
        let ended = ends.local_addr().unwrap();
        drop(ends);
        assert!(UdpSocket::bind(ended).is_ok(), "its socket was kept");
        let (mut wire, states, sockets) = ask(&orphans).unwrap();
        assert_eq!((states, sockets), (vec![vec![11]], vec![stays.local_addr().unwrap()]));
        wire.send(&Step::Prepared).unwrap();
        drop(wire);
        assert!(ask(&orphans).is_none(), "another one has them");
    }

    #[test]
    fn a_second_server_gets_what_the_first_did_not_serve_and_a_third_does_not() {
        let orphans = Orphans::default();
        let (listener, relay) = (socket(), socket());
        let mut wire = feed(&orphans, &listener);
        wire.send(&CopyPart { changed: vec![copy(1, 10, Some(&relay))], ..part() }).unwrap();
        wire.send_descriptors(&[relay.as_fd()]).unwrap();
        drop(wire);
        for _ in 0..TRIES_MAX {
            wait_for_orphans(&orphans, 1);
            assert!(ask(&orphans).is_some());
        }
        assert!(ask(&orphans).is_none());
        let at = relay.local_addr().unwrap();
        drop(relay);
        test_support::eventually("its socket is closed", || UdpSocket::bind(at).is_ok());
    }

    #[test]
    fn a_server_that_serves_without_them_ends_the_calls_of_the_one_before() {
        let orphans = Orphans::default();
        let (listener, relay) = (socket(), socket());
        let mut wire = feed(&orphans, &listener);
        wire.send(&CopyPart { changed: vec![copy(1, 10, Some(&relay))], ..part() }).unwrap();
        wire.send_descriptors(&[relay.as_fd()]).unwrap();
        drop(wire);
        wait_for_orphans(&orphans, 1);
        let _next = feed(&orphans, &listener);
        let at = relay.local_addr().unwrap();
        drop(relay);
        test_support::eventually("its socket is closed", || UdpSocket::bind(at).is_ok());
        assert!(ask(&orphans).is_none());
    }

    #[test]
    fn a_server_whose_copies_cannot_be_read_is_not_taken_for_dead() {
        let orphans = Orphans::default();
        let (listener, relay) = (socket(), socket());
        let mut wire = feed(&orphans, &listener);
        wire.send(&CopyPart { changed: vec![copy(1, 10, Some(&relay))], ..part() }).unwrap();
        wire.send_descriptors(&[relay.as_fd()]).unwrap();
        // No message of a server that sends copies.
        wire.send(&Step::Go).unwrap();
        let at = relay.local_addr().unwrap();
        drop(relay);
        test_support::eventually("its socket is closed", || UdpSocket::bind(at).is_ok());
        assert!(ask(&orphans).is_none());
    }

    #[test]
    fn a_farewell_leaves_nothing() {
        let orphans = Orphans::default();
        let (listener, relay) = (socket(), socket());
        let mut wire = feed(&orphans, &listener);
        wire.send(&CopyPart { changed: vec![copy(1, 10, Some(&relay))], ..part() }).unwrap();
        wire.send_descriptors(&[relay.as_fd()]).unwrap();
        wire.send(&CopyPart { farewell: true, ..part() }).unwrap();
        let at = relay.local_addr().unwrap();
        drop(relay);
        test_support::eventually("its socket is closed", || UdpSocket::bind(at).is_ok());
        drop(wire);
        assert!(ask(&orphans).is_none());
    }
}
