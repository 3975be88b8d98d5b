//! Addresses, users, rules and certificates of the worlds.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use netsim::Rng;
use stun_wire::LongTermKeys;
use turn_proto::{
    AuthPolicy, Lifetimes, PeerRules, Policy, Quotas, RelayAddress, RelayPorts,
    UnauthenticatedBudget, User, UserAnswer, UserKeys, UserQuery,
};
use turn_session::dtls::{CookieHandler, Cookies, DtlsConfig};
use turn_session::{Certificate, Certificates, TlsConfig, tls_config};
use turn_types::Secret;

const REALM: &str = "turn.example";
pub(crate) const USERS: [&str; 3] = ["alice", "bob", "carol"];

pub(crate) fn addr(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

pub(crate) fn listeners() -> [SocketAddr; 2] {
    [addr("198.51.100.1:3478"), addr("[2001:db8:1::1]:3478")]
}

pub(crate) fn peers() -> [SocketAddr; 3] {
    [addr("192.0.2.10:7000"), addr("192.0.2.11:7000"), addr("[2001:db8:2::10]:7000")]
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
    let some = |rng: &mut Rng, value| if rng.below(4) == 0 { value } else { 0 };
    Policy {
        relay: ips
            .map(|ip| RelayAddress { local: ip, public: ip, ports: RelayPorts::new() })
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
        peer_rules: PeerRules::new(&allow, &[], &ips),
        unauthenticated: UnauthenticatedBudget { per_second: some(rng, 1) },
        mobility: rng.below(2) == 0,
        tcp_relaying: rng.below(2) == 0,
        rfc3489_clients: rng.below(2) == 0,
        ..Policy::new(
            REALM.into(),
            AuthPolicy { users: true, ..AuthPolicy::new(Secret::new([42; 32])) },
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
    ALL.get_or_init(|| tls_config(certificates(), None).unwrap()).clone()
}

pub(crate) fn dtls() -> DtlsConfig {
    let handler = CookieHandler::new(Cookies::new(&[7; 32]));
    DtlsConfig::new(certificates(), handler).unwrap()
}
