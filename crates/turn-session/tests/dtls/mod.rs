//! DTLS 1.2 with OpenSSL's client (RFC 6347, RFC 7350 §3).
#![expect(
    clippy::disallowed_methods,
    reason = "OpenSSL resends by a clock of its own: it is waited for"
)]

mod bounds;
mod first_flight;
mod moves;
mod support;

use std::sync::Arc;
use std::time::{Duration, Instant};

use self::support::*;
use openssl::ssl::{ErrorCode, SslVersion};
use turn_session::dtls::{Answer, CookieHandler, Cookies, DtlsConfig, DtlsEnd, Exchange, NotSent};
use turn_session::{Certificates, CipherSuite, KeyExchange, TlsRules};

#[test]
fn a_client_is_asked_for_a_cookie_and_then_served() {
    let (mut client, mut server) = established();
    assert_eq!(server.answers, [Answer::Cookie]);
    assert_eq!(client.ssl().version_str(), "DTLSv1.2");
    assert_eq!(client.ssl_write(b"question").unwrap(), 8);
    client.ssl_write(b"another").unwrap();
    carry(&mut client, &mut server, &mut || false).unwrap();
    assert_eq!(server.plain, [&b"question"[..], b"another"]);
    server.say(b"answer");
    server.say(&[1; 16384]);
    let heard = carry(&mut client, &mut server, &mut || false).unwrap();
    assert_eq!(heard, [b"answer".to_vec(), vec![1; 16384]]);
    assert_eq!(server.refused, 0);
}

#[test]
fn the_certificate_is_for_the_name_that_is_asked_for() {
    for (name, shown) in [
        (Some("other.example.org"), "other.example.org"),
        (Some("turn.example.org"), "turn.example.org"),
        (Some("unknown.example.org"), "turn.example.org"),
        (None, "turn.example.org"),
    ] {
        let mut client = client_for(name, |_| ());
        let mut server = Server::new(config());
        carry(&mut client, &mut server, &mut || false).unwrap();
        let certificate = client.ssl().peer_certificate().unwrap();
        let names = certificate.subject_alt_names().unwrap();
        assert_eq!(names[0].dnsname(), Some(shown), "{name:?}");
        assert_eq!(server.engine.as_ref().unwrap().server_name(), name);
    }
}

#[test]
fn an_application_protocol_is_agreed_on_if_one_is_named() {
    // RFC 7443 §3: clients that offer none are served as well.
    for (offered, agreed) in [
        (&b"\x09stun.turn"[..], Some(&b"stun.turn"[..])),
        (b"\x02h2\x12stun.nat-discovery", Some(b"stun.nat-discovery")),
        (b"", None),
    ] {
        let mut client = client_with(|context| {
            if !offered.is_empty() {
                context.set_alpn_protos(offered).unwrap();
            }
        });
        let mut server = Server::new(config());
        carry(&mut client, &mut server, &mut || false).unwrap();
        assert!(server.is_established());
        assert_eq!(client.ssl().selected_alpn_protocol(), agreed);
    }
    let mut client = client_with(|context| context.set_alpn_protos(b"\x02h2").unwrap());
    let mut server = Server::new(config());
    let error = carry(&mut client, &mut server, &mut || false).unwrap_err();
    assert!(error.to_string().contains("no application protocol"), "{error}");
    assert_eq!(server.end, Some(DtlsEnd::Failed));
}

#[test]
fn versions_before_1_2_are_refused_without_a_cookie() {
    let mut client = client_with(|context| {
        context.set_min_proto_version(Some(SslVersion::DTLS1)).unwrap();
        context.set_max_proto_version(Some(SslVersion::DTLS1)).unwrap();
        context.set_cipher_list("DEFAULT@SECLEVEL=0").unwrap();
    });
    let mut server = Server::new(config());
    let error = carry(&mut client, &mut server, &mut || false).unwrap_err();
    assert!(error.to_string().contains("alert protocol version"), "{error}");
    assert_eq!(server.answers, [Answer::Version]);
    assert!(server.engine.is_none(), "nothing is kept");
}

#[test]
fn a_record_has_some_data_and_no_more_than_it_may() {
    let (_client, mut server) = established();
    let mut exchange = Exchange::default();
    let engine = server.engine.as_mut().unwrap();
    for len in [0, 16385] {
        assert_eq!(engine.write(&vec![1; len], &mut exchange), Err(NotSent), "{len} bytes");
    }
    assert_eq!(exchange.datagrams().count(), 0);
    assert_eq!(engine.write(&[1; 16384], &mut exchange), Ok(()));
}

#[test]
fn either_end_sends_close_notify() {
    let (mut client, mut server) = established();
    client.shutdown().unwrap();
    let _ = carry(&mut client, &mut server, &mut || false);
    assert_eq!(server.end, Some(DtlsEnd::ByClient));
    assert!(server.engine.as_mut().unwrap().write(b"x", &mut Exchange::default()).is_err());
    server.close();
    assert_eq!(server.out.len(), 1, "close_notify is answered");

    let (mut client, mut server) = established();
    server.close();
    let error = carry(&mut client, &mut server, &mut || false).unwrap_err();
    assert_eq!(error.code(), ErrorCode::ZERO_RETURN);
}

/// A tenth of the datagrams is lost, in either direction, selected by a fresh seed. All handshakes
/// run concurrently, because OpenSSL's timers start at one second.
#[test]
fn handshakes_survive_the_loss_of_every_tenth_datagram() {
    let config = config();
    let first = test_support::fresh_seed();
    let seeds = (first..first + 40).map(|seed| seed * 7919 + 1);
    let mut pairs: Vec<_> =
        seeds.map(|seed| (client(), Server::new(config.clone()), seed)).collect();
    let began = Instant::now();
    let mut lost = 0;
    loop {
        for (client, server, random) in &mut pairs {
            let mut is_lost = || {
                *random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let is_lost = (*random >> 33).is_multiple_of(10);
                lost += u32::from(is_lost);
                is_lost
            };
            carry(client, server, &mut is_lost).unwrap();
            server.tick();
        }
        let done = |(client, server, _): &(Client, Server, u64)| {
            client.ssl().is_init_finished() && server.is_established()
        };
        if pairs.iter().all(done) {
            break;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "a handshake never ends");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(lost >= 10, "{lost} lost are no test");
    for (client, server, _) in &mut pairs {
        client.ssl_write(b"data").unwrap();
        carry(client, server, &mut || false).unwrap();
        assert_eq!(server.plain, [b"data"]);
        assert_eq!(server.end, None);
    }
}

#[test]
fn a_cookie_that_came_too_late_is_replaced() {
    let (mut client, mut server) = (client(), Server::new(config()));
    // The answer arrives after minutes.
    go_on(&mut client).unwrap();
    server.take(&client.get_mut().outgoing.pop_front().unwrap());
    server.now += Duration::from_secs(300);
    carry(&mut client, &mut server, &mut || false).unwrap();
    assert_eq!(server.answers, [Answer::Cookie, Answer::Cookie]);
    assert!(server.is_established() && client.ssl().is_init_finished());
}

#[test]
fn it_does_not_matter_whose_cookie_it_is_as_long_as_the_secret_is_shared() {
    let config = config();
    let (mut client, mut first) = (client(), Server::new(config.clone()));
    go_on(&mut client).unwrap();
    first.take(&client.get_mut().outgoing.pop_front().unwrap());
    client.get_mut().incoming.append(&mut first.out);
    let mut second = Server::new(config);
    carry(&mut client, &mut second, &mut || false).unwrap();
    assert!(second.answers.is_empty() && second.is_established());
}

#[test]
fn a_client_may_have_sent_its_first_hello_many_times() {
    let (mut client, mut server) = (client(), Server::new(config()));
    let began = Instant::now();
    // Two hellos are lost before the answer to the third: record numbers are ahead of message
    // numbers.
    let mut lost = 0;
    while server.answers.is_empty() {
        go_on(&mut client).unwrap();
        while let Some(datagram) = client.get_mut().outgoing.pop_front() {
            lost += 1;
            if lost > 2 {
                server.take(&datagram);
            }
        }
        assert!(began.elapsed() < Duration::from_secs(20));
        std::thread::sleep(Duration::from_millis(20));
    }
    client.get_mut().incoming.append(&mut server.out);
    // There are no waits here: if a record were treated as a repeated one, the handshake would
    // stop.
    carry(&mut client, &mut server, &mut || false).unwrap();
    assert!(server.is_established() && client.ssl().is_init_finished());
}

#[test]
fn new_certificates_are_for_new_associations() {
    let certificates = Arc::new(Certificates::default());
    let front = CookieHandler::new(Cookies::new(&[7; 32]));
    let config = DtlsConfig::new(Arc::clone(&certificates), front, &TlsRules::default()).unwrap();
    assert!(!config.can_serve());
    for name in ["first.example.org", "second.example.org"] {
        certificates.replace(vec![certificate(name)]);
        let (mut client, mut server) = (client(), Server::new(config.clone()));
        carry(&mut client, &mut server, &mut || false).unwrap();
        let shown = client.ssl().peer_certificate().unwrap().subject_alt_names().unwrap();
        assert_eq!(shown[0].dnsname(), Some(name));
    }
    assert!(config.can_serve());
}

#[test]
fn suite_and_group_are_the_chosen_ones() {
    let rules = TlsRules {
        cipher_suites: vec![CipherSuite::Aes128, CipherSuite::EcdsaChaCha20],
        key_exchange: vec![KeyExchange::X25519MlKem768, KeyExchange::Secp384r1],
        ..TlsRules::default()
    };
    let mut server = Server::new(config_with(&rules));
    let mut client = client();
    carry(&mut client, &mut server, &mut || false).unwrap();
    let suite = client.ssl().current_cipher().unwrap().name();
    assert_eq!(suite, "ECDHE-ECDSA-CHACHA20-POLY1305");

    let mut server = Server::new(config_with(&rules));
    // The client also supports the group of the certificate's key: the handshake must not fail
    // because of the certificate.
    let mut client = client_with(|context| context.set_groups_list("X25519:P-256").unwrap());
    let carried = carry(&mut client, &mut server, &mut || false);
    assert!(carried.is_err() || server.end.is_some(), "there is no group in common");

    let certificates = Arc::new(Certificates::default());
    let front = CookieHandler::new(Cookies::new(&[7; 32]));
    let none = TlsRules { cipher_suites: vec![CipherSuite::Aes128], ..TlsRules::default() };
    assert!(DtlsConfig::new(certificates, front, &none).is_err(), "none of them is of 1.2");
}
