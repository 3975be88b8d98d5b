//! Batches of datagrams to the server, one at a time.

use std::ops::Range;

use control::{Leg, Series};
use linux_net::{RxBatch, UdpSocket};
use turn_proto::{DropReason, Verdict};
use turn_session::dtls::is_dtls;
use turn_types::{Now, PeerAddr, RelayId, SocketId};

use crate::dtls::Aside;
use crate::egress::{Back, Datagram, Ways};
use crate::fast_path::Handing;
use crate::limits::{HANDED_AT_ONCE, HANDED_BYTES_AT_ONCE, MESSAGES_PER_RECEIVE};
use crate::losses::Losses;
use crate::merging::InARow;
use crate::observe::{Observer, Trouble};
use crate::worker::Worker;

impl Worker {
    /// Takes one batch from a listening socket; false when it has nothing more.
    pub(crate) fn receive_from_clients(&mut self, id: SocketId) -> bool {
        self.make_room_to_receive();
        let Some(listener) = self.sockets.listener(id) else { return false };
        let now = self.now;
        let mut intake = Intake { rx: &mut self.rx, observer: &mut self.observer, now };
        let messages = intake.receive(Leg::FromClients, &listener.socket, &listener.losses);
        let more = messages.len() == MESSAGES_PER_RECEIVE;
        let mut in_a_row = InARow::default();
        for index in messages {
            let message = self.rx.message(index);
            let path = listener.path(id, &message);
            let back = listener.flow_back(&path);
            for (start, packet) in message.segments() {
                if message.truncated {
                    self.egress.dropped(DropReason::Truncated);
                    continue;
                }
                self.egress.make_room(&self.rx, &self.sockets);
                let reply = self.egress.reply_buffer();
                let verdict = self.server.handle_client(now, &path, message.meta, packet, reply);
                let datagram = Datagram { message: index, start, len: packet.len() };
                if matches!(verdict, Verdict::ToPeer { .. }) {
                    in_a_row.relayed(message.from);
                }
                if verdict == Verdict::Drop(DropReason::NotStun)
                    && self.dtls.is_some()
                    && is_dtls(packet)
                {
                    self.aside.push(Aside { listener: id, datagram });
                    continue;
                }
                self.egress.client_packet(verdict, datagram, (&self.sockets, Back::Datagram(back)));
            }
        }
        listener.merging.received(now.instant, in_a_row.datagrams(), &listener.socket);
        self.settle(now);
        self.serve_dtls();
        more
    }

    /// Takes one batch from a relay socket; false when it has nothing more.
    pub(crate) fn receive_from_peers(&mut self, relay: RelayId) -> bool {
        self.make_room_to_receive();
        // For TCP, or closed since it was reported.
        let Some(socket) = self.sockets.relay(relay) else {
            self.accept_peers(relay);
            return false;
        };
        let now = self.now;
        let before = self.rx.stats().datagrams;
        let mut intake = Intake { rx: &mut self.rx, observer: &mut self.observer, now };
        let messages = intake.receive(Leg::FromPeers, &socket.socket, &socket.losses);
        let came = self.rx.stats().datagrams - before;
        socket.merging.received(now.instant, came, &socket.socket);
        let more = messages.len() == MESSAGES_PER_RECEIVE;
        for index in messages {
            let message = self.rx.message(index);
            let peer = PeerAddr(message.from);
            self.fast_path.came_by_socket(relay, message.from);
            for (start, packet) in message.segments() {
                if message.truncated {
                    self.egress.dropped(DropReason::Truncated);
                    continue;
                }
                self.egress.make_room(&self.rx, &self.sockets);
                let len = packet.len();
                let header = self.egress.header_buffer();
                let verdict = self.server.handle_peer(now, relay, peer, message.meta, len, header);
                let datagram = Datagram { message: index, start, len };
                let ways = Ways {
                    sockets: &self.sockets,
                    streams: &mut self.streams,
                    associations: &mut self.associations,
                };
                self.egress.peer_packet(verdict, datagram, &self.rx, ways);
            }
        }
        self.settle(now);
        more
    }
}

impl Worker {
    /// Takes what the kernel hands over: datagrams of peers for clients with connections, which did not
    /// come by their relay sockets. False when there is nothing more.
    pub(crate) fn receive_handed(&mut self) -> bool {
        let now = self.now;
        let (mut datagrams, mut bytes) = (0, 0);
        let Some((ring, known)) = self.fast_path.handed() else { return false };
        let mut is_full = false;
        while !is_full && let Some(handed) = ring.next() {
            let payload = handed.payload();
            datagrams += 1;
            bytes += payload.len() as u64;
            is_full = datagrams >= HANDED_AT_ONCE || bytes >= HANDED_BYTES_AT_ONCE;
            // One that is gone had its route withdrawn while this one waited.
            let Some(Handing { relay, relayed, peer }) = known.get(&handed.flow_cookie()).copied()
            else {
                self.egress.dropped(DropReason::RelayClosed);
                continue;
            };
            if !handed.is_intact(peer, relayed) {
                self.egress.dropped(DropReason::Checksum);
                continue;
            }
            self.egress.make_room(&self.rx, &self.sockets);
            let (meta, header) = (handed.meta(), self.egress.header_buffer());
            let (peer, len) = (PeerAddr(peer), payload.len());
            let verdict = self.server.handle_peer(now, relay, peer, meta, len, header);
            let ways = Ways {
                sockets: &self.sockets,
                streams: &mut self.streams,
                associations: &mut self.associations,
            };
            self.egress.peer_bytes(verdict, payload, &self.rx, ways);
        }
        if !is_full {
            self.fast_path.ring_is_empty();
        }
        if datagrams > 0 {
            self.observer.count(Series::Offloaded(Leg::FromPeers), datagrams);
            self.observer.count(Series::OffloadedBytes(Leg::FromPeers), bytes);
            self.settle(now);
        }
        is_full
    }
}

/// What a batch is received with.
struct Intake<'a> {
    rx: &'a mut RxBatch,
    observer: &'a mut Observer,
    now: Now,
}

impl Intake<'_> {
    /// Receives one batch, counts it, and returns which messages it has.
    fn receive(&mut self, leg: Leg, socket: &UdpSocket, losses: &Losses) -> Range<usize> {
        let Self { rx, observer, now } = self;
        let (datagrams, bytes) = (rx.stats().datagrams, rx.stats().bytes);
        let messages = rx.recv_more(socket, MESSAGES_PER_RECEIVE).unwrap_or_else(|error| {
            observer.count(Series::ReceiveErrors, 1);
            observer.warn(now.instant, Trouble::Receive, &error);
            0..0
        });
        observer.count(Series::Packets(leg), rx.stats().datagrams - datagrams);
        observer.count(Series::Bytes(leg), rx.stats().bytes - bytes);
        // The last knows of all that were lost before it.
        let lost = messages.clone().last().map_or(0, |last| {
            let message = rx.message(last);
            losses.since(message.kernel_drops)
        });
        if lost > 0 {
            observer.count(Series::KernelDrops, lost);
            observer.warn(now.instant, Trouble::KernelDrops, &format_args!("{lost} lost"));
        }
        messages
    }
}
