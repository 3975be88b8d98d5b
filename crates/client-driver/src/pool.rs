//! Many clients on one epoll, for setting up and tearing down.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;

use linux_net::{Clock, Epoll, Events, RxBatch, SocketError};
use turn_client::Event;
use turn_types::Instant;

use crate::connection::RECEIVE_BYTES;
use crate::link::Link;
use crate::wire::Wire;

/// Events taken per wait.
const EVENTS: usize = 256;

/// Datagrams taken from one socket per turn; setting up brings fewer.
const DATAGRAMS: usize = 4;

/// Event of a client or its socket.
#[derive(Debug)]
pub enum PoolEvent {
    /// Event of the client.
    Client(Event),
    /// ICMP: the server is unreachable.
    Unreachable(SocketError),
    /// The connection failed, with the reason.
    Broken(String),
}

/// Clients, their sockets and their timers.
pub struct Pool {
    links: Vec<Link>,
    /// Deadline of each client, as last entered into `timers`.
    due: Vec<Option<Instant>>,
    /// The earliest is on top. Entries that differ from `due` are stale.
    timers: BinaryHeap<Reverse<(Instant, usize)>>,
    epoll: Epoll,
    events: Events,
    rx: RxBatch,
    /// Receive buffer of connections.
    buffer: Vec<u8>,
}

impl Pool {
    /// A pool without clients.
    ///
    /// # Errors
    /// No descriptors left.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            links: Vec::new(),
            due: Vec::new(),
            timers: BinaryHeap::new(),
            epoll: Epoll::new()?,
            events: Events::new(EVENTS),
            rx: RxBatch::new(DATAGRAMS),
            buffer: vec![0; RECEIVE_BYTES],
        })
    }

    /// Adds a client and sends its pending requests.
    ///
    /// # Errors
    /// The kernel's.
    pub fn add(&mut self, link: Link) -> io::Result<()> {
        let index = self.links.len();
        link.wire.watch(&self.epoll, index as u64)?;
        self.links.push(link);
        self.due.push(None);
        self.send(index);
        Ok(())
    }

    /// The clients, in the order they were added.
    #[must_use]
    pub fn into_links(self) -> Vec<Link> {
        self.links
    }

    /// Sends the pending requests of a client and notes its deadline.
    fn send(&mut self, index: usize) {
        let link = &mut self.links[index];
        link.send();
        let due = link.client.poll_timeout();
        if self.due[index] != due {
            self.due[index] = due;
            self.timers.extend(due.map(|due| Reverse((due, index))));
        }
    }

    /// Waits for datagrams and timers, at most until `until`, and passes events to `tell` with the
    /// place of their client.
    ///
    /// # Errors
    /// The kernel's, where it is no client's.
    pub fn turn(
        &mut self,
        until: Instant,
        mut tell: impl FnMut(usize, PoolEvent),
    ) -> io::Result<()> {
        let next = self.timers.peek().map_or(until, |Reverse((due, _))| until.min(*due));
        let patience = next.saturating_since(Clock::instant());
        self.epoll.wait(&mut self.events, Some(patience))?;
        let ready: Vec<_> = self.events.iter().collect();
        for event in ready {
            let index = event.token as usize;
            if let Wire::Udp(socket) = &self.links[index].wire {
                if event.error {
                    socket.recv_errors(|error| {
                        if error.icmp.is_some() {
                            tell(index, PoolEvent::Unreachable(error));
                        }
                    })?;
                }
                if !event.readable {
                    continue;
                }
            }
            if let Err(why) = self.receive(index)? {
                tell(index, PoolEvent::Broken(why.to_string()));
            }
            self.settle(index, &mut tell);
        }
        let now = Clock::instant();
        while let Some(&Reverse((due, index))) = self.timers.peek()
            && due <= now
        {
            self.timers.pop();
            if self.due[index] == Some(due) {
                self.due[index] = None;
                self.links[index].client.handle_timeout(now);
                self.settle(index, &mut tell);
            }
        }
        Ok(())
    }

    /// Receives all that is there; the inner error is that of a broken connection.
    fn receive(&mut self, index: usize) -> io::Result<io::Result<()>> {
        let Link { wire, client } = &mut self.links[index];
        match wire {
            Wire::Udp(socket) => {
                let count = self.rx.recv(socket)?;
                let now = Clock::instant();
                for message in 0..count {
                    for (_, datagram) in self.rx.message(message).segments() {
                        client.handle_datagram(now, datagram);
                    }
                }
                Ok(Ok(()))
            }
            Wire::Connection(connection) => {
                let now = Clock::instant();
                let mut connection = connection.lock();
                Ok(connection.receive_all(&mut self.buffer, |message| {
                    client.handle_datagram(now, message);
                }))
            }
        }
    }

    fn settle(&mut self, index: usize, tell: &mut impl FnMut(usize, PoolEvent)) {
        self.send(index);
        while let Some(event) = self.links[index].client.poll_event() {
            tell(index, PoolEvent::Client(event));
        }
    }
}
