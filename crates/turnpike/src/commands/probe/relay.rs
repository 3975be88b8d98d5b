//! Test of the relay: an allocation, a permission, and the echo of a peer in this process.

use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use linux_net::random_bytes;
use turn_types::IpFamily;

use super::link::{receive_datagram, udp_socket};
use super::nat::binding;
use super::report::{Report, Step};
use super::session::Session;
use crate::uri::Uri;

/// Attempts in each direction, and the wait for an answer: UDP loses packets.
const TRIES: u32 = 3;
const ANSWER_WITHIN: Duration = Duration::from_secs(1);

/// Port of STUN over UDP when the URI has another transport.
const STUN_PORT: u16 = 3478;

/// A server, and this host as it sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    pub(crate) server: SocketAddr,
    /// XOR-MAPPED-ADDRESS.
    pub(crate) mapped: SocketAddr,
}

pub(crate) fn look(
    session: &mut Session,
    uri: &Uri,
    seen: Seen,
    report: &mut Report,
) -> Option<()> {
    let relayed = allocate(session, report)?;
    let stun_port = if uri.secure { STUN_PORT } else { uri.port };
    let stun = SocketAddr::new(seen.server.ip(), stun_port);
    let done = echo(session, Seen { server: stun, ..seen }, relayed, report);
    session.release();
    done
}

fn allocate(session: &mut Session, report: &mut Report) -> Option<SocketAddr> {
    const NAME: &str = "allocate";
    match session.allocate() {
        Ok((allocation, took)) => {
            let relayed = IpFamily::ALL.iter().find_map(|family| allocation.relayed_of(*family))?;
            let what = format!("{relayed} for {} s", allocation.lifetime.as_secs());
            report.add(Step::ok(NAME, what).took(took));
            Some(relayed.0)
        }
        Err((code, why)) => {
            let advice = match code {
                Some(401) => "the name or the password is wrong, or the credential has run out",
                Some(403) => "the server's rules forbid it",
                Some(437) => {
                    "the server is in the middle of another allocation of this address: try again"
                }
                Some(486) => "the user has as many allocations as the quota allows",
                Some(508) => {
                    "the server has no port left, or is draining: see `turnpike status` there"
                }
                Some(300) => "probe that server instead",
                Some(_) | None => "see the server's log for the reason",
            };
            report.add(Step::failed(NAME, why).advise(advice));
            None
        }
    }
}

/// A word through the relay to a socket of ours, and back.
fn echo(session: &mut Session, seen: Seen, relayed: SocketAddr, report: &mut Report) -> Option<()> {
    let (peer, address) = match peer(seen, relayed) {
        Ok(peer) => peer,
        Err(why) => {
            report.add(Step::skipped("permission", why));
            return Some(());
        }
    };
    if let Err((code, why)) = session.permit(address) {
        let step = if code == Some(403) {
            Step::warning("permission", format!("{} is refused as a peer (403)", address.ip()))
                .advise(
                    "the server's peer rules forbid this host's address, as they do for private \
                     networks: whether it relays cannot be seen from here. Probe from a host with \
                     a public address, or allow this one in peers.allow",
                )
        } else {
            Step::failed("permission", why).advise("see the server's log for the reason")
        };
        report.add(step);
        return Some(());
    }
    report.add(Step::ok("permission", format!("for {}", address.ip())));
    let step = match exchange(session, &peer, relayed) {
        Ok(took) => Step::ok("echo", "there and back through the relay").took(took),
        Err(why) => Step::failed("echo", why).advise(format!(
            "a firewall in front of the server may not let UDP in to its relay ports (such as {}), \
             or the relay address that it tells is not its own: see relay.ports and relay.external",
            relayed.port()
        )),
    };
    report.add(step);
    Some(())
}

/// A socket of ours and the address that the server will know it by.
fn peer(seen: Seen, relayed: SocketAddr) -> Result<(UdpSocket, SocketAddr), String> {
    let Seen { server: stun, mapped } = seen;
    if stun.is_ipv4() != relayed.is_ipv4() {
        return Err("the relayed address is of another family than the server's".to_owned());
    }
    let socket = udp_socket(relayed).map_err(|error| error.to_string())?;
    // Where STUN over UDP is not to be had, the address we come from over TCP is the likeliest.
    let answer = binding(&socket, stun, None).ok().flatten();
    Ok((socket, answer.map_or(mapped, |answer| answer.mapped)))
}

/// The peer sends first, which opens the NAT that it may be behind; then it echoes.
fn exchange(
    session: &mut Session,
    peer: &UdpSocket,
    relayed: SocketAddr,
) -> Result<Duration, String> {
    let [hello, question]: [[u8; 32]; 2] = [random_bytes(), random_bytes()];
    let io = |error: std::io::Error| error.to_string();
    let mut from = None;
    for _ in 0..TRIES {
        peer.send_to(&hello, relayed).map_err(io)?;
        from =
            session.hear(ANSWER_WITHIN)?.filter(|(_, data)| *data == hello).map(|(from, _)| from);
        if from.is_some() {
            break;
        }
    }
    let from = from.ok_or("nothing that a peer sends to the relayed address arrives")?;
    for _ in 0..TRIES {
        let start = Instant::now();
        session.say(from, &question)?;
        let heard = receive_datagram(peer, ANSWER_WITHIN).map_err(io)?;
        if heard.is_none_or(|(_, data)| data != question) {
            continue;
        }
        peer.send_to(&question, relayed).map_err(io)?;
        if session.hear(ANSWER_WITHIN)?.is_some_and(|(_, data)| data == question) {
            return Ok(start.elapsed());
        }
    }
    Err("nothing that is sent through the relay arrives at the peer and comes back".to_owned())
}
