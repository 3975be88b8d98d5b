//! Files of a run in the target directory.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::time::Duration;

use crate::process::Times;

/// Commit and result of the last run.
const TESTED: &str = "tested";

/// Outputs of first tries of tests that passed at the second try, over all runs.
const SECOND_TRIES: &str = "second-tries";

/// Outputs of the tests that failed twice in the last run.
const FAILURES: &str = "failures";

/// Duration and processor time of each test in the last run, in milliseconds.
const TIMES: &str = "test-times";

/// Target directory, with the times of the previous run.
#[derive(Debug)]
pub(super) struct Directory {
    path: PathBuf,
    times: BTreeMap<String, Times>,
}

impl Default for Directory {
    /// Uses the target directory of cargo.
    fn default() -> Self {
        Self::at(std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()).into())
    }
}

impl Directory {
    fn at(path: PathBuf) -> Self {
        let text = fs::read_to_string(path.join(TIMES)).unwrap_or_default();
        let read = |line: &str| {
            let mut fields = line.splitn(3, ' ');
            let mut time = || Some(Duration::from_millis(fields.next()?.parse().ok()?));
            let times = Times { duration: time()?, processor: time()? };
            Some((fields.next()?.to_owned(), times))
        };
        Self { path, times: text.lines().filter_map(read).collect() }
    }

    pub(super) fn times(&self, name: &str) -> Option<Times> {
        self.times.get(name).copied()
    }

    pub(super) fn write_result(&self, text: &str) -> io::Result<()> {
        fs::create_dir_all(&self.path)?;
        fs::write(self.path.join(TESTED), text)
    }

    pub(super) fn write_failures(&self, text: &str) -> io::Result<()> {
        fs::write(self.path.join(FAILURES), text)
    }

    /// Writes times. Tests that did not run keep the previous times.
    pub(super) fn write_times(&self, times: &BTreeMap<String, Times>) -> io::Result<()> {
        let mut all = self.times.clone();
        all.extend(times.iter().map(|(name, times)| (name.clone(), *times)));
        let lines = all.iter().map(|(name, Times { duration, processor })| {
            format!("{} {} {name}\n", duration.as_millis(), processor.as_millis())
        });
        fs::write(self.path.join(TIMES), lines.collect::<String>())
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
    fn times_and_second_tries_are_found_by_the_next_run() {
        let path = std::env::temp_dir().join(format!("run-files-{}", std::process::id()));
        let first = Directory::at(path.clone());
        first.write_result("0123\npassed\n").unwrap();
        let seconds = |seconds| Times {
            duration: Duration::from_secs(seconds),
            processor: Duration::from_millis(seconds),
        };
        first.write_times(&BTreeMap::from([("a b::c".to_owned(), seconds(3))])).unwrap();
        first.add_second_try("one\n").unwrap();
        let next = Directory::at(path.clone());
        assert_eq!((next.times("a b::c"), next.times("a b::d")), (Some(seconds(3)), None));
        next.write_times(&BTreeMap::from([("a b::d".to_owned(), seconds(4))])).unwrap();
        next.add_second_try("two\n").unwrap();
        let last = Directory::at(path.clone());
        assert_eq!(
            (last.times("a b::c"), last.times("a b::d")),
            (Some(seconds(3)), Some(seconds(4)))
        );
        assert_eq!(fs::read_to_string(path.join(SECOND_TRIES)).unwrap(), "one\ntwo\n");
        fs::remove_dir_all(path).unwrap();
    }
}
