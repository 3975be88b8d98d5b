//! The socket or connection between a client and its server.

use std::io;
use std::net::SocketAddr;

use linux_net::{Epoll, Interest, UdpSocket};

use crate::connection::SharedConnection;

/// A socket that is connected to the server.
#[derive(Debug)]
pub enum Wire {
    /// Datagrams.
    Udp(UdpSocket),
    /// Messages over TCP, TLS or DTLS.
    Connection(SharedConnection),
}

impl Wire {
    /// Sends a message, or queues it until the connection is writable. Returns `false` when the
    /// queue is full.
    ///
    /// # Errors
    /// Over UDP the kernel refused it; else the connection is broken.
    pub fn send(&self, message: &[u8]) -> io::Result<bool> {
        match self {
            Self::Udp(socket) => match socket.send(message) {
                Ok(()) => Ok(true),
                Err(error) => Err(io::Error::other(format!("{error:?}"))),
            },
            Self::Connection(connection) => connection.lock().send(message),
        }
    }

    /// The local address.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        match self {
            Self::Udp(socket) => socket.local_addr(),
            Self::Connection(connection) => connection.lock().local_addr(),
        }
    }

    /// Registers the wire with an epoll. Connections are edge-triggered: read until nothing is
    /// there, which also writes the queue.
    ///
    /// # Errors
    /// The kernel's.
    pub fn watch(&self, epoll: &Epoll, token: u64) -> io::Result<()> {
        match self {
            Self::Udp(socket) => epoll.add(socket, token, Interest::Read),
            Self::Connection(connection) => {
                epoll.add(&*connection.lock(), token, Interest::Changes)
            }
        }
    }

    /// A second handle, for another thread.
    ///
    /// # Errors
    /// No descriptors left.
    pub fn share(&self) -> io::Result<Self> {
        match self {
            Self::Udp(socket) => socket.try_clone().map(Self::Udp),
            Self::Connection(connection) => Ok(Self::Connection(connection.clone())),
        }
    }

    /// The UDP socket of plain datagrams.
    ///
    /// # Errors
    /// `Unsupported` for a connection.
    pub fn into_udp(self) -> io::Result<UdpSocket> {
        match self {
            Self::Udp(socket) => Ok(socket),
            Self::Connection(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// A borrow of the UDP socket of plain datagrams.
    ///
    /// # Errors
    /// `Unsupported` for a connection.
    pub fn udp(&self) -> io::Result<&UdpSocket> {
        match self {
            Self::Udp(socket) => Ok(socket),
            Self::Connection(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }
}
