//! Visible firewall hooks of this host: base chains of nftables that process incoming packets, and
//! tables of the older iptables. Chains of nftables include rules of iptables-nft.

use std::fs;
use std::io;

use linux_net::netlink::{self, Attribute, Request, Socket};

/// Constants of `linux/netfilter/nfnetlink.h` and `nf_tables.h`.
const NETLINK_NETFILTER: i32 = 12;
const SUBSYSTEM_NFTABLES: u16 = 10;
const GET_CHAIN: u16 = 4;
/// `struct nfgenmsg` with family, version and resource. Zeros select all families.
const HEADER: [u8; 4] = [0; 4];
const CHAIN_TABLE: u16 = 1;
const CHAIN_NAME: u16 = 3;
const CHAIN_HOOK: u16 = 4;
const CHAIN_POLICY: u16 = 5;
const CHAIN_USE: u16 = 6;
const HOOK_NUMBER: u16 = 1;

/// Address families of rules, and the hook of packets to this host.
const FAMILIES: [(u8, &str); 3] = [(1, "inet"), (2, "ip"), (10, "ip6")];
const HOOK_INPUT: u32 = 1;
const DROP: u32 = 0;

/// Chain that decides about packets to this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Chain {
    /// Family, table and name, as arguments of `nft list chain`.
    pub(super) name: String,
    /// True if packets without a verdict are dropped.
    pub(super) drops: bool,
    /// Number of references by rules. Zero for an empty chain.
    pub(super) rules: u32,
}

/// Returns the chains of nftables at the input hook.
///
/// # Errors
/// The process lacks CAP_NET_ADMIN, which is needed to read the chains.
pub(super) fn chains() -> io::Result<Vec<Chain>> {
    let mut socket = Socket::open(NETLINK_NETFILTER)?;
    let request = Request::dump(SUBSYSTEM_NFTABLES << 8 | GET_CHAIN, &HEADER);
    Ok(socket.ask(&request)?.iter().filter_map(|answer| chain(answer)).collect())
}

/// Returns the tables of iptables-legacy that have rules.
pub(super) fn legacy_tables() -> Vec<String> {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    let names = ["/proc/net/ip_tables_names", "/proc/net/ip6_tables_names"].map(read).concat();
    let mut tables: Vec<String> = names.lines().map(str::to_owned).collect();
    tables.sort_unstable();
    tables.dedup();
    tables
}

/// Parses a chain. Returns `None` for a chain at another hook.
fn chain(answer: &[u8]) -> Option<Chain> {
    let family = *answer.first()?;
    let (_, family) = FAMILIES.into_iter().find(|(number, _)| *number == family)?;
    let all: Vec<Attribute<'_>> = netlink::attributes(answer.get(HEADER.len()..)?).collect();
    let of = |kind| all.iter().find(|one| one.kind == kind).map(|one| one.value);
    let hook = netlink::attributes(of(CHAIN_HOOK)?).find(|one| one.kind == HOOK_NUMBER)?;
    if big_endian(hook.value) != Some(HOOK_INPUT) {
        return None;
    }
    let [table, name] = [CHAIN_TABLE, CHAIN_NAME].map(|kind| of(kind).map(netlink::text));
    Some(Chain {
        name: format!("{family} {} {}", table?, name?),
        drops: of(CHAIN_POLICY).and_then(big_endian) == Some(DROP),
        rules: of(CHAIN_USE).and_then(big_endian).unwrap_or(0),
    })
}

fn big_endian(value: &[u8]) -> Option<u32> {
    value.first_chunk().copied().map(u32::from_be_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let mut bytes = (4 + value.len() as u16).to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn answer(hook: u32) -> Vec<u8> {
        let hook = attribute(HOOK_NUMBER, &hook.to_be_bytes());
        let mut bytes = vec![1, 0, 0, 0];
        bytes.extend(attribute(CHAIN_TABLE, b"filter\0"));
        bytes.extend(attribute(CHAIN_NAME, b"input\0"));
        bytes.extend(attribute(CHAIN_HOOK | 0x8000, &hook));
        bytes.extend(attribute(CHAIN_POLICY, &DROP.to_be_bytes()));
        bytes.extend(attribute(CHAIN_USE, &7_u32.to_be_bytes()));
        bytes
    }

    #[test]
    fn chains_at_the_input_hook_are_read() {
        let expected = Chain { name: "inet filter input".to_owned(), drops: true, rules: 7 };
        assert_eq!(chain(&answer(HOOK_INPUT)), Some(expected));
        assert_eq!(chain(&answer(3)), None);
        let whole = answer(HOOK_INPUT);
        for len in 0..whole.len() {
            let _ = chain(&whole[..len]); // no panic
        }
    }
}
