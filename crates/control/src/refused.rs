//! Recent refusals as an operator is told of them.

use std::net::IpAddr;

use turn_proto::RefusedRequest;
use turn_types::Instant;

/// Requests of one user and network that were refused for one reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The latest of them.
    pub latest: RefusedRequest,
    /// Time of the first.
    pub first: Instant,
    /// Time of the latest.
    pub last: Instant,
    /// Their number.
    pub count: u64,
}

/// Which refusals to list. The default is all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RefusalFilter {
    /// Only of this user: the name as authenticated or claimed, or its account.
    pub user: Option<String>,
    /// Only of clients at this address.
    pub client: Option<IpAddr>,
}

impl RefusalFilter {
    /// Returns whether a refusal is selected.
    #[must_use]
    pub fn takes(&self, refused: &RefusedRequest) -> bool {
        let of_user = |user: &str| {
            let named = refused.user.iter().chain(&refused.claimed);
            named.into_iter().any(|name| **name == *user || account(name) == user)
        };
        let client = refused.path.five_tuple.client.ip();
        self.user.as_deref().is_none_or(of_user) && self.client.is_none_or(|ip| ip == client)
    }
}

/// The account in a user name: the part behind the time of a time-limited name.
#[must_use]
pub fn account(name: &str) -> &str {
    match name.split_once(':') {
        Some((time, account))
            if !account.is_empty()
                && !time.is_empty()
                && time.bytes().all(|byte| byte.is_ascii_digit()) =>
        {
            account
        }
        Some(_) | None => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_limited_name_has_its_user_behind_the_time() {
        for (name, user) in [
            ("1700000000:alice", "alice"),
            ("1700000000:", "1700000000:"),
            ("alice", "alice"),
            ("a:b", "a:b"),
            (":b", ":b"),
        ] {
            assert_eq!(account(name), user);
        }
    }
}
