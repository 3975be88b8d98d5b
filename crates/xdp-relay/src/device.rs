//! Network devices: what they are, and what of the kernel path they can carry.

/// Where in the kernel a program sees packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Hook {
    /// In the driver, before the kernel makes anything of a packet.
    Xdp,
    /// The same program, after the kernel has made its packet: for any driver.
    XdpGeneric,
    /// Behind that, where the kernel's own filters are: for any driver.
    Tc,
}
