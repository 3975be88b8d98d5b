//! Operation: log, control socket, monitoring, data, shutdown.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::section::section;
use crate::value::{Count, Database, Duration, Endpoint, HttpListen, Text, UrlPath, WebOrigin};

section! {
    /// The log, on standard error.
    Log {
        /// Lines for people (`text`), `key=value` pairs (`logfmt`), one JSON object per line
        /// (`json`), or lines in coturn's words (`coturn`), for programs that read those.
        restart format: LogFormat = LogFormat::Text;
        /// Lowest level that is logged: `info` has one line at the end of each allocation, and for
        /// each user (or network) and reason one a minute while requests are refused; `debug` one
        /// for each refused request, except those without credentials, as every first one is. Lines
        /// about refusals are 10 a second from each worker at most. `trace` adds nothing yet.
        #[schemars(example = &"debug")]
        live level: LogLevel = LogLevel::Info;
        /// Addresses of clients and peers in the log: `whole`; `truncated` to the network of 24
        /// bits (IPv4) or 48 (IPv6), without the port; or a `pseudonym` such as `~1f3a5b7c9d0e`,
        /// the same for an address until the server is started again, or with `address_key_file` as
        /// long as its key. `turnpike sessions` and `turnpike why` show whole addresses.
        #[schemars(example = &"truncated")]
        restart addresses: LogAddresses = LogAddresses::Whole;
        /// File that holds the key of pseudonyms, one line: an address has the same pseudonym after
        /// a restart, and on every server with this key. Whoever has the key can find the
        /// addresses. Without it each start makes a key. Relative to the configuration file. A
        /// reload reads it again.
        #[schemars(example = &"/etc/turnpike/log-key")]
        live address_key_file: Option<PathBuf> = None;
    }
}

/// Format of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum LogFormat {
    /// Lines for people.
    Text,
    /// Lines of `key=value` pairs, with values in quotes where they need them.
    Logfmt,
    /// One JSON object per line.
    Json,
    /// The lines of coturn's `verbose` log.
    Coturn,
}

/// Form of addresses of clients and peers in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum LogAddresses {
    /// As they are.
    Whole,
    /// Their networks.
    Truncated,
    /// Keyed hashes.
    Pseudonym,
}

/// Lowest level that is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum LogLevel {
    /// The server ends.
    Error,
    /// An operator has to act.
    Warn,
    /// Life events.
    Info,
    /// Mistakes of clients.
    Debug,
    /// Everything.
    Trace,
}

section! {
    /// The control socket, by which `turnpike status`, `sessions`, `reload` and other commands
    /// reach the running server.
    Control {
        /// Path of the Unix socket, which only its owner may use, unless `control.group` is set. By
        /// default `control.sock` in `data.directory`.
        #[schemars(example = &"/run/turnpike/control.sock")]
        restart socket: Option<PathBuf> = None;
        /// Group whose members may use the socket, too (mode 0660), for everything: a name of
        /// `/etc/group`, or a number. The server's user has to be a member. Put the socket in a
        /// directory that the group may enter, such as `/run/turnpike`: `data.directory` is for its
        /// owner alone. None by default.
        #[schemars(example = &"turnpike")]
        restart group: Option<Text<1, 32>> = None;
    }
}

section! {
    /// HTTP for monitoring: `/metrics` (Prometheus), `/healthz` and `/readyz`. Nothing can be
    /// changed by it, and no user, client or session is named.
    Http {
        /// Addresses and ports, and paths of Unix sockets, to serve HTTP at: without a password,
        /// and unencrypted unless `tls` is set. Name loopback, or an address of a network for
        /// monitoring. A Unix socket may be used by all that may enter its directory. None by
        /// default.
        #[schemars(example = serde_json::json!(["127.0.0.1:9641", "unix:/run/turnpike/http.sock"]))]
        restart listen: Vec<HttpListen> = Vec::new();
        /// Serves the addresses of `listen` over TLS, with the certificates of `tls.certificates`.
        /// Unix sockets stay unencrypted.
        restart tls: bool = false;
        /// Path of the metrics.
        #[schemars(example = "/turn-1/metrics")]
        restart metrics_path: UrlPath = UrlPath::fixed("/metrics");
        /// Adds metrics under the names that coturn gives them, such as `turn_total_allocations`,
        /// for dashboards that know these.
        live coturn_metrics: bool = false;
        /// `/readyz` answers 200 also while the server drains. For Kubernetes, which ends the calls
        /// of a pod that is not ready; other load balancers send new clients elsewhere.
        live ready_while_draining: bool = false;
    }
}

section! {
    /// The interface for operators over the network: HTTP and JSON under `/v1`, as on the control
    /// socket, and a page for browsers at `/`. Each request needs a token (`turnpike token add`) or
    /// a browser that signed in with one.
    Api {
        /// Addresses and ports to serve it at. On loopback it is not encrypted, and is reached by
        /// an SSH tunnel; elsewhere it is TLS with the certificates of the server. None by default.
        #[schemars(example = serde_json::json!(["127.0.0.1:9642"]))]
        restart listen: Vec<Endpoint> = Vec::new();
        /// PEM file with the certificates of authorities: every client over TLS has to present a
        /// certificate that one of them signed, in addition to its token. Without it none is
        /// requested.
        #[schemars(example = "/etc/turnpike/operators-ca.pem")]
        restart client_authorities: Option<Text<1, 4096>> = None;
        /// Longest life of the credentials that applications get at `/turn` with a token of the
        /// role `mint`, and the life of those that ask for none.
        live credential_lifetime: Duration<60, 604_800> = Duration::seconds(86_400);
        /// URIs of this server in the answers of `/turn`. By default the listeners that are not
        /// wildcards.
        #[schemars(example = serde_json::json!(["turn:turn.example.org?transport=udp"]))]
        live credential_uris: Vec<Text<1, 512>> = Vec::new();
        /// Origins of web pages that may ask for credentials at `/turn` from the browser (CORS),
        /// with a token that they show themselves. None by default: the application's own server
        /// asks.
        #[schemars(example = serde_json::json!(["https://app.example.org"]))]
        restart credential_origins: Vec<WebOrigin> = Vec::new();
    }
}

section! {
    /// State of the server on disk.
    Data {
        /// Directory of files that the server creates. Created, for its owner alone, when it does
        /// not exist. `--data` on the command line overrides it.
        #[schemars(example = &"/srv/turnpike")]
        restart directory: PathBuf = "/var/lib/turnpike".into();
        /// A start with a `directory` that cannot be written: `"refuse"` does not start;
        /// `"temporary"` takes a directory of the server's user below `/tmp`, and says so in the
        /// log. By default the server does not start: users, revocations and tokens of the
        /// directory would not count. A server with a shared secret alone can do without. Under
        /// coturn's name the server starts, as coturn does.
        restart when_unwritable: WhenUnwritable = WhenUnwritable::Refuse;
    }
}

/// Values of `data.when_unwritable`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum WhenUnwritable {
    /// The server does not start.
    Refuse,
    /// A temporary directory takes the place.
    Temporary,
}

section! {
    /// Users that are added by `turnpike user`.
    Users {
        /// Database of users. By default the file `users.sqlite` in `data.directory`. A path is
        /// relative to the configuration file; the file is created, for its owner alone, when it
        /// does not exist. Give it a directory of its own: the server may write to all of it. Under
        /// systemd that has to be in `ReadWritePaths=`.
        ///
        /// A URL with `postgresql`, `mysql`, `mariadb`, `redis`, `rediss`, `mongodb` (in a build
        /// with this feature) or `sqlite-coturn` names a database in coturn's own layout, which
        /// coturn may use at the same time (docs/operate/databases.md). A URL with a password is
        /// better in `database_file`.
        #[schemars(example = &"sqlite:///srv/turnpike/users.sqlite")]
        restart database: Option<Database> = None;
        /// File that holds the URL of `database`, in one line: for a URL with a password.
        #[schemars(example = &"/etc/turnpike/users.url")]
        restart database_file: Option<PathBuf> = None;
        /// Users of the file `users.sqlite` in `data.directory` have precedence over those of a
        /// database in coturn's own layout. The server under coturn's name keeps the users
        /// of coturn's file there; `TURNPIKE_USERS__DATABASE=FILE turnpike user add` adds others.
        restart local: bool = false;
        /// Tables of a database in coturn's own layout that are read beside its users, each second:
        /// `realms` (origins and limits of realms), `peers` (rules for peers), `secrets` (of
        /// time-limited credentials, as with coturn's `use-auth-secret`) and `tokens` (keys of
        /// access tokens, as with its `oauth`). They count beside the configuration, which wins
        /// (docs/operate/databases.md).
        #[schemars(example = serde_json::json!(["realms", "peers", "secrets"]))]
        restart database_tables: Vec<DatabaseTable> =
            vec![DatabaseTable::Realms, DatabaseTable::Peers];
    }
}

/// Tables of a database that are read beside its users.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum DatabaseTable {
    /// Origins and limits of realms.
    Realms,
    /// Rules for peers.
    Peers,
    /// Shared secrets.
    Secrets,
    /// Keys of access tokens.
    Tokens,
}

section! {
    /// Shutdown.
    Shutdown {
        /// Time that allocations may go on, without new ones, after SIGTERM or `turnpike drain`
        /// (without `--deadline`); the server ends with the last one. `"0 s"` drains nothing at
        /// SIGTERM, and leaves a `turnpike drain` seven days, the maximum.
        #[schemars(example = &"30 min")]
        live drain: Duration<0, 604_800> = Duration::seconds(0);
        /// Allocations that do not hold up the end of a drain: with as many or fewer left the
        /// server ends. Clients leave some behind, which last until their lifetime ends.
        live drain_allocations_left: Count<0, 10_000_000> = Count::new(0);
    }
}

section! {
    /// Signals for other purposes than the end of the server and reloads.
    Signals {
        /// Effect of SIGUSR1: `drain` as `turnpike drain`, `certificates` reads them again,
        /// `ignore` has none. The default is coturn's.
        #[schemars(example = &"ignore")]
        live usr1: SignalAction = SignalAction::Drain;
        /// Effect of SIGUSR2, as of SIGUSR1.
        #[schemars(example = &"ignore")]
        live usr2: SignalAction = SignalAction::Certificates;
    }
}

/// Effect of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum SignalAction {
    /// Drain.
    Drain,
    /// Read the certificates again.
    Certificates,
    /// None.
    Ignore,
}
