//! Sets of peers.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde_json::{Value, json};
use turn_types::PrefixError;

use super::{Written, written};

/// A network or one address, written as `"192.0.2.0/24"`, `"2001:db8::/32"` or `"192.0.2.7"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix(pub turn_types::Prefix);

impl Written for Prefix {
    const KIND: &'static str = "network";

    fn forms() -> String {
        "write a network such as \"192.0.2.0/24\" or \"2001:db8::/32\", or one address".to_owned()
    }

    fn parse(text: &str) -> Result<Self, String> {
        text.parse().map(Self).map_err(|error| match error {
            PrefixError::Address => format!("\"{text}\" is not a network or an IP address"),
            PrefixError::Length => {
                format!(
                    "\"{text}\" has a prefix length out of range (0-32 for IPv4, 0-128 for IPv6)"
                )
            }
            PrefixError::HostBits => network_of(text).map_or_else(
                || format!("\"{text}\" has bits set behind its prefix length"),
                |network| {
                    format!("\"{text}\" is an address in a network: the network is \"{network}\"")
                },
            ),
        })
    }

    fn written(&self) -> Value {
        json!(self.0.to_string())
    }
}
written!([] Prefix);

/// `10.1.2.3/8` -> `10.0.0.0/8`.
fn network_of(text: &str) -> Option<String> {
    let (ip, len) = text.split_once('/')?;
    let len: u32 = len.parse().ok()?;
    let network = match ip.parse().ok()? {
        IpAddr::V4(ip) => {
            let mask = u32::MAX.checked_shl(32_u32.checked_sub(len)?).unwrap_or(0);
            IpAddr::V4(Ipv4Addr::from_bits(ip.to_bits() & mask))
        }
        IpAddr::V6(ip) => {
            let mask = u128::MAX.checked_shl(128_u32.checked_sub(len)?).unwrap_or(0);
            IpAddr::V6(Ipv6Addr::from_bits(ip.to_bits() & mask))
        }
    };
    Some(format!("{network}/{len}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks() {
        assert_eq!(Prefix::parse("192.0.2.7").unwrap().written(), "192.0.2.7/32");
        for (text, what) in [
            (
                "10.1.2.3/8",
                "\"10.1.2.3/8\" is an address in a network: the network is \"10.0.0.0/8\"",
            ),
            ("1.2.3.4/0", "\"1.2.3.4/0\" is an address in a network: the network is \"0.0.0.0/0\""),
            (
                "2001:db8::1/32",
                "\"2001:db8::1/32\" is an address in a network: the network is \"2001:db8::/32\"",
            ),
            (
                "10.0.0.0/33",
                "\"10.0.0.0/33\" has a prefix length out of range (0-32 for IPv4, 0-128 for IPv6)",
            ),
            ("lan", "\"lan\" is not a network or an IP address"),
        ] {
            assert_eq!(Prefix::parse(text), Err(what.to_owned()));
        }
    }
}
