//! Destinations that this host delivers to itself, according to the routing tables.
//!
//! These are more than the addresses of interfaces. Complete prefixes can be routed to the host
//! (AnyIP: `ip route add local PREFIX dev lo`). A router has the IPv6 subnet-router anycast address
//! of each prefix (RFC 4291 §2.6.1). Broadcast addresses are included as well.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};

use turn_types::Prefix;

use crate::netlink::{self, Attribute, Request, Socket};

/// Size of `struct rtmsg` in bytes.
const ROUTE_HEADER: usize = 12;

/// Types of routes that deliver to the host itself.
const OWN_TYPES: [u8; 3] = [libc::RTN_LOCAL, libc::RTN_BROADCAST, libc::RTN_ANYCAST];

/// Routing tables that are used for every packet, unless an operator changed the policy rules:
/// local, main, default.
const COMMON_TABLES: [u32; 3] = [255, 254, 253];

/// Returns every prefix that a routing table of this network namespace delivers to the host itself,
/// sorted and without duplicates. These are routes of the types local, broadcast and anycast, of
/// both families.
///
/// All tables are included, since a policy rule may select any of them. A default route of such a
/// type is included only from the tables local, main and default. In other tables such a route
/// serves transparent proxies for marked packets, and names no destination.
///
/// # Errors
/// The kernel does not answer on netlink sockets, or the tables keep changing during the read.
pub fn own_prefixes() -> io::Result<Vec<Prefix>> {
    let mut socket = Socket::open(libc::NETLINK_ROUTE)?;
    // Before Linux 4.20 the kernel returns the complete table, and the routes are selected here.
    let selects = socket.select_strictly().is_ok();
    let mut prefixes = Vec::new();
    for family in [libc::AF_INET, libc::AF_INET6] {
        // Without selection one answer contains all types.
        let types = if selects { &OWN_TYPES[..] } else { &[libc::RTN_UNSPEC] };
        for kind in types {
            let mut header = [0; ROUTE_HEADER];
            header[0] = family as u8;
            header[7] = *kind;
            match socket.ask(&Request::dump(libc::RTM_GETROUTE, &header)) {
                Ok(answers) => {
                    prefixes.extend(answers.iter().filter_map(|answer| read_own_route(answer)));
                }
                Err(error) if is_without_family(&error) => {}
                Err(error) => return Err(error),
            }
        }
    }
    prefixes.sort_unstable();
    prefixes.dedup();
    Ok(prefixes)
}

/// Returns true if the kernel was built or started without the address family, so there are no
/// routes.
fn is_without_family(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EAFNOSUPPORT))
}

/// Returns true if the route in a message delivers to the host itself.
pub(crate) fn is_own_route(body: &[u8]) -> bool {
    body.get(7).is_some_and(|kind| OWN_TYPES.contains(kind))
}

/// Returns true if the route in a message is a default route.
pub(crate) fn is_default_route(body: &[u8]) -> bool {
    body.get(1) == Some(&0)
}

/// Returns the destination of a route that delivers to the host itself. Returns `None` for other
/// routes, and for default routes in uncommon tables.
fn read_own_route(answer: &[u8]) -> Option<Prefix> {
    let (header, attributes) = answer.split_at_checked(ROUTE_HEADER)?;
    if !is_own_route(header) {
        return None;
    }
    let (family, len) = (libc::c_int::from(header[0]), header[1]);
    let mut table = u32::from(header[4]);
    let mut destination = None;
    for Attribute { kind, value } in netlink::attributes(attributes) {
        match kind {
            libc::RTA_DST => destination = Some(netlink::ip(value)?),
            libc::RTA_TABLE => table = netlink::number(value)?,
            _ => {}
        }
    }
    if len == 0 && !COMMON_TABLES.contains(&table) {
        return None;
    }
    let destination = match (destination, family) {
        (Some(destination), _) => destination,
        // A default route has no destination attribute.
        (None, libc::AF_INET) if len == 0 => Ipv4Addr::UNSPECIFIED.into(),
        (None, libc::AF_INET6) if len == 0 => Ipv6Addr::UNSPECIFIED.into(),
        (None, _) => return None,
    };
    Prefix::new(destination, len).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(family: i32, len: u8, table: u8, kind: u8, attributes: &[(u16, &[u8])]) -> Vec<u8> {
        let mut answer = vec![0; ROUTE_HEADER];
        (answer[0], answer[1], answer[4], answer[7]) = (family as u8, len, table, kind);
        for (kind, value) in attributes {
            answer.extend((value.len() as u16 + 4).to_ne_bytes());
            answer.extend(kind.to_ne_bytes());
            answer.extend(*value);
        }
        answer
    }

    #[test]
    fn routes_to_the_host_itself_are_read_and_no_others() {
        let dst: (u16, &[u8]) = (libc::RTA_DST, &[10, 9, 0, 0]);
        let of_type = |kind| read_own_route(&route(libc::AF_INET, 24, 255, kind, &[dst]));
        let net = Some("10.9.0.0/24".parse().unwrap());
        assert_eq!(of_type(libc::RTN_LOCAL), net);
        assert_eq!(of_type(libc::RTN_BROADCAST), net);
        assert_eq!(of_type(libc::RTN_ANYCAST), net);
        assert_eq!(of_type(libc::RTN_UNICAST), None);
        assert_eq!(of_type(libc::RTN_BLACKHOLE), None);
        let whole = route(libc::AF_INET, 24, 255, libc::RTN_LOCAL, &[dst]);
        for len in 0..whole.len() {
            assert_eq!(read_own_route(&whole[..len]), None, "cut short to {len}");
        }
    }

    #[test]
    fn a_default_route_to_the_host_counts_in_the_tables_of_all_packets() {
        let default = |family, table: u32| {
            let table = table.to_ne_bytes();
            let attributes: [(u16, &[u8]); 1] = [(libc::RTA_TABLE, &table)];
            read_own_route(&route(family, 0, 0, libc::RTN_LOCAL, &attributes))
        };
        assert_eq!(default(libc::AF_INET, 255), Some("0.0.0.0/0".parse().unwrap()));
        assert_eq!(default(libc::AF_INET6, 254), Some("::/0".parse().unwrap()));
        assert_eq!(default(libc::AF_INET, 100), None, "a transparent proxy's");
        assert_eq!(default(libc::AF_INET6, 1000), None);
    }

    #[test]
    fn the_loopback_is_the_hosts_own() {
        let own = own_prefixes().unwrap();
        assert!(own.iter().any(|prefix| prefix.contains("127.0.0.1".parse().unwrap())), "{own:?}");
    }
}
