//! Input of connections and crowded relays, within the time limit of an iteration.

use std::mem;

use turn_types::{ConnectionId, RelayId, SocketId};

use super::Worker;
use crate::input_queue::InputSource;
use crate::io::Net;
use crate::limits::{INPUT_PER_CONNECTION, SOCKETS_SENT_EARLY, WAITING_REPORTED};
use crate::sockets::RelaySocket;
use crate::stream::ReadNext;
use crate::tcp_relay::Readiness;

impl<N: Net> Worker<N> {
    /// Reads connections and crowded relays while this iteration has time. If some sources wait
    /// already, all sources are queued and served in the queue's order.
    pub(super) fn serve_input(&mut self) {
        let some_wait = !self.cx.input.is_empty();
        for index in 0.. {
            let Some(id) = self.ready.readable(index) else { break };
            if some_wait || !self.cx.input.has_time(&self.cx.net) {
                self.streams.postpone(&mut self.cx, id);
            } else {
                self.read_stream(id);
            }
        }
        for index in 0.. {
            let Some((id, mut readiness)) = self.ready.peer(index) else { break };
            let Self { cx, streams, tcp_relay, .. } = self;
            let waits = readiness.readable && (some_wait || !cx.input.has_time(&cx.net));
            readiness.readable &= !(waits && tcp_relay.postpone(cx, streams, id));
            self.serve_peer(id, readiness);
        }
        for index in 0.. {
            let Some(relay) = self.ready.crowded(index) else { break };
            if some_wait || !self.cx.input.has_time(&self.cx.net) {
                self.cx.postpone_relay(relay);
            } else {
                self.read_crowded(relay);
            }
            if !self.ready.is_full() && (index + 1).is_multiple_of(SOCKETS_SENT_EARLY) {
                self.send_gathered();
            }
        }
        self.serve_postponed(if some_wait { self.cx.input.len() } else { 0 });
    }

    /// Serves up to `number` sources of the queue, each once, while this iteration has time.
    fn serve_postponed(&mut self, number: usize) {
        let mut has_output = false;
        for _ in 0..number {
            if !self.cx.input.has_time(&self.cx.net) {
                break;
            }
            let Some((source, client)) = self.cx.input.pop() else { break };
            let started = self.cx.net.instant();
            match source {
                InputSource::Stream(id) => {
                    if self.streams.take_postponed(id) {
                        self.reread_stream(id);
                        has_output = true;
                    }
                }
                InputSource::Peer(id) => {
                    if self.tcp_relay.take_postponed(id) {
                        self.serve_peer(id, Readiness { readable: true, writable: false });
                    }
                }
                InputSource::Relay(relay) => {
                    if mem::take(&mut has_output) {
                        // Responses to other clients do not wait for a crowd.
                        self.send_gathered();
                    }
                    if self.cx.sockets.take_postponed_relay(&self.cx.net, relay) {
                        self.read_crowded(relay);
                    }
                }
            }
            let time = self.cx.net.instant().saturating_since(started);
            self.cx.input.served(self.cx.now.instant, client, time);
        }
        while let Some(source) = self.cx.input.pop_added() {
            match source {
                InputSource::Stream(id) => self.streams.ignore_postponed(&mut self.cx, id),
                InputSource::Relay(relay) if self.cx.input.len() > WAITING_REPORTED => {
                    self.cx.sockets.ignore_postponed_relay(&self.cx.net, relay);
                }
                InputSource::Relay(_) => {}
                // Not read while the connection waits in the queue.
                InputSource::Peer(_) => {}
            }
        }
        let Self { cx, streams, tcp_relay, .. } = self;
        let (input, sockets) = (&mut cx.input, &cx.sockets);
        input.remove_closed(|source| match *source {
            InputSource::Stream(id) => streams.waits(id),
            InputSource::Peer(id) => tcp_relay.waits(id),
            InputSource::Relay(relay) => sockets.relay(relay).is_some_and(RelaySocket::waits),
        });
    }

    /// Receives one batch at a crowded relay.
    fn read_crowded(&mut self, relay: RelayId) {
        let before = self.cx.rx.stats().bytes;
        self.receive_from_relay(relay);
        let bytes = self.cx.rx.stats().bytes - before;
        self.cx.input.spend_read(&self.cx.net, 0, bytes as usize);
    }

    fn serve_peer(&mut self, id: ConnectionId, readiness: Readiness) {
        let Self { cx, streams, tcp_relay, .. } = self;
        if let Some(event) = tcp_relay.serve(cx, streams, id, readiness) {
            self.hand_in(event);
        }
        self.settle();
    }

    /// Reads a client's connection: once, or repeatedly while TLS has more data.
    fn read_stream(&mut self, id: SocketId) {
        let most = self.cx.input.spent() + INPUT_PER_CONNECTION;
        let mut next = ReadNext::Again;
        while next != ReadNext::Wait && self.cx.input.spent() < most {
            self.make_room_to_receive();
            next = match self.streams.receive(&mut self.cx, id) {
                ReadNext::Pipe(connection) => {
                    let Self { cx, streams, tcp_relay, .. } = self;
                    tcp_relay.read_client(cx, streams, id, connection)
                }
                next @ (ReadNext::Wait | ReadNext::Again) => next,
            };
            self.settle();
        }
        if next == ReadNext::Wait {
            self.streams.served(&mut self.cx, id);
        } else {
            self.streams.postpone(&mut self.cx, id);
        }
    }

    /// Reads the connections that may have buffered bytes, which epoll does not report.
    pub(super) fn serve_rereads(&mut self) {
        let Self { cx, streams, tcp_relay, .. } = self;
        tcp_relay.resume(cx, streams);
        let some_wait = !self.cx.input.is_empty();
        for id in self.streams.take_rereads() {
            if some_wait || !self.cx.input.has_time(&self.cx.net) {
                self.streams.postpone(&mut self.cx, id);
            } else {
                self.reread_stream(id);
            }
        }
    }

    fn reread_stream(&mut self, id: SocketId) {
        self.make_room_to_receive();
        self.streams.serve_partial(&mut self.cx, id);
        self.settle();
        self.read_stream(id);
    }
}
