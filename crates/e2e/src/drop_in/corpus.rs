//! Configurations in the shapes that installers and projects write, from the tests of the crate
//! `coturn-config`.

use std::fs;
use std::path::Path;

use super::configuration::{Configuration, Credential, DIRECTORY, replaced};

/// Directories of a host. Each is replaced by the directory of the server in the test.
const PLACES: [&str; 7] = [
    "/etc/turnserver",
    "/var/lib/coturn",
    "/var/lib/turn",
    "/var/log",
    "/var/run",
    "/var/tmp",
    "/run",
];

/// Files of the corpus by name, with their credentials.
#[must_use]
pub fn corpus() -> Vec<(String, Configuration)> {
    let directory =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../coturn-config/tests/fixtures/corpus");
    let entries =
        fs::read_dir(&directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    let mut files: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "conf"));
    files.sort();
    let configuration = |path: &std::path::PathBuf| {
        let text = fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let credentials = credentials(&text);
        (name, Configuration { text: moved(text), credentials })
    };
    files.iter().map(configuration).collect()
}

/// A file with the directory of the server in place of directories of the host.
fn moved(text: Vec<u8>) -> Vec<u8> {
    PLACES.iter().fold(text, |text, place| replaced(&text, place, DIRECTORY))
}

/// Credentials of a file. Passwords of users with keys are in comments.
fn credentials(text: &[u8]) -> Vec<Credential> {
    let mut all = Vec::new();
    for line in text.split(|byte| *byte == b'\n') {
        let line = line.trim_ascii();
        let line = line.strip_prefix(b"#").unwrap_or(line).trim_ascii();
        let between = |byte: &u8| matches!(byte, b' ' | b'=' | b'\t');
        let end = line.iter().position(between).unwrap_or(line.len());
        let (name, rest) = line.split_at(end);
        let begin = rest.iter().position(|byte| !between(byte)).unwrap_or(rest.len());
        let value = &rest[begin..];
        let inner = value.strip_prefix(b"\"").map(|one| one.strip_suffix(b"\"").unwrap_or(one));
        for value in std::iter::once(value).chain(inner) {
            let credential = match name {
                b"user" => std::str::from_utf8(value).ok().and_then(user),
                b"static-auth-secret" => Some(Credential::Secret(value.to_vec())),
                _ => None,
            };
            all.extend(credential.filter(|one| !all.contains(one)));
        }
    }
    if all.is_empty() {
        all.extend(user("nobody:nothing"));
    }
    all
}

fn user(value: &str) -> Option<Credential> {
    let (name, password) = value.split_once(':')?;
    Some(Credential::User { name: name.to_owned(), password: password.to_owned() })
}
