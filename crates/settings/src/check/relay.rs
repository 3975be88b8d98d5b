//! Relay addresses: each of them once, with an unambiguous public address, and prefixes of a length
//! that serves.

use turn_proto::{DeniedBy, PeerRules, RelayPrefix, RelayPrefixError};
use turn_types::IpFamily;

use crate::document::Document;
use crate::error::Errors;
use crate::file::{self, CloudMetadata};
use crate::value::{External, RelayEntry};

const ADDRESSES: &str = "relay.addresses";
const PREFIXES: &str = "relay.prefixes";
const EXTERNAL: &str = "relay.external";
const STUN: &str = "relay.external_stun";

pub(super) fn check(relay: &file::Relay, document: &Document, errors: &mut Errors) {
    let external = relay.external.clone().unwrap_or_else(|| External(Vec::new()));
    let is_auto = relay.external.as_ref().is_some_and(External::is_auto);
    let asks = !relay.external_stun.is_empty() || relay.external_metadata != CloudMetadata::Off;
    if is_auto && !asks && !document.is_refused(STUN) {
        let help = "add external_stun = [\"stun.example.org\"], with a STUN server that you trust, or \
                    external_metadata with your cloud";
        errors.add(document.place(EXTERNAL), EXTERNAL, "\"auto\" has no server to ask", help);
    }
    if relay.addresses.is_empty() && !document.is_refused(ADDRESSES) {
        let help = "write [\"auto\"], or leave the key out";
        errors.add(document.place(ADDRESSES), ADDRESSES, "there is no address to relay from", help);
    }
    entries(&relay.addresses, document, errors);
    if !document.is_refused(ADDRESSES) {
        externals(&external, &relay.addresses, document, errors);
    }
    prefixes(relay, &external, document, errors);
}

fn prefixes(relay: &file::Relay, external: &External, document: &Document, errors: &mut Errors) {
    for (index, prefix) in relay.prefixes.iter().map(|prefix| prefix.0).enumerate() {
        let mut refuse =
            |what, help| errors.add(document.entry_place(PREFIXES, index), PREFIXES, what, help);
        // The ports of the workers are checked at the start, which knows their number.
        match RelayPrefix::new(prefix, 0, 1) {
            Ok(_) | Err(RelayPrefixError::Ports) => {}
            Err(RelayPrefixError::TooLong) => refuse(
                format!("{prefix} has too few addresses"),
                "write a network of at most /112 (IPv6) or /30 (IPv4); for single addresses there is relay.addresses",
            ),
            Err(RelayPrefixError::TooShort) => refuse(
                format!("{prefix} has more addresses than a host is given"),
                "write the network that is routed to this host, at least /32 (IPv6) or /8 (IPv4)",
            ),
        }
        if PeerRules::default().ruling(prefix.first()) == Err(DeniedBy::Never)
            || prefix.first().is_loopback()
        {
            refuse(
                format!("{prefix} has no addresses that peers could reach"),
                "write a network of unicast addresses that is routed to this host",
            );
        }
        let overlaps = |other: turn_types::Prefix| {
            other.contains(prefix.first()) || prefix.contains(other.first())
        };
        if relay.prefixes[..index].iter().any(|other| overlaps(other.0)) {
            refuse(format!("{prefix} is there twice, or in part"), "remove one of them");
        }
        let of_addresses = relay.addresses.iter().flat_map(|entry| match entry {
            RelayEntry::Auto => [None; 2],
            RelayEntry::Address { local, public } => [Some(*local), *public],
        });
        let others = of_addresses.flatten().chain(external.0.iter().copied());
        for other in others.filter(|other| prefix.contains(*other)) {
            refuse(
                format!("{other} of relay.addresses or relay.external is one of {prefix}"),
                "give allocations with ports another address",
            );
        }
    }
}

fn entries(addresses: &[RelayEntry], document: &Document, errors: &mut Errors) {
    for (index, entry) in addresses.iter().enumerate() {
        let before = &addresses[..index];
        let mut refuse =
            |what, help| errors.add(document.entry_place(ADDRESSES, index), ADDRESSES, what, help);
        let (local, public) = match entry {
            RelayEntry::Auto => {
                if before.contains(entry) {
                    refuse("\"auto\" is there twice".to_owned(), "remove one of them");
                }
                continue;
            }
            RelayEntry::Address { local, public } => (*local, public.unwrap_or(*local)),
        };
        if IpFamily::of(local) != IpFamily::of(public) {
            refuse(
                format!("local {local} and public {public} are of different families"),
                "a relay of one family cannot be reached by the other",
            );
        }
        for other in before {
            let RelayEntry::Address { local: other_local, public: other_public } = other else {
                continue;
            };
            let other_public = other_public.unwrap_or(*other_local);
            if *other_local == local {
                refuse(format!("{local} is there twice"), "remove one of them");
            } else if other_public == public {
                refuse(
                    format!("{public} is the public address of {other_local} too"),
                    "give each its own: both have the same ports",
                );
            }
        }
    }
}

fn externals(
    external: &External,
    addresses: &[RelayEntry],
    document: &Document,
    errors: &mut Errors,
) {
    for family in IpFamily::ALL {
        let public: Vec<_> = external.0.iter().filter(|ip| IpFamily::of(**ip) == family).collect();
        if public.is_empty() {
            continue;
        }
        let of_family = |entry: &&RelayEntry| match entry {
            RelayEntry::Auto => true,
            RelayEntry::Address { local, .. } => IpFamily::of(*local) == family,
        };
        let local: Vec<_> = addresses.iter().filter(of_family).collect();
        let mut refuse =
            |what, help: &str| errors.add(document.place(EXTERNAL), EXTERNAL, what, help);
        let own_public =
            local.iter().any(|entry| matches!(entry, RelayEntry::Address { public: Some(_), .. }));
        if public.len() > 1 {
            refuse(
                format!("there are {} {family} addresses", public.len()),
                "write one per family; for more, relay.addresses = [{ local = \"...\", public = \"...\" }, ...]",
            );
        } else if local.is_empty() {
            refuse(
                format!("there is no {family} address in relay.addresses that it could stand for"),
                "add the local one to relay.addresses, or remove it here",
            );
        } else if local.len() > 1 || own_public {
            refuse(
                format!("it does not say which {family} address in relay.addresses it stands for"),
                "remove it, and write { local = \"...\", public = \"...\" } in relay.addresses",
            );
        }
    }
}
