//! Attaching a program to a link, for the lifetime of its object.

use anyhow::{Context, Error, Result};
use aya::Ebpf;
use aya::programs::{ProgramError, XdpMode};

use super::object;

/// Loads a program and attaches it to a link, in the driver: before the kernel allocates a packet.
///
/// # Errors
/// The obstacle, with advice.
pub(super) fn attach(object: &mut Ebpf, name: &str, interface: &str) -> Result<()> {
    let program = object::load(object, name)?;
    put(program, interface)
}

/// Attaches a loaded program to a further link.
pub(super) fn put(program: &mut aya::programs::Xdp, interface: &str) -> Result<()> {
    match program.attach(interface, XdpMode::Driver) {
        Ok(_held_by_the_object) => Ok(()),
        Err(error) => {
            let advice = advice(&error, interface);
            Err(Error::new(error).context(advice))
        }
    }
}

fn advice(error: &ProgramError, interface: &str) -> String {
    if let ProgramError::UnknownInterface { .. } = error {
        return format!("there is no interface {interface} in this network namespace");
    }
    let ProgramError::SyscallError(error) = error else {
        return format!("cannot put an XDP program on {interface}");
    };
    let hint = match error.io_error.raw_os_error() {
        Some(libc::EBUSY) => format!(
            "another XDP program is on it already: see `ip link show {interface}`, and take it off with `ip link set {interface} xdp off`"
        ),
        Some(libc::ERANGE) => "its MTU is too large for XDP: 1500 always fits".to_owned(),
        Some(libc::EOPNOTSUPP) => "its driver does not run XDP programs".to_owned(),
        Some(libc::EPERM) => "CAP_NET_ADMIN and CAP_BPF are wanted".to_owned(),
        _ => "the kernel refused".to_owned(),
    };
    format!("cannot put an XDP program on {interface}: {hint}")
}

/// The number of an interface.
///
/// # Errors
/// There is none of this name in this network namespace.
pub(super) fn interface_number(interface: &str) -> Result<u32> {
    linux_net::interface_index(interface)
        .with_context(|| format!("there is no interface {interface} in this network namespace"))
}
