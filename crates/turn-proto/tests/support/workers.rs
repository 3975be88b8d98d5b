//! Workers of a server, with clients that move between them (RFC 8016).

use std::net::SocketAddr;
use std::sync::Arc;

use stun_wire::{AttributeType, Method};
use turn_proto::{Command, Departure, Event, Fetch, Policy, Renamed};
use turn_types::{ClientPath, RelayId, RelayedAddr, SocketId, Transport, WorkerId};

use super::*;

/// Workers of a server, and the messages between them.
pub struct Workers {
    pub worlds: [World; 3],
    /// No message passes.
    pub parted: bool,
}

impl Workers {
    pub fn new() -> Self {
        let policy = Policy { mobility: true, ..policy() };
        let registry = Arc::new(TestRegistry::default());
        let worlds = [0, 1, 2].map(|id| {
            let mut world = World::worker(WorkerId(id), policy.clone(), Arc::clone(&registry));
            world.is_shared = true;
            world
        });
        Self { worlds, parted: false }
    }

    /// Delivers messages between workers until none remains, as the data plane does. Returns the
    /// responses to clients, by worker.
    pub fn exchange(&mut self) -> Vec<(usize, ClientPath, Vec<u8>)> {
        let answers = self.exchange_unchecked();
        self.check();
        answers
    }

    /// Delivers messages between workers while an allocation is on its way.
    pub fn exchange_unchecked(&mut self) -> Vec<(usize, ClientPath, Vec<u8>)> {
        let mut answers = Vec::new();
        while let Some((at, command)) = self.next_command() {
            let answered = match command {
                Command::AskWorker { worker, question } => {
                    let answer = if self.parted {
                        question.unanswered()
                    } else {
                        let other = &mut self.worlds[usize::from(worker.0)];
                        let answer = other.server.answer_worker(other.now, *question);
                        other.carry_out();
                        answer
                    };
                    assert_eq!(answer.asker(), WorkerId(at as u16));
                    self.hand_in(at, Event::WorkerAnswered(Box::new(answer)))
                }
                Command::Fetch { worker, fetch } => self.fetch(usize::from(worker.0), fetch),
                Command::HandOver(fetch) => self.fetch(at, fetch),
                other => panic!("{other:?}"),
            };
            answers.extend(answered);
        }
        answers
    }

    pub fn next_command(&mut self) -> Option<(usize, Command)> {
        let at = self.worlds.iter().position(|world| !world.outgoing.is_empty())?;
        Some((at, self.worlds[at].outgoing.remove(0)))
    }

    fn fetch(&mut self, from: usize, fetch: Fetch) -> Vec<(usize, ClientPath, Vec<u8>)> {
        let to = usize::from(fetch.asker.0);
        let other = &mut self.worlds[from];
        if self.parted || !other.server.withdraw(other.now, &fetch) {
            return self.hand_in(to, Event::FetchFailed(fetch));
        }
        let parcel = self.depart(from, &fetch);
        self.arrive(to, parcel)
    }

    /// An allocation leaves a worker, with its relay sockets.
    pub fn depart(
        &mut self,
        from: usize,
        fetch: &Fetch,
    ) -> (Departure, Vec<(RelayId, RelayedAddr)>) {
        let other = &mut self.worlds[from];
        assert!(other.server.withdraw(other.now, fetch));
        other.carry_out();
        let departure = other.server.depart(fetch).unwrap();
        let sockets = departure
            .relays()
            .map(|relay| (relay, other.sockets.remove(&relay).unwrap()))
            .collect();
        (departure, sockets)
    }

    pub fn arrive(
        &mut self,
        to: usize,
        (departure, sockets): (Departure, Vec<(RelayId, RelayedAddr)>),
    ) -> Vec<(usize, ClientPath, Vec<u8>)> {
        let world = &mut self.worlds[to];
        for Renamed { from, to: name } in
            world.server.arrive(world.now, departure).into_iter().flatten()
        {
            let (_, at) = sockets.iter().find(|(relay, _)| *relay == from).unwrap();
            world.sockets.insert(name, *at);
        }
        let answers = world.carry_out();
        answers.into_iter().map(|(path, bytes)| (to, path, bytes)).collect()
    }

    pub fn hand_in(&mut self, at: usize, event: Event) -> Vec<(usize, ClientPath, Vec<u8>)> {
        let world = &mut self.worlds[at];
        let first = world.handle_event(event);
        let more = world.carry_out();
        first.into_iter().chain(more).map(|(path, bytes)| (at, path, bytes)).collect()
    }

    /// Ports and quotas belong to live allocations, at any worker.
    pub fn check(&self) {
        let sockets: usize = self.worlds.iter().map(|world| world.sockets.len()).sum();
        let live: usize = self.worlds.iter().map(|world| world.server.allocation_count()).sum();
        let used: u32 = self.worlds[0].policy.relay.iter().map(|relay| relay.ports.used()).sum();
        assert_eq!(used as usize, sockets);
        assert_eq!(self.worlds[0].registry.0.lock().unwrap().allocations() as usize, live);
    }

    /// A request to one worker, and the answer, after all messages between workers.
    pub fn ask(&mut self, at: usize, client: &Client, request: &[u8]) -> Reply {
        let bytes = match self.worlds[at].from_client(&client.path, request) {
            Fate::Reply(bytes) => bytes,
            Fate::Wait | Fate::Queued => {
                let answers = self.exchange();
                let [(worker, path, bytes)] = answers.as_slice() else { panic!("{answers:?}") };
                assert_eq!((*worker, path), (at, &client.path));
                bytes.clone()
            }
            other => panic!("{other:?}"),
        };
        client.decode(request, bytes)
    }

    pub fn refresh_by(&mut self, at: usize, client: &mut Client, ticket: &[u8]) -> Reply {
        let request = client.sealed(&mut self.worlds[at], Method::REFRESH, |b| {
            b.mobility_ticket(ticket);
        });
        self.ask(at, client, &request)
    }

    pub fn advance(&mut self, by: u64) {
        assert!(self.advance_and_hear(by).is_empty());
    }

    /// Advances the time, and returns the responses to requests that this completes.
    pub fn advance_and_hear(&mut self, by: u64) -> Vec<(usize, ClientPath, Vec<u8>)> {
        for world in &mut self.worlds {
            world.advance(secs(by));
        }
        self.exchange()
    }

    /// Which worker has the allocation, and where a peer's datagram goes.
    pub fn heard_at(&mut self, relayed: SocketAddr) -> (usize, u16) {
        let at = self.worlds.iter().position(|world| world.is_open(relayed)).unwrap();
        match self.worlds[at].from_peer(relayed, PEER, b"to the client") {
            Fate::ToClient { to, .. } => (at, to.port()),
            other => panic!("{other:?}"),
        }
    }
}

pub fn ticket_of(reply: &Reply) -> Vec<u8> {
    reply.first(AttributeType::MOBILITY_TICKET).unwrap().to_vec()
}

/// A client with a channel at worker 0, and the same client at worker 1 with the next ticket.
pub struct Moving {
    pub workers: Workers,
    pub old: Client,
    pub new: Client,
    pub relayed: SocketAddr,
    pub ticket: Vec<u8>,
}

impl Moving {
    pub fn over(transport: Transport) -> Self {
        let mut workers = Workers::new();
        let mut old = Client::new(1000).over(transport);
        let reply = old.try_allocate(&mut workers.worlds[0], |b| {
            b.mobility_ticket(&[]);
        });
        let reply = reply.success();
        let (relayed, ticket) = (reply.relayed()[0], ticket_of(&reply));
        old.use_channel(&mut workers.worlds[0], 0x4000, PEER);
        let mut new = Client::new(2000).over(transport);
        new.path.socket = SocketId(9);
        let ticket = ticket_of(&workers.refresh_by(1, &mut new, &ticket).success());
        Self { workers, old, new, relayed, ticket }
    }

    pub fn new() -> Self {
        Self::over(Transport::Udp)
    }

    /// Sends data from the new 5-tuple until the allocation is there.
    pub fn arrive(&mut self) {
        self.new.send_channel(&mut self.workers.worlds[1], 0x4000, b"x").queued();
        self.workers.exchange();
        let sent = std::mem::take(&mut self.workers.worlds[1].after_queue);
        assert_eq!(sent, [Ok((peer(PEER), b"x".to_vec()))]);
        self.new.send_channel(&mut self.workers.worlds[1], 0x4000, b"y").to_peer();
    }
}
