//! What joins a client and its server: a UDP socket, or a connection.

use std::io;
use std::net::SocketAddr;

use linux_net::{Epoll, Interest, UdpSocket};

use super::connection::SharedConnection;

/// A socket that is connected to the server.
#[derive(Debug)]
pub enum Wire {
    /// Datagrams.
    Udp(UdpSocket),
    /// Messages of a stream, over TCP or in TLS, or of a DTLS association.
    Connection(SharedConnection),
}

impl Wire {
    /// Hands a message to the kernel, or keeps it until the connection takes it; whether it did.
    ///
    /// # Errors
    /// Over UDP the kernel did not take it; else the connection is broken.
    pub fn send(&self, message: &[u8]) -> io::Result<bool> {
        match self {
            Self::Udp(socket) => match socket.send(message) {
                Ok(()) => Ok(true),
                Err(error) => Err(io::Error::other(format!("{error:?}"))),
            },
            Self::Connection(connection) => connection.lock().send(message),
        }
    }

    /// The address that the server sees, if no NAT is between.
    pub(crate) fn local_addr(&self) -> SocketAddr {
        match self {
            Self::Udp(socket) => socket.local_addr(),
            Self::Connection(connection) => connection.lock().local_addr(),
        }
    }

    /// Has this set of descriptors tell what comes. Of connections each change is told once: whoever
    /// hears it reads until nothing is there, which also writes what waits.
    pub(crate) fn watch(&self, epoll: &Epoll, token: u64) -> io::Result<()> {
        match self {
            Self::Udp(socket) => epoll.add(socket, token, Interest::Read),
            Self::Connection(connection) => {
                epoll.add(&*connection.lock(), token, Interest::Changes)
            }
        }
    }

    /// A second handle, for another thread.
    pub(crate) fn share(&self) -> io::Result<Self> {
        match self {
            Self::Udp(socket) => socket.try_clone().map(Self::Udp),
            Self::Connection(connection) => Ok(Self::Connection(connection.clone())),
        }
    }

    /// The socket of plain datagrams.
    ///
    /// # Errors
    /// It is a connection.
    pub(crate) fn into_udp(self) -> io::Result<UdpSocket> {
        match self {
            Self::Udp(socket) => Ok(socket),
            Self::Connection(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// As [`Wire::into_udp`], to be looked at.
    pub(crate) fn udp(&self) -> io::Result<&UdpSocket> {
        match self {
            Self::Udp(socket) => Ok(socket),
            Self::Connection(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }
}
