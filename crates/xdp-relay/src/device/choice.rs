//! Selection of the hook for a device.

use std::fmt;

use super::{Device, Kind};

/// Hook at which the kernel runs the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Hook {
    /// The program runs in the driver (XDP), before the kernel creates its packet structure.
    Xdp,
    /// The program runs at XDP without the driver's support, after the kernel has created its
    /// packet structure. For tests, and for devices where tc is not available.
    XdpGeneric,
    /// The program runs at tc's ingress, on the kernel's packet structures.
    Tc,
}

impl fmt::Display for Hook {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Xdp => "xdp",
            Self::XdpGeneric => "xdp-generic",
            Self::Tc => "tc",
        })
    }
}

/// Result of the selection of hooks for a device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// Hooks to try, sorted by preference. If empty, the device's packets pass to the sockets.
    pub hooks: Vec<Hook>,
    /// Reasons against faster hooks, as messages for an operator.
    pub left_out: Vec<String>,
}

/// Maximum MTU, in bytes, for which XDP is tried in a driver. A frame shares a page of 4096 bytes
/// with the headroom, and with the kernel's metadata after the frame. On x86-64 the headroom has
/// 256 bytes and the metadata 320. Ethernet and two VLAN headers have 22. Some drivers have a
/// smaller limit, and refuse with `ERANGE`.
pub const NATIVE_MTU_MAX: u32 = 3498;

/// Selects the hooks to try on a device. If the operator has selected a hook (`wanted`), only that
/// hook is tried, on devices with Ethernet frames. Otherwise the fastest hook is selected that does
/// not slow down other traffic.
///
/// The generic hook of XDP is never selected automatically. tc receives the same packets, and does
/// not need a copy of them.
#[must_use]
pub fn choose(device: &Device, wanted: Option<Hook>) -> Choice {
    let Device { name, mtu, .. } = device;
    let none = |reason: String| Choice { hooks: Vec::new(), left_out: vec![reason] };
    if device.kind == Kind::NotEthernet {
        return none(format!(
            "{name} carries no Ethernet frames, which the program reads and writes"
        ));
    }
    if let Some(hook) = wanted {
        return Choice { hooks: vec![hook], left_out: Vec::new() };
    }
    let tc = |reason: String| Choice { hooks: vec![Hook::Tc], left_out: vec![reason] };
    if !device.up {
        return none(format!("{name} is down: enable it with `ip link set {name} up`"));
    }
    match device.kind {
        Kind::Loopback => none(format!("{name} is the loopback, whose packets stay on this host")),
        // Handled above, with any choice of the operator.
        Kind::NotEthernet => Choice::default(),
        Kind::Virtual => tc(format!(
            "no XDP on {name}, a virtual device: it carries merged packets, which sockets process faster, and a program in its driver would force their segmentation"
        )),
        Kind::Physical => match device.xdp {
            None => tc(format!(
                "no XDP on {name}: this kernel does not report the driver's XDP features (Linux 6.3 and newer do)"
            )),
            Some(xdp) if !xdp.basic || !xdp.redirect => tc(format!(
                "no XDP on {name}: its driver does not run programs that forward packets"
            )),
            Some(_) if *mtu > NATIVE_MTU_MAX => tc(format!(
                "no XDP on {name}: its MTU is {mtu}, and drivers run programs up to {NATIVE_MTU_MAX}; lower it with `ip link set {name} mtu 1500`"
            )),
            Some(_) => Choice { hooks: vec![Hook::Xdp, Hook::Tc], left_out: Vec::new() },
        },
    }
}

/// Returns true if packets redirected by a program of this hook can leave by the device, in the
/// device's present state.
///
/// Drivers report [`ndo_xmit`](super::XdpFeatures::ndo_xmit) late, many only when a program is
/// attached. Call [`devices`](super::devices) again after all programs are attached. A driver
/// without support loses redirected packets silently. Without a report of the kernel the function
/// therefore returns false.
#[must_use]
pub fn may_leave(device: &Device, hook: Hook) -> bool {
    let ethernet = match device.kind {
        Kind::Physical | Kind::Virtual => true,
        Kind::Loopback | Kind::NotEthernet => false,
    };
    device.up
        && ethernet
        && match hook {
            Hook::Xdp => device.xdp.is_some_and(|xdp| xdp.ndo_xmit),
            Hook::XdpGeneric | Hook::Tc => true,
        }
}

#[cfg(test)]
mod tests {
    use super::super::XdpFeatures;
    use super::*;

    const FULL: Option<XdpFeatures> = Some(XdpFeatures::from_bits(0b111));

    fn device(kind: Kind, xdp: Option<XdpFeatures>) -> Device {
        Device {
            name: "e0".into(),
            index: 7,
            mac: [2; 6],
            mtu: 1500,
            up: true,
            kind,
            port: false,
            veth: false,
            xdp,
        }
    }

    #[test]
    fn hooks_by_kind_of_device() {
        use Hook::{Tc, Xdp};
        let features = |bits: u64| Some(XdpFeatures::from_bits(bits));
        let with_mtu = |mtu: u32| Device { mtu, ..device(Kind::Physical, FULL) };
        let down = |kind: Kind| Device { up: false, ..device(kind, FULL) };
        let table: [(Device, &[Hook], &str); 14] = [
            (device(Kind::Physical, FULL), &[Xdp, Tc], ""),
            (device(Kind::Physical, features(0b011)), &[Xdp, Tc], ""),
            (device(Kind::Physical, features(0b001)), &[Tc], "does not run programs"),
            (device(Kind::Physical, features(0b110)), &[Tc], "does not run programs"),
            (device(Kind::Physical, features(0)), &[Tc], "does not run programs"),
            (device(Kind::Physical, None), &[Tc], "6.3"),
            (device(Kind::Virtual, FULL), &[Tc], "merged"),
            (device(Kind::Virtual, None), &[Tc], "merged"),
            (device(Kind::NotEthernet, FULL), &[], "no Ethernet"),
            (device(Kind::Loopback, None), &[], "loopback"),
            (down(Kind::Physical), &[], "is down"),
            (down(Kind::Virtual), &[], "is down"),
            (with_mtu(NATIVE_MTU_MAX), &[Xdp, Tc], ""),
            (with_mtu(NATIVE_MTU_MAX + 1), &[Tc], "3499"),
        ];
        for (device, hooks, reason) in table {
            let choice = choose(&device, None);
            assert_eq!(choice.hooks, hooks, "{device:?}");
            // Each hook that is not tried has a reason, which names the device.
            assert_eq!(choice.left_out.is_empty(), reason.is_empty(), "{device:?}");
            for sentence in &choice.left_out {
                assert!(sentence.contains(reason) && sentence.contains("e0"), "{sentence}");
            }
        }
    }

    #[test]
    fn interfaces_named_by_the_operator_are_used() {
        for kind in [Kind::Loopback, Kind::Physical, Kind::Virtual] {
            for hook in [Hook::Xdp, Hook::XdpGeneric, Hook::Tc] {
                for up in [true, false] {
                    let device = Device { up, ..device(kind, None) };
                    let choice = Choice { hooks: vec![hook], left_out: Vec::new() };
                    assert_eq!(choose(&device, Some(hook)), choice);
                }
            }
        }
    }

    #[test]
    fn packets_leave_where_the_device_sends_them() {
        let table = [
            // Kind, features, up; by driver, generic, tc.
            (Kind::Physical, FULL, true, [true, true, true]),
            (Kind::Virtual, FULL, true, [true, true, true]),
            (Kind::Physical, Some(XdpFeatures::from_bits(0b011)), true, [false, true, true]),
            (Kind::Physical, None, true, [false, true, true]),
            (Kind::Physical, FULL, false, [false, false, false]),
            (Kind::NotEthernet, FULL, true, [false, false, false]),
            (Kind::Loopback, FULL, true, [false, false, false]),
        ];
        for (kind, xdp, up, expected) in table {
            let device = Device { up, ..device(kind, xdp) };
            let leaves =
                [Hook::Xdp, Hook::XdpGeneric, Hook::Tc].map(|hook| may_leave(&device, hook));
            assert_eq!(leaves, expected, "{device:?}");
        }
    }
}
