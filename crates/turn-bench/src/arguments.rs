//! Arguments that several commands take.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::Args;

use crate::outcome::Outcome;
use crate::text;

/// A rate per second: a number, or `max`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rate {
    /// Unlimited.
    Max,
    /// Per second, 1 or more.
    PerSecond(u32),
}

impl Rate {
    /// The number; `None` when unlimited.
    #[must_use]
    pub const fn per_second(self) -> Option<u32> {
        match self {
            Self::Max => None,
            Self::PerSecond(rate) => Some(rate),
        }
    }
}

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "max" {
            return Ok(Self::Max);
        }
        match text.parse() {
            Ok(rate @ 1..) => Ok(Self::PerSecond(rate)),
            Ok(0) | Err(_) => Err(format!("{text:?} is neither a number per second nor max")),
        }
    }
}

/// The longest time, in seconds: a day.
const SECONDS_MAX: f64 = 86_400.0;

/// A time in seconds, with or without a fraction.
///
/// # Errors
/// Not a number, negative, or longer than a day.
pub fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.0..=SECONDS_MAX).contains(&seconds) => {
            Ok(Duration::from_secs_f64(seconds))
        }
        Ok(_) | Err(_) => Err(format!("{text:?} is no time in seconds, such as 0.5")),
    }
}

/// Destination of a result.
#[derive(Clone, Debug, Default, Args)]
pub struct OutputArgs {
    /// Append the result to this file as one line of JSON; - prints it instead of the text
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

impl OutputArgs {
    /// Prints the result as text, or as JSON, and appends it to the file.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&self, outcome: &Outcome) -> Result<()> {
        let text = text::of(outcome);
        let json = || serde_json::to_string(outcome).context("the result as JSON");
        let mut out = std::io::stdout().lock();
        let Some(path) = &self.json else {
            return writeln!(out, "{text}").context("standard output");
        };
        if path.as_os_str() == "-" {
            return writeln!(out, "{}", json()?).context("standard output");
        }
        writeln!(out, "{text}").context("standard output")?;
        let name = || path.display().to_string();
        let mut file =
            OpenOptions::new().append(true).create(true).open(path).with_context(name)?;
        // One write of one line: readers never see half of it.
        file.write_all(format!("{}\n", json()?).as_bytes()).with_context(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_a_number_or_max() {
        assert_eq!("max".parse(), Ok(Rate::Max));
        assert_eq!("1000".parse(), Ok(Rate::PerSecond(1000)));
        for wrong in ["0", "-1", "", "fast", "1.5"] {
            assert!(wrong.parse::<Rate>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn seconds_may_have_a_fraction() {
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        assert_eq!(seconds("10"), Ok(Duration::from_secs(10)));
        for wrong in ["-1", "inf", "NaN", "", "1 s", "1e9"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }
}
