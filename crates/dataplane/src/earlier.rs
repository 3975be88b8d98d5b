//! Sessions that stay with earlier processes of this server, which have their keys, and relayed
//! addresses that stay.
//!
//! After an upgrade the listeners are this process's, and clients go on with their sessions. What
//! comes for one of them goes on to the process that has it, over a way that both got with the
//! hand-over: the session's number, TTL and traffic class of the datagram, and the datagram itself;
//! without one the client has begun anew, and the session ends. That process answers by its own
//! descriptor of the listener.
//!
//! Addresses that its allocations have are held here until it has ended, which the way tells: no
//! other client gets them, and clients here may have them as their peers.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::SocketAddr;

use linux_net::Interest;
use turn_proto::{HeldAddress, Server};
use turn_types::{FiveTuple, IpMeta, RelayProtocol, RelayedAddr, SocketId};

use crate::inheritance::{StayingSession, StayingSessions};
use crate::io::{ConduitIo as _, Net, Source};
use crate::limits::EARLIER_PROCESSES_MAX;
use crate::token::Token;

/// Bytes before the datagram: the session's number, TTL, traffic class.
pub(crate) const HEADER: usize = 6;

/// Addresses of a client and of the server.
pub(crate) type Ends = (SocketAddr, SocketAddr);

/// Sessions of earlier processes.
#[derive(Debug)]
pub(crate) struct EarlierSessions<N: Net> {
    /// The oldest first; `None`: it is gone.
    processes: Vec<Option<Process<N>>>,
    /// The process of each session, and its number there. Clients choose the addresses: the table
    /// is keyed by the system's randomness.
    sessions: HashMap<Ends, (usize, SocketId)>,
    /// Buffer for a message.
    message: Vec<u8>,
}

/// An earlier process.
#[derive(Debug)]
struct Process<N: Net> {
    /// The way to it.
    conduit: N::Conduit,
    /// Addresses that its allocations have. The next process gets them all, also those from which
    /// nothing is relayed here.
    addresses: Vec<(RelayedAddr, RelayProtocol)>,
    /// The ones of them that are held here.
    held: BTreeMap<RelayedAddr, HeldAddress>,
}

impl<N: Net> Default for EarlierSessions<N> {
    fn default() -> Self {
        Self { processes: Vec::new(), sessions: HashMap::new(), message: Vec::new() }
    }
}

/// Outcome of a datagram that may be for an earlier process.
pub(crate) enum Passed {
    /// The process gets it.
    On,
    /// It did not take it: more than there is room for waits.
    Full,
    /// No process has a session of these addresses.
    Unknown,
}

impl<N: Net> EarlierSessions<N> {
    /// Those of these processes, the oldest first. Beyond [`EARLIER_PROCESSES_MAX`] the sessions of
    /// the oldest are forgotten, but not the addresses.
    pub(crate) fn new(staying: Vec<StayingSessions<N::Conduit>>) -> Self {
        let with_sessions = staying.iter().filter(|one| !one.sessions.is_empty()).count();
        let mut forgotten = with_sessions.saturating_sub(EARLIER_PROCESSES_MAX);
        let mut earlier = Self::default();
        for StayingSessions { mut sessions, addresses, conduit } in staying {
            if !sessions.is_empty() && forgotten > 0 {
                forgotten -= 1;
                sessions.clear();
            }
            if sessions.is_empty() && addresses.is_empty() {
                continue;
            }
            let process = earlier.processes.len();
            let sessions = sessions.into_iter().map(|StayingSession { client, server, number }| {
                ((client, server), (process, number))
            });
            earlier.sessions.extend(sessions);
            let held = BTreeMap::new();
            earlier.processes.push(Some(Process { conduit, addresses, held }));
        }
        earlier
    }

    /// Watches for the end of these processes.
    ///
    /// # Errors
    /// No memory left for epoll.
    pub(crate) fn watch(&self, net: &N) -> io::Result<()> {
        for (index, process) in (0..).zip(&self.processes) {
            if let Some(Process { conduit, .. }) = process {
                let token = Token::Earlier(index).number();
                net.watch(Source::Conduit(conduit), token, Interest::Read)?;
            }
        }
        Ok(())
    }

    /// Holds the addresses that allocations of these processes have, as far as they are free here.
    pub(crate) fn hold_addresses(&mut self, server: &Server) {
        for Process { addresses, held, .. } in self.processes.iter_mut().flatten() {
            for (at, protocol) in addresses {
                if let Some(address) = server.hold(*at, *protocol) {
                    held.insert(*at, address);
                }
            }
        }
    }

    /// Looks at a process that has ended, or has said something that is not for this version.
    pub(crate) fn serve(&mut self, net: &N, index: u32, room: &mut [u8]) {
        let process = index as usize;
        let Some(Some(Process { conduit, .. })) = self.processes.get(process) else { return };
        if conduit.receive(room).is_err() {
            drop(self.end(net, process));
        }
    }

    /// Forgets all: the next process has them, and the descriptors would be reported as long as
    /// that has them. Returns the addresses that are held here.
    pub(crate) fn leave(&mut self, net: &N) -> Vec<HeldAddress> {
        let processes = 0..self.processes.len();
        let held = processes.flat_map(|process| self.end(net, process).into_values()).collect();
        self.sessions.clear();
        held
    }

    /// A process is gone, or another's. Returns its addresses, which are free without them.
    fn end(&mut self, net: &N, process: usize) -> BTreeMap<RelayedAddr, HeldAddress> {
        let Some(gone) = self.processes.get_mut(process).and_then(Option::take) else {
            return BTreeMap::new();
        };
        net.unwatch(Source::Conduit(&gone.conduit));
        self.sessions.retain(|_, (other, _)| *other != process);
        gone.held
    }

    /// Copies them for the next process.
    ///
    /// # Errors
    /// No descriptors left.
    pub(crate) fn copies(&self) -> io::Result<Vec<StayingSessions<N::Conduit>>> {
        let mut copies = Vec::new();
        for (index, process) in self.processes.iter().enumerate() {
            let Some(Process { conduit, addresses, .. }) = process else { continue };
            let of_process = self.sessions.iter().filter(|(_, (other, _))| *other == index);
            let sessions: Vec<_> = of_process
                .map(|(&(client, server), &(_, number))| StayingSession { client, server, number })
                .collect();
            if !sessions.is_empty() || !addresses.is_empty() {
                let (addresses, conduit) = (addresses.clone(), conduit.copy()?);
                copies.push(StayingSessions { sessions, addresses, conduit });
            }
        }
        Ok(copies)
    }

    /// Returns true if there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }

    /// Ends the session of a client that begins anew here.
    pub(crate) fn replace(&mut self, net: &N, five_tuple: &FiveTuple) {
        if self.is_empty() {
            return;
        }
        // Nothing but a header tells it. If that does not arrive, the session ends with its
        // allocation.
        let _told = self.pass(net, five_tuple, IpMeta::DEFAULT, &[]);
        self.sessions.remove(&ends(five_tuple));
    }

    /// Passes a datagram on, if it is for one of these sessions.
    pub(crate) fn pass(
        &mut self,
        net: &N,
        five_tuple: &FiveTuple,
        meta: IpMeta,
        datagram: &[u8],
    ) -> Passed {
        let Some(&(process, SocketId(number))) = self.sessions.get(&ends(five_tuple)) else {
            return Passed::Unknown;
        };
        self.message.clear();
        self.message.extend_from_slice(&number.to_le_bytes());
        self.message.extend_from_slice(&[meta.ttl, meta.tos]);
        self.message.extend_from_slice(datagram);
        let to = self.processes.get(process).and_then(Option::as_ref);
        match to.map(|to| to.conduit.send(&self.message)) {
            Some(Ok(true)) => Passed::On,
            Some(Ok(false)) => Passed::Full,
            Some(Err(_)) | None => {
                drop(self.end(net, process));
                Passed::Unknown
            }
        }
    }
}

pub(crate) const fn ends(FiveTuple { client, server, .. }: &FiveTuple) -> Ends {
    (client.0, server.0)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::sync::Arc;
    use std::time::Duration;

    use control::LockedRegistry;
    use linux_net::Waker;
    use turn_proto::{AuthPolicy, Policy, RelayPrefix, ServerConfig};
    use turn_types::{Secret, WorkerId};

    use super::*;
    use crate::io::{Conduit, Kernel};

    const PORT: u16 = 50_000;

    fn server() -> Server {
        let prefix = RelayPrefix::new("192.0.2.0/24".parse().unwrap(), PORT, 1).unwrap();
        let auth = AuthPolicy::new(Secret::new([9; 32]));
        let policy = Policy { prefixes: vec![prefix], ..Policy::new("realm".into(), auth) };
        Server::new(ServerConfig {
            worker: WorkerId(0),
            policy: Arc::new(policy),
            registry: Arc::new(LockedRegistry::new()),
            seed: [7; 32],
            routes: false,
        })
    }

    fn at(host: u8) -> RelayedAddr {
        RelayedAddr((Ipv4Addr::new(192, 0, 2, host), PORT).into())
    }

    /// The addresses that no allocation can have.
    fn held(server: &Server) -> Vec<u8> {
        (1..20).filter(|host| server.hold(at(*host), RelayProtocol::Udp).is_none()).collect()
    }

    /// A process that has these addresses, and so many sessions; the first one lives as long as its
    /// end of the way.
    fn process(net: &Kernel, hosts: &[u8], sessions: u16) -> (Conduit, StayingSessions<Conduit>) {
        let (own, conduit) = net.conduits().unwrap();
        let session = |number| {
            let (client, server) = (at(hosts[0]).0, SocketAddr::new(at(1).0.ip(), number));
            StayingSession { client, server, number: SocketId(number.into()) }
        };
        let sessions = (0..sessions).map(session).collect();
        let addresses = hosts.iter().map(|host| (at(*host), RelayProtocol::Udp)).collect();
        (own, StayingSessions { sessions, addresses, conduit })
    }

    fn hosts(staying: &[StayingSessions<Conduit>]) -> Vec<Vec<RelayedAddr>> {
        let addresses =
            |one: &StayingSessions<Conduit>| one.addresses.iter().map(|(at, _)| *at).collect();
        staying.iter().map(addresses).collect()
    }

    /// Serves what is ready; returns the number of events.
    fn serve(net: &mut Kernel, earlier: &mut EarlierSessions<Kernel>) -> usize {
        let mut ready = Vec::new();
        net.wait(Some(Duration::ZERO), |event| ready.push(Token::of(event.token)));
        for token in &ready {
            let Token::Earlier(index) = token else { panic!("{token:?}") };
            earlier.serve(net, *index, &mut [0; 100]);
        }
        ready.len()
    }

    #[test]
    fn addresses_are_held_until_their_process_has_ended() {
        let (_waker, wake) = Waker::new().unwrap();
        let (mut net, server) = (Kernel::new(wake).unwrap(), server());
        // The second one has no sessions.
        let (first, staying) = process(&net, &[3, 5], 1);
        let (second, also_staying) = process(&net, &[8], 0);
        let mut earlier = EarlierSessions::<Kernel>::new(vec![staying, also_staying]);
        earlier.watch(&net).unwrap();
        assert_eq!(held(&server), []);
        for _ in 0..2 {
            earlier.hold_addresses(&server);
            assert_eq!(held(&server), [3, 5, 8]);
        }
        let copies = earlier.copies().unwrap();
        assert_eq!(hosts(&copies), [vec![at(3), at(5)], vec![at(8)]], "for the next process");
        assert_eq!(serve(&mut net, &mut earlier), 0);
        // A later version may say something.
        assert!(first.send(b"?").unwrap());
        assert_eq!(serve(&mut net, &mut earlier), 1);
        assert_eq!(held(&server), [3, 5, 8]);
        drop(first);
        assert_eq!(serve(&mut net, &mut earlier), 1);
        assert_eq!(held(&server), [8]);
        assert!(earlier.is_empty(), "its sessions are gone as well");
        assert_eq!(hosts(&earlier.copies().unwrap()), [vec![at(8)]]);
        drop(second);
        assert_eq!(serve(&mut net, &mut earlier), 1);
        assert_eq!((held(&server), serve(&mut net, &mut earlier)), (vec![], 0));
    }

    /// The next process has descriptors of the same ways.
    #[test]
    fn a_process_that_has_left_hears_of_no_end() {
        let (_waker, wake) = Waker::new().unwrap();
        let (mut net, server) = (Kernel::new(wake).unwrap(), server());
        let (own, staying) = process(&net, &[3], 1);
        let mut earlier = EarlierSessions::<Kernel>::new(vec![staying]);
        earlier.watch(&net).unwrap();
        earlier.hold_addresses(&server);
        let _next = earlier.copies().unwrap();
        let of_others = earlier.leave(&net);
        assert_eq!(held(&server), [3], "clients that stay here may have it as their peer");
        drop(of_others);
        assert_eq!(held(&server), []);
        drop(own);
        assert_eq!(serve(&mut net, &mut earlier), 0);
    }

    #[test]
    fn beyond_many_processes_sessions_are_forgotten_and_addresses_are_not() {
        let (_waker, wake) = Waker::new().unwrap();
        let (net, server) = (Kernel::new(wake).unwrap(), server());
        let hosts: Vec<u8> = (3..).take(EARLIER_PROCESSES_MAX + 2).collect();
        let (_own, staying): (Vec<_>, Vec<_>) =
            hosts.iter().map(|host| process(&net, &[*host], u16::from(*host != 4))).unzip();
        let mut earlier = EarlierSessions::<Kernel>::new(staying);
        earlier.hold_addresses(&server);
        assert_eq!(held(&server), hosts);
        let copies = earlier.copies().unwrap();
        let without = copies.iter().filter(|one| one.sessions.is_empty());
        assert_eq!(without.map(|one| one.addresses[0].0).collect::<Vec<_>>(), [at(3), at(4)]);
    }

    #[test]
    fn addresses_of_no_relay_here_go_to_the_next_process() {
        let (_waker, wake) = Waker::new().unwrap();
        let (net, server) = (Kernel::new(wake).unwrap(), server());
        let (_own, mut staying) = process(&net, &[3], 0);
        let elsewhere = RelayedAddr("198.51.100.1:50000".parse().unwrap());
        staying.addresses.push((elsewhere, RelayProtocol::Udp));
        let mut earlier = EarlierSessions::<Kernel>::new(vec![staying]);
        earlier.hold_addresses(&server);
        assert_eq!(held(&server), [3]);
        assert_eq!(hosts(&earlier.copies().unwrap()), [[at(3), elsewhere]]);
    }
}
