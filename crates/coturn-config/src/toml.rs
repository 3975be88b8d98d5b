//! A configuration file of Turnpike, written with comments.

use std::fmt::Write as _;

/// Keys in the order in which they are written: of the top level first, then by table.
#[derive(Clone, Debug, Default)]
pub(crate) struct Toml {
    keys: Vec<Key>,
    realms: Vec<Realm>,
    /// Comments at the top.
    notes: Vec<String>,
}

/// An entry of `realms`: names of keys, and values that are TOML already.
#[derive(Clone, Debug)]
pub(crate) struct Realm(pub(crate) Vec<(&'static str, String)>);

#[derive(Clone, Debug)]
struct Key {
    table: &'static str,
    name: &'static str,
    value: String,
    comment: String,
}

/// Tables in the order of the reference page; the empty name is the top level.
const TABLES: [&str; 16] = [
    "",
    "relay",
    "auth",
    "peers",
    "quotas",
    "lifetimes",
    "compatibility",
    "discovery",
    "redirect",
    "workers",
    "udp",
    "tcp",
    "tls",
    "dtls",
    "sockets",
    "shutdown",
];

/// Tables behind them.
const LAST: [&str; 4] = ["accounting", "log", "http", "users"];

impl Toml {
    /// Sets a key, such as `relay.ports`, to a value that is TOML already. A later one replaces it.
    pub(crate) fn set(&mut self, path: &'static str, value: String, comment: impl Into<String>) {
        let (table, name) = path.split_once('.').unwrap_or(("", path));
        debug_assert!(TABLES.iter().chain(&LAST).any(|known| *known == table), "{path} is lost");
        self.keys.retain(|key| (key.table, key.name) != (table, name));
        self.keys.push(Key { table, name, value, comment: comment.into() });
    }

    /// Adds an entry of `realms`, behind those that are there.
    pub(crate) fn realm(&mut self, realm: Realm) {
        self.realms.push(realm);
    }

    /// Adds a comment at the top.
    pub(crate) fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }

    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        for note in &self.notes {
            for line in wrapped(note) {
                let _ = writeln!(text, "# {line}");
            }
        }
        for table in TABLES.iter().chain(&LAST) {
            let mut keys = self.keys.iter().filter(|key| key.table == *table).peekable();
            if keys.peek().is_none() {
                continue;
            }
            if !text.is_empty() {
                text.push('\n');
            }
            if !table.is_empty() {
                let _ = writeln!(text, "[{table}]");
            }
            for Key { name, value, comment, .. } in keys {
                for line in wrapped(comment) {
                    let _ = writeln!(text, "# {line}");
                }
                let _ = writeln!(text, "{name} = {value}");
            }
        }
        for Realm(keys) in &self.realms {
            text.push_str("\n[[realms]]\n");
            for (name, value) in keys {
                let _ = writeln!(text, "{name} = {value}");
            }
        }
        text
    }
}

/// Lines of at most about 100 characters.
fn wrapped(text: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().filter(|line| line.len() + word.len() < 100);
        match line {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) => {
                line.push(' ');
                line.push_str(word);
            }
            None => lines.push(word.to_owned()),
        }
    }
    lines.retain(|line| !line.is_empty());
    lines
}

/// Text in quotes.
pub(crate) fn text(value: &str) -> String {
    let mut quoted = String::from("\"");
    for c in value.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\'' => quoted.push(c),
            // Whoever shows the file may have to write such characters in another form, in which
            // TOML would not read them.
            c if c.escape_debug().len() > 1 => {
                let number = u32::from(c);
                let _ = match u16::try_from(number) {
                    Ok(number) => write!(quoted, "\\u{number:04X}"),
                    Err(_) => write!(quoted, "\\U{number:08X}"),
                };
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// An entry of a list of secrets: its name, and the path of its file.
pub(crate) fn secret_entry((name, path): &(String, String)) -> String {
    format!("{{ name = {}, secret_file = {} }}", text(name), text(path))
}

/// A list of texts, on one line or, when it is long, on one for each.
pub(crate) fn list<T: ToString>(values: &[T]) -> String {
    let values: Vec<String> = values.iter().map(|value| text(&value.to_string())).collect();
    let line = values.join(", ");
    if line.len() < 90 {
        format!("[{line}]")
    } else {
        format!("[\n    {},\n]", values.join(",\n    "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_printed_is_an_escape_of_toml() {
        for (value, quoted) in [
            ("zo\u{eb} \u{439} it's", "\"zo\u{eb} \u{439} it's\""),
            ("a\"b\\c", r#""a\"b\\c""#),
            ("a\nb\u{7f}\u{9b}", r#""a\u000Ab\u007F\u009B""#),
            ("a\u{2028}b\u{202e}\u{200b}\u{feff}", r#""a\u2028b\u202E\u200B\uFEFF""#),
            ("a\u{e0041}", r#""a\U000E0041""#),
        ] {
            assert_eq!(text(value), quoted);
        }
    }

    #[test]
    fn keys_are_grouped_by_table_with_their_comments() {
        let mut toml = Toml::default();
        toml.note("A note.");
        toml.set("relay.ports", text("1-2"), "min-port");
        toml.set("realm", text("a\"b"), "");
        toml.set("relay.ports", text("3-4"), "max-port");
        assert_eq!(
            toml.text(),
            "# A note.\n\nrealm = \"a\\\"b\"\n\n[relay]\n# max-port\nports = \"3-4\"\n"
        );
    }
}
