//! Paths of the configuration, the data and the control socket. The command line takes precedence
//! over the environment, then the configuration file, then the default.

use std::path::{Path, PathBuf};

use anyhow::anyhow;
use settings::file::{WhenUnusable, WhenUnwritable};
use settings::{
    CONTROL_SOCKET, CertificateFiles, Environment, Paths, Settings, SettingsError, SettingsErrors,
};

use crate::certificates::{self, Unusable};
use crate::cli::PathOptions;
use crate::coturn::CoturnConfig;
use crate::data_directory;
use crate::failure::{Failure, Result};
use crate::process::ProcessOptions;
use crate::upgrade_command::TAKES_OVER_VARIABLE;
use crate::{new_files, renewal};

/// Configuration file of a packaged server.
pub(crate) const CONFIG: &str = "/etc/turnpike/turnpike.toml";

/// Data directory of a packaged server, and default in a configuration file.
const DATA: &str = "/var/lib/turnpike";

/// Control socket in the configuration of the packages and of `turnpike init`.
const PACKAGED_SOCKET: &str = "/run/turnpike/control.sock";

/// Environment variable with the path of the configuration file. All variables that start with
/// `TURNPIKE_` and do not name paths override keys of the configuration.
const CONFIG_VARIABLE: &str = "TURNPIKE_CONFIG";
const DATA_VARIABLE: &str = "TURNPIKE_DATA";

/// Inputs of the paths in addition to the command line.
pub(crate) struct ProcessEnvironment<'a> {
    /// Function that reads an environment variable.
    pub(crate) env: &'a dyn Fn(&str) -> Option<String>,
    /// Function that returns true if a file or directory exists.
    pub(crate) exists: &'a dyn Fn(&Path) -> bool,
    /// True if the process runs as root.
    pub(crate) root: bool,
}

impl ProcessEnvironment<'static> {
    /// Returns the environment of this process.
    pub(crate) fn real() -> Self {
        Self {
            env: &|name| std::env::var(name).ok(),
            exists: &|path| path.exists(),
            root: rustix::process::geteuid().is_root(),
        }
    }
}

/// Configuration, with the file that it was read from.
#[derive(Debug)]
pub(crate) struct Configuration {
    /// Configuration file, if one exists.
    pub(crate) file: Option<PathBuf>,
    /// Configuration of coturn that was translated to this configuration.
    pub(crate) coturn: Option<PathBuf>,
    /// Options about the process in the system.
    pub(crate) process: ProcessOptions,
    /// Values of the configuration, with paths overridden by the command line.
    pub(crate) settings: Settings,
}

/// Returns the data directory of a server whose configuration does not set it.
pub(crate) fn data_directory(paths: &PathOptions) -> PathBuf {
    ProcessEnvironment::real().data(paths, None)
}

/// Returns the environment variables that override keys of the configuration.
pub(crate) fn environment() -> Environment {
    let others = [CONFIG_VARIABLE, DATA_VARIABLE, TAKES_OVER_VARIABLE];
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .filter(|(name, _)| !others.contains(&name.as_str()))
        .collect()
}

/// Returns true if this process is the successor of a running server in an upgrade.
pub(crate) fn takes_over() -> bool {
    std::env::var_os(TAKES_OVER_VARIABLE).is_some()
}

/// Certificates of a configuration that may be unusable.
#[derive(Clone, Copy)]
enum Tolerated<'a> {
    /// Certificates in effect, and certificates that a running server waits for.
    These(&'a [CertificateFiles]),
    /// Certificates that the configuration waits for.
    Awaited,
    /// All certificates.
    All,
}

/// Reads the configuration. The successor of an upgrade refuses every unusable certificate, because
/// the predecessor may have the certificate in effect.
pub(crate) fn load(paths: &PathOptions) -> Result<Configuration> {
    load_with(paths, if takes_over() { Tolerated::These(&[]) } else { Tolerated::Awaited })
}

/// Reads the configuration of a running server. Certificates in effect are not checked. Their files
/// may be temporarily unreadable, which must not delay other changes.
pub(crate) fn load_again(
    paths: &PathOptions,
    in_force: &[CertificateFiles],
) -> Result<Configuration> {
    load_with(paths, Tolerated::These(in_force))
}

fn load_with(paths: &PathOptions, tolerated: Tolerated<'_>) -> Result<Configuration> {
    let here = ProcessEnvironment::real();
    let file = here.config(paths);
    let data = here.data(paths, None);
    let translated = paths.coturn.as_ref().map(|coturn| coturn.translate(&data)).transpose()?;
    let settings = read_with(file.as_deref(), tolerated).map_err(|errors| {
        let errors = match (&paths.coturn, &translated) {
            (Some(coturn), Some(import)) => coturn.at_lines(import, errors),
            _ => errors,
        };
        let count = errors.0.len();
        let s = if count == 1 { "" } else { "s" };
        Failure::usage(anyhow!("{count} error{s} in the configuration:\n{errors}"))
    })?;
    let mut configuration = here.complete(paths, file, settings);
    let settings = &mut configuration.settings;
    if settings.data.when_unwritable == WhenUnwritable::Temporary {
        let directory = settings.data.directory.clone();
        settings.set_data_directory(data_directory::writable_or_temporary(directory)?);
    }
    if let Some(import) = &translated {
        CoturnConfig::put_users(import, &configuration.settings)?;
    }
    Ok(configuration)
}

/// Reads a configuration file, or the defaults. Paths on the command line override the values.
pub(crate) fn complete(
    paths: &PathOptions,
    file: Option<PathBuf>,
) -> Result<Settings, SettingsErrors> {
    let settings = read(file.as_deref())?;
    Ok(ProcessEnvironment::real().complete(paths, file, settings).settings)
}

/// Reads a configuration file whose certificates may be missing, for commands about users.
pub(crate) fn complete_without_certificates(
    paths: &PathOptions,
    file: PathBuf,
) -> Result<Settings, SettingsErrors> {
    let settings = read_with(Some(&file), Tolerated::All)?;
    Ok(ProcessEnvironment::real().complete(paths, Some(file), settings).settings)
}

/// Reads a configuration file, or the defaults.
pub(crate) fn read(file: Option<&Path>) -> Result<Settings, SettingsErrors> {
    read_with(file, Tolerated::These(&[]))
}

fn read_with(file: Option<&Path>, tolerated: Tolerated<'_>) -> Result<Settings, SettingsErrors> {
    let settings = settings::load(file, &environment())?;
    let error = |place, key: &str, what, help: String| SettingsError {
        place,
        key: key.to_owned(),
        what,
        help,
    };
    let mut errors = Vec::new();
    if let Some((what, help)) = realm_slip(&settings.realm) {
        errors.push(error(settings.place("realm"), "realm", what, help));
    }
    for (index, realm) in settings.realms.iter().enumerate() {
        if let Some((what, help)) = realm.name.as_deref().and_then(realm_slip) {
            let what = format!("entry {}: {what}", index + 1);
            errors.push(error(settings.entry_place("realms", index), "realms", what, help));
        }
    }
    const CERTIFICATES: &str = "tls.certificates";
    for (index, files) in settings.certificates().iter().enumerate() {
        let is_tolerated = match tolerated {
            Tolerated::These(tolerated) => tolerated.contains(files),
            Tolerated::All => true,
            Tolerated::Awaited => settings.tls.when_unusable == WhenUnusable::Wait,
        };
        if is_tolerated {
            continue;
        }
        if let Err(Unusable { what, help }) = certificates::read_one(files) {
            let place = settings.entry_place(CERTIFICATES, index);
            errors.push(error(place, CERTIFICATES, what, help.to_owned()));
        }
    }
    for (key, authorities) in [
        ("tls.client_authorities", settings.client_authorities()),
        ("api.client_authorities", settings.api_client_authorities()),
    ] {
        if let Err(Unusable { what, help }) = certificates::read_authorities(authorities.as_deref())
        {
            errors.push(error(settings.place(key), key, what, help.to_owned()));
        }
    }
    const ACME: &str = "acme.authorities";
    if let Err(unusable) = renewal::order(&settings) {
        let help = "name a PEM file with the certificates that sign the authority's own";
        errors.push(error(settings.place(ACME), ACME, unusable.to_string(), help.to_owned()));
    }
    if errors.is_empty() { Ok(settings) } else { Err(SettingsErrors(errors)) }
}

/// Returns an error and a remedy for an unprepared realm. Clients prepare the realm as an
/// OpaqueString (RFC 8489 §9.2.2) before they derive keys. A realm in another form would thus be
/// two realms.
pub(crate) fn realm_slip(realm: &str) -> Option<(String, String)> {
    match stun_wire::opaque_string(realm) {
        Ok(prepared) if prepared == realm => None,
        Ok(prepared) => Some((
            format!("\"{realm}\" is not in the form that clients bring it into (RFC 8265)"),
            format!("write \"{prepared}\""),
        )),
        Err(_) => Some((
            format!("{realm:?} has a character that RFC 8265 does not allow in it"),
            "write the domain of the service, such as \"example.org\"".to_owned(),
        )),
    }
}

/// Returns true for a configuration of the packaged service.
pub(crate) fn is_of_service(file: &Path) -> bool {
    file.parent() == Path::new(CONFIG).parent() && new_files::group_of_service(file).is_some()
}

/// Returns true if a realm was configured: by a named configuration file, or by a variable.
pub(crate) fn names_realm(paths: &PathOptions) -> bool {
    let here = ProcessEnvironment::real();
    paths.config.is_some()
        || here.path_from(CONFIG_VARIABLE).is_some()
        || here.path_from("TURNPIKE_REALM").is_some()
}

/// Returns the configuration file that the server would read, if one exists.
pub(crate) fn configuration_file(paths: &PathOptions) -> Option<PathBuf> {
    ProcessEnvironment::real().config(paths)
}

/// Control socket of the running server.
#[derive(Debug)]
pub(crate) struct Socket {
    /// Path of the control socket.
    pub(crate) path: PathBuf,
    /// Errors of the configuration, if it was unreadable. The server may then have another control
    /// socket.
    pub(crate) unread: Option<SettingsErrors>,
}

/// Returns the control socket of the running server. Errors in other parts of the configuration are
/// ignored, because an operator who corrects them still needs the server.
pub(crate) fn control_socket(paths: &PathOptions) -> Socket {
    let here = ProcessEnvironment::real();
    here.control_socket(paths, |file| settings::paths(file, &environment()))
}

impl ProcessEnvironment<'_> {
    /// Returns the configuration file, if one exists.
    fn config(&self, paths: &PathOptions) -> Option<PathBuf> {
        if paths.coturn.is_some() {
            return Some(CoturnConfig::translation(&self.data(paths, None)));
        }
        let usual = || {
            let usual = PathBuf::from(CONFIG);
            (self.exists)(&usual).then_some(usual)
        };
        paths.config.clone().or_else(|| self.path_from(CONFIG_VARIABLE)).or_else(usual)
    }

    fn control_socket(
        &self,
        paths: &PathOptions,
        configured: impl FnOnce(Option<&Path>) -> Result<Paths, SettingsErrors>,
    ) -> Socket {
        if let Some(socket) = &paths.socket {
            return Socket { path: socket.clone(), unread: None };
        }
        let file = self.config(paths);
        match configured(file.as_deref()) {
            Ok(Paths { control: Some(socket), data_directory }) => {
                // A server under coturn's name has its socket in the data directory.
                let own = data_directory.join(CONTROL_SOCKET);
                let is_beside = !(self.exists)(&socket) && (self.exists)(&own);
                Socket { path: if is_beside { own } else { socket }, unread: None }
            }
            Ok(Paths { control: None, data_directory }) => {
                let said = file.is_some() || data_directory != Path::new(DATA);
                let data = self.data(paths, said.then_some(data_directory.as_path()));
                Socket { path: data.join(CONTROL_SOCKET), unread: None }
            }
            Err(errors) => {
                let own = self.data(paths, None).join(CONTROL_SOCKET);
                let packaged = PathBuf::from(PACKAGED_SOCKET);
                let is_packaged = !(self.exists)(&own) && (self.exists)(&packaged);
                let path = if is_packaged { packaged } else { own };
                Socket { path, unread: Some(errors) }
            }
        }
    }

    /// Overrides paths of the configuration by the command line.
    fn complete(
        &self,
        paths: &PathOptions,
        file: Option<PathBuf>,
        mut settings: Settings,
    ) -> Configuration {
        let configured = &settings.data.directory;
        let is_own = file.is_some() && paths.coturn.is_none();
        let said = is_own || configured != Path::new(DATA);
        let directory = self.data(paths, said.then_some(configured));
        settings.set_data_directory(directory);
        if paths.data.is_some() {
            settings.note_option("data.directory", "--data");
        }
        if let Some(socket) = &paths.socket {
            settings.set_control_socket(socket.clone());
            settings.note_option("control.socket", "--socket");
        }
        let coturn = paths.coturn.as_ref().map(|coturn| coturn.file.clone());
        Configuration { file, coturn, process: paths.process.clone(), settings }
    }

    /// Returns the data directory. `configured` is the directory in the configuration.
    fn data(&self, paths: &PathOptions, configured: Option<&Path>) -> PathBuf {
        paths
            .data
            .clone()
            .or_else(|| self.path_from(DATA_VARIABLE))
            .or_else(|| configured.map(Path::to_owned))
            .unwrap_or_else(|| self.usual_data())
    }

    /// Returns the packaged server's directory if it exists, to let commands of all users find it.
    /// Otherwise returns a directory of the user.
    fn usual_data(&self) -> PathBuf {
        if self.root || (self.exists)(Path::new(DATA)) {
            return DATA.into();
        }
        let own = self
            .path_from("XDG_DATA_HOME")
            .or_else(|| self.path_from("HOME").map(|home| home.join(".local/share")));
        own.map_or_else(|| "turnpike-data".into(), |own| own.join("turnpike"))
    }

    fn path_from(&self, name: &str) -> Option<PathBuf> {
        (self.env)(name).filter(|value| !value.is_empty()).map(PathBuf::from)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn environment_of<'a>(
        env: &'a dyn Fn(&str) -> Option<String>,
        exists: &'a dyn Fn(&Path) -> bool,
    ) -> ProcessEnvironment<'a> {
        ProcessEnvironment { env, exists, root: false }
    }

    fn defaults() -> Settings {
        settings::load(None, &Environment::empty()).unwrap()
    }

    #[test]
    fn the_command_line_comes_first_and_what_is_usual_last() {
        let env =
            |name: &str| (name == DATA_VARIABLE || name == CONFIG_VARIABLE).then(|| "/env".into());
        let here = environment_of(&env, &|_| true);
        let said = PathOptions { data: Some("/said".into()), ..PathOptions::default() };
        let configured = Some(Path::new("/configured"));
        assert_eq!(here.data(&said, configured), Path::new("/said"));
        assert_eq!(here.data(&PathOptions::default(), configured), Path::new("/env"));
        assert_eq!(here.config(&PathOptions::default()).unwrap(), Path::new("/env"));

        let here = environment_of(&|_| None, &|_| false);
        assert_eq!(here.data(&PathOptions::default(), configured), Path::new("/configured"));
        assert_eq!(here.data(&PathOptions::default(), None), Path::new("turnpike-data"));
        assert_eq!(here.config(&PathOptions::default()), None);
    }

    #[test]
    fn the_control_socket_is_found_whatever_else_is_wrong() {
        let directory = crate::testing::Directory::new("paths");
        let file = directory.path().join("t.toml");
        let here = environment_of(&|_| None, &|_| false);
        let paths = PathOptions { config: Some(file.clone()), ..PathOptions::default() };
        let ask = |text: &str, paths: &PathOptions| {
            fs::write(&file, text).unwrap();
            here.control_socket(paths, |file| settings::paths(file, &Environment::empty()))
        };

        let wrong = "relm = 5\n[relay]\nports = \"80-90\"\n";
        let found = ask(&format!("{wrong}[data]\ndirectory = \"/srv/t\"\n"), &paths);
        assert_eq!((found.path.to_str(), found.unread), (Some("/srv/t/control.sock"), None));
        let found = ask(&format!("{wrong}[control]\nsocket = \"/run/t.sock\"\n"), &paths);
        assert_eq!((found.path.to_str(), found.unread), (Some("/run/t.sock"), None));
        // A file without a directory refers to the default directory.
        assert_eq!(ask(wrong, &paths).path, Path::new(DATA).join("control.sock"));

        for (broken, what) in
            [("[data\n", "t.toml:1"), ("[data]\ndirectory = 5\n", "data.directory")]
        {
            let found = ask(broken, &paths);
            assert_eq!(found.path, Path::new("turnpike-data/control.sock"));
            let unread = found.unread.unwrap().to_string();
            assert!(unread.contains(what), "{unread}");
        }
        // The package's socket is used if it exists.
        let packaged = environment_of(&|_| None, &|path| path == Path::new(PACKAGED_SOCKET));
        let configured = |file: Option<&Path>| settings::paths(file, &Environment::empty());
        fs::write(&file, "[data\n").unwrap();
        assert_eq!(packaged.control_socket(&paths, configured).path, Path::new(PACKAGED_SOCKET));
        // The socket of a server under coturn's name is found.
        fs::write(&file, "[control]\nsocket = \"/run/t.sock\"\n").unwrap();
        let beside = Path::new(DATA).join(CONTROL_SOCKET);
        let is_beside = |path: &Path| path == beside;
        let other = environment_of(&|_| None, &is_beside);
        assert_eq!(other.control_socket(&paths, configured).path, beside);
        let said = PathOptions { socket: Some("/s".into()), ..paths };
        let found = ask("[data\n", &said);
        assert_eq!((found.path.to_str(), found.unread), (Some("/s"), None));
    }

    #[test]
    fn a_realm_is_in_the_form_that_clients_bring_it_into() {
        let directory = crate::testing::Directory::new("realm");
        let file = directory.path().join("t.toml");
        let load = |realm: &str| {
            fs::write(&file, format!("realm = \"{realm}\"\n")).unwrap();
            let paths = PathOptions { config: Some(file.clone()), ..PathOptions::default() };
            load(&paths).map(|loaded| loaded.settings.realm.to_string())
        };
        assert_eq!(load("caf\u{e9}.example").unwrap(), "caf\u{e9}.example");
        let error = load("cafe\u{301}.example").unwrap_err().to_string();
        assert!(
            error.contains("t.toml:1: realm") && error.contains("write \"caf\u{e9}"),
            "{error}"
        );
        let error = load("a\u{ad}b").unwrap_err().to_string();
        assert!(error.contains("RFC 8265 does not allow"), "{error}");
    }

    #[test]
    fn a_packaged_server_is_found_by_everybody() {
        let here = environment_of(&|_| Some("/home/bob".to_owned()), &|_| true);
        assert_eq!(here.usual_data(), Path::new(DATA));
        let root = ProcessEnvironment { root: true, ..environment_of(&|_| None, &|_| false) };
        assert_eq!(root.usual_data(), Path::new(DATA));
        let home = |name: &str| (name == "HOME").then(|| "/home/bob".to_owned());
        let user = environment_of(&home, &|_| false);
        assert_eq!(user.usual_data(), Path::new("/home/bob/.local/share/turnpike"));
    }

    #[test]
    fn a_file_that_names_the_default_directory_is_obeyed() {
        let here = environment_of(&|_| None, &|_| false);
        let without = here.complete(&PathOptions::default(), None, defaults());
        assert_eq!(without.settings.data.directory, Path::new("turnpike-data"));
        let with = here.complete(&PathOptions::default(), Some("f".into()), defaults());
        assert_eq!(with.settings.data.directory, Path::new(DATA));
        let paths = PathOptions { socket: Some("/s".into()), ..PathOptions::default() };
        let with = here.complete(&paths, Some("f".into()), defaults());
        assert_eq!(with.settings.control_socket(), Path::new("/s"));
    }
}
