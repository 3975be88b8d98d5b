//! Lines of a configuration file of coturn, and words of its command line.

use crate::options::{self, Takes};

/// An option as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Written {
    /// Line of the file, or number of the word on the command line; from 1.
    pub(crate) line: usize,
    /// The option's long name, or the text that is none.
    pub(crate) name: String,
    /// Its value; empty without one.
    pub(crate) value: String,
    /// The line as it was written.
    pub(crate) text: String,
}

/// Reads a file: `name=value`, or name and value apart; `#` begins a comment line.
pub(crate) fn file(text: &str) -> Vec<Written> {
    let mut all = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line_text = line.trim().trim_start_matches('\u{feff}');
        if line_text.is_empty() || line_text.starts_with('#') {
            continue;
        }
        let end = line_text.find(|c: char| c == '=' || c.is_whitespace());
        let (name, rest) = line_text.split_at(end.unwrap_or(line_text.len()));
        let rest = rest.trim_start();
        let value = rest.strip_prefix('=').unwrap_or(rest).trim();
        all.push(Written {
            line: index + 1,
            name: name.trim_start_matches("--").to_owned(),
            value: unquoted(value).to_owned(),
            text: line_text.to_owned(),
        });
    }
    all
}

/// Reads a command line, without the program's name: `--name=value`, `--name value`, `-p 3478`,
/// `-p3478`, `-nav`.
pub(crate) fn arguments(words: &[String]) -> Vec<Written> {
    let mut all = Vec::new();
    let mut words = words.iter().enumerate().peekable();
    while let Some((index, word)) = words.next() {
        let line = index + 1;
        if let Some(long) = word.strip_prefix("--") {
            let (name, value) = match long.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (long, None),
            };
            let takes = options::find(name).map(|option| option.takes);
            let value = value.or_else(|| {
                let wanted = takes == Some(Takes::Value);
                words.next_if(|_| wanted).map(|(_, value)| value.clone())
            });
            let name = options::find(name).map_or(name, |option| option.name).to_owned();
            all.push(Written { line, name, value: value.unwrap_or_default(), text: word.clone() });
        } else if let Some(short) = word.strip_prefix('-').filter(|short| !short.is_empty()) {
            let mut letters = short.chars();
            while let Some(letter) = letters.next() {
                let option = options::short(letter);
                let name = option.map_or_else(|| letter.to_string(), |one| one.name.to_owned());
                let mut value = String::new();
                if option.is_some_and(|option| option.takes == Takes::Value) {
                    value = letters.by_ref().collect();
                    if value.is_empty() {
                        value = words.next().map(|(_, word)| word.clone()).unwrap_or_default();
                    }
                }
                all.push(Written { line, name, value, text: word.clone() });
            }
        } else {
            all.push(Written {
                line,
                name: word.clone(),
                value: String::new(),
                text: word.clone(),
            });
        }
    }
    all
}

fn unquoted(value: &str) -> &str {
    for quote in ['"', '\''] {
        if let Some(inner) = value.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote)) {
            return inner;
        }
    }
    value
}

/// A switch, as coturn reads it; `None` where coturn would not start.
pub(crate) fn switch(value: &str) -> Option<bool> {
    match value.chars().next().map(|first| first.to_ascii_lowercase()) {
        None | Some('1'..='9' | 'y' | 't') => Some(true),
        Some('0' | 'n' | 'f') => Some(false),
        Some('o') if value.eq_ignore_ascii_case("on") => Some(true),
        Some('o') if value.eq_ignore_ascii_case("off") => Some(false),
        Some(_) => None,
    }
}

/// A number, as coturn reads it: whatever follows the digits is ignored.
pub(crate) fn number(value: &str) -> Option<u64> {
    let digits = value.find(|c: char| !c.is_ascii_digit()).unwrap_or(value.len());
    value[..digits].parse().ok()
}

/// A value without a comment behind it, for addresses and paths, which have no blanks.
pub(crate) fn word(value: &str) -> &str {
    value.split_whitespace().next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(all: &[Written]) -> Vec<(usize, &str, &str)> {
        all.iter().map(|one| (one.line, one.name.as_str(), one.value.as_str())).collect()
    }

    #[test]
    fn lines_have_all_of_coturns_forms() {
        let text = "# comment\n\nrealm=a b\n listening-port 3478 \nverbose\nuser=\"x:y=z\"\nfingerprint = \n";
        assert_eq!(
            pairs(&file(text)),
            [
                (3, "realm", "a b"),
                (4, "listening-port", "3478"),
                (5, "verbose", ""),
                (6, "user", "x:y=z"),
                (7, "fingerprint", ""),
            ]
        );
    }

    #[test]
    fn words_of_a_command_line_are_the_same_options() {
        let words = [
            "-nav",
            "-p",
            "3479",
            "-r=x",
            "-uA:b",
            "--min-port=1",
            "--max-port",
            "2",
            "--daemon",
            "stray",
        ];
        let words = words.map(str::to_owned);
        assert_eq!(
            pairs(&arguments(&words)),
            [
                (1, "no-config", ""),
                (1, "lt-cred-mech", ""),
                (1, "verbose", ""),
                (2, "listening-port", "3479"),
                (4, "realm", "=x"),
                (5, "user", "A:b"),
                (6, "min-port", "1"),
                (7, "max-port", "2"),
                (9, "daemon", ""),
                (10, "stray", ""),
            ]
        );
    }

    #[test]
    fn switches_and_numbers_are_read_as_loosely_as_by_coturn() {
        let read = ["", "1", "yes", "True", "on", "0", "no", "false", "OFF"].map(switch);
        let yes = Some(true);
        let no = Some(false);
        assert_eq!(read, [yes, yes, yes, yes, yes, no, no, no, no]);
        assert_eq!(switch("maybe"), None);
        assert_eq!([number("600 # s"), number("x"), number("")], [Some(600), None, None]);
    }
}
