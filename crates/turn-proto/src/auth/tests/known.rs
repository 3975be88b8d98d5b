//! Requests on the 5-tuple of an allocation with a known grant.

use super::*;

#[test]
fn the_user_of_the_allocation_is_not_looked_up_again() {
    let mut policy = policy();
    let known = Grant {
        user: "ann".into(),
        account: "acc".into(),
        keys: Keys::LongTerm(keys("ann", "right")),
        ..Grant::anonymous(REALM.into())
    };
    let step = |policy: &Policy, ask: &Ask| {
        let bytes = ask.bytes();
        authenticate(
            policy.own_rules(),
            NOW,
            client(),
            &Message::parse(&bytes).unwrap(),
            confirmed(&known),
            true,
        )
    };
    let (grant, _) = accepted(step(&policy, &Ask::by("ann", "right", &policy)));
    assert_eq!((&*grant.user, &*grant.account), ("ann", "acc"));
    let hash = userhash("ann", REALM).unwrap().to_vec();
    let hashed =
        Ask::by("ann", "right", &policy).with(|ask| (ask.user, ask.userhash) = (None, Some(hash)));
    accepted(step(&policy, &hashed));
    // Another user, or another password, causes a look-up.
    assert!(matches!(step(&policy, &Ask::by("bob", "right", &policy)), AuthStep::NeedUser { .. }));
    assert!(matches!(step(&policy, &Ask::by("ann", "new", &policy)), AuthStep::NeedUser { .. }));
    policy.auth.users = false;
    assert_eq!(refused(&step(&policy, &Ask::by("ann", "new", &policy))), Refusal::UnknownUser);
}

/// Ann's allocation is on the 5-tuple; these requests are sealed with her key all the same.
#[test]
fn the_key_of_an_allocation_proves_nothing_for_another_user_or_realm() {
    let mut policy = policy();
    let known = Grant {
        user: "ann".into(),
        account: "ann".into(),
        keys: Keys::LongTerm(keys("bob", "right")),
        ..Grant::anonymous(REALM.into())
    };
    let elsewhere = Grant {
        realm: "elsewhere.example".into(),
        keys: Keys::LongTerm(keys("ann", "right")),
        ..known.clone()
    };
    for (user, known) in [("bob", &known), ("ann", &elsewhere)] {
        policy.auth.open = false;
        let bytes = Ask::by(user, "right", &policy).bytes();
        let message = Message::parse(&bytes).unwrap();
        let step = |policy: &Policy| {
            authenticate(policy.own_rules(), NOW, client(), &message, confirmed(known), true)
        };
        assert!(matches!(step(&policy), AuthStep::NeedUser { known: false, .. }), "{user}");
        let outage = authenticate_found(
            policy.own_rules(),
            NOW,
            client(),
            &message,
            Some(known),
            &UserAnswer::Unavailable,
        );
        assert_eq!(refused(&outage), Refusal::UserDatabaseUnavailable, "{user}");
        // An open relay accepts the request as anonymous.
        policy.auth.open = true;
        assert!(accepted(step(&policy)).0.is_anonymous(), "{user}");
    }
}

/// During an outage, an allocation is not prolonged if an operator has changed its user since the
/// last response.
#[test]
fn a_changed_user_is_not_prolonged_by_an_outage() {
    let policy = policy();
    let known = Grant {
        user: "ann".into(),
        keys: Keys::LongTerm(keys("ann", "right")),
        ..Grant::anonymous(REALM.into())
    };
    let bytes = Ask::by("ann", "right", &policy).with(|ask| ask.method = Method::REFRESH).bytes();
    let message = Message::parse(&bytes).unwrap();
    let step = |answer| {
        let rules = policy.own_rules();
        authenticate_found(rules, NOW, client(), &message, Some(&known), &answer)
    };
    assert!(matches!(step(UserAnswer::Unavailable), AuthStep::Granted(..)));
    assert_eq!(refused(&step(UserAnswer::Unconfirmed)), Refusal::UserDatabaseUnavailable);
}

#[test]
fn a_removed_secret_refreshes_nothing_and_asks_nobody() {
    let policy = policy();
    let name = "1700000060:alice";
    let known = Grant {
        user: name.into(),
        account: "alice".into(),
        keys: Keys::LongTerm(keys(name, "made before")),
        expires: Some(UnixSeconds(1_700_000_060)),
        ..Grant::anonymous(REALM.into())
    };
    let ask = Ask::by(name, "made before", &policy).with(|ask| ask.method = Method::REFRESH);
    let bytes = ask.bytes();
    let message = Message::parse(&bytes).unwrap();
    let step = authenticate(policy.own_rules(), NOW, client(), &message, confirmed(&known), true);
    assert_eq!(refused(&step), Refusal::WrongSecret);
}

#[test]
fn a_grant_counts_as_long_as_what_proved_it() {
    let mut policy = policy();
    let ann = Grant {
        user: "ann".into(),
        keys: Keys::LongTerm(keys("ann", "right")),
        ..Grant::anonymous(REALM.into())
    };
    let limited = Grant { expires: Some(UnixSeconds(1_700_000_060)), ..ann.clone() };
    let anybody = Grant::anonymous(REALM.into());
    let counts = |policy: &Policy| {
        [&ann, &limited, &anybody].map(|grant| is_still_accepted(policy.own_rules(), grant))
    };
    assert_eq!(counts(&policy), [true, false, true]);
    policy.auth.users = false;
    assert_eq!(counts(&policy), [false, false, true]);
    policy.auth.open = true;
    assert_eq!(counts(&policy), [true; 3]);
}

/// Deleted users, and users with a removed secret, get no more peers for the allocation.
#[test]
fn requests_for_peers_confirm_the_keys_now_and_then() {
    let policy = policy();
    let methods = [Method::CREATE_PERMISSION, Method::CHANNEL_BIND, Method::CONNECT];
    let name = "1700000060:alice";
    let of = |user: &str, password, expires| Grant {
        user: user.into(),
        account: user.into(),
        keys: Keys::LongTerm(keys(user, password)),
        expires,
        ..Grant::anonymous(REALM.into())
    };
    let ann = of("ann", "right", None);
    let refuted = Grant { is_refuted: true, ..ann.clone() };
    let alice = of(name, "made before", Some(UnixSeconds(1_700_000_060)));
    for method in methods {
        let step = |grant: &Grant, password, is_due, now| {
            let ask = Ask::by(&grant.user, password, &policy).with(|ask| ask.method = method);
            let bytes = ask.bytes();
            let message = Message::parse(&bytes).unwrap();
            let known = Some(KnownGrant { grant, is_due });
            authenticate(policy.own_rules(), now, client(), &message, known, true)
        };
        for is_due in [false, true] {
            accepted(step(&ann, "right", is_due, NOW));
            let looked_up = step(&refuted, "right", is_due, NOW);
            assert!(matches!(looked_up, AuthStep::NeedUser { known: true, .. }));
        }
        accepted(step(&alice, "made before", false, NOW));
        assert_eq!(refused(&step(&alice, "made before", true, NOW)), Refusal::WrongSecret);
        let mut policy = policy.clone();
        policy.auth.expiry_at_refresh = true;
        let later = Now { unix: UnixSeconds(1_700_000_060), ..NOW };
        let ask = Ask::by(name, "made before", &policy).with(|ask| ask.method = method);
        let bytes = ask.bytes();
        let message = Message::parse(&bytes).unwrap();
        let known = confirmed(&alice);
        let step = authenticate(policy.own_rules(), later, client(), &message, known, true);
        assert_eq!(refused(&step), Refusal::CredentialExpired, "{method:?}");
    }
}
