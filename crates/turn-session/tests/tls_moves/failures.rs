//! Connections that cannot move, and failures after a move.

use proptest::prelude::*;
use rustls::crypto::aws_lc_rs::ALL_CIPHER_SUITES;
use rustls::{AlertDescription, Error, ServerConnection};
use state_format::Reader;
use turn_session::{Certificates, Tls, TlsError, TlsState, https_config};

use super::support::{Scene, few_suites, hear, server};

/// Returns a connection before a move, and another after a move.
fn scenes() -> [Scene; 2] {
    let mut moved = Scene::any();
    moved.moves();
    [Scene::any(), moved]
}

#[test]
fn it_stays_during_its_handshake_and_after_a_failure() {
    let (config, _) = server();
    assert!(Tls::new(config).unwrap().leave().is_err());
    // Bytes that are not a record, and a record that is altered.
    for bytes in [&b"GET / HTTP/1.1"[..], &[&[23, 3, 3, 0, 40][..], &[7; 40]].concat()] {
        for mut failed in scenes() {
            let why = failed.take(bytes).unwrap_err();
            failed.assert_stays();
            assert_eq!(failed.take(b"more"), Err(why));
            assert_eq!(failed.take(b""), Ok(Vec::new()));
            assert_eq!(failed.tls().write([b"no more", b""]), 0);
        }
    }
}

#[test]
fn it_moves_after_the_end_of_one_direction() {
    for mut ended in scenes() {
        ended.client.send_close_notify();
        assert_eq!(ended.deliver_to_server(usize::MAX), b"");
        ended.moves();
        assert!(ended.tls().has_ended());
        assert_eq!(ended.take(b"ignored").unwrap(), b"");
        assert_eq!(ended.tls().write([b"the rest", b""]), 8);
        assert_eq!(ended.deliver_to_client(), b"the rest");
        ended.tls().end();
        ended.deliver_to_client();
        assert!(ended.client.process_new_packets().unwrap().peer_has_closed());
    }
    for mut ended in scenes() {
        ended.tls().end();
        ended.deliver_to_client();
        ended.moves();
        assert_eq!(ended.tls().write([b"no more", b""]), 0);
        // One close_notify is enough.
        ended.tls().end();
        assert!(!ended.tls().wants_write());
        let bytes = ended.says(b"the client goes on");
        assert_eq!(ended.take(&bytes).unwrap(), b"the client goes on");
    }
}

#[test]
fn keys_that_the_client_changes_after_a_move_end_it() {
    let mut scene = Scene::any();
    scene.moves();
    scene.client.refresh_traffic_keys().unwrap();
    let update = scene.client_bytes();
    let why = scene.take(&update).unwrap_err().to_string();
    assert!(why.starts_with("the client changes its keys (KeyUpdate)"), "{why}");
    let alert = scene.server_bytes();
    let told = hear(&mut scene.client, &alert).unwrap_err();
    assert_eq!(told, Error::AlertReceived(AlertDescription::InternalError));
    assert_eq!(scene.tls().write([b"no more", b""]), 0);
    scene.assert_stays();
}

#[test]
fn altered_records_end_it() {
    for suite in ALL_CIPHER_SUITES {
        let mut scene = Scene::new(*suite);
        let len = scene.says(&[7; 10]).len();
        // One bit of each byte. The tests of `restored` try all bits: they need no handshake.
        for bit in (0..len).map(|byte| byte * 8 + byte % 8) {
            let mut scene = Scene::new(*suite);
            scene.moves();
            let mut record = scene.says(&[7; 10]);
            record[bit / 8] ^= 1 << (bit % 8);
            // A longer record length may make the server wait for more bytes.
            record.resize(record.len() + (1 << 16), 0);
            scene.take(&record).unwrap_err();
            assert_eq!(scene.tls().write([b"no more", b""]), 0);
            let alert = scene.server_bytes();
            let told = hear(&mut scene.client, &alert).unwrap_err();
            assert!(matches!(told, Error::AlertReceived(_)), "{told}");
        }
    }
}

#[test]
fn a_record_is_taken_once_and_in_order() {
    for suite in few_suites() {
        let mut scene = Scene::new(suite);
        scene.moves();
        let record = scene.says(b"once");
        assert_eq!(scene.take(&record).unwrap(), b"once");
        scene.take(&record).unwrap_err();
        let alert = scene.server_bytes();
        let told = hear(&mut scene.client, &alert).unwrap_err();
        assert_eq!(told, Error::AlertReceived(AlertDescription::BadRecordMac));

        let mut scene = Scene::new(suite);
        scene.moves();
        let _first = scene.says(b"first");
        let second = scene.says(b"second");
        scene.take(&second).unwrap_err();
    }
}

#[test]
fn states_of_no_connection_are_refused() {
    let state = Scene::any().leave();
    for len in 0..state.len() {
        assert!(Reader::new(&state[..len]).last::<TlsState>().is_err(), "{len} bytes");
    }
    // Well-formed fields that fit no connection: see the tests of `restored`.
    let mut altered = state.clone();
    let name = altered.windows(4).position(|bytes| bytes == b"turn").unwrap();
    altered[name] = b' ';
    let read: TlsState = Reader::new(&altered).last().unwrap();
    let why = Tls::resume(read).unwrap_err().to_string();
    assert_eq!(why, "the state of another process is none of a TLS connection");
}

/// Returns the error and the alert of rustls for bytes passed in a single call.
fn of_rustls(bytes: &[u8]) -> (Option<TlsError>, Vec<u8>) {
    let config = https_config(&Certificates::default().into(), None).unwrap();
    let mut connection = ServerConnection::new(config).unwrap();
    connection.read_tls(&mut &bytes[..]).unwrap();
    let error = connection.process_new_packets().err().map(TlsError::from);
    let mut alert = Vec::new();
    connection.write_tls(&mut alert).unwrap();
    (error, alert)
}

proptest! {
    #[test]
    fn bytes_that_are_no_tls_have_the_error_of_rustls(
        front in prop_oneof![
            Just(vec![]), Just(vec![22]), Just(vec![22, 3, 1]), Just(vec![23, 3, 3, 0]),
            Just(vec![21, 3, 3, 0, 2]), Just(vec![22, 3, 1, 72]), Just(vec![24, 254, 253]),
        ],
        rest in proptest::collection::vec(any::<u8>(), 0..40),
        cut in any::<prop::sample::Index>(),
    ) {
        let bytes = [front, rest].concat();
        let mut tls = Tls::new(&server().0).unwrap();
        let (one, two) = bytes.split_at(cut.index(bytes.len() + 1));
        let taken = tls.take(one, &mut []).and_then(|_| tls.take(two, &mut []));
        let mut alert = Vec::new();
        tls.write_to(&mut alert).unwrap();
        prop_assert_eq!((taken.err(), alert), of_rustls(&bytes));
    }

    #[test]
    fn no_bytes_cause_a_panic_after_a_move(pieces: [Vec<u8>; 3], suite in 0..4_usize) {
        let mut scene = Scene::new(few_suites()[suite]);
        scene.moves();
        for piece in pieces {
            let _ = scene.take(&piece);
        }
    }
}
