//! Many clients on one epoll, as long as nothing but setting up goes on.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;

use linux_net::{Clock, Epoll, Events, RxBatch, SocketError};
use turn_client::Event;
use turn_types::Instant;

use super::connection::RECEIVE_BYTES;
use super::link::Link;
use super::wire::Wire;

/// Events taken per wait.
const EVENTS: usize = 256;

/// Datagrams taken from one socket before the next has its turn; more than setting up brings.
const DATAGRAMS: usize = 4;

/// Something a client, or its socket, has to tell.
#[derive(Debug)]
pub(crate) enum Notice {
    /// The client's own word.
    Client(Event),
    /// The network said that the server cannot be reached.
    Unreachable(SocketError),
    /// The connection is broken, or was never made: why.
    Broken(String),
}

/// Clients, their sockets and their timers.
pub(crate) struct Fleet {
    links: Vec<Link>,
    /// When each client wants to be called, as last entered into `timers`.
    due: Vec<Option<Instant>>,
    /// The first to be called is on top. Entries that `due` does not confirm are out of date.
    timers: BinaryHeap<Reverse<(Instant, usize)>>,
    epoll: Epoll,
    events: Events,
    rx: RxBatch,
    /// For what connections bring.
    buffer: Vec<u8>,
}

impl Fleet {
    pub(crate) fn new() -> io::Result<Self> {
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

    /// Takes a client in and sends what it has to send already.
    pub(crate) fn add(&mut self, link: Link) -> io::Result<()> {
        let index = self.links.len();
        link.wire.watch(&self.epoll, index as u64)?;
        self.links.push(link);
        self.due.push(None);
        self.send(index);
        Ok(())
    }

    /// The clients, in the order they came.
    pub(crate) fn into_links(self) -> Vec<Link> {
        self.links
    }

    /// Sends what a client wants to send, and notes when it wants to be called.
    pub(crate) fn send(&mut self, index: usize) {
        let link = &mut self.links[index];
        link.send();
        let due = link.client.poll_timeout();
        if self.due[index] != due {
            self.due[index] = due;
            self.timers.extend(due.map(|due| Reverse((due, index))));
        }
    }

    /// Waits for datagrams and timers, until `until` at the longest, and tells what comes of them.
    pub(crate) fn turn(
        &mut self,
        until: Instant,
        mut tell: impl FnMut(usize, Notice),
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
                            tell(index, Notice::Unreachable(error));
                        }
                    })?;
                }
                if !event.readable {
                    continue;
                }
            }
            if let Err(why) = self.receive(index)? {
                tell(index, Notice::Broken(why.to_string()));
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

    /// Takes what is there; within, what a connection is broken by.
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

    fn settle(&mut self, index: usize, tell: &mut impl FnMut(usize, Notice)) {
        self.send(index);
        while let Some(event) = self.links[index].client.poll_event() {
            tell(index, Notice::Client(event));
        }
    }
}
