//! Notifications of the kernel about addresses, routes and devices (rtnetlink).

use std::io;
use std::ops::BitOrAssign;

use super::own_addresses::{is_default_route, is_own_route};
use crate::netlink::{ANSWER_MAX, Message, Socket, messages};

/// Multicast groups to subscribe to, from linux/rtnetlink.h.
const GROUPS: [libc::c_uint; 10] = [
    libc::RTNLGRP_LINK,
    libc::RTNLGRP_IPV4_IFADDR,
    libc::RTNLGRP_IPV6_IFADDR,
    libc::RTNLGRP_IPV4_ROUTE,
    libc::RTNLGRP_IPV6_ROUTE,
    libc::RTNLGRP_IPV4_RULE,
    libc::RTNLGRP_IPV6_RULE,
    libc::RTNLGRP_IPV4_NETCONF,
    libc::RTNLGRP_IPV6_NETCONF,
    libc::RTNLGRP_NEXTHOP,
];

/// Maximum number of notification datagrams read by one [`HostMonitor::wait`], to limit the time of
/// a call at any rate of notifications.
const DATAGRAMS_MAX: usize = 256;

// Message types of linux/rtnetlink.h that the C library's bindings partly lack.
const RTM_NEWNETCONF: u16 = 80;
const RTM_DELNETCONF: u16 = 81;
const RTM_NEWNEXTHOP: u16 = 104;
const RTM_DELNEXTHOP: u16 = 105;

/// Parts of the host's state that may have changed and must be read again completely.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostChanges {
    /// Prefixes delivered to the host itself ([`own_prefixes`](crate::own_prefixes)), or addresses
    /// of interfaces.
    pub own_addresses: bool,
    /// Devices and their addresses, or routes of the host.
    pub devices: bool,
    /// Forwarding setting of the host or of a device.
    pub forwarding: bool,
}

impl HostChanges {
    /// Every part may have changed.
    pub const ALL: Self = Self { own_addresses: true, devices: true, forwarding: true };

    /// Returns true if any part may have changed.
    #[must_use]
    pub fn any(&self) -> bool {
        *self != Self::default()
    }

    /// Returns the parts that a notification concerns.
    fn of(message: &Message<'_>) -> Self {
        let none = Self::default();
        match message.kind {
            // A device that is shut down removes routes without a separate notification.
            libc::RTM_NEWLINK | libc::RTM_DELLINK | libc::RTM_NEWADDR | libc::RTM_DELADDR => {
                Self { own_addresses: true, devices: true, ..none }
            }
            libc::RTM_NEWROUTE | libc::RTM_DELROUTE => Self {
                own_addresses: is_own_route(message.body),
                devices: is_default_route(message.body),
                ..none
            },
            libc::RTM_NEWRULE | libc::RTM_DELRULE | RTM_NEWNEXTHOP | RTM_DELNEXTHOP => {
                Self { devices: true, ..none }
            }
            RTM_NEWNETCONF | RTM_DELNETCONF => Self { forwarding: true, ..none },
            _ => none,
        }
    }
}

impl BitOrAssign for HostChanges {
    fn bitor_assign(&mut self, other: Self) {
        self.own_addresses |= other.own_addresses;
        self.devices |= other.devices;
        self.forwarding |= other.forwarding;
    }
}

/// Subscription to changes of a network namespace: the namespace of the thread that called
/// [`open`](Self::open).
#[derive(Debug)]
pub struct HostMonitor {
    socket: Socket,
    buffer: Vec<u8>,
}

impl HostMonitor {
    /// Subscribes to changes. Every change after this call causes a notification.
    ///
    /// # Errors
    /// The process has no descriptors left, or netlink sockets are forbidden.
    pub fn open() -> io::Result<Self> {
        let socket = Socket::open(libc::NETLINK_ROUTE)?;
        socket.bind()?;
        for group in GROUPS {
            match socket.join(group as libc::c_int) {
                Ok(()) => {}
                // The kernel is older than the group (next hops: Linux 5.3).
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Self { socket, buffer: vec![0; ANSWER_MAX] })
    }

    /// Waits for notifications, and reads queued notifications up to a limit of some hundred
    /// datagrams.
    ///
    /// # Errors
    /// No notifications can be received any more.
    pub fn wait(&mut self) -> io::Result<HostChanges> {
        let mut changes = self.receive(0)?;
        for _ in 1..DATAGRAMS_MAX {
            match self.receive(libc::MSG_DONTWAIT) {
                Ok(more) => changes |= more,
                // A lasting error is returned by the next call.
                Err(_) => break,
            }
        }
        Ok(changes)
    }

    fn receive(&mut self, flags: libc::c_int) -> io::Result<HostChanges> {
        let mut changes = HostChanges::default();
        match self.socket.receive(&mut self.buffer, flags) {
            Ok(len) => messages(&self.buffer[..len])
                .for_each(|message| changes |= HostChanges::of(&message)),
            // Notifications were lost, because they exceeded the capacity of the socket or of the
            // buffer.
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOBUFS) | None) => {
                changes = HostChanges::ALL;
            }
            Err(error) => return Err(error),
        }
        Ok(changes)
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use lab_net::{enter_network_namespace, new_network_namespace};

    use super::*;
    use crate::own_prefixes;

    /// Runs a closure in a new network namespace. Does nothing without privileges.
    fn in_namespace(action: impl FnOnce() + Send) {
        let Ok(namespace) = new_network_namespace() else { return };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                enter_network_namespace(&namespace).unwrap();
                action();
            });
        });
    }

    fn ip(arguments: &str) {
        let out = Command::new("ip").args(arguments.split(' ')).output().unwrap();
        assert!(out.status.success(), "{arguments}: {}", String::from_utf8_lossy(&out.stderr));
    }

    /// Returns the changes in all queued notifications. The kernel notifies before the command
    /// returns.
    fn heard(monitor: &mut HostMonitor) -> HostChanges {
        let mut changes = HostChanges::default();
        while let Ok(more) = monitor.receive(libc::MSG_DONTWAIT) {
            changes |= more;
        }
        changes
    }

    #[test]
    fn each_change_is_reported_by_its_kind() {
        in_namespace(|| {
            let mut monitor = HostMonitor::open().unwrap();
            assert_eq!(heard(&mut monitor), HostChanges::default());
            let (own, devices) = (true, true);
            let changes = |own_addresses, devices| HostChanges {
                own_addresses,
                devices,
                ..HostChanges::default()
            };
            ip("link set lo up");
            assert!(monitor.wait().unwrap().devices);
            heard(&mut monitor);
            let mut told = |command: &str| {
                ip(command);
                heard(&mut monitor)
            };
            assert_eq!(told("route add local 10.9.0.0/24 dev lo"), changes(own, false));
            assert_eq!(told("route del local 10.9.0.0/24 dev lo"), changes(own, false));
            assert_eq!(told("-6 route add local fd09::/64 dev lo"), changes(own, false));
            // A routing daemon's route causes no change.
            assert_eq!(told("route add 203.0.113.0/24 dev lo"), HostChanges::default());
            assert_eq!(told("route add default dev lo"), changes(false, devices));
            assert_eq!(told("rule add fwmark 7 lookup 100"), changes(false, devices));
            assert!(told("addr add 192.0.2.1/24 dev lo").own_addresses);
            assert!(told("link add v0 type veth peer name v1").devices);
            assert!(told("link set lo down").own_addresses);
            std::fs::write("/proc/sys/net/ipv4/conf/lo/forwarding", "1").unwrap();
            assert!(heard(&mut monitor).forwarding);
        });
    }

    #[test]
    fn prefixes_routed_to_the_host_are_its_own() {
        in_namespace(|| {
            ip("link set lo up");
            ip("link add v0 type veth peer name v1");
            ip("addr add 192.0.2.1/24 dev v0");
            ip("addr add 2001:db8:7::1/64 dev v0 nodad");
            ip("link set v1 up");
            ip("link set v0 up");
            ip("route add local 10.9.0.0/24 dev lo");
            ip("route add local 10.8.0.0/24 dev lo table main");
            ip("route add local 10.7.0.0/24 dev lo table 1000");
            ip("route add local 0.0.0.0/0 dev lo table 100");
            ip("-6 route add local fd09::/64 dev lo");
            ip("route add 203.0.113.0/24 via 192.0.2.2");
            // The kernel activates the links, and with them the addresses, a little later.
            let becomes_own = |ip: &str| {
                test_support::eventually(&format!("{ip} is its own"), || {
                    own_prefixes().unwrap().iter().any(|one| one.contains(ip.parse().unwrap()))
                });
            };
            becomes_own("2001:db8:7::1");
            let own = own_prefixes().unwrap();
            let is_own = |ip: &str| own.iter().any(|prefix| prefix.contains(ip.parse().unwrap()));
            for ip in ["127.0.0.5", "192.0.2.1", "10.9.0.77", "10.8.0.1", "10.7.0.255", "::1"] {
                assert!(is_own(ip), "{ip}: {own:?}");
            }
            assert!(is_own("192.0.2.255"), "broadcast: {own:?}");
            assert!(is_own("fd09::abcd"), "{own:?}");
            for ip in ["192.0.2.2", "203.0.113.1", "198.51.100.1", "2001:db8:7::2"] {
                assert!(!is_own(ip), "{ip}: {own:?}");
            }
            // The subnet-router anycast address exists only after the host has become a router.
            assert!(!is_own("2001:db8:7::"), "{own:?}");
            std::fs::write("/proc/sys/net/ipv6/conf/all/forwarding", "1").unwrap();
            becomes_own("2001:db8:7::");
        });
    }

    #[test]
    fn notifications_that_are_lost_may_have_been_about_anything() {
        in_namespace(|| {
            let mut monitor = HostMonitor::open().unwrap();
            ip("link set lo up");
            let mut batch = String::new();
            for third in 0..=255 {
                for fourth in 0..8 {
                    batch += &format!("route add local 10.1.{third}.{fourth} dev lo\n");
                }
            }
            let mut command = Command::new("ip")
                .args(["-batch", "-"])
                .stdin(std::process::Stdio::piped())
                .spawn()
                .unwrap();
            io::Write::write_all(&mut command.stdin.take().unwrap(), batch.as_bytes()).unwrap();
            assert!(command.wait().unwrap().success());
            assert_eq!(heard(&mut monitor), HostChanges::ALL);
        });
    }
}
