//! Numbers for sockets that are never reused.

use linux_net::SendSocket;
use turn_types::{ConnectionId, RelayId, SocketId};

use crate::streams::is_stream;

/// What a number given to epoll, or to a transmit batch, stands for.
///
/// A relay's number is its [`RelayId`], which no other relay will ever have: a late event or
/// datagram of a closed relay finds nothing, and never its successor. It listens for TCP or carries UDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Token {
    /// The relay socket.
    Relay(RelayId),
    /// The listening socket.
    Listener(SocketId),
    /// A client's connection.
    Stream(SocketId),
    /// The socket that connections come to, by its place.
    Acceptor(u32),
    /// A connection with a peer.
    Peer(ConnectionId),
    /// What the kernel hands over.
    Ring,
    /// The mailbox has something.
    Wake,
}

/// Set in every number that is not a relay's. Relays are counted from zero, and would need
/// centuries to reach it.
const NOT_A_RELAY: u64 = 1 << 63;

/// No socket's: places of acceptors are small.
const RING: u64 = u64::MAX - 1;

/// Set in the numbers of sockets that connections come to.
const ACCEPTOR: u64 = 1 << 62;

/// Set in the numbers of connections with peers.
const PEER: u64 = 1 << 61;

impl Token {
    pub(crate) const fn number(self) -> u64 {
        match self {
            Self::Relay(RelayId(number)) => {
                debug_assert!(number & NOT_A_RELAY == 0);
                number
            }
            Self::Listener(SocketId(number)) | Self::Stream(SocketId(number)) => {
                NOT_A_RELAY | number as u64
            }
            Self::Acceptor(place) => NOT_A_RELAY | ACCEPTOR | place as u64,
            Self::Peer(ConnectionId(number)) => NOT_A_RELAY | PEER | number as u64,
            Self::Ring => RING,
            Self::Wake => u64::MAX,
        }
    }

    pub(crate) const fn of(number: u64) -> Self {
        if number == u64::MAX {
            Self::Wake
        } else if number == RING {
            Self::Ring
        } else if number & NOT_A_RELAY == 0 {
            Self::Relay(RelayId(number))
        } else if number & ACCEPTOR != 0 {
            Self::Acceptor(number as u32)
        } else if number & PEER != 0 {
            Self::Peer(ConnectionId(number as u32))
        } else if is_stream(SocketId(number as u32)) {
            Self::Stream(SocketId(number as u32))
        } else {
            Self::Listener(SocketId(number as u32))
        }
    }

    pub(crate) const fn send_socket(self) -> SendSocket {
        SendSocket(self.number())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_token_reads_back() {
        for token in [
            Token::Relay(RelayId(0)),
            Token::Relay(RelayId(NOT_A_RELAY - 1)),
            Token::Listener(SocketId(0)),
            Token::Listener(SocketId(u32::MAX >> 1)),
            Token::Stream(SocketId(1 << 31)),
            Token::Stream(SocketId(u32::MAX)),
            Token::Acceptor(0),
            Token::Peer(ConnectionId(0)),
            Token::Peer(ConnectionId(u32::MAX)),
            Token::Acceptor(u32::MAX >> 1),
            Token::Ring,
            Token::Wake,
        ] {
            assert_eq!(Token::of(token.number()), token);
        }
    }
}
