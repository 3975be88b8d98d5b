//! Every option of coturn 4.17, and of older versions, with its state here.

/// Form of an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    /// On or off.
    Switch,
    /// Switch that every value turns on.
    Flag,
    /// A value.
    Value,
}

/// State of an option here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counterpart {
    /// Keys that replace it.
    Keys(&'static str),
    /// It is always so here, or there is nothing to set; the reason.
    Always(&'static str),
    /// There is no counterpart; the reason, or the way that is offered instead.
    Unsupported(&'static str),
}

use Counterpart::{Always, Keys, Unsupported};
use Takes::{Flag, Switch, Value};

/// An option.
#[derive(Clone, Copy, Debug)]
pub struct CoturnOption {
    /// Long name.
    pub name: &'static str,
    /// Letter on the command line.
    pub letter: Option<char>,
    /// Form.
    pub takes: Takes,
    /// State here.
    pub counterpart: Counterpart,
}

/// Returns the first option of coturn that sets a key.
#[must_use]
pub fn option_for(key: &str) -> Option<&'static str> {
    let sets = |option: &&CoturnOption| match option.counterpart {
        Keys(keys) => keys.split(", ").any(|one| one == key),
        Always(_) | Unsupported(_) => false,
    };
    OPTIONS.iter().find(sets).map(|option| option.name)
}

const fn option(name: &'static str, takes: Takes, counterpart: Counterpart) -> CoturnOption {
    CoturnOption { name, letter: None, takes, counterpart }
}

const fn lettered(
    letter: char,
    name: &'static str,
    takes: Takes,
    counterpart: Counterpart,
) -> CoturnOption {
    CoturnOption { name, letter: Some(letter), takes, counterpart }
}

const MANAGER: &str = "the service manager does it; in force under the name `turnserver`";
const JOURNAL: &str = "the log is on standard error, which the service manager or the container engine keeps; in force under \
                       the name `turnserver`";
const EXACT: &str = "under the name `turnserver` a log file has the exact name, and is not rotated";
const MODERN: &str = "TLS 1.2 and 1.3 with AEAD ciphers and forward secrecy, without a choice";
const FAST: &str = "the data path has no such choice";
const STATUS: &str =
    "`turnpike status`, `sessions` and `user` replace it, by a socket for its owner";
const PAGE: &str = "the page and API of `[http]` replace it";
const NO_POLL: &str = "changes are seen without a switch";

/// Every option, in the order of coturn's documentation.
pub const OPTIONS: &[CoturnOption] = &[
    // Listening and addresses.
    lettered('d', "listening-device", Value, Keys("sockets.listen_device")),
    lettered('p', "listening-port", Value, Keys("listen")),
    option("tls-listening-port", Value, Keys("tls.listen")),
    option("alt-listening-port", Value, Keys("discovery.ports")),
    option(
        "alt-tls-listening-port",
        Value,
        Unsupported("NAT behaviour discovery is over UDP alone"),
    ),
    option(
        "tcp-proxy-port",
        Value,
        Unsupported(
            "every TCP port takes PROXY headers, from the networks of `tcp.proxy_protocol`",
        ),
    ),
    lettered('L', "listening-ip", Value, Keys("listen, tls.listen")),
    option("aux-server", Value, Keys("listen")),
    option(
        "udp-self-balance",
        Switch,
        Always(
            "each worker has its own socket at every port, and the kernel spreads clients over them",
        ),
    ),
    option("no-udp", Switch, Keys("udp.enabled")),
    option("no-tcp", Switch, Keys("tcp.enabled")),
    option("no-tls", Switch, Keys("tls.certificates")),
    option("dtls", Switch, Keys("dtls.enabled")),
    option("no-dtls", Switch, Keys("dtls.enabled")),
    lettered('i', "relay-device", Value, Keys("sockets.relay_device")),
    lettered('E', "relay-ip", Value, Keys("relay.addresses")),
    lettered('X', "external-ip", Value, Keys("relay.external, relay.addresses")),
    option("min-port", Value, Keys("relay.ports")),
    option("max-port", Value, Keys("relay.ports")),
    option("no-udp-relay", Switch, Keys("udp.relaying")),
    option("no-tcp-relay", Switch, Keys("tcp.relaying")),
    option(
        "server-relay",
        Switch,
        Unsupported(
            "without permissions anybody who finds a relayed port reaches the client behind it; let the client permit its peers \
             (CreatePermission), or name peers that may be reached in `peers.allow`",
        ),
    ),
    lettered('K', "keep-address-family", Switch, Keys("relay.default_family")),
    lettered('A', "allocation-default-address-family", Value, Keys("relay.default_family")),
    option("max-allocate-lifetime", Value, Keys("lifetimes.allocation_max")),
    option("channel-lifetime", Value, Keys("lifetimes.channel")),
    option("permission-lifetime", Value, Keys("lifetimes.permission")),
    option(
        "max-allocate-timeout",
        Value,
        Always(
            "connections without an allocation are closed after a minute, and UDP clients without one take no memory",
        ),
    ),
    option("multiplex-peer", Flag, Always(FAST)),
    option("multiplex-peer-port", Value, Always(FAST)),
    option("multiplex-peer-max-peers", Value, Always(FAST)),
    // Authentication.
    lettered('a', "lt-cred-mech", Switch, Keys("auth.users")),
    lettered(
        'z',
        "no-auth",
        Switch,
        Unsupported("an open relay is abused within hours; if you want one, set `auth.open_relay`"),
    ),
    lettered('u', "user", Value, Keys("the user database")),
    lettered('r', "realm", Value, Keys("realm")),
    option("use-auth-secret", Flag, Keys("auth.secrets")),
    option("static-auth-secret", Value, Keys("auth.secrets")),
    lettered('C', "rest-api-separator", Value, Keys("auth.separator")),
    option(
        "oauth",
        Switch,
        Unsupported(
            "with a database that both servers can share `users.database_tables`; otherwise `auth.token_keys`",
        ),
    ),
    option("server-name", Value, Keys("auth.server_name")),
    option("stale-nonce", Value, Keys("lifetimes.nonce")),
    option("stateless-nonce", Switch, Always("nonces take no memory")),
    option("stateless-nonce-secret", Value, Keys("auth.nonce_key_file")),
    option("secure-stun", Switch, Keys("auth.binding")),
    option(
        "check-origin-consistency",
        Switch,
        Unsupported(
            "nothing depends on ORIGIN behind the first request: nonce, key and allocation are of one realm, and a request \
             that shows them for another is refused, whatever its ORIGIN",
        ),
    ),
    option("no-auth-pings", Flag, Always(NO_POLL)),
    option("no-dynamic-ip-list", Flag, Keys("users.database_tables")),
    option("no-dynamic-realms", Flag, Keys("users.database_tables")),
    // Databases.
    lettered('b', "userdb", Value, Keys("users.database")),
    option("db", Value, Keys("users.database")),
    lettered('e', "psql-userdb", Value, Keys("users.database_file")),
    option("sql-userdb", Value, Keys("users.database_file")),
    lettered('M', "mysql-userdb", Value, Keys("users.database_file")),
    lettered(
        'J',
        "mongo-userdb",
        Value,
        Keys("users.database_file, in a build with the feature `mongodb`"),
    ),
    lettered('N', "redis-userdb", Value, Keys("users.database_file")),
    lettered('O', "redis-statsdb", Value, Keys("accounting.redis_file")),
    option(
        "secret-key-file",
        Value,
        Unsupported(
            "it decrypts the password of mysql-userdb: write that in clear into the URL in `users.database_file`, which only \
             the server reads (`turnadmin -v -f FILE -p PASSWORD` shows it)",
        ),
    ),
    // Quotas.
    lettered('q', "user-quota", Value, Keys("quotas.allocations_per_user")),
    lettered('Q', "total-quota", Value, Keys("quotas.allocations_total")),
    lettered('s', "max-bps", Value, Keys("quotas.bytes_per_second")),
    lettered('B', "bps-capacity", Value, Keys("quotas.bytes_per_second_total")),
    option(
        "unauthorized-ratelimit",
        Switch,
        Always("`quotas.unauthenticated_responses_per_second`"),
    ),
    option(
        "unauthorized-ratelimit-rps",
        Value,
        Always("`quotas.unauthenticated_responses_per_second`, for a network"),
    ),
    option("drain-min-allocations", Value, Keys("shutdown.drain_allocations_left")),
    // TLS.
    option("cert", Value, Keys("tls.certificates")),
    option("pkey", Value, Keys("tls.certificates")),
    option("pkey-pwd", Value, Keys("tls.certificates")),
    option("CA-file", Value, Keys("tls.client_authorities")),
    option("cipher-list", Value, Keys("tls.cipher_suites")),
    option("ec-curve-name", Value, Keys("tls.key_exchange")),
    option("dh-file", Value, Always(MODERN)),
    option("dh566", Switch, Always(MODERN)),
    option("dh1066", Switch, Always(MODERN)),
    option("dh2066", Switch, Always(MODERN)),
    option("tlsv1", Switch, Unsupported(MODERN)),
    option("tlsv1_1", Switch, Unsupported(MODERN)),
    option("no-tlsv1_2", Switch, Keys("tls.minimum_version")),
    option("raw-public-keys", Switch, Unsupported("clients verify certificates")),
    option("acme-redirect", Value, Keys("tcp.acme_redirect")),
    // Peers and protocol.
    option("allowed-peer-ip", Value, Keys("peers.allow")),
    option("denied-peer-ip", Value, Keys("peers.deny")),
    option(
        "no-multicast-peers",
        Switch,
        Always("multicast and every other special-purpose range is refused"),
    ),
    option(
        "allow-loopback-peers",
        Switch,
        Unsupported("it opens this host's own services: name single addresses in `peers.allow`"),
    ),
    lettered('S', "stun-only", Switch, Keys("relay.enabled")),
    option("no-stun", Switch, Keys("binding")),
    lettered(
        'f',
        "fingerprint",
        Switch,
        Always("a response has FINGERPRINT when its request has it"),
    ),
    option("mobility", Switch, Keys("mobility")),
    option("software-attribute", Switch, Keys("software")),
    option("no-software-attribute", Switch, Always("SOFTWARE is not sent by default")),
    option("include-reason-string", Switch, Always("errors have their reason phrase")),
    option("rfc5780", Flag, Keys("discovery.addresses")),
    option("no-rfc5780", Switch, Always("discovery is off by default")),
    option(
        "response-origin-only-with-rfc5780",
        Switch,
        Always("RESPONSE-ORIGIN is sent with discovery only"),
    ),
    option(
        "stun-backward-compatibility",
        Switch,
        Unsupported(
            "MAPPED-ADDRESS is for clients before RFC 5389: see `compatibility.rfc3489_clients`",
        ),
    ),
    option("no-stun-backward-compatibility", Switch, Always("MAPPED-ADDRESS is not sent")),
    option("rfc3489-compatibility", Switch, Keys("compatibility.rfc3489_clients")),
    option("rfc5766-channel-numbers", Switch, Keys("compatibility.rfc5766_clients")),
    option(
        "drop-invalid-packets",
        Switch,
        Always("packets that are neither STUN nor ChannelData are dropped, and counted"),
    ),
    option(
        "drop-invalid-packets-log",
        Switch,
        Unsupported("dropped packets are counted by reason, and not shown"),
    ),
    option("respond-http-unsupported", Switch, Always("HTTP on a TURN port is answered with 400")),
    option("alternate-server", Value, Keys("redirect.servers")),
    option("udp-alternate-server", Value, Keys("redirect.udp")),
    option("tcp-alternate-server", Value, Keys("redirect.tcp")),
    option("tls-alternate-server", Value, Keys("redirect.tls")),
    // The log.
    lettered(
        'v',
        "verbose",
        Switch,
        Always("each allocation has a line, and refusals one a minute"),
    ),
    lettered('V', "Verbose", Switch, Keys("log.level")),
    lettered('l', "log-file", Value, Always(JOURNAL)),
    option("no-stdout-log", Switch, Always(JOURNAL)),
    option("syslog", Switch, Always(JOURNAL)),
    option("syslog-facility", Value, Always(JOURNAL)),
    option("simple-log", Switch, Always(EXACT)),
    option("log-min-level", Value, Keys("log.level")),
    option("new-log-timestamp", Switch, Always("times are ISO 8601")),
    option("new-log-timestamp-format", Value, Always("times are ISO 8601")),
    option("log-binding", Switch, Unsupported("Binding requests are counted, and not logged")),
    option("udp-recvmmsg-log", Switch, Always("metrics have the sizes of batches")),
    option("udp-sendmmsg-log", Switch, Always("metrics have the sizes of batches")),
    // Administration.
    option("cli", Switch, Always(STATUS)),
    option("no-cli", Switch, Always(STATUS)),
    option("cli-ip", Value, Always(STATUS)),
    option("cli-port", Value, Always(STATUS)),
    option("cli-password", Value, Always(STATUS)),
    option("cli-max-output-sessions", Value, Always(STATUS)),
    option("web-admin", Switch, Always(PAGE)),
    option("web-admin-ip", Value, Always(PAGE)),
    option("web-admin-port", Value, Always(PAGE)),
    option(
        "web-admin-listen-on-workers",
        Switch,
        Unsupported("clients' ports serve clients alone"),
    ),
    option("prometheus", Flag, Keys("http.listen, http.coturn_metrics")),
    option("prometheus-port", Value, Keys("http.listen")),
    option("prometheus-address", Value, Keys("http.listen")),
    option("prometheus-path", Value, Keys("http.metrics_path")),
    option(
        "prometheus-username-labels",
        Flag,
        Unsupported("user names are no labels: `turnpike sessions` has traffic by user"),
    ),
    option("prometheus-tls", Switch, Keys("http.tls")),
    option("prometheus-cert", Value, Keys("tls.certificates")),
    option("prometheus-key", Value, Keys("tls.certificates")),
    // The process.
    lettered('o', "daemon", Switch, Always(MANAGER)),
    option("pidfile", Value, Always(MANAGER)),
    option("proc-user", Value, Always(MANAGER)),
    option("proc-group", Value, Always(MANAGER)),
    lettered('m', "relay-threads", Value, Keys("workers.count")),
    option(
        "cpus",
        Value,
        Always("one worker for each processor, unless `workers.count` says otherwise"),
    ),
    option("sock-buf-size", Value, Keys("sockets.receive_buffer, sockets.send_buffer")),
    option("udp-recvmmsg", Switch, Always(FAST)),
    option("udp-gso", Switch, Always(FAST)),
    lettered('c', "config", Value, Always("it names the file itself")),
    lettered('n', "no-config", Switch, Always("it names the file itself")),
    // Options of older versions.
    option("ne", Value, Always(FAST)),
    option("no-loopback-peers", Switch, Always("loopback is refused")),
    option("prod", Switch, Always("SOFTWARE is not sent by default")),
    option("no-sslv2", Switch, Always(MODERN)),
    option("no-sslv3", Switch, Always(MODERN)),
    option("no-tlsv1", Switch, Always(MODERN)),
    option("no-tlsv1_1", Switch, Always(MODERN)),
    option(
        "st-cred-mech",
        Switch,
        Unsupported("short-term credentials are not for TURN (RFC 8656 §5)"),
    ),
];

/// The option with a long name, or with the only name that begins so, as coturn accepts.
pub(crate) fn find(name: &str) -> Option<&'static CoturnOption> {
    let exact = OPTIONS.iter().find(|option| option.name == name);
    let begins = || {
        let mut all = OPTIONS.iter().filter(|option| option.name.starts_with(name));
        all.next().filter(|_| all.next().is_none() && !name.is_empty())
    };
    exact.or_else(begins)
}

/// The option with a letter.
pub(crate) fn short(letter: char) -> Option<&'static CoturnOption> {
    OPTIONS.iter().find(|option| option.letter == Some(letter))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_letters_are_there_once() {
        for (index, one) in OPTIONS.iter().enumerate() {
            for other in &OPTIONS[..index] {
                assert_ne!(one.name, other.name);
                assert!(one.letter.is_none() || one.letter != other.letter, "{}", one.name);
            }
        }
        assert_eq!(find("listening-p").map(|option| option.name), Some("listening-port"));
        assert!(find("listening").is_none() && find("").is_none());
    }
}
