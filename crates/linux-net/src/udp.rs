//! UDP sockets: options, and the values that the kernel granted.

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

/// Of `asm-generic/socket.h`; the C library's bindings do not have it.
const SO_MEMINFO: c_int = 55;

/// The place of the bytes that wait to be received in the answer to it.
const SK_MEMINFO_RMEM_ALLOC: usize = libc::SK_MEMINFO_RMEM_ALLOC as usize;

/// Index of the count of lost datagrams.
const SK_MEMINFO_DROPS: usize = libc::SK_MEMINFO_DROPS as usize;

/// Requested options of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdpOptions {
    /// `SO_REUSEPORT`: several workers listen on one port and the kernel spreads flows over them.
    pub reuse_port: bool,
    /// Receive buffer in bytes; 0 leaves the system's default.
    pub recv_buffer: usize,
    /// Send buffer in bytes; 0 leaves the system's default.
    pub send_buffer: usize,
    /// `UDP_GRO`: equal datagrams of one sender arrive as one message.
    pub gro: bool,
    /// `IP_PKTINFO`: reports the local address of each datagram. For sockets bound to the
    /// unspecified address, which must answer from that one.
    pub packet_info: bool,
    /// `IP_RECVERR`: ICMP errors are kept for [`UdpSocket::recv_errors`].
    pub error_queue: bool,
    /// Index of the one interface that it receives from and sends by; `None` for all.
    pub device: Option<NonZeroU32>,
    /// `IP_FREEBIND`: it may have, and send from, addresses that no interface has, such as those of
    /// a prefix that is delivered to this host.
    pub free: bool,
    /// TTL and traffic class that most of its datagrams have become options of the socket: for
    /// sockets by which one client's datagrams leave. Only one handle of it may send.
    pub adapts: bool,
}

impl Default for UdpOptions {
    /// GRO and the error queue on, the rest off, buffers as the system has them.
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

/// Number of the set of options that every socket gets beside those of [`UdpOptions`]: another one
/// whenever it changes. A process that [adopts](UdpSocket::adopt) the sockets of another one asks
/// whether both have the same.
pub const OPTION_SET: u32 = 1;

/// Options granted by the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Applied {
    /// Receive buffer in bytes, comparable with the request (the kernel reports twice that, for its
    /// own bookkeeping). Less than requested: `net.core.rmem_max` is the bound for processes
    /// without `CAP_NET_ADMIN`.
    pub recv_buffer: usize,
    /// Send buffer in bytes, as above; `net.core.wmem_max`.
    pub send_buffer: usize,
    /// Datagrams arrive merged.
    pub gro: bool,
    /// Datagrams carry the count of lost ones before them (`SO_RXQ_OVFL`).
    pub losses: bool,
}

/// A UDP socket: non-blocking, close-on-exec, of one family (IPv6 sockets take no IPv4).
///
/// One thread owns it. Every received datagram carries its TTL, its traffic class and the count of
/// lost datagrams before it; sent datagrams are fragmented as needed, unless their header fields
/// forbid it.
#[derive(Debug)]
pub struct UdpSocket {
    fd: OwnedFd,
    pub(crate) local: SocketAddr,
    /// `IP_MTU_DISCOVER` between datagrams that must not be fragmented.
    at_rest: c_int,
    /// The socket forbids fragmentation now (IPv4; in IPv6 each datagram carries its own option).
    dont_fragment: Cell<bool>,
    resting: Resting,
}

impl UdpSocket {
    /// Opens a socket and binds it to `addr`. Port 0 means any free one.
    ///
    /// # Errors
    /// Errors of `socket` and `bind`: address in use, not available, no descriptors left. A kernel
    /// without an option for speed or diagnostics is no error.
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

    /// As [`bind`](Self::bind), but does not query the granted values: for sockets that are opened
    /// frequently.
    ///
    /// # Errors
    /// As [`bind`](Self::bind).
    pub fn bind_unasked(addr: SocketAddr, options: &UdpOptions) -> io::Result<Self> {
        Self::set_up(addr, options).map(|(socket, _)| socket)
    }

    /// The socket, and the kernel's capabilities for it.
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
            // Before, the kernel would choose among the ports that others share as well.
            share()?;
        }
        let local = if addr.port() == 0 { bound_address(fd.as_fd())? } else { addr };
        let resting = Resting::new(options.adapts);
        Ok((Self { fd, local, at_rest, dont_fragment: Cell::new(false), resting }, able))
    }

    /// Takes a socket that another process has bound: a server before an upgrade, or systemd. Sets
    /// its options as [`bind`](Self::bind) does, but for `reuse_port`, which comes before the
    /// binding. Without `gro` the state of merging remains: merged datagrams may wait.
    ///
    /// # Errors
    /// It is no UDP socket, it is not bound, or it is one for IPv6 that takes IPv4 as well.
    pub fn from_fd(fd: OwnedFd, options: &UdpOptions) -> io::Result<Self> {
        let local = adopt_listening(fd.as_fd(), libc::SOCK_DGRAM)?;
        let (at_rest, _) = set_options(fd.as_fd(), IpFamily::of(local.ip()), options)?;
        let resting = Resting::taken_over(options.adapts);
        Ok(Self { fd, local, at_rest, dont_fragment: Cell::new(false), resting })
    }

    /// Takes a socket that another process of this program has bound, with these `options` and the
    /// same [`OPTION_SET`]: a fifth of the calls of [`from_fd`](Self::from_fd), where thousands
    /// wait for it. Without `gro` the state of merging remains: merged datagrams may wait.
    ///
    /// # Errors
    /// It is no UDP socket, or it is not bound.
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

    /// The address the socket is bound to, with the port that was given for port 0.
    #[must_use]
    pub const fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Index of the interface that the socket is bound to; `None`: it is bound to none.
    ///
    /// # Errors
    /// The kernel is older than Linux 5.0.
    pub fn device(&self) -> io::Result<Option<NonZeroU32>> {
        bound_device(self.fd.as_fd())
    }

    /// The family of the socket.
    #[must_use]
    pub const fn family(&self) -> IpFamily {
        IpFamily::of(self.local.ip())
    }

    /// Enables or disables merging of received datagrams (GRO), where the kernel supports it.
    /// Datagrams already merged in the queue arrive as one after it is disabled.
    pub fn merge(&self, on: bool) {
        // A kernel that cannot leaves each alone.
        drop(set_option(self.fd.as_fd(), libc::SOL_UDP, libc::UDP_GRO, c_int::from(on)));
    }

    /// Has datagrams arrive each alone from now on, if none waits that may have been merged. False
    /// when something waits: then nothing is different.
    #[must_use]
    pub fn cease_merging(&self) -> bool {
        // First, so that no datagram that arrives after the check is merged.
        self.merge(false);
        let is_empty = self.is_empty();
        if !is_empty {
            self.merge(true);
        }
        is_empty
    }

    /// True if neither a datagram nor an error waits; false if the kernel does not report it.
    fn is_empty(&self) -> bool {
        memory_info(self.as_fd()).is_ok_and(|info| info[SK_MEMINFO_RMEM_ALLOC] == 0)
    }

    /// A second handle of the same socket, so that one thread may receive while another sends. Only
    /// one of the two may send datagrams whose header fields forbid fragmentation, and only one may
    /// send at all if the socket [adapts](UdpOptions::adapts): each caches the last state that it
    /// set in the kernel.
    ///
    /// # Errors
    /// No descriptors left.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self {
            fd: self.duplicate()?,
            local: self.local,
            at_rest: self.at_rest,
            dont_fragment: self.dont_fragment.clone(),
            resting: self.resting.of_other_handle(),
        })
    }

    /// Duplicates the descriptor, for another process, which expects that the headers of datagrams
    /// allow fragmentation.
    ///
    /// # Errors
    /// No descriptors left.
    pub fn duplicate(&self) -> io::Result<OwnedFd> {
        self.set_dont_fragment(false)?;
        self.fd.try_clone()
    }

    /// Allows fragmentation of later datagrams, until one forbids it: another process is to use
    /// the socket, and expects that.
    pub fn allow_fragments(&self) {
        // A socket that is ours takes the option.
        let _ = self.set_dont_fragment(false);
    }

    /// Datagrams lost since the socket was opened, most often to a full receive buffer; wraps. The
    /// count of [`Received::kernel_drops`](crate::Received), also when nothing arrives any more.
    ///
    /// # Errors
    /// Linux before 4.12 does not report it.
    pub fn dropped(&self) -> io::Result<u32> {
        memory_info(self.as_fd()).map(|info| info[SK_MEMINFO_DROPS])
    }

    /// Allows or forbids fragmentation of the next datagrams. IPv4 has no control message for it,
    /// so it is a state of the socket, which is set only on a change. IPv6: nothing to do.
    ///
    /// `IP_PMTUDISC_PROBE` and not `_DO`: DF is set and the interface's MTU is the limit, while a
    /// path MTU remembered from some earlier (or forged) ICMP message is not. DF serves path MTU
    /// discovery, which learns the true limit by ICMP.
    pub(crate) fn set_dont_fragment(&self, forbid: bool) -> io::Result<()> {
        if self.dont_fragment.get() == forbid || self.family() == IpFamily::V6 {
            return Ok(());
        }
        let mode = if forbid { libc::IP_PMTUDISC_PROBE } else { self.at_rest };
        set_option(self.as_fd(), libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, mode)?;
        self.dont_fragment.set(forbid);
        Ok(())
    }

    /// Sets TTL and traffic class of the next datagrams that do not say theirs, if that is worth
    /// it, or if `next` cannot.
    pub(crate) fn settle_fields(&self, next: IpMeta) {
        self.resting.settle(self.as_fd(), self.family(), next);
    }

    /// Returns whether a datagram with these fields may leave in one call with others.
    pub(crate) fn can_send(&self, meta: IpMeta) -> bool {
        self.resting.can_send(meta)
    }

    /// TTL and traffic class that a datagram has to say, since the socket has others.
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

/// A new datagram socket of the family of `ip`.
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
    // No DF, fragments cut to the interface's MTU. Unlike `_DONT`, ICMP "fragmentation needed"
    // about a datagram that did carry DF still reaches the error queue, and forged ones do not
    // shrink the path MTU of everybody's datagrams. (Linux before 3.15 does not have it.)
    for mode in [libc::IP_PMTUDISC_OMIT, libc::IP_PMTUDISC_DONT] {
        if set_option(fd, ip, libc::IP_MTU_DISCOVER, mode).is_ok() {
            return Ok(mode);
        }
    }
    Err(io::Error::last_os_error())
}

/// Routers do not fragment IPv6: the path MTU must be learnt and cut to, which `_DONT` does and
/// `_OMIT` does not. "Packet too big" reaches the error queue all the same.
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

/// The options that a kernel may lack, as [`Applied`] has them.
struct Able {
    gro: bool,
    losses: bool,
}

/// Sets the options that a bound socket may get as well: those of [`OPTION_SET`]. Returns
/// `IP_MTU_DISCOVER` at rest.
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

/// Sets the receive buffer of a socket beyond what the system allows its user, which takes
/// `CAP_NET_ADMIN`. Without it nothing is different.
///
/// # Errors
/// `CAP_NET_ADMIN` is missing, or it is no socket.
pub fn force_receive_buffer(fd: BorrowedFd<'_>, bytes: usize) -> io::Result<()> {
    set_option(fd, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, buffer_size(bytes))
}

/// A size as the kernel takes it, which doubles it in an `int`.
fn buffer_size(bytes: usize) -> c_int {
    c_int::try_from(bytes).unwrap_or(c_int::MAX).min(c_int::MAX / 2)
}

/// Sets the send buffer of a socket of any family, as far as the system allows; 0 leaves its
/// default.
///
/// # Errors
/// It is no socket.
pub fn set_send_buffer(fd: BorrowedFd<'_>, bytes: usize) -> io::Result<()> {
    set_buffer(fd, libc::SO_SNDBUFFORCE, libc::SO_SNDBUF, bytes)
}

fn buffer(fd: BorrowedFd<'_>, name: c_int) -> io::Result<usize> {
    Ok(usize::try_from(option(fd, libc::SOL_SOCKET, name)?).unwrap_or(0) / 2)
}

/// `SO_MEMINFO`: memory figures of `struct sock`, numbered as in `linux/sock_diag.h`.
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
