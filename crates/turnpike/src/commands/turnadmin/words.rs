//! Command line of coturn's `turnadmin`, with letters and long names as parsed by getopt_long.

/// Command of `turnadmin`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    Key,
    Add,
    Delete,
    List,
    AddAdmin,
    DeleteAdmin,
    ListAdmins,
    SetSecret,
    ShowSecrets,
    DeleteSecret,
    DeleteAllSecrets,
    AddOrigin,
    DeleteOrigin,
    ListOrigins,
    SetOptions,
    ListOptions,
    Encrypt,
    EncryptAes,
    VerifyAes,
    MakeAesKey,
    Help,
}

/// Option that has a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value {
    Sqlite,
    Postgres,
    Mysql,
    Mongo,
    Redis,
    User,
    Realm,
    Password,
    Origin,
    MaxBps,
    TotalQuota,
    UserQuota,
    KeyFile,
    /// Option of coturn's programs without an effect here.
    Ignored,
}

/// Meaning of an option.
#[derive(Clone, Copy, Debug)]
enum Means {
    Verb(Verb),
    /// Command with an argument.
    VerbWith(Verb),
    Value(Value),
}

use Means::{Value as With, Verb as Does, VerbWith};

/// Options: letter (or a space), long name, meaning.
const OPTIONS: [(char, &str, Means); 39] = [
    ('k', "key", Does(Verb::Key)),
    ('a', "add", Does(Verb::Add)),
    ('d', "delete", Does(Verb::Delete)),
    ('l', "list", Does(Verb::List)),
    ('A', "add-admin", Does(Verb::AddAdmin)),
    ('D', "delete-admin", Does(Verb::DeleteAdmin)),
    ('L', "list-admin", Does(Verb::ListAdmins)),
    ('s', "set-secret", VerbWith(Verb::SetSecret)),
    ('S', "show-secret", Does(Verb::ShowSecrets)),
    ('X', "delete-secret", VerbWith(Verb::DeleteSecret)),
    (' ', "delete-all-secrets", Does(Verb::DeleteAllSecrets)),
    ('O', "add-origin", Does(Verb::AddOrigin)),
    ('R', "del-origin", Does(Verb::DeleteOrigin)),
    ('I', "list-origins", Does(Verb::ListOrigins)),
    ('g', "set-realm-option", Does(Verb::SetOptions)),
    ('G', "list-realm-option", Does(Verb::ListOptions)),
    (' ', "list-realm-options", Does(Verb::ListOptions)),
    ('P', "generate-encrypted-password", Does(Verb::Encrypt)),
    ('E', "generate-encrypted-password-aes", Does(Verb::EncryptAes)),
    ('v', "verify", VerbWith(Verb::VerifyAes)),
    ('x', "key-path", VerbWith(Verb::MakeAesKey)),
    ('h', "help", Does(Verb::Help)),
    ('b', "userdb", With(Value::Sqlite)),
    (' ', "db", With(Value::Sqlite)),
    ('e', "psql-userdb", With(Value::Postgres)),
    (' ', "sql-userdb", With(Value::Postgres)),
    ('M', "mysql-userdb", With(Value::Mysql)),
    ('J', "mongo-userdb", With(Value::Mongo)),
    ('N', "redis-userdb", With(Value::Redis)),
    ('u', "user", With(Value::User)),
    ('r', "realm", With(Value::Realm)),
    ('p', "password", With(Value::Password)),
    ('o', "origin", With(Value::Origin)),
    (' ', "max-bps", With(Value::MaxBps)),
    (' ', "total-quota", With(Value::TotalQuota)),
    (' ', "user-quota", With(Value::UserQuota)),
    ('f', "file-key-path", With(Value::KeyFile)),
    (' ', "log-file", With(Value::Ignored)),
    (' ', "syslog-facility", With(Value::Ignored)),
];

/// Parsed command line.
#[derive(Debug, Default)]
pub(super) struct Words {
    /// Last command, with its argument.
    verb: Option<(Verb, String)>,
    values: Vec<(Value, String)>,
}

impl Words {
    /// Parses a command line.
    ///
    /// # Errors
    /// An option is unknown or lacks its argument, or a word is not an option.
    pub(super) fn read(words: &[String]) -> Result<Self, String> {
        let mut read = Self::default();
        let mut rest = words.iter();
        while let Some(word) = rest.next() {
            if let Some(long) = word.strip_prefix("--") {
                let (name, value) = match long.split_once('=') {
                    Some((name, value)) => (name, Some(value.to_owned())),
                    None => (long, None),
                };
                let means = named(name)?;
                read.take(means, word, || value.or_else(|| rest.next().cloned()))?;
            } else if let Some(letters) = word.strip_prefix('-').filter(|it| !it.is_empty()) {
                read.letters(letters, &mut rest)?;
            } else {
                return Err(format!("unknown argument: {word}"));
            }
        }
        Ok(read)
    }

    /// Parses letters after a dash. If a letter has an argument, the remaining word is the
    /// argument.
    fn letters<'a>(
        &mut self,
        letters: &str,
        rest: &mut impl Iterator<Item = &'a String>,
    ) -> Result<(), String> {
        for (at, letter) in letters.char_indices() {
            let known = OPTIONS.iter().find(|(known, ..)| *known == letter && letter != ' ');
            let means = known.ok_or_else(|| format!("invalid option -- '{letter}'"))?.2;
            let tail = &letters[at + letter.len_utf8()..];
            let shown = format!("-{letter}");
            if matches!(means, Does(_)) {
                self.take(means, &shown, || None)?;
                continue;
            }
            let own = Some(tail).filter(|tail| !tail.is_empty()).map(str::to_owned);
            return self.take(means, &shown, || own.or_else(|| rest.next().cloned()));
        }
        Ok(())
    }

    fn take(
        &mut self,
        means: Means,
        shown: &str,
        argument: impl FnOnce() -> Option<String>,
    ) -> Result<(), String> {
        let missing = || format!("option requires an argument: {shown}");
        match means {
            Does(verb) => self.verb = Some((verb, String::new())),
            VerbWith(verb) => self.verb = Some((verb, argument().ok_or_else(missing)?)),
            With(value) => self.values.push((value, argument().ok_or_else(missing)?)),
        }
        Ok(())
    }

    /// Returns the command and its argument.
    pub(super) fn verb(&self) -> Option<(Verb, &str)> {
        self.verb.as_ref().map(|(verb, argument)| (*verb, &**argument))
    }

    /// Returns the last value of an option.
    pub(super) fn value(&self, value: Value) -> Option<&str> {
        self.values.iter().rev().find(|(of, _)| *of == value).map(|(_, text)| &**text)
    }

    /// Returns the last database option.
    pub(super) fn database(&self) -> Option<(Value, &str)> {
        let databases = [Value::Sqlite, Value::Postgres, Value::Mysql, Value::Mongo, Value::Redis];
        let last = self.values.iter().rev().find(|(of, _)| databases.contains(of));
        last.map(|(of, text)| (*of, &**text))
    }
}

/// Finds the option of a long name. An unambiguous prefix is accepted.
fn named(name: &str) -> Result<Means, String> {
    if let Some((.., means)) = OPTIONS.iter().find(|(_, long, _)| *long == name) {
        return Ok(*means);
    }
    let mut all = OPTIONS.iter().filter(|(_, long, _)| long.starts_with(name));
    match (all.next(), all.next()) {
        (Some((.., means)), None) => Ok(*means),
        (Some(_), Some(_)) => Err(format!("option '--{name}' is ambiguous")),
        (None, _) => Err(format!("unrecognized option '--{name}'")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Words, String> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        Words::read(&words)
    }

    #[test]
    fn words_are_those_of_getopt() {
        let words = read("-au alice -rexample.org --password=x --userdb turndb -N host=a").unwrap();
        assert_eq!(words.verb(), Some((Verb::Add, "")));
        assert_eq!(words.value(Value::User), Some("alice"));
        assert_eq!(words.value(Value::Realm), Some("example.org"));
        assert_eq!(words.value(Value::Password), Some("x"));
        assert_eq!(words.database(), Some((Value::Redis, "host=a")));
        let words = read("--set-secret=abc --pass=y").unwrap();
        assert_eq!(words.verb(), Some((Verb::SetSecret, "abc")));
        assert_eq!(words.value(Value::Password), Some("y"));
        for wrong in ["-z", "stray", "-s", "--nothing", "--del", "-- x", "-"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
        assert!(read("").unwrap().verb().is_none());
    }
}
