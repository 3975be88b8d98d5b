//! A socket that clients talk to.

use std::io;
use std::net::{IpAddr, SocketAddr};

use linux_net::{Applied, Flow, Received, UdpOptions, UdpSocket};
use turn_types::{ClientAddr, ClientPath, FiveTuple, IpMeta, ServerAddr, SocketId, Transport};

use crate::NetOptions;
use crate::losses::Losses;
use crate::merging::Merging;
use crate::token::Token;

/// A listening socket of one worker.
#[derive(Debug)]
pub struct Listener {
    pub(crate) socket: UdpSocket,
    /// Bound to the unspecified address: each datagram says which address of ours it came to, and
    /// the answer leaves from that one.
    wildcard: bool,
    pub(crate) losses: Losses,
    pub(crate) merging: Merging,
}

impl Listener {
    /// Binds a listening socket, and says what the kernel granted of the options. Every worker
    /// binds the same address: the kernel spreads clients over them by their address and port.
    ///
    /// # Errors
    /// Whatever `bind` says; in particular that somebody who does not share has the port.
    pub fn bind(addr: SocketAddr, net: &NetOptions) -> io::Result<(Self, Applied)> {
        let wildcard = addr.ip().is_unspecified();
        let options = UdpOptions {
            reuse_port: true,
            recv_buffer: net.recv_buffer,
            send_buffer: net.send_buffer,
            gro: net.gro,
            packet_info: wildcard,
            // Nobody is told of clients that are gone; their allocations expire.
            error_queue: false,
        };
        let (socket, applied) = UdpSocket::bind(addr, &options)?;
        Ok((
            Self { socket, wildcard, losses: Losses::default(), merging: Merging::default() },
            applied,
        ))
    }

    /// The address the socket is bound to.
    #[must_use]
    pub const fn local_addr(&self) -> SocketAddr {
        self.socket.local_addr()
    }

    /// Whether datagrams to this address and port come here.
    pub(crate) fn hears_at(&self, at: ServerAddr) -> bool {
        let own = self.socket.local_addr();
        let fits =
            if self.wildcard { own.is_ipv4() == at.0.is_ipv4() } else { own.ip() == at.ip() };
        fits && own.port() == at.port()
    }

    /// Who sent a message, and to which address of ours.
    pub(crate) fn path(&self, id: SocketId, message: &Received<'_>) -> ClientPath {
        let mut server = self.socket.local_addr();
        if let Some(to) = message.to {
            server.set_ip(to);
        }
        ClientPath {
            five_tuple: FiveTuple {
                transport: Transport::Udp,
                client: ClientAddr(message.from),
                server: ServerAddr(server),
            },
            socket: id,
        }
    }

    /// The way to a client, from the address of ours that it talks to.
    pub(crate) fn flow(&self, id: SocketId, to: ClientAddr, from: IpAddr, meta: IpMeta) -> Flow {
        Flow {
            socket: Token::Listener(id).send_socket(),
            to: to.0,
            from: self.wildcard.then_some(from),
            meta,
        }
    }

    /// The way back along a path.
    pub(crate) fn flow_back(&self, path: &ClientPath) -> Flow {
        let FiveTuple { client, server, .. } = path.five_tuple;
        self.flow(path.socket, client, server.ip(), IpMeta::DEFAULT)
    }
}
