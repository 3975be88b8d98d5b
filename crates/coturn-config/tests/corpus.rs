//! A corpus of configurations in the shapes of installers and projects. For both purposes the
//! import accepts each file, and the check accepts the result of the import. A list names refused
//! files, with the reasons.

use std::fs;
use std::path::{Path, PathBuf};

use coturn_config::{
    AnyHost, Fate, Host, Import, Purpose, Source, Variables, command_line, import,
};
use settings::Environment;

use crate::host::TestHost;

/// A host without the files that a configuration names.
const EMPTY_HOST: TestHost = TestHost { name: ("relay.lab", [10, 77, 1, 1]), path: "", own: None };

struct Directory(PathBuf);

impl Drop for Directory {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

/// Names and contents of the corpus.
fn corpus() -> Vec<(String, Vec<u8>)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/corpus");
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap());
    let file = |entry: fs::DirEntry| {
        (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap())
    };
    let mut files: Vec<_> = entries.map(file).collect();
    files.sort();
    files
}

/// Options of a command line in a file of another program. An error names a missing value.
fn words(name: &str, content: &[u8]) -> Result<Option<Vec<String>>, String> {
    let text = String::from_utf8_lossy(content);
    let line = command_line(&text, &Variables::new()).transpose()?;
    assert_eq!(
        line.is_none(),
        name.ends_with(".conf"),
        "{name}: a command line was found: {line:?}"
    );
    Ok(line.map(|line| line.words))
}

/// Imports a file. An error lists the reasons of all unreadable lines.
fn imported(
    name: &str,
    content: &[u8],
    purpose: Purpose,
    directory: &Path,
) -> Result<Import, String> {
    let words = words(name, content)?;
    let source = match &words {
        None => Source { file: content, arguments: &[] },
        Some(words) => Source { file: b"", arguments: words },
    };
    let host: &dyn Host = match purpose {
        Purpose::Migration => &AnyHost,
        Purpose::Replacement => &EMPTY_HOST,
    };
    let import = import(source, purpose, directory, host);
    let unreadable = import.lines.iter().filter_map(|line| match &line.fate {
        Fate::Unreadable(reason) => Some(format!("{}: {reason}", line.name)),
        Fate::Taken(_) | Fate::SameHere(_) | Fate::Unsupported(_) | Fate::Unknown => None,
    });
    let unreadable: Vec<String> = unreadable.collect();
    if unreadable.is_empty() { Ok(import) } else { Err(unreadable.join("; ")) }
}

/// Stores the secrets of an import, and reads the result as a server does.
fn check(name: &str, import: &Import) {
    for (path, secret) in &import.secrets {
        fs::write(path, secret).unwrap();
    }
    let file = Path::new("/etc/turnpike/turnpike.toml");
    if let Err(errors) = settings::parse(file, &import.toml, &Environment::empty()) {
        panic!(
            "{name} is accepted by the import, and refused by the check: {errors}\n{}",
            import.toml
        );
    }
}

/// Purposes with a refusal of a file.
enum Refused {
    /// Migration. A server in coturn's place ignores the line, as coturn does.
    Migration,
    /// Migration and replacement.
    Both,
}

/// Refused files with unreadable lines or unknown values, and parts of the reasons.
const REFUSED: [(&str, Refused, &str); 16] = [
    ("comments-behind.conf", Refused::Both, "lt-cred-mech: coturn does not start"),
    ("compose-variables.yml", Refused::Both, "line 5: the value of $TURN_REALM is elsewhere"),
    ("empty-rule.conf", Refused::Both, "denied-peer-ip: an address, first-last"),
    ("entrypoint.sh", Refused::Both, "line 7: the value of $EXTERNAL_IP is elsewhere"),
    ("external-host-pair.conf", Refused::Migration, "external-ip: an address or a host's name"),
    ("host-names-unknown.conf", Refused::Migration, "external-ip: an address or a host's name"),
    // `AnyHost` resolves no names.
    ("host-names.conf", Refused::Migration, "listening-ip: an address, or the name of a host"),
    ("max-port-alone.conf", Refused::Both, "max-port: there is no port from 49152 to 40000"),
    ("mistyped-rule.conf", Refused::Both, "denied-peer-ip: an address, first-last"),
    ("numbers-unreadable.conf", Refused::Both, "user-quota: a number is expected"),
    ("ports-reversed.conf", Refused::Both, "max-port: there is no port from 60000 to 50000"),
    ("rules-by-name.conf", Refused::Migration, "denied-peer-ip: an address, first-last"),
    ("switch-unreadable.conf", Refused::Both, "no-tcp: coturn does not start"),
    ("unquoted-end.conf", Refused::Migration, "external-ip: an address or a host's name"),
    ("users-without-mechanism.conf", Refused::Migration, "user: name:password, or name:0x"),
    ("latin-1-realm.conf", Refused::Both, "realm: it is not UTF-8"),
];

/// Command lines, with the realms in the imports.
const COMMANDS: [(&str, Option<&str>); 16] = [
    ("Dockerfile.alpine", None),
    ("Dockerfile.relay", Some("image.example.org")),
    ("ansible-task.yml", Some("play.example.org")),
    ("compose-folded.yml", Some("folded.example.org")),
    ("compose-list.yml", Some("compose.example.org")),
    ("compose-string.yml", Some("string.example.org")),
    ("docker-mount.sh", None),
    ("docker-run.sh", Some("docker.example.org")),
    ("install-cloud.sh", None),
    ("kubernetes-env.yml", Some("envpod.example.org")),
    ("kubernetes.yml", Some("pod.example.org")),
    ("override.service", Some("unit.example.org")),
    ("plain-command.txt", Some("line.example.org")),
    ("podman.service", Some("quadlet.example.org")),
    ("script-with-names.sh", Some("calls.example.org")),
    ("start-relay.sh", Some("script.example.org")),
];

/// Part of the reason for the refusal of a file for a purpose.
fn refusal(name: &str, purpose: Purpose) -> Option<&'static str> {
    let (_, refused, reason) = REFUSED.iter().find(|(file, ..)| *file == name)?;
    match (refused, purpose) {
        (Refused::Migration, Purpose::Replacement) => None,
        (Refused::Migration, Purpose::Migration) | (Refused::Both, _) => Some(*reason),
    }
}

fn every_file_for(purpose: Purpose) {
    let name = format!("coturn-corpus-{purpose:?}-{}", std::process::id());
    let directory = Directory(std::env::temp_dir().join(name));
    fs::create_dir_all(&directory.0).unwrap();
    let files = corpus();
    let is_there = |name: &str| files.iter().any(|(file, _)| file == name);
    assert!(REFUSED.iter().all(|(name, ..)| is_there(name)), "a file is gone");
    for (name, content) in &files {
        let import = imported(name, content, purpose, &directory.0);
        match (import, refusal(name, purpose)) {
            (Ok(import), None) => {
                check(name, &import);
                if !name.ends_with(".conf") {
                    let command = COMMANDS.iter().find(|(file, _)| file == name).unwrap();
                    assert_eq!(import.realm.as_deref(), command.1, "{name}");
                }
            }
            (Err(why), Some(reason)) => assert!(why.contains(reason), "{name}: {why}"),
            (Ok(_), Some(_)) => panic!("{name} is in the list of refused files"),
            (Err(why), None) => panic!("{name}: {why}"),
        }
    }
}

#[test]
fn what_is_imported_for_an_operator_is_a_valid_configuration() {
    every_file_for(Purpose::Migration);
}

#[test]
fn what_is_imported_for_a_server_in_coturns_place_is_a_valid_configuration() {
    every_file_for(Purpose::Replacement);
}
