//! A DTLS session by OpenSSL.
//!
//! OpenSSL counts the messages of a handshake from its own HelloVerifyRequest on. The cookie
//! handler has sent that message instead, without state: so OpenSSL first gets the hello without a
//! cookie, its answer is discarded, and then its counts match the client's.

use std::io::{self, Read, Write};
use std::mem;

use ::openssl::error::ErrorStack;
use ::openssl::ssl::{Error, ErrorCode, NameType, Ssl, SslContext, SslStream};

use super::PLAINTEXT_MAX;
use super::engine::{DtlsEnd, DtlsEngine, Exchange, NotSent, Refused};
use super::hello::Hello;
use super::record::{RECORD_HEADER, renumber};
use super::record_filter::RecordFilter;

/// Longest datagram of a handshake: with the headers of IPv6 and UDP within the minimum MTU (RFC
/// 8200 §5).
const HANDSHAKE_DATAGRAM: u32 = 1200;

/// An operation that this build of OpenSSL cannot do.
#[derive(Clone, Debug, thiserror::Error)]
#[error("OpenSSL: {0}")]
pub struct DtlsError(#[from] ErrorStack);

/// The server's end of one session.
#[derive(Debug)]
pub(super) struct OpenSsl {
    /// Its exchange is empty but while OpenSSL is at work.
    stream: SslStream<Exchange>,
    guard: RecordFilter,
    /// Offset of the record numbers in the clear, so that they continue from the
    /// HelloVerifyRequest's.
    renumber_by: u64,
    ended: Option<DtlsEnd>,
}

impl OpenSsl {
    /// Starts a session in the state after the cookie handler's HelloVerifyRequest.
    pub(super) fn begin(context: &SslContext, hello: &Hello<'_>) -> Result<Self, DtlsError> {
        let mut ssl = Ssl::new(context)?;
        ssl.set_mtu(HANDSHAKE_DATAGRAM)?;
        ssl.set_accept_state();
        let mut stream = SslStream::new(ssl, Exchange::default())?;
        for back in (1..=hello.message).rev() {
            let mut said = Vec::new();
            hello.without_cookie(back, &mut said);
            stream.get_mut().input = said;
            // It waits for the next one.
            match stream.do_handshake() {
                Err(error) if error.code() == ErrorCode::WANT_READ => {}
                Ok(()) => return Err(ErrorStack::get().into()),
                Err(error) => return Err(failed(&error).into()),
            }
        }
        *stream.get_mut() = Exchange::default();
        // One record for each message before, on either side.
        let renumber_by = hello.record - u64::from(hello.message);
        Ok(Self { stream, guard: RecordFilter::default(), renumber_by, ended: None })
    }

    /// Has OpenSSL do something with an exchange.
    fn with<T>(
        &mut self,
        exchange: &mut Exchange,
        work: impl FnOnce(&mut SslStream<Exchange>) -> T,
    ) -> T {
        let before = exchange.ends.len();
        mem::swap(self.stream.get_mut(), exchange);
        let done = work(&mut self.stream);
        mem::swap(self.stream.get_mut(), exchange);
        let mut start = before.checked_sub(1).map_or(0, |last| exchange.ends[last]);
        for &end in &exchange.ends[before..] {
            renumber(&mut exchange.output[start..end], self.renumber_by);
            start = end;
        }
        done
    }

    fn end(&mut self, how: DtlsEnd) -> DtlsEnd {
        *self.ended.get_or_insert(how)
    }
}

impl DtlsEngine for OpenSsl {
    fn take(&mut self, datagram: &[u8], exchange: &mut Exchange) -> Result<(), Refused> {
        if self.ended.is_some() || !self.guard.admits(datagram, self.is_established()) {
            return Err(Refused);
        }
        exchange.input.clear();
        exchange.input.extend_from_slice(datagram);
        Ok(())
    }

    fn read(&mut self, room: &mut [u8], exchange: &mut Exchange) -> Result<Option<usize>, DtlsEnd> {
        if let Some(how) = self.ended {
            return Err(how);
        }
        let was_established = self.is_established();
        let read = self.with(exchange, |stream| stream.ssl_read(room));
        let is_established = self.is_established();
        let (code, closed) = match &read {
            _ if was_established && !is_established => return Err(self.end(DtlsEnd::Broken)),
            // An empty record is not an end; it may be data of a later version.
            Ok(len) => return Ok(Some(*len)),
            Err(error) => (error.code(), error.code() == ErrorCode::ZERO_RETURN),
        };
        match code {
            ErrorCode::WANT_READ | ErrorCode::WANT_WRITE => Ok(None),
            _ if closed => Err(self.end(DtlsEnd::ByClient)),
            _ if is_established => Err(self.end(DtlsEnd::Broken)),
            _ => Err(self.end(DtlsEnd::Failed)),
        }
    }

    fn write(&mut self, plaintext: &[u8], exchange: &mut Exchange) -> Result<(), NotSent> {
        let fits = !plaintext.is_empty() && plaintext.len() <= PLAINTEXT_MAX;
        if self.ended.is_some() || !self.is_established() || !fits {
            return Err(NotSent);
        }
        // It never blocks: the exchange takes all bytes.
        let written = self.with(exchange, |stream| stream.ssl_write(plaintext));
        written.map(|_| ()).map_err(|_| NotSent)
    }

    fn resend(&mut self, exchange: &mut Exchange) -> Result<(), DtlsEnd> {
        if let Some(how) = self.ended {
            return Err(how);
        }
        if self.is_established() {
            return Ok(());
        }
        // Without input, so that it checks its retransmission timer.
        exchange.input.clear();
        let went_on = self.with(exchange, SslStream::do_handshake);
        match went_on {
            Ok(()) => Ok(()),
            Err(error) if error.code() == ErrorCode::WANT_READ => Ok(()),
            Err(_) => Err(self.end(DtlsEnd::Failed)),
        }
    }

    fn close(&mut self, exchange: &mut Exchange) {
        if self.ended.is_none_or(|how| how == DtlsEnd::ByClient) && self.is_established() {
            // The answer is not awaited: the session is removed whether or not it arrives.
            let _said = self.with(exchange, SslStream::shutdown);
        }
        self.end(DtlsEnd::ByClient);
    }

    fn server_name(&self) -> Option<&str> {
        self.stream.ssl().servername(NameType::HOST_NAME)
    }

    fn is_established(&self) -> bool {
        self.stream.ssl().is_init_finished()
    }
}

/// OpenSSL's error stack.
fn failed(error: &Error) -> ErrorStack {
    error.ssl_error().cloned().unwrap_or_else(ErrorStack::get)
}

impl Read for Exchange {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        // A datagram is read as a whole; the excess of one longer than any record is useless.
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
        self.output.extend_from_slice(datagram);
        self.ends.push(self.output.len());
        Ok(datagram.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
