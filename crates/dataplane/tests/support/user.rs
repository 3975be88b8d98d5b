//! TURN client with a socket.

use std::net::{IpAddr, SocketAddr};

use linux_net::Clock;
use stun_wire::{ChannelNumber, Icmp};
use turn_client::{AllocateOptions, Client, ClientConfig, Event, Families, Incoming};
use turn_types::{Instant, IpFamily, IpMeta, PeerAddr, ServerAddr};

use super::end::End;
use super::{PASSWORD, USER};

pub(crate) struct TurnUser {
    pub(crate) end: End,
    pub(crate) client: Client,
    server: SocketAddr,
}

/// Data of a peer, as received by the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Heard {
    pub(crate) peer: PeerAddr,
    pub(crate) channel: Option<ChannelNumber>,
    pub(crate) payload: Vec<u8>,
    pub(crate) meta: IpMeta,
}

impl TurnUser {
    /// Returns a client at an address of this host.
    pub(crate) fn at(ip: IpAddr, server: SocketAddr) -> Self {
        Self::named(USER, ip, server)
    }

    pub(crate) fn named(name: &str, ip: IpAddr, server: SocketAddr) -> Self {
        let config = ClientConfig::new(ServerAddr(server), name, PASSWORD, [3; 32]);
        Self { end: End::at(ip), client: Client::new(config), server }
    }

    /// Returns a client with an allocation.
    pub(crate) fn allocated(ip: IpAddr, server: SocketAddr) -> Self {
        Self::allocated_with(Families::Unsaid, ip, server)
    }

    pub(crate) fn allocated_with(families: Families, ip: IpAddr, server: SocketAddr) -> Self {
        let mut user = Self::at(ip, server);
        let event = user.allocate(families);
        assert!(matches!(event, Event::Allocated(_)), "{event:?}");
        user
    }

    /// Returns the relayed address of this family.
    pub(crate) fn relayed(&self, family: IpFamily) -> SocketAddr {
        self.client.allocation().unwrap().relayed_of(family).unwrap().0
    }

    pub(crate) const fn server(&self) -> SocketAddr {
        self.server
    }

    /// Requests an allocation and returns the result.
    pub(crate) fn allocate(&mut self, families: Families) -> Event {
        let options = AllocateOptions { families, ..AllocateOptions::default() };
        self.client.allocate(now(), options).unwrap();
        self.next_event()
    }

    pub(crate) fn permit(&mut self, peer: IpAddr) {
        self.client.permit(now(), peer).unwrap();
        self.wait_for(&Event::PermissionReady { peer });
    }

    pub(crate) fn bind_channel(&mut self, peer: SocketAddr) -> ChannelNumber {
        let peer = PeerAddr(peer);
        let channel = self.client.bind_channel(now(), peer).unwrap();
        self.wait_for(&Event::ChannelReady { channel, peer });
        channel
    }

    /// Releases the allocation.
    pub(crate) fn release(&mut self) {
        self.client.release(now()).unwrap();
        self.wait_for(&Event::Released);
    }

    /// Sends payloads through a channel in one call.
    pub(crate) fn say(&mut self, channel: ChannelNumber, payloads: &[&[u8]], meta: IpMeta) {
        let framed: Vec<Vec<u8>> = payloads
            .iter()
            .map(|payload| {
                let mut out = vec![0; payload.len() + 4];
                self.client.write_channel_data(&mut out, channel, payload).unwrap();
                out
            })
            .collect();
        let framed: Vec<&[u8]> = framed.iter().map(|bytes| &bytes[..]).collect();
        self.end.send_burst(self.server, &framed, meta);
    }

    /// Sends a Send indication.
    pub(crate) fn indicate(&mut self, peer: SocketAddr, payload: &[u8], meta: IpMeta) {
        let mut out = vec![0; payload.len() + 64];
        let peer = PeerAddr(peer);
        let len = self.client.write_send_indication(&mut out, peer, payload, false).unwrap();
        self.end.send_burst(self.server, &[&out[..len]], meta);
    }

    /// Receives the next datagram from a peer.
    pub(crate) fn hear(&mut self) -> Heard {
        let datagram = self.end.receive();
        match self.client.handle_datagram(now(), &datagram.bytes) {
            Incoming::Data { peer, payload, channel } => {
                Heard { peer, channel, payload: payload.to_vec(), meta: datagram.meta }
            }
            other @ (Incoming::Icmp { .. } | Incoming::Answer | Incoming::Ignored(_)) => {
                panic!("{other:?}")
            }
        }
    }

    /// Receives the next report of an ICMP error.
    pub(crate) fn hear_icmp(&mut self) -> (PeerAddr, Icmp) {
        let datagram = self.end.receive();
        match self.client.handle_datagram(now(), &datagram.bytes) {
            Incoming::Icmp { peer, icmp } => (peer, icmp),
            other @ (Incoming::Data { .. } | Incoming::Answer | Incoming::Ignored(_)) => {
                panic!("{other:?}")
            }
        }
    }

    /// Sends the only waiting request, and returns the response.
    pub(crate) fn exchange(&mut self) -> Vec<u8> {
        let request = self.client.poll_transmit().unwrap();
        self.end.send(self.server, request);
        self.end.receive().bytes
    }

    /// Exchanges requests and responses until the event `wanted`. For a channel, the event of the
    /// permission may be reported first.
    pub(crate) fn wait_for(&mut self, wanted: &Event) {
        loop {
            let event = self.next_event();
            if event == *wanted {
                return;
            }
            assert!(matches!(event, Event::PermissionReady { .. }), "{event:?}");
        }
    }

    /// Exchanges requests and responses until the next event.
    pub(crate) fn next_event(&mut self) -> Event {
        loop {
            while let Some(bytes) = self.client.poll_transmit() {
                self.end.send(self.server, bytes);
            }
            if let Some(event) = self.client.poll_event() {
                return event;
            }
            let datagram = self.end.receive();
            assert_eq!(datagram.from, self.server, "answers come from where requests went");
            assert_eq!(self.client.handle_datagram(now(), &datagram.bytes), Incoming::Answer);
        }
    }
}

pub(crate) fn now() -> Instant {
    Clock::now().instant
}
