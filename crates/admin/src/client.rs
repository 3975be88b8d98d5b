//! Client of the control socket, for `turnpike status` and similar commands.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{CONTENT_TYPE, HOST};
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;
use tokio::time::timeout;

use crate::limits::{ANSWER_BYTES_MAX, ANSWER_DEADLINE, SESSIONS_DEFAULT};
use crate::types::{
    Drain, DrainCancelled, DrainRequest, Ended, ForgetAccounts, ForgottenAccounts, Overview,
    Problem, Refusals, Reload, ReloadRequest, Revocation, Revocations, Revoke, Revoked,
    SessionDetails, Sessions, Status, Trace, Traces,
};

/// Selection and order of a page of sessions; the default selects the first of all, oldest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionQuery {
    /// Only of this user: the name as authenticated, or its account.
    pub user: Option<String>,
    /// Only of this realm.
    pub realm: Option<String>,
    /// Only of clients at this address, at any port.
    pub client: Option<IpAddr>,
    /// Only with this text in a name, an address or the id.
    pub filter: Option<String>,
    /// `age`, `expires`, `rate`, `packets`, `traffic`, `dropped`, `user` or `client`; `-` in front
    /// reverses it.
    pub sort: Option<String>,
    /// With the rates of each; the first answer takes a second.
    pub rates: bool,
    /// With the peers of each; an answer has fewer sessions then.
    pub peers: bool,
    /// Most sessions: 1..=[`SESSIONS_MAX`](crate::limits::SESSIONS_MAX).
    pub limit: usize,
    /// The [`next`](Sessions::next) of the page before.
    pub after: Option<String>,
}

impl Default for SessionQuery {
    fn default() -> Self {
        let (user, realm, client, filter, sort, after) = (None, None, None, None, None, None);
        let limit = SESSIONS_DEFAULT;
        Self { user, realm, client, filter, sort, rates: false, peers: false, limit, after }
    }
}

/// A connection to a running server's control socket.
#[derive(Debug)]
pub struct Client {
    sender: SendRequest<Full<Bytes>>,
}

/// Error of a request to the server.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No socket, or no server behind it.
    #[error("no server answers on the control socket {}", .0.display())]
    NotRunning(PathBuf),
    /// The socket belongs to somebody else.
    #[error("no permission: the control socket {} belongs to {owner}", path.display())]
    NoPermission {
        /// The socket.
        path: PathBuf,
        /// Its owner: `root`, `user id 993`.
        owner: String,
    },
    /// The kernel refused otherwise.
    #[error("cannot connect to the control socket {}: {source}", path.display())]
    Connect {
        /// The socket.
        path: PathBuf,
        /// Error of the kernel.
        source: io::Error,
    },
    /// No answer in time.
    #[error("the server did not answer within {} seconds", .0.as_secs())]
    TimedOut(Duration),
    /// The server said no.
    #[error("{}", problem.error)]
    Refused {
        /// HTTP status code.
        status: u16,
        /// Message of the server.
        problem: Problem,
    },
    /// The connection was closed before the answer.
    #[error("the server has ended, or another process has taken its place, before it answered")]
    Ended,
    /// The response is not of this kind of server.
    #[error("cannot understand the answer on the control socket: {0}")]
    Broken(String),
}

impl ClientError {
    /// Advice.
    #[must_use]
    pub fn hint(&self) -> String {
        match self {
            Self::NotRunning(_) => "is the server running? start it with `turnpike`; if it runs \
                 with another data directory, name it with --data or --socket"
                .to_owned(),
            Self::NoPermission { owner, .. } => {
                let or_root = if owner == "user root" { "" } else { " or as root" };
                format!("run the command as {owner}{or_root} (sudo)")
            }
            Self::Connect { .. } => "check the path given with --data or --socket".to_owned(),
            Self::TimedOut(_) => "the server is up but overloaded or stuck; look at its log and \
                 at `top -H`"
                .to_owned(),
            Self::Refused { problem, .. } => problem.hint.clone(),
            Self::Ended => "`turnpike status` shows the process that serves; repeat the command: \
                 a change without an answer may not have been made"
                .to_owned(),
            Self::Broken(_) => "client and server may be of different versions; use the binary \
                 that the server was started from"
                .to_owned(),
        }
    }
}

impl Client {
    /// Connects to the control socket at `path`.
    ///
    /// # Errors
    /// [`ClientError::NotRunning`], [`ClientError::NoPermission`] or [`ClientError::Connect`].
    pub async fn connect(path: &Path) -> Result<Self, ClientError> {
        let stream =
            UnixStream::connect(path).await.map_err(|source| cannot_connect(path, source))?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
        // Ends with the sender; an error shows up in the request that it breaks.
        tokio::spawn(connection);
        Ok(Self { sender })
    }

    /// State of the server.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn status(&mut self) -> Result<Status, ClientError> {
        self.ask(Method::GET, "/v1/status", None::<&()>).await
    }

    /// Rates of the last seconds, and present faults.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn overview(&mut self) -> Result<Overview, ClientError> {
        self.ask(Method::GET, "/v1/overview", None::<&()>).await
    }

    /// Live allocations: of `user` or all, at most `limit`
    /// (1..=[`SESSIONS_MAX`](crate::limits::SESSIONS_MAX)).
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn sessions(
        &mut self,
        user: Option<&str>,
        limit: usize,
    ) -> Result<Sessions, ClientError> {
        let user = user.map(str::to_owned);
        self.session_page(&SessionQuery { user, limit, ..SessionQuery::default() }).await
    }

    /// A page of live allocations.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn session_page(&mut self, query: &SessionQuery) -> Result<Sessions, ClientError> {
        let SessionQuery { user, realm, client, filter, sort, rates, peers, limit, after } = query;
        let mut path = format!("/v1/sessions?limit={limit}");
        for (name, value) in [
            ("user", user.clone()),
            ("realm", realm.clone()),
            ("client", client.map(|ip| ip.to_string())),
            ("filter", filter.clone()),
            ("sort", sort.clone()),
            ("rates", rates.then(|| "true".to_owned())),
            ("peers", peers.then(|| "true".to_owned())),
            ("after", after.clone()),
        ] {
            if let Some(value) = value {
                let _ = write!(path, "&{name}={}", percent_encoded(&value));
            }
        }
        self.ask(Method::GET, &path, None::<&()>).await
    }

    /// A live allocation, with its peers and its past.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with status 404 when there is none with this id.
    pub async fn session(&mut self, id: &str) -> Result<SessionDetails, ClientError> {
        let path = format!("/v1/sessions/{}", percent_encoded(id));
        self.ask(Method::GET, &path, None::<&()>).await
    }

    /// Recent refusals: of `user` and of `client`, or of all, at most `limit`
    /// (1..=[`SESSIONS_MAX`](crate::limits::SESSIONS_MAX)).
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn refusals(
        &mut self,
        user: Option<&str>,
        client: Option<IpAddr>,
        limit: usize,
    ) -> Result<Refusals, ClientError> {
        let mut path = format!("/v1/refusals?limit={limit}");
        for (name, value) in
            [("user", user.map(str::to_owned)), ("client", client.map(|ip| ip.to_string()))]
        {
            if let Some(value) = value {
                let _ = write!(path, "&{name}={}", percent_encoded(&value));
            }
        }
        self.ask(Method::GET, &path, None::<&()>).await
    }

    /// Ends one allocation.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with status 404 when there is none with this id.
    pub async fn end_session(&mut self, id: &str) -> Result<Ended, ClientError> {
        let path = format!("/v1/sessions/{}", percent_encoded(id));
        self.ask(Method::DELETE, &path, None::<&()>).await
    }

    /// Makes the server read its configuration again.
    ///
    /// # Errors
    /// [`ClientError`]; a configuration that is refused is not one, see [`Reload::refused`].
    pub async fn reload(&mut self, request: ReloadRequest) -> Result<Reload, ClientError> {
        self.ask(Method::POST, "/v1/reload", Some(&request)).await
    }

    /// Refuses a credential from now on, and ends its sessions.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn revoke(&mut self, what: &Revoke) -> Result<Revoked, ClientError> {
        self.ask(Method::POST, "/v1/revocations", Some(what)).await
    }

    /// Requests that the server forgets changed users.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn forget_accounts(
        &mut self,
        users: &ForgetAccounts,
    ) -> Result<ForgottenAccounts, ClientError> {
        self.ask(Method::POST, "/v1/accounts/forget", Some(users)).await
    }

    /// Takes a revocation back.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn restore(&mut self, what: &Revoke) -> Result<Revocation, ClientError> {
        self.ask(Method::DELETE, "/v1/revocations", Some(what)).await
    }

    /// Credentials that are refused.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn revocations(&mut self) -> Result<Revocations, ClientError> {
        self.ask(Method::GET, "/v1/revocations", None::<&()>).await
    }

    /// Makes the server take no new allocations and stop when the last one has ended.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn drain(&mut self, request: DrainRequest) -> Result<Drain, ClientError> {
        self.ask(Method::POST, "/v1/drain", Some(&request)).await
    }

    /// Makes a draining server take new allocations again.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with status 409 when it does not drain, or a signal told it to end.
    pub async fn cancel_drain(&mut self) -> Result<DrainCancelled, ClientError> {
        self.ask(Method::DELETE, "/v1/drain", None::<&()>).await
    }

    /// Clients and users that are logged in detail.
    ///
    /// # Errors
    /// As of [`Self::status`].
    pub async fn traces(&mut self) -> Result<Traces, ClientError> {
        self.ask(Method::GET, "/v1/traces", None::<&()>).await
    }

    /// Logs one more client or user in detail, for a time.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with status 400 when there are too many.
    pub async fn add_trace(&mut self, trace: &Trace) -> Result<Traces, ClientError> {
        self.ask(Method::POST, "/v1/traces", Some(trace)).await
    }

    /// Ends all traces.
    ///
    /// # Errors
    /// As of [`Self::status`].
    pub async fn clear_traces(&mut self) -> Result<Traces, ClientError> {
        self.ask(Method::DELETE, "/v1/traces", None::<&()>).await
    }

    async fn ask<T: DeserializeOwned>(
        &mut self,
        method: Method,
        path: &str,
        body: Option<&(impl Serialize + Sync)>,
    ) -> Result<T, ClientError> {
        let mut request = Request::builder().method(method).uri(path).header(HOST, "turnpike");
        let body = match body {
            Some(value) => {
                request = request.header(CONTENT_TYPE, "application/json");
                serde_json::to_vec(value).map_err(broken)?.into()
            }
            None => Bytes::new(),
        };
        let request = request.body(Full::new(body)).map_err(broken)?;
        timeout(ANSWER_DEADLINE, self.exchange(request))
            .await
            .map_err(|_| ClientError::TimedOut(ANSWER_DEADLINE))?
    }

    async fn exchange<T: DeserializeOwned>(
        &mut self,
        request: Request<Full<Bytes>>,
    ) -> Result<T, ClientError> {
        let answer = self.sender.send_request(request).await.map_err(exchange_failed)?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX);
        let body = body
            .collect()
            .await
            .map_err(|error| ClientError::Broken(error.to_string()))?
            .to_bytes();
        if status.is_success() {
            return serde_json::from_slice(&body).map_err(broken);
        }
        let problem = serde_json::from_slice(&body)
            .map_err(|_| ClientError::Broken(format!("status {status} without an explanation")))?;
        Err(ClientError::Refused { status: status.as_u16(), problem })
    }
}

/// Error of a request on its way. A server that ends closes the connection in one of several ways.
fn exchange_failed(error: hyper::Error) -> ClientError {
    let is_cut = std::error::Error::source(&error)
        .and_then(|source| source.downcast_ref::<io::Error>())
        .is_some_and(|source| is_cut(source.kind()));
    let is_end = error.is_incomplete_message() || error.is_closed() || error.is_canceled();
    if is_end || is_cut { ClientError::Ended } else { broken(error) }
}

const fn is_cut(kind: io::ErrorKind) -> bool {
    matches!(kind, io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe)
}

fn cannot_connect(path: &Path, source: io::Error) -> ClientError {
    let kind = source.kind();
    let path = path.to_owned();
    if matches!(kind, io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) {
        ClientError::NotRunning(path)
    } else if is_cut(kind) {
        ClientError::Ended
    } else if kind == io::ErrorKind::PermissionDenied {
        ClientError::NoPermission { owner: owner(&path), path }
    } else {
        ClientError::Connect { path, source }
    }
}

fn broken(error: impl std::error::Error) -> ClientError {
    ClientError::Broken(error.to_string())
}

/// Owner of the socket, or of the nearest directory above it that is visible.
fn owner(path: &Path) -> String {
    path.ancestors()
        .find_map(|path| fs::metadata(path).ok())
        .map_or_else(|| "another user".to_owned(), |metadata| user_name(metadata.uid()))
}

/// The name of a user id, as far as `/etc/passwd` knows it.
fn user_name(uid: u32) -> String {
    let passwd = fs::read_to_string("/etc/passwd").unwrap_or_default();
    passwd
        .lines()
        .find_map(|line| {
            let mut fields = line.split(':');
            let name = fields.next()?;
            (fields.nth(1)?.parse() == Ok(uid)).then(|| format!("user {name}"))
        })
        .unwrap_or_else(|| format!("user id {uid}"))
}

/// Encodes everything but unreserved characters (RFC 3986 §2.3).
fn percent_encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                out.push(char::from(byte));
            }
            other => {
                // Writing to a String cannot fail.
                let _ = write!(out, "%{other:02X}");
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encodes_what_a_user_name_may_hold() {
        assert_eq!(percent_encoded("1700000000:bob"), "1700000000%3Abob");
        assert_eq!(percent_encoded("a&b=ü ~"), "a%26b%3D%C3%BC%20~");
    }

    #[test]
    fn names_user_ids() {
        assert_eq!(user_name(0), "user root");
        assert_eq!(user_name(4_000_000_001), "user id 4000000001");
    }

    /// A server that is replaced closes the connection before it answers.
    #[tokio::test]
    async fn a_connection_that_is_closed_is_no_other_version() {
        let path = std::env::temp_dir().join(format!("turnpike-closed-{}", std::process::id()));
        let listener = tokio::net::UnixListener::bind(&path).unwrap();
        tokio::spawn(async move {
            while let Ok((connection, _)) = listener.accept().await {
                drop(connection)
            }
        });
        let error = match Client::connect(&path).await {
            Ok(mut client) => client.status().await.unwrap_err(),
            Err(error) => error,
        };
        fs::remove_file(&path).unwrap();
        assert!(matches!(error, ClientError::Ended), "{error}");
    }

    #[tokio::test]
    async fn says_that_nothing_runs() {
        let path = Path::new("/nonexistent/turnpike/control.sock");
        let error = Client::connect(path).await.unwrap_err();
        assert!(matches!(error, ClientError::NotRunning(_)), "{error}");
        assert!(error.hint().contains("start it with"));
    }
}
