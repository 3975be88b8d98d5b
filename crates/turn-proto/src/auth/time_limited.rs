//! Time-limited credentials: a name that says until when it is good, and a password that follows from it
//! and from a secret shared with the service that hands them out
//! (draft-uberti-behave-turn-rest-00 §2.2). No look-up, no list of users.

use stun_wire::{LongTermKeys, time_limited_password};
use turn_types::{Secret, UnixSeconds};

use crate::event::UserKeys;
use crate::policy::SharedSecret;

/// A name with a time in it: `timestamp:userid` as in the draft, `userid:timestamp` as some services
/// write it, or `timestamp` alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TimeLimitedName<'a> {
    /// When it runs out.
    pub(super) expires: UnixSeconds,
    /// Whom quotas count: the user id, so that a new credential is no new quota; the whole name
    /// where there is no user id.
    pub(super) account: &'a str,
}

impl<'a> TimeLimitedName<'a> {
    /// Reads a name; `None` if there is no time in it.
    pub(super) fn parse(name: &'a str) -> Option<Self> {
        let (expires, user) = if let Some((time, user)) = name.split_once(':')
            && let Some(expires) = seconds(time)
        {
            (expires, user)
        } else if let Some((user, time)) = name.rsplit_once(':') {
            (seconds(time)?, user)
        } else {
            (seconds(name)?, name)
        };
        Some(Self { expires, account: if user.is_empty() { name } else { user } })
    }
}

/// A time in seconds since 1970, in decimal digits and nothing else.
fn seconds(text: &str) -> Option<UnixSeconds> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten().map(UnixSeconds)
}

/// The keys of a name under a secret; `None` if the realm is no OpaqueString, which settings see to.
pub(super) fn keys(secret: &SharedSecret, name: &str, realm: &str) -> Option<UserKeys> {
    let password = time_limited_password(secret.secret.expose(), name);
    let keys = LongTermKeys::new(name, realm, &password).ok()?;
    Some(UserKeys { md5: Secret::new(keys.md5), sha256: Some(Secret::new(keys.sha256)) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_found_on_either_side() {
        for (name, expires, account) in [
            ("1700000000:alice", 1_700_000_000, "alice"),
            ("alice:1700000000", 1_700_000_000, "alice"),
            ("1700000000", 1_700_000_000, "1700000000"),
            ("1700000000:", 1_700_000_000, "1700000000:"),
            (":1700000000", 1_700_000_000, ":1700000000"),
            ("1700000000:a:b", 1_700_000_000, "a:b"),
            ("a:b:1700000000", 1_700_000_000, "a:b"),
            ("1700000000:1800000000", 1_700_000_000, "1800000000"),
            ("0:alice", 0, "alice"),
            ("1700000000:älice", 1_700_000_000, "älice"),
        ] {
            let expected = TimeLimitedName { expires: UnixSeconds(expires), account };
            assert_eq!(TimeLimitedName::parse(name), Some(expected), "{name}");
        }
    }

    #[test]
    fn what_is_no_time_is_an_ordinary_name() {
        for name in [
            "",
            ":",
            "alice",
            "alice:",
            "+1700000000:alice",
            "-1:alice",
            "1e9:alice",
            "17 00:a",
            "99999999999999999999:a",
            "١٧:a",
        ] {
            assert_eq!(TimeLimitedName::parse(name), None, "{name}");
        }
    }
}
