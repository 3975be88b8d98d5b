//! `turnpike check`: everything that is wrong with a configuration, and what it means if nothing
//! is.

use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};

use anyhow::anyhow;
use serde::Serialize;
use settings::{RelayEntry, Settings, SettingsErrors};
use turn_types::Prefix;

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
    let listeners: Vec<String> = settings.listeners().iter().map(ToString::to_string).collect();
    let relay: Vec<String> = settings.relay.addresses.iter().map(RelayEntry::to_string).collect();
    let mut lines = vec![
        format!("{name} is good"),
        format!("  realm        {}", settings.realm),
        format!("  listeners    {}", listeners.join("  ")),
        format!("  relays from  {}, ports {}", relay.join(", "), settings.relay.ports),
        format!("  for          {}", who(settings)),
    ];
    lines.extend(warnings(settings).iter().map(|warning| format!("warning: {warning}")));
    lines.join("\n")
}

/// Who may relay, in words.
fn who(settings: &Settings) -> String {
    if settings.auth.open_relay.is_open() {
        return "ANYBODY: it is an open relay".to_owned();
    }
    let mut who = Vec::new();
    match settings.secrets.len() {
        0 => {}
        1 => who.push("holders of a credential from the shared secret".to_owned()),
        n => who.push(format!("holders of a credential from one of {n} shared secrets")),
    }
    if !settings.token_keys.is_empty() {
        who.push("holders of an access token".to_owned());
    }
    if settings.auth.users {
        who.push("users of the database".to_owned());
    }
    who.join(", ")
}

/// What is allowed and yet probably not meant.
pub(crate) fn warnings(settings: &Settings) -> Vec<String> {
    let mut warnings = Vec::new();
    if settings.auth.open_relay.is_open() {
        warnings.push(
            "auth.open_relay: anybody may relay through this host; such relays are found and \
             abused within hours"
                .to_owned(),
        );
    }
    if settings.listen().all(|listener| listener.ip().is_loopback()) {
        warnings.push("listen: only this host itself can reach the listeners".to_owned());
    }
    if settings.tls_listen_is_unused() {
        warnings.push(
            "tls.listen: nobody listens there, as tls.certificates names no certificate".to_owned(),
        );
    }
    if settings.tls.client_authorities.is_some() {
        warnings.push(
            "tls.client_authorities: DTLS is off, for it asks clients for no certificates"
                .to_owned(),
        );
    }
    warnings.extend(settings.peers.allow.iter().filter_map(|prefix| wide(&prefix.0)));
    warnings
}

/// Networks that are private or local, which clients reach only where peers.allow says so.
const PRIVATE: [&str; 8] = [
    "10.0.0.0/8",
    "100.64.0.0/10",
    "127.0.0.0/8",
    "169.254.0.0/16",
    "172.16.0.0/12",
    "192.168.0.0/16",
    "fc00::/7",
    "fe80::/10",
];

/// A warning about an entry of `peers.allow` that covers more than a private network: whoever writes
/// `10.0.0.0/8` means it, and whoever writes `0.0.0.0/0` may mean the public internet, which needs no
/// entry.
fn wide(entry: &Prefix) -> Option<String> {
    // IPv4 is kept in its mapped form, and is no part of an entry of IPv6.
    let is_v4 = |prefix: &Prefix| prefix.len_128() >= 96 && prefix.bits() >> 32 == 0xffff;
    let first = |prefix: &Prefix| Ipv6Addr::from_bits(prefix.bits()).into();
    let private = PRIVATE.iter().filter_map(|text| text.parse::<Prefix>().ok());
    let opened: Vec<String> = private
        .filter(|private| is_v4(private) == is_v4(entry))
        .filter(|private| private.len_128() > entry.len_128() && entry.contains(first(private)))
        .map(|private| private.to_string())
        .collect();
    (!opened.is_empty()).then(|| {
        format!(
            "peers.allow: {entry} opens private networks ({}) to clients; public addresses need no \
             entry",
            opened.join(", ")
        )
    })
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
    fn an_entry_that_opens_more_than_a_private_network_is_warned_about() {
        let warned = |allow: &str| {
            let text =
                format!("[auth]\nsecret = \"north-of-the-wall\"\n[peers]\nallow = {allow}\n");
            warnings(&load(&text).unwrap())
        };
        let all = warned(r#"["0.0.0.0/0", "::/0"]"#);
        assert_eq!(all.len(), 2, "{all:?}");
        assert!(all[0].contains("0.0.0.0/0 opens private networks (10.0.0.0/8, 100."), "{all:?}");
        assert!(all[1].contains("::/0 opens private networks (fc00::/7, fe80::/10)"), "{all:?}");
        assert_eq!(warned(r#"["192.0.0.0/2"]"#).len(), 1);
        let none = warned(r#"["10.0.0.0/8", "192.168.0.0/17", "8.0.0.0/8", "fd00::/8"]"#);
        assert!(none.is_empty(), "{none:?}");
    }

    #[test]
    fn what_certificates_of_clients_switch_off_is_said() {
        let text =
            "[auth]\nsecret = \"north-of-the-wall\"\n[tls]\nclient_authorities = \"ca.pem\"\n";
        let warned = warnings(&load(text).unwrap());
        assert!(warned.iter().any(|warning| warning.contains("DTLS is off")), "{warned:?}");
    }

    #[test]
    fn addresses_for_tls_without_a_certificate_are_warned_about() {
        let with = |tls: &str| {
            let auth = "[auth]\nsecret = \"north-of-the-wall\"\n";
            warnings(&load(&format!("{auth}[tls]\n{tls}\n")).unwrap())
        };
        let warned = with("listen = [\"0.0.0.0:443\"]");
        assert_eq!(warned.len(), 1, "{warned:?}");
        assert!(warned[0].contains("tls.listen"), "{warned:?}");
        assert!(with("listen = []").is_empty());
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
