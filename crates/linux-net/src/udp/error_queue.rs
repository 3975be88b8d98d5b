//! Error queue of a socket (`IP_RECVERR`): errors of datagrams sent earlier.

use std::io;
use std::mem::MaybeUninit;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd as _, AsRawFd as _};

use libc::c_int;
use turn_types::IpFamily;

use crate::UdpSocket;
use crate::abi::address::{self, ADDRESS_BYTES};
use crate::abi::cmsg::{self, Decoder};
use crate::abi::sys::{errno, option};

/// Maximum number of errors taken per call, so a flood of ICMP cannot delay a worker. epoll reports
/// the remaining errors.
const MAX_PER_CALL: usize = 64;

/// Size of the control messages of an error: a `sock_extended_err` with the address of the
/// reporter, the packet info, and the fields of the IP header.
const CONTROL_BYTES: usize = cmsg::space(size_of::<libc::sock_extended_err>() + ADDRESS_BYTES)
    + cmsg::space(size_of::<libc::in6_pktinfo>())
    + cmsg::space(4) * 4;

/// Error of a datagram that was reported after sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketError {
    /// Destination of the datagram.
    pub peer: SocketAddr,
    /// Source of the datagram, which is the destination of the ICMP message. `None` without
    /// [`UdpOptions::packet_info`](crate::UdpOptions), and for faults that this host detected.
    pub local: Option<IpAddr>,
    /// Error number by which the kernel describes the fault.
    pub errno: i32,
    /// Received ICMP message. `None` if this host detected the fault (`EMSGSIZE`).
    pub icmp: Option<IcmpReport>,
}

/// ICMP message about a sent datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IcmpReport {
    /// Protocol that defines type and code: ICMP (RFC 792) or ICMPv6 (RFC 4443).
    pub family: IpFamily,
    /// ICMP type.
    pub kind: u8,
    /// ICMP code.
    pub code: u8,
    /// MTU that the router named in "fragmentation needed" (3/4) or "packet too big" (2/0). 0 for
    /// other messages, and if the router named no MTU.
    pub mtu_or_zero: u32,
}

impl UdpSocket {
    /// Reads up to 64 entries of the error queue, and returns the number of errors passed to
    /// `report`.
    ///
    /// # Errors
    /// `recvmsg` fails because of a fault of the program. An empty queue is not an error.
    pub fn recv_errors(&self, mut report: impl FnMut(SocketError)) -> io::Result<usize> {
        let mut reported = 0;
        for _ in 0..MAX_PER_CALL {
            match self.recv_error()? {
                Taken::Nothing => break,
                Taken::Other => {}
                Taken::Error(error) => {
                    report(error);
                    reported += 1;
                }
            }
        }
        if reported == 0 {
            // An error that did not fit in the queue remains on the socket, which polls as ready
            // until the error is read.
            option(self.as_fd(), libc::SOL_SOCKET, libc::SO_ERROR)?;
        }
        Ok(reported)
    }

    fn recv_error(&self) -> io::Result<Taken> {
        let mut name = [0_u8; ADDRESS_BYTES];
        let mut control = Control([0; CONTROL_BYTES]);
        // SAFETY: `msghdr` consists of integers and pointers, for which zero is a valid value.
        let mut header: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
        header.msg_name = name.as_mut_ptr().cast();
        header.msg_namelen = ADDRESS_BYTES as _;
        header.msg_control = control.0.as_mut_ptr().cast();
        header.msg_controllen = CONTROL_BYTES as _;
        // No payload buffers: the kernel would return the start of the sent datagram.
        let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
        let result = loop {
            // SAFETY: name and control buffer live until the call returns and are as long as the
            // header says; there are no payload buffers.
            let result = unsafe { libc::recvmsg(self.as_raw_fd(), &raw mut header, flags) };
            if result >= 0 || errno() != libc::EINTR {
                break result;
            }
        };
        if result < 0 {
            return match errno() {
                libc::EAGAIN => Ok(Taken::Nothing),
                _ => Err(io::Error::last_os_error()),
            };
        }
        // The type is `size_t` in one C library and `socklen_t` in another.
        let written: usize = header.msg_controllen as _;
        let written = written.min(CONTROL_BYTES);
        let messages = || Decoder::new(&control.0[..written]);
        let local = messages().find_map(cmsg::destination);
        let error = address::decode(&name)
            .and_then(|peer| messages().find_map(|message| parse(peer, local, message)));
        Ok(error.map_or(Taken::Other, Taken::Error))
    }
}

/// Control buffer. Control messages start at the alignment of a `long`.
#[repr(align(8))]
struct Control([u8; CONTROL_BYTES]);

enum Taken {
    Nothing,
    /// Entry of another kind, such as a time stamp.
    Other,
    Error(SocketError),
}

/// Decodes one control message that contains a `struct sock_extended_err`. Returns `None` for other
/// control messages and origins.
fn parse(
    peer: SocketAddr,
    local: Option<IpAddr>,
    (level, kind, data): (c_int, c_int, &[u8]),
) -> Option<SocketError> {
    let ours = (level == libc::IPPROTO_IP && kind == libc::IP_RECVERR)
        || (level == libc::IPPROTO_IPV6 && kind == libc::IPV6_RECVERR);
    let raw = data.first_chunk::<{ size_of::<libc::sock_extended_err>() }>()?;
    if !ours {
        return None;
    }
    let [e0, e1, e2, e3, origin, icmp_type, code, _pad, i0, i1, i2, i3, ..] = *raw;
    let errno = i32::from_ne_bytes([e0, e1, e2, e3]);
    let info = u32::from_ne_bytes([i0, i1, i2, i3]);
    let report = |family, too_big| IcmpReport {
        family,
        kind: icmp_type,
        code,
        mtu_or_zero: if too_big { info } else { 0 },
    };
    let icmp = match origin {
        libc::SO_EE_ORIGIN_LOCAL => None,
        libc::SO_EE_ORIGIN_ICMP => Some(report(IpFamily::V4, (icmp_type, code) == (3, 4))),
        libc::SO_EE_ORIGIN_ICMP6 => Some(report(IpFamily::V6, icmp_type == 2)),
        _ => return None,
    };
    let local = local.filter(|_| icmp.is_some());
    Some(SocketError { peer, local, errno, icmp })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extended(origin: u8, icmp_type: u8, code: u8, info: u32) -> Vec<u8> {
        let mut raw = vec![];
        raw.extend(libc::EMSGSIZE.to_ne_bytes());
        raw.extend([origin, icmp_type, code, 0]);
        raw.extend(info.to_ne_bytes());
        raw.extend([0; 4]);
        raw
    }

    fn parse_v4(data: &[u8]) -> Option<SocketError> {
        let peer = "192.0.2.1:9".parse().unwrap();
        parse(peer, None, (libc::IPPROTO_IP, libc::IP_RECVERR, data))
    }

    #[test]
    fn the_mtu_is_reported_for_icmp_too_big_alone() {
        let mtu = |raw: &[u8]| parse_v4(raw).unwrap().icmp.unwrap().mtu_or_zero;
        assert_eq!(mtu(&extended(libc::SO_EE_ORIGIN_ICMP, 3, 4, 1400)), 1400);
        assert_eq!(mtu(&extended(libc::SO_EE_ORIGIN_ICMP, 3, 3, 1400)), 0);
        assert_eq!(mtu(&extended(libc::SO_EE_ORIGIN_ICMP6, 2, 0, 1280)), 1280);
        assert_eq!(mtu(&extended(libc::SO_EE_ORIGIN_ICMP6, 1, 4, 1280)), 0);
    }

    #[test]
    fn faults_found_here_have_no_icmp_and_other_origins_are_not_errors() {
        let local = parse_v4(&extended(libc::SO_EE_ORIGIN_LOCAL, 0, 0, 65_536)).unwrap();
        assert_eq!((local.errno, local.icmp), (libc::EMSGSIZE, None));
        assert_eq!(parse_v4(&extended(libc::SO_EE_ORIGIN_TIMESTAMPING, 0, 0, 0)), None);
        assert_eq!(parse_v4(&extended(libc::SO_EE_ORIGIN_ICMP, 3, 3, 0)[..15]), None);
    }
}
