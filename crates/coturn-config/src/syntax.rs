//! Lines of a configuration file of coturn, and words of its command line.

use crate::options::{self, Takes};

/// Maximum bytes of a line in coturn's buffer. coturn reads the remaining bytes as a further line.
const LINE_BYTES_MAX: usize = 1023;

/// An option as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Written {
    /// Line of the file, or number of the word on the command line; from 1.
    pub(crate) line: usize,
    /// The option's long name, or the text that is none.
    pub(crate) name: String,
    /// The value; empty without one. Bytes that are no UTF-8 are replaced.
    pub(crate) value: String,
    /// The bytes of the value.
    pub(crate) bytes: Vec<u8>,
    /// The line as it was written.
    pub(crate) text: String,
}

impl Written {
    fn new(line: usize, name: String, value: &[u8], text: String) -> Self {
        let (value, bytes) = (String::from_utf8_lossy(value).into_owned(), value.to_vec());
        Self { line, name, value, bytes, text }
    }

    /// Returns true if the value is UTF-8.
    pub(crate) fn is_text(&self) -> bool {
        self.value.as_bytes() == self.bytes
    }
}

/// Reads a file as coturn does: name and value, with blanks and equals signs between them. A
/// comment line starts with `#`. Values are bytes. Removes a double quote before a value, and
/// another at the end of a value that starts with a double quote.
pub(crate) fn file(text: &[u8]) -> Vec<Written> {
    let mut all = Vec::new();
    let lines = text.split(|byte| *byte == b'\n').enumerate();
    for (index, line) in lines.flat_map(|(index, line)| pieces(line).map(move |one| (index, one))) {
        let line = line.trim_ascii();
        if line.is_empty() || line.starts_with(b"#") {
            continue;
        }
        let is_between = |byte: &u8| matches!(byte, b' ' | b'=' | b'\t');
        let end = line.iter().position(is_between).unwrap_or(line.len());
        let (name, rest) = line.split_at(end);
        let begin = rest.iter().position(|byte| !is_between(byte)).unwrap_or(rest.len());
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        all.push(Written::new(index + 1, text(name), unquoted(&rest[begin..]), text(line)));
    }
    all
}

/// Lines that coturn reads from a long line, each up to the first NUL.
fn pieces(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.chunks(LINE_BYTES_MAX).map(|piece| {
        let end = piece.iter().position(|byte| *byte == 0).unwrap_or(piece.len());
        &piece[..end]
    })
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
            let value = value.unwrap_or_default();
            all.push(Written::new(line, name, value.as_bytes(), word.clone()));
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
                all.push(Written::new(line, name, value.as_bytes(), word.clone()));
            }
        } else {
            all.push(Written::new(line, word.clone(), b"", word.clone()));
        }
    }
    all
}

fn unquoted(value: &[u8]) -> &[u8] {
    let Some(inner) = value.strip_prefix(b"\"") else { return value };
    let inner = inner.trim_ascii_end();
    inner.strip_suffix(b"\"").unwrap_or(inner)
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
        let text = b"# comment\n\nrealm=a b\n listening-port 3478 \r\nverbose\nuser=\"x:y=z\"\nfingerprint = \n\
                     realm\t== \"a\"b\" \nrealm='a'\nrealm=\" a # b \n\x00realm=a\nrealm=a\x00b\n--realm=a\n";
        assert_eq!(
            pairs(&file(text)),
            [
                (3, "realm", "a b"),
                (4, "listening-port", "3478"),
                (5, "verbose", ""),
                (6, "user", "x:y=z"),
                (7, "fingerprint", ""),
                (8, "realm", "a\"b"),
                (9, "realm", "'a'"),
                (10, "realm", " a # b"),
                (12, "realm", "a"),
                (13, "--realm", "a"),
            ]
        );
    }

    #[test]
    fn values_are_bytes() {
        let read = file(b"static-auth-secret=n\xf6rth\nrealm=n\xc3\xb6rth\n");
        assert_eq!((&*read[0].bytes, read[0].is_text()), (&b"n\xf6rth"[..], false));
        assert_eq!((&*read[1].value, read[1].is_text()), ("n\u{f6}rth", true));
    }

    #[test]
    fn a_long_line_is_several() {
        let text = format!("user=a:{}\n", "b".repeat(LINE_BYTES_MAX));
        let read = file(text.as_bytes());
        assert_eq!((read.len(), read[0].value.len(), &*read[1].name), (2, 1018, "bbbbbbb"));
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
