//! The server's own host: behind NAT it does not reach itself at its public address, and its own
//! addresses are no peers.

use std::net::IpAddr;

use admin::Client;
use linux_net::interface_addresses;

use crate::cli::PathOptions;
use crate::paths;

/// Knowledge about the server on this host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct OwnHost {
    addresses: Vec<IpAddr>,
    /// Relay addresses of the running server: here, and as clients know them.
    relays: Vec<(IpAddr, IpAddr)>,
}

impl OwnHost {
    /// Asks the running server on this host, if there is one that this user may ask.
    pub(super) fn look(paths: &PathOptions) -> Self {
        let addresses = interface_addresses().unwrap_or_default();
        let addresses = addresses.into_iter().map(|interface| interface.address).collect();
        Self { addresses, relays: relays(paths).unwrap_or_default() }
    }

    /// True if a server at this address is on this host.
    pub(super) fn has(&self, ip: IpAddr) -> bool {
        self.addresses.contains(&ip) || self.relays.iter().any(|(_, public)| *public == ip)
    }

    /// The address here that stands for a public one; the same where there is none.
    pub(super) fn local(&self, ip: IpAddr) -> IpAddr {
        if self.addresses.contains(&ip) {
            return ip;
        }
        self.relays.iter().find(|(_, public)| *public == ip).map_or(ip, |(local, _)| *local)
    }
}

fn relays(paths: &PathOptions) -> Option<Vec<(IpAddr, IpAddr)>> {
    let socket = paths::control_socket(paths).path;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
    let status = runtime.block_on(async { Client::connect(&socket).await?.status().await });
    let pair = |relay: &admin::types::RelayAddress| {
        Some((relay.local.parse().ok()?, relay.public.parse().ok()?))
    };
    Some(status.ok()?.relay.iter().filter_map(pair).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_public_address_stands_for_one_of_this_host() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let here = OwnHost {
            addresses: vec![ip("10.0.0.5")],
            relays: vec![(ip("10.0.0.5"), ip("203.0.113.7"))],
        };
        assert!(here.has(ip("10.0.0.5")) && here.has(ip("203.0.113.7")));
        assert!(!here.has(ip("203.0.113.8")));
        assert_eq!(here.local(ip("203.0.113.7")), ip("10.0.0.5"));
        assert_eq!(here.local(ip("203.0.113.8")), ip("203.0.113.8"));
    }
}
