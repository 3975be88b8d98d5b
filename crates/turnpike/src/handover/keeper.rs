//! The keeper: a small process that has copies of a server's calls, and gives them to the next
//! server when that one has died.
//!
//! ```text
//! a server                                  the keeper
//! KeeperHello (feeds), Offer, listeners -->
//!                                       <-- Copy
//! CopyPart, sockets; again and again    -->
//! (dies)                                    keeps everything for a while
//!
//! the next one                          <--
//! KeeperHello                           -->
//!                                       <-- Leaving, Offer, listeners
//! Copy                                  -->
//!                                       <-- the part of each worker, sockets
//! Prepared: serves                      --> forgets them
//! ```
//!
//! A server that cannot go on with these calls, as its listeners are others, says Forget instead of
//! Copy, and waits for Gone: the ports are free then.
//!
//! It takes no part in what is relayed: packets wait in the sockets while no server is there.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, sleep};
use std::time::Duration;

use dataplane::{Copies, InheritedSocket, KeptWorker};
use linux_net::{Clock, force_receive_buffer};
use turn_types::{Instant, WorkerId};

use super::copying;
use super::messages::{CopyPart, KeeperHello, KernelPathPart, Leaving, Listening, Offer, Step};
use super::passing::{Inlet as _, Outlet as _};
use super::wire::{Wire, unexpected};
use super::{PAUSE_ROOM, PREPARATION_MAX};

/// Deadline for the next server. Calls without data for so long have ended for their users.
const KEPT_FOR: Duration = Duration::from_secs(60);

/// Servers that get the same calls. If the second dies as well, the calls may be the cause.
const TRIES_MAX: u32 = 2;

/// A server that dies within this time of taking calls over may have died of them: nearly all send
/// packets within it, and clients ask for permissions and channels.
const EARLY_DEATH: Duration = Duration::from_secs(10);

/// Pause after a connection that could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);

/// Copies of a server's calls.
struct Holding {
    from: Leaving,
    offer: Offer,
    listeners: Vec<OwnedFd>,
    workers: BTreeMap<WorkerId, KeptWorker<InheritedSocket>>,
    /// Descriptors by which its kernel path goes on without it.
    kernel_path: Vec<OwnedFd>,
    /// Servers that have got it and have not served.
    tries: u32,
}

/// Calls of a server that has died, and the server that has taken some over.
#[derive(Default)]
struct Kept {
    holding: Option<Holding>,
    taker: Option<Taker>,
}

/// A server that has taken calls over.
#[derive(Clone, Copy, Debug)]
struct Taker {
    process: u32,
    at: Instant,
    /// Servers that have got the same calls, with this one.
    tries: u32,
}

impl Kept {
    /// Servers that have died with the calls of this process, which dies now.
    fn tries(&self, process: u32, now: Instant) -> u32 {
        let taker = self.taker.filter(|taker| {
            taker.process == process && now.saturating_since(taker.at) < EARLY_DEATH
        });
        taker.map_or(0, |taker| taker.tries)
    }
}

type Orphans = Arc<Mutex<Kept>>;

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

fn lock(orphans: &Orphans) -> MutexGuard<'_, Kept> {
    orphans.lock().unwrap_or_else(PoisonError::into_inner)
}

fn serve(stream: UnixStream, orphans: &Orphans) -> io::Result<()> {
    let mut wire = Wire::new(stream)?;
    let KeeperHello { version, process, feeds } = wire.receive()?;
    if feeds {
        let since = Clock::instant();
        follow(wire, Leaving { version, process, since, kernel_path: false }, orphans)
    } else {
        give(wire, process, orphans)
    }
}

/// Keeps the copies of a server, and its calls when it dies.
fn follow(mut wire: Wire, from: Leaving, orphans: &Orphans) -> io::Result<()> {
    let process = from.process;
    let mut holding = Holding::receive(&mut wire, from)?;
    wire.send(&Step::Copy)?;
    if lock(orphans).holding.take().is_some() {
        tracing::warn!(
            process,
            "this server serves without the calls of the one before: they have ended"
        );
    }
    tracing::info!(process, "copies of this server's calls are kept");
    let followed = holding.follow(&mut wire)?;
    let now = Clock::instant();
    holding.from.since = now;
    holding.tries = match followed {
        Followed::Farewell => {
            tracing::info!(process, "the calls are another process's now");
            return Ok(());
        }
        Followed::Stopped => 0,
        Followed::Died => lock(orphans).tries(process, now),
    };
    if holding.tries >= TRIES_MAX {
        tracing::warn!(
            process,
            "the calls have ended: servers that take them over die, this one within {} s",
            EARLY_DEATH.as_secs()
        );
        return Ok(());
    }
    holding.make_room();
    keep_orphan(holding, orphans);
    Ok(())
}

/// Gives the calls of a server that has died to the next one.
fn give(mut wire: Wire, process: u32, orphans: &Orphans) -> io::Result<()> {
    let found = lock(orphans).holding.take();
    let Some(mut holding) = found else { return wire.send(&None::<Leaving>) };
    match holding.give(&mut wire) {
        Ok(Given::Taken) => {
            let (at, tries) = (Clock::instant(), holding.tries);
            lock(orphans).taker = Some(Taker { process, at, tries });
            tracing::info!(process, "this server serves the calls of the one before");
        }
        Ok(Given::Refused) => {
            drop(holding);
            tracing::warn!(process, "this server cannot go on with the calls: they have ended");
            return wire.send(&Step::Gone);
        }
        Err(error) if holding.tries < TRIES_MAX => {
            tracing::warn!(process, "this server has not taken the calls over: {error}");
            keep_orphan(holding, orphans);
        }
        Err(error) => tracing::warn!(process, "the calls have ended with this server: {error}"),
    }
    Ok(())
}

/// Keeps the calls of a server that has died until the next one comes, or for a while.
fn keep_orphan(holding: Holding, orphans: &Orphans) {
    let (process, since) = (holding.from.process, holding.from.since);
    let allocations = holding.allocations();
    tracing::warn!(process, allocations, "the server has ended: its calls wait for the next one");
    lock(orphans).holding = Some(holding);
    sleep(KEPT_FOR.saturating_sub(Clock::instant().saturating_since(since)));
    let mut orphans = lock(orphans);
    if orphans.holding.as_ref().is_some_and(|holding| holding.from.since == since) {
        orphans.holding = None;
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
    /// The server was told to end.
    Stopped,
    /// The server is gone.
    Died,
}

/// Answer of the next server to the offer.
enum Given {
    /// It serves them.
    Taken,
    /// It cannot go on with them.
    Refused,
}

impl Holding {
    fn receive(wire: &mut Wire, from: Leaving) -> io::Result<Self> {
        let offer: Offer = wire.receive()?;
        let of_workers = offer.workers.iter().map(|one| one.udp.len() + one.tcp.len());
        let count = of_workers.sum::<usize>() + offer.services.len();
        let listeners = wire.receive_descriptors(count)?;
        let (workers, kernel_path) = (BTreeMap::new(), Vec::new());
        Ok(Self { from, offer, listeners, workers, kernel_path, tries: 0 })
    }

    /// Enlarges the UDP listeners' receive buffers until the next server restores them.
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
        self.workers.values().map(|worker| worker.allocations()).sum()
    }

    /// Takes copies as long as they come. What came in part when the server died is not taken.
    ///
    /// # Errors
    /// The server lives, and its copies are of no use: it sends them anew.
    fn follow(&mut self, wire: &mut Wire) -> io::Result<Followed> {
        loop {
            let Received { farewell, stops, path, copies } = match Received::next(wire) {
                Ok(next) => next,
                Err(error) if is_end(&error) => return Ok(Followed::Died),
                Err(error) => return Err(error),
            };
            if farewell {
                return Ok(Followed::Farewell);
            }
            if let Some(path) = path {
                self.kernel_path = path;
            }
            if stops {
                // It has ended it.
                self.kernel_path.clear();
                return Ok(Followed::Stopped);
            }
            let worker = copies.worker;
            let kept = self.workers.entry(worker).or_insert_with(|| KeptWorker::new(worker));
            kept.change(copies);
        }
    }

    /// Gives everything to the next server, which says when it serves.
    fn give(&mut self, wire: &mut Wire) -> io::Result<Given> {
        self.tries += 1;
        let Leaving { version, process, since, .. } = &self.from;
        let version = version.clone();
        let kernel_path = !self.kernel_path.is_empty();
        let from = Leaving { version, process: *process, since: *since, kernel_path };
        wire.send(&Some(from))?;
        wire.send(&self.offer)?;
        wire.send_descriptors(&borrowed(&self.listeners))?;
        wire.set_patience(PREPARATION_MAX)?;
        match wire.receive()? {
            Step::Copy => {}
            Step::Forget => return Ok(Given::Refused),
            other @ (Step::Leave | Step::Prepared | Step::Go | Step::Gone) => {
                return Err(unexpected(other, Step::Copy));
            }
        }
        for worker in (0..).map(WorkerId).take(self.offer.workers.len()) {
            let kept = self.workers.entry(worker).or_insert_with(|| KeptWorker::new(worker));
            copying::send_all(wire, kept.copies())?;
        }
        if kernel_path {
            KernelPathPart::send(wire, &borrowed(&self.kernel_path))?;
        }
        wire.expect(Step::Prepared).map(|()| Given::Taken)
    }
}

/// News of a server.
struct Received {
    farewell: bool,
    stops: bool,
    /// Descriptors of its kernel path, if this is news of it.
    path: Option<Vec<OwnedFd>>,
    copies: Copies<InheritedSocket>,
}

impl Received {
    fn next(wire: &mut Wire) -> io::Result<Self> {
        wire.wait_for_ever()?;
        let part: CopyPart = wire.receive()?;
        wire.set_patience(super::PATIENCE)?;
        let CopyPart { farewell, stops, kernel_path, .. } = part;
        let copies = copying::copies(wire, part)?;
        let path = kernel_path.map(|count| wire.receive_descriptors(count as usize));
        Ok(Self { farewell, stops, path: path.transpose()?, copies })
    }
}

fn borrowed(descriptors: &[OwnedFd]) -> Vec<BorrowedFd<'_>> {
    descriptors.iter().map(|one| one.as_fd()).collect()
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, UdpSocket};

    use turn_types::{AllocationId, RelayId, Secret};

    use super::super::messages::{
        Bytes, ChangedPart, ChangedRelayPart, LastPart, News, RelayPart, RelaySocketsPart,
    };
    use super::super::taking::Predecessor;
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
        CopyPart::nothing(WorkerId(0), id(7))
    }

    /// A copy with a state of one byte; its socket comes with the first one.
    fn copy(number: u64, state: u8, comes: Option<&UdpSocket>) -> ChangedPart {
        let at = SocketAddr::from(([127, 0, 0, 1], 1));
        let part = RelayPart { relay: RelayId(number), at, own: true };
        let relays = vec![ChangedRelayPart { part, comes: comes.is_some() }];
        ChangedPart { id: id(number), state: Bytes(vec![state]), relays, session: None }
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
        wire.expect(Step::Copy).unwrap();
        wire
    }

    /// The same, with one allocation.
    fn feed_one(orphans: &Orphans, listener: &UdpSocket, relay: &UdpSocket) -> Wire {
        let mut wire = feed(orphans, listener);
        wire.send(&CopyPart { changed: vec![copy(1, 10, Some(relay))], ..part() }).unwrap();
        wire.send_descriptors(&[relay.as_fd()]).unwrap();
        wire
    }

    /// A server takes the calls over, and serves.
    fn take(orphans: &Orphans, listener: &UdpSocket, relay: &UdpSocket) -> Wire {
        lock(orphans).taker = None;
        let (mut wire, ..) = ask(orphans).unwrap();
        wire.send(&Step::Prepared).unwrap();
        test_support::eventually("it has them", || lock(orphans).taker.is_some());
        feed_one(orphans, listener, relay)
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

    /// What the next server is given: the states, and the addresses of the sockets.
    fn ask(orphans: &Orphans) -> Option<(Wire, Vec<Vec<u8>>, Vec<SocketAddr>)> {
        let mut wire = connect(orphans);
        wire.send(&KeeperHello::new(false)).unwrap();
        wire.receive::<Option<Leaving>>().unwrap()?;
        let offer: Offer = wire.receive().unwrap();
        assert_eq!(offer.nonce_key.expose(), &[3; 32]);
        drop(wire.receive_descriptors(1).unwrap());
        wire.send(&Step::Copy).unwrap();
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
        drop(feed_one(&orphans, &listener, &relay));
        for _ in 0..TRIES_MAX {
            wait_for_orphans(&orphans, 1);
            assert!(ask(&orphans).is_some());
        }
        assert!(ask(&orphans).is_none());
        assert_closes(relay);
    }

    #[test]
    fn a_server_that_serves_without_them_ends_the_calls_of_the_one_before() {
        let orphans = Orphans::default();
        let (listener, relay) = (socket(), socket());
        drop(feed_one(&orphans, &listener, &relay));
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
        // No message of a server that sends copies.
        wire.send(&Step::Go).unwrap();
        assert_closes(relay);
        assert!(ask(&orphans).is_none());
    }

    #[test]
    fn a_farewell_leaves_nothing() {
        let orphans = Orphans::default();
        let (listener, relay) = (socket(), socket());
        let mut wire = feed_one(&orphans, &listener, &relay);
        wire.send(&CopyPart { farewell: true, ..part() }).unwrap();
        assert_closes(relay);
        drop(wire);
        assert!(ask(&orphans).is_none());
    }

    #[test]
    fn two_servers_that_die_soon_after_they_have_taken_over_end_the_calls() {
        let orphans = Orphans::default();
        let (listener, relay) = (socket(), socket());
        drop(feed_one(&orphans, &listener, &relay));
        for _ in 0..TRIES_MAX {
            wait_for_orphans(&orphans, 1);
            drop(take(&orphans, &listener, &relay));
        }
        assert_closes(relay);
        assert!(ask(&orphans).is_none());
    }

    #[test]
    fn a_server_that_was_told_to_end_has_not_died() {
        let orphans = Orphans::default();
        let (listener, relay) = (socket(), socket());
        drop(feed_one(&orphans, &listener, &relay));
        for _ in 0..=TRIES_MAX {
            wait_for_orphans(&orphans, 1);
            let mut wire = take(&orphans, &listener, &relay);
            wire.send(&CopyPart { stops: true, ..part() }).unwrap();
        }
        wait_for_orphans(&orphans, 1);
    }

    #[test]
    fn deaths_count_for_a_while() {
        let at = Instant::from_nanos(5);
        let taker = Some(Taker { process: 7, at, tries: 1 });
        let kept = Kept { holding: None, taker };
        assert_eq!(kept.tries(7, at), 1);
        assert_eq!(kept.tries(8, at), 0, "another one");
        assert_eq!(kept.tries(7, at + EARLY_DEATH), 0);
        assert_eq!(Kept::default().tries(7, at), 0);
    }

    #[test]
    fn a_server_that_cannot_go_on_with_the_calls_has_their_ports() {
        let orphans = Orphans::default();
        let (listener, relay) = (socket(), socket());
        drop(feed_one(&orphans, &listener, &relay));
        wait_for_orphans(&orphans, 1);
        let mut wire = connect(&orphans);
        wire.send(&KeeperHello::new(false)).unwrap();
        assert!(wire.receive::<Option<Leaving>>().unwrap().is_some());
        let _: Offer = wire.receive().unwrap();
        drop(wire.receive_descriptors(1).unwrap());
        wire.send(&Step::Forget).unwrap();
        wire.expect(Step::Gone).unwrap();
        for socket in [listener, relay] {
            let at = socket.local_addr().unwrap();
            drop(socket);
            assert!(UdpSocket::bind(at).is_ok(), "it is kept");
        }
        assert!(ask(&orphans).is_none());
    }

    /// A listener of the one before cannot stay beside a new one.
    #[test]
    fn a_server_with_an_overlapping_listener_begins_anew() {
        let directory = crate::testing::Directory::new("keeper");
        std::fs::create_dir_all(directory.path()).unwrap();
        let path = directory.path().join("control.keep");
        let waiting = UnixListener::bind(&path).unwrap();
        let orphans = Orphans::default();
        let (listener, relay) = (socket(), socket());
        drop(feed_one(&orphans, &listener, &relay));
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
        before.forget();
        assert!(UdpSocket::bind(any).is_ok(), "it is kept");
    }
}
