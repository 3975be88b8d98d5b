//! Failures of commands: an error, advice, and an exit status.

use std::fmt;
use std::process::ExitCode;

/// Error of a command, with optional advice.
#[derive(Debug)]
pub(crate) struct Failure {
    kind: Kind,
    error: anyhow::Error,
    hint: Option<String>,
}

/// Kind of a failure, which determines the exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// The command was tried and failed. Exit code 1.
    Failed,
    /// The command line or the configuration is wrong, and the command was not tried. Exit code 2,
    /// as for errors of clap.
    Usage,
}

impl Failure {
    /// Creates a failure of a command that was tried.
    pub(crate) fn failed(error: impl Into<anyhow::Error>) -> Self {
        Self { kind: Kind::Failed, error: error.into(), hint: None }
    }

    /// Creates a failure due to a wrong command line or configuration.
    pub(crate) fn usage(error: impl Into<anyhow::Error>) -> Self {
        Self { kind: Kind::Usage, error: error.into(), hint: None }
    }

    /// Adds advice to the failure.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Returns the error and the advice as one line, for output other than a terminal.
    pub(crate) fn reason(&self) -> String {
        match &self.hint {
            Some(hint) => format!("{}; {hint}", self.text()),
            None => self.text(),
        }
    }

    /// Returns the error and its causes without repetitions.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        for cause in self.error.chain().map(ToString::to_string) {
            if text.is_empty() {
                text = cause;
            } else if !text.contains(&cause) {
                text = format!("{text}: {cause}");
            }
        }
        text
    }

    /// Returns the exit code.
    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self.kind {
            Kind::Failed => 1,
            Kind::Usage => 2,
        })
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}", self.text())?;
        match &self.hint {
            Some(hint) => write!(f, "\n  hint: {hint}"),
            None => Ok(()),
        }
    }
}

impl<E: std::error::Error + Send + Sync + 'static> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::failed(error)
    }
}

/// Extension of results that adds context to an error.
pub(crate) trait OrFail<T> {
    /// Converts the error to a failure that starts with `what`: "cannot ...".
    fn or_fail(self, what: &'static str) -> Result<T>;
}

impl<T, E: std::error::Error + Send + Sync + 'static> OrFail<T> for Result<T, E> {
    fn or_fail(self, what: &'static str) -> Result<T> {
        self.map_err(|error| Failure::failed(anyhow::Error::new(error).context(what)))
    }
}

/// Result of most functions of this crate.
pub(crate) type Result<T, E = Failure> = std::result::Result<T, E>;

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    #[test]
    fn says_what_and_what_next() {
        let failure = Failure::usage(anyhow!("inner").context("outer")).hint("do this");
        assert_eq!(failure.to_string(), "error: outer: inner\n  hint: do this");
        assert_eq!(failure.exit_code(), ExitCode::from(2));
        let twice = Failure::failed(anyhow!("inner").context("outer: inner"));
        assert_eq!(twice.to_string(), "error: outer: inner");
        assert_eq!(Failure::failed(anyhow!("x")).exit_code(), ExitCode::from(1));
    }
}
