//! Paths of the configuration, the data and the control socket: the command line first, then the
//! environment, then the configuration file, then the default.

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

/// The configuration file of a packaged server.
pub(crate) const CONFIG: &str = "/etc/turnpike/turnpike.toml";

/// The data directory of a packaged server, and the default in a configuration file.
const DATA: &str = "/var/lib/turnpike";

/// The control socket in the configuration of the packages and of `turnpike init`.
const PACKAGED_SOCKET: &str = "/run/turnpike/control.sock";

/// Environment variables that name paths; the others that begin with `TURNPIKE_` override keys of
/// the configuration.
const CONFIG_VARIABLE: &str = "TURNPIKE_CONFIG";
const DATA_VARIABLE: &str = "TURNPIKE_DATA";

/// Inputs of the paths besides the command line.
pub(crate) struct ProcessEnvironment<'a> {
    /// Reads the environment.
    pub(crate) env: &'a dyn Fn(&str) -> Option<String>,
    /// Returns whether there is such a file or directory.
    pub(crate) exists: &'a dyn Fn(&Path) -> bool,
    /// True if the process runs as root.
    pub(crate) root: bool,
}

impl ProcessEnvironment<'static> {
    /// The environment of this process.
    pub(crate) fn real() -> Self {
        Self {
            env: &|name| std::env::var(name).ok(),
            exists: &|path| path.exists(),
            root: rustix::process::geteuid().is_root(),
        }
    }
}

/// A configuration, and the file it was read from.
#[derive(Debug)]
pub(crate) struct Configuration {
    /// The file, if there is one.
    pub(crate) file: Option<PathBuf>,
    /// The configuration of coturn that it was translated from.
    pub(crate) coturn: Option<PathBuf>,
    /// Place of the server in the system.
    pub(crate) process: ProcessOptions,
    /// Its values, with paths overridden by the command line.
    pub(crate) settings: Settings,
}

/// The data directory of a server whose configuration names none.
pub(crate) fn data_directory(paths: &PathOptions) -> PathBuf {
    ProcessEnvironment::real().data(paths, None)
}

/// The variables that override keys of the configuration.
pub(crate) fn environment() -> Environment {
    let others = [CONFIG_VARIABLE, DATA_VARIABLE, TAKES_OVER_VARIABLE];
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .filter(|(name, _)| !others.contains(&name.as_str()))
        .collect()
}

/// Returns true if this process takes the place of the running server.
pub(crate) fn takes_over() -> bool {
    std::env::var_os(TAKES_OVER_VARIABLE).is_some()
}

/// Certificates of a configuration that may be unusable.
#[derive(Clone, Copy)]
enum Tolerated<'a> {
    /// Certificates that apply, and those that a running server waits for.
    These(&'a [CertificateFiles]),
    /// Certificates that the configuration waits for.
    Awaited,
    /// Certificates of every kind.
    All,
}

/// Reads the configuration. The process of an upgrade waits for no certificate: the running process
/// may have it in effect.
pub(crate) fn load(paths: &PathOptions) -> Result<Configuration> {
    load_with(paths, if takes_over() { Tolerated::These(&[]) } else { Tolerated::Awaited })
}

/// Reads the configuration of a running server. Certificates in effect are not checked: their files
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

/// Reads a configuration file, or the defaults, with paths of the command line.
pub(crate) fn complete(
    paths: &PathOptions,
    file: Option<PathBuf>,
) -> Result<Settings, SettingsErrors> {
    let settings = read(file.as_deref())?;
    Ok(ProcessEnvironment::real().complete(paths, file, settings).settings)
}

/// Reads a configuration file whose certificates may be missing, for its users.
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

/// Error of a realm: clients prepare it as an OpaqueString (RFC 8489 §9.2.2) before they
/// make their keys of it, so that one which is not in that form already would be two realms.
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

/// Returns whether a realm was named: by a named configuration file, or by a variable.
pub(crate) fn names_realm(paths: &PathOptions) -> bool {
    let here = ProcessEnvironment::real();
    paths.config.is_some()
        || here.path_from(CONFIG_VARIABLE).is_some()
        || here.path_from("TURNPIKE_REALM").is_some()
}

/// The configuration file that the server would read, if there is one.
pub(crate) fn configuration_file(paths: &PathOptions) -> Option<PathBuf> {
    ProcessEnvironment::real().config(paths)
}

/// Control socket of the running server.
#[derive(Debug)]
pub(crate) struct Socket {
    /// The control socket.
    pub(crate) path: PathBuf,
    /// Why the configuration had no say in it, if it had none: the server may be elsewhere.
    pub(crate) unread: Option<SettingsErrors>,
}

/// The control socket of the running server. A configuration that is wrong elsewhere is no
/// obstacle: an operator who corrects it still needs the server.
pub(crate) fn control_socket(paths: &PathOptions) -> Socket {
    let here = ProcessEnvironment::real();
    here.control_socket(paths, |file| settings::paths(file, &environment()))
}

impl ProcessEnvironment<'_> {
    /// The configuration file, if there is one.
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

    /// Puts the command line's word on paths over the configuration's.
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

    /// The data directory; `configured` is the configuration's.
    fn data(&self, paths: &PathOptions, configured: Option<&Path>) -> PathBuf {
        paths
            .data
            .clone()
            .or_else(|| self.path_from(DATA_VARIABLE))
            .or_else(|| configured.map(Path::to_owned))
            .unwrap_or_else(|| self.usual_data())
    }

    /// The packaged server's directory where there is one, so that commands of all users find it;
    /// otherwise a directory of the user's own.
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
        // A file that does not name the directory means the default one.
        assert_eq!(ask(wrong, &paths).path, Path::new(DATA).join("control.sock"));

        for (broken, what) in
            [("[data\n", "t.toml:1"), ("[data]\ndirectory = 5\n", "data.directory")]
        {
            let found = ask(broken, &paths);
            assert_eq!(found.path, Path::new("turnpike-data/control.sock"));
            let unread = found.unread.unwrap().to_string();
            assert!(unread.contains(what), "{unread}");
        }
        // The package's own socket, where there is one.
        let packaged = environment_of(&|_| None, &|path| path == Path::new(PACKAGED_SOCKET));
        let configured = |file: Option<&Path>| settings::paths(file, &Environment::empty());
        fs::write(&file, "[data\n").unwrap();
        assert_eq!(packaged.control_socket(&paths, configured).path, Path::new(PACKAGED_SOCKET));
        // That of a server under coturn's name.
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
