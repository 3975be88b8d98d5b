//! UDP sockets: requested options, and the values that the kernel granted.

mod capabilities;
mod connected;
mod error_queue;
mod resting;

pub use self::capabilities::{Capabilities, capabilities};
pub use self::error_queue::{IcmpReport, SocketError};
use self::resting::Resting;
pub(crate) use self::resting::Unsaid;

use std::cell::Cell;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU32;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use libc::{c_int, socklen_t};
use turn_types::{IpFamily, IpMeta};

use crate::abi::address::{self, ADDRESS_BYTES};
use crate::abi::socket::{adopt_listening, adopt_sibling, bound_address};
use crate::abi::sys::{bind_to_device, bound_device, check, free, option, set_option};

/// Number of the socket option `SO_MEMINFO` in `asm-generic/socket.h`. The C library's bindings
/// lack the constant.
const SO_MEMINFO: c_int = 55;

/// Index in the result of `SO_MEMINFO` of the bytes that wait to be received.
const SK_MEMINFO_RMEM_ALLOC: usize = libc::SK_MEMINFO_RMEM_ALLOC as usize;

/// Index in the result of `SO_MEMINFO` of the number of lost datagrams.
const SK_MEMINFO_DROPS: usize = libc::SK_MEMINFO_DROPS as usize;

/// Requested options of a UDP socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdpOptions {
    /// `SO_REUSEPORT`: several workers listen on one port, and the kernel distributes flows over
    /// their sockets.
    pub reuse_port: bool,
    /// Receive buffer in bytes. 0 keeps the system's default.
    pub recv_buffer: usize,
    /// Send buffer in bytes. 0 keeps the system's default.
    pub send_buffer: usize,
    /// `UDP_GRO`: datagrams of equal size from one sender arrive merged into one message.
    pub gro: bool,
    /// `IP_PKTINFO`: reports the local address of each datagram. Sockets bound to the unspecified
    /// address need the option to respond from the address that the client used.
    pub packet_info: bool,
    /// `IP_RECVERR`: the kernel queues ICMP errors for [`UdpSocket::recv_errors`].
    pub error_queue: bool,
    /// Index of the interface to which the socket is restricted for receiving and sending. `None`
    /// permits all interfaces.
    pub device: Option<NonZeroU32>,
    /// `IP_FREEBIND`: the socket can be bound to, and send from, addresses that no interface has.
    /// An example is an address of a prefix that is delivered to this host.
    pub free: bool,
    /// TTL and traffic class of most sent datagrams become options of the socket. This saves
    /// control messages on sockets that send the datagrams of one client. Only one handle of such a
    /// socket may send.
    pub adapts: bool,
}

impl Default for UdpOptions {
    /// Enables GRO and the error queue, disables all other options, and keeps the system's buffer
    /// sizes.
    fn default() -> Self {
        Self {
            reuse_port: false,
            recv_buffer: 0,
            send_buffer: 0,
            gro: true,
            packet_info: false,
            error_queue: true,
            device: None,
            free: false,
            adapts: false,
        }
    }
}

/// Version of the fixed options that every socket gets in addition to those in [`UdpOptions`]. The
/// number must change with every change of the fixed options. A process compares this number with
/// its predecessor's before it [adopts](UdpSocket::adopt) sockets.
pub const OPTION_SET: u32 = 1;

/// Options granted by the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Applied {
    /// Receive buffer in bytes, comparable with the requested size. (The kernel reports twice that
    /// size, for its own bookkeeping.) A smaller value than requested means that
    /// `net.core.rmem_max` applied, the maximum for processes without `CAP_NET_ADMIN`.
    pub recv_buffer: usize,
    /// Send buffer in bytes, comparable with the requested size. The maximum without
    /// `CAP_NET_ADMIN` is `net.core.wmem_max`.
    pub send_buffer: usize,
    /// Received datagrams can arrive merged (`UDP_GRO`).
    pub gro: bool,
    /// Received datagrams carry the number of datagrams lost previously (`SO_RXQ_OVFL`).
    pub losses: bool,
}

/// UDP socket of one address family: non-blocking, close-on-exec. IPv6 sockets do not accept IPv4.
///
/// A socket is owned by one thread. Every received datagram carries its TTL, its traffic class and
/// the number of datagrams lost previously. Sent datagrams are fragmented as needed, unless their
/// header fields forbid fragmentation.
#[derive(Debug)]
pub struct UdpSocket {
    fd: OwnedFd,
    pub(crate) local: SocketAddr,
    /// Value of `IP_MTU_DISCOVER` for datagrams that may be fragmented.
    at_rest: c_int,
    /// True while the socket option forbids fragmentation. Only IPv4 uses this state: in IPv6 each
    /// datagram carries a control message.
    dont_fragment: Cell<bool>,
    resting: Resting,
}

impl UdpSocket {
    /// Opens a socket and binds it to `addr`. Port 0 selects any free port.
    ///
    /// # Errors
    /// `socket` or `bind` fails: the address is in use or not available, or the process has no
    /// descriptors left. A kernel that lacks an option for speed or diagnostics causes no error.
    pub fn bind(addr: SocketAddr, options: &UdpOptions) -> io::Result<(Self, Applied)> {
        let (socket, Able { gro, losses }) = Self::set_up(addr, options)?;
        let applied = Applied {
            recv_buffer: buffer(socket.as_fd(), libc::SO_RCVBUF)?,
            send_buffer: buffer(socket.as_fd(), libc::SO_SNDBUF)?,
            gro,
            losses,
        };
        Ok((socket, applied))
    }

    /// Opens and binds a socket like [`bind`](Self::bind), without a query of the granted values.
    /// This is for sockets that are opened frequently.
    ///
    /// # Errors
    /// [`bind`](Self::bind) would fail.
    pub fn bind_unasked(addr: SocketAddr, options: &UdpOptions) -> io::Result<Self> {
        Self::set_up(addr, options).map(|(socket, _)| socket)
    }

    /// Opens, configures and binds a socket. Returns the optional features that the kernel supports
    /// for this socket.
    fn set_up(addr: SocketAddr, options: &UdpOptions) -> io::Result<(Self, Able)> {
        let fd = open(addr.ip())?;
        if IpFamily::of(addr.ip()) == IpFamily::V6 {
            set_option(fd.as_fd(), libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 1)?;
        }
        let share = || set_option(fd.as_fd(), libc::SOL_SOCKET, libc::SO_REUSEPORT, 1);
        let any_port = addr.port() == 0;
        if options.reuse_port && !any_port {
            share()?;
        }
        if let Some(device) = options.device {
            bind_to_device(fd.as_fd(), device)?;
        }
        if options.free {
            free(fd.as_fd(), IpFamily::of(addr.ip()))?;
        }
        let (at_rest, able) = set_options(fd.as_fd(), IpFamily::of(addr.ip()), options)?;
        bind_to(fd.as_fd(), addr)?;
        if options.reuse_port && any_port {
            // `SO_REUSEPORT` set before binding would let the kernel choose a port that other
            // sockets share.
            share()?;
        }
        let local = if addr.port() == 0 { bound_address(fd.as_fd())? } else { addr };
        let resting = Resting::new(options.adapts);
        Ok((Self { fd, local, at_rest, dont_fragment: Cell::new(false), resting }, able))
    }

    /// Adopts a socket that another process has bound, such as the predecessor before an upgrade,
    /// or systemd. Sets the options like [`bind`](Self::bind), except `reuse_port`, which must be
    /// set before binding. Without `gro` the state of merging does not change, since merged
    /// datagrams may be queued.
    ///
    /// # Errors
    /// The descriptor is not a UDP socket, the socket is not bound, or an IPv6 socket accepts IPv4
    /// as well.
    pub fn from_fd(fd: OwnedFd, options: &UdpOptions) -> io::Result<Self> {
        let local = adopt_listening(fd.as_fd(), libc::SOCK_DGRAM)?;
        let (at_rest, _) = set_options(fd.as_fd(), IpFamily::of(local.ip()), options)?;
        let resting = Resting::taken_over(options.adapts);
        Ok(Self { fd, local, at_rest, dont_fragment: Cell::new(false), resting })
    }

    /// Adopts a socket that another process of this program has bound with equal `options` and an
    /// equal [`OPTION_SET`]. The call needs a fifth of the system calls of
    /// [`from_fd`](Self::from_fd), which matters when thousands of sockets are adopted. Without
    /// `gro` the state of merging does not change, since merged datagrams may be queued.
    ///
    /// # Errors
    /// The descriptor is not a UDP socket, or the socket is not bound.
    pub fn adopt(fd: OwnedFd, options: &UdpOptions) -> io::Result<Self> {
        let local = adopt_sibling(fd.as_fd(), libc::IPPROTO_UDP)?;
        let at_rest = match IpFamily::of(local.ip()) {
            IpFamily::V4 => option(fd.as_fd(), libc::IPPROTO_IP, libc::IP_MTU_DISCOVER)?,
            IpFamily::V6 => V6_AT_REST,
        };
        let resting = Resting::taken_over(options.adapts);
        let socket = Self { fd, local, at_rest, dont_fragment: Cell::new(false), resting };
        if options.gro {
            socket.merge(true);
        }
        Ok(socket)
    }

    /// Returns the address that the socket is bound to. If port 0 was requested, this is the
    /// assigned port.
    #[must_use]
    pub const fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Returns the index of the interface that the socket is bound to, or `None` if the socket is
    /// not restricted to an interface.
    ///
    /// # Errors
    /// The kernel is older than Linux 5.0.
    pub fn device(&self) -> io::Result<Option<NonZeroU32>> {
        bound_device(self.fd.as_fd())
    }

    /// Returns the address family of the socket.
    #[must_use]
    pub const fn family(&self) -> IpFamily {
        IpFamily::of(self.local.ip())
    }

    /// Enables or disables merging of received datagrams (GRO), if the kernel supports GRO. After
    /// GRO is disabled, datagrams that were merged already in the queue still arrive merged.
    pub fn merge(&self, on: bool) {
        // A kernel without GRO never merges datagrams.
        drop(set_option(self.fd.as_fd(), libc::SOL_UDP, libc::UDP_GRO, c_int::from(on)));
    }

    /// Disables merging of received datagrams, unless merged datagrams may be queued. If datagrams
    /// or errors are queued, or the kernel does not report the queue, merging is enabled and the
    /// result is false.
    #[must_use]
    pub fn cease_merging(&self) -> bool {
        // Disabled before the check, so no datagram that arrives after the check is merged.
        self.merge(false);
        let is_empty = self.is_empty();
        if !is_empty {
            self.merge(true);
        }
        is_empty
    }

    /// Returns true if neither a datagram nor an error is queued. Returns false if the kernel does
    /// not report the queue.
    fn is_empty(&self) -> bool {
        memory_info(self.as_fd()).is_ok_and(|info| info[SK_MEMINFO_RMEM_ALLOC] == 0)
    }

    /// Creates a second handle of the socket, so one thread can receive while another sends.
    ///
    /// Only one of the two handles may send datagrams whose header fields forbid fragmentation.
    /// Only one handle may send at all if the socket [adapts](UdpOptions::adapts). The reason is
    /// that each handle caches the options that it has set in the kernel.
    ///
    /// # Errors
    /// The process has no descriptors left, or the kernel rejects the option that allows
    /// fragmentation.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self {
            fd: self.duplicate()?,
            local: self.local,
            at_rest: self.at_rest,
            dont_fragment: self.dont_fragment.clone(),
            resting: self.resting.of_other_handle(),
        })
    }

    /// Duplicates the descriptor for another process, and allows fragmentation. The other process
    /// expects that the headers of datagrams allow fragmentation.
    ///
    /// # Errors
    /// The process has no descriptors left, or the kernel rejects the option that allows
    /// fragmentation.
    pub fn duplicate(&self) -> io::Result<OwnedFd> {
        self.set_dont_fragment(false)?;
        self.fd.try_clone()
    }

    /// Allows fragmentation until a later datagram forbids it. Another process that will use the
    /// socket expects this state.
    pub fn allow_fragments(&self) {
        // The kernel accepts the option on every socket of this type.
        let _ = self.set_dont_fragment(false);
    }

    /// Returns the number of datagrams lost since the socket was opened, usually because of a full
    /// receive buffer. The counter wraps. Received messages carry the value too
    /// ([`Received::kernel_drops`](crate::Received)). This function also returns the value when no
    /// datagrams arrive.
    ///
    /// # Errors
    /// The kernel is older than Linux 4.12 and does not report losses.
    pub fn dropped(&self) -> io::Result<u32> {
        memory_info(self.as_fd()).map(|info| info[SK_MEMINFO_DROPS])
    }

    /// Allows or forbids fragmentation of the next datagrams. IPv4 has no control message for this
    /// purpose. Fragmentation is therefore a state of the socket, which is set only on a change.
    /// For IPv6 the function does nothing.
    ///
    /// The mode is `IP_PMTUDISC_PROBE` and not `_DO`. With `_PROBE`, DF is set and the limit is the
    /// interface's MTU. A path MTU that the kernel remembers from an earlier (or forged) ICMP
    /// message does not apply. DF serves path MTU discovery, which learns the true limit by ICMP.
    pub(crate) fn set_dont_fragment(&self, forbid: bool) -> io::Result<()> {
        if self.dont_fragment.get() == forbid || self.family() == IpFamily::V6 {
            return Ok(());
        }
        let mode = if forbid { libc::IP_PMTUDISC_PROBE } else { self.at_rest };
        set_option(self.as_fd(), libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, mode)?;
        self.dont_fragment.set(forbid);
        Ok(())
    }

    /// Sets TTL and traffic class as socket options if that is worthwhile, or if `next` cannot be
    /// sent otherwise. The options apply to the next datagrams without such control messages.
    pub(crate) fn settle_fields(&self, next: IpMeta) {
        self.resting.settle(self.as_fd(), self.family(), next);
    }

    /// Returns true if a datagram with these fields can be sent in one call with others.
    pub(crate) fn can_send(&self, meta: IpMeta) -> bool {
        self.resting.can_send(meta)
    }

    /// Returns the TTL and traffic class that a datagram must carry as control messages, because
    /// the socket options differ.
    pub(crate) fn unsaid(&self, meta: IpMeta) -> Unsaid {
        self.resting.unsaid(meta)
    }
}

impl AsFd for UdpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsRawFd for UdpSocket {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

/// Opens a datagram socket of the family of `ip`.
pub(crate) fn open(ip: IpAddr) -> io::Result<OwnedFd> {
    let kind = libc::SOCK_DGRAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: takes no pointers.
    let fd = check(unsafe { libc::socket(address::family(ip), kind, 0) })?;
    // SAFETY: the kernel has just returned this descriptor, which has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn set_up_v4(fd: BorrowedFd<'_>, options: &UdpOptions) -> io::Result<c_int> {
    let ip = libc::IPPROTO_IP;
    set_option(fd, ip, libc::IP_RECVTTL, 1)?;
    set_option(fd, ip, libc::IP_RECVTOS, 1)?;
    if options.packet_info {
        set_option(fd, ip, libc::IP_PKTINFO, 1)?;
    }
    if options.error_queue {
        set_option(fd, ip, libc::IP_RECVERR, 1)?;
    }
    // Datagrams have no DF and are fragmented to the interface's MTU. Unlike with `_DONT`, two
    // things hold. ICMP "fragmentation needed" about a datagram with DF still reaches the error
    // queue. Forged ICMP messages do not reduce the path MTU of all datagrams. Linux before 3.15
    // does not have `_OMIT`.
    for mode in [libc::IP_PMTUDISC_OMIT, libc::IP_PMTUDISC_DONT] {
        if set_option(fd, ip, libc::IP_MTU_DISCOVER, mode).is_ok() {
            return Ok(mode);
        }
    }
    Err(io::Error::last_os_error())
}

/// Value of `IPV6_MTU_DISCOVER`. Routers do not fragment IPv6, so the kernel must learn the path
/// MTU and fragment to that size. `_DONT` does so and `_OMIT` does not. "Packet too big" still
/// reaches the error queue.
const V6_AT_REST: c_int = libc::IPV6_PMTUDISC_DONT;

fn set_up_v6(fd: BorrowedFd<'_>, options: &UdpOptions) -> io::Result<c_int> {
    let ip = libc::IPPROTO_IPV6;
    set_option(fd, ip, libc::IPV6_RECVHOPLIMIT, 1)?;
    set_option(fd, ip, libc::IPV6_RECVTCLASS, 1)?;
    if options.packet_info {
        set_option(fd, ip, libc::IPV6_RECVPKTINFO, 1)?;
    }
    if options.error_queue {
        set_option(fd, ip, libc::IPV6_RECVERR, 1)?;
    }
    set_option(fd, ip, libc::IPV6_MTU_DISCOVER, V6_AT_REST)?;
    Ok(V6_AT_REST)
}

/// Optional features that the kernel supports for a socket, as in [`Applied`].
struct Able {
    gro: bool,
    losses: bool,
}

/// Sets the options that can also be set on a bound socket: [`UdpOptions`] and the fixed options of
/// [`OPTION_SET`]. Returns the value of `IP_MTU_DISCOVER` for datagrams that may be fragmented.
fn set_options(
    fd: BorrowedFd<'_>,
    family: IpFamily,
    options: &UdpOptions,
) -> io::Result<(c_int, Able)> {
    let at_rest = match family {
        IpFamily::V4 => set_up_v4(fd, options)?,
        IpFamily::V6 => set_up_v6(fd, options)?,
    };
    let losses = set_option(fd, libc::SOL_SOCKET, libc::SO_RXQ_OVFL, 1).is_ok();
    set_buffer(fd, libc::SO_RCVBUFFORCE, libc::SO_RCVBUF, options.recv_buffer)?;
    set_send_buffer(fd, options.send_buffer)?;
    let gro = options.gro && set_option(fd, libc::SOL_UDP, libc::UDP_GRO, 1).is_ok();
    Ok((at_rest, Able { gro, losses }))
}

fn set_buffer(fd: BorrowedFd<'_>, force: c_int, plain: c_int, bytes: usize) -> io::Result<()> {
    if bytes == 0 {
        return Ok(());
    }
    let bytes = buffer_size(bytes);
    set_option(fd, libc::SOL_SOCKET, force, bytes)
        .or_else(|_| set_option(fd, libc::SOL_SOCKET, plain, bytes))
}

/// Sets the receive buffer of a socket beyond the system's maximum for unprivileged processes. This
/// needs `CAP_NET_ADMIN`. On failure the buffer does not change.
///
/// # Errors
/// `CAP_NET_ADMIN` is missing, or the descriptor is not a socket.
pub fn force_receive_buffer(fd: BorrowedFd<'_>, bytes: usize) -> io::Result<()> {
    set_option(fd, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, buffer_size(bytes))
}

/// Converts a buffer size to the kernel's type. The kernel doubles the size in an `int`, so the
/// maximum is half of that range.
fn buffer_size(bytes: usize) -> c_int {
    c_int::try_from(bytes).unwrap_or(c_int::MAX).min(c_int::MAX / 2)
}

/// Sets the send buffer of a socket of any family, up to the maximum that the system permits. 0
/// keeps the system's default.
///
/// # Errors
/// The descriptor is not a socket.
pub fn set_send_buffer(fd: BorrowedFd<'_>, bytes: usize) -> io::Result<()> {
    set_buffer(fd, libc::SO_SNDBUFFORCE, libc::SO_SNDBUF, bytes)
}

fn buffer(fd: BorrowedFd<'_>, name: c_int) -> io::Result<usize> {
    Ok(usize::try_from(option(fd, libc::SOL_SOCKET, name)?).unwrap_or(0) / 2)
}

/// Reads `SO_MEMINFO`: memory figures of `struct sock`, with the indices of `linux/sock_diag.h`.
fn memory_info(fd: BorrowedFd<'_>) -> io::Result<[u32; SK_MEMINFO_DROPS + 1]> {
    let mut info = [0_u32; SK_MEMINFO_DROPS + 1];
    let mut len = size_of_val(&info) as socklen_t;
    // SAFETY: `info` and `len` live until the call returns; the kernel writes at most `len` bytes,
    // the size of `info`, and any bytes are valid integers.
    let result = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_MEMINFO,
            info.as_mut_ptr().cast(),
            &raw mut len,
        )
    };
    check(result).map(|_| info)
}

fn bind_to(fd: BorrowedFd<'_>, addr: SocketAddr) -> io::Result<()> {
    let mut raw = [0; ADDRESS_BYTES];
    let len = address::encode(addr, &mut raw) as socklen_t;
    // SAFETY: `raw` lives until the call returns and holds at least `len` bytes, an address.
    check(unsafe { libc::bind(fd.as_raw_fd(), raw.as_ptr().cast(), len) }).map(drop)
}
