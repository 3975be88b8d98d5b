//! Environment of a server: policy, users and registry.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use stun_wire::{
    AttributeType, IntegrityKey, LongTermKeys, Message, PasswordAlgorithm, time_limited_password,
    userhash, value,
};
use turn_proto::{
    AuthPolicy, Lifetimes, PeerRules, Policy, Quotas, Registry, RelayAddress, RelayPorts,
    SharedRegistry, SharedSecret, UnauthenticatedBudget, User, UserAnswer, UserKeys, UserQuery,
};
use turn_types::{Prefix, Secret, ServerAddr};

pub const REALM: &str = "turn.example";
pub const SECRET: &[u8] = b"a secret of at least 128 bits";
pub const USERS: [&str; 4] = ["alice", "bob", "carol", "dave"];

pub fn addr(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// Listeners of both families. `SocketId` is the index here.
pub fn listeners() -> [ServerAddr; 2] {
    [addr("198.51.100.1:3478"), addr("[2001:db8:1::1]:3478")].map(ServerAddr)
}

/// Relay addresses: the same as the listeners'.
pub fn relay_ips() -> [IpAddr; 2] {
    listeners().map(|listener| listener.ip())
}

/// Returns a network routed to the server, for allocations with separate addresses. It is small
/// enough to be used up.
pub fn routed() -> Prefix {
    "203.0.113.8/30".parse().unwrap()
}

/// Returns the initial policy of most runs: both families, generous limits, and the documentation
/// prefixes of the test's peers allowed.
pub fn policy() -> Policy {
    let allow = ["192.0.2.0/24", "2001:db8:2::/48"].map(|prefix| prefix.parse().unwrap());
    let own: Vec<Prefix> = relay_ips().map(Prefix::host).into_iter().chain([routed()]).collect();
    Policy {
        software: Some("Turnpike".into()),
        relay: relay_ips()
            .map(|ip| RelayAddress {
                local: ip,
                public: ip,
                ports: RelayPorts::new(),
                is_present: true,
            })
            .to_vec(),
        lifetimes: Lifetimes { nonce: Duration::from_mins(15), ..Lifetimes::default() },
        quotas: Quotas {
            allocations_per_user: 0,
            allocations_per_customer: 0,
            new_peers_per_second: 0,
            permissions: 32,
            channels: 32,
            ..Quotas::default()
        },
        peer_rules: PeerRules::with_own_prefixes(&allow, &[], &own),
        unauthenticated: UnauthenticatedBudget { per_second: 0 },
        ..Policy::new(
            REALM.into(),
            AuthPolicy {
                users: true,
                secrets: vec![SharedSecret {
                    name: "test".into(),
                    secret: Secret::new(SECRET.into()),
                }],
                expiry_at_refresh: true,
                ..AuthPolicy::new(Secret::new([42; 32]))
            },
        )
    }
}

/// The password of a user in the database, or of a time-limited name.
pub fn password_of(name: &str) -> String {
    if is_time_limited(name) {
        time_limited_password(SECRET, name)
    } else {
        format!("password of {name}")
    }
}

fn is_time_limited(name: &str) -> bool {
    name.split(':').next().is_some_and(|part| part.parse::<u64>().is_ok())
}

/// Returns the result of the user database.
pub fn look_up(query: &UserQuery) -> UserAnswer {
    let name = USERS.into_iter().find(|name| match query {
        UserQuery::Name(asked) => **asked == **name,
        UserQuery::Hash(hash) => userhash(name, REALM).unwrap() == *hash,
    });
    let Some(name) = name else { return UserAnswer::Unknown };
    let keys = LongTermKeys::new(name, REALM, &password_of(name)).unwrap();
    UserAnswer::Known(User {
        name: name.into(),
        keys: UserKeys { md5: Secret::new(keys.md5), sha256: Some(Secret::new(keys.sha256)) },
        allocations_max: None,
    })
}

/// The user and key of this request's integrity, found without the server's help.
pub fn sealed_by(request: &Message<'_>) -> Option<(String, IntegrityKey)> {
    let name = match request.first(AttributeType::USERNAME) {
        Some(name) => std::str::from_utf8(name).ok()?.to_owned(),
        None => {
            let hash = value::userhash(request.first(AttributeType::USERHASH)?).ok()?;
            USERS.into_iter().find(|name| userhash(name, REALM).unwrap() == hash)?.to_owned()
        }
    };
    if !is_time_limited(&name) && !USERS.contains(&name.as_str()) {
        return None;
    }
    let keys = LongTermKeys::new(&name, REALM, &password_of(&name)).ok()?;
    let algorithm = request.first(AttributeType::PASSWORD_ALGORITHM);
    let algorithm = algorithm.and_then(|value| value::password_algorithm(value).ok());
    let key = if algorithm == Some(PasswordAlgorithm::SHA256) {
        IntegrityKey::new(&keys.sha256)
    } else {
        IntegrityKey::new(&keys.md5)
    };
    request.verify(&key).then_some((name, key))
}

/// A registry with a lock around it.
#[derive(Debug, Default)]
pub struct LockedRegistry(Mutex<Registry>);

impl LockedRegistry {
    pub fn read<R>(&self, read: impl FnOnce(&Registry) -> R) -> R {
        read(&self.0.lock().unwrap())
    }
}

impl SharedRegistry for LockedRegistry {
    fn with(&self, f: &mut dyn FnMut(&mut Registry)) {
        f(&mut self.0.lock().unwrap());
    }
}

pub fn shared_registry() -> Arc<LockedRegistry> {
    Arc::default()
}
