//! The first flight of DTLS: every answer is shorter than its request, and a hello that was
//! answered is accepted when it returns with its cookie.

use std::time::Duration;

use turn_session::AddressPair;
use turn_session::dtls::{
    ANSWER_MAX, Answer, CookieHandler, Cookies, HELLO_MAX, Hello, HelloOutcome, HelloPiece,
    PartialHello, begins_handshake, is_dtls,
};

/// Bytes of a HelloVerifyRequest before the cookie.
const BEFORE_COOKIE: usize = 28;

/// Offset of the session id's length in a hello; the cookie follows the session id.
const SESSION_AT: usize = 59;

/// A datagram of an unknown client.
pub fn first_flight(bytes: &[u8]) {
    let front = CookieHandler::new(Cookies::new(&[7; 32]));
    let address = |text: &str| text.parse().expect("an address");
    let ends =
        AddressPair { client: address("192.0.2.1:5000"), server: address("[2001:db8::1]:5349") };
    let since = Duration::from_secs(1000);
    let mut answer = [0; ANSWER_MAX];
    match front.take(bytes, ends, since, &mut answer) {
        HelloOutcome::Dropped(_) | HelloOutcome::LaterPiece(_) => {}
        HelloOutcome::Verified(_) | HelloOutcome::VerifiedPiece(_) => {
            panic!("nobody knows a cookie")
        }
        HelloOutcome::Answer(len, what) => {
            assert!(len <= bytes.len() && is_dtls(bytes) && begins_handshake(bytes));
            if what == Answer::Cookie {
                let again = with_cookie(bytes, &answer[BEFORE_COOKIE..len]);
                let taken = front.take(&again, ends, since, &mut answer);
                // A hello that exceeds the limit with its cookie is dropped.
                let let_in = matches!(taken, HelloOutcome::Verified(_) | HelloOutcome::Dropped(_));
                assert!(let_in, "{taken:?}");
            }
        }
    }
}

/// Fragments of hellos, each after its length in one byte. The hello stays within its limit and
/// contains the bytes of its fragments in their order.
pub fn hello_pieces(bytes: &[u8]) {
    let mut rest = bytes;
    let mut partial: Option<(PartialHello, usize)> = None;
    while let Some((len, behind)) = rest.split_first() {
        let (datagram, behind) = behind.split_at(usize::from(*len).min(behind.len()));
        rest = behind;
        let Ok(piece) = HelloPiece::read(datagram) else { continue };
        match &mut partial {
            Some((hello, sum)) if !piece.is_first() => *sum += usize::from(hello.add(&piece)),
            _ => partial = Some((PartialHello::begin(&piece), 1)),
        }
        let Some((hello, pieces)) = &partial else { continue };
        let Some(whole) = hello.whole() else { continue };
        assert!(whole.len() <= HELLO_MAX && *pieces <= 24 && begins_handshake(whole));
        // The message has the length that its header names, or is no hello at all.
        let _hello = Hello::read(whole);
        assert!(HelloPiece::read(whole).is_ok(), "a hello with one fragment");
    }
}

/// The same hello, with another cookie.
fn with_cookie(hello: &[u8], cookie: &[u8]) -> Vec<u8> {
    let at = SESSION_AT + 1 + usize::from(hello[SESSION_AT]);
    let behind = at + 1 + usize::from(hello[at]);
    let cookie = [&[cookie.len() as u8], cookie].concat();
    let mut again = [&hello[..at], &cookie, &hello[behind..]].concat();
    let len = again.len() as u32;
    again[11..13].copy_from_slice(&(len - 13).to_be_bytes()[2..]);
    for at in [14, 22] {
        again[at..at + 3].copy_from_slice(&(len - 25).to_be_bytes()[1..]);
    }
    again
}
