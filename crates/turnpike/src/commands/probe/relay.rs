//! Relay test: an allocation, a permission, and the echo of a peer in this process.

use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use linux_net::random_bytes;
use turn_types::IpFamily;

use super::link::{receive_datagram, udp_socket};
use super::nat::binding;
use super::own_host::OwnHost;
use super::report::{Report, Step};
use super::session::Session;
use crate::uri::Uri;

/// Maximum number of attempts in each direction, since UDP loses packets.
const TRIES: u32 = 3;
const ANSWER_WITHIN: Duration = Duration::from_secs(1);

/// Port of STUN over UDP if the URI has another transport.
const STUN_PORT: u16 = 3478;

/// Server, and the address of this host as observed by the server.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen<'a> {
    pub(super) server: SocketAddr,
    /// Value of XOR-MAPPED-ADDRESS.
    pub(super) mapped: SocketAddr,
    pub(super) here: &'a OwnHost,
}

/// Refusal of an Allocate request.
#[derive(Debug)]
pub(super) struct NotAllocated {
    code: Option<u16>,
    why: String,
}

impl NotAllocated {
    /// Returns true if the server does not accept the credentials.
    pub(super) fn is_unauthorized(&self) -> bool {
        self.code == Some(401)
    }

    /// Returns the step for the report. `better` is a known cause with advice.
    pub(super) fn step(self, better: Option<(String, String)>) -> Step {
        let Self { code, why } = self;
        if let Some((cause, advice)) = better {
            return Step::failed(ALLOCATE, format!("{why}: {cause}")).advise(advice);
        }
        let advice = match code {
            Some(401) => "the name or the password is wrong, or the credential has run out",
            Some(403) => "the server's rules forbid it",
            Some(437) => {
                "the server is in the middle of another allocation of this address: try again"
            }
            Some(486) => "the user has as many allocations as the quota allows",
            Some(508) => {
                "the server has no port left, lacks its relay address, or is draining: see `turnpike status` there"
            }
            Some(300) => "probe that server instead",
            Some(_) | None => "see the server's log for the reason",
        };
        Step::failed(ALLOCATE, why).advise(advice)
    }
}

const ALLOCATE: &str = "allocate";

/// Allocates, and tests the relay.
pub(super) fn look(
    session: &mut Session,
    uri: &Uri,
    seen: Seen<'_>,
    report: &mut Report,
) -> Result<(), NotAllocated> {
    let (allocation, took) =
        session.allocate().map_err(|(code, why)| NotAllocated { code, why })?;
    let Some(relayed) = IpFamily::ALL.iter().find_map(|family| allocation.relayed_of(*family))
    else {
        let why = "the response has no relayed address".to_owned();
        return Err(NotAllocated { code: Some(0), why });
    };
    let what = format!("{} for {} s", relayed.0, allocation.lifetime.as_secs());
    report.add(Step::ok(ALLOCATE, what).took(took));
    let stun_port = if uri.secure { STUN_PORT } else { uri.port };
    let stun = SocketAddr::new(seen.server.ip(), stun_port);
    echo(session, Seen { server: stun, ..seen }, relayed.0, report);
    session.release();
    Ok(())
}

/// Sends a message through the relay to a socket of this process, and back.
fn echo(session: &mut Session, seen: Seen<'_>, relayed: SocketAddr, report: &mut Report) {
    // With address translation, the host may be unable to reach its public address.
    let relay = SocketAddr::new(seen.here.local(relayed.ip()), relayed.port());
    let (peer, address) = match peer(seen, relay) {
        Ok(peer) => peer,
        Err(why) => return report.add(Step::untested("permission", why)),
    };
    if let Err((code, why)) = session.permit(address) {
        report.add(match code {
            Some(403) if seen.here.has(seen.server.ip()) => Step::inconclusive(
                "permission",
                format!(
                    "{} is refused as a peer (403), as the server's own host should be",
                    address.ip()
                ),
            )
            .advise("relaying cannot be tested from the server's own host: probe from another one"),
            Some(403) => Step::inconclusive(
                "permission",
                format!("{} is refused as a peer (403)", address.ip()),
            )
            .advise(
                "the server's peer rules forbid this host's address, as they do for private \
                 networks: whether it relays cannot be seen from here. Probe from a host with \
                 a public address, or allow this one in peers.allow",
            ),
            Some(_) | None => {
                Step::failed("permission", why).advise("see the server's log for the reason")
            }
        });
        return;
    }
    report.add(Step::ok("permission", format!("for {}", address.ip())));
    report.add(match exchange(session, &peer, relay) {
        Ok(took) => Step::ok("echo", "there and back through the relay").took(took),
        Err(why) if seen.here.has(seen.server.ip()) => {
            Step::inconclusive("echo", format!("{why}, on the server's own host")).advise(
                "a NAT in front of it need not return packets to its public address: probe from \
                 another host before you look at the firewall",
            )
        }
        Err(why) => Step::failed("echo", why).advise(format!(
            "a firewall in front of the server may not let UDP in to its relay ports (such as {}), \
             or the relay address that it tells is not its own: see relay.ports and relay.external",
            relayed.port()
        )),
    });
}

/// Creates a peer's socket. Returns it with the address that the server will observe.
fn peer(seen: Seen<'_>, relayed: SocketAddr) -> Result<(UdpSocket, SocketAddr), String> {
    let Seen { server: stun, mapped, .. } = seen;
    if stun.is_ipv4() != relayed.is_ipv4() {
        return Err("the relayed address is of another family than the server's".to_owned());
    }
    let socket = udp_socket(relayed).map_err(|error| error.to_string())?;
    // If STUN over UDP is unavailable, the mapped address of the other transport is the most likely
    // address.
    let answer = binding(&socket, stun, None).ok().flatten();
    Ok((socket, answer.map_or(mapped, |answer| answer.mapped)))
}

/// Sends a message in each direction. The peer sends first, to open its NAT, and then echoes.
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
