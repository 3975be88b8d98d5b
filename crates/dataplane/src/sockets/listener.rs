//! UDP listener: a socket for datagrams from clients.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU32;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use linux_net::{Applied, Flow, OPTION_SET, Received, UdpOptions, UdpSocket};
use state_format::fields;
use turn_types::{ClientAddr, ClientPath, FiveTuple, IpMeta, ServerAddr, SocketId, Transport};

use super::gro::GroPolicy;
use super::losses::Losses;
use crate::io::{Kernel, Net, UdpIo};
use crate::limits::RELAY_BUFFER_MAX;
use crate::token::Token;

/// Maximum interface index of the kernel, used as the index of no interface. The kernel numbers
/// interfaces from 1.
const NO_INTERFACE: NonZeroU32 = NonZeroU32::new(i32::MAX as u32).expect("it is not 0");

/// Options of all sockets.
#[derive(Clone, Debug)]
pub struct NetOptions {
    /// Receive coalescing (UDP GRO).
    pub gro: bool,
    /// Segmentation offload of sent datagrams (UDP GSO).
    pub gso: bool,
    /// Receive buffer of each socket in bytes. 0 selects the system's default.
    pub recv_buffer: usize,
    /// Send buffer of each socket in bytes. 0 selects the system's default.
    pub send_buffer: usize,
    /// Index of the only interface for clients. `None` for all interfaces.
    pub device: Option<NonZeroU32>,
    /// Interface of the peers. `None` for all interfaces.
    pub relay_device: Option<DeviceIndex>,
}

/// Index of an interface that may appear and disappear. Clones share the index.
#[derive(Clone, Debug, Default)]
pub struct DeviceIndex(Arc<AtomicU32>);

impl DeviceIndex {
    /// Creates an index. `None` if the host lacks the interface.
    #[must_use]
    pub fn new(index: Option<NonZeroU32>) -> Self {
        let device = Self::default();
        device.set(index);
        device
    }

    /// Changes the index for sockets that are opened afterwards.
    pub fn set(&self, index: Option<NonZeroU32>) {
        self.0.store(index.map_or(0, NonZeroU32::get), Ordering::Relaxed);
    }

    /// Returns the current index.
    ///
    /// # Errors
    /// `AddrNotAvailable`: the host lacks the interface.
    fn get(&self) -> io::Result<NonZeroU32> {
        let index = NonZeroU32::new(self.0.load(Ordering::Relaxed));
        index.ok_or_else(|| io::ErrorKind::AddrNotAvailable.into())
    }
}

impl Default for NetOptions {
    /// Returns options with GRO, GSO, and the system's default buffers.
    fn default() -> Self {
        Self {
            gro: true,
            gso: true,
            recv_buffer: 0,
            send_buffer: 0,
            device: None,
            relay_device: None,
        }
    }
}

/// Settings of the relay sockets of a process. A successor with equal settings does not set any
/// option again, because each call would lengthen the pause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RelaySettings {
    /// [`OPTION_SET`]. 0 matches no process.
    pub option_set: u32,
    /// Receive buffer in bytes.
    pub recv_buffer: u64,
    /// Send buffer in bytes.
    pub send_buffer: u64,
}

fields!(RelaySettings { 1 => option_set, 2 => recv_buffer, 3 => send_buffer });

impl NetOptions {
    /// Returns the settings of the relay sockets of this process.
    #[must_use]
    pub fn relay_settings(&self) -> RelaySettings {
        let UdpOptions { recv_buffer, send_buffer, .. } = self.of_relay();
        RelaySettings {
            option_set: OPTION_SET,
            recv_buffer: recv_buffer as u64,
            send_buffer: send_buffer as u64,
        }
    }

    /// Returns the interface of relay sockets. `None` means all interfaces.
    ///
    /// # Errors
    /// `AddrNotAvailable`: the host lacks the interface.
    pub(crate) fn relay_interface(&self) -> io::Result<Option<NonZeroU32>> {
        self.relay_device.as_ref().map(DeviceIndex::get).transpose()
    }

    /// Returns the options of a relay socket. While the host lacks the interface of relays, the
    /// socket is bound to an index without an interface. An unbound socket would send through all
    /// interfaces.
    pub(crate) fn of_relay(&self) -> UdpOptions {
        UdpOptions {
            reuse_port: false,
            recv_buffer: self.recv_buffer.min(RELAY_BUFFER_MAX),
            send_buffer: self.send_buffer.min(RELAY_BUFFER_MAX),
            // Enabled later, when coalescing is worth the cost.
            gro: false,
            packet_info: false,
            error_queue: true,
            device: self.relay_interface().unwrap_or(Some(NO_INTERFACE)),
            free: false,
            adapts: true,
        }
    }

    /// Returns the options of a socket that relays share.
    pub(crate) fn of_shared_relays(&self) -> UdpOptions {
        UdpOptions {
            // The detached socket of a moving allocation is bound to an address of this socket.
            reuse_port: true,
            recv_buffer: self.recv_buffer,
            send_buffer: self.send_buffer,
            packet_info: true,
            free: true,
            // The socket sends datagrams of many clients, and for a short time of two processes.
            adapts: false,
            ..self.of_relay()
        }
    }

    /// Returns the options of a listener at this address.
    fn of_listener(&self, at: SocketAddr) -> UdpOptions {
        UdpOptions {
            reuse_port: true,
            recv_buffer: self.recv_buffer,
            send_buffer: self.send_buffer,
            gro: self.gro,
            packet_info: at.ip().is_unspecified(),
            // ICMP errors about clients have no effect: the clients' allocations expire.
            error_queue: false,
            device: self.device,
            // The host may not have the address yet.
            free: true,
            adapts: false,
        }
    }
}

/// Listening UDP socket of one worker.
#[derive(Debug)]
pub struct Listener<N: Net = Kernel> {
    pub(crate) socket: N::Udp,
    /// True if bound to the unspecified address. Then each datagram reports a destination address,
    /// and the answer is sent from that address.
    wildcard: bool,
    pub(crate) losses: Losses,
    pub(crate) gro: GroPolicy,
}

impl Listener {
    /// Binds a listening socket, and returns the options that the kernel granted. Every worker
    /// binds the same address, and the kernel distributes clients by address and port.
    ///
    /// # Errors
    /// The errors of `bind` are returned, in particular if a socket without `SO_REUSEPORT` has the
    /// port.
    pub fn bind(addr: SocketAddr, net: &NetOptions) -> io::Result<(Self, Applied)> {
        let options = net.of_listener(addr);
        let (socket, applied) = UdpSocket::bind(addr, &options)?;
        let mut listener = Self::over(socket);
        if !applied.gro {
            listener.gro = GroPolicy::off(false);
        }
        Ok((listener, applied))
    }

    /// Adopts a listening socket of another process at this address.
    ///
    /// # Errors
    /// Turnpike could not have bound this socket at this address.
    pub fn inherit(fd: OwnedFd, addr: SocketAddr, net: &NetOptions) -> io::Result<Self> {
        inherit_at(fd, addr, &net.of_listener(addr)).map(Self::over)
    }

    /// Returns the address of the socket.
    #[must_use]
    pub const fn local_addr(&self) -> SocketAddr {
        self.socket.local_addr()
    }

    /// Returns the index of the socket's interface, or `None` for an unbound socket.
    #[must_use]
    pub fn device(&self) -> Option<NonZeroU32> {
        self.socket.device().ok().flatten()
    }
}

/// Adopts the socket of another process at this address.
pub(super) fn inherit_at(
    fd: OwnedFd,
    at: SocketAddr,
    options: &UdpOptions,
) -> io::Result<UdpSocket> {
    let socket = UdpSocket::from_fd(fd, options)?;
    if socket.local_addr() != at {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it has another address"));
    }
    Ok(socket)
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl<N: Net> Listener<N> {
    /// Creates a listener from a bound socket.
    #[must_use]
    pub fn over(socket: N::Udp) -> Self {
        let wildcard = socket.local_addr().ip().is_unspecified();
        Self { socket, wildcard, losses: Losses::default(), gro: GroPolicy::default() }
    }

    /// Returns true if the listener receives datagrams to this address and port.
    pub(crate) fn receives_at(&self, at: ServerAddr) -> bool {
        let own = self.socket.local_addr();
        let fits =
            if self.wildcard { own.is_ipv4() == at.0.is_ipv4() } else { own.ip() == at.ip() };
        fits && own.port() == at.port()
    }

    /// Returns the 5-tuple of a received message.
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

    /// Returns the flow to a client, from the server address of the client's 5-tuple.
    pub(crate) fn flow(&self, id: SocketId, to: ClientAddr, from: IpAddr, meta: IpMeta) -> Flow {
        Flow {
            socket: Token::Listener(id).send_socket(),
            to: to.0,
            from: self.wildcard.then_some(from),
            meta,
        }
    }

    /// Returns the flow in the reverse direction of a path.
    pub(crate) fn flow_back(&self, path: &ClientPath) -> Flow {
        let FiveTuple { client, server, .. } = path.five_tuple;
        self.flow(path.socket, client, server.ip(), IpMeta::DEFAULT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relay_sockets_of_an_absent_interface_use_no_other() {
        let device = DeviceIndex::new(None);
        let net = NetOptions { relay_device: Some(device.clone()), ..NetOptions::default() };
        assert_eq!(net.of_relay().device, Some(NO_INTERFACE));
        assert_eq!(net.of_shared_relays().device, Some(NO_INTERFACE));
        assert!(net.relay_interface().is_err());
        let index = NonZeroU32::new(7);
        device.set(index);
        assert_eq!(net.of_relay().device, index);
        assert_eq!(NetOptions::default().of_relay().device, None);
    }
}
