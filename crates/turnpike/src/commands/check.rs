//! `turnpike check`: everything that is wrong with a configuration, and what it means if nothing
//! is.

use std::path::{Path, PathBuf};

use anyhow::anyhow;
use serde::Serialize;
use settings::{RelayEntry, Settings, SettingsErrors};

use crate::cli::{self, Place};
use crate::failure::{Failure, Result};
use crate::{output, place};

/// The outcome for programs.
#[derive(Debug, Serialize)]
struct Outcome {
    file: Option<PathBuf>,
    good: bool,
    errors: Vec<Error>,
    warnings: Vec<String>,
}

/// One thing that is wrong.
#[derive(Debug, Serialize)]
struct Error {
    place: String,
    key: String,
    what: String,
    help: String,
}

pub(crate) fn run(place: &Place, args: &cli::Check) -> Result<()> {
    let file = args.file.clone().or_else(|| place::configuration_file(place));
    let loaded = place::read(file.as_deref());
    if args.output.json {
        output::print_json(&outcome(file.as_deref(), &loaded))?;
    }
    let name = file.map_or_else(|| "the default configuration".into(), |f| f.display().to_string());
    match loaded {
        Ok(settings) if !args.output.json => output::print(&describe(&name, &settings)),
        Ok(_) => Ok(()),
        Err(errors) => Err(Failure::usage(anyhow!("{name} is not good:\n{errors}"))),
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
    Outcome { file: file.map(Path::to_owned), good: errors.is_empty(), errors, warnings }
}

fn describe(name: &str, settings: &Settings) -> String {
    let listeners: Vec<String> = settings.listen.iter().map(ToString::to_string).collect();
    let relay: Vec<String> = settings.relay.addresses.iter().map(RelayEntry::to_string).collect();
    let mut lines = vec![
        format!("{name} is good"),
        format!("  realm        {}", settings.realm),
        format!("  listeners    {}", listeners.join("  ")),
        format!(
            "  relays from  {}, ports {}-{}",
            relay.join(", "),
            settings.relay.ports.min,
            settings.relay.ports.max
        ),
        format!("  for          {}", who(settings)),
    ];
    lines.extend(warnings(settings).iter().map(|warning| format!("warning: {warning}")));
    lines.join("\n")
}

/// Who may relay, in words.
fn who(settings: &Settings) -> String {
    if settings.auth.open_relay {
        return "ANYBODY: it is an open relay".to_owned();
    }
    let mut who = Vec::new();
    match settings.auth.secrets.len() {
        0 => {}
        1 => who.push("holders of a credential from the shared secret".to_owned()),
        n => who.push(format!("holders of a credential from one of {n} shared secrets")),
    }
    if settings.auth.users {
        who.push("users of the database".to_owned());
    }
    who.join(", ")
}

/// What is allowed and yet probably not meant.
pub(crate) fn warnings(settings: &Settings) -> Vec<String> {
    let mut warnings = Vec::new();
    if settings.auth.open_relay {
        warnings.push(
            "auth.open_relay: anybody may relay through this host; such relays are found and \
             abused within hours"
                .to_owned(),
        );
    }
    if settings.listen.iter().all(|listener| listener.ip().is_loopback()) {
        warnings.push("listen: only this host itself can reach the listeners".to_owned());
    }
    warnings
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
        assert!(text.starts_with("t.toml is good\n"), "{text}");
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
        assert!(describe("x", &settings).contains("ANYBODY"));
    }

    #[test]
    fn programs_are_told_each_error_apart() {
        let loaded = load("relm = \"x\"\n[relay]\nports = \"80-90\"\n");
        let outcome = outcome(Some(Path::new("t.toml")), &loaded);
        assert!(!outcome.good);
        assert_eq!(outcome.errors.len(), 2, "{outcome:?}");
        assert!(outcome.errors.iter().any(|error| error.key == "relay.ports"), "{outcome:?}");
        assert!(outcome.errors.iter().all(|error| error.place.starts_with("t.toml")));
    }
}
