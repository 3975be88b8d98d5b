//! Rules for the peers that clients may reach through a relay (RFC 8656 §§21.1.4, 21.4).
//!
//! An address is judged in this order, and the first step that applies decides:
//!
//! 1. **Never**, by any rule: addresses that are not unicast, and the tunnels of RFC 8656
//!    §21.4. An IPv6 address that embeds an IPv4 address is refused unless the IPv4 address is
//!    allowed, so no spelling of `127.0.0.1` passes.
//! 2. **The operator's rules**: the longest matching prefix decides, and of equal prefixes the
//!    refusal. A rule of one family does not apply to the other: `::/0` does not open `10.0.0.0/8`.
//! 3. **This host's addresses**, all that the host delivers to itself, are peers only at a port of
//!    a live allocation. A rule of full length (`/32`, `/128`) for the exact address allows all
//!    ports.
//! 4. **The special-purpose registries** of IANA ([`special`]): refused unless a rule allows them.
//! 5. All other addresses are allowed.
//!
//! NAT64 prefixes chosen by a network (RFC 6052 §2.2) are not recognised, because nothing in such
//! an address identifies them. If this host can reach such a translator, add the prefix to the deny
//! rules.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use turn_types::Prefix;

mod prefix_map;
mod special;

use prefix_map::PrefixMap;

/// Access of clients to an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerAccess {
    /// The address may be reached at any port.
    Allowed,
    /// The address belongs to this host. Only ports of live allocations may be reached.
    OwnAddress,
    /// The address may not be reached.
    Denied,
}

turn_types::labels! {
    /// Rule that denies a peer.
    DeniedBy {
        /// The address is not unicast, or belongs to a tunnel, or embeds such an address. No rule
        /// opens it.
        Never => "never",
        /// `peers.deny`.
        Rule => "peers_deny",
        /// The address belongs to this host, and has no live allocation at the port.
        OwnAddress => "own_address",
        /// The limits of the client's credential permit only other peers.
        Credential => "credential",
        /// Special-purpose addresses, such as private networks, are denied unless `peers.allow`
        /// contains them.
        SpecialPurpose => "special_purpose",
    }
}

/// Rules that judge peers. Judging allocates no memory, regardless of the number of rules.
#[derive(Clone, Debug)]
pub struct PeerRules {
    /// Operator's rules for IPv4 peers and for IPv6 peers.
    rules: [PrefixMap<Rule>; 2],
    /// Addresses that this host delivers to itself, IPv4 and IPv6.
    own: [PrefixMap<()>; 2],
    /// Locations of the deny rules, for reports.
    places: Arc<[PlacedRule]>,
}

/// Operator's rule with a location in the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacedRule {
    /// Prefix of the rule.
    pub prefix: Prefix,
    /// Location, such as `/etc/turnpike/turnpike.toml:12`.
    pub place: Arc<str>,
}

impl Default for PeerRules {
    /// Returns rules without an operator's rule. Special-purpose addresses are denied.
    fn default() -> Self {
        Self::new(&[], &[], &[])
    }
}

/// Operator's rule for a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    Deny,
    Allow,
    /// Allow rule for exactly one address.
    AllowHost,
}

impl PeerRules {
    /// Returns the rules for allowed prefixes, denied prefixes, and the addresses of this host.
    /// `own` must contain the addresses of all interfaces, and the public addresses of 1:1 NAT.
    #[must_use]
    pub fn new(allow: &[Prefix], deny: &[Prefix], own: &[IpAddr]) -> Self {
        let own: Vec<Prefix> = own.iter().copied().map(Prefix::host).collect();
        Self::with_own_prefixes(allow, deny, &own)
    }

    /// Returns the rules as [`PeerRules::new`], with prefixes as addresses of this host.
    #[must_use]
    pub fn with_own_prefixes(allow: &[Prefix], deny: &[Prefix], own: &[Prefix]) -> Self {
        let of_family = |v4: bool| {
            let allow = allow.iter().map(|prefix| {
                (*prefix, if prefix.len_128() == 128 { Rule::AllowHost } else { Rule::Allow })
            });
            let deny = deny.iter().map(|prefix| (*prefix, Rule::Deny));
            // The last of equal prefixes has precedence, so a refusal wins.
            PrefixMap::new(allow.chain(deny).filter(|(prefix, _)| is_v4(prefix) == v4))
        };
        let own_of_family = |v4: bool| {
            let of_it = own.iter().filter(|prefix| is_v4(prefix) == v4);
            PrefixMap::new(of_it.map(|prefix| (*prefix, ())))
        };
        Self {
            rules: [of_family(true), of_family(false)],
            own: [own_of_family(true), own_of_family(false)],
            places: Arc::default(),
        }
    }

    /// Adds the locations of the deny rules, for [`Self::denying_rule`].
    #[must_use]
    pub fn with_places(mut self, places: impl IntoIterator<Item = PlacedRule>) -> Self {
        self.places = places.into_iter().collect();
        self
    }

    /// Returns the deny rule that decides about `ip` or about the embedded address; `None` without
    /// a known location.
    #[must_use]
    pub fn denying_rule(&self, ip: IpAddr) -> Option<&PlacedRule> {
        let longest = |ip| {
            let rules = self.places.iter().filter(move |rule| rule.prefix.contains(ip));
            rules.max_by_key(|rule| rule.prefix.len_128())
        };
        longest(ip).or_else(|| longest(canonical(ip)))
    }

    /// Judges `ip` as a peer.
    #[must_use]
    pub fn judge(&self, ip: IpAddr) -> PeerAccess {
        self.ruling(ip).unwrap_or(PeerAccess::Denied)
    }

    /// Judges `ip` as [`Self::judge`], with the reason for a refusal.
    ///
    /// # Errors
    /// A rule denies the peer. The error is the kind of rule.
    pub fn ruling(&self, ip: IpAddr) -> Result<PeerAccess, DeniedBy> {
        if special::NEVER.iter().any(|entry| entry.contains(ip)) {
            return Err(DeniedBy::Never);
        }
        let canonical = canonical(ip);
        if canonical != ip && self.ruling(canonical)? != PeerAccess::Allowed {
            return Err(DeniedBy::OwnAddress);
        }
        let family = usize::from(ip.is_ipv6());
        let default = match self.rules[family].get(ip) {
            Some(Rule::Deny) => return Err(DeniedBy::Rule),
            Some(Rule::AllowHost) => return Ok(PeerAccess::Allowed),
            Some(Rule::Allow) if is_opaque(ip) => return Err(DeniedBy::Never),
            Some(Rule::Allow) if ip.is_loopback() => return Ok(PeerAccess::OwnAddress),
            Some(Rule::Allow) => Ok(PeerAccess::Allowed),
            None if special::is_special(ip) => Err(DeniedBy::SpecialPurpose),
            None => Ok(PeerAccess::Allowed),
        };
        if self.own[family].get(ip).is_some() { Ok(PeerAccess::OwnAddress) } else { default }
    }
}

/// Returns the IPv4 address embedded in `ip`, or `ip` without an embedded address. IPv4 addresses
/// are embedded in IPv4-mapped, -compatible and -translated addresses, in NAT64 addresses of the
/// well-known prefix, and in 6to4, Teredo and ISATAP addresses.
#[must_use]
pub fn canonical(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(_) => ip,
        IpAddr::V6(v6) => embedded(v6).map_or(ip, IpAddr::V4),
    }
}

/// Returns true if an address belongs to a Teredo or 6to4 tunnel. RFC 8656 §21.4 accepts no
/// allocation from or to these tunnels.
#[must_use]
pub fn is_tunnel(ip: IpAddr) -> bool {
    special::TUNNELS.iter().any(|entry| entry.contains(ip))
}

/// Returns the IPv4 address embedded in an IPv6 address.
fn embedded(v6: Ipv6Addr) -> Option<Ipv4Addr> {
    let bits = v6.to_bits();
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the 32 bits at that place are what is meant"
    )]
    let at = |shift: u32| Ipv4Addr::from_bits((bits >> shift) as u32);
    match v6.segments() {
        // `::` and `::1` are not IPv4-compatible addresses (RFC 4291 §2.5.5.1).
        [0, 0, 0, 0, 0, 0, 0, 0 | 1] => None,
        // IPv4-compatible, IPv4-mapped (RFC 4291 §2.5.5), IPv4-translated (RFC 2765 §2.1).
        [0, 0, 0, 0, 0, 0 | 0xffff, _, _] | [0, 0, 0, 0, 0xffff, 0, _, _] => Some(at(0)),
        // NAT64, well-known prefix (RFC 6052 §2.1).
        [0x64, 0xff9b, 0, 0, 0, 0, _, _] => Some(at(0)),
        // 6to4 (RFC 3056 §2).
        [0x2002, ..] => Some(at(80)),
        // Teredo: the client's address with inverted bits (RFC 4380 §4).
        [0x2001, 0, ..] => Some(Ipv4Addr::from_bits(!at(0).to_bits())),
        // ISATAP, with either value of the universal/local bit (RFC 5214 §6.1).
        [_, _, _, _, 0 | 0x200, 0x5efe, _, _] => Some(at(0)),
        _ => None,
    }
}

/// Returns true for an address of the local-use NAT64 prefix (RFC 8215). Only the owner of the
/// translator knows the position of the embedded IPv4 address. The embedded address cannot be
/// judged, so only a rule for the exact address allows the peer.
fn is_opaque(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(v6) if matches!(v6.segments(), [0x64, 0xff9b, 1, ..]))
}

/// Returns true if a prefix contains only IPv4 addresses, in either spelling.
fn is_v4(prefix: &Prefix) -> bool {
    prefix.len_128() >= 96 && Ipv6Addr::from_bits(prefix.bits()).to_ipv4_mapped().is_some()
}

#[cfg(test)]
mod tests;
