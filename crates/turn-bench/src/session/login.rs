//! Credentials: a user with a password, or a shared secret for time-limited ones.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::Args;
use serde::{Deserialize, Serialize};
use stun_wire::time_limited_password;
use turn_types::{Secret, UnixSeconds};

/// Validity of time-limited credentials: longer than any measurement.
const VALID: Duration = Duration::from_secs(24 * 3600);

/// Default user of time-limited credentials.
const DEFAULT_USER: &str = "bench";

/// Arguments for credentials.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args, Serialize, Deserialize)]
pub struct LoginArgs {
    /// User. A % in it is replaced by the number of the client, from 0: one user for each, where
    /// the server has quotas per user
    #[arg(long, value_name = "NAME")]
    pub user: Option<String>,
    /// The user's password
    #[arg(long, value_name = "PASSWORD", requires = "user", conflicts_with = "secret")]
    pub password: Option<String>,
    /// The secret that time-limited credentials are made from (turnpike: auth.secret, coturn:
    /// static-auth-secret); instead of a password, the user need not exist
    #[arg(long, value_name = "SECRET")]
    pub secret: Option<String>,
}

impl LoginArgs {
    /// The login.
    ///
    /// # Errors
    /// Neither a password nor a secret.
    pub fn login(&self) -> Result<Login> {
        let user = self.user.as_deref();
        match (user, &self.password, &self.secret) {
            (_, _, Some(secret)) => Ok(Login::shared_secret(user.unwrap_or(DEFAULT_USER), secret)),
            (Some(user), Some(password), None) => Ok(Login::password(user, password)),
            (Some(_), None, None) => bail!("--user wants --password, or --secret in its place"),
            (None, _, None) => {
                bail!("TURN wants a login: --user and --password, or --secret")
            }
        }
    }
}

/// Login of all clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Login {
    user: Arc<str>,
    proof: Proof,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Proof {
    Password(Secret<Arc<str>>),
    SharedSecret(Secret<Arc<str>>),
}

/// Credentials of one client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// USERNAME.
    pub username: Arc<str>,
    /// The password.
    pub password: Secret<Arc<str>>,
}

impl Login {
    /// A user of the server. A `%` in the name is replaced by the number of the client.
    #[must_use]
    pub fn password(user: &str, password: &str) -> Self {
        Self { user: user.into(), proof: Proof::Password(Secret::new(password.into())) }
    }

    /// Time-limited credentials for `user`, which need not exist.
    #[must_use]
    pub fn shared_secret(user: &str, secret: &str) -> Self {
        Self { user: user.into(), proof: Proof::SharedSecret(Secret::new(secret.into())) }
    }

    /// The credentials of a client; time-limited ones are valid for a day from `now`.
    #[must_use]
    pub fn credentials(&self, client: u32, now: UnixSeconds) -> Credentials {
        let user: Arc<str> = if self.user.contains('%') {
            self.user.replace('%', &client.to_string()).into()
        } else {
            Arc::clone(&self.user)
        };
        match &self.proof {
            Proof::Password(password) => Credentials { username: user, password: password.clone() },
            Proof::SharedSecret(secret) => {
                let username = format!("{}:{user}", now.0 + VALID.as_secs());
                let password = time_limited_password(secret.expose().as_bytes(), &username);
                let password = Secret::new(password.into());
                Credentials { username: username.into(), password }
            }
        }
    }

    /// Returns `true` for time-limited credentials.
    #[must_use]
    pub const fn is_time_limited(&self) -> bool {
        matches!(self.proof, Proof::SharedSecret(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_limited_credentials_are_what_every_web_service_makes() {
        // echo -n 1700086400:bench | openssl dgst -sha1 -hmac north -binary | base64
        let login = Login::shared_secret("bench", "north");
        let credentials = login.credentials(0, UnixSeconds(1_700_000_000));
        assert_eq!(&*credentials.username, "1700086400:bench");
        assert_eq!(&**credentials.password.expose(), "FxsMmZd1RYzl6GcMfmWRLmn89lQ=");
    }

    #[test]
    fn a_percent_sign_is_the_number_of_the_client() {
        let login = Login::password("user%", "p");
        assert_eq!(&*login.credentials(17, UnixSeconds(0)).username, "user17");
        let login = Login::password("alice", "p");
        assert_eq!(&*login.credentials(17, UnixSeconds(0)).username, "alice");
    }

    #[test]
    fn the_command_line_must_have_credentials() {
        let args = |user: Option<&str>, password: Option<&str>, secret: Option<&str>| LoginArgs {
            user: user.map(Into::into),
            password: password.map(Into::into),
            secret: secret.map(Into::into),
        };
        assert!(args(None, None, None).login().is_err());
        assert!(args(Some("alice"), None, None).login().is_err());
        let login = args(Some("alice"), Some("p"), None).login().unwrap();
        assert_eq!(login, Login::password("alice", "p"));
        let login = args(None, None, Some("s")).login().unwrap();
        assert_eq!(login, Login::shared_secret("bench", "s"));
    }

    #[test]
    fn no_secret_is_shown() {
        let shown = format!("{:?}", Login::password("alice", "hunter2"));
        assert!(!shown.contains("hunter2"), "{shown}");
    }
}
