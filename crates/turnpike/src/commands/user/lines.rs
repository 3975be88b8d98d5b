//! Parser of users as lines: `NAME:PASSWORD`, or a JSON object as written by `turnpike user
//! export`. Errors never quote a value, which may be a password.

use std::collections::HashMap;
use std::io::BufRead;

use serde_json::{Map, Value};
use turn_types::Secret;
use user_db::{NewUser, UserKeys};

/// Maximum length of a line in bytes: a name and a password of maximum size with every character
/// escaped, and other fields.
const LINE_BYTES_MAX: u64 = 16 * 1024;

/// Maximum number of lines in an input. Each line needs about 500 bytes of memory.
const LINES_MAX: usize = 1_000_000;

/// Permitted fields of an object. Commands ignore `created_unix`, the time of creation.
const FIELDS: [&str; 7] =
    ["realm", "username", "password", "allocations_max", "created_unix", "md5", "sha256"];

/// User on a line.
#[derive(Debug)]
pub(super) struct Line {
    /// Number of the line, from 1.
    pub(super) number: usize,
    /// Prepared name.
    pub(super) name: String,
    /// Keys, if the line has keys or a password.
    pub(super) keys: Option<UserKeys>,
    /// Limit, if the line has a limit. The inner `None` selects the configured quota.
    pub(super) allocations_max: Option<Option<u32>>,
}

/// Invalid line with its error.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Wrong {
    /// Number of the line, from 1.
    pub(super) number: usize,
    /// Description of the error.
    pub(super) error: String,
}

/// Reads all lines. Empty lines are ignored. Users of another realm and repeated users are invalid.
///
/// # Errors
/// The input cannot be read.
pub(super) fn read(
    mut input: impl BufRead,
    realm: &str,
) -> std::io::Result<(Vec<Line>, Vec<Wrong>)> {
    let (mut lines, mut wrong) = (Vec::new(), Vec::new());
    let mut first: HashMap<String, usize> = HashMap::new();
    for number in 1.. {
        let mut text = Vec::new();
        let limited = std::io::Read::take(&mut input, LINE_BYTES_MAX);
        if { limited }.read_until(b'\n', &mut text)? == 0 {
            break;
        }
        if number > LINES_MAX || text.len() as u64 == LINE_BYTES_MAX && !text.ends_with(b"\n") {
            let error = format!(
                "an input has {LINES_MAX} lines of {LINE_BYTES_MAX} bytes at most; the rest was not read"
            );
            wrong.push(Wrong { number, error });
            break;
        }
        match one(&text, realm) {
            Ok(None) => {}
            Ok(Some((name, keys, allocations_max))) => match first.get(&name) {
                Some(line) => {
                    wrong
                        .push(Wrong { number, error: format!("{name} is on line {line} already") });
                }
                None => {
                    first.insert(name.clone(), number);
                    lines.push(Line { number, name, keys, allocations_max });
                }
            },
            Err(error) => wrong.push(Wrong { number, error }),
        }
    }
    Ok((lines, wrong))
}

type User = (String, Option<UserKeys>, Option<Option<u32>>);

/// Parses the user of a line. Returns `None` for an empty line.
fn one(text: &[u8], realm: &str) -> Result<Option<User>, String> {
    let text = std::str::from_utf8(text).map_err(|_| "is not UTF-8".to_owned())?;
    let text = text.trim_end_matches(['\r', '\n']);
    if text.is_empty() {
        return Ok(None);
    }
    if text.starts_with('{') {
        let Ok(Value::Object(object)) = serde_json::from_str(text) else {
            return Err("begins as a JSON object and is none".to_owned());
        };
        return object_user(object, realm).map(Some);
    }
    let (name, password) = text.split_once(':').ok_or(
        "has no colon: write NAME:PASSWORD, or {\"username\": \"NAME\", \"password\": \"PASSWORD\"}",
    )?;
    let (name, keys) = of_password(realm, name, password.to_owned())?;
    Ok(Some((name, Some(keys), None)))
}

/// Returns the prepared name, and the keys derived from a password.
fn of_password(realm: &str, name: &str, password: String) -> Result<(String, UserKeys), String> {
    let password = super::password::chosen(password).map_err(|failure| failure.text())?;
    let user = NewUser::new(realm, name, &password, None).map_err(|error| error.to_string())?;
    Ok((user.name().to_owned(), *user.keys()))
}

fn object_user(object: Map<String, Value>, realm: &str) -> Result<User, String> {
    if let Some(field) = object.keys().find(|field| !FIELDS.contains(&field.as_str())) {
        return Err(format!("has a field {field:?}, and may have {}", FIELDS.join(", ")));
    }
    let word = |field: &str| match object.get(field) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.as_str())),
        Some(_) => Err(format!("{field} is no text in quotes")),
    };
    if let Some(other) = word("realm")?.filter(|other| *other != realm) {
        return Err(format!("is a user of realm {other}, and this is realm {realm}"));
    }
    let name = word("username")?.ok_or("has no username")?;
    let allocations_max = match object.get("allocations_max") {
        None => None,
        Some(Value::Null) => Some(None),
        Some(number) => Some(Some(
            number
                .as_u64()
                .and_then(|number| u32::try_from(number).ok())
                .ok_or("allocations_max is no whole number from 0 to 4294967295, and not null")?,
        )),
    };
    let md5 = word("md5")?.map(key).transpose().map_err(|error| format!("md5 {error}"))?;
    let sha256 = word("sha256")?.map(key).transpose().map_err(|error| format!("sha256 {error}"))?;
    let (name, keys) = match (word("password")?, md5) {
        (Some(_), Some(_)) => return Err("has a password and keys: one is enough".to_owned()),
        (_, None) if sha256.is_some() => return Err("has a key sha256 without md5".to_owned()),
        (Some(password), None) => {
            let (name, keys) = of_password(realm, name, password.to_owned())?;
            (name, Some(keys))
        }
        (None, md5) => {
            let sha256 = sha256.map(Secret::new);
            let keys = md5.map(|md5| UserKeys { md5: Secret::new(md5), sha256 });
            (user_db::prepared_name(name).map_err(|error| error.to_string())?, keys)
        }
    };
    Ok((name, keys, allocations_max))
}

/// Parses a key in hexadecimal.
fn key<const N: usize>(text: &str) -> Result<[u8; N], String> {
    let wrong = || format!("is not {} hexadecimal digits", 2 * N);
    if text.len() != 2 * N || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(wrong());
    }
    let mut key = [0; N];
    for (byte, at) in key.iter_mut().zip((0..).step_by(2)) {
        let digits = text.get(at..at + 2).ok_or_else(wrong)?;
        *byte = u8::from_str_radix(digits, 16).map_err(|_| wrong())?;
    }
    Ok(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errors(text: &str) -> Vec<(usize, String)> {
        let (_, wrong) = read(text.as_bytes(), "r").unwrap();
        wrong.into_iter().map(|Wrong { number, error }| (number, error)).collect()
    }

    #[test]
    fn both_forms_make_the_same_keys() {
        let text = "bob:correct:horse\r\n\n{\"username\": \"eve\", \"password\": \"correct:horse\", \
                    \"allocations_max\": 5}\n{\"username\": \"ann\", \"realm\": \"r\", \"allocations_max\": null}";
        let (lines, wrong) = read(text.as_bytes(), "r").unwrap();
        assert_eq!(wrong, []);
        let [bob, eve, ann] = &lines[..] else { panic!("{lines:?}") };
        let of = |name| {
            let password = Secret::new("correct:horse".to_owned());
            Some(*NewUser::new("r", name, &password, None).unwrap().keys())
        };
        assert_eq!(
            (bob.number, &*bob.name, bob.keys, bob.allocations_max),
            (1, "bob", of("bob"), None)
        );
        assert_eq!((eve.number, eve.keys, eve.allocations_max), (3, of("eve"), Some(Some(5))));
        assert_eq!((ann.keys, ann.allocations_max), (None, Some(None)));
    }

    #[test]
    fn wrong_lines_are_named_and_never_quoted() {
        for (line, error) in [
            ("hunter2-hunter2", "has no colon"),
            ("bob:short", "has 5 characters, and needs 8"),
            (":hunter2-hunter2", "the name is empty"),
            ("{\"username\": \"bob\", \"password\": \"hunter2-hun", "is none"),
            ("{\"username\": \"bob\", \"pass\": \"hunter2-hunter2\"}", "field \"pass\""),
            ("{\"password\": \"hunter2-hunter2\"}", "has no username"),
            ("{\"username\": \"bob\", \"password\": 1234567890}", "password is no text"),
            ("{\"username\": \"bob\", \"allocations_max\": -1}", "no whole number"),
            ("{\"username\": \"bob\", \"md5\": \"hunter2\"}", "md5 is not 32 hexadecimal digits"),
            (
                "{\"username\": \"bob\", \"md5\": \"\u{e9}00000000000000000000000000000\"}",
                "md5 is not",
            ),
            ("{\"username\": \"bob\", \"realm\": \"s\"}", "realm s, and this is realm r"),
        ] {
            let found = errors(&format!("ann:correct-horse\n{line}\n"));
            let [(2, said)] = &found[..] else { panic!("{line}: {found:?}") };
            assert!(said.contains(error), "{line}: {said}");
            assert!(!said.contains("hunter2") && !said.contains("12345678"), "{said}");
        }
        let twice = errors("bob:correct-horse\nbob:correct-horse\n");
        assert_eq!(twice, [(2, "bob is on line 1 already".to_owned())]);
    }

    #[test]
    fn a_line_without_an_end_is_not_kept() {
        let text = "x".repeat(20_000);
        let found = errors(&text);
        assert!(matches!(&found[..], [(1, error)] if error.contains("bytes at most")), "{found:?}");
    }
}
