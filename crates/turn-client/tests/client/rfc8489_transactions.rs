//! Requests over an unreliable transport (RFC 8489 §6.2).

use crate::support::{Challenge, Integrity};
use crate::support::{addr, all_sent, answer, at, config, error, events, sent};
use stun_wire::{AttributeType, Class};
use turn_client::{
    AllocateOptions, Client, Event, Failure, IgnoreReason, Incoming, RequestError, RequestKind,
};
use turn_types::{ClientAddr, Transport};

/// Advances the clock from timeout to timeout. Returns the times of transmissions, and of the
/// result, in milliseconds.
fn transmissions(client: &mut Client) -> (Vec<u64>, u64, Vec<Vec<u8>>) {
    let (mut times, mut bytes, mut now) = (Vec::new(), Vec::new(), at(0.0));
    loop {
        for request in all_sent(client) {
            times.push(now.as_nanos() / 1_000_000);
            bytes.push(request);
        }
        let Some(next) = client.poll_timeout() else {
            return (times, now.as_nanos() / 1_000_000, bytes);
        };
        now = next;
        client.handle_timeout(now);
    }
}

#[test]
fn retransmits_as_section_6_2_1_says() {
    let mut client = Client::new(config());
    client.binding(at(0.0)).unwrap();
    let (times, end, bytes) = transmissions(&mut client);
    assert_eq!(times, [0, 500, 1_500, 3_500, 7_500, 15_500, 31_500]);
    assert_eq!(end, 39_500);
    assert!(bytes.iter().all(|request| *request == bytes[0]), "always the same bytes");
    let request = RequestKind::Binding;
    assert_eq!(events(&mut client), [Event::Failed { request, failure: Failure::TimedOut }]);
}

#[test]
fn sends_once_over_a_reliable_transport() {
    let mut config = config();
    config.transport = Transport::Tcp;
    let mut client = Client::new(config);
    client.binding(at(0.0)).unwrap();
    let (times, end, _) = transmissions(&mut client);
    assert_eq!((times.as_slice(), end), (&[0][..], 39_500));
}

#[test]
fn a_late_caller_does_not_stretch_the_schedule() {
    let mut client = Client::new(config());
    client.binding(at(0.0)).unwrap();
    sent(&mut client);
    client.handle_timeout(at(0.7));
    sent(&mut client);
    assert_eq!(client.poll_timeout(), Some(at(1.5)));
}

#[test]
fn an_answer_ends_the_transaction_and_counts_once() {
    let mut client = Client::new(config());
    client.binding(at(0.0)).unwrap();
    let request = sent(&mut client);
    let reply = answer(&request, Class::Success, Integrity::None, |builder| {
        builder.xor_address(AttributeType::XOR_MAPPED_ADDRESS, addr("203.0.113.5:6000"));
    });
    assert_eq!(client.handle_datagram(at(0.1), &reply), Incoming::Answer);
    let mapped = ClientAddr(addr("203.0.113.5:6000"));
    assert_eq!(events(&mut client), [Event::Bound { mapped }]);
    assert_eq!((client.poll_timeout(), client.is_idle()), (None, true));
    let again = client.handle_datagram(at(0.2), &reply);
    assert_eq!(again, Incoming::Ignored(IgnoreReason::UnknownTransaction));
    assert!(events(&mut client).is_empty());
}

#[test]
fn answers_to_other_requests_are_ignored() {
    let mut client = Client::new(config());
    client.binding(at(0.0)).unwrap();
    let request = sent(&mut client);
    let mut other_id = error(&request, 400, Integrity::None);
    other_id[19] ^= 1;
    let mut other_method = error(&request, 400, Integrity::None);
    other_method[1] = 0x13;
    for reply in [other_id, other_method] {
        let incoming = client.handle_datagram(at(0.1), &reply);
        assert_eq!(incoming, Incoming::Ignored(IgnoreReason::UnknownTransaction));
    }
    assert_eq!(client.poll_timeout(), Some(at(0.5)), "still retransmitting");
}

#[test]
fn an_answer_that_cannot_be_understood_ends_the_transaction() {
    let mut client = Client::new(config());
    client.binding(at(0.0)).unwrap();
    let request = sent(&mut client);
    let reply = answer(&request, Class::Success, Integrity::None, |builder| {
        builder.attribute(AttributeType(0x7777), b"must be understood");
    });
    client.handle_datagram(at(0.1), &reply);
    let request = RequestKind::Binding;
    assert_eq!(events(&mut client), [Event::Failed { request, failure: Failure::Malformed }]);
}

#[test]
fn requests_of_the_caller_are_bounded() {
    let mut client = Client::new(config());
    let made = (0..1_000).take_while(|_| client.binding(at(0.0)).is_ok()).count();
    assert_eq!(made, 26);
    assert_eq!(client.binding(at(0.0)), Err(RequestError::TooMany));
}

#[test]
fn transaction_ids_differ_and_follow_the_seed() {
    let ids = |seed| {
        let mut config = config();
        config.seed = [seed; 32];
        let mut client = Client::new(config);
        client.binding(at(0.0)).unwrap();
        client.binding(at(0.0)).unwrap();
        all_sent(&mut client)
    };
    assert_eq!(ids(1), ids(1));
    assert_ne!(ids(1), ids(2));
    assert_ne!(ids(1)[0], ids(1)[1]);
}

#[test]
fn follows_an_authenticated_redirect_and_no_other() {
    let redirect = |request: &[u8], to: &str, integrity| {
        answer(request, Class::Error, integrity, |builder| {
            builder.error_code(300, "Try Alternate");
            builder.address(AttributeType::ALTERNATE_SERVER, addr("[2001:db8::9]:3478"));
            builder.address(AttributeType::ALTERNATE_SERVER, addr(to));
        })
    };
    let ask = || {
        let mut client = Client::new(config());
        client.allocate(at(0.0), AllocateOptions::default()).unwrap();
        let request = sent(&mut client);
        (client, request)
    };
    let failed = Event::Failed { request: RequestKind::Allocate, failure: Failure::Redirect };

    let (mut client, request) = ask();
    client.handle_datagram(at(0.1), &redirect(&request, "192.0.2.9:3478", Integrity::None));
    assert_eq!(events(&mut client), std::slice::from_ref(&failed), "not authenticated");

    let (mut client, request) = ask();
    client.handle_datagram(at(0.1), &Challenge::MODERN.answer(&request));
    let request = sent(&mut client);
    client.handle_datagram(at(0.2), &redirect(&request, "192.0.2.9:3478", Integrity::Sha256));
    assert_eq!(client.server().0, addr("192.0.2.9:3478"), "of our own family");
    assert!(matches!(&events(&mut client)[..], [Event::Redirected { domain: None, .. }]));

    let fresh = sent(&mut client);
    assert!(stun_wire::Message::parse(&fresh).unwrap().first(AttributeType::NONCE).is_none());
    client.handle_datagram(at(0.3), &Challenge::MODERN.answer(&fresh));
    let request = sent(&mut client);
    client.handle_datagram(at(0.4), &redirect(&request, "192.0.2.1:3478", Integrity::Sha256));
    assert_eq!(events(&mut client), [failed], "in a circle");
    assert_eq!(client.poll_timeout(), None);
}
