//! UDP over IPv4 from addresses that are not ours, as forgers send it: for measuring what a server
//! does about it. Wants `CAP_NET_RAW`.

use std::io;
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};

use libc::socklen_t;

use crate::SendError;
use crate::abi::address::{self, ADDRESS_BYTES};
use crate::abi::sys::{check, errno, set_option};

const IP_HEADER: usize = 20;
const UDP_HEADER: usize = 8;

/// The largest datagram: what an Ethernet frame carries. The kernel does not fragment what comes
/// with its own header.
const FRAME_MAX: usize = 1500;

/// The largest payload of [`RawUdpSocket::send`].
pub const RAW_PAYLOAD_MAX: usize = FRAME_MAX - IP_HEADER - UDP_HEADER;

/// Receive buffer in bytes: answers come in bursts.
const RECEIVE_BUFFER: libc::c_int = 8 << 20;

/// A datagram that was heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heard {
    /// Who sent it.
    pub from: SocketAddrV4,
    /// To whom.
    pub to: SocketAddrV4,
    /// Bytes of its payload.
    pub len: usize,
}

/// Sends UDP datagrams with any source, and hears those that one address sends to this host, to
/// whichever address and port.
#[derive(Debug)]
pub struct RawUdpSocket {
    fd: OwnedFd,
}

impl RawUdpSocket {
    /// Opens one that hears what `server` sends to this host.
    ///
    /// # Errors
    /// `PermissionDenied` without `CAP_NET_RAW`.
    pub fn open(server: Ipv4Addr) -> io::Result<Self> {
        let kind = libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        // SAFETY: takes no pointers.
        let fd = check(unsafe { libc::socket(libc::AF_INET, kind, libc::IPPROTO_UDP) })?;
        // SAFETY: the kernel has just given us this descriptor; nobody else has it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        set_option(fd.as_fd(), libc::IPPROTO_IP, libc::IP_HDRINCL, 1)?;
        // A larger buffer than the system's bound is a privilege of its own, and no necessity.
        let _ = set_option(fd.as_fd(), libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, RECEIVE_BUFFER);
        hear_only(fd.as_fd(), server)?;
        Ok(Self { fd })
    }

    /// Sends a datagram that says it comes from `from`.
    ///
    /// # Errors
    /// Why it was not sent: `TooBig` beyond [`RAW_PAYLOAD_MAX`]; none is fatal to the socket.
    pub fn send(
        &self,
        from: SocketAddrV4,
        to: SocketAddrV4,
        payload: &[u8],
    ) -> Result<(), SendError> {
        let mut packet = [0; FRAME_MAX];
        let Some(len) = write_packet(&mut packet, from, to, payload) else {
            return Err(SendError::TooBig);
        };
        let mut raw = [0; ADDRESS_BYTES];
        let address_len = address::encode(to.into(), &mut raw) as socklen_t;
        // SAFETY: `packet` has at least `len` bytes and `raw` at least `address_len`, an address;
        // both live until the call returns, and the kernel only reads them.
        let sent = unsafe {
            libc::sendto(
                self.fd.as_raw_fd(),
                packet.as_ptr().cast(),
                len,
                libc::MSG_DONTWAIT,
                raw.as_ptr().cast(),
                address_len,
            )
        };
        if sent < 0 { Err(SendError::from_errno(errno())) } else { Ok(()) }
    }

    /// Takes the next datagram that was heard; `None` when nothing waits.
    ///
    /// # Errors
    /// Those that mean a fault of the program or a lack of memory.
    pub fn recv(&self) -> io::Result<Option<Heard>> {
        // The largest IP header and the UDP header; the rest is cut off, and not missed.
        let mut head = [0_u8; 60 + UDP_HEADER];
        loop {
            // SAFETY: `head` lives until the call returns and has room for as many bytes as said;
            // nobody else refers to it.
            let received = unsafe {
                libc::recv(
                    self.fd.as_raw_fd(),
                    head.as_mut_ptr().cast(),
                    head.len(),
                    libc::MSG_DONTWAIT,
                )
            };
            if let Ok(len) = usize::try_from(received) {
                match read_head(&head[..len]) {
                    Some(heard) => return Ok(Some(heard)),
                    None => continue,
                }
            }
            match errno() {
                libc::EAGAIN => return Ok(None),
                libc::EINTR => {}
                errno => return Err(io::Error::from_raw_os_error(errno)),
            }
        }
    }
}

impl AsFd for RawUdpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Has the kernel drop what is not from this address, before it takes room in the buffer: above
/// all the copies of what we send ourselves to a server on the same host.
fn hear_only(fd: BorrowedFd<'_>, server: Ipv4Addr) -> io::Result<()> {
    let step = |code: u32, jump_false: u8, k: u32| libc::sock_filter {
        code: code as u16,
        jt: 0,
        jf: jump_false,
        k,
    };
    // The source address is at byte 12 of the IP header, where a raw socket's packets begin.
    let mut program = [
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 12),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 1, server.to_bits()),
        step(libc::BPF_RET | libc::BPF_K, 0, u32::MAX),
        step(libc::BPF_RET | libc::BPF_K, 0, 0),
    ];
    // SAFETY: `sock_fprog` is an integer and a pointer, for which zero is a value.
    let mut filter: libc::sock_fprog = unsafe { MaybeUninit::zeroed().assume_init() };
    filter.len = program.len() as u16;
    filter.filter = program.as_mut_ptr();
    // SAFETY: `filter` and the program it points at, of as many steps as it says, live until the
    // call returns; the kernel copies both.
    let result = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            (&raw const filter).cast(),
            size_of::<libc::sock_fprog>() as socklen_t,
        )
    };
    check(result).map(drop)
}

/// Writes the whole packet and returns its length; `None` when the payload is too long.
fn write_packet(
    packet: &mut [u8; FRAME_MAX],
    from: SocketAddrV4,
    to: SocketAddrV4,
    payload: &[u8],
) -> Option<usize> {
    let len = IP_HEADER + UDP_HEADER + payload.len();
    let (ip, udp) = packet.get_mut(..len)?.split_at_mut(IP_HEADER);
    // Length, identification and checksum of the IP header are filled in by the kernel.
    ip[0] = 0x45;
    ip[8] = 64;
    ip[9] = libc::IPPROTO_UDP as u8;
    ip[12..16].copy_from_slice(&from.ip().octets());
    ip[16..20].copy_from_slice(&to.ip().octets());
    udp[..2].copy_from_slice(&from.port().to_be_bytes());
    udp[2..4].copy_from_slice(&to.port().to_be_bytes());
    let udp_len = u16::try_from(udp.len()).ok()?;
    udp[4..6].copy_from_slice(&udp_len.to_be_bytes());
    udp[UDP_HEADER..].copy_from_slice(payload);
    let pseudo = sum(&ip[12..20]) + u32::from(udp_len) + libc::IPPROTO_UDP as u32;
    let mut total = pseudo + sum(udp);
    while total > 0xFFFF {
        total = (total & 0xFFFF) + (total >> 16);
    }
    // 0 would say that there is no checksum.
    let checksum = match !(total as u16) {
        0 => 0xFFFF,
        checksum => checksum,
    };
    udp[6..8].copy_from_slice(&checksum.to_be_bytes());
    Some(len)
}

/// The sum of 16-bit words, of at most 1500 bytes: it does not overflow.
fn sum(bytes: &[u8]) -> u32 {
    let mut words = bytes.chunks_exact(2);
    let last = words.remainder().first().map_or(0, |byte| u32::from(*byte) << 8);
    last + words.by_ref().map(|word| u32::from(word[0]) << 8 | u32::from(word[1])).sum::<u32>()
}

/// Reads the head of a packet: IP header, UDP header.
fn read_head(head: &[u8]) -> Option<Heard> {
    let header = usize::from(head.first()? & 0x0F) * 4;
    let ip = head.first_chunk::<IP_HEADER>()?;
    let udp = head.get(header..)?.first_chunk::<UDP_HEADER>()?;
    let word = |at: usize| u16::from_be_bytes([udp[at], udp[at + 1]]);
    let address = |at: usize| Ipv4Addr::new(ip[at], ip[at + 1], ip[at + 2], ip[at + 3]);
    Some(Heard {
        from: SocketAddrV4::new(address(12), word(0)),
        to: SocketAddrV4::new(address(16), word(2)),
        len: usize::from(word(4)).checked_sub(UDP_HEADER)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const FROM: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 1), 1000);
    const TO: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 2), 3478);

    #[test]
    fn a_packet_adds_up() {
        for payload in [&b""[..], b"a", b"ab", b"even and odd lengths"] {
            let mut packet = [0; FRAME_MAX];
            let len = write_packet(&mut packet, FROM, TO, payload).unwrap();
            assert_eq!(len, 28 + payload.len());
            assert_eq!(&packet[28..len], payload);
            let heard = Heard { from: FROM, to: TO, len: payload.len() };
            assert_eq!(read_head(&packet[..len]), Some(heard));
            // With the checksum in it, everything sums up to all ones (RFC 768, RFC 1071).
            let mut total = sum(&packet[12..len]) + 17 + (8 + payload.len() as u32);
            while total > 0xFFFF {
                total = (total & 0xFFFF) + (total >> 16);
            }
            assert_eq!(total, 0xFFFF);
        }
    }

    #[test]
    fn what_does_not_fit_into_a_frame_is_refused() {
        let mut packet = [0; FRAME_MAX];
        assert!(write_packet(&mut packet, FROM, TO, &[0; RAW_PAYLOAD_MAX]).is_some());
        assert!(write_packet(&mut packet, FROM, TO, &[0; RAW_PAYLOAD_MAX + 1]).is_none());
    }

    #[test]
    fn a_head_that_is_cut_says_nothing() {
        let mut packet = [0; FRAME_MAX];
        write_packet(&mut packet, FROM, TO, b"payload").unwrap();
        for len in 0..28 {
            assert_eq!(read_head(&packet[..len]), None);
        }
    }
}
