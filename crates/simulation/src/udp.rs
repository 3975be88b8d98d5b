//! State of a simulated UDP socket: its receive buffer and error queue.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};

use linux_net::SocketError;

/// Datagrams that a receive buffer holds; more are lost and counted.
const BUFFERED_MAX: usize = 64;

/// Errors that an error queue holds.
const ERRORS_MAX: usize = 16;

/// State of one socket, shared by the host and the worker.
#[derive(Debug)]
pub(crate) struct UdpState {
    pub(crate) local: SocketAddr,
    pub(crate) shared: bool,
    received: VecDeque<(SocketAddr, IpAddr, Vec<u8>)>,
    errors: VecDeque<SocketError>,
    pub(crate) lost: u32,
    pub(crate) coalesce: bool,
}

impl UdpState {
    pub(crate) fn new(local: SocketAddr, shared: bool, coalesce: bool) -> Self {
        let (received, errors) = (VecDeque::new(), VecDeque::new());
        Self { local, shared, received, errors, lost: 0, coalesce }
    }

    /// Puts a datagram into the receive buffer.
    pub(crate) fn deliver(&mut self, from: SocketAddr, to: IpAddr, bytes: Vec<u8>) {
        if self.received.len() < BUFFERED_MAX {
            self.received.push_back((from, to, bytes));
        } else {
            self.lost = self.lost.wrapping_add(1);
        }
    }

    /// Puts an error into the error queue.
    pub(crate) fn deliver_error(&mut self, error: SocketError) {
        if self.errors.len() < ERRORS_MAX {
            self.errors.push_back(error);
        }
    }

    pub(crate) fn is_readable(&self) -> bool {
        !self.received.is_empty()
    }

    pub(crate) fn has_errors(&self) -> bool {
        !self.errors.is_empty()
    }

    /// Takes the error queue.
    pub(crate) fn take_errors(&mut self) -> VecDeque<SocketError> {
        std::mem::take(&mut self.errors)
    }

    /// Takes the next message: with coalescing, all following datagrams of its sender and size.
    pub(crate) fn take(&mut self) -> Option<(SocketAddr, IpAddr, usize, Vec<u8>)> {
        let (from, to, mut bytes) = self.received.pop_front()?;
        let size = bytes.len();
        while self.coalesce
            && size > 0
            && bytes.len() + size < 60_000
            && self
                .received
                .front()
                .is_some_and(|(other, at, next)| *other == from && *at == to && next.len() == size)
        {
            let (.., next) = self.received.pop_front()?;
            bytes.extend(next);
        }
        Some((from, to, size, bytes))
    }
}
