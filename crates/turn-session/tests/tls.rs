//! TLS between values: no network, and every segmentation of the stream.

use std::io::{Read as _, Write as _};
use std::sync::Arc;

use proptest::prelude::*;
use rustls::pki_types::ServerName;
use rustls::{AlertDescription, ClientConfig, ClientConnection, RootCertStore};
use turn_session::{
    Certificate, Certificates, RECORDS_PER_TAKE, Tls, TlsConfig, TlsRules, tls_config,
};

/// A server for `turn.example.org`, and a root store that trusts it.
fn server() -> (TlsConfig, RootCertStore) {
    let made = rcgen::generate_simple_self_signed(["turn.example.org".to_owned()]).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone()).unwrap();
    let (chain, key) = (made.cert.pem(), made.signing_key.serialize_pem());
    let certificates = Arc::new(Certificates::default());
    let config = tls_config(Arc::clone(&certificates), None, &TlsRules::default()).unwrap();
    assert!(!config.can_serve());
    certificates.replace(vec![Certificate::read(chain.as_bytes(), key.as_bytes()).unwrap()]);
    assert!(config.can_serve());
    (config, roots)
}

fn client(roots: RootCertStore, alpn: &[&[u8]]) -> ClientConnection {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
    let name = ServerName::try_from("turn.example.org").unwrap();
    ClientConnection::new(Arc::new(config), name).unwrap()
}

/// Returns the bytes that the client sends.
fn from_client(client: &mut ClientConnection) -> Vec<u8> {
    let mut bytes = Vec::new();
    while client.wants_write() {
        client.write_tls(&mut bytes).unwrap();
    }
    bytes
}

/// Returns the bytes that the server sends.
fn from_server(tls: &mut Tls) -> Vec<u8> {
    let mut bytes = Vec::new();
    while tls.wants_write() {
        tls.write_to(&mut bytes).unwrap();
    }
    bytes
}

/// Delivers the server's bytes to the client; returns the plaintext.
fn to_client(tls: &mut Tls, client: &mut ClientConnection) -> Vec<u8> {
    let bytes = from_server(tls);
    let (mut bytes, mut heard) = (&bytes[..], Vec::new());
    while !bytes.is_empty() {
        client.read_tls(&mut bytes).unwrap();
        client.process_new_packets().unwrap();
        // An error here means that no data is available yet.
        let _ = client.reader().read_to_end(&mut heard);
    }
    heard
}

/// Returns both sides after the handshake.
fn agreed() -> (Tls, ClientConnection) {
    let (config, roots) = server();
    let (mut tls, mut client) = (Tls::new(&config).unwrap(), client(roots, &[b"stun.turn"]));
    for _ in 0..3 {
        assert_eq!(tls.take(&from_client(&mut client), &mut []).unwrap(), 0);
        to_client(&mut tls, &mut client);
    }
    assert!(tls.is_agreed() && !client.is_handshaking());
    assert_eq!(client.alpn_protocol(), Some(&b"stun.turn"[..]));
    (tls, client)
}

/// Returns bytes that identify their position.
fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at % 251) as u8).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// All data is returned in order, for any size of the buffer and of the records.
    #[test]
    fn plaintext_of_the_client_is_returned(
        len in 0_usize..200_000,
        record in 100_usize..16_384,
        rooms in proptest::collection::vec(1_usize..70_000, 1..20),
    ) {
        let (mut tls, mut client) = agreed();
        let meant = pattern(len);
        client.set_buffer_limit(None);
        for piece in meant.chunks(record) {
            client.writer().write_all(piece).unwrap();
        }
        let wire = from_client(&mut client);
        let (mut rest, mut heard) = (&wire[..], Vec::new());
        for size in rooms.iter().cycle() {
            let mut room = vec![0; *size];
            // In the order of a connection: buffered plaintext first, then the network.
            let mut got = tls.read(&mut room);
            if got == 0 && tls.has_records() {
                got = tls.take(&[], &mut room).unwrap();
            } else if got == 0 {
                let piece = rest.len().min(Tls::most(room.len()));
                got = tls.take(&rest[..piece], &mut room).unwrap();
                rest = &rest[piece..];
                if piece == 0 {
                    break;
                }
            }
            heard.extend_from_slice(&room[..got]);
        }
        prop_assert_eq!(heard, meant);
    }
}

/// A client that changes its keys continuously takes no more time than others.
#[test]
fn so_many_records_are_decrypted_at_once() {
    /// Maximum number of consecutive updates that rustls accepts.
    const UPDATES: usize = 31;
    let (mut tls, mut client) = agreed();
    for _ in 0..3 * RECORDS_PER_TAKE / (UPDATES + 1) {
        (0..UPDATES).for_each(|_| client.refresh_traffic_keys().unwrap());
        client.writer().write_all(b"d").unwrap();
    }
    client.writer().write_all(b"ata").unwrap();
    let wire = from_client(&mut client);
    assert!(wire.len() < 1 << 14, "one read");
    let (mut room, mut heard, mut records) = ([0; 1 << 15], Vec::new(), Vec::new());
    let mut rest = &wire[..];
    while !rest.is_empty() || tls.has_records() {
        let len = tls.take(std::mem::take(&mut rest), &mut room).unwrap();
        heard.extend_from_slice(&room[..len]);
        records.push(tls.records_taken());
    }
    assert_eq!(records, [RECORDS_PER_TAKE, RECORDS_PER_TAKE, RECORDS_PER_TAKE, 1]);
    assert_eq!(heard, b"ddddddata");
    assert_eq!(tls.write([b"more", b""]), 4);
    assert_eq!(to_client(&mut tls, &mut client), b"more", "with the last keys");
}

#[test]
fn the_queue_is_bounded_and_excess_plaintext_refused() {
    let (mut tls, mut client) = agreed();
    let meant = pattern(300_000);
    let (mut rest, mut heard) = (&meant[..], Vec::new());
    let first = tls.write([rest, &[]]);
    assert!(first > 0 && first < 100_000, "{first}");
    rest = &rest[first..];
    assert_eq!(tls.write([rest, &[]]), 0, "until some has gone");
    while heard.len() < meant.len() {
        heard.extend(to_client(&mut tls, &mut client));
        // In two slices, as from a ring buffer.
        let (one, two) = rest.split_at(rest.len().min(5000));
        rest = &rest[tls.write([one, two])..];
    }
    assert_eq!(heard, meant);
}

/// The next piece would take the position of the remainder of a partly accepted one.
#[test]
fn nothing_is_written_behind_a_piece_that_does_not_fit() {
    let (mut tls, mut client) = agreed();
    let meant = pattern(300_000);
    let first = tls.write([&meant[..250_000], &meant[250_000..]]);
    assert!(first < 250_000, "{first}");
    assert_eq!(to_client(&mut tls, &mut client), meant[..first]);
}

/// A read leaves space in the buffer for the plaintext of one record.
#[test]
fn as_much_is_read_from_the_network_as_there_is_room_for() {
    let record = 17 << 10;
    for (room, most) in
        [(0, 4096), (record, 4096), (record + 4097, 4097), (record + 60_000, 60_000)]
    {
        assert_eq!(Tls::most(room), most, "{room}");
    }
}

#[test]
fn the_name_that_a_client_asked_for_is_known() {
    let (tls, _client) = agreed();
    assert_eq!(tls.server_name(), Some("turn.example.org"));
}

#[test]
fn other_protocols_get_an_alert_and_other_bytes_are_refused() {
    let (config, roots) = server();
    let mut tls = Tls::new(&config).unwrap();
    tls.take(b"\x16\x03\x01\x00\x05hello", &mut []).unwrap_err();

    let mut tls = Tls::new(&config).unwrap();
    let mut client = client(roots, &[b"h2"]);
    tls.take(&from_client(&mut client), &mut []).unwrap_err();
    let said = from_server(&mut tls);
    client.read_tls(&mut &said[..]).unwrap();
    let told = client.process_new_packets().unwrap_err();
    assert_eq!(told, rustls::Error::AlertReceived(AlertDescription::NoApplicationProtocol));
}

#[test]
fn failures_that_operators_can_mend_are_sentences() {
    // The error of a client that supports none of the certificates.
    let none = tls_config(Arc::new(Certificates::default()), None, &TlsRules::default()).unwrap();
    let (_, roots) = server();
    let mut tls = Tls::new(&none).unwrap();
    let failed = tls.take(&from_client(&mut client(roots, &[])), &mut []).unwrap_err();
    assert!(failed.to_string().starts_with("no certificate in tls.certificates has"), "{failed}");

    let (config, _) = server();
    let (mut tls, mut client) = (Tls::new(&config).unwrap(), client(RootCertStore::empty(), &[]));
    tls.take(&from_client(&mut client), &mut []).unwrap();
    client.read_tls(&mut &from_server(&mut tls)[..]).unwrap();
    client.process_new_packets().unwrap_err();
    let failed = tls.take(&from_client(&mut client), &mut []).unwrap_err();
    assert!(failed.to_string().starts_with("the client does not trust the issuer"), "{failed}");
}

#[test]
fn certificates_that_do_not_fit_their_keys_are_refused() {
    let make = || rcgen::generate_simple_self_signed(["turn.example.org".to_owned()]).unwrap();
    let (one, other) = (make(), make());
    let read = |chain: &str, key: &str| Certificate::read(chain.as_bytes(), key.as_bytes());
    let (chain, key) = (one.cert.pem(), one.signing_key.serialize_pem());
    let own = read(&chain, &key).unwrap();
    assert!(own.expires() > 1_700_000_000);
    for (chain, key) in [
        (chain.as_str(), other.signing_key.serialize_pem().as_str()),
        (&key, &key),
        (&chain, &chain),
        ("", &key),
        ("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", &key),
    ] {
        read(chain, key).unwrap_err();
    }
}

#[test]
fn the_end_is_known_behind_all_that_was_said() {
    let (mut tls, mut client) = agreed();
    client.writer().write_all(b"the last of it").unwrap();
    client.send_close_notify();
    assert!(!tls.has_ended());
    let mut room = [0; 4];
    assert_eq!(tls.take(&from_client(&mut client), &mut room).unwrap(), 4);
    assert!(tls.has_ended());
    let mut rest = [0; 20];
    assert_eq!(tls.read(&mut rest), 10);
    assert_eq!(&[&room[..], &rest[..10]].concat(), b"the last of it");
    // The server may continue to send.
    assert_eq!(tls.write([b"and more", b""]), 8);
    assert_eq!(to_client(&mut tls, &mut client), b"and more");
}

/// Delivers the first flight of a client. Returns true if the server has a certificate for the
/// client.
fn is_answered(config: &TlsConfig, alpn: &[&[u8]]) -> bool {
    let mut tls = Tls::new(config).unwrap();
    let mut client = client(RootCertStore::empty(), alpn);
    tls.take(&from_client(&mut client), &mut [0; 64]).is_ok()
}

#[test]
fn an_authority_that_verifies_a_name_gets_the_certificate_of_its_challenge_alone() {
    const AUTHORITY: &[u8] = b"acme-tls/1";
    let certificates = Arc::new(Certificates::default());
    let config = tls_config(Arc::clone(&certificates), None, &TlsRules::default()).unwrap();
    assert!(!config.can_serve());
    let made = rcgen::generate_simple_self_signed(["turn.example.org".to_owned()]).unwrap();
    let key = rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let challenges = certificates.challenges();
    challenges.answer_tls("Turn.example.org", made.cert.der().clone(), key).unwrap();
    assert!(config.can_serve());
    assert!(is_answered(&config, &[AUTHORITY]));
    // RFC 8737 §3: an authority offers only this protocol.
    assert!(!is_answered(&config, &[AUTHORITY, b"stun.turn"]));
    assert!(!is_answered(&config, &[b"stun.turn"]), "there is no certificate for clients");
    assert!(!config.expects_challenge(), "over HTTP");
    challenges.answer_http("token".to_owned(), "token.key".to_owned());
    assert!(config.expects_challenge());
    assert_eq!(config.key_authorization("token").as_deref(), Some("token.key"));
    assert_eq!(config.key_authorization("other"), None);
    challenges.clear();
    assert!(!is_answered(&config, &[AUTHORITY]) && !config.expects_challenge());
    assert!(!config.can_serve());
}
