//! The kernel's connection table, which a stateful firewall and NAT keep for every packet.

use super::{Wants, sysctl};
use crate::host::Host;
use crate::item::{Looked, by_hand, good};
use crate::setting::sysctl_path;

/// Flows per relayed address: the client's, and those of a few peers (candidates that are tried and
/// the one that is used).
const FLOWS_PER_RELAY: u64 = 4;

/// Flows per bucket, past which a lookup walks a list. The kernel's own default is between 1 and 4.
const FLOWS_PER_BUCKET: u64 = 4;

/// Lifetime of a permission in seconds (RFC 8656 section 9).
pub(crate) const PERMISSION_SECONDS: u64 = 300;

const COUNT: &str = "net.netfilter.nf_conntrack_count";
const MAX: &str = "net.netfilter.nf_conntrack_max";

/// State of a table that tracks nothing; `None` where it is in use.
fn idle(host: &Host) -> Option<&'static str> {
    let count = host.read(&sysctl_path(COUNT)).ok().and_then(|count| count.parse::<u64>().ok());
    match count {
        None => Some("not loaded"),
        Some(0) => Some("tracks no flow"),
        Some(_) => None,
    }
}

/// A sysctl of the table, and its least value where the table is in use.
pub(crate) fn sysctl(host: &Host, name: &str, least: Option<u64>) -> Looked {
    match (idle(host), least) {
        (Some(idle), _) => {
            let value = sysctl::read(host, name).ok().filter(|_| host.exists(&sysctl_path(COUNT)));
            Ok(good(value.map_or_else(|| idle.to_owned(), |value| format!("{value}, unused"))))
        }
        (None, Some(least)) => sysctl::at_least(host, name, least),
        (None, None) => sysctl::shown(host, name),
    }
}

pub(crate) fn flows(_: &Host, wants: &Wants) -> u64 {
    wants.relayed.saturating_mul(FLOWS_PER_RELAY)
}

pub(crate) fn buckets(host: &Host, wants: &Wants) -> u64 {
    let most = sysctl::number(host, MAX).unwrap_or_default().max(flows(host, wants));
    most.div_ceil(FLOWS_PER_BUCKET)
}

/// Rules of the operator that exempt the ports already are not looked for: rules may be kept in
/// more than one place, and reading them needs root.
pub(crate) fn notrack(host: &Host, wants: &Wants) -> Looked {
    if let Some(idle) = idle(host) {
        return Ok(good(idle));
    }
    let (first, last) = wants.relay_ports;
    let listeners = wants.listen_ports.iter().map(|port| format!("{port}, "));
    let ports = format!("{{ {}{first}-{last} }}", listeners.collect::<String>());
    let commands = [
        "add table inet turnpike".to_owned(),
        "'add chain inet turnpike in { type filter hook prerouting priority raw; }'".to_owned(),
        "'add chain inet turnpike out { type filter hook output priority raw; }'".to_owned(),
        format!("'add rule inet turnpike in udp dport {ports} notrack'"),
        format!("'add rule inet turnpike out udp sport {ports} notrack'"),
    ]
    .map(|command| format!("nft {command}"));
    let how = "only where your firewall accepts these ports by number, and not by state; nothing to do \
               if your rules exempt them already";
    Ok(by_hand("flows are tracked on this host", "off for the server's ports", how, &commands))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::item::Verdict;
    use crate::survey::{Item, survey};
    use crate::testing::{Fake, advised, wants};

    fn items(fake: &Fake) -> Vec<Item> {
        let mut items = survey(fake.host(), &wants(), &[]).unwrap().items;
        items.retain(|item| item.entry.name.contains("conntrack") || item.entry.name == "notrack");
        items
    }

    #[test]
    fn a_table_that_is_not_used_needs_nothing() {
        let fake = Fake::new();
        assert!(items(&fake).iter().all(|item| item.verdict == Verdict::Good));
        fake.put(&sysctl_path(COUNT), "0");
        fake.put(&sysctl_path(MAX), "1024");
        let items = items(&fake);
        assert!(items.iter().all(|item| item.verdict == Verdict::Good), "{items:?}");
        assert_eq!(items[0].now, "1024, unused");
    }

    #[test]
    fn a_table_in_use_has_room_for_every_relay() {
        let items = items(&Fake::whole());
        let advised: Vec<Option<String>> = items.iter().map(advised).collect();
        let expected = [Some("65536"), Some("16384"), None, Some("300"), None];
        assert_eq!(advised, expected.map(|text| text.map(str::to_owned)));
        let Verdict::ByHand { commands, .. } = &items[4].verdict else { panic!("{:?}", items[4]) };
        let rule = "nft 'add rule inet turnpike in udp dport { 3478, 49152-65535 } notrack'";
        assert_eq!(commands[3], rule);
    }
}
