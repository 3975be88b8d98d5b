//! Interfaces that the settings name. An interface may appear after the start, and a returning
//! interface has another index.

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

/// Interval of checks for the listeners' interface during the start.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// The named interfaces. The listeners stay at the interface that they were bound to; new relay
/// sockets follow the name.
#[derive(Debug, Default)]
pub(crate) struct Devices {
    listen: Option<(InterfaceName, NonZeroU32)>,
    relay: Option<(InterfaceName, DeviceIndex)>,
    missing: Vec<String>,
}

impl Devices {
    /// Looks the interfaces up. Listeners cannot be bound to an absent interface:
    /// [`wait_for_listener`] precedes.
    ///
    /// # Errors
    /// The listeners' interface is absent.
    pub(crate) fn find(settings: &Settings) -> Result<Self> {
        let listen = settings.sockets.listen_device.clone();
        let listen = listen.map(|name| Ok::<_, Failure>((name.clone(), listen_index(&name)?)));
        let relay = settings.sockets.relay_device.clone();
        let relay = relay.map(|name| (name.clone(), DeviceIndex::new(index(&name))));
        let mut devices = Self { listen: listen.transpose()?, relay, missing: Vec::new() };
        devices.missing = devices.look();
        devices
            .missing
            .iter()
            .for_each(|clause| tracing::warn!("{clause}: the server waits for it"));
        Ok(devices)
    }

    /// Takes the interface that a listener of the process before is bound to.
    pub(crate) fn inherit_listener(&mut self, bound: Option<NonZeroU32>) {
        if let (Some((_, index)), Some(bound)) = (&mut self.listen, bound) {
            *index = bound;
        }
        self.missing = self.look();
    }

    /// Interface of the listeners.
    pub(crate) fn of_listeners(&self) -> Option<NonZeroU32> {
        self.listen.as_ref().map(|(_, index)| *index)
    }

    /// Interface of the relay sockets.
    pub(crate) fn of_relays(&self) -> Option<DeviceIndex> {
        self.relay.as_ref().map(|(_, index)| index.clone())
    }

    /// Looks the interfaces up again. Returns true if one came or went, which is logged.
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

    /// Takes the present index for relay sockets. Returns a clause about each interface that is
    /// missing.
    fn look(&self) -> Vec<String> {
        let relay = self.relay.iter().filter_map(|(name, device)| {
            let index = index(name);
            device.set(index);
            index.is_none().then(|| absent(RELAY, name))
        });
        let listen = self.listen.iter().filter_map(|(name, bound)| match index(name) {
            None => Some(absent(LISTEN, name)),
            Some(index) if index == *bound => None,
            Some(_) => Some(format!(
                "{LISTEN}: the interface {} is another one since the start, and clients are not heard until a restart",
                name.as_str()
            )),
        });
        listen.chain(relay).collect()
    }

    /// Adds the missing interfaces. Each of them is needed to serve any client.
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

fn listen_index(name: &InterfaceName) -> Result<NonZeroU32> {
    index(name).ok_or_else(|| {
        Failure::failed(anyhow!("{}", absent(LISTEN, name)))
            .hint("`ip link` lists the interfaces of this host")
    })
}

/// Waits until the host has the listeners' interface, without which there is no client to serve.
pub(crate) async fn wait_for_listener(settings: &Settings) {
    let Some(name) = settings.sockets.listen_device.as_ref() else { return };
    if index(name).is_some() {
        return;
    }
    tracing::warn!(
        "{}: the server waits for it, and serves no client until then",
        absent(LISTEN, name)
    );
    while index(name).is_none() {
        sleep(LOOK_EVERY).await;
    }
    tracing::info!("the interface {} is there", name.as_str());
}
