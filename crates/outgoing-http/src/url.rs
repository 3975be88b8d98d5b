//! URLs of services.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use hyper::Uri;

/// URL of a service: `https://` of any host, `http://` of this host alone (`localhost` or a
/// loopback address).
///
/// It has no name and password of a user: they belong into a header, from a file.
#[derive(Clone, PartialEq, Eq)]
pub struct Url(Uri);

/// Reason for which a text is no [`Url`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    /// Neither `https://` nor `http://`, or no host.
    #[error("this is no URL that begins with https:// or http:// and a host")]
    Malformed,
    /// Plain HTTP to another host: others could read and change what is sent.
    #[error(
        "http:// is for services on this host alone (localhost, 127.0.0.1, [::1]); use https://"
    )]
    Plaintext,
    /// A name or password before the host.
    #[error("a URL with a user name or password is not accepted")]
    UserInfo,
}

impl Url {
    /// Reads a URL.
    ///
    /// # Errors
    /// It is malformed, is plain HTTP to another host, or has a user name.
    pub fn parse(text: &str) -> Result<Self, UrlError> {
        let uri = Uri::from_str(text).map_err(|_| UrlError::Malformed)?;
        let authority = uri.authority().ok_or(UrlError::Malformed)?;
        if authority.as_str().contains('@') {
            return Err(UrlError::UserInfo);
        }
        if authority.host().is_empty() {
            return Err(UrlError::Malformed);
        }
        match uri.scheme_str() {
            Some("https") => Ok(Self(uri)),
            Some("http") if is_this_host(authority.host()) => Ok(Self(uri)),
            Some("http") => Err(UrlError::Plaintext),
            _ => Err(UrlError::Malformed),
        }
    }

    pub(crate) fn uri(&self) -> Uri {
        self.0.clone()
    }
}

/// True for a host that is reached without a network (RFC 6761 §6.3 for the name).
fn is_this_host(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost")
        || bare.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

impl FromStr for Url {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        Self::parse(text)
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Url({})", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn https_anywhere_and_http_on_this_host() {
        for text in [
            "https://billing.example.org/records?a=1",
            "https://192.0.2.1:8443",
            "http://localhost:8080/x",
            "http://127.0.0.9/x",
            "http://[::1]:80/",
        ] {
            assert_eq!(Url::parse(text).map(|_| ()), Ok(()), "{text}");
        }
        for (text, why) in [
            ("http://billing.example.org/", UrlError::Plaintext),
            ("http://10.0.0.1/", UrlError::Plaintext),
            ("http://127.0.0.1.example.org/", UrlError::Plaintext),
            ("https://me:secret@billing.example.org/", UrlError::UserInfo),
            ("http://localhost@evil.example/", UrlError::UserInfo),
            ("ftp://localhost/", UrlError::Malformed),
            ("billing.example.org", UrlError::Malformed),
            ("/records", UrlError::Malformed),
            ("https://", UrlError::Malformed),
            ("https://a b", UrlError::Malformed),
            ("", UrlError::Malformed),
        ] {
            assert_eq!(Url::parse(text), Err(why), "{text}");
        }
    }
}
