//! Handshake by OpenSSL, up to the session keys.
//!
//! OpenSSL counts the messages of a handshake from its own HelloVerifyRequest. Here the cookie
//! handler has sent that message, without state. OpenSSL therefore first receives the hello without
//! a cookie, and OpenSSL's answer is discarded. Its counts then match the client's.

use std::fmt;
use std::io::{self, Read, Write};
use std::mem;

use openssl::error::ErrorStack;
use openssl::ssl::{Error, ErrorCode, NameType, Ssl, SslContext, SslRef, SslStream};
use zeroize::Zeroizing;

use super::engine::{DtlsEnd, Exchange, Refused};
use super::hello::Hello;
use super::keys::{MASTER_SECRET, RANDOM, Suite, derive};
use super::protection::{EPOCH, reading_after};
use super::record::{ALERT, FATAL, RECORD_HEADER, renumber, take_record};
use super::record_filter::RecordFilter;
use super::session::Session;

/// Maximum length of a handshake datagram in bytes. With the headers of IPv6 and UDP, the packet
/// fits the minimum MTU (RFC 8200 §5).
const HANDSHAKE_DATAGRAM: u32 = 1200;

/// Error of an OpenSSL operation, for example one that this build does not support.
#[derive(Clone, Debug, thiserror::Error)]
#[error("OpenSSL: {0}")]
pub struct DtlsError(#[from] ErrorStack);

/// The server's side of a handshake.
pub(super) struct Handshake {
    /// OpenSSL with an exchange that is empty except during calls.
    stream: SslStream<Exchange>,
    filter: RecordFilter,
    /// Offset added to unencrypted record numbers, to continue after the HelloVerifyRequest's
    /// number.
    renumber_by: u64,
    /// Datagrams with encrypted records of the client. The session marks their numbers as received.
    early: Vec<Vec<u8>>,
    /// Record numbers after the last sent record: unencrypted, and encrypted.
    next: [u64; 2],
    ended: Option<DtlsEnd>,
}

/// Result of a handshake step.
pub(super) enum Progress {
    /// More datagrams of the client are required.
    Waits,
    /// The handshake is complete.
    Established,
}

impl Handshake {
    /// Starts in the state after the cookie handler's HelloVerifyRequest.
    pub(super) fn begin(context: &SslContext, hello: &Hello<'_>) -> Result<Self, DtlsError> {
        let mut ssl = Ssl::new(context)?;
        ssl.set_mtu(HANDSHAKE_DATAGRAM)?;
        ssl.set_accept_state();
        let mut stream = SslStream::new(ssl, Exchange::default())?;
        for back in (1..=hello.message).rev() {
            let mut said = Vec::new();
            hello.without_cookie(back, &mut said);
            stream.get_mut().input = said;
            // OpenSSL waits for the following hello.
            match stream.do_handshake() {
                Err(error) if error.code() == ErrorCode::WANT_READ => {}
                Ok(()) => return Err(ErrorStack::get().into()),
                Err(error) => return Err(failed(&error).into()),
            }
        }
        *stream.get_mut() = Exchange::default();
        Ok(Self {
            stream,
            filter: RecordFilter::default(),
            // Each earlier message used one record, in both directions.
            renumber_by: hello.record - u64::from(hello.message),
            early: Vec::new(),
            next: [hello.record + 1, 0],
            ended: None,
        })
    }

    /// Accepts a datagram of complete records.
    pub(super) fn take(&mut self, datagram: &[u8], exchange: &mut Exchange) -> Result<(), Refused> {
        if self.ended.is_some() || !self.filter.admits(datagram) {
            return Err(Refused);
        }
        let mut rest = datagram;
        while let Some((record, behind)) = take_record(rest) {
            if record.epoch == EPOCH {
                self.early.push(rest[..rest.len() - behind.len()].to_vec());
            }
            rest = behind;
        }
        exchange.accept(datagram);
        Ok(())
    }

    /// Processes the accepted datagram. Without a datagram, retransmits the last flight after a
    /// timeout (RFC 6347 §4.2.4).
    pub(super) fn go_on(&mut self, exchange: &mut Exchange) -> Result<Progress, DtlsEnd> {
        if let Some(how) = self.ended {
            return Err(how);
        }
        let before = exchange.ends.len();
        mem::swap(self.stream.get_mut(), exchange);
        let done = self.stream.do_handshake();
        mem::swap(self.stream.get_mut(), exchange);
        self.look_at_output(exchange, before);
        match done {
            Ok(()) => Ok(Progress::Established),
            Err(error) if error.code() == ErrorCode::WANT_READ => Ok(Progress::Waits),
            Err(error) if error.code() == ErrorCode::ZERO_RETURN => {
                Err(self.end(DtlsEnd::ByClient))
            }
            Err(_) => Err(self.end(DtlsEnd::Failed)),
        }
    }

    /// Renumbers unencrypted records of new datagrams, and stores the last numbers.
    fn look_at_output(&mut self, exchange: &mut Exchange, before: usize) {
        let mut start = before.checked_sub(1).map_or(0, |last| exchange.ends[last]);
        for &end in &exchange.ends[before..] {
            let datagram = &mut exchange.output[start..end];
            renumber(datagram, self.renumber_by);
            let mut rest = &*datagram;
            while let Some((record, behind)) = take_record(rest) {
                if let Some(next) = self.next.get_mut(usize::from(record.epoch)) {
                    *next = (*next).max(record.number + 1);
                }
                rest = behind;
            }
            start = end;
        }
    }

    /// Creates the session of a complete handshake. `last_flight` contains the last datagrams.
    /// Returns `None` if OpenSSL does not provide the secrets, or the suite is not supported.
    pub(super) fn session(&self, last_flight: Vec<Vec<u8>>) -> Option<Session> {
        let ssl = self.stream.ssl();
        let suite = Suite::of(ssl.current_cipher()?.standard_name()?)?;
        let mut master_secret = Zeroizing::new([0; MASTER_SECRET]);
        let len = ssl.session()?.master_key(&mut master_secret[..]);
        let [client_random, server_random] = randoms(ssl)?;
        let keys = derive(suite, &master_secret, &client_random, &server_random);
        let [client, server] = keys.filter(|_| len == MASTER_SECRET)?;
        // The Finished was encrypted, so at least one number is used.
        let next = Some(self.next[1]).filter(|next| *next > 0)?;
        let early = self.early.iter().filter_map(|record| Some(take_record(record)?.0));
        let reading = reading_after(client, early)?;
        let server_name = self.server_name().map(str::to_owned);
        Session::begin(reading, (server, next), server_name, last_flight)
    }

    /// Sends a fatal alert, unless the handshake has ended.
    pub(super) fn close(&mut self, exchange: &mut Exchange) {
        /// Description of an alert about a server-side cause (RFC 5246 §7.2.2).
        const INTERNAL_ERROR: u8 = 80;
        if self.ended.is_none() {
            let number = self.next[0].to_be_bytes();
            exchange.send(|out| {
                out.extend_from_slice(&[ALERT, 0xFE, 0xFD, 0, 0]);
                out.extend_from_slice(&number[2..]);
                out.extend_from_slice(&[0, 2, FATAL, INTERNAL_ERROR]);
            });
        }
        self.end(DtlsEnd::ByClient);
    }

    pub(super) fn server_name(&self) -> Option<&str> {
        self.stream.ssl().servername(NameType::HOST_NAME)
    }

    pub(super) fn end(&mut self, how: DtlsEnd) -> DtlsEnd {
        *self.ended.get_or_insert(how)
    }
}

/// Returns the client random and the server random.
fn randoms(ssl: &SslRef) -> Option<[[u8; RANDOM]; 2]> {
    let (mut client, mut server) = ([0; RANDOM], [0; RANDOM]);
    let lengths = (ssl.client_random(&mut client), ssl.server_random(&mut server));
    (lengths == (RANDOM, RANDOM)).then_some([client, server])
}

/// Returns OpenSSL's error stack.
fn failed(error: &Error) -> ErrorStack {
    error.ssl_error().cloned().unwrap_or_else(ErrorStack::get)
}

impl fmt::Debug for Handshake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handshake").field("ended", &self.ended).finish_non_exhaustive()
    }
}

impl Read for Exchange {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        // A single read consumes the datagram: bytes beyond the longest record are unusable.
        let len = self.input.len().min(room.len());
        if len < RECORD_HEADER {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        room[..len].copy_from_slice(&self.input[..len]);
        self.input.clear();
        Ok(len)
    }
}

impl Write for Exchange {
    fn write(&mut self, datagram: &[u8]) -> io::Result<usize> {
        self.send(|out| out.extend_from_slice(datagram));
        Ok(datagram.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
