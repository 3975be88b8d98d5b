mod incomplete;
mod known;

use super::nonce::mint;
use super::*;
use crate::credentials::UserKeys;
use crate::io::event::User;
use crate::policy::{AuthPolicy, Lifetimes, Policy, SharedSecret};
use core::time::Duration;
use std::string::{String, ToString};
use std::vec::Vec;
use stun_wire::{Class, LongTermKeys, TransactionId, time_limited_password, userhash};
use turn_types::{Instant, Secret};

const REALM: &str = "example.org";
const NOW: Now = Now { instant: Instant::from_nanos(5), unix: UnixSeconds(1_700_000_000) };
const BOTH: [PasswordAlgorithm; 2] = [PasswordAlgorithm::SHA256, PasswordAlgorithm::MD5];

fn client() -> ClientAddr {
    ClientAddr("198.51.100.7:4321".parse().unwrap())
}

fn secret(bytes: &[u8]) -> SharedSecret {
    SharedSecret { name: "web".to_string(), secret: Secret::new(bytes.into()) }
}

fn policy() -> Policy {
    Policy {
        lifetimes: Lifetimes { nonce: Duration::from_hours(1), ..Lifetimes::default() },
        ..Policy::new(
            REALM.into(),
            AuthPolicy {
                users: true,
                expiry_at_refresh: true,
                userhash: true,
                ..AuthPolicy::new(Secret::new([3; 32]))
            },
        )
    }
}

/// The attributes of a request; `None` leaves one out.
struct Ask {
    method: Method,
    user: Option<String>,
    userhash: Option<Vec<u8>>,
    realm: Option<String>,
    nonce: Option<Vec<u8>>,
    algorithm: Option<PasswordAlgorithm>,
    algorithms: Option<Vec<PasswordAlgorithm>>,
    lifetime: Option<u32>,
    /// Password and kind of integrity.
    integrity: Option<(String, IntegrityKind)>,
}

impl Ask {
    /// Returns a plain RFC 5389 request of `user`.
    fn by(user: &str, password: &str, policy: &Policy) -> Self {
        let nonce = mint(
            claim::issuer(policy.own_rules()),
            NOW.unix,
            client(),
            features(policy.own_rules()),
        );
        Self {
            method: Method::ALLOCATE,
            user: Some(user.to_string()),
            userhash: None,
            realm: Some(REALM.to_string()),
            nonce: Some(nonce.as_bytes().to_vec()),
            algorithm: None,
            algorithms: None,
            lifetime: None,
            integrity: Some((password.to_string(), IntegrityKind::Sha1)),
        }
    }

    fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    fn choosing(self, algorithm: PasswordAlgorithm) -> Self {
        self.with(|ask| {
            ask.algorithm = Some(algorithm);
            ask.algorithms = Some(BOTH.to_vec());
            if let Some((_, kind)) = &mut ask.integrity {
                *kind = IntegrityKind::Sha256;
            }
        })
    }

    fn bytes(&self) -> Vec<u8> {
        let mut out = [0; 1500];
        let id = TransactionId([9; 12]);
        let mut builder = MessageBuilder::new(&mut out, Class::Request, self.method, id);
        if let Some(lifetime) = self.lifetime {
            builder.lifetime(lifetime);
        }
        if let Some(user) = &self.user {
            builder.username(user);
        }
        if let Some(hash) = &self.userhash {
            builder.attribute(AttributeType::USERHASH, hash);
        }
        if let Some(realm) = &self.realm {
            builder.realm(realm);
        }
        if let Some(nonce) = &self.nonce {
            builder.attribute(AttributeType::NONCE, nonce);
        }
        if let Some(algorithms) = &self.algorithms {
            builder.password_algorithms(algorithms);
        }
        if let Some(algorithm) = self.algorithm {
            builder.password_algorithm(algorithm);
        }
        let len = match &self.integrity {
            None => builder.finish(),
            Some((password, kind)) => {
                let user = self.user.as_deref().unwrap_or("ann");
                let keys = LongTermKeys::new(user, REALM, password).unwrap();
                let key = match self.algorithm {
                    Some(PasswordAlgorithm::SHA256) => IntegrityKey::new(&keys.sha256),
                    _ => IntegrityKey::new(&keys.md5),
                };
                builder.integrity(*kind, &key).finish()
            }
        };
        out[..len.unwrap()].to_vec()
    }
}

fn keys(user: &str, password: &str) -> UserKeys {
    let keys = LongTermKeys::new(user, REALM, password).unwrap();
    UserKeys { md5: Secret::new(keys.md5), sha256: Some(Secret::new(keys.sha256)) }
}

fn ann() -> UserAnswer {
    UserAnswer::Known(User {
        name: "ann".into(),
        keys: keys("ann", "right"),
        allocations_max: Some(3),
    })
}

/// Returns a grant with recently confirmed keys.
fn confirmed(grant: &Grant) -> Option<KnownGrant<'_>> {
    Some(KnownGrant { grant, is_due: false })
}

fn first(policy: &Policy, ask: &Ask) -> AuthStep {
    authenticate(
        policy.own_rules(),
        NOW,
        client(),
        &Message::parse(&ask.bytes()).unwrap(),
        None,
        true,
    )
}

/// Performs both steps. The database responds to the look-up with `answer`.
fn both(policy: &Policy, now: Now, ask: &Ask, answer: &UserAnswer) -> AuthStep {
    let bytes = ask.bytes();
    let message = Message::parse(&bytes).unwrap();
    match authenticate(policy.own_rules(), now, client(), &message, None, true) {
        AuthStep::NeedUser { .. } => {
            authenticate_found(policy.own_rules(), now, client(), &message, None, answer)
        }
        step @ (AuthStep::Granted(..)
        | AuthStep::BudgetSpent
        | AuthStep::LookupsOverloaded
        | AuthStep::Refuse { .. }) => step,
    }
}

#[track_caller]
fn refused(step: &AuthStep) -> Refusal {
    match step {
        AuthStep::Refuse { reason, .. } => *reason,
        AuthStep::Granted(..)
        | AuthStep::NeedUser { .. }
        | AuthStep::BudgetSpent
        | AuthStep::LookupsOverloaded => panic!("{step:?}"),
    }
}

#[track_caller]
fn accepted(step: AuthStep) -> (Grant, Option<Integrity>) {
    match step {
        AuthStep::Granted(grant, integrity) => (grant, integrity),
        AuthStep::NeedUser { .. }
        | AuthStep::Refuse { .. }
        | AuthStep::BudgetSpent
        | AuthStep::LookupsOverloaded => panic!("{step:?}"),
    }
}

#[test]
fn a_user_who_proves_the_password_is_authenticated() {
    let policy = policy();
    let ask = Ask::by("ann", "right", &policy);
    let AuthStep::NeedUser { user: query, known: false } = first(&policy, &ask) else {
        panic!("nobody was looked up")
    };
    assert_eq!(query, UserQuery::Name("ann".into()));
    let (grant, _) = accepted(both(&policy, NOW, &ask, &ann()));
    assert_eq!(
        (&*grant.user, &*grant.account, grant.allocations_max, grant.expires),
        ("ann", "ann", Some(3), None)
    );
    assert_eq!(grant.keys, Keys::LongTerm(keys("ann", "right")));
}

#[test]
fn the_first_rule_that_is_broken_decides() {
    let policy = policy();
    let sound = || Ask::by("ann", "right", &policy);
    let old = Now { unix: UnixSeconds(NOW.unix.0 - 3601), ..NOW };
    let stale =
        mint(claim::issuer(policy.own_rules()), old.unix, client(), features(policy.own_rules()))
            .as_bytes()
            .to_vec();
    let stranger = ClientAddr("198.51.100.7:4322".parse().unwrap());
    let foreign =
        mint(claim::issuer(policy.own_rules()), NOW.unix, stranger, features(policy.own_rules()))
            .as_bytes()
            .to_vec();
    let shortened = Some(Vec::from([PasswordAlgorithm::MD5]));
    // Each row breaks its own rule and all later rules.
    let broken = |from: usize| {
        sound().with(|ask| {
            if from <= 6 {
                ask.nonce = Some(stale.clone());
            }
            if from <= 5 {
                ask.integrity = Some(("wrong".to_string(), IntegrityKind::Sha1));
            }
            if from <= 4 {
                ask.realm = Some("example.net".to_string());
            }
            if from <= 3 {
                ask.algorithms = shortened.clone();
            }
            if from <= 2 {
                ask.nonce = Some(foreign.clone());
            }
            if from <= 1 {
                ask.user = None;
            }
            if from == 0 {
                ask.integrity = None;
            }
        })
    };
    for (from, reason, code) in [
        (0, Refusal::NoCredentials, 401),
        (1, Refusal::IncompleteCredentials, 400),
        (2, Refusal::InvalidNonce, 438),
        (3, Refusal::PasswordAlgorithms, 400),
        (4, Refusal::WrongRealm, 401),
        (5, Refusal::WrongPassword, 401),
        (6, Refusal::StaleNonce, 438),
    ] {
        let refusal = refused(&both(&policy, NOW, &broken(from), &ann()));
        assert_eq!((refusal, refusal.code()), (reason, code));
    }
    accepted(both(&policy, NOW, &broken(7), &ann()));
}

#[test]
fn nobody_is_looked_up_for_a_nonce_of_somebody_else() {
    let mut policy = policy();
    policy.auth.secrets.push(secret(&[1; 16]));
    for nonce in [&b"obMatJos2gAAAAAAAAAAAAAAAAAAAAAAAAAAA"[..], b"", b"\xff", &[b'x'; 800]] {
        let ask = Ask::by("ann", "right", &policy).with(|ask| ask.nonce = Some(nonce.to_vec()));
        assert_eq!(refused(&first(&policy, &ask)), Refusal::InvalidNonce);
    }
}

#[test]
fn credentials_must_be_complete_and_well_formed() {
    let policy = policy();
    let cases: [fn(&mut Ask); 6] = [
        |ask| ask.user = None,
        |ask| ask.realm = None,
        |ask| ask.nonce = None,
        |ask| (ask.user, ask.userhash) = (None, Some(Vec::from([0; 31]))),
        |ask| (ask.user, ask.userhash) = (None, Some(Vec::from([0; 36]))),
        |ask| ask.user = Some("x".repeat(764)),
    ];
    for (index, change) in cases.into_iter().enumerate() {
        let ask = Ask::by("ann", "right", &policy).with(change);
        assert_eq!(refused(&first(&policy, &ask)), Refusal::IncompleteCredentials, "case {index}");
    }
    let long = Ask::by(&"x".repeat(763), "right", &policy);
    assert_eq!(refused(&first(&policy, &long)), Refusal::InvalidUsername, "well-formed, nobody's");
}

/// The database has names in canonical form, with keys of that form.
#[test]
fn a_user_is_looked_up_by_the_form_of_the_name() {
    let policy = policy();
    for (sent, form) in [("zoe\u{308}", "zo\u{eb}"), ("ann\u{a0}k", "ann k"), ("ann", "ann")] {
        let step = first(&policy, &Ask::by(sent, "right", &policy));
        let AuthStep::NeedUser { user, .. } = step else { panic!("{step:?}") };
        assert_eq!(user, UserQuery::Name(form.into()));
    }
}

#[test]
fn password_algorithms_are_what_was_offered_or_nothing() {
    let policy = policy();
    let algorithms = |chosen: Option<u16>, list: Option<&[u16]>| {
        let ask = Ask::by("ann", "right", &policy).with(|ask| {
            ask.algorithm = chosen.map(PasswordAlgorithm);
            ask.algorithms = list.map(|list| list.iter().copied().map(PasswordAlgorithm).collect());
        });
        both(&policy, NOW, &ask, &ann())
    };
    for (chosen, list) in [
        (Some(1), None),
        (None, Some(&[2, 1][..])),
        (Some(1), Some(&[1])),
        (Some(1), Some(&[1, 2])),
        (Some(2), Some(&[2, 1, 3])),
        (Some(2), Some(&[])),
        (Some(3), Some(&[2, 1])),
        (Some(0), Some(&[2, 1])),
    ] {
        assert_eq!(
            refused(&algorithms(chosen, list)),
            Refusal::PasswordAlgorithms,
            "{chosen:?} {list:?}"
        );
    }
    accepted(algorithms(None, None));
    accepted(algorithms(Some(1), Some(&[2, 1])));
    accepted(algorithms(Some(2), Some(&[2, 1])));
}

#[test]
fn the_algorithm_attributes_decide_how_answers_are_sealed() {
    let policy = policy();
    let plain = || Ask::by("ann", "right", &policy);
    let sha256 = |ask: &mut Ask| ask.integrity = Some(("right".to_string(), IntegrityKind::Sha256));
    let UserKeys { md5, sha256: Some(long) } = keys("ann", "right") else { unreachable!() };
    for (ask, kind, key) in [
        (plain(), IntegrityKind::Sha1, &md5.expose()[..]),
        (plain().with(sha256), IntegrityKind::Sha1, &md5.expose()[..]),
        (plain().choosing(PasswordAlgorithm::MD5), IntegrityKind::Sha256, &md5.expose()[..]),
        (plain().choosing(PasswordAlgorithm::SHA256), IntegrityKind::Sha256, &long.expose()[..]),
    ] {
        let integrity = accepted(both(&policy, NOW, &ask, &ann())).1.unwrap();
        assert_eq!((integrity.kind, integrity.key.raw()), (kind, key));
    }
}

#[test]
fn a_user_with_only_an_md5_key_proves_nothing_by_sha256() {
    let policy = policy();
    let UserAnswer::Known(user) = ann() else { unreachable!() };
    let old = UserAnswer::Known(User { keys: UserKeys { sha256: None, ..user.keys }, ..user });
    let ask = || Ask::by("ann", "right", &policy);
    accepted(both(&policy, NOW, &ask(), &old));
    accepted(both(&policy, NOW, &ask().choosing(PasswordAlgorithm::MD5), &old));
    let sha256 = ask().choosing(PasswordAlgorithm::SHA256);
    assert_eq!(refused(&both(&policy, NOW, &sha256, &old)), Refusal::WrongPassword);
}

#[test]
fn whom_the_database_does_not_know_is_refused_and_an_outage_is_no_refusal() {
    let policy = policy();
    let ask = Ask::by("eve", "right", &policy);
    assert_eq!(refused(&both(&policy, NOW, &ask, &UserAnswer::Unknown)), Refusal::UnknownUser);
    let outage = refused(&both(&policy, NOW, &ask, &UserAnswer::Unavailable));
    assert_eq!((outage, outage.code()), (Refusal::UserDatabaseUnavailable, 500));
    // The substitute key for an unknown user opens nothing.
    let zero = Ask::by("eve", "right", &policy).with(|ask| ask.integrity = None).bytes();
    let mut out = [0; 1500];
    let id = TransactionId([9; 12]);
    let mut builder = MessageBuilder::new(&mut out, Class::Request, Method::ALLOCATE, id);
    for attribute in Message::parse(&zero).unwrap().attributes() {
        builder.attribute(attribute.kind, attribute.value);
    }
    let len =
        builder.integrity(IntegrityKind::Sha1, &IntegrityKey::new(&[0; 32])).finish().unwrap();
    let message = Message::parse(&out[..len]).unwrap();
    let step =
        authenticate_found(policy.own_rules(), NOW, client(), &message, None, &UserAnswer::Unknown);
    assert_eq!(refused(&step), Refusal::UnknownUser);
}

#[test]
fn a_userhash_names_a_user_where_it_is_offered() {
    let mut policy = policy();
    let hash = userhash("ann", REALM).unwrap();
    let ask = |policy: &Policy| {
        Ask::by("ann", "right", policy)
            .with(|ask| (ask.user, ask.userhash) = (None, Some(hash.to_vec())))
    };
    assert!(
        matches!(first(&policy, &ask(&policy)), AuthStep::NeedUser { user: UserQuery::Hash(h), .. } if h == hash)
    );
    assert_eq!(&*accepted(both(&policy, NOW, &ask(&policy), &ann())).0.user, "ann");
    policy.auth.userhash = false;
    assert_eq!(refused(&first(&policy, &ask(&policy))), Refusal::UnknownUser);
}

#[test]
fn a_new_policy_lets_nobody_in() {
    let policy = Policy::new(REALM.into(), AuthPolicy::new(Secret::new([3; 32])));
    let refused = refused(&first(&policy, &Ask::by("ann", "right", &policy)));
    assert_eq!(refused, Refusal::UnknownUser);
}

#[test]
fn a_shared_secret_needs_no_look_up() {
    let mut policy = policy();
    policy.auth.secrets =
        Vec::from([secret(b"first secret 0123456"), secret(b"second secret 012345")]);
    let name = "1700000060:alice";
    for secret in ["first secret 0123456", "second secret 012345"] {
        let password = time_limited_password(secret.as_bytes(), name);
        for ask in [
            Ask::by(name, &password, &policy),
            Ask::by(name, &password, &policy).choosing(PasswordAlgorithm::SHA256),
        ] {
            let (grant, _) = accepted(first(&policy, &ask));
            assert_eq!((&*grant.user, &*grant.account), (name, "alice"));
            assert_eq!(grant.expires, Some(UnixSeconds(1_700_000_060)));
        }
    }
    let other = Ask::by(name, &time_limited_password(b"third secret", name), &policy);
    assert!(
        matches!(first(&policy, &other), AuthStep::NeedUser { .. }),
        "perhaps an ordinary user"
    );
    assert!(matches!(first(&policy, &Ask::by("ann", "right", &policy)), AuthStep::NeedUser { .. }));
    policy.auth.users = false;
    assert_eq!(refused(&first(&policy, &other)), Refusal::WrongSecret);
    assert_eq!(refused(&first(&policy, &Ask::by("ann", "right", &policy))), Refusal::UnknownUser);
}

#[test]
fn a_time_limited_credential_ends_with_its_time() {
    let mut policy = policy();
    policy.auth.secrets.push(secret(&[1; 16]));
    let name = "1700000000:alice"; // this very second
    let password = time_limited_password(&[1; 16], name);
    let ask = |method, lifetime, policy: &Policy| {
        let ask = Ask::by(name, &password, policy);
        first(policy, &ask.with(|ask| (ask.method, ask.lifetime) = (method, lifetime)))
    };
    let run_out = Refusal::CredentialExpired;
    assert_eq!(refused(&ask(Method::ALLOCATE, None, &policy)), run_out);
    assert_eq!(refused(&ask(Method::ALLOCATE, Some(0), &policy)), run_out);
    assert_eq!(refused(&ask(Method::REFRESH, None, &policy)), run_out);
    assert_eq!(refused(&ask(Method::REFRESH, Some(600), &policy)), run_out);
    accepted(ask(Method::REFRESH, Some(0), &policy)); // giving back is always welcome
    for method in [Method::CREATE_PERMISSION, Method::CHANNEL_BIND, Method::CONNECT] {
        assert_eq!(refused(&ask(method, None, &policy)), run_out);
    }
    policy.auth.expiry_at_refresh = false;
    accepted(ask(Method::REFRESH, None, &policy));
    accepted(ask(Method::CREATE_PERMISSION, None, &policy));
    assert_eq!(refused(&ask(Method::ALLOCATE, None, &policy)), run_out);
    // A client that cannot prove the credential does not learn about the expiry.
    policy.auth.users = false;
    assert_eq!(refused(&first(&policy, &Ask::by(name, "guess", &policy))), Refusal::WrongSecret);
    let before = Now { unix: UnixSeconds(NOW.unix.0 - 1), ..NOW };
    let fresh = mint(
        claim::issuer(policy.own_rules()),
        before.unix,
        client(),
        features(policy.own_rules()),
    );
    let ask =
        Ask::by(name, &password, &policy).with(|ask| ask.nonce = Some(fresh.as_bytes().to_vec()));
    accepted(both(&policy, before, &ask, &UserAnswer::Unknown));
}

#[test]
fn only_who_proved_it_is_named_in_a_refusal() {
    let policy = policy();
    let named = |ask: &Ask, now: Now| match both(&policy, now, ask, &ann()) {
        AuthStep::Refuse { user, .. } => user,
        step @ (AuthStep::Granted(..)
        | AuthStep::NeedUser { .. }
        | AuthStep::LookupsOverloaded
        | AuthStep::BudgetSpent) => panic!("{step:?}"),
    };
    let later = Now { unix: UnixSeconds(NOW.unix.0 + 3601), ..NOW };
    assert_eq!(named(&Ask::by("ann", "right", &policy), later).as_deref(), Some("ann"));
    assert_eq!(named(&Ask::by("ann", "wrong", &policy), NOW), None);
}

#[test]
fn an_open_relay_asks_nobody() {
    let mut policy = policy();
    policy.auth.open = true;
    let ask = Ask::by("ann", "right", &policy).with(|ask| {
        (ask.user, ask.realm, ask.nonce, ask.integrity) = (None, None, None, None);
    });
    let (grant, integrity) = accepted(first(&policy, &ask));
    assert!(grant.is_anonymous() && integrity.is_none());
}

#[test]
fn a_challenge_has_what_the_next_try_needs() {
    let mut policy = policy();
    for (reason, userhash, cookie) in [
        (Refusal::NoCredentials, false, Some("obMatJos2gAAA")),
        (Refusal::InvalidNonce, true, Some("obMatJos2wAAA")),
        (Refusal::StaleNonce, false, Some("obMatJos2gAAA")),
        (Refusal::UnknownUser, false, Some("obMatJos2gAAA")),
        (Refusal::IncompleteCredentials, false, None),
        (Refusal::PasswordAlgorithms, false, None),
        (Refusal::UserDatabaseUnavailable, false, None),
    ] {
        policy.auth.userhash = userhash;
        let mut out = [0; 548];
        let mut builder =
            MessageBuilder::new(&mut out, Class::Error, Method::ALLOCATE, TransactionId([9; 12]));
        challenge(&mut builder, policy.own_rules(), NOW, client(), reason);
        let len = builder.finish().unwrap();
        let message = Message::parse(&out[..len]).unwrap();
        let kinds: Vec<_> = message.attributes().map(|attribute| attribute.kind).collect();
        let Some(cookie) = cookie else {
            assert_eq!(kinds, [], "{reason:?}");
            continue;
        };
        assert_eq!(
            kinds,
            [AttributeType::REALM, AttributeType::NONCE, AttributeType::PASSWORD_ALGORITHMS]
        );
        assert_eq!(message.first(AttributeType::REALM), Some(REALM.as_bytes()));
        let nonce = message.first(AttributeType::NONCE).unwrap();
        assert!(nonce.starts_with(cookie.as_bytes()));
        let list = message.first(AttributeType::PASSWORD_ALGORITHMS).unwrap();
        assert_eq!(list, [0, 2, 0, 0, 0, 1, 0, 0], "SHA-256 before MD5");
        let retry = Ask::by("ann", "right", &policy)
            .choosing(PasswordAlgorithm::SHA256)
            .with(|ask| ask.nonce = Some(nonce.to_vec()));
        accepted(both(&policy, NOW, &retry, &ann()));
    }
}

/// A realm with a user that has only an MD5 key offers no SHA-256, and its nonces announce that.
/// Every client logs in by MD5, and no attacker on the path can have made the offer smaller
/// (8489-9.2.4-05).
#[test]
fn where_only_md5_keys_are_known_only_they_are_asked_for() {
    let md5_only = UserAnswer::Known(User {
        name: "ann".into(),
        keys: UserKeys { sha256: None, ..keys("ann", "right") },
        allocations_max: None,
    });
    let before = policy();
    let policy = Policy { auth: AuthPolicy { sha256: false, ..policy().auth }, ..policy() };
    let mut out = [0; 548];
    let mut builder =
        MessageBuilder::new(&mut out, Class::Error, Method::ALLOCATE, TransactionId([9; 12]));
    challenge(&mut builder, policy.own_rules(), NOW, client(), Refusal::NoCredentials);
    let len = builder.finish().unwrap();
    let message = Message::parse(&out[..len]).unwrap();
    assert_eq!(message.first(AttributeType::PASSWORD_ALGORITHMS), None);
    let nonce = message.first(AttributeType::NONCE).unwrap();
    assert!(nonce.starts_with(b"obMatJos2QAAA"), "USERHASH alone");
    let ask = Ask::by("ann", "right", &policy).with(|ask| ask.nonce = Some(nonce.to_vec()));
    accepted(both(&policy, NOW, &ask, &md5_only));
    // The algorithm was not offered with this nonce.
    let chosen = ask.choosing(PasswordAlgorithm::MD5);
    assert_eq!(refused(&both(&policy, NOW, &chosen, &md5_only)), Refusal::PasswordAlgorithms);
    // An earlier nonce remains valid with its own features.
    let nonce =
        mint(claim::issuer(before.own_rules()), NOW.unix, client(), features(before.own_rules()));
    let ask = Ask::by("ann", "right", &policy)
        .choosing(PasswordAlgorithm::SHA256)
        .with(|ask| ask.nonce = Some(nonce.as_bytes().to_vec()));
    accepted(both(&policy, NOW, &ask, &ann()));
}
