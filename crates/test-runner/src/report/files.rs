//! Files of a run in the target directory.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::time::Duration;

/// Commit and result of the last run.
const TESTED: &str = "tested";

/// Outputs of first tries of tests that passed at the second try, over all runs.
const SECOND_TRIES: &str = "second-tries";

/// Duration of each test in the last run, in milliseconds.
const DURATIONS: &str = "test-durations";

/// Target directory, with the durations of the previous run.
#[derive(Debug)]
pub(super) struct Directory {
    path: PathBuf,
    durations: BTreeMap<String, Duration>,
}

impl Default for Directory {
    /// Uses the target directory of cargo.
    fn default() -> Self {
        Self::at(std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()).into())
    }
}

impl Directory {
    fn at(path: PathBuf) -> Self {
        let text = fs::read_to_string(path.join(DURATIONS)).unwrap_or_default();
        let read = |line: &str| {
            let (milliseconds, name) = line.split_once(' ')?;
            Some((name.to_owned(), Duration::from_millis(milliseconds.parse().ok()?)))
        };
        Self { path, durations: text.lines().filter_map(read).collect() }
    }

    pub(super) fn duration(&self, name: &str) -> Option<Duration> {
        self.durations.get(name).copied()
    }

    pub(super) fn write_result(&self, text: &str) -> io::Result<()> {
        fs::create_dir_all(&self.path)?;
        fs::write(self.path.join(TESTED), text)
    }

    /// Writes durations. Tests that did not run keep the previous duration.
    pub(super) fn write_durations(&self, durations: &BTreeMap<String, Duration>) -> io::Result<()> {
        let mut all = self.durations.clone();
        all.extend(durations.iter().map(|(name, duration)| (name.clone(), *duration)));
        let lines = all.iter().map(|(name, duration)| format!("{} {name}\n", duration.as_millis()));
        fs::write(self.path.join(DURATIONS), lines.collect::<String>())
    }

    pub(super) fn add_second_try(&self, text: &str) -> io::Result<()> {
        let mut file =
            OpenOptions::new().append(true).create(true).open(self.path.join(SECOND_TRIES))?;
        file.write_all(text.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_and_second_tries_are_found_by_the_next_run() {
        let path = std::env::temp_dir().join(format!("run-files-{}", std::process::id()));
        let first = Directory::at(path.clone());
        first.write_result("0123\npassed\n").unwrap();
        let seconds = |seconds| Duration::from_secs(seconds);
        first.write_durations(&BTreeMap::from([("a b::c".to_owned(), seconds(3))])).unwrap();
        first.add_second_try("one\n").unwrap();
        let next = Directory::at(path.clone());
        assert_eq!((next.duration("a b::c"), next.duration("a b::d")), (Some(seconds(3)), None));
        next.write_durations(&BTreeMap::from([("a b::d".to_owned(), seconds(4))])).unwrap();
        next.add_second_try("two\n").unwrap();
        let last = Directory::at(path.clone());
        assert_eq!(
            (last.duration("a b::c"), last.duration("a b::d")),
            (Some(seconds(3)), Some(seconds(4)))
        );
        assert_eq!(fs::read_to_string(path.join(SECOND_TRIES)).unwrap(), "one\ntwo\n");
        fs::remove_dir_all(path).unwrap();
    }
}
