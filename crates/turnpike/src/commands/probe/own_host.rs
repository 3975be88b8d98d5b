//! Detection that the server runs on this host. Behind NAT a host may not reach its public address,
//! and the server refuses the host's own addresses as peers.

use std::net::IpAddr;

use admin::Client;
use linux_net::interface_addresses;

use crate::cli::PathOptions;
use crate::paths;

/// Addresses of this host and of the server that runs here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct OwnHost {
    addresses: Vec<IpAddr>,
    /// Relay addresses of the running server: the local address, and the public address for
    /// clients.
    relays: Vec<(IpAddr, IpAddr)>,
}

impl OwnHost {
    /// Queries the server on this host, if it runs and this user has access.
    pub(super) fn look(paths: &PathOptions) -> Self {
        let addresses = interface_addresses().unwrap_or_default();
        let addresses = addresses.into_iter().map(|interface| interface.address).collect();
        Self { addresses, relays: relays(paths).unwrap_or_default() }
    }

    /// Returns true if a server at this address runs on this host.
    pub(super) fn has(&self, ip: IpAddr) -> bool {
        self.addresses.contains(&ip) || self.relays.iter().any(|(_, public)| *public == ip)
    }

    /// Returns the local address of a public address, or the argument if no local address is known.
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
