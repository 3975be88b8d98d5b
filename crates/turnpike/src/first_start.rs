//! First start without a configuration, with generation of a user. The server can be tried
//! immediately, and is still not an open relay.
//!
//! The database stores keys and no passwords. The credentials are therefore also stored in a file
//! of mode 0600, next to the database. The password is printed only once, since journals retain
//! output. Later starts name the file.

use std::fs;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use anyhow::{Context as _, anyhow};
use atomic_file::Access;
use control::ServerInfo;
use serde::{Deserialize, Serialize};
use settings::Settings;
use turn_types::Secret;
use user_db::{Credentials, NewUser, Page, UserEditor, UserQuery};

use crate::failure::{Failure, Result};
use crate::uri;

/// File name of the generated user's record in the data directory.
const FILE: &str = "first-user.json";

/// Maximum size of the file in bytes. The file has one user.
const FILE_BYTES_MAX: u64 = 64 << 10;

/// Credentials of the generated user, as stored in the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FirstUser {
    realm: String,
    username: String,
    password: String,
}

/// Generated user that a start shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shown {
    user: FirstUser,
    /// True at the first start, which prints the password.
    is_new: bool,
}

/// Returns the generated user to show, if one exists. Creates the user if the database has no users
/// in any realm.
pub(crate) fn prepare(settings: &Settings, store: &mut dyn UserEditor) -> Result<Option<Shown>> {
    let path = settings.data.directory.join(FILE);
    let kept = read(&path)?.filter(|kept| *kept.realm == *settings.realm);
    if let Some(kept) = &kept
        && let Some(known) =
            store.user(&kept.realm, &UserQuery::Name(kept.username.as_str().into()))?
    {
        // After a change of the password by an operator, the password in the file is invalid.
        let same = kept.new_user()?.keys() == &known.keys;
        return Ok(same.then(|| Shown { user: kept.clone(), is_new: false }));
    }
    let any = Page { realm: None, after: None, limit: 1 };
    if !store.list(&any)?.is_empty() {
        // Other users exist. An operator who deleted the generated user does not want it restored.
        // If these users belong to another realm, the server was started without its configuration.
        return Ok(None);
    }
    let is_new = kept.is_none();
    let user = match kept {
        Some(kept) => kept,
        None => generate(&settings.realm, &path)?,
    };
    store.add(&user.new_user()?)?;
    Ok(Some(Shown { user, is_new }))
}

/// Deletes the file of the generated user if the file names this user. An operator deletes the
/// user, or changes the password. Later starts then neither show an invalid password nor restore a
/// deleted user.
pub(crate) fn forget(data: &Path, realm: &str, name: &str) -> Result<()> {
    let path = data.join(FILE);
    // An unreadable file shows no user, and the next start reports the error.
    let Ok(Some(kept)) = read(&path) else { return Ok(()) };
    if kept.realm != realm || kept.username != name {
        return Ok(());
    }
    fs::remove_file(&path)
        .with_context(|| format!("cannot delete {}", path.display()))
        .map_err(Failure::failed)
}

impl FirstUser {
    fn new_user(&self) -> Result<NewUser> {
        let password = Secret::new(self.password.clone());
        Ok(NewUser::new(&self.realm, &self.username, &password, None)?)
    }
}

/// Formats the banner: address, user, and a command for a first test.
pub(crate) fn banner(shown: &Shown, info: &ServerInfo, program: &Path, data: &Path) -> String {
    let FirstUser { username, password, .. } = &shown.user;
    let uris: Vec<String> = uris(info);
    if !shown.is_new {
        return format!(
            "\nThe TURN server is ready at {}.\n\
             The password of its generated user {username} is in {}.\n",
            uris.join(", "),
            data.join(FILE).display(),
        );
    }
    let program = program.display();
    // The demo runs on this host, where the public address may be unreachable.
    let here = here(info);
    format!(
        "\nThe TURN server is ready. A client needs:\n\n  \
           uri       {}\n  \
           username  {username}\n  \
           password  {password}\n\n\
         Try it:\n\n  \
           {program} demo --server turn:{here} --user {username} --password {password} --seconds 5\n\n\
         There is no configuration file, so this user was generated; it is kept in\n\
         {}. To add another, and to delete this one:\n\n  \
           {program} user add NAME --data {}\n  \
           {program} user delete {username} --data {}\n",
        uris.join("\n            "),
        data.join(FILE).display(),
        data.display(),
        data.display(),
    )
}

fn generate(realm: &str, path: &Path) -> Result<FirstUser> {
    let Credentials { name, password } = Credentials::generate()
        .map_err(|error| anyhow!("no random numbers: {error}"))
        .map_err(Failure::failed)?;
    let user =
        FirstUser { realm: realm.to_owned(), username: name, password: password.expose().clone() };
    // The file is written first. A user with an unknown password would be worse than a file without
    // a user.
    write(path, &user).with_context(|| format!("cannot write {}", path.display())).map_err(
        |error| {
            Failure::failed(error)
                .hint("name a directory that belongs to you with --data, or a configuration file")
        },
    )?;
    Ok(user)
}

fn write(path: &Path, user: &FirstUser) -> io::Result<()> {
    let text = serde_json::to_string_pretty(user)? + "\n";
    atomic_file::replace(path, text.as_bytes(), Access::PRIVATE)
}

fn read(path: &Path) -> Result<Option<FirstUser>> {
    let text = match atomic_file::read_state_to_string(path, FILE_BYTES_MAX) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            return Err(Failure::failed(
                anyhow::Error::new(error).context(format!("cannot read {}", path.display())),
            )
            .hint("run the server as the user that the data directory belongs to"));
        }
    };
    serde_json::from_str(&text).map(Some).map_err(|error| {
        Failure::failed(anyhow!("{} cannot be understood: {error}", path.display()))
            .hint("delete the file and the user in it: another one is generated")
    })
}

/// Returns a URI for each listener, as clients on other hosts use it.
fn uris(info: &ServerInfo) -> Vec<String> {
    let mut uris: Vec<String> = Vec::new();
    for listener in &info.listeners {
        let addresses: Vec<IpAddr> = if listener.ip().is_unspecified() {
            let same = |ip: &IpAddr| ip.is_ipv4() == listener.is_ipv4();
            info.relay.iter().map(|relay| relay.public).filter(same).collect()
        } else {
            vec![listener.ip()]
        };
        for ip in addresses {
            let uri = uri::of_listener(SocketAddr::new(ip, listener.port()));
            if !uris.contains(&uri) {
                uris.push(uri);
            }
        }
    }
    uris
}

/// Returns an address of the server that works on this host, preferably IPv4.
fn here(info: &ServerInfo) -> SocketAddr {
    let address = |listener: &SocketAddr| {
        if !listener.ip().is_unspecified() {
            return Some(*listener);
        }
        let same = |ip: &IpAddr| ip.is_ipv4() == listener.is_ipv4();
        let ip = info.relay.iter().map(|relay| relay.local).find(same)?;
        Some(SocketAddr::new(ip, listener.port()))
    };
    let mut addresses: Vec<SocketAddr> = info.listeners.iter().filter_map(address).collect();
    addresses.sort_by_key(|address| !address.is_ipv4());
    addresses.first().copied().unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], 3478)))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;
    use std::time::SystemTime;

    use control::{MissingAddresses, RelayInfo, UnreadParts};
    use settings::Environment;

    use super::*;
    use crate::testing::Directory;
    use crate::users;

    fn settings(directory: &Directory) -> Settings {
        let mut settings = settings::load(None, &Environment::empty()).unwrap();
        settings.set_data_directory(directory.path().to_owned());
        settings
    }

    fn store(settings: &Settings) -> Box<dyn UserEditor> {
        users::editor(&settings.user_database()).unwrap()
    }

    #[test]
    fn a_second_start_shows_the_same_user() {
        let directory = Directory::new("first");
        let settings = settings(&directory);
        let first = prepare(&settings, &mut *store(&settings)).unwrap().unwrap();
        assert!(first.is_new);
        let again = Shown { is_new: false, ..first.clone() };
        let file = directory.path().join(FILE);
        assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o600);
        assert_eq!(prepare(&settings, &mut *store(&settings)).unwrap(), Some(again.clone()));

        // After a loss of the database, the user that clients know is restored.
        for name in ["users.sqlite", "users.sqlite-wal", "users.sqlite-shm"] {
            let _ = fs::remove_file(directory.path().join(name));
        }
        assert_eq!(prepare(&settings, &mut *store(&settings)).unwrap(), Some(again));
        let query = UserQuery::Name(first.user.username.as_str().into());
        assert!(store(&settings).user(&settings.realm, &query).unwrap().is_some());
    }

    #[test]
    fn a_deleted_user_stays_deleted_once_there_are_others() {
        let directory = Directory::new("deleted");
        let settings = settings(&directory);
        let mut store = store(&settings);
        let first = prepare(&settings, &mut *store).unwrap().unwrap();
        let password = Secret::new("of-bob".to_owned());
        store.add(&NewUser::new(&settings.realm, "bob", &password, None).unwrap()).unwrap();
        assert!(store.delete(&settings.realm, &first.user.username).unwrap());
        assert_eq!(prepare(&settings, &mut *store).unwrap(), None);
    }

    #[test]
    fn a_deleted_user_does_not_come_back_and_a_new_password_is_not_shown_as_the_old() {
        let directory = Directory::new("forgotten");
        let settings = settings(&directory);
        let mut store = store(&settings);
        let first = prepare(&settings, &mut *store).unwrap().unwrap();
        let password = Secret::new("another".to_owned());
        let again = NewUser::new(&settings.realm, &first.user.username, &password, None).unwrap();
        assert!(store.replace(&again).unwrap());
        assert_eq!(prepare(&settings, &mut *store).unwrap(), None);

        forget(directory.path(), &settings.realm, "bob").unwrap();
        assert!(directory.path().join(FILE).exists(), "bob is somebody else");
        forget(directory.path(), &settings.realm, &first.user.username).unwrap();
        assert!(store.delete(&settings.realm, &first.user.username).unwrap());
        let second = prepare(&settings, &mut *store).unwrap().unwrap();
        assert!(second.is_new);
        assert_ne!(second.user, first.user);
        forget(Path::new("/nonexistent"), "r", "n").unwrap();
    }

    #[test]
    fn nobody_is_generated_where_there_are_users() {
        let directory = Directory::new("own");
        let settings = settings(&directory);
        let mut store = store(&settings);
        let password = Secret::new("of-bob".to_owned());
        store.add(&NewUser::new(&settings.realm, "bob", &password, None).unwrap()).unwrap();
        assert_eq!(prepare(&settings, &mut *store).unwrap(), None);
        assert!(!directory.path().join(FILE).exists());
    }

    #[test]
    fn the_banner_has_public_uris_and_a_line_that_works_here() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let info = ServerInfo {
            version: String::new(),
            started: SystemTime::now(),
            realm: "turnpike".into(),
            realms: Vec::new(),
            listeners: vec!["[::]:3478".parse().unwrap(), "0.0.0.0:3478".parse().unwrap()],
            relay: vec![RelayInfo {
                local: ip("10.0.0.5"),
                public: ip("203.0.113.7"),
                is_present: true,
            }],
            missing: MissingAddresses::default(),
            unread: UnreadParts::default(),
            relay_prefixes: Vec::new(),
            relay_ports: (49152, 65535),
            workers: 1,
            gro: true,
            gso: true,
            offload: control::OffloadInfo::default(),
            tls_listeners: Vec::new(),
            dtls: false,
            certificates: Vec::new(),
            confinement: control::ConfinementInfo::default(),
            monitoring: control::MonitoringInfo::default(),
            redirects: Vec::new(),
            reload_refused: None,
            needs_restart: Vec::new(),
            took_over: None,
        };
        let user = FirstUser {
            realm: "turnpike".into(),
            username: "user-x".into(),
            password: "pw".into(),
        };
        let first = Shown { user, is_new: true };
        let banner = banner(&first, &info, Path::new("/opt/turnpike"), Path::new("/data"));
        assert!(banner.contains("uri       turn:203.0.113.7:3478\n"), "{banner}");
        assert!(
            banner.contains(
                "/opt/turnpike demo --server turn:10.0.0.5:3478 --user user-x --password pw \
                 --seconds 5\n"
            ),
            "{banner}"
        );
        assert!(banner.contains("/data/first-user.json"), "{banner}");
        assert!(banner.contains("/opt/turnpike user add NAME --data /data\n"), "{banner}");
        assert!(banner.contains("/opt/turnpike user delete user-x --data /data\n"), "{banner}");

        let later = Shown { is_new: false, ..first };
        let banner = super::banner(&later, &info, Path::new("/opt/turnpike"), Path::new("/data"));
        assert!(banner.contains("ready at turn:203.0.113.7:3478"), "{banner}");
        assert!(banner.contains("user-x is in /data/first-user.json"), "{banner}");
        assert!(!banner.contains("pw"), "{banner}");
    }
}
