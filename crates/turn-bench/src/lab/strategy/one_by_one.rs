//! One packet per system call: `recvfrom`, `sendto`. The call that receives also waits.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd as _;

use crate::lab::protocol::{DATAGRAM_MAX, SessionId};
use crate::lab::relay::{LOOK_UP, Lane, Tally};

/// Relays to whom `client` says, until the lane says to stop.
pub(super) fn run(
    lane: &Lane,
    mut client: impl FnMut(SessionId) -> Option<SocketAddr>,
) -> io::Result<Tally> {
    let socket = UdpSocket::from(lane.socket.as_fd().try_clone_to_owned()?);
    socket.set_nonblocking(false)?;
    socket.set_read_timeout(Some(LOOK_UP))?;
    let mut datagram = [0; DATAGRAM_MAX];
    let mut tally = Tally::default();
    while lane.goes_on() {
        let len = match socket.recv_from(&mut datagram) {
            Ok((len, _peer)) => len,
            Err(error) if passes(error.kind()) => continue,
            Err(error) => return Err(error),
        };
        let datagram = &datagram[..len];
        let Some(to) = SessionId::split(datagram).and_then(|(id, _)| client(id)) else {
            tally.unknown += 1;
            continue;
        };
        match socket.send_to(datagram, to) {
            Ok(_) => tally.forwarded += 1,
            Err(_) => tally.refused += 1,
        }
    }
    Ok(tally)
}

/// Nothing came in time, a signal did, or a client is gone.
const fn passes(error: ErrorKind) -> bool {
    matches!(
        error,
        ErrorKind::WouldBlock
            | ErrorKind::TimedOut
            | ErrorKind::Interrupted
            | ErrorKind::ConnectionRefused
    )
}
