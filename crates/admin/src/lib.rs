//! The control socket: HTTP/1.1 and JSON over a Unix socket that only the server's own user can
//! open, and the client that the command line uses. Beside it, the same over the network for
//! holders of tokens ([`api`]), and HTTP for monitoring: metrics and health.
//!
//! The tables of routes stand in [`routes`] and [`monitoring`]; the JSON in [`types`]. Nothing here
//! decides anything: a route asks `control` and writes down the answer.
#![forbid(unsafe_code)]

mod access;
pub mod accounts;
pub mod api;
mod client;
mod connection_slots;
mod health;
mod holder;
mod hour;
mod live;
mod metrics;
mod monitored;
pub mod monitoring;
mod openapi;
mod overview;
mod pace;
mod paced;
mod page;
mod peer;
mod problem;
mod reasons_page;
mod resources;
mod role;
mod roll;
pub mod routes;
mod server;
mod signed;
pub mod types;
mod viewers;

/// The routes of a listener.
pub use axum::Router;

pub use access::{AccessError, Other, PassedOn, SocketFile, UnixSocket, control_sockets_of_host};
pub use client::{Client, ClientError, SessionQuery};
pub use health::{Answers, ListenerTest};
pub use metrics::reference_markdown as metrics_markdown;
pub use openapi::{json as openapi_json, markdown as api_markdown};
pub use reasons_page::markdown as reasons_markdown;
pub use role::Role;
pub use server::{HttpListener, serve};

/// Limits of the control socket and of HTTP for monitoring.
pub mod limits {
    use std::time::Duration;

    /// Sessions listed without a limit in the request: a screenful.
    pub const SESSIONS_DEFAULT: usize = 100;

    /// Most sessions in one answer: about 500 KiB of JSON. `after` leads to the next.
    pub const SESSIONS_MAX: usize = 1000;

    /// Sessions in one answer with their peers: each is looked up on its own, in a turn of its
    /// worker.
    pub const SESSIONS_WITH_PEERS_MAX: usize = 200;

    /// Concurrent queries of one realm, or of one holder of a token for all, and concurrent
    /// changes; more wait. A page sends a few, and a slow query does not delay all of them.
    pub const QUERIES_TOGETHER_MAX: usize = 2;

    /// Time that a request takes at least, before the next one of the realm or holder: with
    /// [`QUERIES_TOGETHER_MAX`] a thousand per second, in a tenth of the interface's time.
    pub(crate) const REQUEST_TAKES: Duration = Duration::from_millis(2);

    /// Answers a second to one address, or /64 of IPv6, at one listener: those to callers without a
    /// token, or with a request that theirs does not permit, and those of monitoring. Half a
    /// percent of the thread. A /48, and a /24 of IPv4, has 16 times as many.
    pub const ANSWERS_PER_SECOND: u32 = 500;

    /// Delay of an answer to requests with wrong tokens of an address that has sent too many.
    pub(crate) const REFUSED_AFTER: Duration = Duration::from_millis(250);

    /// Time that a change by the holder of a token for one realm takes at least, before the next
    /// one of the realm. A revocation is stored, and looks at all sessions: 80 per second delay
    /// nobody.
    pub(crate) const CHANGE_TAKES: Duration = Duration::from_millis(25);

    /// Sessions that one query compares before it yields to other requests: a fraction of a
    /// millisecond.
    pub const SELECT_PAGE: usize = 512;

    /// Peers in one answer, but for those of its last session: with them it stays below
    /// [`ANSWER_BYTES_MAX`].
    pub const PEERS_MAX: usize = 40_000;

    /// The longest drain: the bound of `shutdown.drain`, a week.
    pub const DRAIN_MAX: Duration = Duration::from_secs(7 * 86_400);

    /// Largest request body: the largest that means anything is a few dozen bytes.
    pub const REQUEST_BYTES_MAX: usize = 16 * 1024;

    /// Credentials a second for one token: an application with a million users who keep theirs for
    /// a day asks for 12.
    pub const MINTED_PER_SECOND: u32 = 100;

    /// Operations on users of the database at once: more would wait for it anyway, each with a
    /// thread.
    pub const ACCOUNTS_AT_ONCE: usize = 4;

    /// Largest answer the client reads: far beyond [`SESSIONS_MAX`] sessions with the longest
    /// names.
    pub const ANSWER_BYTES_MAX: usize = 8 * 1024 * 1024;

    /// Maximum number of connections from this host, and of connections over the network, at one
    /// listener. A monitoring agent and a few people need a handful. Further connections of a Unix
    /// socket wait in its queue. Over TCP, a connection without a token is closed.
    pub const CONNECTIONS_MAX: u32 = 32;

    /// Time for a client to send the head of a request, also between requests.
    pub const HEAD_DEADLINE: Duration = Duration::from_secs(10);

    /// Time for a route to answer. Longer than workers and reload are given, so that their own
    /// answers come first.
    pub const ROUTE_DEADLINE: Duration = Duration::from_secs(15);

    /// Time the client waits for an answer: longer than [`ROUTE_DEADLINE`], for the same reason.
    pub const ANSWER_DEADLINE: Duration = Duration::from_secs(20);

    /// Largest head of a request: a path and the headers of a browser.
    pub const HEAD_BYTES_MAX: usize = 16 * 1024;

    /// Bytes of a head that are read: more than [`HEAD_BYTES_MAX`], so a head between the
    /// two limits gets a response with a reason.
    pub const HEAD_BYTES_READ_MAX: usize = 4 * HEAD_BYTES_MAX;

    /// Time that a connection for monitoring may stay: one that reads nothing of its answer gives
    /// its place back. A collector that asks every 15 s connects anew once a minute.
    pub const MONITORING_CONNECTION: Duration = Duration::from_secs(60);

    /// Age up to which an examination of the server's health answers another request as well.
    pub const EXAMINATION_VALID: Duration = Duration::from_secs(1);

    /// Time for a worker to have a turn of its loop, which takes milliseconds even under full load.
    pub const TURN_DEADLINE: Duration = Duration::from_secs(2);

    /// Interval of looks whether it had one.
    pub const TURN_LOOK: Duration = Duration::from_millis(5);

    /// Age up to which the text of the metrics answers another request as well.
    pub const METRICS_VALID: Duration = Duration::from_millis(500);

    /// Age up to which gathered sessions answer another query over the network, or for rates:
    /// the queries share the work, and a rate needs at least a second.
    pub const ROLL_VALID: Duration = Duration::from_secs(1);

    /// Age from which gathered sessions are too old for rates, and are freed.
    pub const ROLL_FORGOTTEN: Duration = Duration::from_secs(15);

    /// Tokens: an operator, a page and a script each have one.
    pub const TOKENS_MAX: usize = 256;

    /// Longest name of a token, in bytes: it is in each line about its changes.
    pub const TOKEN_NAME_BYTES_MAX: usize = 64;

    /// Longest text of a token that is hashed: the ones that are made have 52 bytes.
    pub const TOKEN_BYTES_MAX: usize = 256;

    /// Largest file of tokens: [`TOKENS_MAX`] with the longest names.
    pub const TOKEN_FILE_BYTES_MAX: u64 = 256 * 1024;

    /// Time that requests wait for the file of tokens. A local disk needs milliseconds. Later, no
    /// token is accepted.
    pub const TOKENS_READ_WITHIN: Duration = Duration::from_secs(1);

    /// Time that a browser stays signed in: a working day.
    pub const SIGNED_IN: Duration = Duration::from_hours(12);

    /// Browsers signed in at the same time; the oldest of the token with most makes room.
    pub const SIGNED_IN_MAX: usize = 64;

    /// Wrong tokens of one address, or /64 of IPv6, in a minute; a site has 16 times as many. More
    /// leave no line in the log. A person mistypes once or twice.
    pub const WRONG_TOKENS_PER_MINUTE: u32 = 10;

    /// [`CONNECTIONS_MAX`] for the interface for operators: a browser opens six connections.
    pub const API_CONNECTIONS_MAX: u32 = 256;

    /// Time that a connection over the network stays without a token: enough to load the page and
    /// to sign in.
    pub const UNKNOWN_CONNECTION: Duration = Duration::from_secs(20);

    /// Time that a connection over the network stays once a token was shown: a page that is left
    /// open connects anew.
    pub const API_CONNECTION: Duration = Duration::from_hours(1);

    /// Time for a TLS handshake.
    pub const HANDSHAKE_DEADLINE: Duration = Duration::from_secs(10);

    /// Interval of overviews for those that watch.
    pub const SNAPSHOT_EVERY: Duration = Duration::from_secs(1);

    /// Maximum number of concurrent streams of overviews, of [`API_CONNECTIONS_MAX`]. Beyond it, a
    /// holder with fewer streams replaces the newest stream of the holder with most. A holder that
    /// has no fewer gets a 503.
    pub const VIEWERS_MAX: usize = 16;

    /// Length of one stream: its viewer then opens another, which shows that its token is still
    /// valid.
    pub const VIEWING: Duration = Duration::from_mins(1);

    /// Interval of samples of the counters while nobody watches: a first look has rates of the last
    /// seconds.
    pub const SAMPLE_EVERY: Duration = Duration::from_secs(5);

    /// Least time that a rate is of: [`SNAPSHOT_EVERY`], but for a tick that comes early after a
    /// late one.
    pub const RATE_OVER: Duration = Duration::from_millis(900);

    /// Overviews that wait for a viewer; one that does not read misses some.
    pub const EVENTS_QUEUED: usize = 4;

    /// Time that refusals and drops are counted over.
    pub const HISTORY: Duration = Duration::from_mins(1);

    /// Interval of the history's points.
    pub const POINT_EVERY: Duration = Duration::from_secs(15);

    /// Maximum number of the history's points, about 100 bytes each: one hour.
    pub const HOUR_POINTS: usize = 240;

    /// Age at which the number of open files is counted again: on Linux before 6.2 each of them
    /// costs a microsecond.
    pub const FILES_COUNTED_EVERY: Duration = Duration::from_secs(10);

    /// Days before its expiry at which a certificate is a problem, as in the log.
    pub const CERTIFICATE_DAYS: i64 = 14;

    /// Load of a core from which a worker is a problem: bursts find no room.
    pub const BUSY_PERCENT: u64 = 90;

    /// Part of the relay ports in use that is a problem.
    pub const PORTS_USED_PERCENT: u64 = 90;

    /// Refusals on the timeline of a session.
    pub const MOMENTS_MAX: usize = 50;

    /// Longest text of a query, in bytes: an address, or a user's name (RFC 8489 §14.3: below 509).
    pub const FILTER_BYTES_MAX: usize = 512;

    const _: () = assert!(SESSIONS_DEFAULT <= SESSIONS_MAX);
    const _: () = assert!(ROUTE_DEADLINE.as_secs() < ANSWER_DEADLINE.as_secs());
}
