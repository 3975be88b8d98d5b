//! coturn: its program, its version, and its command line.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};

use super::{CoturnOptions, Prepared, Terms, find, version};
use crate::traffic::Transport;

/// Versions before this one are old: the current one (4.17.1 of 2026) relays UDP in batches.
const CURRENT: (u32, u32) = (4, 17);
/// Directories of packages and of `make install`, which PATH may lack.
const DIRECTORIES: [&str; 4] = ["/usr/bin", "/usr/local/bin", "/usr/sbin", "/usr/local/sbin"];

/// coturn and its command line.
pub(super) fn prepare(
    path: Option<&Path>,
    options: CoturnOptions,
    terms: &Terms,
    directory: &Path,
) -> anyhow::Result<Prepared> {
    let program = program(path, std::env::var_os("COTURN").map(PathBuf::from))?;
    let mut command = vec![program.display().to_string()];
    command.extend(arguments(terms, directory));
    let (help, version) = (output(&program, "--help")?, version(&program));
    if options == CoturnOptions::Fastest {
        for option in FASTEST {
            ensure!(
                help.contains(option),
                "{} (version {version}) has no {option}, which coturn-fastest needs: name coturn 4.17 or newer, \
                 coturn-fastest=PATH, or compare with coturn",
                program.display()
            );
            command.push(option.to_owned());
        }
    }
    // Since 4.17 it listens for DTLS on demand; before that it did always, and did not know the
    // option.
    if terms.transport == Transport::Dtls && help.contains("--dtls") {
        command.push("--dtls".to_owned());
    }
    let warning = warning(&version);
    Ok(Prepared { command, configuration: None, version, warning, knows_secret: true })
}

/// Options of [`CoturnOptions::Fastest`].
const FASTEST: [&str; 2] = ["--multiplex-peer", "--udp-gso"];

/// coturn's program: as given, by `$COTURN`, beside this one, in PATH, or in one of the usual
/// directories.
fn program(path: Option<&Path>, variable: Option<PathBuf>) -> anyhow::Result<PathBuf> {
    if let (None, Some(named)) = (path, variable.filter(|named| !named.as_os_str().is_empty())) {
        return find(Some(&named), "turnserver", "").context("the variable COTURN");
    }
    let usual = DIRECTORIES.iter().map(|directory| Path::new(directory).join("turnserver"));
    let hint = "install coturn (Debian package coturn), or name it: coturn=PATH, or COTURN=PATH";
    find(path, "turnserver", hint).or_else(|error| {
        usual.into_iter().find(|path| path.is_file()).filter(|_| path.is_none()).ok_or(error)
    })
}

/// A line for those who read the comparison, if this version is not a current one.
fn warning(version: &str) -> Option<String> {
    match number(version) {
        Some(number) if number >= CURRENT => None,
        Some(_) => Some(format!(
            "OLD COTURN: this is coturn {version}; the current version is 4.17.1, and ratios to it may differ"
        )),
        None => Some(format!("UNKNOWN COTURN: its version cannot be read from {version:?}")),
    }
}

/// Major and minor number of a version: (4, 17) of "4.17.1" and of "Coturn-4.17.1 'Gorst'".
fn number(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.split(|c: char| !c.is_ascii_digit() && c != '.');
    let number = parts.find(|part| part.starts_with(|c: char| c.is_ascii_digit()))?;
    let mut parts = number.split('.').map(|part| part.parse().ok());
    Some((parts.next()??, parts.next()??))
}

/// All that a program prints with an option.
fn output(program: &Path, option: &str) -> anyhow::Result<String> {
    let output = Command::new(program).arg(option).output();
    let output = output.with_context(|| format!("running {} {option}", program.display()))?;
    let bytes = [output.stdout, output.stderr].concat();
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// coturn's arguments, in place of a configuration file.
fn arguments(terms: &Terms, directory: &Path) -> Vec<String> {
    let mut arguments = terms.fill(
        "-n --listening-ip={listen_ip} --listening-port={listen_port} --relay-ip={relay} \
         --min-port={min_port} --max-port={max_port} --realm={realm} --use-auth-secret \
         --static-auth-secret={secret} --allowed-peer-ip={peer_range} --relay-threads={workers} \
         --no-cli --simple-log --no-stdout-log",
    );
    if !terms.transport.is_stream() {
        arguments += " --no-tcp";
    }
    if terms.transport != Transport::Dtls {
        arguments += " --no-dtls";
    }
    if terms.certificate.is_none() {
        arguments += " --no-tls";
    }
    let mut arguments: Vec<String> = arguments.split(' ').map(str::to_owned).collect();
    // Paths, which may have spaces.
    let file = |name: &str| directory.join(name).display().to_string();
    arguments.push(format!("--userdb={}", file("turndb")));
    arguments.push(format!("--pidfile={}", file("turnserver.pid")));
    arguments.push(format!("--log-file={}", file("turnserver.log")));
    if terms.certificate.is_some() {
        let places = ["--tls-listening-port={tls_port}", "--cert={certificate}", "--pkey={key}"];
        arguments.extend(places.map(|place| terms.fill(place)));
    }
    arguments
}

#[cfg(test)]
mod tests {
    use super::super::tests::terms;
    use super::*;

    #[test]
    fn old_and_unknown_versions_are_told() {
        for fine in ["4.17.0", "4.17.1", "Coturn-4.17.1 'Gorst'", "4.18", "5.0.0"] {
            assert_eq!(warning(fine), None, "{fine}");
        }
        for old in ["4.6.1", "4.9.0", "Coturn-4.16.9", "3.99"] {
            assert!(warning(old).unwrap().starts_with("OLD COTURN"), "{old}");
        }
        assert!(warning("").unwrap().starts_with("UNKNOWN COTURN"));
    }

    #[test]
    fn the_variable_names_a_program_that_exists() {
        assert_eq!(
            program(None, Some("/bin/sh".into())).unwrap(),
            Path::new("/bin/sh").canonicalize().unwrap()
        );
        let error = format!("{:#}", program(None, Some("/no/such".into())).unwrap_err());
        assert!(error.contains("COTURN") && error.contains("/no/such"), "{error}");
        // A path on the command line comes first.
        let given = program(Some(Path::new("/bin/sh")), Some("/no/such".into()));
        assert!(given.is_ok());
        assert!(program(Some(Path::new("/no/such")), None).is_err());
    }

    #[test]
    fn the_fastest_options_want_a_program_that_has_them() {
        use std::os::unix::fs::PermissionsExt as _;
        let directory = std::env::temp_dir().join(format!("coturn-options-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let make = |name: &str, help: &str| {
            let path = directory.join(name);
            std::fs::write(&path, format!("#!/bin/sh\necho '{help}'\n")).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
            path
        };
        let prepare_for = |path: &Path, options, transport| {
            prepare(Some(path), options, &terms(transport), &directory)
        };
        let prepare = |path: &Path, options| prepare_for(path, options, Transport::Udp);
        let old = make("old", "4.6.1");
        let error = prepare(&old, CoturnOptions::Fastest).unwrap_err().to_string();
        assert!(error.contains("--multiplex-peer") && error.contains("4.6.1"), "{error}");
        let plain = prepare(&old, CoturnOptions::Default).unwrap();
        assert!(
            plain.warning.is_some() && !plain.command.iter().any(|word| FASTEST.contains(&&**word))
        );
        let new = make("new", "--multiplex-peer --udp-gso 4.17.1");
        let fast = prepare(&new, CoturnOptions::Fastest).unwrap();
        assert!(fast.command.ends_with(&FASTEST.map(str::to_owned)) && fast.warning.is_none());
        let on_demand = make("on-demand", "--no-dtls --dtls 4.17.1");
        for (program, transport, asks) in [
            (&on_demand, Transport::Dtls, true),
            (&on_demand, Transport::Udp, false),
            (&old, Transport::Dtls, false),
        ] {
            let prepared = prepare_for(program, CoturnOptions::Default, transport).unwrap();
            assert_eq!(prepared.command.iter().any(|word| word == "--dtls"), asks, "{transport:?}");
        }
        std::fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn coturn_gets_the_terms_and_the_measured_transport() {
        let arguments = |transport| arguments(&terms(transport), Path::new("/run/bench"));
        let has = |arguments: &[String], wanted: &str| arguments.iter().any(|it| it == wanted);
        let udp = arguments(Transport::Udp);
        for wanted in [
            "--listening-ip=10.78.1.1",
            "--relay-ip=10.78.2.1",
            "--max-port=65535",
            "--static-auth-secret=0123456789abcdef0123456789abcdef",
            "--relay-threads=2",
            "--userdb=/run/bench/turndb",
            "--no-tcp",
            "--no-tls",
            "--no-dtls",
        ] {
            assert!(has(&udp, wanted), "{wanted}");
        }
        let tls = arguments(Transport::Tls);
        assert!(has(&tls, "--tls-listening-port=5349") && has(&tls, "--cert=/run/c.pem"));
        assert!(has(&tls, "--no-dtls") && !has(&tls, "--no-tls") && !has(&tls, "--no-tcp"));
        assert!(!has(&arguments(Transport::Dtls), "--no-dtls"));
    }
}
