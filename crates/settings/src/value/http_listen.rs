//! Listeners for HTTP.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use serde_json::{Value, json};

use super::{Endpoint, Written, written};

/// Prefix of the path of a Unix socket.
const UNIX: &str = "unix:";

/// A listener for HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HttpListen {
    /// An address and a port, for TCP.
    Tcp(SocketAddr),
    /// The path of a Unix socket.
    Unix(PathBuf),
}

impl fmt::Display for HttpListen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "{UNIX}{}", path.display()),
        }
    }
}

impl Written for HttpListen {
    const KIND: &'static str = "listener for HTTP";

    fn forms() -> String {
        "write an IP address and a port, such as \"127.0.0.1:9641\", or `unix:` and the whole path of a socket, \
         such as \"unix:/run/turnpike/http.sock\""
            .to_owned()
    }

    fn parse(text: &str) -> Result<Self, String> {
        let Some(path) = text.strip_prefix(UNIX) else {
            return Endpoint::parse(text).map(|endpoint| Self::Tcp(endpoint.0));
        };
        if path.starts_with('/') && !path.ends_with('/') {
            Ok(Self::Unix(path.into()))
        } else {
            Err(format!("\"{text}\" has no path that begins with a slash and ends with a name"))
        }
    }

    fn written(&self) -> Value {
        json!(self.to_string())
    }
}
written!([] HttpListen);
