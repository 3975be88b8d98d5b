//! Prefixes to relay from: assignment of ports, and checks of the host's routes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use anyhow::anyhow;
use dataplane::NetOptions;
use settings::Settings;
use turn_proto::{RelayPrefix, RelayPrefixError};
use turn_types::{IpFamily, Prefix};

use crate::failure::{Failure, Result};
use crate::sockets;

/// Returns the relay prefixes of a configuration, with ports for `workers` workers.
///
/// # Errors
/// `relay.ports` has too few ports for the workers.
pub(crate) fn of(settings: &Settings, workers: usize) -> Result<Vec<RelayPrefix>> {
    let ports = settings.relay.ports;
    let first = ports.min.next_multiple_of(2);
    let count = u16::try_from(workers).unwrap_or(u16::MAX);
    let last = u32::from(first) + 2 * u32::from(count) - 1;
    let make = |network: Prefix| {
        let too_few = || {
            Failure::usage(anyhow!(
                "relay.prefixes need two of relay.ports for each of {workers} workers, and {ports} has fewer"
            ))
            .hint("widen relay.ports, or lower workers.count")
        };
        if last > u32::from(ports.max) {
            return Err(too_few());
        }
        RelayPrefix::new(network, first, count).map_err(|error| match error {
            RelayPrefixError::Ports => too_few(),
            // The check of the configuration refuses such prefixes.
            RelayPrefixError::TooLong | RelayPrefixError::TooShort => {
                Failure::usage(anyhow!("relay.prefixes: {network} cannot be relayed from"))
            }
        })
    };
    settings.relay.prefixes.iter().map(|prefix| make(prefix.0)).collect()
}

/// Checks that the host can relay from the prefixes.
///
/// Each worker needs a UDP port, the subsequent UDP port for pairs, and with `tcp` a TCP port.
/// Ports whose socket is `inherited` from the predecessor are not checked.
///
/// # Errors
/// An interface has an address of a prefix (`addresses`). The host does not deliver a prefix to
/// itself (`own`). Another program has a port.
pub(crate) fn check(
    prefixes: &[RelayPrefix],
    own: &[Prefix],
    addresses: &[IpAddr],
    tcp: bool,
    inherited: impl Fn(SocketAddr) -> bool,
) -> Result<()> {
    for prefix in prefixes {
        let network = prefix.network();
        if let Some(address) = addresses.iter().find(|address| prefix.contains(**address)) {
            return Err(Failure::usage(anyhow!(
                "cannot relay from {network}: an interface of this host has its address {address}"
            ))
            .hint("relay from a network that is for nothing else"));
        }
        if !is_delivered(network, own) {
            return Err(Failure::failed(anyhow!(
                "cannot relay from {network}: this host does not deliver it to itself"
            ))
            .hint(route(network)));
        }
        let all = match prefix.family() {
            IpFamily::V4 => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            IpFamily::V6 => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        for port in prefix.ports().filter(|port| !inherited((all, *port).into())) {
            let net = NetOptions::default();
            let free = |port| sockets::is_free((all, port).into(), &net);
            let of_tcp =
                if tcp { sockets::is_free_for_tcp((all, port).into(), &net) } else { Ok(()) };
            for (kind, port, free) in [
                ("UDP", port, free(port)),
                ("UDP", port + 1, free(port + 1)),
                ("TCP", port, of_tcp),
            ] {
                free.map_err(|error| {
                    Failure::failed(anyhow!(
                        "cannot relay from {network} at {kind} port {port} of all addresses: {error}"
                    ))
                    .hint("stop the program that has the port, or change relay.ports")
                })?;
            }
        }
    }
    Ok(())
}

/// Returns true if the host delivers all addresses of a network to itself.
pub(crate) fn is_delivered(network: Prefix, own: &[Prefix]) -> bool {
    own.iter().any(|own| own.len_128() <= network.len_128() && own.contains(network.first()))
}

/// Describes the command by which a host delivers a network to itself.
pub(crate) fn route(network: Prefix) -> String {
    let family = match IpFamily::of(network.first()) {
        IpFamily::V4 => "",
        IpFamily::V6 => "-6 ",
    };
    format!(
        "`ip {family}route add local {network} dev lo` does it, until the next start of the host"
    )
}
