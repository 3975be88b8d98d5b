//! Connected UDP sockets, as used by clients of a server.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, AsRawFd as _};

use libc::socklen_t;

use crate::abi::address::{self, ADDRESS_BYTES};
use crate::abi::errno::left_by_icmp;
use crate::abi::socket::bound_address;
use crate::abi::sys::{check, errno};
use crate::{SendError, UdpSocket};

/// Maximum number of errors left by ICMP that one call swallows. Each try clears one error.
const MAX_ERRORS_SWALLOWED: usize = 4;

impl UdpSocket {
    /// Connects the socket to `peer`. From then on the socket receives only datagrams from `peer`,
    /// and [`UdpSocket::send`] sends to `peer`. No packet is sent. A socket bound to the
    /// unspecified address is bound to the source address of the route to `peer`.
    ///
    /// # Errors
    /// No route to the address exists, or the address belongs to the other family.
    pub fn connect(&mut self, peer: SocketAddr) -> io::Result<()> {
        let mut raw = [0; ADDRESS_BYTES];
        let len = address::encode(peer, &mut raw) as socklen_t;
        // SAFETY: `raw` lives until the call returns and holds at least `len` bytes, an address.
        check(unsafe { libc::connect(self.as_raw_fd(), raw.as_ptr().cast(), len) })?;
        self.local = bound_address(self.as_fd())?;
        Ok(())
    }

    /// Sends one datagram to the address set by [`UdpSocket::connect`]. Errors that ICMP left on
    /// the socket for earlier datagrams are swallowed. The error queue has these errors in full.
    ///
    /// # Errors
    /// Returns the reason why the datagram was not sent. No such error is fatal to the socket.
    pub fn send(&self, datagram: &[u8]) -> Result<(), SendError> {
        for _ in 0..=MAX_ERRORS_SWALLOWED {
            // SAFETY: `datagram` lives until the call returns, and the kernel only reads the given
            // number of bytes, its length.
            let sent = unsafe {
                libc::send(
                    self.as_raw_fd(),
                    datagram.as_ptr().cast(),
                    datagram.len(),
                    libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL,
                )
            };
            match errno() {
                _ if sent >= 0 => return Ok(()),
                libc::EINTR => {}
                errno if left_by_icmp(errno) => {}
                errno => return Err(SendError::from_errno(errno)),
            }
        }
        Err(SendError::from_errno(errno()))
    }

    /// Receives one datagram into `buffer` and returns its length, or `None` if no datagram is
    /// queued. Bytes beyond the buffer are lost, and so are the boundaries of merged datagrams
    /// (`UDP_GRO`). Open the socket without GRO, or use [`RxBatch`](crate::RxBatch).
    ///
    /// # Errors
    /// The program has a fault, or memory is short. Errors left by ICMP are skipped.
    pub fn recv(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        for _ in 0..=MAX_ERRORS_SWALLOWED {
            // SAFETY: `buffer` lives until the call returns and has space for the given number of
            // bytes, its length. `&mut` excludes other references to the buffer.
            let received = unsafe {
                libc::recv(
                    self.as_raw_fd(),
                    buffer.as_mut_ptr().cast(),
                    buffer.len(),
                    libc::MSG_DONTWAIT,
                )
            };
            if let Ok(len) = usize::try_from(received) {
                return Ok(Some(len));
            }
            match errno() {
                libc::EAGAIN => return Ok(None),
                libc::EINTR => {}
                errno if left_by_icmp(errno) => {}
                errno => return Err(io::Error::from_raw_os_error(errno)),
            }
        }
        Ok(None)
    }
}
