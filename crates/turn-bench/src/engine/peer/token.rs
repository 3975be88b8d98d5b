//! Stateless tokens that prove that an address receives.

use std::net::{IpAddr, SocketAddr};

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha1::Sha1;

/// Creates and checks tokens, valid in this process alone.
pub(super) struct Tokens {
    secret: [u8; 32],
}

impl Tokens {
    pub(super) fn new() -> Self {
        Self { secret: linux_net::random_bytes() }
    }

    /// The token of an address; never 0.
    pub(super) fn of(&self, address: SocketAddr) -> u64 {
        // A key of any length is one.
        let mut mac = Hmac::<Sha1>::new_from_slice(&self.secret).expect("any length");
        match address.ip() {
            IpAddr::V4(ip) => mac.update(&ip.octets()),
            IpAddr::V6(ip) => mac.update(&ip.octets()),
        }
        mac.update(&address.port().to_be_bytes());
        let digest = mac.finalize().into_bytes();
        digest.iter().take(8).fold(0, |token, &byte| token << 8 | u64::from(byte)) | 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_address_and_each_process_has_its_own() {
        let tokens = Tokens::new();
        let [a, b]: [SocketAddr; 2] =
            ["192.0.2.1:5", "192.0.2.1:6"].map(|address| address.parse().unwrap());
        assert_eq!(tokens.of(a), tokens.of(a));
        assert_ne!(tokens.of(a), tokens.of(b));
        assert_ne!(tokens.of(a), Tokens::new().of(a));
    }
}
