//! ClientHellos of TLS and DTLS, made by OpenSSL.

use std::io::{self, Read, Write};

use openssl::ssl::SslStream;

use crate::link::Protocol;
use crate::stun::Noise;

/// Length of the header of a DTLS record, and of a handshake message in it (RFC 6347 §4).
const RECORD: usize = 13;
const HANDSHAKE: usize = 12;

/// Position of the random bytes in a datagram with a ClientHello, and their length.
const RANDOM: usize = RECORD + HANDSHAKE + 2;
const RANDOM_LEN: usize = 32;

/// The bytes that OpenSSL writes first.
struct FirstFlight(Vec<u8>);

impl Read for FirstFlight {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        Err(io::ErrorKind::WouldBlock.into())
    }
}

impl Write for FirstFlight {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The first flight of a client.
pub(crate) fn first_flight(protocol: Protocol) -> Vec<u8> {
    let mut stream = SslStream::new(protocol.client(), FirstFlight(Vec::new())).expect("OpenSSL");
    let _waits_for_the_server = stream.do_handshake();
    stream.get_ref().0.clone()
}

/// Replaces the random bytes of a DTLS ClientHello.
pub(crate) fn randomise(hello: &mut [u8], noise: &mut Noise) {
    for chunk in hello[RANDOM..RANDOM + RANDOM_LEN].chunks_mut(8) {
        chunk.copy_from_slice(&noise.next().to_be_bytes());
    }
}

/// The ClientHello with the cookie of a HelloVerifyRequest; `None` for another datagram.
pub(crate) fn with_cookie(hello: &[u8], answer: &[u8]) -> Option<Vec<u8>> {
    const HELLO_VERIFY_REQUEST: u8 = 3;
    let at = RECORD + HANDSHAKE + 2;
    if *answer.get(RECORD)? != HELLO_VERIFY_REQUEST {
        return None;
    }
    let len = usize::from(*answer.get(at)?);
    let cookie = answer.get(at..=at + len)?;
    let session = usize::from(*hello.get(RANDOM + RANDOM_LEN)?);
    let cookie_at = RANDOM + RANDOM_LEN + 1 + session;
    let mut out = [&hello[..cookie_at], cookie, &hello[cookie_at + 1..]].concat();
    let body = (out.len() - RECORD - HANDSHAKE) as u32;
    let length = body.to_be_bytes();
    out[10] = 1; // The second record
    out[RECORD - 2..RECORD].copy_from_slice(&((body as usize + HANDSHAKE) as u16).to_be_bytes());
    out[RECORD + 1..RECORD + 4].copy_from_slice(&length[1..]);
    out[RECORD + 5] = 1; // and message.
    out[RECORD + 9..RECORD + 12].copy_from_slice(&length[1..]);
    Some(out)
}
