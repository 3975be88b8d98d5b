//! The command line.

/// Help text.
pub(crate) const USAGE: &str = "usage: run-tests [--no-checks] [--package NAME]... [--rounds N] [--busy N] [TEXT]...
  --no-checks     tests only: no formatting, lints, documentation and other checks
  --package NAME  tests of this package only; several are possible
  --rounds N      run the tests N times
  --busy N        beside N processes that use as much processor time as they get
  TEXT            tests whose package and name (`e2e upgrade::...`) contain one of the texts; implies --no-checks";

/// Choices of the caller.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Arguments {
    /// Runs formatting, lints and the other checks.
    pub(crate) runs_checks: bool,
    /// Number of times that the tests run.
    pub(crate) rounds: u32,
    /// Number of busy processes.
    pub(crate) busy: u32,
    packages: Vec<String>,
    texts: Vec<String>,
}

impl Arguments {
    /// # Errors
    /// A sentence about the first wrong argument.
    pub(crate) fn parse<'a>(words: impl Iterator<Item = &'a str>) -> Result<Self, String> {
        let mut words = words;
        let mut found =
            Self { runs_checks: true, packages: Vec::new(), rounds: 1, busy: 0, texts: Vec::new() };
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or_else(|| format!("{word}: a value is missing"));
            match word {
                "--no-checks" => found.runs_checks = false,
                "--package" | "-p" => found.packages.push(value()?.to_owned()),
                "--rounds" => found.rounds = number(word, value()?, 1)?,
                "--busy" => found.busy = number(word, value()?, 0)?,
                _ if word.starts_with('-') => {
                    return Err(format!("{word}: there is no such option"));
                }
                text => found.texts.push(text.to_owned()),
            }
        }
        found.runs_checks &= found.texts.is_empty() && found.packages.is_empty();
        Ok(found)
    }

    /// Returns a line about the selected checks and tests.
    pub(crate) fn chosen(&self) -> String {
        if self.runs_checks {
            return "all checks and tests".to_owned();
        }
        let packages = self.packages.iter().map(|package| format!(" of {package}"));
        let texts = self.texts.iter().map(|text| format!(" {text}"));
        let words: String = packages.chain(texts).collect();
        format!("tests{}", if words.is_empty() { " of all packages" } else { &words })
    }

    /// Returns the packages and texts that select no test. `tests` has package and full name.
    pub(crate) fn without_tests<'a>(
        &'a self,
        tests: impl Iterator<Item = (&'a str, String)> + Clone,
    ) -> Vec<&'a str> {
        let packages = self
            .packages
            .iter()
            .filter(|chosen| !tests.clone().any(|(package, _)| package == **chosen));
        let texts = self
            .texts
            .iter()
            .filter(|text| !tests.clone().any(|(_, full_name)| full_name.contains(&***text)));
        packages.chain(texts).map(String::as_str).collect()
    }

    /// Returns true for a selected test.
    pub(crate) fn includes(&self, package: &str, full_name: &str) -> bool {
        let of_package =
            self.packages.is_empty() || self.packages.iter().any(|chosen| chosen == package);
        of_package
            && (self.texts.is_empty() || self.texts.iter().any(|text| full_name.contains(text)))
    }
}

fn number(option: &str, text: &str, least: u32) -> Result<u32, String> {
    let number = text.parse().ok().filter(|number| *number >= least);
    number.ok_or_else(|| format!("{option} {text}: a number from {least} on is needed"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Arguments, String> {
        Arguments::parse(line.split_whitespace())
    }

    #[test]
    fn everything_runs_without_arguments() {
        let all = parse("").unwrap();
        assert!(all.runs_checks && all.includes("e2e", "e2e upgrade::a"));
        assert_eq!((all.rounds, all.busy), (1, 0));
    }

    #[test]
    fn a_choice_leaves_checks_out() {
        let some = parse("-p e2e --rounds 20 --busy 4 upgrade restart").unwrap();
        assert_eq!((some.runs_checks, some.rounds, some.busy), (false, 20, 4));
        assert!(some.includes("e2e", "e2e upgrade::a") && !some.includes("e2e", "e2e tls::b"));
        assert!(!some.includes("turn-proto", "turn-proto upgrade::a"));
    }

    #[test]
    fn a_selection_says_what_it_consists_of() {
        assert_eq!(parse("").unwrap().chosen(), "all checks and tests");
        assert_eq!(parse("--no-checks").unwrap().chosen(), "tests of all packages");
        assert_eq!(parse("-p e2e upgrade").unwrap().chosen(), "tests of e2e upgrade");
    }

    #[test]
    fn words_that_select_nothing_are_named() {
        let tests = [("e2e", "e2e upgrade::a".to_owned())];
        let arguments = parse("-p e2e -p e3e upgrade downgrade").unwrap();
        assert_eq!(arguments.without_tests(tests.into_iter()), ["e3e", "downgrade"]);
    }

    #[test]
    fn wrong_arguments_are_named() {
        assert_eq!(parse("--round 2").unwrap_err(), "--round: there is no such option");
        assert_eq!(parse("--rounds 0").unwrap_err(), "--rounds 0: a number from 1 on is needed");
        assert_eq!(parse("--package").unwrap_err(), "--package: a value is missing");
    }
}
