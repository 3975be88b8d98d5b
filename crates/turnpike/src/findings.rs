//! Findings about a valid configuration, its files and its host: each with its place and advice.

use std::fmt;

use serde::{Serialize, Serializer};
use settings::{Place, Settings};

/// Weight of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Severity {
    /// Probably not intended, or to be mended soon.
    Warning,
    /// Keeps clients away, keeps the server from starting, or shows secrets to others.
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

/// A finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Finding {
    pub(crate) severity: Severity,
    /// Line of the file, variable, or the file as a whole.
    #[serde(serialize_with = "as_text")]
    pub(crate) place: Place,
    /// The key, such as `tls.certificates`; empty if it is about the host.
    pub(crate) key: String,
    /// The finding, as the end of the sentence "`key`: ...".
    pub(crate) what: String,
    /// Advice.
    pub(crate) help: String,
}

impl Finding {
    /// A warning about a key.
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

    /// A problem of a key.
    pub(crate) fn problem(
        settings: &Settings,
        key: &str,
        what: impl Into<String>,
        help: impl Into<String>,
    ) -> Self {
        Self { severity: Severity::Problem, ..Self::warning(settings, key, what, help) }
    }

    /// The same at another place.
    pub(crate) fn at(self, place: Place) -> Self {
        Self { place, ..self }
    }

    /// One line, for a log.
    pub(crate) fn line(&self) -> String {
        let Self { key, what, help, .. } = self;
        let colon = if key.is_empty() { "" } else { ": " };
        format!("{key}{colon}{what}; {help}")
    }
}

/// Two lines, for people.
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
