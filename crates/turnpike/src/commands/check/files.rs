//! Checks of the access to secrets, keys and data. Other users of the host should have none.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use settings::{Database, Place, Settings};

use crate::findings::Finding;

/// Mode bits of access by the group, and by other users.
const OTHERS_READ: u32 = 0o004;
const OTHERS_WRITE: u32 = 0o002;
const GROUP_WRITE: u32 = 0o020;
/// Mode bit of a directory in which only owners remove files.
const STICKY: u32 = 0o1000;

/// Returns findings about files that other users can read or change.
pub(super) fn findings(settings: &Settings) -> Vec<Finding> {
    let mut all = Vec::new();
    for (key, place, file) in settings.secret_files() {
        all.extend(secret(settings, (key, place), &file));
    }
    for (index, files) in settings.certificates().iter().enumerate() {
        let place = settings.entry_place("tls.certificates", index);
        all.extend(secret(settings, ("tls.certificates", place), &files.key));
    }
    if let Some(file) = settings.path() {
        let place = Place::File { path: file.to_owned(), line: None };
        all.extend(changeable(settings, ("", place.clone()), file));
        if settings.holds_secrets() {
            all.extend(readable(settings, ("", place), file));
        }
    }
    let key = "data.directory";
    all.extend(changeable(settings, (key, settings.place(key)), &settings.data.directory));
    let key = "users.database";
    match settings.user_database() {
        Database::Sqlite(file) => {
            all.extend(secret(settings, (key, settings.place(key)), &file));
        }
        Database::CoturnSqlite(file) => {
            all.extend(missing(settings, key, &file));
            all.extend(secret(settings, (key, settings.place(key)), &file));
        }
        Database::Server(url) => {
            let help = "docs/operate/databases.md has an example for each kind";
            let refused = user_db::check_url(url.expose()).err();
            all.extend(
                refused.map(|error| Finding::problem(settings, key, error.to_string(), help)),
            );
        }
    }
    all
}

/// Returns a finding if coturn's database file is missing. This server does not create the file.
fn missing(settings: &Settings, key: &str, file: &Path) -> Option<Finding> {
    let is_missing = fs::metadata(file).is_err_and(|error| error.kind() == ErrorKind::NotFound);
    (is_missing && settings.needs_users()).then(|| {
        let what = format!("there is no file {}", file.display());
        let help = "correct the path; `turnadmin -l -b FILE` creates a file of coturn";
        Finding::problem(settings, key, what, help)
    })
}

/// Checks that only the owner, and a group with read access, can use a file with a secret.
fn secret(settings: &Settings, (key, place): (&str, Place), file: &Path) -> Vec<Finding> {
    let readable = readable(settings, (key, place.clone()), file);
    readable.into_iter().chain(changeable(settings, (key, place), file)).collect()
}

fn readable(settings: &Settings, (key, place): (&str, Place), file: &Path) -> Option<Finding> {
    let mode = fs::metadata(file).ok()?.mode();
    (mode & OTHERS_READ != 0).then(|| {
        let file = file.display();
        let what = format!(
            "every user of this host can read {file}, which holds a secret ({:04o})",
            mode & 0o7777
        );
        Finding::problem(settings, key, what, format!("chmod o= {file}")).at(place)
    })
}

fn changeable(settings: &Settings, (key, place): (&str, Place), file: &Path) -> Option<Finding> {
    let metadata = fs::metadata(file).ok()?;
    let mode = metadata.mode();
    let is_open = mode & OTHERS_WRITE != 0 && !(metadata.is_dir() && mode & STICKY != 0);
    is_open.then(|| {
        let (file, group) = (file.display(), if mode & GROUP_WRITE == 0 { "" } else { "g" });
        let what = format!("every user of this host can change {file} ({:04o})", mode & 0o7777);
        Finding::problem(settings, key, what, format!("chmod {group}o-w {file}")).at(place)
    })
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt as _;

    use settings::Environment;

    use super::*;
    use crate::testing::Directory;

    #[test]
    fn secrets_that_others_read_or_change_are_found() {
        let directory = Directory::new("modes");
        let [file, secret, data] =
            ["t.toml", "secret", "data"].map(|name| directory.path().join(name));
        fs::create_dir(&data).unwrap();
        fs::write(&secret, "north-of-the-wall").unwrap();
        let text = format!("[auth]\nsecret_file = \"secret\"\n[data]\ndirectory = {data:?}\n");
        fs::write(&file, &text).unwrap();
        let settings = settings::parse(&file, &text, &Environment::empty()).unwrap();
        let found = |modes: [u32; 3]| {
            for (path, mode) in [&file, &secret, &data].into_iter().zip(modes) {
                fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
            }
            findings(&settings).iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(found([0o644, 0o640, 0o755]), [""; 0]);
        let all = found([0o666, 0o644, 0o777]);
        assert_eq!(all.len(), 3, "{all:?}");
        assert!(
            all[0].contains("t.toml:2: auth.secret_file: ") && all[0].contains("(0644)"),
            "{all:?}"
        );
        assert!(all[1].contains("can change") && all[1].contains("chmod go-w"), "{all:?}");
        assert!(all[2].contains("t.toml:4: data.directory: "), "{all:?}");
    }

    #[test]
    fn a_configuration_with_a_secret_is_one() {
        let directory = Directory::new("modes");
        let file = directory.path().join("t.toml");
        let text = "[auth]\nsecret = \"north-of-the-wall\"\n";
        fs::write(&file, text).unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
        let settings = settings::parse(&file, text, &Environment::empty()).unwrap();
        let all = findings(&settings);
        assert!(all.len() == 1 && all[0].what.contains("can read"), "{all:?}");
    }
}
