//! `turnpike credentials`: creates a time-limited credential from a shared secret, as a web service
//! does (draft-uberti-behave-turn-rest §2.2). The name is `<expiry>:<user>`, and the password is
//! the HMAC of the name.

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::anyhow;
use serde::Serialize;
use settings::Settings;
use turn_proto::{GrantLimits, SharedSecret};

use crate::cli::{self, PathOptions};
use crate::failure::{Failure, Result};
use crate::minting::NameForm;
use crate::{output, paths, uri};

/// Credential in the form that WebRTC applications use.
#[derive(Debug, Serialize)]
struct Credential {
    username: String,
    password: String,
    /// Validity in seconds.
    ttl: u64,
    /// Time of expiry in seconds since 1970.
    expires_unix: u64,
    /// URIs of the listeners that are not wildcards.
    uris: Vec<String>,
}

pub(crate) fn run(paths: &PathOptions, args: &cli::Credentials) -> Result<()> {
    let settings = paths::load(paths)?.settings;
    let secret = choose(&settings.secrets, args.secret_name.as_deref())?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let limits = args.limits.clone().unwrap_or_default();
    let credential = mint(secret, (&args.user, &limits), now, args.ttl.as_secs(), &settings)?;
    if args.output.json {
        return output::print_json(&credential);
    }
    output::print(&format!(
        "username  {}\npassword  {}\nvalid     {}",
        credential.username,
        credential.password,
        output::duration(args.ttl)
    ))
}

fn choose<'a>(secrets: &'a [SharedSecret], name: Option<&str>) -> Result<&'a SharedSecret> {
    let Some(first) = secrets.first() else {
        return Err(Failure::usage(anyhow!("the configuration has no shared secret"))
            .hint("set auth.secret or auth.secret_file, or add a user with `turnpike user add`"));
    };
    let Some(name) = name else { return Ok(first) };
    secrets.iter().find(|secret| secret.name == name).ok_or_else(|| {
        let names: Vec<&str> = secrets.iter().map(|secret| secret.name.as_str()).collect();
        Failure::usage(anyhow!("there is no secret called \"{name}\""))
            .hint(format!("the configuration has: {}", names.join(", ")))
    })
}

fn mint(
    secret: &SharedSecret,
    (user, limits): (&str, &GrantLimits),
    now: u64,
    ttl: u64,
    settings: &Settings,
) -> Result<Credential> {
    let expires_unix = now.saturating_add(ttl);
    let form = NameForm::of(settings);
    if user.is_empty() {
        return Err(Failure::usage(anyhow!("a user's name cannot be empty")));
    }
    let username = form
        .name(now, expires_unix, user, limits)
        .map_err(|error| Failure::usage(anyhow!(error)))?;
    let password = stun_wire::time_limited_password(secret.secret.expose(), &username);
    let uris = settings.listen().filter(|listener| !listener.ip().is_unspecified());
    Ok(Credential {
        username,
        password,
        ttl,
        expires_unix,
        uris: uris.map(uri::of_listener).collect(),
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use settings::Environment;

    use super::*;

    fn settings(text: &str) -> Settings {
        settings::parse(Path::new("test.toml"), text, &Environment::empty()).unwrap()
    }

    #[test]
    fn mints_what_the_server_expects() {
        let settings = settings(
            "listen = [\"192.0.2.1:3478\", \"0.0.0.0:3479\"]\n\
             [auth]\nsecret = \"north-of-the-wall\"\n",
        );
        let secret = choose(&settings.secrets, None).unwrap();
        let none = GrantLimits::default();
        let minted = mint(secret, ("bob", &none), 1_700_000_000, 600, &settings).unwrap();
        assert_eq!(minted.username, "1700000600:bob");
        // printf 1700000600:bob | openssl dgst -sha1 -hmac north-of-the-wall -binary | base64
        assert_eq!(minted.password, "Y0FK6nAbtm3btRIS9o32FLwao6o=");
        assert_eq!(minted.uris, ["turn:192.0.2.1:3478"]);
        let matrix = mint(secret, ("@bob:example.org", &none), 0, 1, &settings).unwrap();
        assert_eq!(matrix.username, "1:@bob:example.org");
    }

    #[test]
    fn names_the_secrets_there_are() {
        assert!(choose(&[], None).is_err());
        let settings = settings("[auth]\nsecret = \"north-of-the-wall\"\n");
        let name = settings.secrets[0].name.clone();
        assert!(choose(&settings.secrets, Some(&name)).is_ok());
        let error = choose(&settings.secrets, Some("nope")).unwrap_err().to_string();
        assert!(error.contains(&name), "{error}");
    }
}
