//! Cookies that have started a DTLS session. Each cookie starts at most one session, although the
//! cookie remains valid (RFC 6347 §4.2.1).

use crate::limits::COOKIES_USED;

/// Table of used cookies, with a fixed size. A later cookie may overwrite an earlier cookie. A
/// cookie is valid for at most two minutes, so most overwritten entries are obsolete.
#[derive(Debug)]
pub(super) struct UsedCookies(Box<[u64]>);

impl UsedCookies {
    pub(super) fn new() -> Self {
        Self(vec![0; COOKIES_USED].into_boxed_slice())
    }

    pub(super) fn insert(&mut self, cookie: CookieMark) {
        *self.slot(cookie) = cookie.0;
    }

    pub(super) fn contains(&mut self, cookie: CookieMark) -> bool {
        *self.slot(cookie) == cookie.0
    }

    fn slot(&mut self, CookieMark(mark): CookieMark) -> &mut u64 {
        // The modulus keeps the index within the table, so the index fits into a `usize`.
        let index = (mark % self.0.len() as u64) as usize;
        &mut self.0[index]
    }
}

/// Part of a cookie, never 0. Cookies are keyed hashes, so no client can choose two cookies with
/// the same table entry.
#[derive(Clone, Copy, Debug)]
pub(super) struct CookieMark(u64);

impl CookieMark {
    pub(super) fn of(cookie: &[u8]) -> Self {
        let part = cookie.first_chunk().copied().unwrap_or_default();
        Self(u64::from_le_bytes(part) | 1 << 63)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_used_cookie_is_recognised_and_no_other() {
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
