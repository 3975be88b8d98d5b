//! A network for route lookups of the programs: two links with permanent neighbours, which receive
//! nothing.

use anyhow::{Context as _, Result};
use xdp_relay::device::forwarding::{self, Lookup};
use xdp_relay::device::{self, Device, Hook};
use xdp_relay::{KernelPath, Link, Options};

use super::ring::{X, Y};
use crate::network::{Namespace, ip};

/// The loopback: frames of test runs come by it.
const LOOPBACK: u32 = 1;

/// The links, and the network of each.
const LINKS: [(&str, u8); 2] = [("x0", 1), ("y0", 2)];

/// A network namespace, which the calling thread is in. Nothing of it is left when the thread ends.
#[derive(Debug)]
pub(super) struct Place {
    devices: Vec<Device>,
    lookup: Lookup,
    _namespace: Namespace,
}

impl Place {
    /// Makes it and has the calling thread enter it.
    ///
    /// # Errors
    /// No privileges, no `ip`, no veth.
    pub(super) fn enter() -> Result<Self> {
        let namespace = Namespace::new()?;
        namespace.enter();
        for (name, side) in LINKS {
            ip(&format!("link add {name} type veth peer name {name}far"))?;
            ip(&format!("link set {name}far up"))?;
            ip(&format!("link set {name} up"))?;
            ip(&format!("addr add 198.18.{side}.1/24 dev {name}"))?;
            ip(&format!("addr add 2001:2:0:{side}::1/64 dev {name} nodad"))?;
        }
        for ((name, _), (v4, v6)) in LINKS.iter().zip([X, Y]) {
            // The loopback's address: frames to them arrive again, by the loopback.
            let known = format!("lladdr 00:00:00:00:00:00 nud permanent dev {name}");
            ip(&format!("neigh add {v4} {known}"))?;
            ip(&format!("neigh add {v6} {known}"))?;
        }
        let lookup = forwarding::prepare().context("ways cannot be looked up")?;
        let devices = device::devices().context("the links")?;
        Ok(Self { devices, lookup, _namespace: namespace })
    }

    /// The programs and their tables of links, by these options but for the interface of lookups.
    ///
    /// # Errors
    /// The kernel refuses them.
    pub(super) fn path(&self, options: Options) -> Result<KernelPath> {
        let mut path = KernelPath::make(Options { look_up_from: self.lookup.from, ..options })?;
        for device in &self.devices {
            let leave = device.index != LOOPBACK;
            path.set_link(Link {
                index: device.index,
                mac: device.mac,
                leave_xdp: leave,
                leave_tc: leave,
                partial_at_xdp: false,
            })?;
        }
        self.attach(&mut path)?;
        Ok(path)
    }

    /// The number of a link.
    ///
    /// # Errors
    /// It is gone.
    pub(super) fn index(&self, link: usize) -> Result<u32> {
        let name = LINKS[link].0;
        let found = self.devices.iter().find(|device| device.name == name);
        found.map(|device| device.index).with_context(|| format!("{name} is gone"))
    }

    /// Attaches the XDP program to an idle device of its own. Each test run of an unattached
    /// program makes the kernel patch its code and synchronise all cores: tens of milliseconds, and
    /// cold caches.
    fn attach(&self, path: &mut KernelPath) -> Result<()> {
        let name = format!("xdp{}", device::devices().context("the links")?.len());
        ip(&format!("link add {name} type veth peer name {name}far"))?;
        let devices = device::devices().context("the links")?;
        let made = devices.iter().find(|device| device.name == name);
        let index = made.with_context(|| format!("{name} is gone"))?.index;
        path.attach(&name, index, Hook::XdpGeneric)?;
        Ok(())
    }
}
