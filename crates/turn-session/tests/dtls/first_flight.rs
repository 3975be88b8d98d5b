//! The first flight: answered and rejected hellos (RFC 6347 §4.2.1).

use std::time::Duration;

use proptest::prelude::*;
use turn_session::dtls::{
    ANSWER_MAX, Answer, CookieHandler, Cookies, Hello, HelloError, HelloOutcome,
};

use super::support::{client, ends, go_on};

fn front() -> CookieHandler {
    CookieHandler::new(Cookies::new(&[7; 32]))
}

/// First message of OpenSSL's client.
fn hello() -> Vec<u8> {
    let mut client = client();
    go_on(&mut client).unwrap();
    client.get_mut().outgoing.pop_front().unwrap()
}

fn take<'a>(datagram: &'a [u8], answer: &mut [u8; ANSWER_MAX]) -> HelloOutcome<'a> {
    front().take(datagram, ends(), Duration::from_secs(60), answer)
}

#[test]
fn a_hello_is_answered_by_a_smaller_question_with_its_numbers() {
    let mut hello = hello();
    hello[5..11].copy_from_slice(&[0, 0, 0, 0, 1, 9]);
    let mut answer = [0; ANSWER_MAX];
    let HelloOutcome::Answer(len, Answer::Cookie) = take(&hello, &mut answer) else { panic!() };
    assert!(len < hello.len());
    // Record: handshake, DTLS 1.0, epoch 0, the hello's number, length.
    assert_eq!(answer[..13], [22, 0xFE, 0xFF, 0, 0, 0, 0, 0, 0, 1, 9, 0, 47]);
    // HelloVerifyRequest of 35 bytes, message 0, unfragmented; DTLS 1.0 (RFC 6347 §4.2.1), 32 bytes
    // of cookie.
    assert_eq!(answer[13..28], [3, 0, 0, 35, 0, 0, 0, 0, 0, 0, 0, 35, 0xFE, 0xFF, 32]);
    assert_eq!(len, 60);
}

#[test]
fn anything_but_one_whole_hello_is_dropped() {
    let hello = hello();
    let mut answer = [0; ANSWER_MAX];
    let mut dropped = |datagram: &[u8]| match take(datagram, &mut answer) {
        HelloOutcome::Dropped(why) => Some(why),
        HelloOutcome::LaterPiece(_) => Some(HelloError::Piece),
        HelloOutcome::Answer(..) | HelloOutcome::Verified(_) | HelloOutcome::VerifiedPiece(_) => {
            None
        }
    };
    assert_eq!(dropped(&hello), None);
    let changed = |at: usize, to: u8| {
        let mut changed = hello.clone();
        changed[at] = to;
        changed
    };
    assert_eq!(dropped(&changed(0, 23)), Some(HelloError::Other), "data");
    assert_eq!(dropped(&changed(4, 1)), Some(HelloError::Other), "encrypted");
    assert_eq!(dropped(&changed(13, 2)), Some(HelloError::Other), "a server's");
    assert_eq!(dropped(&changed(14, 9)), Some(HelloError::Piece), "declared to have 590 000 bytes");
    assert_eq!(dropped(&changed(21, 1)), Some(HelloError::Malformed), "beyond its end");
    assert_eq!(dropped(&changed(18, 99)), Some(HelloError::Malformed), "the hundredth message");
    assert_eq!(dropped(&[&hello[..], &hello].concat()), Some(HelloError::Malformed), "two");
    assert_eq!(dropped(&hello[..40]), Some(HelloError::Other), "cut off");
    // The session id cannot have 33 bytes.
    assert_eq!(dropped(&changed(59, 33)), Some(HelloError::Malformed));
    // A first fragment of a giant message, of which a server might store 35 bytes for a minute.
    let mut giant = vec![22, 0xFE, 0xFF, 0, 0, 0, 0, 0, 0, 0, 0, 0, 22];
    giant.extend([1, 9, 0xEB, 0x10, 0, 0, 0, 0, 0, 0, 0, 10]);
    giant.extend([0; 10]);
    assert_eq!(dropped(&giant), Some(HelloError::Piece));
}

proptest! {
    /// No input causes a panic, and no answer is longer than its request.
    #[test]
    fn any_bytes_are_answered_by_less(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let mut answer = [0; ANSWER_MAX];
        if let HelloOutcome::Answer(len, _) = take(&bytes, &mut answer) {
            prop_assert!(len <= bytes.len());
        }
    }

    /// Answers are shorter than hellos with some changed bytes, too.
    #[test]
    fn damaged_hellos_are_answered_by_less(
        changes in proptest::collection::vec((0_usize..200, any::<u8>()), 1..8),
        cut in 0_usize..400,
    ) {
        let mut bytes = hello();
        for (at, to) in changes {
            if let Some(byte) = bytes.get_mut(at) {
                *byte = to;
            }
        }
        bytes.truncate(cut.max(60));
        let mut answer = [0; ANSWER_MAX];
        match take(&bytes, &mut answer) {
            HelloOutcome::Answer(len, _) => prop_assert!(len <= bytes.len()),
            HelloOutcome::Verified(_) | HelloOutcome::VerifiedPiece(_) => {
                prop_assert!(false, "without a cookie");
            }
            HelloOutcome::Dropped(_) | HelloOutcome::LaterPiece(_) => {}
        }
    }

    /// Hellos with cookies of any length are read.
    #[test]
    fn cookies_of_any_length_are_read(cookie in proptest::collection::vec(any::<u8>(), 0..=255)) {
        let plain = hello();
        let session = usize::from(plain[59]);
        let at = 60 + session;
        let mut bytes = [&plain[..at], &[cookie.len() as u8], &cookie, &plain[at + 1..]].concat();
        let len = bytes.len();
        bytes[11..13].copy_from_slice(&((len - 13) as u16).to_be_bytes());
        for at in [14, 22] {
            bytes[at..at + 3].copy_from_slice(&((len - 25) as u32).to_be_bytes()[1..]);
        }
        let hello = Hello::read(&bytes).unwrap();
        prop_assert_eq!(hello.random(), &plain[27..59]);
        prop_assert_eq!(hello.len(), len);
    }
}
