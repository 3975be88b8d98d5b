//! `turnpike check`: all errors of a configuration, or its summary.

use std::path::{Path, PathBuf};

use anyhow::anyhow;
use serde::Serialize;
use settings::{RelayEntry, Settings, SettingsErrors};

use crate::cli::{self, PathOptions};
use crate::failure::{Failure, Result};
use crate::warnings::warnings;
use crate::{output, paths};

/// The outcome for programs.
#[derive(Debug, Serialize)]
struct Outcome {
    file: Option<PathBuf>,
    valid: bool,
    errors: Vec<Error>,
    warnings: Vec<String>,
}

/// One error.
#[derive(Debug, Serialize)]
struct Error {
    place: String,
    key: String,
    what: String,
    help: String,
}

pub(crate) fn run(paths: &PathOptions, args: &cli::Check) -> Result<()> {
    let file = args.file.clone().or_else(|| paths::configuration_file(paths));
    let loaded = paths::read(file.as_deref());
    if args.output.json {
        output::print_json(&outcome(file.as_deref(), &loaded))?;
    }
    let name = file.map_or_else(|| "the default configuration".into(), |f| f.display().to_string());
    match loaded {
        Ok(settings) if !args.output.json => output::print(&describe(&name, &settings)),
        Ok(_) => Ok(()),
        Err(errors) => Err(Failure::usage(anyhow!("{name} is not valid:\n{errors}"))),
    }
}

fn outcome(file: Option<&Path>, loaded: &Result<Settings, SettingsErrors>) -> Outcome {
    let (errors, warnings) = match loaded {
        Ok(settings) => (Vec::new(), warnings(settings)),
        Err(errors) => {
            let error = |error: &settings::SettingsError| Error {
                place: error.place.to_string(),
                key: error.key.clone(),
                what: error.what.clone(),
                help: error.help.clone(),
            };
            (errors.0.iter().map(error).collect(), Vec::new())
        }
    };
    Outcome { file: file.map(Path::to_owned), valid: errors.is_empty(), errors, warnings }
}

fn describe(name: &str, settings: &Settings) -> String {
    let listeners: Vec<String> = settings.listeners().iter().map(ToString::to_string).collect();
    let relay: Vec<String> = settings.relay.addresses.iter().map(RelayEntry::to_string).collect();
    let mut lines = vec![
        format!("{name} is valid"),
        format!("  realm        {}", settings.realm),
        format!("  listeners    {}", listeners.join("  ")),
        format!("  relays from  {}, ports {}", relay.join(", "), settings.relay.ports),
        format!("  clients      {}", clients(settings)),
    ];
    lines.extend(warnings(settings).iter().map(|warning| format!("warning: {warning}")));
    lines.join("\n")
}

/// Clients that may relay.
fn clients(settings: &Settings) -> String {
    if settings.auth.open_relay.is_open() {
        return "EVERYONE: it is an open relay".to_owned();
    }
    let mut clients = Vec::new();
    match settings.secrets.len() {
        0 => {}
        1 => clients.push("holders of a credential from the shared secret".to_owned()),
        n => clients.push(format!("holders of a credential from one of {n} shared secrets")),
    }
    if !settings.token_keys.is_empty() {
        clients.push("holders of an access token".to_owned());
    }
    if settings.auth.users {
        clients.push("users of the database".to_owned());
    }
    clients.join(", ")
}

#[cfg(test)]
mod tests {
    use settings::Environment;

    use super::*;

    fn load(text: &str) -> Result<Settings, SettingsErrors> {
        settings::parse(Path::new("t.toml"), text, &Environment::empty())
    }

    #[test]
    fn a_good_file_is_summed_up() {
        let settings = load("[auth]\nsecret = \"north-of-the-wall\"\n").unwrap();
        let text = describe("t.toml", &settings);
        assert!(text.starts_with("t.toml is valid\n"), "{text}");
        assert!(text.contains("0.0.0.0:3478"), "{text}");
        assert!(text.contains("shared secret"), "{text}");
        assert!(!text.contains("warning"), "{text}");
    }

    #[test]
    fn an_open_relay_on_loopback_is_warned_about() {
        let settings = load(
            "listen = [\"127.0.0.1:3478\"]\n\
             [auth]\nopen_relay = \"yes, relay for anyone\"\n",
        )
        .unwrap();
        assert_eq!(warnings(&settings).len(), 2);
        assert!(describe("x", &settings).contains("EVERYONE"));
    }

    #[test]
    fn programs_are_told_each_error_apart() {
        let loaded = load("relm = \"x\"\n[relay]\nports = \"80-90\"\n");
        let outcome = outcome(Some(Path::new("t.toml")), &loaded);
        assert!(!outcome.valid);
        assert_eq!(outcome.errors.len(), 2, "{outcome:?}");
        assert!(outcome.errors.iter().any(|error| error.key == "relay.ports"), "{outcome:?}");
        assert!(outcome.errors.iter().all(|error| error.place.starts_with("t.toml")));
    }
}
