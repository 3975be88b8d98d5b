//! Credentials of a probe, and diagnosis of a refusal: different clocks, or another secret.

use std::io::Read as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::anyhow;

use crate::cli;
use crate::failure::{Failure, OrFail as _, Result};
use crate::output;

/// Validity in seconds of a time-limited credential that is derived from a secret. Longer than any
/// probe.
const CREDENTIAL_SECONDS: u64 = 600;

/// Validities in seconds that reveal how far a server's clock is ahead: an hour, a day, a year, ten
/// years.
const LONGER: [u64; 4] = [3600, 86_400, 365 * 86_400, 3650 * 86_400];

/// User of a second credential, which distinguishes a refused secret from a refused user.
const OTHER_USER: &str = "turnpike-probe";

/// Credentials of the probe.
#[derive(Clone, Debug)]
pub(super) struct Login {
    pub(super) username: String,
    pub(super) password: String,
    /// Shared secret and user part, if the credential was derived from them.
    made: Option<(String, String)>,
}

impl Login {
    /// Returns the credentials of the command line.
    pub(super) fn of(args: &cli::Probe) -> Result<Option<Self>> {
        let secret = match (&args.secret, &args.secret_file) {
            (Some(secret), _) => Some(secret.clone()),
            (None, Some(path)) => {
                let text = std::fs::read_to_string(path).or_fail("cannot read the secret")?;
                Some(text.trim().to_owned())
            }
            (None, None) => None,
        };
        if let Some(secret) = secret {
            let user = args.username.as_deref().unwrap_or("probe");
            return Ok(Some(Self::made(&secret, user, CREDENTIAL_SECONDS)));
        }
        let password = if args.password_stdin {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text).or_fail("cannot read the password")?;
            Some(text.trim_end_matches(['\r', '\n']).to_owned())
        } else {
            args.password.clone()
        };
        match (&args.username, password) {
            (Some(username), Some(password)) => {
                Ok(Some(Self { username: username.clone(), password, made: None }))
            }
            (None, None) => Ok(None),
            _ => Err(Failure::usage(anyhow!("a name and a password belong together"))
                .hint("give --username with --password, or --secret")),
        }
    }

    fn made(secret: &str, user: &str, seconds: u64) -> Self {
        let username = format!("{}:{user}", now() + seconds);
        let password = stun_wire::time_limited_password(secret.as_bytes(), &username);
        Self { username, password, made: Some((secret.to_owned(), user.to_owned())) }
    }

    /// Diagnoses why a server refused the credential. Returns the probable reason and advice, if
    /// this host can determine them. `works` tries other credentials.
    pub(super) fn diagnose(&self, works: impl Fn(&Self) -> bool) -> Option<(String, String)> {
        const CLOCKS: &str = "compare the clocks of both hosts (`date -u`), and set them by NTP";
        if let Some((secret, user)) = &self.made {
            let mut least = CREDENTIAL_SECONDS;
            for seconds in LONGER {
                if works(&Self::made(secret, user, seconds)) {
                    let [least, most] =
                        [least, seconds].map(|s| output::duration(Duration::from_secs(s)));
                    let what = format!(
                        "the clock of the server is {least} to {most} ahead of this host's: a credential that \
                         lives longer works"
                    );
                    return Some((what, CLOCKS.to_owned()));
                }
                least = seconds;
            }
            if works(&Self::made(secret, OTHER_USER, CREDENTIAL_SECONDS)) {
                return Some((
                    format!(
                        "the server takes this secret, and refuses the user \"{user}\": it was probably revoked"
                    ),
                    "see `turnpike user revoked` on the server".to_owned(),
                ));
            }
            return Some((
                "the server has another secret than this one, or takes no time-limited credentials"
                    .to_owned(),
                "compare with `turnpike credentials` on the server, and with auth.secret there"
                    .to_owned(),
            ));
        }
        let ago = expired(&self.username, now())?;
        let ago = output::duration(Duration::from_secs(ago));
        let what = format!("the credential expired {ago} ago by the clock of this host");
        Some((what, format!("make a new one; if it is new, {CLOCKS}")))
    }
}

/// Returns the seconds since the expiry of a time-limited user name. Returns `None` for other
/// names, and for valid names.
fn expired(username: &str, now: u64) -> Option<u64> {
    let (first, last) = username.split_once(':').unwrap_or((username, ""));
    // A smaller number belongs to a user name. Times of expiry are from this century.
    let at: u64 = [first, last].iter().find_map(|part| part.parse().ok())?;
    (at > 1_000_000_000 && at < now).then(|| now - at)
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_ahead_is_told_with_its_range() {
        let login = Login::made("north-of-the-wall", "probe", CREDENTIAL_SECONDS);
        let ahead = |seconds: u64| {
            let works = |login: &Login| {
                let at: u64 = login.username.split(':').next().unwrap().parse().unwrap();
                at > now() + seconds
            };
            login.diagnose(works).unwrap().0
        };
        assert!(ahead(1800).contains("10 min to 1 h ahead"), "{}", ahead(1800));
        assert!(ahead(7200).contains("1 h to 1 d ahead"), "{}", ahead(7200));
        assert!(ahead(u64::MAX / 2).contains("another secret"));
        let is_other = |login: &Login| !login.username.ends_with(":probe");
        let (what, _) = login.diagnose(is_other).unwrap();
        assert!(what.contains("refuses the user \"probe\""), "{what}");
    }

    #[test]
    fn expired_names_are_known() {
        let now = 1_800_000_000;
        assert_eq!(expired("1799999940:alice", now), Some(60));
        assert_eq!(expired("alice:1799999940", now), Some(60));
        assert_eq!(expired("1800000060:alice", now), None);
        assert_eq!(expired("alice", now), None);
        assert_eq!(expired("4711:alice", now), None);
    }
}
