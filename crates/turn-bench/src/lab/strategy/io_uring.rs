//! One multishot receive into buffers that the kernel takes by itself, and sends that are submitted
//! together: one system call for many packets each way. Each packet goes through the kernel's UDP,
//! IP and device layers for itself.

use std::io::{self, ErrorKind};
use std::os::fd::AsFd as _;

use lab_net::UringUdp;

use crate::lab::protocol::SessionId;
use crate::lab::relay::{LOOK_UP, Lane, Tally};
use crate::lab::sessions::OwnSessions;

/// Buffers of the ring. More of them fall out of the cache.
const BUFFERS: usize = 256;

pub(super) fn run(lane: &Lane, mut sessions: OwnSessions) -> io::Result<Tally> {
    let mut ring = UringUdp::new(
        std::net::UdpSocket::from(lane.socket.as_fd().try_clone_to_owned()?),
        BUFFERS,
    )?;
    let mut unknown = 0;
    while lane.goes_on() {
        sessions.read_mail();
        ring.turn(LOOK_UP, |datagram| {
            let client = SessionId::split(datagram).and_then(|(id, _)| sessions.client(id));
            unknown += u64::from(client.is_none());
            client
        })?;
    }
    let stats = ring.close();
    Ok(Tally { forwarded: stats.sent, unknown: unknown + stats.truncated, refused: stats.failed })
}

/// Whether this machine has io_uring for us; otherwise why not.
pub(super) fn available() -> Result<(), String> {
    std::net::UdpSocket::bind(("127.0.0.1", 0))
        .and_then(|socket| UringUdp::new(socket, 2))
        .map(drop)
        .map_err(|error| reason(&error))
}

fn reason(error: &io::Error) -> String {
    if error.kind() == ErrorKind::Unsupported {
        "this kernel has no io_uring".to_owned()
    } else if error.kind() == ErrorKind::PermissionDenied {
        "io_uring is forbidden here (kernel.io_uring_disabled, or a container's filter of system \
         calls)"
            .to_owned()
    } else if error.kind() == ErrorKind::InvalidInput {
        "this kernel's io_uring is older than Linux 6.1".to_owned()
    } else {
        format!("io_uring: {error}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn why_there_is_no_io_uring_is_said_in_words() {
        // ENOSYS, EPERM, EACCES, EINVAL and one that nobody expects.
        let said = [38, 1, 13, 22, 12].map(|errno| reason(&io::Error::from_raw_os_error(errno)));
        assert_eq!(said[0], "this kernel has no io_uring");
        assert!(said[1].contains("io_uring_disabled") && said[1] == said[2], "{said:?}");
        assert!(said[3].contains("6.1"), "{said:?}");
        assert!(said[4].contains("memory"), "{said:?}");
    }
}
