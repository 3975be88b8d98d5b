//! Relayed addresses of clients whose connections could not leave a predecessor.
//!
//! This process reserves the addresses until the end of the predecessor, which closes a socket pair
//! of the hand-over. No other client can get a reserved address; clients here can use it as a peer.

use std::collections::BTreeMap;
use std::io;

use linux_net::Interest;
use turn_proto::{HeldAddress, Server};
use turn_types::{RelayProtocol, RelayedAddr};

use crate::inheritance::StayingAddresses;
use crate::io::{ConduitIo as _, Net, Source};
use crate::token::Token;

/// Predecessors, oldest first; `None` after exit.
#[derive(Debug)]
pub(crate) struct EarlierProcesses<N: Net>(Vec<Option<Process<N>>>);

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

impl<N: Net> Default for EarlierProcesses<N> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<N: Net> EarlierProcesses<N> {
    /// Builds the list of predecessors, oldest first.
    pub(crate) fn new(staying: Vec<StayingAddresses<N::Conduit>>) -> Self {
        let process = |StayingAddresses { addresses, conduit }| {
            Some(Process { conduit, addresses, held: BTreeMap::new() })
        };
        Self(staying.into_iter().map(process).collect())
    }

    /// Watches for the end of these processes.
    ///
    /// # Errors
    /// No memory left for epoll.
    pub(crate) fn watch(&self, net: &N) -> io::Result<()> {
        for (index, process) in (0..).zip(&self.0) {
            if let Some(Process { conduit, .. }) = process {
                let token = Token::Earlier(index).number();
                net.watch(Source::Conduit(conduit), token, Interest::Read)?;
            }
        }
        Ok(())
    }

    /// Holds the addresses that allocations of these processes have, as far as they are free here.
    pub(crate) fn hold_addresses(&mut self, server: &Server) {
        for Process { addresses, held, .. } in self.0.iter_mut().flatten() {
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
        let Some(Some(Process { conduit, .. })) = self.0.get(process) else { return };
        if conduit.receive(room).is_err() {
            drop(self.end(net, process));
        }
    }

    /// Forgets all: the next process has them, and the descriptors would be reported as long as
    /// that has them. Returns the addresses that are held here.
    pub(crate) fn leave(&mut self, net: &N) -> Vec<HeldAddress> {
        let processes = 0..self.0.len();
        processes.flat_map(|process| self.end(net, process).into_values()).collect()
    }

    /// A process is gone, or another's. Returns its addresses, which are free without them.
    fn end(&mut self, net: &N, process: usize) -> BTreeMap<RelayedAddr, HeldAddress> {
        let Some(gone) = self.0.get_mut(process).and_then(Option::take) else {
            return BTreeMap::new();
        };
        net.unwatch(Source::Conduit(&gone.conduit));
        gone.held
    }

    /// Copies them for the next process.
    ///
    /// # Errors
    /// No descriptors left.
    pub(crate) fn copies(&self) -> io::Result<Vec<StayingAddresses<N::Conduit>>> {
        let processes = self.0.iter().flatten();
        let copy = |Process { conduit, addresses, .. }: &Process<N>| {
            Ok(StayingAddresses { addresses: addresses.clone(), conduit: conduit.copy()? })
        };
        processes.map(copy).collect()
    }
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

    /// Builds a predecessor with these addresses, which lives as long as the first value.
    fn process(net: &Kernel, hosts: &[u8]) -> (Conduit, StayingAddresses<Conduit>) {
        let (own, conduit) = net.conduits().unwrap();
        let addresses = hosts.iter().map(|host| (at(*host), RelayProtocol::Udp)).collect();
        (own, StayingAddresses { addresses, conduit })
    }

    fn hosts(staying: &[StayingAddresses<Conduit>]) -> Vec<Vec<RelayedAddr>> {
        let addresses =
            |one: &StayingAddresses<Conduit>| one.addresses.iter().map(|(at, _)| *at).collect();
        staying.iter().map(addresses).collect()
    }

    /// Serves what is ready; returns the number of events.
    fn serve(net: &mut Kernel, earlier: &mut EarlierProcesses<Kernel>) -> usize {
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
        let (first, staying) = process(&net, &[3, 5]);
        let (second, also_staying) = process(&net, &[8]);
        let mut earlier = EarlierProcesses::<Kernel>::new(vec![staying, also_staying]);
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
        let (own, staying) = process(&net, &[3]);
        let mut earlier = EarlierProcesses::<Kernel>::new(vec![staying]);
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
    fn addresses_of_no_relay_here_go_to_the_next_process() {
        let (_waker, wake) = Waker::new().unwrap();
        let (net, server) = (Kernel::new(wake).unwrap(), server());
        let (_own, mut staying) = process(&net, &[3]);
        let elsewhere = RelayedAddr("198.51.100.1:50000".parse().unwrap());
        staying.addresses.push((elsewhere, RelayProtocol::Udp));
        let mut earlier = EarlierProcesses::<Kernel>::new(vec![staying]);
        earlier.hold_addresses(&server);
        assert_eq!(held(&server), [3]);
        assert_eq!(hosts(&earlier.copies().unwrap()), [[at(3), elsewhere]]);
    }
}
