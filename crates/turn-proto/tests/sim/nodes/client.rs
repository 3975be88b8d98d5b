//! A client that behaves, more or less.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use netsim::{Body, Outbox, Packet, Rng};
use stun_wire::ChannelNumber;
use turn_client::{
    AllocateOptions, Client, EvenPort, Event as ClientEvent, Families, Incoming, RequestKind,
};
use turn_types::{Instant, IpFamily, Now, PeerAddr};

use super::payload::{is_whole, whole_payload};

/// Relayed addresses that clients tell each other.
pub type Board = Rc<RefCell<Vec<PeerAddr>>>;

const BOARD_MAX: usize = 8;

/// Client that mostly behaves: it allocates, talks, and changes its mind.
pub struct ClientNode {
    pub client: Client,
    me: SocketAddr,
    rng: Rng,
    peers: Vec<PeerAddr>,
    board: Board,
    ready: Vec<(PeerAddr, Option<ChannelNumber>)>,
    next: Instant,
    /// The longest pause between two actions.
    pause: Duration,
    /// Nothing corrupts or forges packets in this world.
    clean: bool,
    pub gone: bool,
    pub allocations: u32,
    pub received: u32,
    pub icmp: u32,
    pub violation: Option<String>,
}

/// The parts of a client.
pub struct ClientPlan {
    pub client: Client,
    pub me: SocketAddr,
    pub peers: Vec<PeerAddr>,
    pub board: Board,
    pub pause: Duration,
    pub clean: bool,
}

impl ClientNode {
    pub fn new(plan: ClientPlan, rng: Rng) -> Self {
        let ClientPlan { client, me, peers, board, pause, clean } = plan;
        Self {
            client,
            me,
            rng,
            peers,
            board,
            ready: Vec::new(),
            next: Instant::ZERO,
            pause,
            clean,
            gone: false,
            allocations: 0,
            received: 0,
            icmp: 0,
            violation: None,
        }
    }

    pub fn receive(&mut self, now: Now, packet: Packet, out: &mut Outbox) {
        let Body::Udp(datagram) = packet.body else { return };
        if packet.src != self.client.server().0 || packet.dst != self.me || self.gone {
            return;
        }
        match self.client.handle_datagram(now.instant, &datagram) {
            Incoming::Data { peer, payload, .. } => {
                self.received += 1;
                if self.clean && !is_whole(payload) {
                    self.violation = Some(format!("a client got a broken payload from {peer}"));
                }
            }
            Incoming::Icmp { .. } => self.icmp += 1,
            Incoming::Answer | Incoming::Ignored(_) => {}
        }
        self.flush(out);
    }

    pub fn wake(&mut self, now: Now, out: &mut Outbox) {
        if self.client.poll_timeout().is_some_and(|at| at <= now.instant) {
            self.client.handle_timeout(now.instant);
        }
        if self.next <= now.instant {
            self.next =
                now.instant + Duration::from_millis(1) + self.rng.duration_below(self.pause);
            self.act(now.instant, out);
        }
        self.flush(out);
    }

    pub fn next_wake(&self) -> Option<Instant> {
        let timeout = self.client.poll_timeout();
        (!self.gone).then(|| timeout.map_or(self.next, |timeout| timeout.min(self.next)))
    }

    /// Requests may be refused here for lack of space. The client tries again later.
    fn act(&mut self, now: Instant, out: &mut Outbox) {
        if self.client.allocation().is_none() {
            if self.rng.below(10) == 0 {
                let _ = self.client.binding(now);
            }
            let options = self.options();
            let _ = self.client.allocate(now, options);
            return;
        }
        let board = self.board.borrow();
        let peer = if !board.is_empty() && self.rng.below(6) == 0 {
            // Another client's relayed address: a packet that turns around in the server.
            board[self.rng.index(board.len())]
        } else {
            *self.rng.pick(&self.peers)
        };
        drop(board);
        match self.rng.below(40) {
            0 => {
                let _ = self.client.release(now);
            }
            1 => {
                let lifetime = self.rng.below(2_000) as u32;
                let half = *self.rng.pick(&[None, Some(IpFamily::V4), Some(IpFamily::V6)]);
                let _ = self.client.refresh(now, half, lifetime);
            }
            2..=5 => {
                let _ = self.client.permit(now, peer.ip());
            }
            6..=8 => {
                let _ = self.client.bind_channel(now, peer);
            }
            9 => self.client.forget_permission(now, peer.ip()),
            10 => self.talk(peer, None, out),
            _ => match self.ready.is_empty() {
                true => {
                    let _ = self.client.permit(now, peer.ip());
                }
                false => {
                    let (peer, channel) = *self.rng.pick(&self.ready);
                    self.talk(peer, channel, out);
                }
            },
        }
    }

    fn options(&mut self) -> AllocateOptions {
        let families = match self.rng.below(6) {
            0..=2 => Families::Unsaid,
            3 => Families::V4,
            4 => Families::V6,
            _ => Families::Both,
        };
        let even_port = match (self.rng.below(8), families) {
            (0, _) => Some(EvenPort::Even),
            (1, Families::Unsaid | Families::V4 | Families::V6) => {
                Some(EvenPort::EvenAndReserveNext)
            }
            _ => None,
        };
        let lifetime_secs = (self.rng.below(4) == 0).then(|| self.rng.within(0..3_000) as u32);
        AllocateOptions { families, even_port, lifetime_secs, ..AllocateOptions::default() }
    }

    fn talk(&mut self, peer: PeerAddr, channel: Option<ChannelNumber>, out: &mut Outbox) {
        let payload = whole_payload(&mut self.rng);
        let mut datagram = [0; 1_500];
        let len = match channel.filter(|_| self.rng.below(4) > 0) {
            Some(channel) => self.client.write_channel_data(&mut datagram, channel, &payload),
            None => {
                let dont_fragment = self.rng.below(8) == 0;
                self.client.write_send_indication(&mut datagram, peer, &payload, dont_fragment)
            }
        };
        let datagram = datagram[..len.expect("the buffer is large enough")].to_vec();
        out.send(Packet::udp(self.me, self.client.server().0, datagram));
    }

    fn flush(&mut self, out: &mut Outbox) {
        while let Some(request) = self.client.poll_transmit() {
            let request = request.to_vec();
            out.send(Packet::udp(self.me, self.client.server().0, request));
        }
        while let Some(event) = self.client.poll_event() {
            match event {
                ClientEvent::Allocated(allocation) => {
                    self.allocations += 1;
                    let relayed = allocation.relayed.into_iter().flatten();
                    let mut board = self.board.borrow_mut();
                    board.extend(relayed.map(|relayed| PeerAddr(relayed.0)));
                    let surplus = board.len().saturating_sub(BOARD_MAX);
                    board.drain(..surplus);
                }
                ClientEvent::PermissionReady { peer } => {
                    let board = self.board.borrow();
                    let known = self.peers.iter().chain(board.iter());
                    let of_ip = known.filter(|known| known.ip() == peer);
                    self.ready.extend(of_ip.map(|known| (*known, None)));
                }
                ClientEvent::ChannelReady { channel, peer } => {
                    self.ready.push((peer, Some(channel)));
                }
                ClientEvent::Refused { request: RequestKind::Allocate, .. }
                | ClientEvent::Failed { request: RequestKind::Allocate, .. } => {
                    // Perhaps the 5-tuple is taken (RFC 8656 §7.4): another port may do.
                    self.me.set_port(self.me.port().wrapping_add(1).max(1024));
                }
                ClientEvent::AllocationLost(_) | ClientEvent::Released => self.ready.clear(),
                ClientEvent::PermissionLost { peer } => {
                    self.ready.retain(|(known, channel)| known.ip() != peer || channel.is_some());
                }
                ClientEvent::ChannelLost { channel, .. } => {
                    self.ready.retain(|(_, known)| *known != Some(channel));
                }
                ClientEvent::Bound { .. }
                | ClientEvent::Refreshed { .. }
                | ClientEvent::Redirected { .. }
                | ClientEvent::Refused { .. }
                | ClientEvent::Failed { .. } => {}
            }
        }
    }
}
