//! Records that no well-behaved client sends, from a client with valid keys.

use proptest::prelude::*;
use rustls::AlertDescription as Alert;
use state_format::{Reader, Value as _, Writer};

use super::*;
use crate::aead::{Cipher, KeyBytes};
use crate::tls::record::{GCM_RECORDS_MAX, SEQUENCE_LIMIT};
use crate::tls::state::DirectionState;

const CIPHERS: [Cipher; 3] = [Cipher::Aes128Gcm, Cipher::Aes256Gcm, Cipher::ChaCha20Poly1305];
const VERSIONS: [Version; 2] = [Version::V12, Version::V13];

fn direction(cipher: Cipher, sequence: u64, key: u8) -> DirectionState {
    let len = if cipher == Cipher::Aes128Gcm { 16 } else { 32 };
    let (key, iv) = (KeyBytes::new(&vec![key; len]), KeyBytes::new(&[key; 12]));
    DirectionState { cipher, sequence, key, iv }
}

fn state(version: Version, cipher: Cipher, sequence: u64) -> TlsState {
    TlsState {
        version,
        reading: direction(cipher, sequence, 1),
        writing: direction(cipher, sequence, 2),
        server_name: Some("turn.example.org".to_owned()),
        untaken: Vec::new(),
        unread: Vec::new(),
        unwritten: Vec::new(),
        has_ended: false,
        is_closed: false,
    }
}

/// Both sides of a connection. The client uses the same type with reversed directions.
struct Ends {
    server: Restored,
    client: Restored,
}

impl Ends {
    fn at(version: Version, cipher: Cipher, sequence: u64) -> Self {
        let mut reverse = state(version, cipher, sequence);
        std::mem::swap(&mut reverse.reading, &mut reverse.writing);
        let server = Restored::new(state(version, cipher, sequence)).unwrap();
        Self { server, client: Restored::new(reverse).unwrap() }
    }

    fn new(version: Version) -> Self {
        Self::at(version, Cipher::Aes128Gcm, 7)
    }

    /// Encrypts a record of the client.
    fn record(&mut self, kind: Kind, plaintext: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        self.client.writing.seal(kind, plaintext, &mut out);
        out
    }

    /// Passes records to the server.
    fn take(&mut self, records: &[u8]) -> Result<Vec<u8>, TlsError> {
        let mut room = vec![0; 40_000];
        let len = self.server.take(records, &mut room)?;
        room.truncate(len);
        Ok(room)
    }

    /// Passes one record to the server.
    fn takes(&mut self, kind: Kind, plaintext: &[u8]) -> Result<Vec<u8>, TlsError> {
        let record = self.record(kind, plaintext);
        self.take(&record)
    }

    /// Returns the alerts that the server has sent.
    fn alerts(&mut self) -> Vec<(u8, Alert)> {
        let (mut sent, mut alerts) = (&self.server.unwritten[..], Vec::new());
        while !sent.is_empty() {
            let (record, rest) = sent.split_at(record_len(sent).unwrap());
            let sealed = self.client.reading.parse(record).unwrap();
            let mut out = vec![0; sealed.len()];
            let (kind, len) = self.client.reading.open(&sealed, &mut out).unwrap();
            assert_eq!((kind, len), (Kind::Alert, 2));
            alerts.push((out[0], Alert::from(out[1])));
            sent = rest;
        }
        self.server.unwritten.clear();
        alerts
    }

    /// Asserts that the server has failed with this alert, and that nothing follows.
    #[track_caller]
    fn assert_failed(&mut self, alert: Alert) {
        assert_eq!(self.alerts(), [(2, alert)]);
        assert_eq!(self.server.write(b"no more"), 0);
        self.server.end();
        assert!(!self.server.wants_write());
        assert_eq!(self.server.read(&mut [0; 10]), 0);
    }
}

#[test]
fn the_longest_record_is_taken_and_a_longer_one_refused() {
    for version in VERSIONS {
        let mut ends = Ends::new(version);
        let longest = vec![7; PLAINTEXT_MAX];
        assert!(ends.takes(Kind::Data, &longest).unwrap() == longest);
        let refused = ends.takes(Kind::Data, &[&longest[..], b"1"].concat()).unwrap_err();
        assert_eq!(refused, Error::PeerSentOversizedRecord.into());
        ends.assert_failed(Alert::RecordOverflow);
        // The header is sufficient for the error.
        let mut ends = Ends::new(version);
        ends.take(&[23, 3, 3, 0x48, 0, 1]).unwrap_err();
        ends.assert_failed(Alert::RecordOverflow);
    }
}

#[test]
fn every_bit_of_a_record_counts() {
    for (version, cipher) in VERSIONS.iter().flat_map(|version| CIPHERS.map(|one| (*version, one)))
    {
        let record = Ends::at(version, cipher, 300).record(Kind::Data, b"data");
        for bit in 0..record.len() * 8 {
            let (mut ends, mut altered) = (Ends::at(version, cipher, 300), record.clone());
            altered[bit / 8] ^= 1 << (bit % 8);
            ends.take(&altered).expect_err("altered");
            assert_eq!(ends.server.read(&mut [0; 10]), 0);
            assert_eq!(ends.server.write(b"no more"), 0);
        }
        assert_eq!(Ends::at(version, cipher, 300).take(&record).unwrap(), b"data");
        // Another sequence number means another nonce.
        Ends::at(version, cipher, 301).take(&record).unwrap_err();
    }
}

#[test]
fn records_stay_in_order_where_the_first_does_not_fit() {
    for version in VERSIONS {
        let mut ends = Ends::new(version);
        let records = [ends.record(Kind::Data, b"the first"), ends.record(Kind::Data, b"2")];
        let mut heard = [0; 10];
        assert_eq!(ends.server.take(&records.concat(), &mut heard[..5]).unwrap(), 5);
        assert_eq!(ends.server.read(&mut heard[5..]), 5);
        assert_eq!(&heard, b"the first2");
    }
}

/// A connection holds at most two records of plaintext that the server has not read.
#[test]
fn unread_plaintext_is_bounded() {
    let mut ends = Ends::new(Version::V13);
    for len in [PLAINTEXT_MAX, PLAINTEXT_MAX] {
        let record = ends.record(Kind::Data, &vec![1; len]);
        assert_eq!(ends.server.take(&record, &mut []).unwrap(), 0);
    }
    let record = ends.record(Kind::Data, b"more");
    let failed = ends.server.take(&record, &mut []).unwrap_err();
    assert_eq!(failed.to_string(), TlsError::no_room().to_string());
}

#[test]
fn empty_records_are_taken_within_a_bound() {
    for version in VERSIONS {
        let mut ends = Ends::new(version);
        for _ in 0..3 {
            for _ in 0..EMPTY_MAX {
                assert_eq!(ends.takes(Kind::Data, b"").unwrap(), b"");
            }
            assert_eq!(ends.takes(Kind::Data, b"1").unwrap(), b"1");
        }
        for _ in 0..EMPTY_MAX {
            ends.takes(Kind::Data, b"").unwrap();
        }
        ends.takes(Kind::Data, b"").unwrap_err();
        ends.assert_failed(Alert::UnexpectedMessage);
    }
}

#[test]
fn messages_without_a_place_are_refused() {
    const KEY_UPDATE: [u8; 5] = [24, 0, 0, 1, 0];
    let ticket = [4, 0, 0, 0];
    for (version, kind, message, alert) in [
        (Version::V13, Kind::Handshake, &KEY_UPDATE[..], Alert::InternalError),
        (Version::V12, Kind::Handshake, &KEY_UPDATE, Alert::UnexpectedMessage),
        (Version::V13, Kind::Handshake, &ticket, Alert::UnexpectedMessage),
        (Version::V13, Kind::Handshake, &[1, 0, 0, 0], Alert::UnexpectedMessage),
        (Version::V12, Kind::Handshake, &[0, 0, 0, 0], Alert::UnexpectedMessage),
        (Version::V13, Kind::Handshake, &[], Alert::DecodeError),
        (Version::V13, Kind::ChangeCipherSpec, &[1], Alert::UnexpectedMessage),
        (Version::V12, Kind::ChangeCipherSpec, &[1], Alert::UnexpectedMessage),
        (Version::V13, Kind::Alert, &[1], Alert::DecodeError),
        (Version::V12, Kind::Alert, &[1, 0, 0], Alert::DecodeError),
    ] {
        let mut ends = Ends::new(version);
        let refused = ends.takes(kind, message).unwrap_err();
        let is_update = refused == TlsError(Reason::KeyUpdate);
        assert_eq!(is_update, version == Version::V13 && message == KEY_UPDATE, "{refused}");
        ends.assert_failed(alert);
    }
}

#[test]
fn unprotected_and_foreign_bytes_are_refused() {
    // A client of TLS 1.3 that sends change_cipher_spec does so during the handshake.
    for (version, bytes, alert) in [
        (Version::V13, &b"\x14\x03\x03\x00\x01\x01"[..], Alert::UnexpectedMessage),
        (Version::V13, b"\x15\x03\x03\x00\x02\x01\x00", Alert::UnexpectedMessage),
        (Version::V12, b"\x15\x03\x03\x00\x02\x01\x00", Alert::BadRecordMac),
        (Version::V12, b"\x17\x03\x03\x00\x00", Alert::BadRecordMac),
        (Version::V13, b"\x17\x03\x03\x00\x00", Alert::BadRecordMac),
        (Version::V13, b"GET / HTTP/1.1", Alert::DecodeError),
    ] {
        let mut ends = Ends::new(version);
        ends.take(bytes).unwrap_err();
        ends.assert_failed(alert);
    }
}

#[test]
fn alerts_end_it_or_are_passed_over() {
    for (version, level, alert, ends_it) in [
        (Version::V12, 1, Alert::UserCanceled, false),
        (Version::V12, 1, Alert::UnrecognisedName, false),
        (Version::V12, 2, Alert::UserCanceled, true),
        (Version::V13, 1, Alert::UserCanceled, false),
        (Version::V13, 1, Alert::UnrecognisedName, true),
        (Version::V13, 2, Alert::InternalError, true),
        (Version::V13, 77, Alert::InternalError, true),
    ] {
        let mut ends = Ends::new(version);
        let taken = ends.takes(Kind::Alert, &[level, alert.into()]);
        let expected = if ends_it { Err(Error::AlertReceived(alert).into()) } else { Ok(vec![]) };
        assert_eq!(taken, expected);
        assert_eq!(ends.alerts(), [], "an alert is not answered");
        assert_eq!(ends.server.write(b"data"), if ends_it { 0 } else { 4 });
    }
    let mut ends = Ends::new(Version::V12);
    for _ in 0..WARNINGS_MAX {
        ends.takes(Kind::Alert, &[1, 90]).unwrap();
    }
    ends.takes(Kind::Alert, &[1, 90]).unwrap_err();
    ends.assert_failed(Alert::UnexpectedMessage);
}

#[test]
fn all_behind_close_notify_is_ignored() {
    for version in VERSIONS {
        let mut ends = Ends::new(version);
        let mut bytes = ends.record(Kind::Data, b"the last of it");
        bytes.extend(ends.record(Kind::Alert, &[1, 0]));
        bytes.extend_from_slice(b"GET / HTTP/1.1");
        assert_eq!(ends.take(&bytes).unwrap(), b"the last of it");
        assert!(ends.server.has_ended());
        assert_eq!(ends.take(b"GET / HTTP/1.1").unwrap(), b"");
        assert_eq!(ends.server.write(b"it may go on"), 12);
    }
}

#[test]
fn another_handshake_is_declined_once() {
    let mut ends = Ends::new(Version::V12);
    ends.takes(Kind::Handshake, &[1, 0, 0, 0]).unwrap();
    assert_eq!(ends.alerts(), [(1, Alert::NoRenegotiation)]);
    assert_eq!(ends.takes(Kind::Data, b"it goes on").unwrap(), b"it goes on");
    ends.takes(Kind::Handshake, &[1, 0, 0, 0]).unwrap_err();
    ends.assert_failed(Alert::UnexpectedMessage);
}

#[test]
fn a_key_is_used_up_to_its_limit() {
    for (version, cipher) in VERSIONS
        .into_iter()
        .flat_map(|version| [(version, Cipher::Aes128Gcm), (version, Cipher::Aes256Gcm)])
    {
        let mut ends = Ends::at(version, cipher, GCM_RECORDS_MAX - 2);
        // A single call that crosses the limit.
        let records = vec![7; 3 * PLAINTEXT_MAX];
        assert_eq!(ends.server.write(&records), 2 * PLAINTEXT_MAX);
        let sent = std::mem::take(&mut ends.server.unwritten);
        let mut heard = vec![0; records.len()];
        // Two records of data, and close_notify.
        assert_eq!(ends.client.take(&sent, &mut heard), Ok(2 * PLAINTEXT_MAX));
        assert!(ends.client.has_ended());
        assert_eq!(ends.server.write(b"no more"), 0);
        assert!(!ends.server.wants_write());
        let why = ends.takes(Kind::Data, b"and the connection fails").unwrap_err();
        assert_eq!(why, TlsError(Reason::KeysExhausted));
        assert!(!ends.server.wants_write());
    }
    let mut ends = Ends::at(Version::V13, Cipher::ChaCha20Poly1305, GCM_RECORDS_MAX);
    assert_eq!(ends.server.write(b"it has no such limit"), 20);
    let mut ends = Ends::at(Version::V13, Cipher::ChaCha20Poly1305, SEQUENCE_LIMIT - 1);
    assert_eq!((ends.server.write(b"1"), ends.server.write(b"2")), (1, 0));
    assert!(Restored::new(state(Version::V13, Cipher::Aes128Gcm, SEQUENCE_LIMIT)).is_none());
}

#[test]
fn the_client_has_a_limit_as_well() {
    let mut ends = Ends::at(Version::V13, Cipher::ChaCha20Poly1305, SEQUENCE_LIMIT - 1);
    assert_eq!(ends.takes(Kind::Data, b"the last").unwrap(), b"the last");
    ends.takes(Kind::Data, b"one more").unwrap_err();
}

#[test]
fn states_of_no_connection_are_refused() {
    let changes: [fn(&mut TlsState); 7] = [
        |state| state.reading = direction(Cipher::ChaCha20Poly1305, 0, 1),
        |state| state.reading.cipher = Cipher::Aes256Gcm,
        |state| state.writing.cipher = Cipher::ChaCha20Poly1305,
        |state| state.reading.key = KeyBytes::new(&[1; 15]),
        |state| state.writing.iv = KeyBytes::new(&[1; 11]),
        |state| state.server_name = Some("no name".to_owned()),
        |state| state.writing.sequence = u64::MAX,
    ];
    for change in changes {
        let mut changed = state(Version::V12, Cipher::Aes128Gcm, 0);
        change(&mut changed);
        assert!(Restored::new(changed).is_none());
    }
    assert!(Restored::new(state(Version::V12, Cipher::Aes128Gcm, 0)).is_some());
}

#[test]
fn an_idle_connection_holds_no_buffer() {
    let mut ends = Ends::new(Version::V13);
    let record = ends.record(Kind::Data, &[7; 1000]);
    assert_eq!(ends.server.take(&record, &mut [0; 10]).unwrap(), 10);
    assert_eq!(ends.server.read(&mut [0; 1000]), 990);
    assert_eq!(ends.server.write(&[7; 1000]), 1000);
    let len = ends.server.unwritten.len();
    assert_eq!(ends.server.write_to(&mut &mut [0; 100][..]).unwrap(), 100);
    assert_eq!(ends.server.write_to(&mut Vec::new()).unwrap(), len - 100);
    assert_eq!((ends.server.unread.capacity(), ends.server.unwritten.capacity()), (0, 0));
}

#[test]
fn no_key_is_shown() {
    let state = state(Version::V13, Cipher::Aes256Gcm, 5);
    assert_eq!(format!("{state:?}"), "TlsState { version: V13, cipher: Aes256Gcm, .. }");
}

fn bytes_of(state: &TlsState) -> Vec<u8> {
    let mut out = Writer::new();
    state.write(&mut out);
    out.into_bytes()
}

proptest! {
    #[test]
    fn states_read_back(
        version in 0..2_usize,
        cipher in 0..3_usize,
        sequence: u64,
        name: Option<String>,
        bytes: [Vec<u8>; 3],
    ) {
        let mut state = state(VERSIONS[version], CIPHERS[cipher], sequence);
        state.server_name = name;
        [state.untaken, state.unread, state.unwritten] = bytes;
        let written = bytes_of(&state);
        let again: TlsState = Reader::new(&written).last().unwrap();
        prop_assert_eq!(again.version, state.version);
        prop_assert_eq!(again.reading.cipher, state.reading.cipher);
        prop_assert_eq!(again.writing.sequence, sequence);
        prop_assert_eq!(again.reading.key.expose(), state.reading.key.expose());
        prop_assert_eq!(again.writing.iv.expose(), state.writing.iv.expose());
        prop_assert_eq!(&again.server_name, &state.server_name);
        prop_assert_eq!(&again.unread, &state.unread);
        prop_assert_eq!(bytes_of(&again), written);
    }

    #[test]
    fn no_room_is_too_small(
        version in 0..2_usize,
        cipher in 0..3_usize,
        plaintext: Vec<u8>,
        room in 0..200_usize,
    ) {
        let mut ends = Ends::at(VERSIONS[version], CIPHERS[cipher], 300);
        let record = ends.record(Kind::Data, &plaintext);
        let mut heard = vec![0; room];
        let len = ends.server.take(&record, &mut heard).unwrap();
        prop_assert_eq!(len, plaintext.len().min(room));
        heard.resize(plaintext.len(), 0);
        prop_assert_eq!(ends.server.read(&mut heard[len..]), plaintext.len() - len);
        prop_assert_eq!(heard, plaintext);
    }
}
