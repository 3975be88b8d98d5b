//! Detection of the UDP offloads that this kernel supports.

use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::AsFd;
use std::sync::OnceLock;

use crate::abi::sys::set_option;

/// UDP offloads of the kernel for sending and receiving.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// `UDP_GRO` (Linux 5.0): received datagrams arrive merged.
    pub gro: bool,
    /// `UDP_SEGMENT` (Linux 4.18): datagrams of equal size are sent as runs.
    pub gso: bool,
}

/// Returns the UDP offloads of the kernel, queried once per process. A field is false if the kernel
/// does not confirm the offload.
pub fn capabilities() -> Capabilities {
    static KNOWN: OnceLock<Capabilities> = OnceLock::new();
    *KNOWN.get_or_init(|| {
        let Ok(socket) = super::open(IpAddr::V4(Ipv4Addr::LOCALHOST)) else {
            return Capabilities { gro: false, gso: false };
        };
        let can = |option| set_option(socket.as_fd(), libc::SOL_UDP, option, 1).is_ok();
        Capabilities { gro: can(libc::UDP_GRO), gso: can(libc::UDP_SEGMENT) }
    })
}
