//! DTLS session from the first message to the close. OpenSSL performs the handshake. A record layer
//! with little memory follows, and can move to another process.

use super::engine::{DtlsEnd, DtlsEngine, Exchange, NotSent, Refused};
use super::handshake::{Handshake, Progress};
use super::record::changes_keys;
use super::session::Session;
use super::state::DtlsState;

/// The server's side of a session.
#[derive(Debug)]
pub(super) enum Association {
    Handshake(Box<Handshake>),
    Established(Box<Session>),
}

/// Resumes a session of another process. Returns `None` if the state is invalid. No other process
/// may use the session's record numbers afterwards: see [`DtlsState`].
#[must_use]
pub fn resume(state: DtlsState) -> Option<Box<dyn DtlsEngine>> {
    let session = Session::resume(state)?;
    Some(Box::new(Association::Established(Box::new(session))))
}

impl Association {
    /// Continues a handshake. Frees OpenSSL's object after completion.
    fn shake_hands(&mut self, exchange: &mut Exchange) -> Result<(), DtlsEnd> {
        let Self::Handshake(handshake) = self else { return Ok(()) };
        let before = exchange.datagrams().count();
        match handshake.go_on(exchange)? {
            Progress::Waits => {}
            Progress::Established => {
                // The same call can have retransmitted the previous flight.
                let last_flight = exchange.datagrams().skip(before);
                let last_flight = last_flight.skip_while(|datagram| !changes_keys(datagram));
                let last_flight = last_flight.map(<[u8]>::to_vec).collect();
                let Some(session) = handshake.session(last_flight) else {
                    // The client must not regard the handshake as complete.
                    exchange.clear();
                    handshake.close(exchange);
                    return Err(DtlsEnd::Failed);
                };
                *self = Self::Established(Box::new(session));
            }
        }
        Ok(())
    }
}

impl DtlsEngine for Association {
    fn take(&mut self, datagram: &[u8], exchange: &mut Exchange) -> Result<(), Refused> {
        match self {
            Self::Handshake(handshake) => handshake.take(datagram, exchange),
            Self::Established(session) => session.take(datagram, exchange),
        }
    }

    fn read(&mut self, room: &mut [u8], exchange: &mut Exchange) -> Result<Option<usize>, DtlsEnd> {
        match self {
            Self::Handshake(_) => self.shake_hands(exchange).map(|()| None),
            Self::Established(session) => session.read(room, exchange),
        }
    }

    fn write(&mut self, plaintext: &[u8], exchange: &mut Exchange) -> Result<(), NotSent> {
        match self {
            Self::Handshake(_) => Err(NotSent),
            Self::Established(session) => session.write(plaintext, exchange),
        }
    }

    fn resend(&mut self, exchange: &mut Exchange) -> Result<(), DtlsEnd> {
        match self {
            Self::Handshake(_) => {
                // Without input, OpenSSL checks its retransmission timer.
                exchange.input.clear();
                self.shake_hands(exchange)
            }
            Self::Established(session) => session.ended(),
        }
    }

    fn close(&mut self, exchange: &mut Exchange) {
        match self {
            Self::Handshake(handshake) => handshake.close(exchange),
            Self::Established(session) => session.close(exchange),
        }
    }

    fn server_name(&self) -> Option<&str> {
        match self {
            Self::Handshake(handshake) => handshake.server_name(),
            Self::Established(session) => session.server_name(),
        }
    }

    fn is_established(&self) -> bool {
        matches!(self, Self::Established(_))
    }

    fn state(&self) -> Option<DtlsState> {
        match self {
            Self::Handshake(_) => None,
            Self::Established(session) => session.state(),
        }
    }
}
