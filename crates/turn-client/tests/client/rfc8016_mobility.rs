//! RFC 8016: a client whose address changes.

use stun_wire::{AttributeType, Class, Message, Method};
use turn_client::{AllocateOptions, Client, Event, RequestError, RequestKind};

use super::support::*;

fn ticket_of(request: &[u8]) -> Option<Vec<u8>> {
    let message = Message::parse(request).unwrap();
    message.first(AttributeType::MOBILITY_TICKET).map(<[u8]>::to_vec)
}

/// Returns a client with an allocation and the ticket `one`, granted at 0 s.
fn mobile() -> Client {
    let mut client = Client::new(config());
    let options = AllocateOptions { mobility: true, ..AllocateOptions::default() };
    client.allocate(at(0.0), options).unwrap();
    let request = sent(&mut client);
    assert_eq!(ticket_of(&request).as_deref(), Some(&[][..]), "an empty one");
    client.handle_datagram(at(0.0), &Challenge::MODERN.answer(&request));
    let request = sent(&mut client);
    let reply = answer(&request, Class::Success, Integrity::Sha256, |builder| {
        builder.xor_address(AttributeType::XOR_RELAYED_ADDRESS, addr("198.51.100.1:50000"));
        builder.xor_address(AttributeType::XOR_MAPPED_ADDRESS, addr("203.0.113.5:6000"));
        builder.lifetime(600).mobility_ticket(b"one");
    });
    client.handle_datagram(at(0.0), &reply);
    assert!(client.is_mobile());
    assert!(matches!(events(&mut client)[..], [Event::Allocated(_)]));
    client
}

fn moved(request: &[u8], ticket: &[u8]) -> Vec<u8> {
    answer(request, Class::Success, Integrity::Sha256, |builder| {
        builder.lifetime(600).mobility_ticket(ticket);
    })
}

#[test]
fn a_client_moves_by_its_last_ticket() {
    let mut client = mobile();
    for (secs, ticket, next) in [(1.0, b"one", b"two"), (2.0, b"two", b"six")] {
        client.moved(at(secs)).unwrap();
        let request = sent(&mut client);
        assert_eq!(method(&request), Method::REFRESH);
        assert_eq!(ticket_of(&request).as_deref(), Some(&ticket[..]));
        client.handle_datagram(at(secs), &moved(&request, next));
        assert!(matches!(events(&mut client)[..], [Event::Refreshed { .. }]));
    }
    // Later refreshes have no ticket.
    client.handle_timeout(at(600.0));
    assert_eq!(ticket_of(&sent(&mut client)), None);
}

#[test]
fn nothing_else_is_requested_before_the_ticket_is_answered() {
    let mut client = mobile();
    client.permit(at(1.0), addr("192.0.2.50:0").ip()).unwrap();
    sent(&mut client);
    client.moved(at(1.0)).unwrap();
    let failed = RequestKind::CreatePermission(addr("192.0.2.50:0").ip());
    assert!(
        matches!(events(&mut client)[..], [Event::Failed { request, .. }] if request == failed)
    );
    client.bind_channel(at(1.0), peer("192.0.2.60:9000")).unwrap();
    let request = sent(&mut client);
    client.handle_datagram(at(1.1), &moved(&request, b"two"));
    assert_eq!(method(&sent(&mut client)), Method::CHANNEL_BIND);
}

/// The ticket is sent again if there was no response. A refusal is final.
#[test]
fn a_ticket_that_is_refused_is_not_shown_again() {
    let mut client = mobile();
    client.moved(at(1.0)).unwrap();
    let mut now = 1.0;
    while client.poll_event().is_none() {
        now += 0.5;
        client.handle_timeout(at(now));
        all_sent(&mut client);
    }
    client.handle_timeout(at(now + 10.0));
    let request = sent(&mut client);
    assert_eq!(ticket_of(&request).as_deref(), Some(&b"one"[..]));
    client.handle_datagram(at(now + 10.0), &error(&request, 400, Integrity::Sha256));
    client.handle_timeout(at(now + 20.0));
    assert_eq!(ticket_of(&sent(&mut client)), None);
}

#[test]
fn without_a_ticket_no_client_moves() {
    let mut client = client_with_allocation();
    assert_eq!(client.moved(at(1.0)), Err(RequestError::NoAllocation));
    assert!(!client.is_mobile() && client.is_idle());
}
