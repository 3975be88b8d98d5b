//! Time-limited credentials, made as a web service makes them (draft-uberti-behave-turn-rest §2.2):
//! the name is `<expiry>:<user>`, perhaps with limits behind it, and the password the HMAC of the
//! name. For applications that ask the server (`/turn`) with the first secret of their realm.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use control::{MintWish, Minted, OperatorError, OperatorErrorKind};
use settings::Settings;
use turn_proto::{AuthPolicy, GrantLimits};
use turn_types::Secret;

use crate::reload::InForce;
use crate::revocations::end_of_name;
use crate::uri;

/// Longest name of a credential in bytes: USERNAME is shorter than 509 (RFC 8489 §14.3).
const NAME_BYTES_MAX: usize = 508;

/// Shortest credential: clients need some time to use it.
const LASTS_MIN: Duration = Duration::from_secs(10);

/// The form of time-limited names at a server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NameForm {
    pub(crate) separator: char,
    /// Names may have limits in them.
    pub(crate) limits: bool,
}

impl NameForm {
    /// That of a configuration.
    pub(crate) fn of(settings: &Settings) -> Self {
        let separator = settings.auth.separator.chars().next().unwrap_or(':');
        Self { separator, limits: settings.auth.limits_in_names }
    }

    /// The name of a credential until `expiry`, in seconds since 1970.
    ///
    /// # Errors
    /// The user is too long, has characters that a name cannot have, or may be taken for a time; or
    /// there are limits where names have none.
    pub(crate) fn name(
        self,
        expiry: u64,
        user: &str,
        limits: &GrantLimits,
    ) -> Result<String, &'static str> {
        let Self { separator, limits: in_names } = self;
        if user.chars().any(char::is_control) {
            return Err("username has control characters");
        }
        if in_names && user.contains('?') {
            return Err("username has a question mark, behind which names have limits");
        }
        if !in_names && !limits.is_empty() {
            return Err("names have no limits here: set auth.limits_in_names");
        }
        // The server would have to guess which of two numbers is the time.
        if end_of_name(user, separator, 0).is_some() {
            return Err("username is a number that may be taken for a time");
        }
        let mut name =
            if user.is_empty() { expiry.to_string() } else { format!("{expiry}{separator}{user}") };
        if !limits.is_empty() {
            if user.is_empty() {
                return Err("limits need a username, as quotas count by it");
            }
            name.push_str(&format!("?{limits}"));
        }
        if name.len() > NAME_BYTES_MAX {
            return Err("username is too long");
        }
        Ok(name)
    }
}

impl InForce {
    /// Makes a credential.
    pub(crate) fn mint(&self, wish: &MintWish) -> Result<Minted, OperatorError> {
        let MintWish { realm, user, lasts, limits } = wish;
        let auth = self.auth_of(realm.as_deref())?;
        let Some(secret) = auth.secrets.first() else {
            return Err(not_found("this realm has no shared secret".to_owned()));
        };
        let most = self.settings.api.credential_lifetime.get();
        let ttl = lasts.unwrap_or(most).min(most).max(LASTS_MIN);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let form = NameForm { separator: auth.separator, limits: auth.limits_in_names };
        let username = form.name(now + ttl.as_secs(), user, limits).map_err(invalid)?;
        let password =
            Secret::new(stun_wire::time_limited_password(secret.secret.expose(), &username));
        Ok(Minted { username, password, ttl, uris: self.uris() })
    }

    fn auth_of(&self, realm: Option<&str>) -> Result<&AuthPolicy, OperatorError> {
        match realm {
            Some(name) if *self.policy.realm != *name => {
                let found = self.policy.realms.named(name).map(|realm| &realm.auth);
                found.ok_or_else(|| not_found(format!("there is no realm {name}")))
            }
            Some(_) | None => Ok(&self.policy.auth),
        }
    }

    /// URIs of this server for its clients.
    fn uris(&self) -> Vec<String> {
        let configured = self.settings.api.credential_uris.iter().map(|uri| uri.to_string());
        let uris: Vec<String> = configured.collect();
        if !uris.is_empty() {
            return uris;
        }
        let listeners = self.settings.listen().filter(|at| !at.ip().is_unspecified());
        listeners.map(uri::of_listener).collect()
    }
}

fn not_found(error: String) -> OperatorError {
    let hint = "set auth.secret_file, or the secrets of the entry of `realms`".to_owned();
    OperatorError { kind: OperatorErrorKind::NotFound, error, hint }
}

fn invalid(error: &str) -> OperatorError {
    let hint = "send another one; of numbers, with a letter in front".to_owned();
    OperatorError { kind: OperatorErrorKind::Invalid, error: error.to_owned(), hint }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_limits_and_without() {
        let form = NameForm { separator: '-', limits: true };
        let limits: GrantLimits = "allocations=2&peers=192.0.2.0/24".parse().unwrap();
        let none = GrantLimits::default();
        let expected = "1900000000-bob?allocations=2&peers=192.0.2.0/24";
        assert_eq!(form.name(1_900_000_000, "bob", &limits).as_deref(), Ok(expected));
        assert_eq!(form.name(1_900_000_000, "", &none).as_deref(), Ok("1900000000"));
        for (user, limits) in [
            ("a?b", &none),
            ("1700000000", &none),
            ("a\nb", &none),
            ("", &limits),
            (&*"a".repeat(500), &none),
        ] {
            assert!(form.name(1_900_000_000, user, limits).is_err(), "{user}");
        }
        let plain = NameForm { separator: ':', limits: false };
        assert_eq!(plain.name(1, "a?b", &none).as_deref(), Ok("1:a?b"));
        assert!(plain.name(1, "bob", &limits).is_err());
    }
}
