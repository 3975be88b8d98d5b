//! Time-limited credentials (draft-uberti-behave-turn-rest-00 §2.2). The name contains the expiry.
//! The password is derived from the name and a secret shared with the service that issues
//! credentials. Authentication needs no look-up and no list of users.

use core::ops::Range;

use stun_wire::{LongTermKeys, time_limited_password};
use turn_types::{Secret, UnixSeconds};

use crate::credentials::UserKeys;
use crate::policy::grant_limits::LimitsError;
use crate::policy::{AuthPolicy, GrantLimits, SharedSecret};

/// Name with a time: `timestamp:userid` as in the draft, `userid:timestamp` as some services write
/// it, or only `timestamp`. The policy may set another separator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TimeLimitedName<'a> {
    /// Expiry of the credential.
    pub(super) expires: UnixSeconds,
    /// Account of the quotas: the user id, so a new credential does not start a new quota. Without
    /// a user id this is the complete name.
    pub(super) account: &'a str,
}

/// Range of numbers read as timestamps if the user id is also a number: the years 2001 to 2286.
const TIMESTAMPS: Range<u64> = 1_000_000_000..10_000_000_000;

/// Maximum seconds into the future for a timestamp, if a second number could be the time. Services
/// issue credentials for hours. A telephone number read as a timestamp is mostly further away.
const AMBIGUOUS_WITHIN: u64 = 30 * 24 * 3600;

/// Maximum seconds in the past for the second of two times to be the expiry. An older number is a
/// user id.
const RECENT: u64 = 30 * 24 * 3600;

impl<'a> TimeLimitedName<'a> {
    /// Reads a name. `None` if the name contains no time.
    ///
    /// A name of two numbers has its time in the part that looks like a timestamp. If both parts
    /// look like timestamps, or neither, the first part is the time, as in the draft. The second
    /// part is the time if it is earlier, in two cases. Either the first part is more than 30 days
    /// ahead, or both parts look like timestamps and the second is at most 30 days old. A user with
    /// an id that looks like a time extends a credential by at most 30 days.
    pub(super) fn parse(name: &'a str, separator: char, now: UnixSeconds) -> Option<Self> {
        let first =
            name.split_once(separator).and_then(|(time, user)| Some((seconds(time)?, user)));
        let last =
            name.rsplit_once(separator).and_then(|(user, time)| Some((seconds(time)?, user)));
        let (expires, user) = match (first, last) {
            (Some(first), Some(last)) => {
                let is_earlier = last.0 < first.0;
                let is_far = first.0.0 > now.0.saturating_add(AMBIGUOUS_WITHIN);
                let is_recent = last.0.0 >= now.0.saturating_sub(RECENT);
                match [first, last].map(|(time, _)| TIMESTAMPS.contains(&time.0)) {
                    [true, false] => first,
                    [false, true] => last,
                    [true, true] if is_earlier && (is_far || is_recent) => last,
                    [false, false] if is_earlier && is_far => last,
                    [true, true] | [false, false] => first,
                }
            }
            (Some(found), None) | (None, Some(found)) => found,
            (None, None) => (seconds(name)?, name),
        };
        Some(Self { expires, account: if user.is_empty() { name } else { user } })
    }

    /// Returns the account and the limits in the name, if the policy permits limits `in_names`. The
    /// password covers both.
    pub(super) fn limits(
        &self,
        in_names: bool,
    ) -> (&'a str, Result<Option<GrantLimits>, LimitsError>) {
        match self.account.split_once('?') {
            // An empty account name would have no quota.
            Some(("", limits)) if in_names => (self.account, limits.parse().map(Some)),
            Some((account, limits)) if in_names => (account, limits.parse().map(Some)),
            Some(_) | None => (self.account, Ok(None)),
        }
    }
}

/// Reads a time-limited name as authentication does. Returns the expiry, and the account with its
/// limits. `None` if the name contains no time. Programs that issue names can check names with this
/// function.
#[must_use]
pub fn expiry_and_account(
    name: &str,
    separator: char,
    now: UnixSeconds,
) -> Option<(UnixSeconds, &str)> {
    let TimeLimitedName { expires, account } = TimeLimitedName::parse(name, separator, now)?;
    Some((expires, account))
}

/// Returns the account in an unproven name. Removes the time and limits of a time-limited name,
/// with the separator of the realm.
pub(crate) fn account_of<'a>(auth: &AuthPolicy, name: &'a str, now: UnixSeconds) -> &'a str {
    match TimeLimitedName::parse(name, auth.separator, now) {
        Some(parts) => parts.limits(auth.limits_in_names).0,
        None => name,
    }
}

/// Parses a time in seconds since 1970, of decimal digits only.
fn seconds(text: &str) -> Option<UnixSeconds> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten().map(UnixSeconds)
}

/// Returns the keys of a name under a secret. `None` if the realm is not an OpaqueString, which
/// settings exclude.
pub(super) fn keys(secret: &SharedSecret, name: &str, realm: &str) -> Option<UserKeys> {
    let password = time_limited_password(secret.secret.expose(), name);
    let keys = LongTermKeys::new(name, realm, &password).ok()?;
    Some(UserKeys { md5: Secret::new(keys.md5), sha256: Some(Secret::new(keys.sha256)) })
}

#[cfg(test)]
mod tests {
    use alloc::format;

    use super::*;

    const NOW: UnixSeconds = UnixSeconds(1_699_990_000);

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
            // Numeric user ids, on either side.
            ("1700000000:42", 1_700_000_000, "42"),
            ("42:1700000000", 1_700_000_000, "42"),
            ("1700000000:4917012345678", 1_700_000_000, "4917012345678"),
            ("4917012345678:1700000000", 1_700_000_000, "4917012345678"),
            ("5551234567:1700000000", 1_700_000_000, "5551234567"),
            ("1700000000:5551234567", 1_700_000_000, "5551234567"),
            ("1700000000:1600000000", 1_700_000_000, "1600000000"),
            ("9999999999:9999999998", 9_999_999_998, "9999999999"),
            ("42:43", 42, "43"),
            ("99999999999:43", 43, "99999999999"),
            ("99999999999:a:43", 43, "99999999999:a"),
            ("1800000000:a", 1_800_000_000, "a"),
            // Only the first looks like a time, however far ahead it is.
            ("1800000000:42", 1_800_000_000, "42"),
            ("0:alice", 0, "alice"),
            ("1700000000:älice", 1_700_000_000, "älice"),
        ] {
            let expected = TimeLimitedName { expires: UnixSeconds(expires), account };
            assert_eq!(TimeLimitedName::parse(name, ':', NOW), Some(expected), "{name}");
        }
    }

    /// The service writes the user id first, and this id looks like a time.
    #[test]
    fn an_id_that_is_a_time_does_not_hide_an_expiry() {
        const DAY: u64 = 24 * 3600;
        let now = NOW.0;
        for id in [now + 1, now + 600, now + 30 * DAY, now + 31 * DAY] {
            for expired in [now - 30 * DAY, now - 1, now, now + 60] {
                for name in [format!("{id}:{expired}"), format!("{id}:bob:{expired}")] {
                    let found = TimeLimitedName::parse(&name, ':', NOW).unwrap();
                    assert_eq!(found.expires.0, expired.min(id), "{name}");
                }
            }
        }
        // The service writes the expiry first. The id never extends the credential.
        for expiry in [now - 40 * DAY, now - 1, now + 600] {
            for id in [now - 40 * DAY, now - DAY, now + DAY, now + 40 * DAY] {
                let name = format!("{expiry}:{id}");
                let found = TimeLimitedName::parse(&name, ':', NOW).unwrap();
                assert!(found.expires.0 <= expiry, "{name}");
            }
        }
    }

    #[test]
    fn a_question_mark_means_limits_where_the_policy_says_so() {
        let limits = |name, in_names| {
            let limited = TimeLimitedName::parse(name, ':', NOW).unwrap();
            let (account, limits) = limited.limits(in_names);
            (account, limits.map(|limits| limits.is_some()))
        };
        for (name, account, whole) in [
            ("1700000000:alice?allocations=2", "alice", "alice?allocations=2"),
            ("1700000000:?allocations=2", "?allocations=2", "?allocations=2"),
        ] {
            assert_eq!(limits(name, true), (account, Ok(true)), "{name}");
            assert_eq!(limits(name, false), (whole, Ok(false)), "{name}");
        }
        assert_eq!(limits("1700000000:?what", false), ("?what", Ok(false)));
        assert!(limits("1700000000:?what", true).1.is_err());
        assert_eq!(limits("1700000000:alice", true), ("alice", Ok(false)));
    }

    #[test]
    fn another_separator_is_the_only_one() {
        let parse = |name| TimeLimitedName::parse(name, '-', NOW).map(|limited| limited.account);
        assert_eq!(parse("1700000000-a:b"), Some("a:b"));
        assert_eq!(parse("1700000000-49-17"), Some("49-17"));
        assert_eq!(parse("1700000000:alice"), None);
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
            assert_eq!(TimeLimitedName::parse(name, ':', NOW), None, "{name}");
        }
    }
}
