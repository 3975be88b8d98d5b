//! Refreshes of allocations, permissions and channels, and reports of losses (RFC 8656 §§7-12).

use std::net::SocketAddr;
use std::time::Duration;

use crate::support::{Challenge, Integrity};
use crate::support::{
    addr, all_sent, allocated, answer, at, client_with_allocation, config, error, events, method,
    peer, refreshed, sent, serve, success,
};
use stun_wire::{AttributeType, ChannelNumber, Class, Message, Method, value};
use turn_client::{
    AllocateOptions, Client, EvenPort, Event, Failure, Families, LossReason, RequestError,
    RequestKind,
};
use turn_types::{IpFamily, PeerAddr};

fn peers_of(request: &[u8]) -> Vec<SocketAddr> {
    let message = Message::parse(request).unwrap();
    message
        .attributes()
        .filter(|attribute| attribute.kind == AttributeType::XOR_PEER_ADDRESS)
        .map(|attribute| value::xor_address(attribute.value, message.transaction_id()).unwrap())
        .collect()
}

/// Runs a served client until `until`; returns the methods sent, with their times in whole seconds.
fn run(client: &mut Client, until: f64) -> Vec<(u64, Method)> {
    let mut sent = Vec::new();
    let mut now = at(0.0);
    loop {
        let secs = now.as_nanos() / 1_000_000_000;
        sent.extend(serve(client, now).iter().map(|request| (secs, method(request))));
        match client.poll_timeout() {
            Some(next) if next <= at(until) => now = next,
            _ => return sent,
        }
        client.handle_timeout(now);
    }
}

#[test]
fn requests_carry_the_attributes_of_the_options() {
    let options = |write: fn(&mut AllocateOptions)| {
        let mut options = AllocateOptions::default();
        write(&mut options);
        options
    };
    let rows: [(&str, AllocateOptions, AttributeType, &[u8]); 8] = [
        ("always UDP", options(|_| {}), AttributeType::REQUESTED_TRANSPORT, &[17, 0, 0, 0]),
        (
            "IPv4",
            options(|options| options.families = Families::V4),
            AttributeType::REQUESTED_ADDRESS_FAMILY,
            &[1, 0, 0, 0],
        ),
        (
            "IPv6",
            options(|options| options.families = Families::V6),
            AttributeType::REQUESTED_ADDRESS_FAMILY,
            &[2, 0, 0, 0],
        ),
        (
            "both",
            options(|options| options.families = Families::Both),
            AttributeType::ADDITIONAL_ADDRESS_FAMILY,
            &[2, 0, 0, 0],
        ),
        (
            "even",
            options(|options| options.even_port = Some(EvenPort::Even)),
            AttributeType::EVEN_PORT,
            &[0],
        ),
        (
            "even and the next",
            options(|options| options.even_port = Some(EvenPort::EvenAndReserveNext)),
            AttributeType::EVEN_PORT,
            &[0x80],
        ),
        (
            "token",
            options(|options| options.reservation_token = Some(*b"12345678")),
            AttributeType::RESERVATION_TOKEN,
            b"12345678",
        ),
        (
            "lifetime",
            options(|options| options.lifetime_secs = Some(1800)),
            AttributeType::LIFETIME,
            &[0, 0, 7, 8],
        ),
    ];
    for (name, options, kind, expected) in rows {
        let mut client = Client::new(config());
        client.allocate(at(0.0), options).unwrap();
        let request = sent(&mut client);
        let message = Message::parse(&request).unwrap();
        assert_eq!(message.first(kind), Some(expected), "{name}");
        let again = client.allocate(at(0.0), options);
        assert_eq!(again, Err(RequestError::AllocationExists), "{name}");
    }
}

#[test]
fn reads_a_dual_allocation_with_all_its_attributes() {
    let mut client = Client::new(config());
    let options = AllocateOptions { families: Families::Both, ..AllocateOptions::default() };
    client.allocate(at(0.0), options).unwrap();
    let request = sent(&mut client);
    let reply = answer(&request, Class::Success, Integrity::None, |builder| {
        builder.xor_address(AttributeType::XOR_RELAYED_ADDRESS, addr("[2001:db8::1]:50001"));
        builder.xor_address(AttributeType::XOR_RELAYED_ADDRESS, addr("198.51.100.1:50000"));
        builder.lifetime(900).reservation_token(*b"abcdefgh");
        builder.address_error_code(2, 508, "");
        builder.xor_address(AttributeType::XOR_MAPPED_ADDRESS, addr("203.0.113.5:6000"));
    });
    client.handle_datagram(at(0.1), &reply);
    let [Event::Allocated(allocation)] = events(&mut client)[..] else { panic!("allocated") };
    assert_eq!(allocation.relayed_of(IpFamily::V4).unwrap().0, addr("198.51.100.1:50000"));
    assert_eq!(allocation.relayed_of(IpFamily::V6).unwrap().0, addr("[2001:db8::1]:50001"));
    assert_eq!(allocation.mapped.0, addr("203.0.113.5:6000"));
    assert_eq!(allocation.lifetime, Duration::from_secs(900));
    assert_eq!(allocation.reservation_token, Some(*b"abcdefgh"));
    assert_eq!(allocation.missing, Some((IpFamily::V6, 508)));
}

#[test]
fn refreshes_everything_before_it_ends() {
    let mut client = client_with_allocation();
    client.permit(at(0.0), addr("192.0.2.50:0").ip()).unwrap();
    client.bind_channel(at(0.0), peer("192.0.2.60:9000")).unwrap();
    let sent = run(&mut client, 1_300.0);
    let of = |wanted| -> Vec<u64> {
        sent.iter().filter(|(_, method)| *method == wanted).map(|(secs, _)| *secs).collect()
    };
    // Before 600 s, 300 s and 600 s, each with a minute to spare.
    assert_eq!(of(Method::REFRESH), [540, 1_080]);
    assert_eq!(of(Method::CHANNEL_BIND), [0, 540, 1_080]);
    // First one peer, because the channel includes its permission. Then both peers in one request,
    // and again after each ChannelBind.
    let permissions = of(Method::CREATE_PERMISSION);
    assert!(permissions.starts_with(&[0, 240, 480]), "{permissions:?}");
    assert!(permissions.windows(2).all(|pair| pair[1] - pair[0] <= 240), "{permissions:?}");
    let told = events(&mut client);
    assert!(told.contains(&Event::PermissionReady { peer: addr("192.0.2.50:0").ip() }));
    assert!(told.contains(&Event::ChannelReady {
        channel: ChannelNumber::MIN,
        peer: peer("192.0.2.60:9000")
    }));
    assert_eq!(client.channel_of(peer("192.0.2.60:9000")), Some(ChannelNumber::MIN));
    assert!(client.is_permitted(addr("192.0.2.60:0").ip()));
}

#[test]
fn wishes_made_before_the_allocation_are_carried_out_after_it() {
    let mut client = Client::new(config());
    client.permit(at(0.0), addr("192.0.2.50:0").ip()).unwrap();
    assert!(all_sent(&mut client).is_empty());
    assert_eq!(client.poll_timeout(), None);
    client.allocate(at(1.0), AllocateOptions::default()).unwrap();
    let request = sent(&mut client);
    client.handle_datagram(at(1.1), &Challenge::MODERN.answer(&request));
    let request = sent(&mut client);
    client.handle_datagram(at(1.2), &allocated(&request, 600, Integrity::Sha256));
    assert_eq!(method(&sent(&mut client)), Method::CREATE_PERMISSION);
}

#[test]
fn many_permissions_share_requests_and_ten_are_in_flight_at_most() {
    let mut client = client_with_allocation();
    for number in 0..200 {
        client.permit(at(0.0), [192, 0, 2, number].into()).unwrap();
    }
    let first = all_sent(&mut client);
    assert_eq!(first.len(), 10);
    let mut asked: Vec<_> = first.iter().flat_map(|request| peers_of(request)).collect();
    for request in &first {
        client.handle_datagram(at(0.1), &success(request));
    }
    asked.extend(serve(&mut client, at(0.1)).iter().flat_map(|request| peers_of(request)));
    assert_eq!(asked.len(), 200);
    assert_eq!(events(&mut client).len(), 200);
    // Refreshed together, eight per request. Only the first ones were sent separately.
    let refreshes = run(&mut client, 299.0);
    assert!((25..=36).contains(&refreshes.len()), "{} requests for 200", refreshes.len());
}

#[test]
fn one_forbidden_peer_does_not_spoil_it_for_the_others() {
    let mut client = Client::new(config());
    for number in 1..=3 {
        client.permit(at(0.0), [192, 0, 2, number].into()).unwrap();
    }
    client.allocate(at(0.0), AllocateOptions::default()).unwrap();
    let request = sent(&mut client);
    client.handle_datagram(at(0.1), &Challenge::MODERN.answer(&request));
    let request = sent(&mut client);
    client.handle_datagram(at(0.2), &allocated(&request, 600, Integrity::Sha256));
    let together = sent(&mut client);
    assert_eq!(peers_of(&together).len(), 3);
    client.handle_datagram(at(0.3), &error(&together, 403, Integrity::Sha256));
    for request in all_sent(&mut client) {
        let [one] = peers_of(&request)[..] else { panic!("one by one") };
        let forbidden = one.ip() == addr("192.0.2.2:0").ip();
        let reply =
            if forbidden { error(&request, 403, Integrity::Sha256) } else { success(&request) };
        client.handle_datagram(at(0.4), &reply);
    }
    assert!(client.is_permitted([192, 0, 2, 1].into()));
    assert!(!client.is_permitted([192, 0, 2, 2].into()));
    assert!(client.is_permitted([192, 0, 2, 3].into()));
    assert!(client.is_idle());
}

#[test]
fn a_refused_channel_is_given_up_and_keeps_its_number() {
    let mut client = client_with_allocation();
    let channel = client.bind_channel(at(0.0), peer("192.0.2.60:9000")).unwrap();
    let request = sent(&mut client);
    client.handle_datagram(at(0.1), &error(&request, 403, Integrity::Sha256));
    let request = RequestKind::ChannelBind(channel, peer("192.0.2.60:9000"));
    assert!(matches!(
        &events(&mut client)[..],
        [Event::Refused { request: refused, code: 403, reason }]
            if *refused == request && reason == "Forbidden"
    ));
    assert!(client.is_idle());
    assert_eq!(client.channel_of(peer("192.0.2.60:9000")), None);
    // For five minutes, the number must not be bound to another peer (RFC 8656 §12).
    assert_ne!(client.bind_channel(at(1.0), peer("192.0.2.61:9000")).unwrap(), channel);
    assert_eq!(client.bind_channel(at(2.0), peer("192.0.2.60:9000")).unwrap(), channel);
}

#[test]
fn state_that_cannot_be_refreshed_is_reported_lost_at_its_expiry() {
    let mut client = client_with_allocation();
    client.permit(at(0.0), [192, 0, 2, 50].into()).unwrap();
    client.bind_channel(at(0.0), peer("192.0.2.60:9000")).unwrap();
    serve(&mut client, at(0.0));
    events(&mut client);
    let mut told = Vec::new();
    while let Some(next) = client.poll_timeout() {
        client.handle_timeout(next);
        told.extend(events(&mut client).into_iter().map(|event| (next, event)));
    }
    let when = |wanted: Event| told.iter().find(|(_, event)| *event == wanted).map(|(at, _)| *at);
    for number in [50, 60] {
        let lost = when(Event::PermissionLost { peer: [192, 0, 2, number].into() });
        assert_eq!(lost, Some(at(300.0)));
    }
    assert_eq!(when(Event::AllocationLost(LossReason::Expired)), Some(at(600.0)));
    let request = RequestKind::Refresh;
    let failed = when(Event::Failed { request, failure: Failure::TimedOut });
    assert_eq!(failed, Some(at(579.5)));
    assert!(client.allocation().is_none() && client.is_idle());
}

#[test]
fn a_mismatch_ends_the_allocation_at_once() {
    let mut client = client_with_allocation();
    client.permit(at(0.0), [192, 0, 2, 50].into()).unwrap();
    client.bind_channel(at(0.0), peer("192.0.2.60:9000")).unwrap();
    let request = all_sent(&mut client).remove(0);
    client.handle_datagram(at(0.1), &error(&request, 437, Integrity::Sha256));
    assert_eq!(events(&mut client), [Event::AllocationLost(LossReason::Mismatch)]);
    assert!(client.is_idle() && client.poll_timeout().is_none());
    client.allocate(at(1.0), AllocateOptions::default()).unwrap();
}

#[test]
fn giving_back_works_also_when_the_first_answer_was_lost() {
    for first_answer_lost in [false, true] {
        let mut client = client_with_allocation();
        client.release(at(1.0)).unwrap();
        let request = sent(&mut client);
        let message = Message::parse(&request).unwrap();
        assert_eq!(message.first(AttributeType::LIFETIME), Some(&[0; 4][..]));
        let reply = if first_answer_lost {
            error(&request, 437, Integrity::Sha256)
        } else {
            refreshed(&request, 0)
        };
        client.handle_datagram(at(1.1), &reply);
        assert_eq!(events(&mut client), [Event::Released]);
        assert!(client.allocation().is_none() && client.poll_timeout().is_none());
    }
    let mut client = Client::new(config());
    assert_eq!(client.release(at(0.0)), Err(RequestError::NoAllocation));
}

#[test]
fn half_of_a_dual_allocation_can_be_given_back() {
    let mut client = Client::new(config());
    let options = AllocateOptions { families: Families::Both, ..AllocateOptions::default() };
    client.allocate(at(0.0), options).unwrap();
    let request = sent(&mut client);
    let reply = answer(&request, Class::Success, Integrity::None, |builder| {
        builder.xor_address(AttributeType::XOR_RELAYED_ADDRESS, addr("198.51.100.1:50000"));
        builder.xor_address(AttributeType::XOR_RELAYED_ADDRESS, addr("[2001:db8::1]:50001"));
        builder.xor_address(AttributeType::XOR_MAPPED_ADDRESS, addr("203.0.113.5:6000"));
        builder.lifetime(600);
    });
    client.handle_datagram(at(0.0), &reply);
    client.refresh(at(1.0), Some(IpFamily::V6), 0).unwrap();
    let request = sent(&mut client);
    client.handle_datagram(at(1.0), &refreshed(&request, 0));
    let allocation = client.allocation().unwrap();
    assert!(allocation.relayed_of(IpFamily::V4).is_some());
    assert!(allocation.relayed_of(IpFamily::V6).is_none());
    assert_eq!(client.poll_timeout(), Some(at(540.0)));
    client.refresh(at(2.0), Some(IpFamily::V4), 0).unwrap();
    let request = sent(&mut client);
    client.handle_datagram(at(2.0), &refreshed(&request, 0));
    assert!(events(&mut client).ends_with(&[Event::Released]));
}

#[test]
fn channels_run_out_at_the_end_of_the_number_space() {
    let mut client = Client::new(config());
    let mut bound = Vec::new();
    for port in 1.. {
        let peer = PeerAddr(SocketAddr::new([192, 0, 2, 60].into(), port));
        match client.bind_channel(at(0.0), peer) {
            Ok(channel) => bound.push(channel),
            Err(error) => {
                assert_eq!(error, RequestError::TooMany);
                break;
            }
        }
    }
    assert_eq!(bound.len(), 4096);
    assert_eq!((bound[0], bound[4095]), (ChannelNumber::MIN, ChannelNumber::MAX));
}
