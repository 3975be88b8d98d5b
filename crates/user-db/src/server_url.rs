//! The URL of a database server: its TLS options taken out of it, its password kept out of
//! messages.

use std::fmt;
use std::path::PathBuf;

use turn_types::Secret;

use crate::endpoint::Endpoint;
use crate::error::StoreError;

/// Maximum bytes of a file of authorities. The bundles of distributions have 300 KiB.
const AUTHORITIES_BYTES_MAX: u64 = 4 << 20;

/// Files of authorities that this host trusts.
const BUNDLES: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];

/// The URL of a database server.
#[derive(Clone, Debug)]
pub(crate) struct ServerUrl {
    /// As the driver takes it, without the options of TLS.
    url: Secret<String>,
    /// The password as it is written there; empty: none.
    password: Secret<String>,
    /// Scheme, host and database.
    shown: String,
    /// TLS as the URL demands or refuses it; `None`: according to the hosts.
    asked: Option<bool>,
    /// File of the authorities that sign it, instead of the host's.
    authorities: Option<PathBuf>,
}

impl ServerUrl {
    /// Takes a URL apart.
    ///
    /// # Errors
    /// `sslmode` has another value than `disable` and `verify-full`, or the password has a
    /// delimiter of URLs.
    pub(crate) fn parse(text: &str) -> Result<Self, StoreError> {
        let (base, query) = text.split_once('?').unwrap_or((text, ""));
        let (scheme, rest) = base.split_once("://").unwrap_or(("", base));
        // It may close a password, and a message would show the start of the password as the host.
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
        // The driver would take the text after it for a host, and ask name servers.
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

    /// Takes an option of TLS by its name in URLs of MongoDB; returns whether it is one.
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

    /// Returns true if connections to these endpoints are encrypted and the server's certificate
    /// checked: as the URL has it, otherwise if one of them is another host.
    pub(crate) fn encrypts(&self, endpoints: &[Endpoint]) -> bool {
        self.asked.unwrap_or_else(|| endpoints.iter().any(|one| one.elsewhere().is_some()))
    }

    /// Other hosts among these endpoints to which keys travel in clear.
    pub(crate) fn clear_hosts(&self, endpoints: &[Endpoint]) -> Vec<String> {
        if self.encrypts(endpoints) {
            return Vec::new();
        }
        endpoints.iter().filter_map(Endpoint::elsewhere).map(str::to_owned).collect()
    }

    /// The URL for the driver.
    pub(crate) fn expose(&self) -> &str {
        self.url.expose()
    }

    /// File of the authorities that sign the server's certificate.
    pub(crate) fn authorities_file(&self) -> Result<PathBuf, StoreError> {
        let host = || BUNDLES.iter().map(PathBuf::from).find(|path| path.exists());
        self.authorities.clone().or_else(host).ok_or_else(|| {
            self.failed(format_args!("this host trusts no authority: name one with sslrootcert="))
        })
    }

    /// The authorities that sign the server's certificate, as PEM.
    pub(crate) fn authorities(&self) -> Result<Vec<u8>, StoreError> {
        let path = self.authorities_file()?;
        let read = atomic_file::read(&path, AUTHORITIES_BYTES_MAX);
        read.map_err(|error| self.failed(format_args!("{}: {error}", path.display())))
    }

    /// An error of this database, without its password.
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

/// Files of certificate authorities that a database server of this URL may be checked by.
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

/// Text with its `%2F` and the like put back.
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
