//! Names of hosts, and places on the web.

use std::fmt;
use std::net::IpAddr;
use std::ops::Deref;

use serde_json::{Map, Value, json};

use super::{Written, written};

/// The name of a host, in lower case: labels of letters, digits and hyphens (RFC 1123 §2.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DomainName(String);

impl Deref for DomainName {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for DomainName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self)
    }
}

fn is_label(label: &str) -> bool {
    matches!(label.len(), 1..=63)
        && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        && !label.starts_with('-')
        && !label.ends_with('-')
}

impl Written for DomainName {
    const KIND: &'static str = "domain name";

    fn forms() -> String {
        "write a host's name in quotes, such as \"turn.example.org\"; international ones as xn--…"
            .to_owned()
    }

    fn parse(text: &str) -> Result<Self, String> {
        if text.starts_with("*.") {
            return Err(format!("\"{text}\" is for many hosts, and names are verified one by one"));
        }
        // The longest name that DNS has (RFC 1035 §2.3.4), as text.
        let is_good =
            text.len() <= 253 && text.split('.').all(is_label) && text.parse::<IpAddr>().is_err();
        if is_good {
            Ok(Self(text.to_ascii_lowercase()))
        } else {
            Err(format!("\"{text}\" is not the name of a host"))
        }
    }

    fn written(&self) -> Value {
        json!(self.0)
    }

    fn describe(schema: &mut Map<String, Value>) {
        schema.insert("maxLength".to_owned(), json!(253));
    }
}
written!([] DomainName);

/// A URL of HTTPS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpsUrl(String);

impl HttpsUrl {
    /// The URL itself; for defaults, which must be good.
    pub(crate) fn fixed(url: &'static str) -> Self {
        assert!(Self::parse(url).is_ok(), "the default is not a URL of HTTPS");
        Self(url.to_owned())
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Written for HttpsUrl {
    const KIND: &'static str = "address on the web";

    fn forms() -> String {
        "write one that begins with https://, such as \"https://acme-v02.api.letsencrypt.org/directory\"".to_owned()
    }

    fn parse(text: &str) -> Result<Self, String> {
        let host = text.strip_prefix("https://");
        let is_good = host.is_some_and(|host| !host.is_empty() && !host.starts_with('/'))
            && text.len() <= 512
            && text.bytes().all(|byte| byte.is_ascii_graphic());
        if is_good { Ok(Self(text.to_owned())) } else { Err(format!("\"{text}\" is none")) }
    }

    fn written(&self) -> Value {
        json!(self.0)
    }

    fn describe(schema: &mut Map<String, Value>) {
        schema.insert("maxLength".to_owned(), json!(512));
        schema.insert("x-bounds".to_owned(), json!("https://, up to 512 bytes"));
    }
}
written!([] HttpsUrl);

/// A URL of a web service: HTTPS, or HTTP on this host alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceUrl(String);

impl ServiceUrl {
    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Written for ServiceUrl {
    const KIND: &'static str = "address of a web service";

    fn forms() -> String {
        "write one that begins with https://, or for a service on this host with http://127.0.0.1"
            .to_owned()
    }

    fn parse(text: &str) -> Result<Self, String> {
        let is_good = text.len() <= 512
            && text.bytes().all(|byte| byte.is_ascii_graphic())
            && !text.contains('@')
            && is_of_service(text);
        // It may have a password in it.
        if is_good { Ok(Self(text.to_owned())) } else { Err(format!("it is no {}", Self::KIND)) }
    }

    fn written(&self) -> Value {
        json!(self.0)
    }

    fn describe(schema: &mut Map<String, Value>) {
        schema.insert("maxLength".to_owned(), json!(512));
        schema.insert(
            "x-bounds".to_owned(),
            json!("https://, or http:// of this host, up to 512 bytes"),
        );
    }
}
written!([] ServiceUrl);

/// Returns true for a URL that nobody between here and the service can read.
fn is_of_service(url: &str) -> bool {
    let host = |rest: &str| rest.split(['/', '?', '#']).next().unwrap_or_default().to_owned();
    if let Some(rest) = url.strip_prefix("https://") {
        return !host(rest).is_empty();
    }
    let Some(rest) = url.strip_prefix("http://") else { return false };
    let host = host(rest);
    let bare = match host.strip_prefix('[') {
        Some(v6) => v6.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    bare == "localhost" || bare.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_hosts_and_no_others() {
        for good in ["turn.example.org", "localhost", "xn--bcher-kva.example", "Turn.Example.org"] {
            assert!(DomainName::parse(good).is_ok(), "{good}");
        }
        let long = format!("{}.org", "a".repeat(64));
        for bad in [
            "",
            ".",
            "a..b",
            "turn.example.org.",
            "*.example.org",
            "-a.org",
            "1.2.3.4",
            "a b",
            "ü.org",
            &long,
        ] {
            assert!(DomainName::parse(bad).is_err(), "{bad}");
        }
        let name = DomainName::parse("Turn.Example.org");
        assert_eq!(name.as_deref(), Ok("turn.example.org"));
    }

    #[test]
    fn https_and_nothing_else() {
        assert!(HttpsUrl::parse("https://ca.example/dir").is_ok());
        for bad in
            ["http://ca.example/dir", "https://", "https:///dir", "https://a b", "ca.example"]
        {
            assert!(HttpsUrl::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn plain_http_stays_on_this_host() {
        for good in [
            "https://app.example.org/turn?x=1",
            "http://127.0.0.1:8080/ask",
            "http://localhost/",
            "http://[::1]:80/a",
        ] {
            assert!(ServiceUrl::parse(good).is_ok(), "{good}");
        }
        for bad in [
            "http://app.example.org/",
            "http://127.0.0.1.example.org/",
            "http://localhost.example.org/",
            "http://127.0.0.1@example.org/",
            "https://",
            "https:///path",
            "ftp://localhost/",
            "app.example.org",
            "https://a b.example/",
        ] {
            assert!(ServiceUrl::parse(bad).is_err(), "{bad}");
        }
    }
}
