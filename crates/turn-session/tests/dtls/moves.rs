//! Sessions that move to another process, and records that the record layer refuses.

use openssl::ssl::ErrorCode;
use turn_session::dtls::{DtlsEnd, Exchange, resume};
use turn_session::{CipherSuite, TlsRules};

use super::support::*;

/// Returns the number of a record, after checking its epoch.
fn number(record: &[u8]) -> u64 {
    assert_eq!(record[3..5], [0, 1], "of the first keys");
    record[5..11].iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// Sends data from the client, and returns the record.
fn sent(client: &mut Client, data: &[u8]) -> Vec<u8> {
    client.ssl_write(data).unwrap();
    client.get_mut().outgoing.pop_front().unwrap()
}

#[test]
fn data_goes_on_in_both_directions_with_each_cipher() {
    for suite in [CipherSuite::EcdsaAes128, CipherSuite::EcdsaAes256, CipherSuite::EcdsaChaCha20] {
        let rules = TlsRules { cipher_suites: vec![suite], ..TlsRules::default() };
        let (mut client, mut server) = (client(), Server::new(config_with(&rules)));
        carry(&mut client, &mut server, &mut || false).unwrap();
        for round in 0..4_u8 {
            for len in [1, 15, 16, 17, 1200, 16384] {
                server.say(&vec![round; len]);
                let heard = carry(&mut client, &mut server, &mut || false).unwrap();
                assert_eq!(heard, [vec![round; len]], "{suite:?}");
                client.ssl_write(&vec![round + 100; len]).unwrap();
            }
            carry(&mut client, &mut server, &mut || false).unwrap();
            assert_eq!(server.plain.len(), 6);
            assert!(server.plain.drain(..).all(|data| data[0] == round + 100));
            server.moves(u64::from(round) << 20);
        }
        assert_eq!((server.refused, server.end), (0, None));
    }
}

#[test]
fn the_name_that_was_asked_for_goes_along() {
    let mut client = client_for(Some("other.example.org"), |_| ());
    let mut server = Server::new(config());
    carry(&mut client, &mut server, &mut || false).unwrap();
    server.moves(0);
    assert_eq!(server.engine.as_ref().unwrap().server_name(), Some("other.example.org"));
}

/// Two records with the same key and number would reveal both plaintexts.
#[test]
fn no_number_comes_twice() {
    let (_client, mut server) = established();
    let mut numbers = Vec::new();
    for skipped in [0, 0, 1000] {
        server.say(b"data");
        server.say(b"data");
        server.moves(skipped);
    }
    server.say(b"data");
    numbers.extend(server.out.iter().map(|record| number(record)));
    // The Finished had number 0.
    assert_eq!(numbers, [1, 2, 3, 4, 5, 6, 1007]);
}

#[test]
fn records_are_accepted_once_before_and_after_a_move() {
    let (mut client, mut server) = established();
    let records: Vec<_> = (0..200).map(|n: u8| sent(&mut client, &[n])).collect();
    // Out of order, and with repetitions.
    for at in [5, 3, 5, 4, 3, 140, 5, 13, 12, 140] {
        server.take(&records[at]);
    }
    assert_eq!(server.plain, [[5], [3], [4], [140], [13]], "12 is too old by then");
    server.plain.clear();
    server.moves(0);
    for at in [140, 13, 5, 141, 141, 100, 199, 199] {
        server.take(&records[at]);
    }
    assert_eq!(server.plain, [[141], [100], [199]]);
}

#[test]
fn a_forged_record_is_no_data_and_makes_none_too_old() {
    let (mut client, mut server) = established();
    let record = sent(&mut client, b"genuine");
    for at in 0..record.len() {
        let mut forged = record.clone();
        forged[at] ^= 0x40;
        server.take(&forged);
        if at > 10 {
            // A number far ahead of the window.
            forged[5] = 0x7F;
            server.take(&forged);
        }
    }
    assert!(server.plain.is_empty());
    for len in 0..record.len() {
        server.take(&record[..len]);
    }
    server.take(&record);
    assert_eq!((server.plain.as_slice(), server.end), (&[b"genuine".to_vec()][..], None));
}

#[test]
fn what_is_not_used_is_counted() {
    let (mut client, mut server) = established();
    let record = sent(&mut client, b"data");
    let mut exchange = Exchange::default();
    let engine = server.engine.as_mut().unwrap();
    let mut room = [0; 2048];
    let mut forged = record.clone();
    *forged.last_mut().unwrap() ^= 1;
    let expected = [(&record, Some(4), 0), (&record, None, 1), (&forged, None, 1)];
    for (datagram, read, discarded) in expected {
        engine.take(datagram, &mut exchange).unwrap();
        assert_eq!(engine.read(&mut room, &mut exchange), Ok(read));
        assert_eq!(exchange.take_discarded(), discarded);
    }
}

#[test]
fn several_records_in_one_datagram_are_read_one_by_one() {
    let (mut client, mut server) = established();
    let records: Vec<_> = (0..3).map(|n: u8| sent(&mut client, &[n; 9])).collect();
    server.take(&records.concat());
    assert_eq!(server.plain, [[0; 9], [1; 9], [2; 9]]);
    server.take(&[&records[0][..], b"\x17\xFE"].concat());
    assert_eq!(server.refused, 1, "cut off");
}

/// The last flight of the handshake is lost. The client receives it again after a retransmission, a
/// limited number of times, even if the session has moved.
#[test]
fn the_last_flight_is_sent_again_after_a_move() {
    let (mut client, mut server, flight) = half_open();
    flight.iter().for_each(|datagram| server.take(datagram));
    assert!(server.is_established());
    server.out.clear();
    server.moves(0);
    // Repeated datagrams do not prove that the client is present.
    flight.iter().for_each(|datagram| server.take(datagram));
    assert!(server.out.is_empty());
    let began = std::time::Instant::now();
    while !client.ssl().is_init_finished() {
        carry(&mut client, &mut server, &mut || false).unwrap();
        assert!(began.elapsed() < std::time::Duration::from_secs(20));
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    client.ssl_write(b"data").unwrap();
    carry(&mut client, &mut server, &mut || false).unwrap();
    assert_eq!(server.plain, [b"data"]);
}

#[test]
fn either_end_closes_a_session_that_moved() {
    let (mut client, mut server) = established();
    server.moves(0);
    client.shutdown().unwrap();
    let _ = carry(&mut client, &mut server, &mut || false);
    assert_eq!(server.end, Some(DtlsEnd::ByClient));
    assert!(server.engine.as_ref().unwrap().state().is_none(), "it goes nowhere");

    let (mut client, mut server) = established();
    server.moves(0);
    server.close();
    let error = carry(&mut client, &mut server, &mut || false).unwrap_err();
    assert_eq!(error.code(), ErrorCode::ZERO_RETURN);
}

#[test]
fn states_that_are_none_are_refused() {
    let (_client, server) = established();
    let state = server.state();
    assert!(format!("{state:?}").contains("Gcm"), "{state:?}");
    assert!(!format!("{state:?}").contains("key"));
    let mut spent = server.state();
    spent.skip(1 << 48);
    assert!(resume(spent).is_none(), "there is no number left");
}
