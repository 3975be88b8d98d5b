//! Paths by which a running server is reached, from a configuration that may be wrong elsewhere: an
//! operator who is correcting it still needs the server.

use std::path::{Path, PathBuf};

use crate::check;
use crate::document::Document;
use crate::environment::Environment;
use crate::error::{Errors, Place, SettingsErrors};
use crate::file::File;

/// Paths of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paths {
    /// The control socket, if configured.
    pub control: Option<PathBuf>,
    /// The data directory, as configured or by default.
    pub data_directory: PathBuf,
}

/// Reads the paths alone, whatever else is wrong.
///
/// # Errors
/// The file cannot be read or is not TOML, or one of their own keys is wrong.
pub fn paths(path: Option<&Path>, environment: &Environment) -> Result<Paths, SettingsErrors> {
    let mut errors = Errors::default();
    let (file, document) = read(path, environment, &mut errors);
    check::paths(&file, &document, &mut errors);
    errors.retain(|error| match &error.place {
        // Without a key it is about the file as a whole, or about an unknown variable.
        Place::File { .. } if error.key.is_empty() => true,
        Place::File { .. } | Place::Environment(_) | Place::Option(_) | Place::Default => {
            ["control", check::SOCKET, "data", check::DIRECTORY].contains(&error.key.as_str())
        }
    });
    errors.or(Paths { control: file.control.socket, data_directory: file.data.directory })
}

/// The configuration file and the files that it names: secrets, keys of tokens, certificates. None
/// of the latter is opened; of a file that cannot be read it is that file alone.
#[must_use]
pub fn named_files(path: Option<&Path>, environment: &Environment) -> Vec<PathBuf> {
    let (file, document) = read(path, environment, &mut Errors::default());
    let auth = &file.auth;
    let realms = file.realms.iter().flat_map(|realm| &realm.secrets);
    let secrets = auth.secrets.iter().chain(realms).map(|entry| &entry.secret_file);
    let realms = file.realms.iter().flat_map(|realm| &realm.token_keys);
    let keys = auth.token_keys.iter().chain(realms).map(|entry| &entry.key_file);
    let entries = file.tls.certificates.iter();
    let certificates = entries.flat_map(|entry| [&entry.chain, &entry.key, &entry.password_file]);
    let single = [
        &auth.secret_file,
        &auth.nonce_key_file,
        &file.authorizer.authorization_file,
        &file.authorizer.authorities,
        &file.signed_tokens.keys_file,
        &file.signed_tokens.authorities,
        &file.signed_tokens.secret_file,
        &file.accounting.webhook_authorization_file,
        &file.accounting.webhook_authorities,
        &file.log.address_key_file,
        &file.users.database_file,
        &file.accounting.redis_file,
    ];
    let all = single.into_iter().chain(secrets).chain(keys).chain(certificates);
    let named = all.flatten().map(PathBuf::as_path);
    let tls = file.tls.client_authorities.iter().chain(&file.acme.authorities);
    let authorities = tls.chain(&file.api.client_authorities).map(|path| Path::new(&**path));
    let beside = named.chain(authorities).map(|path| document.directory().join(path));
    path.map(Path::to_owned).into_iter().chain(beside).collect()
}

fn read(path: Option<&Path>, environment: &Environment, errors: &mut Errors) -> (File, Document) {
    let mut document = match path {
        None => Document::default(),
        Some(path) => match crate::read(path) {
            Ok(text) => Document::parse(path, &text, errors),
            Err((what, help)) => {
                let place = Place::File { path: path.to_owned(), line: None };
                errors.add(place, "", what, help);
                Document::default()
            }
        },
    };
    document.override_by(environment, errors);
    let file = document.read(errors);
    (file, document)
}
