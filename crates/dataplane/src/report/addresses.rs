//! Addresses of clients and peers in the log: complete, truncated, or as pseudonyms.

use std::fmt;
use std::net::IpAddr;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, PoisonError, RwLock};

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::{Digest as _, Sha256};
use turn_proto::ShareHolder;
use turn_types::{Prefix, Secret};

/// Form of client and peer addresses in the log.
#[derive(Clone, Debug, Default)]
pub enum LogAddresses {
    /// Complete addresses with ports.
    #[default]
    Whole,
    /// Networks of 24 bits (IPv4) or 48 bits (IPv6).
    Truncated,
    /// Numbers of 48 bits, equal for equal addresses and keys: `~1f3a5b7c9d0e`.
    Pseudonym(PseudonymKey),
}

/// Key of pseudonyms, shared by all workers. The lock is taken for each logged address, and by a
/// reload.
#[derive(Clone, Debug)]
pub struct PseudonymKey {
    of_process: Secret<[u8; 32]>,
    in_force: Arc<RwLock<Secret<[u8; 32]>>>,
}

impl PseudonymKey {
    /// Creates a key. The key is in effect until another key is set.
    #[must_use]
    pub fn new(of_process: Secret<[u8; 32]>) -> Self {
        Self { of_process, in_force: Arc::new(RwLock::new(of_process)) }
    }

    /// Replaces the key by an operator's key. With `None`, the key of the process is in effect
    /// again.
    pub fn put_in_force(&self, key: Option<&Secret<Arc<[u8]>>>) {
        let hashed = |key: &Secret<Arc<[u8]>>| Secret::new(Sha256::digest(key.expose()).into());
        let key = key.map_or(self.of_process, hashed);
        *self.in_force.write().unwrap_or_else(PoisonError::into_inner) = key;
    }

    /// Returns the pseudonym of an address: part of a keyed hash. The key is necessary because all
    /// IPv4 addresses could be tried otherwise.
    fn pseudonym(&self, ip: IpAddr) -> [u8; 6] {
        let key = *self.in_force.read().unwrap_or_else(PoisonError::into_inner);
        let mut mac = Hmac::<Sha256>::new_from_slice(key.expose()).expect("a key of any length");
        match ip {
            IpAddr::V4(ip) => mac.update(&ip.octets()),
            IpAddr::V6(ip) => mac.update(&ip.octets()),
        }
        let hash: [u8; 32] = mac.finalize().into_bytes().into();
        [hash[0], hash[1], hash[2], hash[3], hash[4], hash[5]]
    }
}

/// Address in the form of the log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shown<'a> {
    form: &'a LogAddresses,
    ip: IpAddr,
    port: Option<u16>,
}

impl LogAddresses {
    pub(crate) const fn show(&self, address: SocketAddr) -> Shown<'_> {
        Shown { form: self, ip: address.ip(), port: Some(address.port()) }
    }

    pub(crate) const fn show_ip(&self, ip: IpAddr) -> Shown<'_> {
        Shown { form: self, ip, port: None }
    }

    /// Returns a network in the form of the log.
    pub(crate) fn show_network(&self, network: &Prefix) -> String {
        let first = network.first();
        let is_truncated = || network.len_128() <= Prefix::network(first).len_128();
        match self {
            Self::Whole => network.to_string(),
            Self::Truncated if is_truncated() => network.to_string(),
            Self::Truncated | Self::Pseudonym(_) => self.show_ip(first).to_string(),
        }
    }

    /// Returns the holder of a share in the form of the log: `network 192.0.2.0/24`.
    pub(crate) fn show_share(&self, holder: &ShareHolder) -> String {
        let name = match holder {
            ShareHolder::Network(network) => self.show_network(network),
            ShareHolder::Account(name) => format!("{name:?}"),
            ShareHolder::Realm(name) => format!("{:?}", &**name),
        };
        format!("{} {name}", holder.level())
    }
}

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.form, self.ip, self.port) {
            (LogAddresses::Whole, ip, Some(port)) => SocketAddr::new(ip, port).fmt(f),
            (LogAddresses::Whole, ip, None) => ip.fmt(f),
            (LogAddresses::Truncated, IpAddr::V4(ip), _) => {
                write!(f, "{}/24", Ipv4Addr::from_bits(ip.to_bits() & (u32::MAX << 8)))
            }
            (LogAddresses::Truncated, IpAddr::V6(ip), _) => {
                write!(f, "{}/48", Ipv6Addr::from_bits(ip.to_bits() & (u128::MAX << 80)))
            }
            (LogAddresses::Pseudonym(key), ip, _) => {
                f.write_str("~")?;
                key.pseudonym(ip).iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(form: &LogAddresses, address: &str) -> String {
        form.show(address.parse().unwrap()).to_string()
    }

    #[test]
    fn whole_and_truncated() {
        for (address, truncated) in
            [("192.0.2.77:5000", "192.0.2.0/24"), ("[2001:db8:1:2::3]:5000", "2001:db8:1::/48")]
        {
            assert_eq!(shown(&LogAddresses::Whole, address), address);
            assert_eq!(shown(&LogAddresses::Truncated, address), truncated);
        }
        assert_eq!(LogAddresses::Whole.show_ip([192, 0, 2, 1].into()).to_string(), "192.0.2.1");
    }

    /// A share contains a network, and the log may have to hide the network's addresses.
    #[test]
    fn holders_of_shares_are_shown_as_addresses_are() {
        let show = |form: &LogAddresses, network: &str| {
            form.show_share(&ShareHolder::Network(network.parse().unwrap()))
        };
        assert_eq!(show(&LogAddresses::Whole, "192.0.2.7"), "network 192.0.2.7/32");
        assert_eq!(show(&LogAddresses::Truncated, "192.0.2.7"), "network 192.0.2.0/24");
        assert_eq!(show(&LogAddresses::Truncated, "192.0.0.0/16"), "network 192.0.0.0/16");
        let pseudonym = LogAddresses::Pseudonym(PseudonymKey::new(Secret::new([1; 32])));
        let shown = show(&pseudonym, "2001:db8::/48");
        assert!(shown.starts_with("network ~") && !shown.contains("2001"), "{shown}");
        let account = ShareHolder::Account("a\nb".into());
        assert_eq!(LogAddresses::Whole.show_share(&account), "account \"a\\nb\"");
    }

    #[test]
    fn a_pseudonym_is_of_the_address_and_the_key() {
        let [one, other] =
            [1, 2].map(|byte| LogAddresses::Pseudonym(PseudonymKey::new(Secret::new([byte; 32]))));
        let name = shown(&one, "192.0.2.77:5000");
        assert_eq!((name.len(), &name[..1]), (13, "~"));
        assert_eq!(name, shown(&one, "192.0.2.77:5001"), "of any port");
        assert_ne!(name, shown(&one, "192.0.2.78:5000"));
        assert_ne!(name, shown(&other, "192.0.2.77:5000"));
    }

    #[test]
    fn an_operators_key_makes_the_same_pseudonyms_at_each_start() {
        let starts = [1, 2].map(|byte| PseudonymKey::new(Secret::new([byte; 32])));
        let name =
            |key: &PseudonymKey| shown(&LogAddresses::Pseudonym(key.clone()), "192.0.2.77:5000");
        let before = name(&starts[0]);
        let key = Secret::new(Arc::from(*b"north-of-the-wall"));
        starts.iter().for_each(|start| start.put_in_force(Some(&key)));
        assert_eq!(name(&starts[0]), name(&starts[1]));
        assert_ne!(name(&starts[0]), before);
        starts[0].put_in_force(None);
        assert_eq!(name(&starts[0]), before);
    }
}
