//! CIDR prefixes of both families in a common 128-bit form.

use core::fmt;
use core::net::{IpAddr, Ipv6Addr};
use core::str::FromStr;

/// CIDR prefix. IPv4 is stored in IPv4-mapped form: a single comparison then covers both families.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Prefix {
    bits: u128,
    /// Length in the 128-bit form, 0..=128.
    len: u8,
    v4: bool,
}

/// Reason why a text is not a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrefixError {
    /// The part before the slash is not an IP address.
    Address,
    /// The part after the slash is not a number within the family's range.
    Length,
    /// Bits after the prefix length are set: `10.0.0.1/8` is probably a mistake.
    HostBits,
}

impl fmt::Display for PrefixError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Address => {
                "not an IP address or CIDR prefix (such as 192.0.2.0/24 or 2001:db8::/32)"
            }
            Self::Length => "the prefix length is out of range (0-32 for IPv4, 0-128 for IPv6)",
            Self::HostBits => "bits are set behind the prefix length; write the network address",
        })
    }
}

impl core::error::Error for PrefixError {}

const fn mapped(ip: IpAddr) -> u128 {
    match ip {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().to_bits(),
        IpAddr::V6(v6) => v6.to_bits(),
    }
}

const fn mask(len: u8) -> u128 {
    match len {
        0 => 0,
        len => u128::MAX << (128 - len as u32),
    }
}

impl Prefix {
    /// Creates the prefix with the first address `ip` and a length of `len` bits.
    ///
    /// # Errors
    /// - [`PrefixError::Length`]: `len` exceeds the family's width.
    /// - [`PrefixError::HostBits`]: bits after the length are set.
    pub const fn new(ip: IpAddr, len: u8) -> Result<Self, PrefixError> {
        let (v4, width) = match ip {
            IpAddr::V4(_) => (true, 32),
            IpAddr::V6(_) => (false, 128),
        };
        if len > width {
            return Err(PrefixError::Length);
        }
        let len = len + (128 - width);
        let bits = mapped(ip);
        if bits & !mask(len) != 0 {
            return Err(PrefixError::HostBits);
        }
        Ok(Self { bits, len, v4 })
    }

    /// Creates the prefix that contains only this address.
    #[must_use]
    pub const fn host(ip: IpAddr) -> Self {
        Self { bits: mapped(ip), len: 128, v4: ip.is_ipv4() }
    }

    /// Returns the prefix of one customer of an access provider: an IPv4 address, or the /64 from
    /// which an IPv6 host chooses its addresses. Limits for sources with a verified address use
    /// this prefix.
    #[must_use]
    pub const fn customer(ip: IpAddr) -> Self {
        Self::around(ip, 32, 64)
    }

    /// Returns the prefix of one network: the /24 of an IPv4 address, the /48 of an IPv6 address.
    /// Budgets for responses to unverified sources use this prefix. The victim of a reflection is a
    /// network, and forging more addresses of the network costs nothing.
    #[must_use]
    pub const fn network(ip: IpAddr) -> Self {
        Self::around(ip, 24, 48)
    }

    /// Returns the prefix of `len` bits around an address. Bits after the length are ignored. An
    /// IPv4-mapped address is treated as IPv4. A length beyond the family's width is reduced to
    /// that width.
    #[must_use]
    pub const fn containing(ip: IpAddr, len: u8) -> Self {
        Self::around(ip, if len > 32 { 32 } else { len }, if len > 128 { 128 } else { len })
    }

    /// Returns the prefix around the address, with a separate length for each family. An
    /// IPv4-mapped address is treated as IPv4.
    const fn around(ip: IpAddr, v4_len: u8, v6_len: u8) -> Self {
        let ip = ip.to_canonical();
        let (v4, len) = match ip {
            IpAddr::V4(_) => (true, v4_len + 96),
            IpAddr::V6(_) => (false, v6_len),
        };
        Self { bits: mapped(ip) & mask(len), len, v4 }
    }

    /// Returns true if the prefix contains the address. IPv4-mapped addresses are equal to IPv4
    /// addresses. The caller must decode other embedded addresses.
    #[must_use]
    pub const fn contains(&self, ip: IpAddr) -> bool {
        mapped(ip) & mask(self.len) == self.bits
    }

    /// Returns the first address in the 128-bit form.
    #[must_use]
    pub const fn bits(&self) -> u128 {
        self.bits
    }

    /// Returns the first address.
    #[must_use]
    pub const fn first(&self) -> IpAddr {
        let ip = Ipv6Addr::from_bits(self.bits);
        match ip.to_ipv4_mapped() {
            Some(v4) if self.v4 => IpAddr::V4(v4),
            _ => IpAddr::V6(ip),
        }
    }

    /// Returns the length in the 128-bit form, 0..=128 (an IPv4 `/8` has 104).
    #[must_use]
    pub const fn len_128(&self) -> u8 {
        self.len
    }
}

impl FromStr for Prefix {
    type Err = PrefixError;

    fn from_str(text: &str) -> Result<Self, PrefixError> {
        let Some((ip, len)) = text.split_once('/') else {
            return text.parse().map(Self::host).map_err(|_| PrefixError::Address);
        };
        let ip: IpAddr = ip.parse().map_err(|_| PrefixError::Address)?;
        if !len.bytes().all(|b| b.is_ascii_digit()) {
            return Err(PrefixError::Length);
        }
        Self::new(ip, len.parse().map_err(|_| PrefixError::Length)?)
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let v6 = Ipv6Addr::from_bits(self.bits);
        match (self.v4, v6.to_ipv4_mapped()) {
            (true, Some(v4)) => write!(f, "{v4}/{}", self.len - 96),
            _ => write!(f, "{v6}/{}", self.len),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    #[test]
    fn sources_are_counted_by_customer_and_by_network() {
        for (ip, customer, network) in [
            ("192.0.2.7", "192.0.2.7/32", "192.0.2.0/24"),
            ("::ffff:192.0.2.7", "192.0.2.7/32", "192.0.2.0/24"),
            ("2001:db8:1:2:3::4", "2001:db8:1:2::/64", "2001:db8:1::/48"),
        ] {
            let ip: IpAddr = ip.parse().unwrap();
            assert_eq!(Prefix::customer(ip), customer.parse().unwrap());
            assert!(network.starts_with(&Prefix::network(ip).first().to_string()), "{network}");
            assert_eq!(Prefix::network(ip), network.parse().unwrap());
        }
    }

    #[test]
    fn reads_writes_and_contains() {
        for (text, inside, outside) in [
            ("10.0.0.0/8", "10.255.0.1", "11.0.0.0"),
            ("0.0.0.0/0", "255.255.255.255", "2001:db8::1"),
            ("192.0.2.7/32", "192.0.2.7", "192.0.2.8"),
            ("fe80::/10", "febf::1", "fec0::1"),
            ("::/0", "1.2.3.4", ""),
        ] {
            let prefix: Prefix = text.parse().unwrap();
            assert_eq!(prefix.to_string(), text);
            assert!(prefix.contains(inside.parse().unwrap()), "{text} holds {inside}");
            if let Ok(ip) = outside.parse() {
                assert!(!prefix.contains(ip), "{text} does not hold {outside}");
            }
        }
        assert_eq!("192.0.2.7".parse::<Prefix>().unwrap().to_string(), "192.0.2.7/32");
    }

    #[test]
    fn refuses_slips() {
        assert_eq!("10.0.0.1/8".parse::<Prefix>(), Err(PrefixError::HostBits));
        assert_eq!("10.0.0.0/33".parse::<Prefix>(), Err(PrefixError::Length));
        assert_eq!("10.0.0.0/+8".parse::<Prefix>(), Err(PrefixError::Length));
        assert_eq!("10.0.0/8".parse::<Prefix>(), Err(PrefixError::Address));
    }
}
