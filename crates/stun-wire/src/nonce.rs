//! The cookie at the start of a NONCE, which tells a client the security features in use and keeps
//! an attacker from hiding them (RFC 8489 §9.2, §9.2.1, §18.1).

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

/// Characters of the cookie: nine fixed ones, and 24 feature bits in base64.
pub const NONCE_COOKIE_LEN: usize = 13;

const PREFIX: &[u8; 9] = b"obMatJos2";

/// The security features that a nonce announces. Bit 0 is the most significant of the 24: the
/// vector of RFC 8489 appendix B.1 has it at the other end and is wrong.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct SecurityFeatures {
    /// Bit 0: PASSWORD-ALGORITHMS accompanies the nonce.
    pub password_algorithms: bool,
    /// Bit 1: USERHASH may stand for USERNAME.
    pub username_anonymity: bool,
}

impl SecurityFeatures {
    const PASSWORD_ALGORITHMS: u8 = 0x80;
    const USERNAME_ANONYMITY: u8 = 0x40;

    /// The cookie with which a nonce begins, in ASCII; with no feature it ends in `AAAA`.
    #[must_use]
    pub fn cookie(self) -> [u8; NONCE_COOKIE_LEN] {
        let mut bits = 0;
        if self.password_algorithms {
            bits |= Self::PASSWORD_ALGORITHMS;
        }
        if self.username_anonymity {
            bits |= Self::USERNAME_ANONYMITY;
        }
        // Three bytes are four characters, of which only the first two can differ from 'A' as long
        // as bits 2..24 are unassigned.
        let mut cookie = *b"obMatJos2AAAA";
        let (_, encoded) = cookie.split_at_mut(PREFIX.len());
        let written = BASE64_STANDARD.encode_slice([bits, 0, 0], encoded);
        debug_assert_eq!(written.ok(), Some(4));
        cookie
    }

    /// The features that a nonce announces; `None` if it does not begin with a cookie, as the
    /// nonces of RFC 5389 servers. Bits that are not assigned are ignored.
    #[must_use]
    pub fn of_nonce(nonce: &str) -> Option<Self> {
        let encoded = nonce.as_bytes().strip_prefix(PREFIX)?.first_chunk::<4>()?;
        let mut bits = [0; 3];
        let decoded = BASE64_STANDARD.decode_slice(encoded, &mut bits).ok()?;
        (decoded == bits.len()).then_some(Self {
            password_algorithms: bits[0] & Self::PASSWORD_ALGORITHMS != 0,
            username_anonymity: bits[0] & Self::USERNAME_ANONYMITY != 0,
        })
    }
}
