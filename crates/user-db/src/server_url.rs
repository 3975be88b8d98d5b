//! URL of a database server. The TLS options are removed from the driver's URL, and messages never
//! contain the password.

use std::fmt;
use std::path::PathBuf;

use turn_types::Secret;

use crate::endpoint::Endpoint;
use crate::error::StoreError;

/// Maximum size of a file of authorities in bytes. The bundles of distributions have 300 KiB.
const AUTHORITIES_BYTES_MAX: u64 = 4 << 20;

/// Files of the authorities that this host trusts.
const BUNDLES: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];

/// URL of a database server.
#[derive(Clone, Debug)]
pub(crate) struct ServerUrl {
    /// URL for the driver, without the options of TLS.
    url: Secret<String>,
    /// Password as written in the URL; empty if absent.
    password: Secret<String>,
    /// Scheme, host and database, for messages.
    shown: String,
    /// True if the URL demands TLS, false if it refuses TLS. `None`: the hosts decide.
    asked: Option<bool>,
    /// File of the authorities for the server's certificate, instead of the host's bundle.
    authorities: Option<PathBuf>,
}

impl ServerUrl {
    /// Parses a URL.
    ///
    /// # Errors
    /// `sslmode` has another value than `disable` and `verify-full`, or the name or password
    /// contains a delimiter of URLs.
    pub(crate) fn parse(text: &str) -> Result<Self, StoreError> {
        let (base, query) = text.split_once('?').unwrap_or((text, ""));
        let (scheme, rest) = base.split_once("://").unwrap_or(("", base));
        // An @ may follow a password with a question mark. A message would show the start of that
        // password as the host.
        if !rest.starts_with('/') && query.contains('@') {
            return Err(StoreError::Database {
                database: format!("{scheme}://"),
                what: "a question mark in a user's name or password is written %3F, and an @ behind the question mark \
                       of the options %40"
                    .to_owned(),
            });
        }
        let (user, place) = rest.rsplit_once('@').unwrap_or(("", rest));
        let (hosts, name) = place.split_once('/').unwrap_or((place, ""));
        // The driver would interpret the text after the delimiter as a host, and query name
        // servers.
        let reserved: &[_] = if scheme.starts_with("postgres") {
            &[('@', "%40")]
        } else {
            &[('/', "%2F"), ('#', "%23")]
        };
        for (character, code) in reserved {
            if user.contains(*character) {
                return Err(StoreError::Database {
                    database: format!("{scheme}://"),
                    what: format!("{character} in a user's name or password is written {code}"),
                });
            }
        }
        let password = user.split_once(':').map_or("", |(_, password)| password);
        let mut url = Self {
            url: Secret::default(),
            password: Secret::new(password.to_owned()),
            shown: format!("{scheme}://{hosts}/{name}"),
            asked: match scheme {
                "rediss" => Some(true),
                "redis" => Some(false),
                _ => None,
            },
            authorities: None,
        };
        let mut kept = Vec::new();
        for option in query.split('&').filter(|option| !option.is_empty()) {
            match option.split_once('=') {
                Some(("sslmode", "disable")) => url.asked = Some(false),
                Some(("sslmode", "verify-full")) => url.asked = Some(true),
                Some(("sslmode", other)) => {
                    return Err(url.failed(format_args!(
                        "sslmode={other} is not offered: write sslmode=verify-full, where the server's certificate \
                         is checked, or sslmode=disable, where keys travel in clear"
                    )));
                }
                Some(("sslrootcert", path)) => url.authorities = Some(decoded(path).into()),
                Some((name, value)) if scheme.starts_with("mongodb") => {
                    if !url.take_mongodb(name, value)? {
                        kept.push(option);
                    }
                }
                _ => kept.push(option),
            }
        }
        let query = if kept.is_empty() { String::new() } else { format!("?{}", kept.join("&")) };
        let scheme = match scheme {
            "mariadb" => "mysql",
            "redis" | "rediss" if url.asked == Some(true) => "rediss",
            "redis" | "rediss" => "redis",
            scheme => scheme,
        };
        url.url = Secret::new(format!("{scheme}://{rest}{query}"));
        Ok(url)
    }

    /// Processes a TLS option by its name in MongoDB's URLs. Returns false for other options.
    fn take_mongodb(&mut self, name: &str, value: &str) -> Result<bool, StoreError> {
        match (&*name.to_ascii_lowercase(), value) {
            ("tls" | "ssl", _) => self.asked = Some(value == "true"),
            ("tlscafile", _) => self.authorities = Some(decoded(value).into()),
            (
                "tlsinsecure" | "tlsallowinvalidcertificates" | "tlsallowinvalidhostnames",
                "true",
            ) => {
                return Err(self.failed(format_args!(
                    "{name}=true is not offered: the server's certificate is checked; tls=false leaves TLS out, and keys \
                     travel in clear"
                )));
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Returns true if connections to these endpoints use TLS, with a check of the server's
    /// certificate. The URL decides. Without a choice there, TLS is used if an endpoint is another
    /// host.
    pub(crate) fn encrypts(&self, endpoints: &[Endpoint]) -> bool {
        self.asked.unwrap_or_else(|| endpoints.iter().any(|one| one.elsewhere().is_some()))
    }

    /// Returns the other hosts among these endpoints to which keys are sent unencrypted.
    pub(crate) fn clear_hosts(&self, endpoints: &[Endpoint]) -> Vec<String> {
        if self.encrypts(endpoints) {
            return Vec::new();
        }
        endpoints.iter().filter_map(Endpoint::elsewhere).map(str::to_owned).collect()
    }

    /// Returns the URL for the driver.
    pub(crate) fn expose(&self) -> &str {
        self.url.expose()
    }

    /// Returns the file of the authorities for the server's certificate.
    pub(crate) fn authorities_file(&self) -> Result<PathBuf, StoreError> {
        let host = || BUNDLES.iter().map(PathBuf::from).find(|path| path.exists());
        self.authorities.clone().or_else(host).ok_or_else(|| {
            self.failed(format_args!("this host trusts no authority: name one with sslrootcert="))
        })
    }

    /// Returns the authorities for the server's certificate, as PEM.
    pub(crate) fn authorities(&self) -> Result<Vec<u8>, StoreError> {
        let path = self.authorities_file()?;
        let read = atomic_file::read(&path, AUTHORITIES_BYTES_MAX);
        read.map_err(|error| self.failed(format_args!("{}: {error}", path.display())))
    }

    /// Creates an error of this database. The password is removed from the text.
    pub(crate) fn failed(&self, what: fmt::Arguments<'_>) -> StoreError {
        let password = self.password.expose();
        let mut what = what.to_string();
        for word in [password.clone(), decoded(password)] {
            if !word.is_empty() {
                what = what.replace(&word, "<secret>");
            }
        }
        StoreError::Database { database: self.shown.clone(), what }
    }
}

/// Returns the files of certificate authorities that the check of this URL's server may read.
#[must_use]
pub fn authority_files(text: &str) -> Vec<PathBuf> {
    match ServerUrl::parse(text) {
        Ok(url) if url.asked != Some(false) => match url.authorities {
            Some(named) => vec![named],
            None => BUNDLES.iter().map(PathBuf::from).collect(),
        },
        _ => Vec::new(),
    }
}

/// Decodes percent-encoded characters, such as `%2F`.
pub(crate) fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let hex = tail.get(..2).and_then(|two| std::str::from_utf8(two).ok());
        let byte = hex.filter(|_| *first == b'%').and_then(|two| u8::from_str_radix(two, 16).ok());
        bytes.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { tail.get(2..).unwrap_or_default() } else { tail };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_mark_in_a_password_shows_nothing_of_it() {
        for text in [
            "mysql://turn:hu?sh@db/turn",
            "redis://:hu?sh@db",
            "postgresql://a:hu?sh@db/c?x=1",
            "postgresql://a:hu?sh=1@db/c",
            "mysql://a:hu?sh=1&y=2@db/c",
            "postgresql://a:p@hu/c?sh=1@db/c",
            "redis://:hu/c?sh=1@db",
        ] {
            let refused = ServerUrl::parse(text).unwrap_err().to_string();
            assert!(refused.contains("%3F"), "{refused}");
            assert!(!refused.contains("hu") && !refused.contains("sh@"), "{refused}");
        }
        ServerUrl::parse("postgresql:///turn?user=a@b&host=db").unwrap();
        ServerUrl::parse("postgresql://a:hu%3Fsh=1@db/c?application_name=a%40b").unwrap();
    }

    #[test]
    fn a_character_that_ends_a_password_shows_nothing_of_it() {
        for (text, code) in [
            ("mysql://turn:hu#sh@db/turn", "%23"),
            ("redis://:hu/sh@db/0", "%2F"),
            ("postgresql://turn:hu@sh@db/turn", "%40"),
        ] {
            let refused = ServerUrl::parse(text).unwrap_err().to_string();
            assert!(refused.contains(code) && !refused.contains("sh"), "{refused}");
        }
    }

    #[test]
    fn the_url_decides_before_the_hosts() {
        let (here, away) = (Endpoint::host("localhost"), Endpoint::host("db.example.org"));
        for (text, at_here, at_away) in [
            ("postgresql://a/turn", false, true),
            ("postgresql://a/turn?sslmode=disable", false, false),
            ("mysql://a/turn?sslmode=verify-full", true, true),
            ("redis://a", false, false),
            ("redis://a?sslmode=verify-full", true, true),
            ("rediss://a", true, true),
            ("mongodb://a/turn?replicaSet=a&ssl=false", false, false),
            ("mongodb://a/turn?tls=true", true, true),
        ] {
            let url = ServerUrl::parse(text).unwrap();
            let tls = [&here, &away].map(|one| url.encrypts(std::slice::from_ref(one)));
            assert_eq!(tls, [at_here, at_away], "{text}");
            let both = [here.clone(), away.clone()];
            assert_eq!(url.clear_hosts(&both).is_empty(), at_away, "{text}");
        }
        let refused =
            ServerUrl::parse("mysql://a:pass@b/c?sslmode=prefer").unwrap_err().to_string();
        assert!(refused.contains("sslmode=prefer is not offered"), "{refused}");
        let refused = ServerUrl::parse("mongodb://b/c?tlsInsecure=true").unwrap_err().to_string();
        assert!(refused.contains("tlsInsecure=true is not offered"), "{refused}");
        let url = ServerUrl::parse("mongodb://b/c?tlsCAFile=%2Fca.pem&w=1&tls=true").unwrap();
        assert_eq!(url.expose(), "mongodb://b/c?w=1");
        assert_eq!(url.authorities_file().unwrap(), PathBuf::from("/ca.pem"));
    }

    #[test]
    fn a_password_is_in_no_message() {
        let url = ServerUrl::parse(
            "postgresql://turn:p%40ss/w@db:1/turn?sslrootcert=%2Fetc%2Fca.pem&connect_timeout=2",
        );
        let url = url.unwrap();
        assert_eq!(url.expose(), "postgresql://turn:p%40ss/w@db:1/turn?connect_timeout=2");
        assert_eq!(url.authorities, Some("/etc/ca.pem".into()));
        let error = url.failed(format_args!("p@ss/w and p%40ss/w are wrong")).to_string();
        assert_eq!(error, "postgresql://db:1/turn: <secret> and <secret> are wrong");
        assert!(!format!("{url:?}").contains("p%40ss"));
    }
}
