//! Hostile clients receive few answers or none.

use super::support::*;

#[test]
fn a_giant_message_in_pieces_ends_at_the_guard() {
    let (mut client, mut server, flight) = half_open();
    // A ClientKeyExchange that claims to have 100 000 bytes.
    for at in 0..50_u8 {
        let mut piece = vec![22, 0xFE, 0xFD, 0, 0, 0, 0, 0, 0, 1, at, 0, 112];
        piece.extend([16, 1, 0x86, 0xA0, 0, 2, 0, at, 0, 0, 0, 100]);
        piece.extend([0; 100]);
        server.take(&piece);
    }
    assert_eq!(server.refused, 50);
    // The client's real handshake still succeeds.
    for datagram in flight {
        server.take(&datagram);
    }
    client.get_mut().incoming.append(&mut server.out);
    carry(&mut client, &mut server, &mut || false).unwrap();
    assert!(server.is_established());
}

#[test]
fn repeated_or_forged_records_have_no_effect() {
    let (mut client, mut server) = established();
    client.ssl_write(b"once").unwrap();
    let datagram = client.get_mut().outgoing.pop_front().unwrap();
    server.take(&datagram);
    server.take(&datagram);
    assert_eq!(server.plain, [b"once"], "a repeated record is data only once");
    let mut forged = datagram.clone();
    *forged.last_mut().unwrap() ^= 1;
    forged[10] += 1;
    server.take(&forged);
    server.take(b"\x16\xFE\xFD no record at all");
    server.take(&[21, 0xFE, 0xFD, 0, 0, 0, 0, 0, 0, 0, 9, 0, 2, 2, 40]);
    client.ssl_write(b"again").unwrap();
    carry(&mut client, &mut server, &mut || false).unwrap();
    assert_eq!(server.plain, [&b"once"[..], b"again"]);
    assert_eq!(server.end, None);
}

/// The last flight of the handshake is lost: the client retransmits, and receives the flight again.
#[test]
fn a_lost_finished_is_sent_again() {
    let (mut client, mut server, flight) = half_open();
    for datagram in &flight {
        server.take(datagram);
    }
    assert!(server.is_established());
    server.out.clear();
    let began = std::time::Instant::now();
    while !client.ssl().is_init_finished() {
        carry(&mut client, &mut server, &mut || false).unwrap();
        assert!(began.elapsed() < std::time::Duration::from_secs(20));
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    server.say(b"hello");
    assert_eq!(carry(&mut client, &mut server, &mut || false).unwrap(), [b"hello"]);
}

/// During a handshake, a client receives an alert at a shutdown, and need not wait for its timers.
#[test]
fn a_handshake_that_does_not_go_on_is_told_to_the_client() {
    let (mut client, mut server, _) = half_open();
    server.close();
    assert_eq!(server.out.len(), 1);
    let error = carry(&mut client, &mut server, &mut || false).unwrap_err();
    assert!(error.to_string().contains("alert internal error"), "{error}");
    server.close();
    assert!(server.out.is_empty(), "once");
}
