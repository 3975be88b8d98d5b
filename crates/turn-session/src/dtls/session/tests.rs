//! An established session, and a client with the same keys.

use super::*;
use crate::aead::{Cipher, FixedPart, KeyBytes};
use crate::dtls::limits::{BLOCKS_PER_KEY_MAX, FORGERIES_PER_KEY_MAX};
use crate::dtls::replay::ReplayWindow;

const FLIGHT: [&[u8]; 2] = [b"ChangeCipherSpec", b"Finished"];

fn keys(byte: u8) -> DirectionKeys {
    let cipher = Cipher::Aes128Gcm;
    DirectionKeys {
        cipher,
        key: KeyBytes::new(&[byte; 16]),
        fixed: FixedPart::new(&[byte; 4]).unwrap(),
    }
}

fn reading(byte: u8) -> Reading {
    Reading { keys: keys(byte), window: ReplayWindow::default(), forged: 0 }
}

fn writing(byte: u8) -> Writing {
    Writing { keys: keys(byte), next: 1, blocks: 0 }
}

struct Ends {
    session: Session,
    client: Sealer,
    heard: Opener,
    exchange: Exchange,
}

/// Effect of a datagram on the session.
#[derive(Debug, PartialEq)]
enum Reception {
    Data(Vec<u8>),
    Nothing,
    Refused,
    End(DtlsEnd),
}

impl Ends {
    fn new() -> Self {
        Self::with(reading(1), writing(2))
    }

    fn with(reading: Reading, writing: Writing) -> Self {
        let state = DtlsState {
            reading,
            writing,
            server_name: None,
            last_flight: FLIGHT.map(<[u8]>::to_vec).into(),
            answers: ANSWERS_MAX,
        };
        Self {
            session: Session::resume(state).unwrap(),
            client: Sealer::new(self::writing(1)).unwrap(),
            heard: Opener::new(self::reading(2)).unwrap(),
            exchange: Exchange::default(),
        }
    }

    fn takes(&mut self, datagram: &[u8]) -> Reception {
        if self.session.take(datagram, &mut self.exchange).is_err() {
            return Reception::Refused;
        }
        let mut room = vec![0; 1 << 15];
        match self.session.read(&mut room, &mut self.exchange) {
            Ok(None) => Reception::Nothing,
            Ok(Some(len)) => Reception::Data(room[..len].to_vec()),
            Err(end) => Reception::End(end),
        }
    }

    /// Sends a record from the client to the session.
    fn hears(&mut self, content: u8, plaintext: &[u8]) -> Reception {
        let mut record = Vec::new();
        self.client.seal(content, plaintext, &mut record).unwrap();
        self.takes(&record)
    }

    /// Returns the datagrams that the session has sent.
    fn sent(&mut self) -> Vec<Vec<u8>> {
        let sent = self.exchange.datagrams().map(<[u8]>::to_vec).collect();
        self.exchange.clear();
        sent
    }

    /// Returns the alerts that the session has sent.
    fn alerts(&mut self) -> Vec<Vec<u8>> {
        let opened = self.sent().into_iter().map(|datagram| {
            let (record, _) = take_record(&datagram).unwrap();
            assert_eq!(record.content, ALERT);
            let mut room = [0; 64];
            let len = self.heard.open(&record, &mut room).unwrap();
            room[..len].to_vec()
        });
        opened.collect()
    }
}

#[test]
fn a_datagram_has_a_few_records() {
    let mut ends = Ends::new();
    let mut datagram = Vec::new();
    for _ in 0..RECORDS_PER_DATAGRAM_MAX {
        ends.client.seal(APPLICATION_DATA, b"data", &mut datagram).unwrap();
    }
    assert_eq!(ends.takes(&datagram), Reception::Data(b"data".to_vec()));
    ends.client.seal(APPLICATION_DATA, b"data", &mut datagram).unwrap();
    assert_eq!(ends.takes(&datagram), Reception::Refused);
}

#[test]
fn a_repeated_finished_is_answered_a_few_times_and_until_there_is_data() {
    let mut ends = Ends::new();
    let mut answered = 0;
    for _ in 0..100 {
        assert_eq!(ends.hears(HANDSHAKE, &[FINISHED, 0, 0, 12]), Reception::Nothing);
        let sent = ends.sent();
        assert!(sent.is_empty() || sent == FLIGHT);
        answered += usize::from(!sent.is_empty());
    }
    assert_eq!(answered, usize::from(ANSWERS_MAX));

    let mut ends = Ends::new();
    assert_eq!(ends.hears(APPLICATION_DATA, b"data"), Reception::Data(b"data".to_vec()));
    assert_eq!(ends.hears(HANDSHAKE, &[FINISHED, 0, 0, 12]), Reception::Nothing);
    assert!(ends.sent().is_empty(), "the client has it");
}

/// A client's flight can be a single datagram that starts with unencrypted records.
#[test]
fn a_finished_behind_other_messages_of_its_flight_is_answered() {
    let mut ends = Ends::new();
    let mut flight = vec![HANDSHAKE, 0xFE, 0xFD, 0, 0, 0, 0, 0, 0, 0, 3, 0, 1, 16];
    flight.extend([CHANGE_CIPHER_SPEC, 0xFE, 0xFD, 0, 0, 0, 0, 0, 0, 0, 4, 0, 1, 1]);
    let in_clear = flight.clone();
    ends.client.seal(HANDSHAKE, &[FINISHED, 0, 0, 12], &mut flight).unwrap();
    assert_eq!(ends.takes(&flight), Reception::Nothing);
    assert_eq!(ends.sent(), FLIGHT);
    assert_eq!(ends.takes(&in_clear), Reception::Refused, "anyone may have sent this");
}

#[test]
fn another_handshake_is_declined_a_few_times() {
    let mut ends = Ends::new();
    for _ in 0..100 {
        assert_eq!(ends.hears(HANDSHAKE, &[CLIENT_HELLO, 0, 0, 40]), Reception::Nothing);
    }
    let declined = vec![WARNING, NO_RENEGOTIATION];
    assert_eq!(ends.alerts(), vec![declined; ANSWERS_MAX.into()]);
    assert_eq!(ends.hears(APPLICATION_DATA, b"data"), Reception::Data(b"data".to_vec()));
}

#[test]
fn alerts_end_a_session_if_they_are_fatal_or_close_it() {
    for (alert, made) in [
        (&[WARNING, CLOSE_NOTIFY][..], Reception::End(DtlsEnd::ByClient)),
        (&[FATAL, CLOSE_NOTIFY], Reception::End(DtlsEnd::ByClient)),
        (&[FATAL, 20], Reception::End(DtlsEnd::Broken)),
        (&[WARNING, 90], Reception::Nothing),
        (&[FATAL], Reception::Nothing),
        (&[FATAL, 20, 0], Reception::Nothing),
        (&[], Reception::Nothing),
    ] {
        let mut ends = Ends::new();
        assert_eq!(ends.hears(ALERT, alert), made, "{alert:?}");
        let goes_on = ends.session.state().is_some();
        assert_eq!(goes_on, made == Reception::Nothing);
        let written = ends.session.write(b"data", &mut ends.exchange);
        assert_eq!(written.is_ok(), goes_on);
        assert_eq!(ends.hears(APPLICATION_DATA, b"data") == Reception::Refused, !goes_on);
    }
}

#[test]
fn close_notify_is_answered_and_a_fatal_alert_is_not() {
    let mut ends = Ends::new();
    ends.hears(ALERT, &[WARNING, CLOSE_NOTIFY]);
    ends.session.close(&mut ends.exchange);
    assert_eq!(ends.alerts(), [[WARNING, CLOSE_NOTIFY]]);
    let mut ends = Ends::new();
    ends.hears(ALERT, &[FATAL, 20]);
    ends.session.close(&mut ends.exchange);
    assert!(ends.sent().is_empty());
}

#[test]
fn unknown_content_means_nothing() {
    let mut ends = Ends::new();
    assert_eq!(ends.hears(CHANGE_CIPHER_SPEC, &[1]), Reception::Refused);
    assert_eq!(ends.hears(24, b"heartbeat"), Reception::Refused);
    assert_eq!(ends.hears(HANDSHAKE, b""), Reception::Nothing);
    assert_eq!(ends.hears(HANDSHAKE, &[0]), Reception::Nothing);
    assert_eq!(ends.hears(APPLICATION_DATA, b""), Reception::Data(Vec::new()));
    assert!(ends.sent().is_empty());
}

#[test]
fn keys_protect_no_more_than_they_may() {
    let mut ends = Ends::with(reading(1), Writing { blocks: BLOCKS_PER_KEY_MAX - 3, ..writing(2) });
    assert_eq!(ends.session.write(b"three", &mut ends.exchange), Ok(()));
    assert_eq!(ends.sent().len(), 1);
    assert_eq!(ends.session.write(b"more", &mut ends.exchange), Err(NotSent));
    // The client's next record closes the session.
    assert_eq!(ends.hears(APPLICATION_DATA, b"x"), Reception::End(DtlsEnd::KeysUsedUp));
    ends.session.close(&mut ends.exchange);
    assert_eq!(ends.alerts(), [[WARNING, CLOSE_NOTIFY]], "the client may begin anew");
    assert!(ends.session.state().is_none());

    let almost = (1 << 48) - 1;
    let mut ends = Ends::with(reading(1), Writing { next: almost, ..writing(2) });
    assert_eq!(ends.session.write(b"last", &mut ends.exchange), Ok(()));
    assert_eq!(ends.sent().len(), 1);
    assert_eq!(ends.session.write(b"more", &mut ends.exchange), Err(NotSent));
    assert!(ends.sent().is_empty(), "there is no number for an alert");
}

#[test]
fn keys_are_not_tried_without_end() {
    let mut ends =
        Ends::with(Reading { forged: FORGERIES_PER_KEY_MAX - 2, ..reading(1) }, writing(2));
    let mut record = Vec::new();
    ends.client.seal(APPLICATION_DATA, b"data", &mut record).unwrap();
    *record.last_mut().unwrap() ^= 1;
    assert_eq!(ends.takes(&record), Reception::Nothing);
    assert_eq!(ends.takes(&record), Reception::End(DtlsEnd::KeysUsedUp));
}
