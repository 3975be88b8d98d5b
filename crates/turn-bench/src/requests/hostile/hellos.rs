//! DTLS ClientHellos that carry the server's cookie (RFC 6347 §4.2.1): each begins a handshake.

use std::io::{self, Read, Write};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use client_driver::{Link, begin_dtls};
use linux_net::{Clock, Epoll, Events, Interest, UdpSocket};

use super::datagrams::Datagrams;
use crate::session::dtls;

/// Handshakes prepared for each socket: the server sees that many different ones before the first
/// is repeated.
const PER_SOCKET: usize = 64;

/// Time to collect cookies: servers limit how many they give to one address.
const COLLECTING: Duration = Duration::from_secs(3);

/// Time for one answer.
const PATIENCE: Duration = Duration::from_millis(200);

/// Datagrams of a handshake, in memory.
#[derive(Default)]
struct Exchange {
    sent: Vec<u8>,
    received: Option<Vec<u8>>,
}

impl Read for Exchange {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let datagram = self.received.take().ok_or(io::ErrorKind::WouldBlock)?;
        let len = datagram.len().min(buffer.len());
        buffer[..len].copy_from_slice(&datagram[..len]);
        Ok(len)
    }
}

impl Write for Exchange {
    fn write(&mut self, datagram: &[u8]) -> io::Result<usize> {
        self.sent = datagram.to_vec();
        Ok(datagram.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Hellos for these sockets in turn, as many as the server gives cookies for.
pub(super) fn collect(links: &[Link]) -> Result<Datagrams> {
    let deadline = Clock::instant() + COLLECTING;
    let mut rounds = Vec::new();
    while rounds.len() < PER_SOCKET && Clock::instant() < deadline {
        let round: Vec<_> =
            links.iter().map(|link| hello(link.wire.udp()?)).collect::<Result<_>>()?;
        // The cookie depends on the address of the socket.
        match round.into_iter().collect::<Option<Vec<_>>>() {
            Some(round) => rounds.push(round),
            None => break,
        }
    }
    ensure!(!rounds.is_empty(), "the server answers no ClientHello with a cookie: is DTLS on?");
    Ok(Datagrams::of_list(rounds.concat()))
}

/// A ClientHello with the cookie that the server gave for it; `None` where it gave none.
fn hello(socket: &UdpSocket) -> Result<Option<Vec<u8>>> {
    let mut tls = begin_dtls(&dtls()?, Exchange::default())?;
    // It wants the answer.
    let _ = tls.do_handshake();
    if socket.send(&tls.get_ref().sent).is_err() {
        return Ok(None);
    }
    let Some(answer) = answer(socket)? else { return Ok(None) };
    let first = std::mem::take(&mut tls.get_mut().sent);
    tls.get_mut().received = Some(answer);
    let _ = tls.do_handshake();
    let second = std::mem::take(&mut tls.get_mut().sent);
    Ok((!second.is_empty() && second.len() > first.len()).then_some(second))
}

fn answer(socket: &UdpSocket) -> Result<Option<Vec<u8>>> {
    let epoll = Epoll::new().context("epoll")?;
    epoll.add(socket, 0, Interest::Read).context("epoll")?;
    epoll.wait(&mut Events::new(1), Some(PATIENCE)).context("epoll")?;
    let mut buffer = [0; 2048];
    Ok(socket.recv(&mut buffer)?.map(|len| buffer[..len].to_vec()))
}
