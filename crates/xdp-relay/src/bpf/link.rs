//! BPF links, which attach programs to devices. A program remains on a device while any process has
//! a descriptor of the link.

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};

/// Command of `bpf(2)` that creates a link (`BPF_LINK_CREATE`).
const LINK_CREATE: libc::c_long = 28;

/// Command of `bpf(2)` that detaches a link (`BPF_LINK_DETACH`).
const LINK_DETACH: libc::c_long = 34;

/// Number of words in the attributes of a command on present kernels. Older kernels require that
/// unknown attributes are zero.
const ATTRIBUTE_WORDS: usize = 16;

/// Location of a program on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// The program runs in the driver.
    Xdp,
    /// The program runs after the driver.
    XdpGeneric,
    /// The program runs at tc, for inbound packets.
    Ingress,
    /// The program runs at tc, for outbound packets.
    Egress,
}

impl Place {
    /// Returns the kernel's `enum bpf_attach_type`, and flags.
    const fn numbers(self) -> (u32, u32) {
        match self {
            Self::Xdp => (37, 1 << 2),
            Self::XdpGeneric => (37, 1 << 1),
            Self::Ingress => (46, 0),
            Self::Egress => (47, 0),
        }
    }
}

/// Attaches a program to the device with this index, until the last descriptor of the link is
/// closed.
///
/// # Errors
/// The kernel does not support such links (before Linux 5.9 at XDP, 6.6 at tc), or the device or
/// the driver refuses.
pub(crate) fn attach(program: BorrowedFd<'_>, device: u32, place: Place) -> io::Result<OwnedFd> {
    let (kind, flags) = place.numbers();
    let link = bpf(LINK_CREATE, &[program.as_raw_fd().cast_unsigned(), device, kind, flags])?;
    // SAFETY: the kernel has just returned this descriptor, which has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(link) })
}

/// Detaches the program of a link from the device, even if other processes have descriptors of the
/// link.
///
/// # Errors
/// The descriptor is not a link.
pub(crate) fn detach(link: BorrowedFd<'_>) -> io::Result<()> {
    bpf(LINK_DETACH, &[link.as_raw_fd().cast_unsigned()]).map(drop)
}

/// Calls `bpf(2)`. `first` is the first words of the attributes, and the other words are zero.
fn bpf(command: libc::c_long, first: &[u32]) -> io::Result<RawFd> {
    let mut attributes = [0_u32; ATTRIBUTE_WORDS];
    attributes[..first.len()].copy_from_slice(first);
    // SAFETY: the attributes live until the call returns and have the passed length. The attributes
    // of these commands contain no pointers.
    let result = unsafe {
        libc::syscall(libc::SYS_bpf, command, attributes.as_ptr(), size_of_val(&attributes))
    };
    match i32::try_from(result) {
        Ok(result) if result >= 0 => Ok(result),
        _ => Err(io::Error::last_os_error()),
    }
}
