//! Network interfaces named in the settings. An interface can appear after the start, and an
//! interface that returns has another index.

use std::num::NonZeroU32;
use std::time::Duration;

use anyhow::anyhow;
use control::MissingAddresses;
use dataplane::DeviceIndex;
use settings::{InterfaceName, Settings};
use tokio::time::sleep;

use crate::failure::{Failure, Result};

const LISTEN: &str = "sockets.listen_device";
const RELAY: &str = "sockets.relay_device";

/// Interval at which the start checks for missing interfaces.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Interfaces that the settings name. Relay sockets of allocations use the current index of the
/// relay interface.
#[derive(Debug, Default)]
pub(crate) struct Devices {
    /// Interfaces of the sockets that are bound once.
    permanent: Vec<PermanentDevice>,
    relay: Option<(InterfaceName, DeviceIndex)>,
    missing: Vec<String>,
}

/// Interface of sockets that are bound once: listeners, and relay sockets of prefixes.
#[derive(Debug)]
struct PermanentDevice {
    key: &'static str,
    name: InterfaceName,
    index: NonZeroU32,
}

impl Devices {
    /// Looks up the interfaces. Must be called after [`wait_for_permanent`], because a permanent
    /// socket cannot be bound to a missing interface.
    ///
    /// # Errors
    /// An interface of the sockets that are bound once is missing.
    pub(crate) fn find(settings: &Settings) -> Result<Self> {
        let permanent = |(key, name): (&'static str, &InterfaceName)| {
            let index = index(name).ok_or_else(|| {
                Failure::failed(anyhow!("{}", absent(key, name)))
                    .hint("`ip link` lists the interfaces of this host")
            })?;
            Ok(PermanentDevice { key, name: name.clone(), index })
        };
        let permanent = of_permanent(settings).map(permanent).collect::<Result<_>>()?;
        let relay = settings.sockets.relay_device.clone();
        let relay = relay.map(|name| (name.clone(), DeviceIndex::new(index(&name))));
        let mut devices = Self { permanent, relay, missing: Vec::new() };
        devices.missing = devices.look();
        let waits = |clause: &String| tracing::warn!("{clause}: the server waits for it");
        devices.missing.iter().for_each(waits);
        Ok(devices)
    }

    /// Adopts the interface index that the predecessor's listeners are bound to.
    pub(crate) fn inherit_listener(&mut self, bound: Option<NonZeroU32>) {
        let listen = self.permanent.iter_mut().find(|device| device.key == LISTEN);
        if let (Some(device), Some(bound)) = (listen, bound) {
            device.index = bound;
        }
        self.missing = self.look();
    }

    /// Returns the interface of the listeners.
    pub(crate) fn of_listeners(&self) -> Option<NonZeroU32> {
        self.permanent.iter().find(|device| device.key == LISTEN).map(|device| device.index)
    }

    /// Returns the interface of the relay sockets.
    pub(crate) fn of_relays(&self) -> Option<DeviceIndex> {
        self.relay.as_ref().map(|(_, index)| index.clone())
    }

    /// Looks up the interfaces again. Returns true, and logs, if the set of missing interfaces has
    /// changed.
    pub(crate) fn refresh(&mut self) -> bool {
        let missing = self.look();
        if missing == self.missing {
            return false;
        }
        match missing.is_empty() {
            true => tracing::info!("the interfaces of the settings are there"),
            false => missing.iter().for_each(|clause| tracing::warn!("{clause}")),
        }
        self.missing = missing;
        true
    }

    /// Updates the interface index of relay sockets. Returns a clause about each missing or
    /// replaced interface.
    fn look(&self) -> Vec<String> {
        let is_permanent = self.permanent.iter().any(|device| device.key == RELAY);
        let relay = self.relay.iter().filter_map(|(name, device)| {
            let index = index(name);
            device.set(index);
            (index.is_none() && !is_permanent).then(|| absent(RELAY, name))
        });
        let permanent = self.permanent.iter().filter_map(|device| {
            let PermanentDevice { key, name, index: bound } = device;
            match index(name) {
                None => Some(absent(key, name)),
                Some(index) if index == *bound => None,
                Some(_) => Some(format!(
                    "{key}: the interface {} is another one since the start, and its packets are not heard until a restart",
                    name.as_str()
                )),
            }
        });
        permanent.chain(relay).collect()
    }

    /// Adds the missing interfaces. Without such an interface the server can serve no client.
    pub(crate) fn add_to(&self, missing: &mut MissingAddresses) {
        missing.clauses.extend(self.missing.iter().cloned());
        missing.are_all |= !self.missing.is_empty();
    }
}

fn absent(key: &str, name: &InterfaceName) -> String {
    format!("{key}: this host has no interface {}", name.as_str())
}

fn index(name: &InterfaceName) -> Option<NonZeroU32> {
    linux_net::interface_index(name.as_str()).ok().and_then(NonZeroU32::new)
}

/// Returns the interfaces of the sockets that are bound once, with their keys.
fn of_permanent(settings: &Settings) -> impl Iterator<Item = (&'static str, &InterfaceName)> {
    let listen = settings.sockets.listen_device.as_ref().map(|name| (LISTEN, name));
    let relay = settings.sockets.relay_device.as_ref().map(|name| (RELAY, name));
    listen.into_iter().chain(relay.filter(|_| !settings.relay.prefixes.is_empty()))
}

/// Waits until the host has the interfaces of the sockets that are bound once.
pub(crate) async fn wait_for_permanent(settings: &Settings) {
    for (key, name) in of_permanent(settings).filter(|(_, name)| index(name).is_none()) {
        tracing::warn!("{}: the server waits for it, and serves no client", absent(key, name));
        while index(name).is_none() {
            sleep(LOOK_EVERY).await;
        }
        tracing::info!("the interface {} is there", name.as_str());
    }
}
