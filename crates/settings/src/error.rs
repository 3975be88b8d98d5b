//! Errors of a configuration: all of them at once, each with its place and advice.

use std::fmt;
use std::path::PathBuf;

/// Place of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the configuration file.
    File {
        /// The file, as it was named.
        path: PathBuf,
        /// The line, from 1; `None` when it is about the file as a whole.
        line: Option<usize>,
    },
    /// In this environment variable.
    Environment(String),
    /// This option of the command line.
    Option(&'static str),
    /// Nowhere: there is no file and no variable, so it is about a default.
    Default,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { path, line: Some(line) } => write!(f, "{}:{line}", path.display()),
            Self::File { path, line: None } => write!(f, "{}", path.display()),
            Self::Environment(name) => write!(f, "environment variable {name}"),
            Self::Option(name) => write!(f, "option {name}"),
            Self::Default => f.write_str("configuration"),
        }
    }
}

/// One error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingsError {
    /// Its place.
    pub place: Place,
    /// The key, such as `relay.ports`; empty when it is about the file as a whole.
    pub key: String,
    /// The error, as the end of the sentence "`key`: ...".
    pub what: String,
    /// Advice.
    pub help: String,
}

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.place)?;
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        write!(f, "{}\n    {}", self.what, self.help)
    }
}

impl std::error::Error for SettingsError {}

/// All errors of a configuration, in the order of the file; never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingsErrors(pub Vec<SettingsError>);

impl fmt::Display for SettingsErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            error.fmt(f)?;
        }
        Ok(())
    }
}

impl std::error::Error for SettingsErrors {}

/// Gathers errors while a configuration is read.
#[derive(Debug, Default)]
pub(crate) struct Errors(Vec<SettingsError>);

impl Errors {
    pub(crate) fn add(
        &mut self,
        place: Place,
        key: impl Into<String>,
        what: impl Into<String>,
        help: impl Into<String>,
    ) {
        self.0.push(SettingsError { place, key: key.into(), what: what.into(), help: help.into() });
    }

    /// Keeps the errors that `matters` accepts.
    pub(crate) fn retain(&mut self, matters: impl FnMut(&SettingsError) -> bool) {
        self.0.retain(matters);
    }

    /// `value`, or the errors when there are any: lines in order, then variables, then the rest.
    pub(crate) fn or<T>(mut self, value: T) -> Result<T, SettingsErrors> {
        if self.0.is_empty() {
            return Ok(value);
        }
        self.0.sort_by_key(|error| match &error.place {
            Place::File { line: Some(line), .. } => (0, *line),
            Place::File { line: None, .. } => (1, 0),
            Place::Environment(_) | Place::Option(_) => (2, 0),
            Place::Default => (3, 0),
        });
        Err(SettingsErrors(self.0))
    }
}
