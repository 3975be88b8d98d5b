//! UDP over IPv4 from forged addresses, for measuring how a server reacts to it. Wants
//! `CAP_NET_RAW`.

use std::io::{self, Read as _};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsFd, BorrowedFd};

use etherparse::{IpNumber, Ipv4Header, PacketBuilder, UdpHeader};
use socket2::{Domain, Protocol, SockFilter, Socket, Type};

/// Bytes of an Ethernet frame's payload. The kernel does not fragment packets that come with a
/// header of their own.
const FRAME_MAX: usize = 1500;

/// The largest payload of [`RawUdpSocket::send`], in bytes.
const PAYLOAD_MAX: usize = FRAME_MAX - Ipv4Header::MIN_LEN - UdpHeader::LEN;

/// Receive buffer in bytes: answers come in bursts.
const RECEIVE_BUFFER: usize = 8 << 20;

/// Hops of a packet.
const TTL: u8 = 64;

/// The headers of a received datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceivedHeader {
    /// Source.
    pub from: SocketAddrV4,
    /// Destination.
    pub to: SocketAddrV4,
    /// Bytes of the payload.
    pub len: usize,
}

/// Sends UDP datagrams with any source, and receives the headers of those that one server sends to
/// this host, whatever their destination.
#[derive(Debug)]
pub struct RawUdpSocket(Socket);

impl RawUdpSocket {
    /// Opens a socket that receives from `server`.
    ///
    /// # Errors
    /// `PermissionDenied` without `CAP_NET_RAW`.
    pub fn open(server: Ipv4Addr) -> io::Result<Self> {
        let socket = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::UDP))?;
        socket.set_nonblocking(true)?;
        socket.set_header_included_v4(true)?;
        socket.set_recv_buffer_size(RECEIVE_BUFFER)?;
        socket.attach_filter(&from_server(server))?;
        Ok(Self(socket))
    }

    /// Sends a datagram with the source `from`.
    ///
    /// # Errors
    /// `InvalidInput` beyond 1472 bytes; otherwise what the kernel refused. None is fatal.
    pub fn send(&self, from: SocketAddrV4, to: SocketAddrV4, payload: &[u8]) -> io::Result<()> {
        let packet = packet(from, to, payload)?;
        self.0.send_to(&packet, &to.into()).map(drop)
    }

    /// Receives the headers of the next datagram; `None` when there is none.
    ///
    /// # Errors
    /// The kernel's, other than a lack of datagrams.
    pub fn recv(&self) -> io::Result<Option<ReceivedHeader>> {
        // The largest IP header and a UDP header; the payload is cut off.
        let mut head = [0; Ipv4Header::MAX_LEN + UdpHeader::LEN];
        loop {
            match (&self.0).read(&mut head) {
                Ok(len) => match parse(&head[..len]) {
                    Some(header) => return Ok(Some(header)),
                    None => continue,
                },
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

impl AsFd for RawUdpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A filter that drops datagrams of other sources before they take room in the buffer, above all
/// the copies of forged ones to a server on the same host.
fn from_server(server: Ipv4Addr) -> [SockFilter; 4] {
    let step = |code: u32, jf: u8, k: u32| SockFilter::new(code as u16, 0, jf, k);
    // A raw socket's packets begin with the IP header, whose byte 12 is the source.
    [
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 12),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 1, server.to_bits()),
        step(libc::BPF_RET | libc::BPF_K, 0, u32::MAX),
        step(libc::BPF_RET | libc::BPF_K, 0, 0),
    ]
}

fn packet(from: SocketAddrV4, to: SocketAddrV4, payload: &[u8]) -> io::Result<Vec<u8>> {
    if payload.len() > PAYLOAD_MAX {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let builder =
        PacketBuilder::ipv4(from.ip().octets(), to.ip().octets(), TTL).udp(from.port(), to.port());
    let mut packet = Vec::with_capacity(builder.size(payload.len()));
    builder.write(&mut packet, payload).map_err(io::Error::other)?;
    Ok(packet)
}

fn parse(head: &[u8]) -> Option<ReceivedHeader> {
    let (ip, rest) = Ipv4Header::from_slice(head).ok()?;
    if ip.protocol != IpNumber::UDP {
        return None;
    }
    let (udp, _) = UdpHeader::from_slice(rest).ok()?;
    Some(ReceivedHeader {
        from: SocketAddrV4::new(ip.source.into(), udp.source_port),
        to: SocketAddrV4::new(ip.destination.into(), udp.destination_port),
        len: usize::from(udp.length).checked_sub(UdpHeader::LEN)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const FROM: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 1), 1000);
    const TO: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 2), 3478);

    #[test]
    fn a_packet_reads_as_it_was_written_and_fits_a_frame() {
        let bytes = packet(FROM, TO, b"payload").unwrap();
        assert_eq!(parse(&bytes), Some(ReceivedHeader { from: FROM, to: TO, len: 7 }));
        assert!((0..28).all(|len| parse(&bytes[..len]).is_none()), "cut headers");
        assert!(packet(FROM, TO, &[0; PAYLOAD_MAX]).is_ok());
        assert!(packet(FROM, TO, &[0; PAYLOAD_MAX + 1]).is_err());
    }
}
