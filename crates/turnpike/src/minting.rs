//! Time-limited credentials for applications that ask the server (`/turn`): made with the first secret of their realm.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use control::{MintWish, Minted, OperatorError, OperatorErrorKind};
use turn_types::Secret;

use crate::reload::InForce;
use crate::revocations::end_of_name;
use crate::uri;

/// Longest user in bytes: USERNAME is shorter than 509 (RFC 8489 §14.3), and has the time in it.
const USER_BYTES_MAX: usize = 480;

/// Shortest credential: clients need some time to use it.
const LASTS_MIN: Duration = Duration::from_secs(10);

impl InForce {
    /// Makes a credential.
    pub(crate) fn mint(&self, wish: &MintWish) -> Result<Minted, OperatorError> {
        let (policy, MintWish { realm, user, lasts }) = (&self.policy, wish);
        let auth = match realm.as_deref() {
            Some(name) if *policy.realm != *name => {
                let found = policy.realms.named(name).map(|realm| &realm.auth);
                found.ok_or_else(|| not_found(format!("there is no realm {name}")))?
            }
            Some(_) | None => &policy.auth,
        };
        let Some(secret) = auth.secrets.first() else {
            return Err(not_found("this realm has no shared secret".to_owned()));
        };
        let most = self.settings.api.credential_lifetime.get();
        let ttl = lasts.unwrap_or(most).min(most).max(LASTS_MIN);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let expiry = now + ttl.as_secs();
        let separator = auth.separator;
        if user.len() > USER_BYTES_MAX || user.chars().any(char::is_control) {
            return Err(invalid("username is too long, or has control characters"));
        }
        // The server would have to guess which of two numbers is the time.
        if end_of_name(user, separator, 0).is_some() {
            return Err(invalid("username is a number that may be taken for a time"));
        }
        let username =
            if user.is_empty() { expiry.to_string() } else { format!("{expiry}{separator}{user}") };
        let password =
            Secret::new(stun_wire::time_limited_password(secret.secret.expose(), &username));
        let configured = self.settings.api.credential_uris.iter().map(|uri| uri.to_string());
        let listeners = self.settings.listen().filter(|at| !at.ip().is_unspecified());
        let mut uris: Vec<String> = configured.collect();
        if uris.is_empty() {
            uris.extend(listeners.map(uri::of_listener));
        }
        Ok(Minted { username, password, ttl, uris })
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
