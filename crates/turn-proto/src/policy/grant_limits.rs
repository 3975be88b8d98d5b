//! Limits of a credential, in addition to the limits of the realm. The narrower limit applies.
//!
//! The text form consists of pairs as in `application/x-www-form-urlencoded`, without escapes:
//! `allocations=2&bytes_per_second=100000&lifetime=600&peers=203.0.113.0/24,2001:db8::/32`. In a
//! time-limited name the text follows the user id and a question mark. The password of the
//! credential therefore covers the limits.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::net::IpAddr;
use core::num::{NonZeroU32, NonZeroU64};
use core::str::FromStr;
use core::time::Duration;

use state_format::fields;
use turn_types::Prefix;

use super::peer_rules::canonical;
use crate::limits::GRANT_PEERS_MAX;

/// Limits of a credential. `None` means that only the limit of the realm applies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GrantLimits {
    /// Maximum number of live allocations of the credential's account.
    pub allocations: Option<NonZeroU32>,
    /// Maximum bytes per second of each allocation, in each direction.
    pub bytes_per_second: Option<NonZeroU64>,
    /// Maximum lifetime of each allocation from one refresh to the next, in seconds.
    pub lifetime: Option<NonZeroU32>,
    /// Permitted peers among the peers that the rules allow, at most [`GRANT_PEERS_MAX`].
    pub peers: Option<Arc<[Prefix]>>,
}

fields!(GrantLimits { 1 => allocations, 2 => bytes_per_second, 3 => lifetime, 4 => peers });

/// Error of a text that does not contain limits of a credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitsError {
    /// A part is not `name=value`.
    Form,
    /// A name is unknown.
    Name,
    /// A name occurs twice.
    Twice,
    /// A number is malformed, 0 or too large.
    Number,
    /// Peers are not prefixes such as 203.0.113.0/24, separated by commas.
    Peers,
    /// The number of prefixes exceeds [`GRANT_PEERS_MAX`].
    TooManyPeers,
}

impl fmt::Display for LimitsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Form => "limits are pairs such as allocations=2, joined by &",
            Self::Name => "limits are allocations, bytes_per_second, lifetime and peers",
            Self::Twice => "a limit is there twice",
            Self::Number => "a limit is not a whole number from 1",
            Self::Peers => "peers are prefixes such as 203.0.113.0/24, separated by commas",
            Self::TooManyPeers => "there are more than 8 prefixes of peers",
        })
    }
}

impl core::error::Error for LimitsError {}

impl GrantLimits {
    /// Returns true if nothing is limited.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns true if the limits allow a peer. `local` is the address in packets, and `named` is
    /// the address in the client's request.
    pub(crate) fn allow_peer(&self, local: IpAddr, named: IpAddr) -> bool {
        let holds = |ip: IpAddr| {
            let ip = canonical(ip);
            let within = |prefix: &Prefix| is_of_family(prefix, ip) && prefix.contains(ip);
            self.peers.as_ref().is_none_or(|peers| peers.iter().any(within))
        };
        holds(local) || holds(named)
    }

    /// Returns the narrower limit of live allocations; 0 is unlimited.
    pub(crate) fn allocations(&self, quota: u32) -> u32 {
        narrower(quota, self.allocations.map(NonZeroU32::get))
    }

    /// Returns the narrower rate in bytes per second; 0 is unlimited.
    pub(crate) fn rate(&self, quota: u64) -> u64 {
        narrower(quota, self.bytes_per_second.map(NonZeroU64::get))
    }

    /// Returns the shorter lifetime.
    pub(crate) fn lifetime(&self, granted: Duration) -> Duration {
        self.lifetime.map_or(granted, |most| granted.min(Duration::from_secs(most.get().into())))
    }

    /// Returns limits that apply both `self` and `other`.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        let peers = match (&self.peers, &other.peers) {
            (Some(one), Some(two)) => Some(common(one, two)),
            (Some(one), None) | (None, Some(one)) => Some(Arc::clone(one)),
            (None, None) => None,
        };
        Self {
            allocations: less(self.allocations, other.allocations),
            bytes_per_second: less(self.bytes_per_second, other.bytes_per_second),
            lifetime: less(self.lifetime, other.lifetime),
            peers,
        }
    }
}

fn narrower<T: Ord + Default>(quota: T, limit: Option<T>) -> T {
    match limit {
        Some(limit) if quota == T::default() || limit < quota => limit,
        Some(_) | None => quota,
    }
}

fn less<T: Ord>(one: Option<T>, two: Option<T>) -> Option<T> {
    match (one, two) {
        (Some(one), Some(two)) => Some(one.min(two)),
        (one, two) => one.or(two),
    }
}

/// Returns true if a prefix and an address have equal families. `::/0` contains no IPv4 address.
const fn is_of_family(prefix: &Prefix, ip: IpAddr) -> bool {
    prefix.first().is_ipv4() == ip.is_ipv4()
}

/// Returns the addresses that both lists contain. Two prefixes are nested or disjoint.
fn common(one: &[Prefix], two: &[Prefix]) -> Arc<[Prefix]> {
    let within = |inner: &Prefix, outer: &Prefix| {
        outer.len_128() <= inner.len_128()
            && is_of_family(outer, inner.first())
            && outer.contains(inner.first())
    };
    let pairs = one.iter().flat_map(|a| two.iter().map(move |b| (a, b)));
    let both =
        pairs.filter_map(|(a, b)| if within(a, b) { Some(*a) } else { within(b, a).then_some(*b) });
    both.collect()
}

impl FromStr for GrantLimits {
    type Err = LimitsError;

    fn from_str(text: &str) -> Result<Self, LimitsError> {
        let mut limits = Self::default();
        for pair in text.split('&') {
            let (name, value) = pair.split_once('=').ok_or(LimitsError::Form)?;
            match name {
                "allocations" => set(&mut limits.allocations, number(value)?)?,
                "bytes_per_second" => set(&mut limits.bytes_per_second, number(value)?)?,
                "lifetime" => set(&mut limits.lifetime, number(value)?)?,
                "peers" => set(&mut limits.peers, peers(value)?)?,
                _ => return Err(LimitsError::Name),
            }
        }
        Ok(limits)
    }
}

fn set<T>(limit: &mut Option<T>, value: T) -> Result<(), LimitsError> {
    limit.replace(value).map_or(Ok(()), |_| Err(LimitsError::Twice))
}

/// Parses a number that consists only of decimal digits.
fn number<T: FromStr>(text: &str) -> Result<T, LimitsError> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten().ok_or(LimitsError::Number)
}

fn peers(text: &str) -> Result<Arc<[Prefix]>, LimitsError> {
    let prefix = |text: &str| text.parse::<Prefix>().map_err(|_| LimitsError::Peers);
    let prefixes = text.split(',').take(GRANT_PEERS_MAX + 1).map(prefix);
    let prefixes: Vec<_> = prefixes.collect::<Result<_, _>>()?;
    if prefixes.len() > GRANT_PEERS_MAX {
        return Err(LimitsError::TooManyPeers);
    }
    Ok(prefixes.into())
}

impl fmt::Display for GrantLimits {
    /// Writes the text that [`FromStr`] parses. Without limits the text is empty, which [`FromStr`]
    /// refuses.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut joint = "";
        let mut pair = |f: &mut fmt::Formatter<'_>, name, value: Option<&dyn fmt::Display>| {
            let Some(value) = value else { return Ok(()) };
            write!(f, "{joint}{name}={value}")?;
            joint = "&";
            Ok(())
        };
        pair(f, "allocations", self.allocations.as_ref().map(|value| value as _))?;
        pair(f, "bytes_per_second", self.bytes_per_second.as_ref().map(|value| value as _))?;
        pair(f, "lifetime", self.lifetime.as_ref().map(|value| value as _))?;
        let peers = self.peers.as_deref().map(Listed);
        pair(f, "peers", peers.as_ref().map(|value| value as _))
    }
}

/// Prefixes separated by commas.
struct Listed<'a>(&'a [Prefix]);

impl fmt::Display for Listed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, prefix) in self.0.iter().enumerate() {
            let joint = if index == 0 { "" } else { "," };
            write!(f, "{joint}{prefix}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
