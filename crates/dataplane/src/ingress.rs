//! Batches of datagrams to the server, one at a time.

use control::{Leg, Series};
use linux_net::{Clock, Received, RxBatch, UdpSocket};
use turn_proto::DropReason;
use turn_types::{PeerAddr, RelayId, SocketId};

use crate::egress::Datagram;
use crate::limits::MESSAGES_PER_RECEIVE;
use crate::losses::Losses;
use crate::observe::{Observer, Trouble};
use crate::worker::Worker;

impl Worker {
    /// Takes one batch from a listening socket; false when it has nothing more.
    pub(crate) fn receive_from_clients(&mut self, id: SocketId) -> bool {
        let Some(listener) = self.sockets.listener(id) else { return false };
        let messages = receive(&mut self.rx, &listener.socket, &mut self.observer);
        let now = Clock::now();
        for index in 0..messages {
            let message = self.rx.message(index);
            let path = listener.path(id, &message);
            let back = listener.flow_back(&path);
            count(&mut self.observer, Leg::FromClients, &message, &listener.losses);
            for (start, packet) in message.segments() {
                if message.truncated {
                    self.egress.dropped(DropReason::Truncated);
                    continue;
                }
                self.egress.make_room(&self.rx, &self.sockets);
                let reply = self.egress.reply_buffer();
                let verdict = self.server.handle_client(now, &path, message.marks, packet, reply);
                let datagram = Datagram { message: index, start, len: packet.len() };
                self.egress.client_packet(verdict, datagram, back);
            }
        }
        self.settle(now);
        messages == MESSAGES_PER_RECEIVE
    }

    /// Takes one batch from a relay socket.
    pub(crate) fn receive_from_peers(&mut self, relay: RelayId) {
        // Closed since it was reported.
        let Some(socket) = self.sockets.relay(relay) else { return };
        let messages = receive(&mut self.rx, &socket.socket, &mut self.observer);
        let now = Clock::now();
        for index in 0..messages {
            let message = self.rx.message(index);
            let peer = PeerAddr(message.from);
            count(&mut self.observer, Leg::FromPeers, &message, &socket.losses);
            for (start, packet) in message.segments() {
                if message.truncated {
                    self.egress.dropped(DropReason::Truncated);
                    continue;
                }
                self.egress.make_room(&self.rx, &self.sockets);
                let len = packet.len();
                let header = self.egress.header_buffer();
                let verdict = self.server.handle_peer(now, relay, peer, message.marks, len, header);
                let datagram = Datagram { message: index, start, len };
                self.egress.peer_packet(verdict, datagram, &self.sockets);
            }
        }
        self.settle(now);
    }
}

/// Receives one batch, and returns how many messages it has.
fn receive(rx: &mut RxBatch, socket: &UdpSocket, observer: &mut Observer) -> usize {
    rx.recv(socket).unwrap_or_else(|error| {
        observer.count(Series::ReceiveErrors, 1);
        observer.warn(Clock::now().instant, Trouble::Receive, &error);
        0
    })
}

fn count(observer: &mut Observer, leg: Leg, message: &Received<'_>, losses: &Losses) {
    observer.count(Series::Packets(leg), message.segments().count() as u64);
    observer.count(Series::Bytes(leg), message.data.len() as u64);
    let lost = losses.since(message.kernel_drops);
    if lost > 0 {
        observer.count(Series::KernelDrops, lost);
        observer.warn(Clock::now().instant, Trouble::KernelDrops, &format_args!("{lost} lost"));
    }
}
