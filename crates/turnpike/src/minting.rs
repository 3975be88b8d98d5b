//! Time-limited credentials, in the form of a web service (draft-uberti-behave-turn-rest §2.2). The
//! name is `<expiry>:<user>`, optionally followed by limits, and the password is an HMAC of the
//! name. Applications request the credentials from the server (`/turn`), which signs with the first
//! secret of the realm.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use control::{MintWish, Minted, OperatorError, OperatorErrorKind};
use settings::Settings;
use turn_proto::{AuthPolicy, GrantLimits, UserName, expiry_and_account};
use turn_types::{Secret, UnixSeconds};

use crate::reload::InForce;
use crate::revocations::end_of_name;
use crate::uri;

/// Minimum lifetime of a credential. Clients need some time before the first use.
const LASTS_MIN: Duration = Duration::from_secs(10);

/// Form of time-limited names at a server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NameForm {
    pub(crate) separator: char,
    /// True if names may contain limits.
    pub(crate) limits: bool,
}

impl NameForm {
    /// Returns the form that is configured.
    pub(crate) fn of(settings: &Settings) -> Self {
        let separator = settings.auth.separator.chars().next().unwrap_or(':');
        Self { separator, limits: settings.auth.limits_in_names }
    }

    /// Builds the name of a credential until `expiry` in seconds since 1970.
    ///
    /// # Errors
    /// The user is too long, has characters that a name cannot have, or would be interpreted as a
    /// time. Or limits are requested and names have no limits.
    pub(crate) fn name(
        self,
        now: u64,
        expiry: u64,
        user: &str,
        limits: &GrantLimits,
    ) -> Result<String, String> {
        let Self { separator, limits: in_names } = self;
        if in_names && user.contains('?') {
            return Err("username has a question mark, behind which names have limits".to_owned());
        }
        if limits.peers.as_ref().is_some_and(|peers| peers.is_empty()) {
            return Err("no peer is left: the peers of the request and of the token have none in \
                        common"
                .to_owned());
        }
        if !in_names && !limits.is_empty() {
            return Err("names have no limits here: set auth.limits_in_names".to_owned());
        }
        let mut name =
            if user.is_empty() { expiry.to_string() } else { format!("{expiry}{separator}{user}") };
        if !limits.is_empty() {
            if user.is_empty() {
                return Err("limits need a username, as quotas count by it".to_owned());
            }
            name.push_str(&format!("?{limits}"));
        }
        let name = UserName::new(&name).map_err(|error| format!("username {error}"))?.into_string();
        // If a name contains two numbers, the server interprets one of them as the time.
        let read = expiry_and_account(&name, separator, UnixSeconds(now));
        if read.is_none_or(|(time, _)| time.0 != expiry) {
            return Err("username has a number that would be taken for the time of expiry, as numbers \
                        between 30 days ago and that expiry are: put a letter before it, or ask for a \
                        credential of at most 30 days if it is a later time"
                .to_owned());
        }
        if end_of_name(user, separator, now).is_some() {
            return Err(format!(
                "username begins or ends with a time to come and \"{separator}\": a revocation of it would end then, \
                 as that of a credential: put a letter before the number"
            ));
        }
        Ok(name)
    }
}

impl InForce {
    /// Creates a credential.
    ///
    /// # Errors
    /// The realm does not exist or has no secret, or the name is invalid: see [`NameForm::name`].
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
        let username = form.name(now, now + ttl.as_secs(), user, limits).map_err(invalid)?;
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

    /// Returns the URIs of this server for its clients.
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

fn invalid(error: String) -> OperatorError {
    let hint = "send another one".to_owned();
    OperatorError { kind: OperatorErrorKind::Invalid, error, hint }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_limits_and_without() {
        const NOW: u64 = 1_899_999_000;
        let form = NameForm { separator: '-', limits: true };
        let limits: GrantLimits = "allocations=2&peers=192.0.2.0/24".parse().unwrap();
        let none = GrantLimits::default();
        let expected = "1900000000-bob?allocations=2&peers=192.0.2.0/24";
        assert_eq!(form.name(NOW, 1_900_000_000, "bob", &limits).as_deref(), Ok(expected));
        assert_eq!(form.name(NOW, 1_900_000_000, "", &none).as_deref(), Ok("1900000000"));
        for (user, limits) in [
            ("a?b", &none),
            ("a\nb", &none),
            ("a\u{200d}b", &none),
            ("a\u{202e}b", &none),
            ("a\u{e000}b", &none),
            ("", &limits),
            (&*"a".repeat(500), &none),
        ] {
            assert!(form.name(NOW, 1_900_000_000, user, limits).is_err(), "{user}");
        }
        let other: GrantLimits = "peers=198.51.100.0/24".parse().unwrap();
        let error = form.name(NOW, 1_900_000_000, "bob", &limits.and(&other)).unwrap_err();
        assert!(error.contains("no peer is left"), "{error}");
        let plain = NameForm { separator: ':', limits: false };
        assert_eq!(plain.name(NOW, 1, "a?b", &none).as_deref(), Ok("1:a?b"));
        assert!(plain.name(NOW, 1, "bob", &limits).is_err());
        let composed = plain.name(NOW, 1_900_000_000, "zoe\u{308}\u{a0}k", &none);
        assert_eq!(composed.as_deref(), Ok("1900000000:zo\u{eb} k"));
    }

    /// Telephone numbers and ids of ten digits are accepted as users where the server can
    /// distinguish them from times.
    #[test]
    fn numbers_are_users() {
        let (form, none) = (NameForm { separator: ':', limits: false }, GrantLimits::default());
        let now = 1_800_000_000;
        for user in
            ["42", "1700000000", "5551234567", "1800000600", "4917012345678", "a:1700000000"]
        {
            let name = form.name(now, now + 600, user, &none).unwrap();
            assert_eq!(name, format!("1800000600:{user}"));
            let read = expiry_and_account(&name, ':', UnixSeconds(now));
            assert_eq!(read, Some((UnixSeconds(now + 600), user)));
        }
        let in_a_year = now + 365 * 24 * 3600;
        let error = form.name(now, in_a_year, "1700000000", &none).unwrap_err();
        assert!(error.contains("at most 30 days"), "{error}");
        assert!(form.name(now, in_a_year, "5551234567", &none).is_ok());
    }

    /// A revocation of such a user would be treated as a revocation of a credential, and would
    /// expire.
    #[test]
    fn a_user_is_no_credential_with_an_expiry() {
        let (form, none) = (NameForm { separator: ':', limits: true }, GrantLimits::default());
        let now = 1_800_000_000;
        for user in ["1800000005:bob", "1800000600:bob", "1900000000:b:c", "bob:1900000000"] {
            let error = form.name(now, now + 600, user, &none).unwrap_err();
            assert!(error.contains("put a letter before the number"), "{user}: {error}");
        }
        for user in
            ["bob:carol", ":bob", "42:bob", "u1900000000:bob", "1900000000-bob", "1700000000:bob"]
        {
            form.name(now, now + 600, user, &none).expect(user);
            assert_eq!(end_of_name(user, ':', now), None, "{user}");
        }
    }
}
