//! Cookies that have begun a DTLS association and may begin no other (RFC 6347 §4.2.1 leaves them valid).

use crate::limits::COOKIES_USED;

/// Marks of used cookies, in a table of fixed size: one that is used later may take another's place. A cookie
/// is good for two minutes at most, so that most places are of no more use by then.
#[derive(Debug)]
pub(crate) struct UsedCookies(Box<[u64]>);

impl UsedCookies {
    pub(crate) fn new() -> Self {
        Self(vec![0; COOKIES_USED].into_boxed_slice())
    }

    pub(crate) fn insert(&mut self, cookie: CookieMark) {
        *self.place(cookie) = cookie.0;
    }

    pub(crate) fn contains(&mut self, cookie: CookieMark) -> bool {
        *self.place(cookie) == cookie.0
    }

    fn place(&mut self, CookieMark(mark): CookieMark) -> &mut u64 {
        // The modulus keeps it within the table, whose length fits.
        let place = (mark % self.0.len() as u64) as usize;
        &mut self.0[place]
    }
}

/// Part of a cookie, never 0. Cookies are keyed hashes: nobody can choose two that share a place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CookieMark(u64);

impl CookieMark {
    pub(crate) fn of(cookie: &[u8]) -> Self {
        let part = cookie.first_chunk().copied().unwrap_or_default();
        Self(u64::from_le_bytes(part) | 1 << 63)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_is_known_again_and_another_is_not() {
        let mut used = UsedCookies::new();
        let cookie = |number: u16| -> CookieMark {
            let mut cookie = [7_u8; 32];
            cookie[..2].copy_from_slice(&number.to_le_bytes());
            CookieMark::of(&cookie)
        };
        assert!(!used.contains(CookieMark::of(&[0; 32])));
        for number in 0..1000 {
            assert!(!used.contains(cookie(number)));
            used.insert(cookie(number));
        }
        assert!((0..1000).all(|number| used.contains(cookie(number))));
        assert!(!used.contains(cookie(1000)));
    }
}
