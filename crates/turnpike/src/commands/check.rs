//! `turnpike check`: reports all errors of a configuration. For a valid configuration, reports a
//! summary, findings about its files and host, and the URIs for clients.

mod files;
mod firewall;
mod host;
mod uris;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::anyhow;
use coturn_config::{Fate, Purpose, Source, import};
use serde::Serialize;
use settings::{
    HostAddresses, MissingRelay, Place, RelayEntry, RelayPair, Settings, SettingsErrors,
};

use crate::certificates::inspection::{Inspection, inspect};
use crate::cli::{self, PathOptions};
use crate::commands::ask_if_running;
use crate::failure::{Failure, Result};
use crate::findings::{Finding, Severity};
use crate::own_addresses::host_addresses;
use crate::warnings::warnings;
use crate::{certificates, control_group, coturn, external, output, paths};
use host::HostReport;

/// Outcome of a check, for programs.
#[derive(Debug, Serialize)]
struct Outcome {
    file: Option<PathBuf>,
    /// True if a server would load the configuration.
    valid: bool,
    errors: Vec<Error>,
    problems: Vec<Finding>,
    warnings: Vec<Finding>,
    /// URIs for clients.
    uris: Vec<String>,
    /// Results about this host, with `--host`.
    host: Vec<String>,
}

/// Error of the configuration.
#[derive(Debug, Serialize)]
struct Error {
    place: String,
    key: String,
    what: String,
    help: String,
}

/// Results about a valid configuration.
struct Examined {
    findings: Vec<Finding>,
    notes: Vec<String>,
    certificates: Vec<Served>,
    uris: Vec<String>,
}

/// Certificate of the configuration.
struct Served {
    file: PathBuf,
    names: Vec<String>,
    expires: SystemTime,
}

/// Checks a configuration. Returns exit code 1 if problems exist, which would affect clients.
pub(crate) fn run(paths: &PathOptions, args: &cli::Check) -> Result<ExitCode> {
    if args.file.is_none() {
        warn_of_coturns(paths);
    }
    let file = args.file.clone().or_else(|| paths::configuration_file(paths));
    let name = match &file {
        None => "the default configuration".into(),
        Some(file) => file.display().to_string(),
    };
    let checked = Checked { name, settings: paths::complete(paths, file.clone()), file };
    report(checked, args, &|_| None)
}

/// Warns if the running server uses coturn's configuration, and not the checked file.
fn warn_of_coturns(paths: &PathOptions) {
    let status = ask_if_running(paths, async |client| client.status().await);
    if matches!(status, Ok(Some(status)) if !status.coturn_differences.is_empty()) {
        eprintln!(
            "note: the running server has coturn's configuration, which \
             `turnpike import coturn FILE --check` checks"
        );
    }
}

/// Configuration to check, after reading.
pub(crate) struct Checked {
    /// Name of the configuration in sentences.
    pub(crate) name: String,
    pub(crate) file: Option<PathBuf>,
    pub(crate) settings: Result<Settings, SettingsErrors>,
}

/// Prints the outcome of a check. `place` returns the original location of a translated key.
pub(crate) fn report(
    checked: Checked,
    args: &cli::Check,
    place: &dyn Fn(&str) -> Option<Place>,
) -> Result<ExitCode> {
    let Checked { name, file, settings } = checked;
    let settings = match settings {
        Ok(settings) => settings,
        Err(mut errors) => {
            for error in &mut errors.0 {
                error.place = place(&error.key).unwrap_or_else(|| error.place.clone());
            }
            if args.output.json {
                output::print_json(&refused(file.clone(), &errors))?;
            }
            let failure = Failure::usage(anyhow!("{name} is not valid:\n{errors}"));
            return Err(match file.filter(|file| is_of_coturn(file)) {
                None => failure,
                Some(file) => failure.hint(format!(
                    "it has the format of coturn: turnpike import coturn {} --check",
                    file.display()
                )),
            });
        }
    };
    let mut examined = examine(&settings, args.host, SystemTime::now());
    for finding in &mut examined.findings {
        finding.place = place(&finding.key).unwrap_or_else(|| finding.place.clone());
    }
    let has_problems = examined.findings.iter().any(|one| one.severity == Severity::Problem);
    if args.output.json {
        output::print_json(&outcome(file, examined))?;
    } else {
        output::print(&describe(&name, &settings, &examined))?;
    }
    Ok(ExitCode::from(u8::from(has_problems)))
}

/// Returns true if most lines of a file are options of coturn.
fn is_of_coturn(file: &Path) -> bool {
    let Ok(text) = coturn::read(file) else { return false };
    let source = Source { file: &text, arguments: &[] };
    let lines = import(source, Purpose::Migration, Path::new("."), &coturn::ThisHost).lines;
    let known = lines.iter().filter(|line| !matches!(line.fate, Fate::Unknown)).count();
    2 * known > lines.len()
}

fn refused(file: Option<PathBuf>, errors: &SettingsErrors) -> Outcome {
    let error = |error: &settings::SettingsError| Error {
        place: error.place.to_string(),
        key: error.key.clone(),
        what: error.what.clone(),
        help: error.help.clone(),
    };
    Outcome {
        file,
        valid: false,
        errors: errors.0.iter().map(error).collect(),
        problems: Vec::new(),
        warnings: Vec::new(),
        uris: Vec::new(),
        host: Vec::new(),
    }
}

fn outcome(file: Option<PathBuf>, examined: Examined) -> Outcome {
    let Examined { findings, notes, uris, .. } = examined;
    let (problems, warnings) =
        findings.into_iter().partition(|finding| finding.severity == Severity::Problem);
    Outcome { file, valid: true, errors: Vec::new(), problems, warnings, uris, host: notes }
}

/// Examines a valid configuration and its files. With `host`, also examines this machine.
fn examine(settings: &Settings, host: bool, now: SystemTime) -> Examined {
    let mut findings = warnings(settings);
    findings.extend(certificates::findings(settings, now).into_iter().map(|(_, finding)| finding));
    findings.extend(files::findings(settings));
    findings.extend(control_group::findings(settings));
    let certificates = served(settings, now);
    let mut names: Vec<String> = Vec::new();
    let ordered = settings.acme.names.iter().map(|name| name.to_string());
    for name in certificates.iter().flat_map(|one| one.names.clone()).chain(ordered) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let addresses = host_addresses().unwrap_or_default();
    let found = host.then(|| found_external(settings, &mut findings)).flatten();
    let settings = found.as_ref().unwrap_or(settings);
    let relays = relays(settings, &addresses, &mut findings);
    let notes = if host {
        let report = host::examine(settings, &relays, &addresses, &names);
        let HostReport { findings: more, notes } = report;
        findings.extend(more);
        notes
    } else {
        findings.extend(host::missing(settings, &addresses, Severity::Warning));
        Vec::new()
    };
    // Sorted by severity, problems first, and then by line.
    findings.sort_by_key(|finding| (std::cmp::Reverse(finding.severity), line(finding)));
    let uris = uris::uris(settings, &relays, &names);
    Examined { findings, notes, certificates, uris }
}

fn line(finding: &Finding) -> Option<usize> {
    match finding.place {
        Place::File { line, .. } => line,
        Place::Environment(_) | Place::Option(_) | Place::Default => None,
    }
}

/// Returns the settings with the public addresses that are found now, if they are found
/// automatically.
fn found_external(settings: &Settings, findings: &mut Vec<Finding>) -> Option<Settings> {
    const KEY: &str = "relay.external";
    if !settings.is_external_auto() {
        return None;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
    let answers = runtime.block_on(external::ask(settings)).ok()?;
    findings.extend(answers.failed.into_iter().map(|(local, why)| {
        let what = format!("\"auto\" finds no public address for {local}: {why}");
        Finding::problem(
            settings,
            KEY,
            what,
            "see that UDP to the servers of relay.external_stun passes",
        )
    }));
    let mut settings = settings.clone();
    settings.put_found_external(answers.found);
    Some(settings)
}

/// Returns the relay addresses on this host. Missing automatic addresses are added to the findings.
fn relays(
    settings: &Settings,
    addresses: &HostAddresses,
    findings: &mut Vec<Finding>,
) -> Vec<RelayPair> {
    if settings.is_external_auto() && settings.found_external().is_empty() {
        return Vec::new(); // found at the start
    }
    let missing = settings.missing_relays(addresses).into_iter();
    let unfound = missing.filter(|missing| !missing.is_named);
    findings.extend(
        unfound.map(|MissingRelay { key, what, help, .. }| {
            Finding::problem(settings, key, what, help)
        }),
    );
    settings.relay_addresses(addresses)
}

fn served(settings: &Settings, now: SystemTime) -> Vec<Served> {
    let one = |files: &settings::CertificateFiles| {
        let certificate = certificates::read_one(files).ok()?;
        let Inspection { names, .. } = inspect(&certificates::read(&files.chain).ok()?, now);
        let seconds = u64::try_from(certificate.expires()).unwrap_or(0);
        let expires = UNIX_EPOCH + Duration::from_secs(seconds);
        Some(Served { file: files.chain.clone(), names, expires })
    };
    settings.certificates().iter().filter_map(one).collect()
}

fn describe(name: &str, settings: &Settings, examined: &Examined) -> String {
    let problems =
        examined.findings.iter().filter(|finding| finding.severity == Severity::Problem).count();
    let but = match problems {
        0 => String::new(),
        1 => ", with a problem".to_owned(),
        n => format!(", with {n} problems"),
    };
    let mut lines = vec![format!("{name} is valid{but}"), row("realm", &settings.realm)];
    let listeners: Vec<String> = settings.listeners().iter().map(ToString::to_string).collect();
    let transports: Vec<&str> = [("udp", settings.udp.enabled), ("tcp", settings.tcp.enabled)]
        .into_iter()
        .filter_map(|(name, on)| on.then_some(name))
        .collect();
    lines.push(row(
        "listeners",
        &if listeners.is_empty() || transports.is_empty() {
            "for TLS and DTLS alone".to_owned()
        } else {
            format!("{}  ({})", listeners.join("  "), transports.join(", "))
        },
    ));
    lines.push(row("tls", &tls(settings)));
    for Served { file, names, expires } in &examined.certificates {
        let left = expires.duration_since(SystemTime::now());
        let left = left.map_or_else(
            |_| "expired".to_owned(),
            |left| format!("expires in {}", output::duration(left)),
        );
        let names = if names.is_empty() { "no name".to_owned() } else { names.join(", ") };
        lines.push(row("certificate", &format!("{}: {names}; {left}", file.display())));
    }
    if !settings.acme.names.is_empty() {
        let names: Vec<&str> = settings.acme.names.iter().map(|name| &**name).collect();
        let authority = settings.acme.directory.as_str();
        lines.push(row("certificate", &format!("{}: ordered from {authority}", names.join(", "))));
    }
    let relay: Vec<String> = settings.relay.addresses.iter().map(RelayEntry::to_string).collect();
    lines
        .push(row("relays from", &format!("{}, ports {}", relay.join(", "), settings.relay.ports)));
    let prefixes = settings.relay.prefixes.iter();
    lines.extend(prefixes.map(|prefix| {
        row("relays from", &format!("{}, an address for each allocation", prefix.0))
    }));
    if let Some(external) = &settings.relay.external {
        let external: Vec<String> = external.0.iter().map(ToString::to_string).collect();
        let external = if settings.is_external_auto() {
            "found at the start".to_owned()
        } else {
            external.join(", ")
        };
        lines.push(row("external", &external));
    }
    lines.push(row("clients", &clients(settings)));
    lines.extend(examined.notes.iter().map(|note| match note.split_once(": ") {
        Some((name, text)) => row(name, text),
        None => row("", note),
    }));
    lines.extend(examined.findings.iter().map(ToString::to_string));
    if !examined.uris.is_empty() {
        lines.push("for clients:".to_owned());
        lines.extend(examined.uris.iter().map(|uri| format!("  {uri}")));
    }
    lines.join("\n")
}

fn row(name: &str, text: &str) -> String {
    format!("  {name:<12} {text}")
}

/// Describes the listeners for TLS and DTLS.
fn tls(settings: &Settings) -> String {
    if !settings.has_certificates() {
        return "off: there is no certificate".to_owned();
    }
    let served = match (settings.tls.enabled, settings.serves_dtls()) {
        (true, true) => "TLS and DTLS",
        (true, false) => "TLS",
        (false, true) => "DTLS",
        (false, false) => return "off: tls.enabled and dtls.enabled are false".to_owned(),
    };
    let more: Vec<String> = settings.tls_listen.iter().map(ToString::to_string).collect();
    if more.is_empty() {
        return format!("at the listeners ({served})");
    }
    format!("{}  and at the listeners ({served})", more.join("  "))
}

/// Describes the clients that can relay.
fn clients(settings: &Settings) -> String {
    if !settings.relay.enabled {
        return "everyone, for STUN alone".to_owned();
    }
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
    use std::path::Path;

    use settings::Environment;

    use super::*;

    fn load(text: &str) -> Result<Settings, SettingsErrors> {
        settings::parse(Path::new("t.toml"), text, &Environment::empty())
    }

    fn summary(settings: &Settings) -> String {
        let examined = Examined {
            findings: warnings(settings),
            notes: Vec::new(),
            certificates: Vec::new(),
            uris: vec!["stun:x".to_owned()],
        };
        describe("t.toml", settings, &examined)
    }

    #[test]
    fn a_good_file_is_summed_up() {
        let settings = load("[auth]\nsecret = \"north-of-the-wall\"\n").unwrap();
        let text = summary(&settings);
        assert!(text.starts_with("t.toml is valid\n"), "{text}");
        assert!(text.contains("0.0.0.0:3478"), "{text}");
        assert!(text.contains("shared secret"), "{text}");
        assert!(text.contains("off: there is no certificate"), "{text}");
        assert!(text.ends_with("for clients:\n  stun:x"), "{text}");
    }

    #[test]
    fn an_open_relay_on_loopback_is_warned_about() {
        let settings = load(
            "listen = [\"127.0.0.1:3478\"]\n\
             [auth]\nopen_relay = \"yes, relay for anyone\"\n",
        )
        .unwrap();
        assert_eq!(warnings(&settings).len(), 2);
        assert!(summary(&settings).contains("EVERYONE"));
    }

    #[test]
    fn programs_are_told_each_error_apart() {
        let loaded = load("relm = \"x\"\n[relay]\nports = \"80-90\"\n");
        let outcome = refused(Some("t.toml".into()), &loaded.unwrap_err());
        assert!(!outcome.valid);
        assert_eq!(outcome.errors.len(), 2, "{outcome:?}");
        assert!(outcome.errors.iter().any(|error| error.key == "relay.ports"), "{outcome:?}");
        assert!(outcome.errors.iter().all(|error| error.place.starts_with("t.toml")));
    }
}
