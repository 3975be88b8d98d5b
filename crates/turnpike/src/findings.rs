//! Findings about a valid configuration, its files and its host, each with a location and advice.

use std::fmt;

use serde::{Serialize, Serializer};
use settings::{Place, Settings};

/// Severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Severity {
    /// The state is probably not intended, or needs a correction soon.
    Warning,
    /// The state keeps clients away, prevents a start, or discloses secrets.
    Problem,
}

impl Severity {
    const fn word(self) -> &'static str {
        match self {
            Self::Warning => "warning",
            Self::Problem => "problem",
        }
    }
}

/// Finding about a valid configuration, its files or its host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Finding {
    pub(crate) severity: Severity,
    /// Line of the file, environment variable, or complete file.
    #[serde(serialize_with = "as_text")]
    pub(crate) place: Place,
    /// Key of the setting, such as `tls.certificates`. Empty for a finding about the host.
    pub(crate) key: String,
    /// Description, as the last part of the sentence "`key`: ...".
    pub(crate) what: String,
    /// Advice on the remedy.
    pub(crate) help: String,
}

impl Finding {
    /// Creates a warning about a key.
    pub(crate) fn warning(
        settings: &Settings,
        key: &str,
        what: impl Into<String>,
        help: impl Into<String>,
    ) -> Self {
        Self {
            severity: Severity::Warning,
            place: settings.place(key),
            key: key.to_owned(),
            what: what.into(),
            help: help.into(),
        }
    }

    /// Creates a problem about a key.
    pub(crate) fn problem(
        settings: &Settings,
        key: &str,
        what: impl Into<String>,
        help: impl Into<String>,
    ) -> Self {
        Self { severity: Severity::Problem, ..Self::warning(settings, key, what, help) }
    }

    /// Returns the finding with another location.
    pub(crate) fn at(self, place: Place) -> Self {
        Self { place, ..self }
    }

    /// Formats the finding as one line for a log.
    pub(crate) fn line(&self) -> String {
        let Self { key, what, help, .. } = self;
        let colon = if key.is_empty() { "" } else { ": " };
        format!("{key}{colon}{what}; {help}")
    }
}

/// Formats the finding as two lines for a terminal.
impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { severity, place, key, what, help } = self;
        write!(f, "{}: ", severity.word())?;
        if *place != Place::Default {
            write!(f, "{place}: ")?;
        }
        if !key.is_empty() {
            write!(f, "{key}: ")?;
        }
        write!(f, "{what}\n    {help}")
    }
}

fn as_text<S: Serializer>(place: &Place, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(place)
}
