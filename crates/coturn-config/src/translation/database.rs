//! The database of users: its words become a URL, in a file of its own, as it holds a password.

use std::fmt::Write as _;
use std::path::Path;

use super::{Fate, Work};
use crate::toml;

/// Options of databases that both servers can share.
const SHARED: [&str; 7] =
    ["userdb", "db", "psql-userdb", "sql-userdb", "mysql-userdb", "mongo-userdb", "redis-userdb"];

/// Name of the file with the URL.
const FILE: &str = "users.url";

/// The same for statistics.
const STATISTICS_FILE: &str = "statistics.url";

/// Takes the last database. Users of the file count before those of the database, as in coturn.
pub(super) fn translate(work: &mut Work, by_secret: bool, directory: &Path) {
    let mut lines: Vec<usize> = SHARED.iter().flat_map(|name| work.all(name)).collect();
    lines.sort_unstable();
    let Some(last) = lines.pop() else { return without_tables(work) };
    for index in lines {
        work.set(index, Fate::SameHere("a later line names another database".to_owned()));
    }
    if !work.users.is_empty() {
        work.toml.set("users.local", "true".to_owned(), "user, beside a database");
    }
    let name = work.written[last].written.name.clone();
    if matches!(&*name, "userdb" | "db") {
        return file(work, last, by_secret);
    }
    match url(&name, work.value(last)) {
        Ok(url) => {
            let path = directory.join(FILE).display().to_string();
            work.toml.set("users.database_file", toml::text(&path), &*name);
            work.secrets.push((path, url.into_bytes()));
            tables(work, by_secret);
            if name == "mongo-userdb" {
                work.notes.push(
                    "MongoDB needs a build with its client: `cargo build --release -p turnpike --features mongodb`."
                        .to_owned(),
                );
            }
            work.notes.push(
                "The connection to a database on another host is encrypted and its certificate is checked, unless its URL ends \
                 with ?sslmode=disable; Redis is reached without TLS unless it is rediss://."
                    .to_owned(),
            );
        }
        Err(expected) => work.unreadable(last, &expected),
    }
}

/// Names coturn's SQLite file.
fn file(work: &mut Work, line: usize, by_secret: bool) {
    let path = crate::syntax::word(work.value(line)).to_owned();
    if !path.starts_with('/') {
        return work.unreadable(line, "a path that begins with a slash");
    }
    let url = format!("sqlite-coturn://{path}");
    work.toml.set("users.database", toml::text(&url), "userdb");
    work.sqlite = Some(url);
    work.notes.push(
        "The user that the server runs as needs to be allowed to read coturn's SQLite file and to write to its directory."
            .to_owned(),
    );
    tables(work, by_secret);
}

/// Redis of statistics: its words become a URL, in a file of its own, as it may hold a password.
pub(super) fn statistics(work: &mut Work, directory: &Path) {
    let Some(index) = work.last("redis-statsdb") else { return };
    match url("redis-userdb", work.value(index)) {
        Ok(url) => {
            let path = directory.join(STATISTICS_FILE).display().to_string();
            work.toml.set("accounting.redis_file", toml::text(&path), "redis-statsdb");
            // Coturn reports each 4096 packets.
            work.toml.set(
                "accounting.interim",
                toml::text("60 s"),
                "traffic to Redis while sessions go on",
            );
            work.secrets.push((path, url.into_bytes()));
        }
        Err(expected) => work.unreadable(index, &expected),
    }
}

/// The name by which an authorization server knows this one. Coturn's is one for all realms:
/// without `server-name` that of its own realm.
pub(super) fn server_name(work: &mut Work) {
    if !work.is_on("oauth") {
        // Includes names in other encodings than UTF-8.
        for entry in work.written.iter_mut().filter(|entry| entry.written.name == "server-name") {
            entry.fate = Fate::SameHere("it is for access tokens, and oauth is off".to_owned());
        }
        return;
    }
    let realm = || work.word("realm").filter(|realm| !realm.is_empty());
    if let Some(name) = work.word("server-name").or_else(realm) {
        let name = toml::text(name);
        work.toml.set("auth.server_name", name, "server-name, otherwise realm");
    }
}

/// Switches of tables, and those that turn tables off.
const SWITCHES: [&str; 4] = ["no-dynamic-realms", "no-dynamic-ip-list", "use-auth-secret", "oauth"];

/// Tables that coturn reads with these options.
fn tables(work: &mut Work, by_secret: bool) {
    let of = [
        (!work.is_on("no-dynamic-realms"), "realms"),
        (!work.is_on("no-dynamic-ip-list"), "peers"),
        (by_secret, "secrets"),
        (work.is_on("oauth"), "tokens"),
    ];
    let tables = of.into_iter().filter(|(is_read, _)| *is_read).map(|(_, table)| table);
    let tables: Vec<&str> = tables.collect();
    if by_secret {
        work.refuse_users();
    }
    if tables == ["realms", "peers"] {
        return;
    }
    let list: Vec<String> = tables.into_iter().map(toml::text).collect();
    work.toml.set("users.database_tables", format!("[{}]", list.join(", ")), SWITCHES.join(", "));
    for name in SWITCHES {
        if let Some(index) = work.written.iter().position(|entry| entry.written.name == name)
            && work.is_on(name)
        {
            work.set(index, Fate::Taken("users.database_tables".to_owned()));
        }
    }
}

/// Without a database that is shared there are no tables to read, or not to read.
fn without_tables(work: &mut Work) {
    for name in ["no-dynamic-realms", "no-dynamic-ip-list"] {
        for index in work.all(name) {
            work.set(index, Fate::SameHere("no tables are read".to_owned()));
        }
    }
}

/// The URL of a database that the words of an option such as `psql-userdb` describe; a URL is as it
/// is.
///
/// # Errors
/// The form that is expected.
pub fn url(option: &str, value: &str) -> Result<String, String> {
    if value.contains("://") {
        return Ok(value.to_owned());
    }
    if option == "mongo-userdb" {
        return Err("a URL, as mongodb://USER:PASSWORD@HOST/DATABASE".to_owned());
    }
    let mut place = Place::default();
    for word in value.split_whitespace() {
        let (key, text) = word.split_once('=').ok_or("a list of key=value")?;
        place.take(option, key, text.trim_matches('\''))?;
    }
    Ok(match option {
        "redis-userdb" => place.redis(),
        "mysql-userdb" => place.server("mysql"),
        _ => place.server("postgresql"),
    })
}

/// The words of a connection.
#[derive(Default)]
struct Place {
    host: String,
    port: String,
    name: String,
    user: String,
    password: String,
    tls: bool,
    sslmode: String,
    authorities: String,
}

impl Place {
    fn take(&mut self, option: &str, key: &str, value: &str) -> Result<(), String> {
        let field = match key {
            "host" | "ip" | "addr" | "ipaddr" | "hostaddr" => &mut self.host,
            "port" | "p" => &mut self.port,
            "dbname" | "db" | "database" => &mut self.name,
            "user" | "uname" | "name" | "username" => &mut self.user,
            "password" | "pwd" | "passwd" | "secret" => &mut self.password,
            "ca" | "ssl-ca" | "cacert" | "tls-ca" | "sslrootcert" => &mut self.authorities,
            // Times are the same for all databases here.
            "connect_timeout" | "timeout" | "read_timeout" => return Ok(()),
            "sslmode" if option.contains("sql") => {
                // What lies between would encrypt without a check.
                let known = if value == "disable" { "disable" } else { "verify-full" };
                known.clone_into(&mut self.sslmode);
                return Ok(());
            }
            "tls" | "ssl" if option == "redis-userdb" => {
                self.tls = !["0", "none", "false"].contains(&value);
                return Ok(());
            }
            _ => return Err(format!("something else than {key}=")),
        };
        value.clone_into(field);
        Ok(())
    }

    fn server(&self, scheme: &str) -> String {
        let host = if self.host.is_empty() { "localhost" } else { &self.host };
        self.written(scheme, host, &self.name)
    }

    fn redis(&self) -> String {
        let host = if self.host.is_empty() { "127.0.0.1" } else { &self.host };
        let number = if self.name.is_empty() { "0" } else { &self.name };
        self.written(if self.tls { "rediss" } else { "redis" }, host, number)
    }

    fn written(&self, scheme: &str, host: &str, name: &str) -> String {
        let mut url = format!("{scheme}://");
        if !self.user.is_empty() || !self.password.is_empty() {
            url.push_str(&encoded(&self.user));
            if !self.password.is_empty() {
                let _ = write!(url, ":{}", encoded(&self.password));
            }
            url.push('@');
        }
        let is_v6 = host.contains(':') && !host.starts_with('[');
        url.push_str(&match host {
            _ if is_v6 => format!("[{host}]"),
            // A directory of Unix sockets.
            _ if host.starts_with('/') => encoded(host),
            _ => host.to_owned(),
        });
        if !self.port.is_empty() {
            let _ = write!(url, ":{}", self.port);
        }
        let _ = write!(url, "/{}", encoded(name));
        let options = [("sslmode", &self.sslmode), ("sslrootcert", &self.authorities)];
        let options: Vec<_> = options
            .iter()
            .filter(|(_, value)| !value.is_empty())
            .map(|(key, value)| format!("{key}={}", encoded(value)))
            .collect();
        if !options.is_empty() {
            let _ = write!(url, "?{}", options.join("&"));
        }
        url
    }
}

/// Text in a URL: all but letters, digits and four signs as `%` with two hexadecimal digits.
fn encoded(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(byte.into());
        } else {
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_become_urls() {
        for (option, words, expected) in [
            (
                "psql-userdb",
                "host=db.example.org dbname=turn user=turn password=p@ss/word connect_timeout=30",
                "postgresql://turn:p%40ss%2Fword@db.example.org/turn",
            ),
            ("sql-userdb", "dbname=turn user=turn", "postgresql://turn@localhost/turn"),
            (
                "psql-userdb",
                "host=/run/postgresql dbname=turn user=turn",
                "postgresql://turn@%2Frun%2Fpostgresql/turn",
            ),
            (
                "psql-userdb",
                "host=2001:db8::5 port=5433 dbname=turn sslmode=require",
                "postgresql://[2001:db8::5]:5433/turn?sslmode=verify-full",
            ),
            ("psql-userdb", "postgresql://turn:x@db/turn", "postgresql://turn:x@db/turn"),
            (
                "mysql-userdb",
                "host=db dbname=turn user=turn password=x port=3307 connect_timeout=5 read_timeout=5 ca=/etc/ca.pem",
                "mysql://turn:x@db:3307/turn?sslrootcert=%2Fetc%2Fca.pem",
            ),
            (
                "redis-userdb",
                "ip=127.0.0.1 dbname=2 password=x port=6380",
                "redis://:x@127.0.0.1:6380/2",
            ),
            ("redis-userdb", "host=cache user=turn password=x tls=1", "rediss://turn:x@cache/0"),
        ] {
            assert_eq!(url(option, words), Ok(expected.to_owned()), "{words}");
        }
        for words in ["host", "host=db cipher=x"] {
            assert!(url("mysql-userdb", words).is_err(), "{words}");
        }
        let mongodb = "mongodb://turn:x@db/turn?replicaSet=a";
        assert_eq!(url("mongo-userdb", mongodb), Ok(mongodb.to_owned()));
        assert!(url("mongo-userdb", "host=db").is_err());
    }
}
