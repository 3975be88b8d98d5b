//! Cookie at the start of a NONCE, which announces the security features in use. The cookie
//! prevents an attacker from hiding these features (RFC 8489 §9.2, §9.2.1, §18.1).

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

/// Length of the cookie in characters: nine constant ones, and 24 feature bits in base64.
pub const NONCE_COOKIE_LEN: usize = 13;

const PREFIX: &[u8; 9] = b"obMatJos2";

/// Security features that a nonce announces. Bit 0 is the most significant of the 24. The vector in
/// RFC 8489 appendix B.1 uses the least significant bit instead, and is wrong.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct SecurityFeatures {
    /// Bit 0: PASSWORD-ALGORITHMS accompanies the nonce.
    pub password_algorithms: bool,
    /// Bit 1: USERHASH may replace USERNAME.
    pub username_anonymity: bool,
}

impl SecurityFeatures {
    const PASSWORD_ALGORITHMS: u8 = 0x80;
    const USERNAME_ANONYMITY: u8 = 0x40;

    /// Returns the cookie at the start of a nonce, in ASCII. Without features, the last four
    /// characters are `AAAA`.
    #[must_use]
    pub fn cookie(self) -> [u8; NONCE_COOKIE_LEN] {
        let mut bits = 0;
        if self.password_algorithms {
            bits |= Self::PASSWORD_ALGORITHMS;
        }
        if self.username_anonymity {
            bits |= Self::USERNAME_ANONYMITY;
        }
        // Three bytes are four characters. Only the first two can differ from 'A' while bits 2..24
        // are unassigned.
        let mut cookie = *b"obMatJos2AAAA";
        let (_, encoded) = cookie.split_at_mut(PREFIX.len());
        let written = BASE64_STANDARD.encode_slice([bits, 0, 0], encoded);
        debug_assert_eq!(written.ok(), Some(4));
        cookie
    }

    /// Parses the features that a nonce announces. Returns `None` if the nonce does not start with
    /// a cookie, as with servers of RFC 5389. Unassigned bits are ignored.
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
