//! Addresses, users, rules and certificates of the worlds.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use aes_gcm::aead::{Aead as _, Payload};
use aes_gcm::{Aes256Gcm, KeyInit as _};
use netsim::Rng;
use simulation::Login;
use stun_wire::{AccessTokenBlock, LongTermKeys, time_limited_password};
use turn_client::AccessToken;
use turn_proto::{
    AlternateServers, AuthPolicy, DiscoverySockets, Lifetimes, PeerRules, Policy, Quotas,
    RelayAddress, RelayPorts, RelayPrefix, SharedSecret, TokenAlgorithm, TokenAuthority, TokenKey,
    UnauthenticatedBudget, User, UserAnswer, UserKeys, UserQuery,
};
use turn_session::dtls::{CookieHandler, Cookies, DtlsConfig};
use turn_session::{Certificate, Certificates, TlsConfig, TlsRules, tls_config};
use turn_types::{Prefix, Secret, UnixSeconds};

const REALM: &str = "turn.example";
pub(crate) const USERS: [&str; 3] = ["alice", "bob", "carol"];

/// A user with time-limited names, and one with access tokens: the name of their key.
pub(crate) const TIMED: &str = "timed";
pub(crate) const TOKEN: &str = "token";

const SECRET: &[u8] = b"a secret of at least 128 bits";
const TOKEN_KEY: [u8; 32] = [0x25; 32];
const SERVER_NAME: &str = "turn.example.org";

pub(crate) fn addr(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

pub(crate) fn listeners() -> [SocketAddr; 2] {
    [addr("198.51.100.1:3478"), addr("[2001:db8:1::1]:3478")]
}

pub(crate) fn peers() -> [SocketAddr; 3] {
    [addr("192.0.2.10:7000"), addr("192.0.2.11:7000"), addr("[2001:db8:2::10]:7000")]
}

/// A network that is routed to the server, for relayed addresses: so small that it runs out.
pub(crate) fn routed() -> Prefix {
    "203.0.113.64/29".parse().unwrap()
}

/// The four sockets of NAT behaviour discovery.
pub(crate) fn discovery() -> DiscoverySockets {
    let row = |ip: &str| [3478, 3479].map(|port| SocketAddr::new(ip.parse().unwrap(), port));
    let local = [row("198.51.100.1"), row("198.51.100.2")];
    DiscoverySockets { local, public: local }
}

/// Most workers of a server.
pub(crate) const WORKERS_MAX: u16 = 3;

/// The server that clients are redirected to.
pub(crate) fn alternate() -> SocketAddr {
    addr("198.51.100.9:3478")
}

/// The rules of that server.
pub(crate) fn policy_of_alternate(policy: &Policy) -> Policy {
    let ip = alternate().ip();
    Policy {
        relay: vec![RelayAddress {
            local: ip,
            public: ip,
            ports: RelayPorts::new(),
            is_present: true,
        }],
        alternates: AlternateServers::default(),
        discovery: Vec::new(),
        prefixes: Vec::new(),
        ..policy.clone()
    }
}

/// Credentials: a time-limited name, an access token, or a name and password of the database.
pub(crate) fn log_in(user: &str, now: UnixSeconds) -> Login {
    match user {
        TIMED => {
            let user = format!("{}:someone", now.0 + 150);
            let password = time_limited_password(SECRET, &user);
            Login { user, password, token: None }
        }
        TOKEN => {
            let token = Some(access_token(now));
            Login { user: TOKEN.to_owned(), password: String::new(), token }
        }
        name => Login { user: name.to_owned(), password: password_of(name), token: None },
    }
}

/// A token of the authorization server, valid for a few minutes.
fn access_token(now: UnixSeconds) -> AccessToken {
    const MAC_KEY: [u8; 20] = [0x3C; 20];
    let block = AccessTokenBlock { mac_key: &MAC_KEY, timestamp: now.0 << 16, lifetime_secs: 150 };
    let mut plain = [0; 64];
    let len = block.write(&mut plain).unwrap();
    let nonce = *b"twelve bytes";
    let payload = Payload { msg: &plain[..len], aad: SERVER_NAME.as_bytes() };
    let sealed = Aes256Gcm::new(&TOKEN_KEY.into()).encrypt(&nonce.into(), payload).unwrap();
    let value = [&[0, 12][..], &nonce, &sealed].concat();
    AccessToken { value: value.into(), mac_key: Secret::new(MAC_KEY.to_vec().into()) }
}

/// The authorization server of the tokens.
fn token_authority() -> TokenAuthority {
    let algorithm = TokenAlgorithm::Aes256Gcm(Secret::new(TOKEN_KEY));
    let keys = vec![TokenKey { kid: TOKEN.into(), algorithm }];
    TokenAuthority { server_name: SERVER_NAME.into(), keys, coturn_clients: false }
}

pub(crate) fn password_of(user: &str) -> String {
    format!("password of {user}")
}

/// The user database.
pub(crate) fn look_up(query: &UserQuery) -> UserAnswer {
    let UserQuery::Name(name) = query else { return UserAnswer::Unknown };
    if !USERS.contains(&&**name) {
        return UserAnswer::Unknown;
    }
    let keys = LongTermKeys::new(name, REALM, &password_of(name)).unwrap();
    UserAnswer::Known(User {
        name: Arc::clone(name),
        keys: UserKeys { md5: Secret::new(keys.md5), sha256: Some(Secret::new(keys.sha256)) },
        allocations_max: None,
    })
}

pub(crate) fn policy(rng: &mut Rng) -> Policy {
    let allow = ["192.0.2.0/24", "2001:db8:2::/48"].map(|prefix| prefix.parse().unwrap());
    let ips = listeners().map(|listener| listener.ip());
    let own: Vec<Prefix> = ips.map(Prefix::host).into_iter().chain([routed()]).collect();
    let some = |rng: &mut Rng, value| if rng.below(4) == 0 { value } else { 0 };
    Policy {
        relay: ips
            .map(|ip| RelayAddress {
                local: ip,
                public: ip,
                ports: RelayPorts::new(),
                is_present: true,
            })
            .to_vec(),
        lifetimes: Lifetimes {
            allocation_max: Duration::from_secs(1200),
            nonce: Duration::from_secs(*rng.pick(&[60, 900])),
            ..Lifetimes::default()
        },
        quotas: Quotas {
            allocations_per_user: some(rng, 1),
            allocations_per_customer: some(rng, 2),
            new_peers_per_second: some(rng, 1),
            allocations_total: some(rng, 2),
            bytes_per_second: u64::from(some(rng, 2_000)),
            ..Quotas::default()
        },
        prefixes: if rng.below(3) == 0 {
            vec![RelayPrefix::new(routed(), 40_000, WORKERS_MAX).unwrap()]
        } else {
            Vec::new()
        },
        peer_rules: PeerRules::with_own_prefixes(&allow, &[], &own),
        unauthenticated: UnauthenticatedBudget { per_second: some(rng, 1) },
        mobility: rng.below(2) == 0,
        tcp_relaying: rng.below(2) == 0,
        rfc3489_clients: rng.below(2) == 0,
        alternates: if rng.below(6) == 0 {
            let domain = Some("turn.example.org".to_owned());
            AlternateServers { domain, ..AlternateServers::of(vec![alternate()]) }
        } else {
            AlternateServers::default()
        },
        discovery: if rng.below(2) == 0 { vec![discovery()] } else { Vec::new() },
        ..Policy::new(
            REALM.into(),
            AuthPolicy {
                users: true,
                secrets: vec![SharedSecret {
                    name: "one".into(),
                    secret: Secret::new(SECRET.into()),
                }],
                expiry_at_refresh: rng.below(2) == 0,
                tokens: (rng.below(2) == 0).then(token_authority),
                ..AuthPolicy::new(Secret::new([42; 32]))
            },
        )
    }
}

/// TLS and DTLS with one certificate that signs itself.
pub(crate) fn certificates() -> Arc<Certificates> {
    static ALL: OnceLock<Arc<Certificates>> = OnceLock::new();
    let make = || {
        let names = ["turn.example.org".to_owned()];
        let made = rcgen::generate_simple_self_signed(names).unwrap();
        let key = made.signing_key.serialize_pem();
        let certificate = Certificate::read(made.cert.pem().as_bytes(), key.as_bytes()).unwrap();
        let certificates = Arc::new(Certificates::default());
        certificates.replace(vec![certificate]);
        certificates
    };
    Arc::clone(ALL.get_or_init(make))
}

pub(crate) fn tls() -> TlsConfig {
    static ALL: OnceLock<TlsConfig> = OnceLock::new();
    ALL.get_or_init(|| tls_config(certificates(), None, &TlsRules::default()).unwrap()).clone()
}

pub(crate) fn dtls() -> DtlsConfig {
    let handler = CookieHandler::new(Cookies::new(&[7; 32]));
    DtlsConfig::new(certificates(), handler, &TlsRules::default()).unwrap()
}
