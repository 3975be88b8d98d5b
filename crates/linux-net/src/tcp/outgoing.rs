//! Outgoing connections from the address and port of a listener.

use std::io;
use std::mem::size_of;
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, AsRawFd as _};

use libc::{c_int, socklen_t};
use turn_types::IpFamily;

use super::{TcpListener, TcpOptions, TcpStream, keep_alive, open};
use crate::abi::address::{self, ADDRESS_BYTES};
use crate::abi::sys::{bind_to_device, check, free, set_option};

impl TcpListener {
    /// Starts a connection to `to` from the address and port of this listener, which continues to
    /// listen. The connection becomes writable when it is established or has failed.
    /// [`take_error`](TcpStream::take_error) then returns the result.
    ///
    /// The kernel lets a second socket bind a listener's port only if both sockets have
    /// `SO_REUSEPORT` at that moment. The listener has the option only during this call. With a
    /// permanent option, listeners at the wildcard address could share the port, and the kernel
    /// would prefer this listener.
    ///
    /// # Errors
    /// The connection fails immediately: the process has no descriptors left, no route exists, or
    /// another connection between these two addresses exists.
    pub fn connect(&self, to: SocketAddr, options: &TcpOptions) -> io::Result<TcpStream> {
        let fd = open(to)?;
        let socket = fd.as_fd();
        set_option(socket, libc::SOL_SOCKET, libc::SO_REUSEADDR, 1)?;
        set_option(socket, libc::SOL_SOCKET, libc::SO_REUSEPORT, 1)?;
        if let Some(device) = options.device {
            bind_to_device(socket, device)?;
        }
        if options.free {
            free(socket, IpFamily::of(to.ip()))?;
        }
        set_option(socket, libc::IPPROTO_TCP, libc::TCP_NODELAY, 1)?;
        keep_alive(socket, options)?;
        let mut raw = [0; ADDRESS_BYTES];
        let len = address::encode(self.local, &mut raw) as socklen_t;
        set_option(self.as_fd(), libc::SOL_SOCKET, libc::SO_REUSEPORT, 1)?;
        // SAFETY: `raw` lives until the call returns and holds at least `len` bytes, an address.
        let bound = check(unsafe { libc::bind(fd.as_raw_fd(), raw.as_ptr().cast(), len) });
        set_option(self.as_fd(), libc::SOL_SOCKET, libc::SO_REUSEPORT, 0)?;
        bound?;
        let len = address::encode(to, &mut raw) as socklen_t;
        // SAFETY: `raw` lives until the call returns and holds at least `len` bytes, an address.
        let begun = check(unsafe { libc::connect(fd.as_raw_fd(), raw.as_ptr().cast(), len) });
        match begun {
            Ok(_) => {}
            Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => {}
            Err(error) => return Err(error),
        }
        Ok(TcpStream(std::net::TcpStream::from(fd)))
    }
}

impl TcpStream {
    /// Returns and clears the pending error of the connection.
    #[must_use]
    pub fn take_error(&self) -> Option<io::Error> {
        self.0.take_error().unwrap_or_else(Some)
    }

    /// Closes the connection with a reset (RST). The remote detects that data is missing.
    pub fn reset(self) {
        let linger = libc::linger { l_onoff: 1, l_linger: 0 };
        let len = size_of::<libc::linger>() as socklen_t;
        let fd = self.0.as_raw_fd();
        let (level, name): (c_int, c_int) = (libc::SOL_SOCKET, libc::SO_LINGER);
        // On failure the remote detects an orderly shutdown, which is the best remaining result.
        // SAFETY: `linger` lives until the call returns and the kernel reads exactly `len` bytes of
        // `linger`.
        unsafe { libc::setsockopt(fd, level, name, (&raw const linger).cast(), len) };
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;
    use std::net::IpAddr;
    use std::time::Duration;

    use test_support::eventually;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);
    const ALONE: TcpOptions = TcpOptions {
        reuse_port: false,
        keepalive: LONG,
        unacknowledged: LONG,
        backlog: 8,
        device: None,
        free: false,
    };

    /// Creates a listener of another program of the user that shares its port. A listener on `::`
    /// accepts IPv4 as well.
    fn foreign(at: &str) -> std::net::TcpListener {
        let listener = std::net::TcpListener::bind(at).unwrap();
        set_option(listener.as_fd(), libc::SOL_SOCKET, libc::SO_REUSEPORT, 1).unwrap();
        listener
    }

    #[test]
    fn a_listener_that_shares_nothing_takes_no_port_that_another_listens_on() {
        let specific: [IpAddr; 2] = [[127, 0, 0, 9].into(), "::1".parse().unwrap()];
        for (wildcard, meets) in [("0.0.0.0:0", [true, false]), ("[::]:0", [true, true])] {
            let foreign = foreign(wildcard);
            let port = foreign.local_addr().unwrap().port();
            for (ip, meets) in specific.into_iter().zip(meets) {
                let bound = TcpListener::bind((ip, port).into(), &ALONE);
                let taken = bound.is_err_and(|error| error.kind() == ErrorKind::AddrInUse);
                assert_eq!(taken, meets, "{ip} beside {wildcard}");
            }
        }
    }

    #[test]
    fn no_socket_shares_the_port_of_a_listener_that_has_connected() {
        for ip in ["127.0.0.1", "::1"] {
            let peer = std::net::TcpListener::bind((ip, 0)).unwrap();
            let listener =
                TcpListener::bind(SocketAddr::new(ip.parse().unwrap(), 0), &ALONE).unwrap();
            let local = listener.local_addr();
            let near = listener.connect(peer.local_addr().unwrap(), &ALONE).unwrap();
            let (_far, from) = peer.accept().unwrap();
            assert_eq!((from, near.local_addr().unwrap()), (local, local));
            // The listener still accepts connections.
            let _caller = std::net::TcpStream::connect(local).unwrap();

            let sharing = TcpOptions { reuse_port: true, ..ALONE };
            let wildcard = if ip == "::1" { "[::]:0" } else { "0.0.0.0:0" };
            let mut wildcard: SocketAddr = wildcard.parse().unwrap();
            wildcard.set_port(local.port());
            let Err(error) = TcpListener::bind(wildcard, &sharing) else { panic!("{ip}: shared") };
            assert_eq!(error.kind(), ErrorKind::AddrInUse);
            // The connection of the listener does not block the port. The port is free when the
            // kernel has closed the caller's connection, which was not accepted.
            drop(listener);
            eventually("the port is free", || TcpListener::bind(local, &ALONE).is_ok());
        }
    }

    #[test]
    fn many_connections_leave_from_one_port() {
        let peers: Vec<_> =
            (0..3).map(|_| std::net::TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let listener = TcpListener::bind("127.0.0.1:0".parse().unwrap(), &ALONE).unwrap();
        let streams: Vec<_> = peers
            .iter()
            .map(|peer| listener.connect(peer.local_addr().unwrap(), &ALONE).unwrap())
            .collect();
        for peer in &peers {
            assert_eq!(peer.accept().unwrap().1, listener.local_addr());
        }
        let again = listener.connect(peers[0].local_addr().unwrap(), &ALONE);
        assert!(again.is_err(), "these two ends are connected");
        drop(streams);
    }
}
