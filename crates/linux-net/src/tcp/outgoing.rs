//! Connections that we make, from an address and port where we listen as well.

use std::io;
use std::mem::size_of;
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, AsRawFd as _};

use libc::{c_int, socklen_t};

use super::{TcpOptions, TcpStream, keep_alive, open};
use crate::address::{self, ADDRESS_BYTES};
use crate::sys::{check, set_option};

impl TcpStream {
    /// Begins to connect from `from` to `to`. There may be a listener at `from`, and other connections, each
    /// with [`TcpOptions::reuse_port`]. When the connection takes something it is made, or has failed:
    /// [`take_error`](Self::take_error).
    ///
    /// # Errors
    /// It has failed at once: no descriptors left, no way there, the same two ends are connected.
    pub fn connect(from: SocketAddr, to: SocketAddr, options: &TcpOptions) -> io::Result<Self> {
        let fd = open(to)?;
        let socket = fd.as_fd();
        set_option(socket, libc::SOL_SOCKET, libc::SO_REUSEADDR, 1)?;
        if options.reuse_port {
            set_option(socket, libc::SOL_SOCKET, libc::SO_REUSEPORT, 1)?;
        }
        set_option(socket, libc::IPPROTO_TCP, libc::TCP_NODELAY, 1)?;
        keep_alive(socket, options)?;
        let mut raw = [0; ADDRESS_BYTES];
        let len = address::encode(from, &mut raw) as socklen_t;
        // SAFETY: `raw` lives until the call returns and holds at least `len` bytes, an address.
        check(unsafe { libc::bind(fd.as_raw_fd(), raw.as_ptr().cast(), len) })?;
        let len = address::encode(to, &mut raw) as socklen_t;
        // SAFETY: `raw` lives until the call returns and holds at least `len` bytes, an address.
        let begun = check(unsafe { libc::connect(fd.as_raw_fd(), raw.as_ptr().cast(), len) });
        match begun {
            Ok(_) => {}
            Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => {}
            Err(error) => return Err(error),
        }
        Ok(Self(std::net::TcpStream::from(fd)))
    }

    /// The error that waits on the connection, if one does.
    #[must_use]
    pub fn take_error(&self) -> Option<io::Error> {
        self.0.take_error().unwrap_or_else(Some)
    }

    /// Closes the connection so that the other end hears of a break, not of an end: something of what was to
    /// come is missing.
    pub fn reset(self) {
        let linger = libc::linger { l_onoff: 1, l_linger: 0 };
        let len = size_of::<libc::linger>() as socklen_t;
        let fd = self.0.as_raw_fd();
        let (level, name): (c_int, c_int) = (libc::SOL_SOCKET, libc::SO_LINGER);
        // If it fails the other end hears of an end, which is the best that is left.
        // SAFETY: `linger` lives until the call returns and the kernel reads exactly `len` bytes of it.
        unsafe { libc::setsockopt(fd, level, name, (&raw const linger).cast(), len) };
    }
}
