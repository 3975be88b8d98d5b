//! What joins a client and its server: a UDP socket, or a connection.

use std::io;
use std::net::SocketAddr;

use linux_net::{Epoll, Interest, UdpSocket};

use super::stream::SharedStream;

/// A socket that is connected to the server.
#[derive(Debug)]
pub enum Wire {
    /// Datagrams.
    Udp(UdpSocket),
    /// A stream, over TCP or in TLS.
    Stream(SharedStream),
}

impl Wire {
    /// Hands a message to the kernel, or keeps it until the connection takes it; whether it did.
    ///
    /// # Errors
    /// Over UDP the kernel did not take it; over a stream the connection is broken.
    pub fn send(&self, message: &[u8]) -> io::Result<bool> {
        match self {
            Self::Udp(socket) => match socket.send(message) {
                Ok(()) => Ok(true),
                Err(error) => Err(io::Error::other(format!("{error:?}"))),
            },
            Self::Stream(stream) => stream.lock().send(message),
        }
    }

    /// The address that the server sees, if no NAT is between.
    pub(crate) fn local_addr(&self) -> SocketAddr {
        match self {
            Self::Udp(socket) => socket.local_addr(),
            Self::Stream(stream) => stream.lock().local_addr(),
        }
    }

    /// Has this set of descriptors tell what comes. Of streams each change is told once: whoever hears
    /// it reads until nothing is there, which also writes what waits.
    pub(crate) fn watch(&self, epoll: &Epoll, token: u64) -> io::Result<()> {
        match self {
            Self::Udp(socket) => epoll.add(socket, token, Interest::Read),
            Self::Stream(stream) => epoll.add(&*stream.lock(), token, Interest::Changes),
        }
    }

    /// A second handle, for another thread.
    pub(crate) fn share(&self) -> io::Result<Self> {
        match self {
            Self::Udp(socket) => socket.try_clone().map(Self::Udp),
            Self::Stream(stream) => Ok(Self::Stream(stream.clone())),
        }
    }

    /// The socket of datagrams.
    ///
    /// # Errors
    /// It is a stream.
    pub(crate) fn into_udp(self) -> io::Result<UdpSocket> {
        match self {
            Self::Udp(socket) => Ok(socket),
            Self::Stream(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// As [`Wire::into_udp`], to be looked at.
    pub(crate) fn udp(&self) -> io::Result<&UdpSocket> {
        match self {
            Self::Udp(socket) => Ok(socket),
            Self::Stream(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }
}
