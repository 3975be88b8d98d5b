//! Credentials of secrets in a database that was not read yet.

use super::*;

/// The secrets of a database cannot be read, or not yet.
#[test]
fn a_credential_of_unknown_secrets_is_not_called_wrong() {
    let mut policy = policy();
    let name = "1700000060:alice";
    let password = time_limited_password(b"a secret of the database", name);
    let step = |policy: &Policy, user: &str, answer: &UserAnswer| {
        both(policy, NOW, &Ask::by(user, &password, policy), answer)
    };
    for users in [true, false] {
        policy.auth.users = users;
        policy.auth.incomplete = false;
        let denied = refused(&step(&policy, name, &UserAnswer::Unknown));
        assert_eq!((denied, denied.code()), (Refusal::UnknownUser, 401));
        policy.auth.incomplete = true;
        let outage = refused(&step(&policy, name, &UserAnswer::Unknown));
        assert_eq!((outage, outage.code()), (Refusal::UserDatabaseUnavailable, 500));
        // No secret can have made such a name.
        let denied = refused(&step(&policy, "ann", &UserAnswer::Unknown));
        assert_eq!(denied, Refusal::UnknownUser);
    }
    policy.auth.users = true;
    let overloaded = step(&policy, name, &UserAnswer::Overloaded);
    assert!(matches!(overloaded, AuthStep::LookupsOverloaded), "{overloaded:?}");
    // A known secret still proves its credentials, and other realms may become known soon.
    let elsewhere = |policy: &Policy| {
        let ask = Ask::by(name, &password, policy);
        refused(&first(policy, &ask.with(|ask| ask.realm = Some("elsewhere".to_string()))))
    };
    assert_eq!(elsewhere(&policy), Refusal::UserDatabaseUnavailable);
    policy.auth.secrets = Vec::from([secret(b"a secret of the database")]);
    accepted(first(&policy, &Ask::by(name, &password, &policy)));
    policy.auth.incomplete = false;
    assert_eq!(elsewhere(&policy), Refusal::WrongRealm);
}

/// An earlier call continues while the secrets of the database cannot be read.
#[test]
fn unknown_secrets_end_no_allocation() {
    let mut policy = policy();
    let name = "1700000060:alice";
    let password = time_limited_password(b"a secret of the database", name);
    let known = Grant {
        user: name.into(),
        account: "alice".into(),
        keys: Keys::LongTerm(keys(name, &password)),
        expires: Some(UnixSeconds(1_700_000_060)),
        ..Grant::anonymous(REALM.into())
    };
    let step = |policy: &Policy| {
        let ask = Ask::by(name, &password, policy);
        let bytes = ask.with(|ask| ask.method = Method::REFRESH).bytes();
        let message = Message::parse(&bytes).unwrap();
        authenticate(policy.own_rules(), NOW, client(), &message, confirmed(&known), true)
    };
    assert_eq!(refused(&step(&policy)), Refusal::WrongSecret, "it was removed");
    assert!(!is_still_accepted(policy.own_rules(), &known));
    policy.auth.incomplete = true;
    accepted(step(&policy));
    assert!(is_still_accepted(policy.own_rules(), &known));
}
