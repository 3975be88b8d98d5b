//! Stateless answers to first messages of unknown clients (RFC 6347 §4.2.1).

use std::time::Duration;

use super::cookie::{COOKIE_LEN, Cookies};
use super::hello::{Fields, Hello, HelloError, are_first};
use super::pieces::HelloPiece;
use super::record::{ALERT, DTLS_1_0, DTLS_1_2, FATAL, HANDSHAKE, HANDSHAKE_HEADER, RECORD_HEADER};
use crate::AddressPair;

/// Maximum length of an answer in bytes: a HelloVerifyRequest.
pub const ANSWER_MAX: usize = RECORD_HEADER + HANDSHAKE_HEADER + 2 + 1 + COOKIE_LEN;

/// Length in bytes of the shortest ClientHello: no session, cookie or extension, one cipher suite,
/// one compression method.
#[cfg(test)]
const SHORTEST_HELLO: usize = RECORD_HEADER + HANDSHAKE_HEADER + 2 + 32 + 1 + 1 + 4 + 2;

const HELLO_VERIFY_REQUEST: u8 = 3;

/// Description of a fatal alert (RFC 5246 §7.2).
const PROTOCOL_VERSION: u8 = 70;

/// Stateless handler of first messages.
#[derive(Clone, Debug)]
pub struct CookieHandler {
    cookies: Cookies,
}

/// Outcome of a first message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HelloOutcome<'a> {
    /// Send this number of bytes of the answer.
    Answer(usize, Answer),
    /// The cookie is valid: the client receives at its address, and the handshake may start.
    Verified(Hello<'a>),
    /// First fragment with a valid cookie: the address of the client is verified.
    VerifiedPiece(HelloPiece<'a>),
    /// Fragment after the first, to be added to a verified first fragment.
    LaterPiece(HelloPiece<'a>),
    /// The datagram gets no answer.
    Dropped(HelloError),
}

/// Kind of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// HelloVerifyRequest: the client repeats the hello with a cookie.
    Cookie,
    /// Alert: the client supports only versions that are too old.
    Version,
}

impl CookieHandler {
    /// Creates a handler that uses these cookies.
    #[must_use]
    pub const fn new(cookies: Cookies) -> Self {
        Self { cookies }
    }

    /// Handles a datagram of a client without a DTLS session. `since` is the time since a fixed
    /// moment. The answer is never longer than the datagram.
    pub fn take<'a>(
        &self,
        datagram: &'a [u8],
        ends: AddressPair,
        since: Duration,
        answer: &mut [u8; ANSWER_MAX],
    ) -> HelloOutcome<'a> {
        let beginning = match Hello::read(datagram) {
            Ok(hello) => Ok((Beginning::of(&hello), HelloOutcome::Verified(hello))),
            Err(HelloError::Piece) => read_piece(datagram),
            Err(why) => Err(HelloOutcome::Dropped(why)),
        };
        let (beginning, verified) = match beginning {
            Ok(both) => both,
            Err(outcome) => return outcome,
        };
        // Newer versions have lower numbers.
        if beginning.version > DTLS_1_2 {
            return HelloOutcome::Answer(refuse_version(&beginning, answer), Answer::Version);
        }
        if self.cookies.verify(ends, beginning.random, beginning.cookie, since) {
            return verified;
        }
        let cookie = self.cookies.make(ends, beginning.random, since);
        HelloOutcome::Answer(ask_again(&beginning, &cookie, answer), Answer::Cookie)
    }
}

/// First fields of a hello, up to the cookie.
struct Beginning<'a> {
    record: u64,
    message: u16,
    version: u16,
    random: &'a [u8; 32],
    cookie: &'a [u8],
}

impl<'a> Beginning<'a> {
    const fn of(hello: &Hello<'a>) -> Self {
        let Hello { record, message, version, random, cookie, .. } = *hello;
        Self { record, message, version, random, cookie }
    }
}

/// Parses a first fragment, and returns the outcome for a valid cookie.
///
/// # Errors
/// Returns the outcome of a datagram that is not a valid first fragment.
fn read_piece(datagram: &[u8]) -> Result<(Beginning<'_>, HelloOutcome<'_>), HelloOutcome<'_>> {
    let first = HelloPiece::read(datagram).map_err(HelloOutcome::Dropped)?;
    if !first.is_first() {
        return Err(HelloOutcome::LaterPiece(first));
    }
    let (record, message) = (first.record, first.piece.message);
    // An answer must not be longer than the datagram.
    let is_long = datagram.len() >= ANSWER_MAX;
    let fields = Fields::read_beginning(first.piece.body).filter(|_| is_long);
    let Some((Fields { version, random, cookie, .. }, _)) = fields else {
        return Err(HelloOutcome::Dropped(HelloError::Piece));
    };
    if !are_first(record, message) {
        return Err(HelloOutcome::Dropped(HelloError::Malformed));
    }
    let beginning = Beginning { record, message, version, random, cookie };
    Ok((beginning, HelloOutcome::VerifiedPiece(first)))
}

/// Writes a HelloVerifyRequest, and returns the length in bytes. Record and message numbers are
/// those of the hello (RFC 6347 §4.2.1). A hello sent after another one has higher numbers.
fn ask_again(
    hello: &Beginning<'_>,
    cookie: &[u8; COOKIE_LEN],
    answer: &mut [u8; ANSWER_MAX],
) -> usize {
    const MESSAGE: [u8; 3] = [0, 0, (2 + 1 + COOKIE_LEN) as u8];
    let [n0, n1] = hello.message.to_be_bytes();
    let [l0, l1, l2] = MESSAGE;
    let handshake = [HELLO_VERIFY_REQUEST, l0, l1, l2, n0, n1, 0, 0, 0, l0, l1, l2];
    let [v0, v1] = DTLS_1_0.to_be_bytes();
    let fixed = [v0, v1, COOKIE_LEN as u8];
    write(hello, HANDSHAKE, [&handshake, &fixed, cookie], answer)
}

fn refuse_version(hello: &Beginning<'_>, answer: &mut [u8; ANSWER_MAX]) -> usize {
    write(hello, ALERT, [&[FATAL, PROTOCOL_VERSION], &[], &[]], answer)
}

/// Writes a record with the record number of the hello, and returns the length in bytes.
fn write(
    hello: &Beginning<'_>,
    content: u8,
    parts: [&[u8]; 3],
    answer: &mut [u8; ANSWER_MAX],
) -> usize {
    let len: usize = parts.iter().map(|part| part.len()).sum();
    let (header, mut rest) = answer.split_at_mut(RECORD_HEADER);
    header[0] = content;
    header[1..3].copy_from_slice(&DTLS_1_0.to_be_bytes());
    // Epoch 0: the upper two bytes of the number are zero.
    header[3..11].copy_from_slice(&hello.record.to_be_bytes());
    header[11..].copy_from_slice(&(len as u16).to_be_bytes());
    for part in parts {
        let (here, behind) = rest.split_at_mut(part.len());
        here.copy_from_slice(part);
        rest = behind;
    }
    RECORD_HEADER + len
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_answer_is_longer_than_the_shortest_question() {
        const { assert!(ANSWER_MAX <= SHORTEST_HELLO) };
    }
}
