//! DTLS cookies. A client that returns a cookie proves that packets to its address arrive (RFC 6347
//! §4.2.1).

use std::net::IpAddr;
use std::time::Duration;

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

use crate::AddressPair;

/// Minimum validity of a cookie, and half of the maximum. Clients retransmit a hello for up to a
/// minute. A client with an expired cookie gets a new cookie.
const SLOT: Duration = Duration::from_secs(60);

/// Length of a cookie in bytes. With this length, the answer is shorter than any ClientHello.
pub(super) const COOKIE_LEN: usize = 32;

/// Creates and verifies stateless cookies. All workers share the secret, so a client may return a
/// cookie to any worker.
#[derive(Clone)]
pub struct Cookies {
    secret: Hmac<Sha256>,
}

impl Cookies {
    /// Derives cookies from a secret, which must come from the operating system's randomness.
    #[must_use]
    pub fn new(secret: &[u8; 32]) -> Self {
        #[expect(clippy::expect_used, reason = "an HMAC has keys of any length (RFC 2104 §2)")]
        let secret = Hmac::new_from_slice(secret).expect("a key of any length");
        Self { secret }
    }

    /// Creates a cookie for a client's hello. `since` is the time since any fixed moment.
    pub(super) fn make(
        &self,
        ends: AddressPair,
        random: &[u8; 32],
        since: Duration,
    ) -> [u8; COOKIE_LEN] {
        self.signed(ends, random, slot(since)).finalize().into_bytes().into()
    }

    /// Returns true if the cookie was created for this client's hello, in the current time slot or
    /// the previous slot.
    pub(super) fn verify(
        &self,
        ends: AddressPair,
        random: &[u8; 32],
        cookie: &[u8],
        since: Duration,
    ) -> bool {
        let now = slot(since);
        [now, now.wrapping_sub(1)].into_iter().any(|slot| {
            // Compares in constant time.
            self.signed(ends, random, slot).verify_slice(cookie).is_ok()
        })
    }

    /// Computes the MAC of a time slot. The MAC covers the slot, so a cookie reveals nothing about
    /// the next slot's.
    fn signed(&self, ends: AddressPair, random: &[u8; 32], slot: u64) -> Hmac<Sha256> {
        let mut mac = self.secret.clone();
        mac.update(&slot.to_be_bytes());
        for end in [ends.client, ends.server] {
            let ip = match end.ip() {
                IpAddr::V4(v4) => v4.to_ipv6_mapped(),
                IpAddr::V6(v6) => v6,
            };
            mac.update(&ip.octets());
            mac.update(&end.port().to_be_bytes());
        }
        mac.update(random);
        mac
    }
}

impl std::fmt::Debug for Cookies {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cookies").finish_non_exhaustive()
    }
}

const fn slot(since: Duration) -> u64 {
    since.as_secs() / SLOT.as_secs()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(client: &str, server: &str) -> AddressPair {
        AddressPair { client: client.parse().unwrap(), server: server.parse().unwrap() }
    }

    #[test]
    fn a_cookie_is_for_one_client_one_hello_and_a_while() {
        let cookies = Cookies::new(&[7; 32]);
        let here = ends("192.0.2.1:5000", "203.0.113.1:5349");
        let at = Duration::from_secs(1000);
        let cookie = cookies.make(here, &[1; 32], at);
        let good = |ends, random, seconds| {
            cookies.verify(ends, &[random; 32], &cookie, at + Duration::from_secs(seconds))
        };
        assert!(good(here, 1, 0) && good(here, 1, 60));
        assert!(!good(here, 1, 120), "too old");
        assert!(!good(here, 2, 0), "another hello");
        for other in [
            ends("192.0.2.1:5001", "203.0.113.1:5349"),
            ends("192.0.2.2:5000", "203.0.113.1:5349"),
            ends("192.0.2.1:5000", "203.0.113.1:3478"),
            ends("192.0.2.1:5000", "203.0.113.2:5349"),
        ] {
            assert!(!good(other, 1, 0), "{other:?}");
        }
        assert!(!cookies.verify(here, &[1; 32], &cookie[..31], at), "cut off");
        assert!(!cookies.verify(here, &[1; 32], &[], at), "none");
        assert!(!Cookies::new(&[8; 32]).verify(here, &[1; 32], &cookie, at), "another's");
    }
}
