//! TURN client with a connection.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::AsFd as _;

use stun_wire::{ChannelNumber, Cut, next_message};
use turn_client::{AllocateOptions, Client, ClientConfig, Event, Incoming};
use turn_types::{PeerAddr, ServerAddr, Transport};

use super::user::now;
use super::{PASSWORD, PATIENCE, USER};

pub(crate) struct StreamUser {
    pub(crate) socket: TcpStream,
    pub(crate) client: Client,
    unread: Vec<u8>,
}

impl StreamUser {
    /// Returns a connected client.
    pub(crate) fn connect(server: SocketAddr) -> Self {
        Self::over(TcpStream::connect(server).unwrap(), server)
    }

    /// Returns a client connected from an address of this host.
    pub(crate) fn connect_from(address: [u8; 4], server: SocketAddr) -> Self {
        let local = Some(SocketAddr::from((address, 0)));
        let options = linux_net::ConnectOptions { local, ..Default::default() };
        let socket = linux_net::TcpStream::connect_to(server, &options).unwrap();
        let socket = TcpStream::from(socket.as_fd().try_clone_to_owned().unwrap());
        socket.set_nonblocking(false).unwrap();
        Self::over(socket, server)
    }

    fn over(socket: TcpStream, server: SocketAddr) -> Self {
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.set_write_timeout(Some(PATIENCE)).unwrap();
        socket.set_nodelay(true).unwrap();
        let config = ClientConfig {
            transport: Transport::Tcp,
            ..ClientConfig::new(ServerAddr(server), USER, PASSWORD, [3; 32])
        };
        Self { socket, client: Client::new(config), unread: Vec::new() }
    }

    /// Returns a client with an allocation.
    pub(crate) fn allocated(server: SocketAddr) -> Self {
        let mut user = Self::connect(server);
        user.allocate();
        user
    }

    pub(crate) fn allocate(&mut self) {
        self.client.allocate(now(), AllocateOptions::default()).unwrap();
        let event = self.next_event();
        assert!(matches!(event, Event::Allocated(_)), "{event:?}");
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.socket.local_addr().unwrap()
    }

    pub(crate) fn relayed(&self) -> SocketAddr {
        self.client.allocation().unwrap().relayed_of(turn_types::IpFamily::V4).unwrap().0
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

    pub(crate) fn write(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).unwrap();
    }

    /// Reads the next message without padding. Returns `None` after the server has closed the
    /// connection.
    pub(crate) fn read(&mut self) -> Option<Vec<u8>> {
        loop {
            match next_message(&self.unread) {
                Cut::Message { len, padded_len } => {
                    let mut message: Vec<u8> = self.unread.drain(..padded_len).collect();
                    assert!(message[len..].iter().all(|byte| *byte == 0), "{message:?}");
                    message.truncate(len);
                    return Some(message);
                }
                Cut::Garbage => panic!("{:?}", self.unread),
                Cut::NeedMore { .. } => {}
            }
            let mut buffer = [0; 65_536];
            match self.socket.read(&mut buffer).unwrap() {
                0 => return None,
                len => self.unread.extend_from_slice(&buffer[..len]),
            }
        }
    }

    /// Receives the next data of a peer, and returns the data with the channel.
    pub(crate) fn hear(&mut self) -> (Option<ChannelNumber>, Vec<u8>) {
        let message = self.read().unwrap();
        match self.client.handle_datagram(now(), &message) {
            Incoming::Data { payload, channel, .. } => (channel, payload.to_vec()),
            other @ (Incoming::Icmp { .. } | Incoming::Answer | Incoming::Ignored(_)) => {
                panic!("{other:?}")
            }
        }
    }

    fn wait_for(&mut self, wanted: &Event) {
        loop {
            let event = self.next_event();
            if event == *wanted {
                return;
            }
            assert!(matches!(event, Event::PermissionReady { .. }), "{event:?}");
        }
    }

    fn next_event(&mut self) -> Event {
        loop {
            while let Some(bytes) = self.client.poll_transmit() {
                self.socket.write_all(bytes).unwrap();
            }
            if let Some(event) = self.client.poll_event() {
                return event;
            }
            let message = self.read().unwrap();
            // Data may arrive between the messages.
            let _ = self.client.handle_datagram(now(), &message);
        }
    }
}

/// Returns ChannelData in the padded form for streams.
pub(crate) fn framed(channel: ChannelNumber, data: &[u8]) -> Vec<u8> {
    let number = channel.get().to_be_bytes();
    let len = u16::try_from(data.len()).unwrap().to_be_bytes();
    let padding = &[0; 3][..data.len().next_multiple_of(4) - data.len()];
    [&number, &len, data, padding].concat()
}
