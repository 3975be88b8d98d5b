//! Commands of coturn's `turnadmin`, with compatible options, output and exit status, on databases
//! in coturn's layout.

mod crypt;
mod words;

use std::path::Path;
use std::process::ExitCode;

use anyhow::anyhow;
use turn_proto::UserName;
use turn_types::Secret;
use user_db::{
    NewUser, Page, Position, Row, Table, TableEditor, UserEditor, create_file, server_editor,
    server_tables,
};

use self::words::{Value, Verb, Words};
use crate::failure::{Failure, Result};
use crate::output;

/// Exit status of an error, equal to coturn's -1.
const FAILED: u8 = 255;

/// Paths of coturn's SQLite file in its packages and its source.
const FILES: [&str; 3] = ["/var/lib/turn/turndb", "/var/db/turndb", "/usr/local/var/db/turndb"];

/// Number of users per read from the database.
const PAGE: u32 = 1000;

/// Maximum number of listed rows of other tables, more than a server accepts.
const ROWS_MAX: u32 = 1_000_000;

const USAGE: &str = "Usage: turnadmin [command] [options]

Commands:
  -a, --add                 add or change a user (-u -r -p)
  -d, --delete              delete a user (-u -r)
  -l, --list                list users
  -k, --key                 print the key of a user (-u -r -p)
  -s, --set-secret=VALUE    add a shared secret (-r)
  -S, --show-secret         list shared secrets
  -X, --delete-secret=VALUE delete a shared secret (-r)
      --delete-all-secrets  delete the shared secrets of a realm (-r)
  -O, --add-origin          give a web origin a realm (-o -r)
  -R, --del-origin          take it away (-o)
  -I, --list-origins        list origins
  -g, --set-realm-option    set --max-bps, --total-quota or --user-quota of a realm (-r); 0 deletes one
  -G, --list-realm-options  list them
  -A, --add-admin           add or change a user of coturn's web interface (-u [-r] -p)
  -D, --delete-admin        delete such a user (-u)
  -L, --list-admin          list such users
  -P, --generate-encrypted-password      print the salted hash of a password (-p)
  -E, --generate-encrypted-password-aes  print a password encrypted with AES-128 (-f -p)

Options:
  -b, --db, --userdb            SQLite file; by default the first of /var/lib/turn/turndb, /var/db/turndb and
                                /usr/local/var/db/turndb
  -e, --psql-userdb, --sql-userdb, -M, --mysql-userdb, -N, --redis-userdb
                                database, as words of coturn or as a URL
  -u, --user  -r, --realm  -p, --password  -o, --origin
  -x, --key-path=FILE           write a new AES key
  -f, --file-key-path=FILE      the AES key of -E and -v
  -v, --verify=TEXT             print the password of a text of -E
  -h, --help
";

/// Runs a command line of `turnadmin`.
pub(crate) fn run(words: &[String]) -> ExitCode {
    let usage = |why: &str| {
        eprint!(
            "{}{USAGE}",
            if why.is_empty() { String::new() } else { format!("turnadmin: {why}\n\n") }
        );
        ExitCode::from(FAILED)
    };
    let words = match Words::read(words) {
        Ok(words) => words,
        Err(why) => return usage(&why),
    };
    let Some((verb, argument)) = words.verb() else { return usage("") };
    match (Admin { words: &words }).run(verb, argument) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{}", crate::escape::lines(&failure.text()));
            ExitCode::from(FAILED)
        }
    }
}

/// Command line with its options.
struct Admin<'a> {
    words: &'a Words,
}

impl Admin<'_> {
    fn run(&self, verb: Verb, argument: &str) -> Result<()> {
        match verb {
            Verb::Help => output::print(USAGE.trim_end()),
            Verb::Key => self.key(),
            Verb::Add => self.add(),
            Verb::Delete => {
                let (user, realm) = (self.user()?, self.realm()?);
                let mut users = self.users()?;
                // Users are added with the prepared form of their names, but coturn's rows have any
                // spelling.
                if !users.delete(realm, &UserName::form_of(user))? {
                    users.delete(realm, user)?;
                }
                Ok(())
            }
            Verb::List => self.list(),
            Verb::AddAdmin => {
                let (user, realm) = (self.user()?, self.words.value(Value::Realm));
                let row = [user, realm.unwrap_or_default(), &crypt::hashed(self.password()?)];
                self.put(Table::Admins, &row)
            }
            Verb::DeleteAdmin => self.remove(Table::Admins, &[self.user()?]),
            Verb::ListAdmins => self.print(Table::Admins, |row| match row {
                [name, realm, ..] if realm.is_empty() => name.clone(),
                row => pair(row),
            }),
            Verb::SetSecret => self.put(Table::Secrets, &[self.realm()?, argument]),
            Verb::ShowSecrets => self.print(Table::Secrets, |row| match row {
                [realm, value] => format!("{value}[{realm}]"),
                row => pair(row),
            }),
            // As in coturn, an empty secret selects all secrets of the realm.
            Verb::DeleteSecret if !argument.is_empty() => {
                self.remove(Table::Secrets, &[self.realm()?, argument])
            }
            Verb::DeleteSecret | Verb::DeleteAllSecrets => {
                self.remove(Table::Secrets, &[self.realm()?])
            }
            Verb::AddOrigin => self.put(Table::Origins, &[&self.origin()?, self.realm()?]),
            Verb::DeleteOrigin => self.remove(Table::Origins, &[&self.origin()?]),
            Verb::ListOrigins => self.print(Table::Origins, |row| row.join(" ==>> ")),
            Verb::SetOptions => self.set_options(),
            Verb::ListOptions => {
                let is_redis = matches!(self.words.database(), Some((Value::Redis, _)));
                self.print(Table::Options, |row| match row {
                    // Coturn's output for Redis has another form.
                    [realm, option, value] if is_redis => format!("{realm}/{option} = {value}"),
                    [realm, option, value] => format!("{option}[{realm}]={value}"),
                    row => pair(row),
                })
            }
            Verb::Encrypt => output::print(&crypt::hashed(self.password()?)),
            Verb::EncryptAes => output::print(
                &crypt::encrypted(&self.aes_key()?, self.password()?).map_err(failed)?,
            ),
            Verb::VerifyAes => {
                output::print(&crypt::decrypted(&self.aes_key()?, argument).map_err(failed)?)
            }
            Verb::MakeAesKey => crypt::make_key(Path::new(argument)).map_err(Failure::failed),
        }
    }

    fn key(&self) -> Result<()> {
        let user = self.new_user()?;
        output::print(&format!("0x{}", crypt::hex(user.keys().md5.expose())))
    }

    fn add(&self) -> Result<()> {
        let user = self.new_user()?;
        self.users()?.replace(&user)?;
        Ok(())
    }

    fn new_user(&self) -> Result<NewUser> {
        let (user, realm) = (self.user()?, self.realm()?);
        let password = Secret::new(self.password()?.to_owned());
        Ok(NewUser::new(realm, user, &password, None)?)
    }

    fn list(&self) -> Result<()> {
        let realm = self.words.value(Value::Realm).map(str::to_owned);
        let mut users = self.users()?;
        let mut after = None;
        loop {
            let page = Page { realm: realm.clone(), after: after.take(), limit: PAGE };
            let found = users.list(&page)?;
            let Some(last) = found.last() else { return Ok(()) };
            after = Some(Position { realm: last.realm.clone(), name: last.name.clone() });
            for user in found {
                output::print(&format!("{}[{}]", user.name, user.realm))?;
            }
        }
    }

    fn set_options(&self) -> Result<()> {
        let realm = self.realm()?;
        let options = [
            (Value::MaxBps, "max-bps"),
            (Value::TotalQuota, "total-quota"),
            (Value::UserQuota, "user-quota"),
        ];
        for (value, option) in options {
            let Some(text) = self.words.value(value) else { continue };
            let number: u64 = text.parse().map_err(|_| {
                failed(format!("--{option} is a number of 0 or more, and not \"{text}\""))
            })?;
            if number == 0 {
                self.remove(Table::Options, &[realm, option])?;
            } else {
                self.put(Table::Options, &[realm, option, &number.to_string()])?;
            }
        }
        Ok(())
    }

    fn print(&self, table: Table, line: impl Fn(&[String]) -> String) -> Result<()> {
        let only = self.words.value(Value::Realm).filter(|_| table != Table::Admins);
        let realm = table.columns().iter().position(|column| *column == "realm").unwrap_or(0);
        for row in self.tables()?.rows(table, ROWS_MAX)? {
            if only.is_none_or(|only| row.get(realm).is_some_and(|realm| realm == only)) {
                output::print(&line(&row))?;
            }
        }
        Ok(())
    }

    fn put(&self, table: Table, row: &[&str]) -> Result<()> {
        Ok(self.tables()?.put(table, owned(row))?)
    }

    fn remove(&self, table: Table, key: &[&str]) -> Result<()> {
        Ok(self.tables()?.remove(table, owned(key))?)
    }

    fn users(&self) -> Result<Box<dyn UserEditor>> {
        Ok(server_editor(&self.created()?)?)
    }

    fn tables(&self) -> Result<TableEditor> {
        Ok(server_tables(&self.created()?)?)
    }

    /// Returns the URL of the database. Creates a missing file, as coturn's `turnadmin` does.
    fn created(&self) -> Result<String> {
        let url = self.url()?;
        create_file(&url)?;
        Ok(url)
    }

    /// Returns the URL of the database.
    fn url(&self) -> Result<String> {
        let option = match self.words.database() {
            None => {
                let known = FILES.into_iter().find(|file| Path::new(file).exists());
                return Ok(format!("sqlite-coturn://{}", known.unwrap_or(FILES[0])));
            }
            Some((Value::Sqlite, path)) => {
                let path = std::path::absolute(path).map_err(Failure::failed)?;
                return Ok(format!("sqlite-coturn://{}", path.display()));
            }
            Some((Value::Postgres, words)) => ("psql-userdb", words),
            Some((Value::Mysql, words)) => ("mysql-userdb", words),
            Some((Value::Redis, words)) => ("redis-userdb", words),
            Some((_, words)) => ("mongo-userdb", words),
        };
        let url = coturn_config::database_url(option.0, option.1);
        url.map_err(|expected| {
            failed(format!("--{} cannot be understood; expected: {expected}", option.0))
        })
    }

    fn user(&self) -> Result<&str> {
        let user = self.needed(Value::User, "user")?;
        let lower = user.to_lowercase();
        // Coturn refuses these names, and would not find such a user.
        if user.contains([' ', '\t', '\'', '"', '\n', '\r', '\\'])
            || lower.contains("union") && lower.contains("select")
        {
            let what = format!("Wrong user name structure or symbols, choose another name: {user}");
            return Err(failed(what));
        }
        Ok(user)
    }

    fn realm(&self) -> Result<&str> {
        self.needed(Value::Realm, "realm")
    }

    fn password(&self) -> Result<&str> {
        self.needed(Value::Password, "password")
    }

    fn needed(&self, value: Value, name: &str) -> Result<&str> {
        let set = self.words.value(value).filter(|text| !text.is_empty());
        set.ok_or_else(|| {
            failed(format!("The operation cannot be completed: the {name} must be set."))
        })
    }

    fn origin(&self) -> Result<String> {
        Ok(canonical(self.needed(Value::Origin, "origin")?))
    }

    fn aes_key(&self) -> Result<[u8; 16]> {
        let path = self.needed(Value::KeyFile, "key file (-f)")?;
        crypt::key(Path::new(path)).map_err(failed)
    }
}

fn failed(what: String) -> Failure {
    Failure::failed(anyhow!(what))
}

fn pair(row: &[String]) -> String {
    match row {
        [name, realm, ..] => format!("{name}[{realm}]"),
        row => row.concat(),
    }
}

fn owned(row: &[&str]) -> Row {
    row.iter().map(|value| (*value).to_owned()).collect()
}

/// Converts an origin to the form that coturn compares: lower case, with the default port of a
/// known scheme, and without a path.
fn canonical(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else { return text.to_owned() };
    let (scheme, place) = (scheme.to_lowercase(), rest.split(['/', '?', '#']).next());
    let place = place.unwrap_or_default().to_lowercase();
    if place.is_empty() {
        return text.to_owned();
    }
    let bracket = place.rfind(']').map_or(0, |at| at + 1);
    let port = match &*scheme {
        _ if place[bracket..].contains(':') => "",
        "http" | "ws" => ":80",
        "https" | "wss" => ":443",
        "turn" | "stun" => ":3478",
        "turns" | "stuns" => ":5349",
        _ => "",
    };
    format!("{scheme}://{place}{port}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_are_those_of_coturn() {
        for (text, origin) in [
            ("http://a.example", "http://a.example:80"),
            ("HTTPS://A.b/c", "https://a.b:443"),
            ("turn://Foo", "turn://foo:3478"),
            ("https://[2001:DB8::1]", "https://[2001:db8::1]:443"),
            ("http://a:8080", "http://a:8080"),
            ("foo", "foo"),
        ] {
            assert_eq!(canonical(text), origin);
        }
    }
}
