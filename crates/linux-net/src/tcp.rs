//! TCP listeners and non-blocking TCP connections.

mod outgoing;

use std::io::{self, IoSlice, Read as _, Write as _};
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::time::Duration;

use libc::{c_int, socklen_t};
use turn_types::IpFamily;

use crate::abi::address::{self, ADDRESS_BYTES};
use crate::abi::socket::{adopt_listening, adopt_unbound, bound_address};
use crate::abi::sys::{bind_to_device, check, errno, free, option, set_option};

/// Options of a TCP listener and of the connections that the listener accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpOptions {
    /// `SO_REUSEPORT`: several workers listen on one port, and the kernel distributes connections
    /// over their sockets.
    pub reuse_port: bool,
    /// Idle time before the first keepalive probe. Up to three probes are sent, at intervals of a
    /// sixth of this time.
    pub keepalive: Duration,
    /// Maximum time that sent data may remain unacknowledged (`TCP_USER_TIMEOUT`). Afterwards the
    /// connection is closed.
    pub unacknowledged: Duration,
    /// Maximum number of connections per socket that wait to be accepted. The kernel limits this
    /// value to `net.core.somaxconn`.
    pub backlog: u16,
    /// Index of the interface to which the socket is restricted for receiving and sending. `None`
    /// permits all interfaces. Connections inherit the restriction.
    pub device: Option<NonZeroU32>,
    /// `IP_FREEBIND`: the socket can be bound to an address that no interface has. An example is an
    /// address of a prefix that is delivered to this host.
    pub free: bool,
}

/// Listening TCP socket of one address family: non-blocking, close-on-exec.
#[derive(Debug)]
pub struct TcpListener {
    fd: OwnedFd,
    local: SocketAddr,
}

impl TcpListener {
    /// Opens a socket, binds it and listens. Port 0 selects any free port. Connections inherit the
    /// options.
    ///
    /// # Errors
    /// `socket`, `bind` or `listen` fails: the address is in use or not available, or the process
    /// has no descriptors left.
    pub fn bind(addr: SocketAddr, options: &TcpOptions) -> io::Result<Self> {
        let fd = open(addr)?;
        let socket = fd.as_fd();
        if IpFamily::of(addr.ip()) == IpFamily::V6 {
            set_option(socket, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 1)?;
        }
        // Connections of a previous server may still be closing.
        set_option(socket, libc::SOL_SOCKET, libc::SO_REUSEADDR, 1)?;
        if options.reuse_port {
            set_option(socket, libc::SOL_SOCKET, libc::SO_REUSEPORT, 1)?;
        }
        if let Some(device) = options.device {
            bind_to_device(socket, device)?;
        }
        if options.free {
            free(socket, IpFamily::of(addr.ip()))?;
        }
        let mut raw = [0; ADDRESS_BYTES];
        let len = address::encode(addr, &mut raw) as socklen_t;
        // SAFETY: `raw` lives until the call returns and holds at least `len` bytes, an address.
        check(unsafe { libc::bind(fd.as_raw_fd(), raw.as_ptr().cast(), len) })?;
        let local = if addr.port() == 0 { bound_address(socket)? } else { addr };
        Self::listen(fd, local, options)
    }

    /// Adopts a socket that another process has bound, such as the predecessor before an upgrade,
    /// or systemd. Connections inherit the options, except `reuse_port`, which must be set before
    /// binding. Connections that already wait to be accepted are retained.
    ///
    /// # Errors
    /// The descriptor is not a TCP socket, the socket is not bound, the socket is connected, or an
    /// IPv6 socket accepts IPv4 as well.
    pub fn from_fd(fd: OwnedFd, options: &TcpOptions) -> io::Result<Self> {
        let local = adopt_listening(fd.as_fd(), libc::SOCK_STREAM)?;
        Self::listen(fd, local, options)
    }

    fn listen(fd: OwnedFd, local: SocketAddr, options: &TcpOptions) -> io::Result<Self> {
        // Writes are already gathered, so Nagle's algorithm would only add delay.
        set_option(fd.as_fd(), libc::IPPROTO_TCP, libc::TCP_NODELAY, 1)?;
        keep_alive(fd.as_fd(), options)?;
        // SAFETY: takes no pointers.
        check(unsafe { libc::listen(fd.as_raw_fd(), c_int::from(options.backlog)) })?;
        Ok(Self { fd, local })
    }

    /// Returns the address that the socket listens on. If port 0 was requested, this is the
    /// assigned port.
    #[must_use]
    pub const fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Duplicates the descriptor of the socket.
    ///
    /// # Errors
    /// The process has no descriptors left.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { fd: self.fd.try_clone()?, local: self.local })
    }

    /// Accepts the next connection and returns the connection with the remote address. Returns
    /// `None` if no connection waits.
    ///
    /// # Errors
    /// The process has no descriptors or no memory left. Connections that are already broken are
    /// skipped.
    pub fn accept(&self) -> io::Result<Option<(TcpStream, SocketAddr)>> {
        loop {
            let mut raw = [0_u8; ADDRESS_BYTES];
            let mut len = ADDRESS_BYTES as socklen_t;
            // SAFETY: the kernel writes at most `len` bytes to `raw`; both live until the call
            // returns.
            let fd = unsafe {
                libc::accept4(
                    self.fd.as_raw_fd(),
                    raw.as_mut_ptr().cast(),
                    &raw mut len,
                    libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC,
                )
            };
            if fd >= 0 {
                // SAFETY: the kernel has just returned this descriptor, which has no other owner.
                let fd = unsafe { OwnedFd::from_raw_fd(fd) };
                // The remote address always has the listener's family.
                let Some(from) = address::decode(&raw) else { continue };
                return Ok(Some((TcpStream(std::net::TcpStream::from(fd)), from)));
            }
            match errno() {
                libc::EAGAIN => return Ok(None),
                // Errors of the host or of the network on the path. accept(2) recommends to treat
                // these errors as "try again".
                libc::EINTR
                | libc::ECONNABORTED
                | libc::EPROTO
                | libc::EPERM
                | libc::ENETDOWN
                | libc::ENOPROTOOPT
                | libc::EHOSTDOWN
                | libc::ENONET
                | libc::EHOSTUNREACH
                | libc::EOPNOTSUPP
                | libc::ENETUNREACH => {}
                errno => return Err(io::Error::from_raw_os_error(errno)),
            }
        }
    }
}

impl AsFd for TcpListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Result of a read from a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadOutcome {
    /// Bytes read, at least one.
    Read(usize),
    /// No data is available.
    WouldBlock,
    /// The remote has shut down its sending side.
    Ended,
}

/// Options of an outgoing connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectOptions {
    /// Local address of the connection. Port 0 selects any port, and `None` selects any address and
    /// port.
    pub local: Option<SocketAddr>,
    /// Send buffer in bytes, as passed to `SO_SNDBUF`. 0 leaves the size to the kernel.
    pub send_buffer: usize,
    /// Resets the connection on close instead of an orderly shutdown. The port is free immediately,
    /// and unsent data is lost.
    pub reset: bool,
}

/// TCP connection: non-blocking, close-on-exec.
#[derive(Debug)]
pub struct TcpStream(std::net::TcpStream);

impl TcpStream {
    /// Starts a connection as a client. Without a local address the kernel selects one.
    ///
    /// When the connection is established, the socket becomes writable. Failure is reported as an
    /// error of read or write. Nothing can be written before.
    ///
    /// # Errors
    /// The process has no descriptors left, no port is free, the local address does not belong to
    /// this host, or the destination is known to be unreachable.
    pub fn connect_to(to: SocketAddr, options: &ConnectOptions) -> io::Result<Self> {
        let fd = open(to)?;
        let socket = fd.as_fd();
        set_option(socket, libc::IPPROTO_TCP, libc::TCP_NODELAY, 1)?;
        if options.send_buffer > 0 {
            let bytes = c_int::try_from(options.send_buffer).unwrap_or(c_int::MAX);
            set_option(socket, libc::SOL_SOCKET, libc::SO_SNDBUF, bytes)?;
        }
        if options.reset {
            linger(socket, libc::linger { l_onoff: 1, l_linger: 0 })?;
        }
        let mut raw = [0; ADDRESS_BYTES];
        if let Some(local) = options.local {
            if local.port() == 0 {
                // The kernel selects the port on connect, so one port can serve many destinations.
                set_option(socket, libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT, 1)?;
            }
            let len = address::encode(local, &mut raw) as socklen_t;
            // SAFETY: `raw` lives until the call returns and holds at least `len` bytes, an
            // address.
            check(unsafe { libc::bind(fd.as_raw_fd(), raw.as_ptr().cast(), len) })?;
        }
        let len = address::encode(to, &mut raw) as socklen_t;
        // SAFETY: `raw` lives until the call returns and holds at least `len` bytes, an address.
        match check(unsafe { libc::connect(fd.as_raw_fd(), raw.as_ptr().cast(), len) }) {
            Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => Err(error),
            Ok(_) | Err(_) => Ok(Self(std::net::TcpStream::from(fd))),
        }
    }

    /// Adopts a connection of another process without a change of options. If both sides have shut
    /// down their directions, the connection has no addresses, but may have unread bytes.
    ///
    /// # Errors
    /// The descriptor is not an IP socket of TCP, or the socket listens.
    pub fn from_fd(fd: OwnedFd) -> io::Result<Self> {
        adopt_unbound(fd.as_fd(), libc::SOCK_STREAM)?;
        if option(fd.as_fd(), libc::SOL_SOCKET, libc::SO_ACCEPTCONN)? != 0 {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the socket listens"));
        }
        Ok(Self(std::net::TcpStream::from(fd)))
    }

    /// Returns the local address of the connection.
    ///
    /// # Errors
    /// The connection is already broken.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }

    /// Returns the remote address of the connection.
    ///
    /// # Errors
    /// The connection is already broken.
    pub fn remote_addr(&self) -> io::Result<SocketAddr> {
        self.0.peer_addr()
    }

    /// Duplicates the descriptor of the connection, for another process.
    ///
    /// # Errors
    /// The process has no descriptors left.
    pub fn try_clone(&self) -> io::Result<Self> {
        self.0.try_clone().map(Self)
    }

    /// Shuts down the sending side. Errors are ignored, since the remote may have closed already.
    pub fn end_sending(&self) {
        drop(self.0.shutdown(std::net::Shutdown::Write));
    }

    /// Reads available bytes, up to the length of `buffer`.
    ///
    /// # Errors
    /// The connection is broken.
    pub fn read(&self, buffer: &mut [u8]) -> io::Result<ReadOutcome> {
        match without_waiting(|| (&self.0).read(buffer))? {
            None => Ok(ReadOutcome::WouldBlock),
            Some(0) => Ok(ReadOutcome::Ended),
            Some(len) => Ok(ReadOutcome::Read(len)),
        }
    }

    /// Writes the bytes of both slices, in order, that the connection accepts now. Returns the
    /// number of bytes written, which is 0 if the connection accepts none.
    ///
    /// # Errors
    /// The connection is broken.
    pub fn write(&self, pieces: [&[u8]; 2]) -> io::Result<usize> {
        let pieces = pieces.map(IoSlice::new);
        Ok(without_waiting(|| (&self.0).write_vectored(&pieces))?.unwrap_or(0))
    }
}

/// Fails with `WouldBlock` if the connection accepts no bytes now.
impl io::Write for &TcpStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (&self.0).write(bytes)
    }

    fn write_vectored(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        (&self.0).write_vectored(pieces)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsFd for TcpStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Repeats an interrupted call. Returns `None` if the call would block.
fn without_waiting(mut call: impl FnMut() -> io::Result<usize>) -> io::Result<Option<usize>> {
    loop {
        match call() {
            Ok(len) => return Ok(Some(len)),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(error),
        }
    }
}

fn open(addr: SocketAddr) -> io::Result<OwnedFd> {
    let kind = libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: takes no pointers.
    let fd = check(unsafe { libc::socket(address::family(addr.ip()), kind, 0) })?;
    // SAFETY: the kernel has just returned this descriptor, which has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn linger(socket: BorrowedFd<'_>, value: libc::linger) -> io::Result<()> {
    let len = size_of::<libc::linger>() as socklen_t;
    // SAFETY: `value` lives until the call returns and the kernel reads exactly `len` bytes of it.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_LINGER,
            (&raw const value).cast(),
            len,
        )
    };
    check(result).map(drop)
}

fn keep_alive(socket: BorrowedFd<'_>, options: &TcpOptions) -> io::Result<()> {
    let seconds = |time: Duration| c_int::try_from(time.as_secs().max(1)).unwrap_or(c_int::MAX);
    let unacknowledged = c_int::try_from(options.unacknowledged.as_millis()).unwrap_or(c_int::MAX);
    set_option(socket, libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1)?;
    for (name, value) in [
        (libc::TCP_KEEPIDLE, seconds(options.keepalive)),
        (libc::TCP_KEEPINTVL, seconds(options.keepalive / 6)),
        (libc::TCP_KEEPCNT, 3),
        (libc::TCP_USER_TIMEOUT, unacknowledged),
    ] {
        set_option(socket, libc::IPPROTO_TCP, name, value)?;
    }
    Ok(())
}
