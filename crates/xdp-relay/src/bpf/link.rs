//! Programs on devices as links of the kernel: a program stays on its device as long as any process
//! has a descriptor of the link.

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};

/// Command of `bpf(2)` (`BPF_LINK_CREATE`).
const LINK_CREATE: libc::c_long = 28;

/// Likewise (`BPF_LINK_DETACH`).
const LINK_DETACH: libc::c_long = 34;

/// Words of the attributes that the command has in the kernels of today; older ones want the ones
/// that they do not know to be zero.
const ATTRIBUTE_WORDS: usize = 16;

/// Place of a program on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// In the driver.
    Xdp,
    /// Behind the driver.
    XdpGeneric,
    /// At tc, for packets that come.
    Ingress,
    /// At tc, for packets that leave.
    Egress,
}

impl Place {
    /// The kernel's `enum bpf_attach_type`, and flags.
    const fn numbers(self) -> (u32, u32) {
        match self {
            Self::Xdp => (37, 1 << 2),
            Self::XdpGeneric => (37, 1 << 1),
            Self::Ingress => (46, 0),
            Self::Egress => (47, 0),
        }
    }
}

/// Attaches a program to the device of this number, until the last descriptor of the link is
/// closed.
///
/// # Errors
/// The kernel's error: it has no such links (before Linux 5.9 at XDP, 6.6 at tc), the device or its
/// driver refuses.
pub(crate) fn attach(program: BorrowedFd<'_>, device: u32, place: Place) -> io::Result<OwnedFd> {
    let (kind, flags) = place.numbers();
    let link = bpf(LINK_CREATE, &[program.as_raw_fd().cast_unsigned(), device, kind, flags])?;
    // SAFETY: the kernel has just returned this descriptor, which has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(link) })
}

/// Takes the program of a link from its device, also if others have descriptors of the link.
///
/// # Errors
/// It is no link.
pub(crate) fn detach(link: BorrowedFd<'_>) -> io::Result<()> {
    bpf(LINK_DETACH, &[link.as_raw_fd().cast_unsigned()]).map(drop)
}

/// Calls `bpf(2)` with the first words of its attributes.
fn bpf(command: libc::c_long, first: &[u32]) -> io::Result<RawFd> {
    let mut attributes = [0_u32; ATTRIBUTE_WORDS];
    attributes[..first.len()].copy_from_slice(first);
    // SAFETY: the attributes live until the call returns and are as long as it is told, and there
    // are no pointers in those of these commands.
    let result = unsafe {
        libc::syscall(libc::SYS_bpf, command, attributes.as_ptr(), size_of_val(&attributes))
    };
    match i32::try_from(result) {
        Ok(result) if result >= 0 => Ok(result),
        _ => Err(io::Error::last_os_error()),
    }
}
