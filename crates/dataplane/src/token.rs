//! Numbers of sockets, for readiness and for sending.

use linux_net::SendSocket;
use turn_types::{ConnectionId, RelayId, SocketId};

/// Source of readiness, or socket for sending.
///
/// The number of a relay socket is the [`RelayId`], which is never reused. So a late event or
/// datagram of a closed relay socket cannot reach another relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Token {
    /// Relay socket: a UDP socket or a TCP listener.
    Relay(RelayId),
    /// UDP listener.
    Listener(SocketId),
    /// Client's TCP connection.
    Stream(SocketId),
    /// Listening TCP socket, by index.
    Acceptor(u32),
    /// TCP connection with a peer.
    Peer(ConnectionId),
    /// Ring of the kernel path.
    Ring,
}

/// Bit of every number that does not belong to a relay socket. Relays are numbered from zero, and
/// would reach this bit after centuries.
const NOT_A_RELAY: u64 = 1 << 63;

/// Number of the ring. No other token has this number, because indices of acceptors are small.
const RING: u64 = u64::MAX - 1;

/// Bit in the numbers of acceptors.
const ACCEPTOR: u64 = 1 << 62;

/// Bit in the numbers of connections with peers.
const PEER: u64 = 1 << 61;

/// Highest bit in the [`SocketId`] of a client's TCP connection. The ids of listeners are small.
pub(crate) const STREAM: u32 = 1 << 31;

/// Highest bit in the [`SocketId`] of a DTLS session.
pub(crate) const DTLS_SESSION: u32 = 1 << 30;

/// Returns true for a client's TCP connection.
pub(crate) const fn is_stream(id: SocketId) -> bool {
    id.0 & STREAM != 0
}

/// Returns true for a DTLS session.
pub(crate) const fn is_dtls_session(id: SocketId) -> bool {
    id.0 >> DTLS_SESSION.trailing_zeros() == 1
}

/// Returns true for a client that is not reached by plain datagrams.
pub(crate) const fn has_connection(id: SocketId) -> bool {
    is_stream(id) || is_dtls_session(id)
}

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
            Self::Acceptor(index) => NOT_A_RELAY | ACCEPTOR | index as u64,
            Self::Peer(ConnectionId(number)) => NOT_A_RELAY | PEER | number as u64,
            Self::Ring => RING,
        }
    }

    pub(crate) const fn of(number: u64) -> Self {
        if number == RING {
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
        ] {
            assert_eq!(Token::of(token.number()), token);
        }
    }

    #[test]
    fn kinds_of_clients_are_told_apart() {
        let kinds = |id| (is_stream(SocketId(id)), is_dtls_session(SocketId(id)));
        assert_eq!(
            [3, STREAM | 3, DTLS_SESSION | 3].map(kinds),
            [(false, false), (true, false), (false, true)]
        );
        assert!(!is_dtls_session(SocketId(u32::MAX)));
    }
}
