//! Where a server is to be found, from a configuration that may be wrong elsewhere: who is mending it
//! still wants to talk to the server that runs.

use std::path::{Path, PathBuf};

use crate::check;
use crate::document::Document;
use crate::environment::Environment;
use crate::error::{Errors, Place, SettingsErrors};

/// What the configuration says about places.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Places {
    /// The control socket, if it was said.
    pub control: Option<PathBuf>,
    /// The data directory, as said or by default.
    pub data_directory: PathBuf,
}

/// Reads the places alone, whatever else is wrong.
///
/// # Errors
/// What keeps the places from being known: the file cannot be read or is not TOML, or one of their own
/// keys is wrong.
pub fn places(path: Option<&Path>, environment: &Environment) -> Result<Places, SettingsErrors> {
    let mut errors = Errors::default();
    let mut document = match path {
        None => Document::default(),
        Some(path) => match crate::read(path) {
            Ok(text) => Document::parse(path, &text, &mut errors),
            Err((what, help)) => {
                let place = Place::File { path: path.to_owned(), line: None };
                errors.add(place, "", what, help);
                Document::default()
            }
        },
    };
    document.override_by(environment, &mut errors);
    let file = document.read(&mut errors);
    check::paths(&file, &document, &mut errors);
    errors.retain(|error| match &error.place {
        // Without a key it is about the file as a whole, or about a variable that is nobody's.
        Place::File { .. } if error.key.is_empty() => true,
        Place::File { .. } | Place::Environment(_) | Place::Default => {
            ["control", check::SOCKET, "data", check::DIRECTORY].contains(&error.key.as_str())
        }
    });
    let data_directory = file.data.directory.into();
    errors.or(Places { control: file.control.socket.map(Into::into), data_directory })
}
