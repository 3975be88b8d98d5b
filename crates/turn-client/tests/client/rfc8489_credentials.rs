//! Long-term credential mechanism of a client (RFC 8489 §9.2).

use crate::support::{Challenge, Integrity, REALM};
use crate::support::{addr, allocated, answer, at, config, error, events, sent};
use stun_wire::{AttributeType, Class, Message, PasswordAlgorithm, SecurityFeatures};
use turn_client::{
    AlgorithmChoice, AllocateOptions, Client, ClientConfig, Event, Failure, IgnoreReason, Incoming,
    RequestKind,
};
use turn_types::Transport;

/// Returns a client whose first Allocate received this challenge.
fn challenged(config: ClientConfig, challenge: Challenge) -> Client {
    let mut client = Client::new(config);
    client.allocate(at(0.0), AllocateOptions::default()).unwrap();
    let request = sent(&mut client);
    let message = Message::parse(&request).unwrap();
    assert!(message.first(AttributeType::USERNAME).is_none(), "nothing before it is asked for");
    assert!(!message.integrity().is_present());
    assert_eq!(client.handle_datagram(at(0.1), &challenge.answer(&request)), Incoming::Answer);
    client
}

fn failed(failure: Failure) -> Vec<Event> {
    vec![Event::Failed { request: RequestKind::Allocate, failure }]
}

#[test]
fn logs_in_with_the_first_algorithm_it_knows_and_repeats_the_list() {
    let mut client = challenged(config(), Challenge::MODERN);
    let request = sent(&mut client);
    let message = Message::parse(&request).unwrap();
    assert_eq!(message.first(AttributeType::USERNAME), Some(&b"alice"[..]));
    assert_eq!(message.first(AttributeType::REALM), Some(REALM.as_bytes()));
    assert_eq!(message.first(AttributeType::NONCE), Some(&b"obMatJos2wAAAfirst"[..]));
    // SHA-256 without parameters, MD5 without parameters (RFC 8489 §14.11).
    let list = message.first(AttributeType::PASSWORD_ALGORITHMS);
    assert_eq!(list, Some(&[0, 2, 0, 0, 0, 1, 0, 0][..]));
    assert_eq!(message.first(AttributeType::PASSWORD_ALGORITHM), Some(&[0, 2, 0, 0][..]));
    assert!(message.integrity().sha256.is_some() && message.integrity().sha1.is_none());

    client.handle_datagram(at(0.2), &allocated(&request, 600, Integrity::Sha256));
    assert!(matches!(events(&mut client)[..], [Event::Allocated(_)]));
}

#[test]
fn logs_in_at_an_old_server_as_an_old_client_does() {
    let mut client = challenged(config(), Challenge::OLD);
    let request = sent(&mut client);
    let message = Message::parse(&request).unwrap();
    assert!(message.first(AttributeType::PASSWORD_ALGORITHM).is_none());
    assert!(message.integrity().sha1.is_some() && message.integrity().sha256.is_none());
    client.handle_datagram(at(0.2), &allocated(&request, 600, Integrity::Sha1));
    assert!(matches!(events(&mut client)[..], [Event::Allocated(_)]));
}

#[test]
fn an_old_client_sends_no_algorithms() {
    let config = ClientConfig { algorithms: AlgorithmChoice::Rfc5389, ..config() };
    let mut client = challenged(config, Challenge::MODERN);
    let request = sent(&mut client);
    let message = Message::parse(&request).unwrap();
    assert!(message.first(AttributeType::PASSWORD_ALGORITHMS).is_none());
    assert!(message.integrity().sha1.is_some());
}

#[test]
fn uses_the_hash_of_the_name_where_wanted_and_offered() {
    let hashing = || ClientConfig { userhash: true, ..config() };
    let mut client = challenged(hashing(), Challenge::MODERN);
    let request = sent(&mut client);
    let message = Message::parse(&request).unwrap();
    let hash = stun_wire::userhash("alice", REALM).unwrap();
    assert_eq!(message.first(AttributeType::USERHASH), Some(&hash[..]));
    assert!(message.first(AttributeType::USERNAME).is_none());

    let mut client = challenged(hashing(), Challenge::OLD);
    let request = sent(&mut client);
    assert!(Message::parse(&request).unwrap().first(AttributeType::USERNAME).is_some());
}

/// RFC 8489 §9.2.5: the nonce announces algorithms, and an attacker has removed the list.
#[test]
fn detects_a_bid_down() {
    let stripped = Challenge { algorithms: &[], ..Challenge::MODERN };
    let mut client = challenged(config(), stripped);
    assert_eq!(events(&mut client), failed(Failure::BidDown));
    assert!(client.is_idle());
}

#[test]
fn refuses_algorithms_it_does_not_want_or_know() {
    let only_md5 = Challenge { algorithms: &[PasswordAlgorithm::MD5], ..Challenge::MODERN };
    let strict = || ClientConfig { algorithms: AlgorithmChoice::Sha256, ..config() };
    let unknown = Challenge { algorithms: &[PasswordAlgorithm(0x77)], ..Challenge::MODERN };
    for (name, config, challenge) in [
        ("strict client, weak server", strict(), only_md5),
        ("strict client, old server", strict(), Challenge::OLD),
        ("any client, unknown algorithm", config(), unknown),
    ] {
        let mut client = challenged(config, challenge);
        assert_eq!(events(&mut client), failed(Failure::NoAlgorithm), "{name}");
    }
}

#[test]
fn a_second_401_for_the_same_credentials_is_final() {
    let mut client = challenged(config(), Challenge::MODERN);
    let request = sent(&mut client);
    let again = Challenge { nonce: "second", ..Challenge::MODERN };
    client.handle_datagram(at(0.2), &again.answer(&request));
    let [Event::Refused { request: RequestKind::Allocate, code: 401, .. }] =
        events(&mut client)[..]
    else {
        panic!("refused")
    };
    assert!(client.is_idle());
}

#[test]
fn a_stale_nonce_is_replaced_but_not_for_ever() {
    let mut client = challenged(config(), Challenge::MODERN);
    let stale = Challenge { code: 438, nonce: "second", ..Challenge::MODERN };
    let mut request = sent(&mut client);
    client.handle_datagram(at(0.2), &stale.answer(&request));
    request = sent(&mut client);
    let nonce = Message::parse(&request).unwrap().first(AttributeType::NONCE).unwrap();
    assert_eq!(nonce, b"obMatJos2wAAAsecond");
    let mut turns = 0;
    while client.poll_event().is_none() {
        client.handle_datagram(at(0.2), &stale.answer(&request));
        turns += 1;
        if let Some(next) = client.poll_transmit() {
            request = next.to_vec();
        }
    }
    assert_eq!(turns, 3, "four challenges in all are followed");
    assert!(client.is_idle());
}

#[test]
fn without_a_usable_name_there_is_no_login() {
    let nameless = ClientConfig { username: "".into(), ..config() };
    let mut client = challenged(nameless, Challenge::MODERN);
    assert!(matches!(events(&mut client)[..], [Event::Refused { code: 401, .. }]));

    let long = ClientConfig { username: "x".repeat(509).as_str().into(), ..config() };
    let mut client = challenged(long, Challenge::MODERN);
    assert_eq!(events(&mut client), failed(Failure::Credentials));

    let longest = ClientConfig { username: "x".repeat(508).as_str().into(), ..config() };
    let mut client = challenged(longest, Challenge::MODERN);
    assert!(sent(&mut client).len() > 508);
}

/// RFC 8489 §9.2.5: over UDP an answer with invalid integrity is ignored.
#[test]
fn waits_for_an_answer_that_verifies() {
    let mut client = challenged(config(), Challenge::MODERN);
    let request = sent(&mut client);
    let spoofed = [
        allocated(&request, 600, Integrity::None),
        allocated(&request, 600, Integrity::WrongKey),
        // The weaker integrity attribute instead of the negotiated one.
        allocated(&request, 600, Integrity::Sha1),
        error(&request, 400, Integrity::None),
        error(&request, 486, Integrity::WrongKey),
    ];
    for reply in &spoofed {
        let incoming = client.handle_datagram(at(0.2), reply);
        assert_eq!(incoming, Incoming::Ignored(IgnoreReason::Untrusted));
    }
    assert!(events(&mut client).is_empty());
    client.handle_datagram(at(0.3), &allocated(&request, 600, Integrity::Sha256));
    assert!(matches!(events(&mut client)[..], [Event::Allocated(_)]));
}

#[test]
fn reports_violated_integrity_when_no_good_answer_came() {
    let mut client = challenged(config(), Challenge::MODERN);
    let request = sent(&mut client);
    client.handle_datagram(at(0.2), &allocated(&request, 600, Integrity::WrongKey));
    while let Some(next) = client.poll_timeout() {
        client.handle_timeout(next);
    }
    assert_eq!(events(&mut client), failed(Failure::IntegrityViolated));

    let mut client =
        challenged(ClientConfig { transport: Transport::Tcp, ..config() }, Challenge::MODERN);
    let request = sent(&mut client);
    client.handle_datagram(at(0.2), &allocated(&request, 600, Integrity::WrongKey));
    assert_eq!(events(&mut client), failed(Failure::IntegrityViolated), "at once");
}

/// RFC 8489 §9.2.5: other responses without the algorithms announced by the nonce are ignored.
#[test]
fn ignores_an_answer_that_breaks_the_promise_of_its_nonce() {
    let mut client = challenged(config(), Challenge::MODERN);
    let request = sent(&mut client);
    let features = SecurityFeatures { password_algorithms: true, username_anonymity: false };
    let reply = answer(&request, Class::Success, Integrity::Sha256, |builder| {
        builder.nonce(std::str::from_utf8(&features.cookie()).unwrap());
        builder.xor_address(AttributeType::XOR_RELAYED_ADDRESS, addr("198.51.100.1:50000"));
        builder.xor_address(AttributeType::XOR_MAPPED_ADDRESS, addr("203.0.113.5:6000"));
        builder.lifetime(600);
    });
    let incoming = client.handle_datagram(at(0.2), &reply);
    assert_eq!(incoming, Incoming::Ignored(IgnoreReason::Untrusted));
}

#[test]
fn an_open_relay_needs_no_login() {
    let mut client = Client::new(config());
    client.allocate(at(0.0), AllocateOptions::default()).unwrap();
    let request = sent(&mut client);
    client.handle_datagram(at(0.1), &allocated(&request, 600, Integrity::None));
    assert!(matches!(events(&mut client)[..], [Event::Allocated(_)]));
}
