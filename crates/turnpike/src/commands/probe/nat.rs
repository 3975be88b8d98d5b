//! Detection of the behaviour of address translation before this host, if the server supports it
//! (RFC 5780 §4).

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use linux_net::random_bytes;
use stun_wire::{
    AttributeType, ChangeRequest, Class, Message, MessageBuilder, Method, TransactionId, value,
};

use super::link::{receive_datagram, udp_socket};
use super::report::{Report, Step};

/// Waits after each transmission of a request. They are short, because silence is a regular result
/// here.
const WAITS: [Duration; 3] =
    [Duration::from_millis(300), Duration::from_millis(600), Duration::from_millis(1200)];

/// Contents of a Binding response.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bound {
    pub(crate) mapped: SocketAddr,
    /// Value of OTHER-ADDRESS.
    other: Option<SocketAddr>,
}

/// Tests the address translation, and reports its behaviour.
pub(crate) fn look(server: SocketAddr, report: &mut Report) {
    const NAME: &str = "nat";
    match (mapping(server), filtering(server)) {
        (Ok(Some(mapping)), Ok(Some(filtering))) => {
            report.add(Step::ok("mapping", mapping));
            report.add(Step::ok("filtering", filtering));
        }
        (Ok(_), Ok(_)) => report.add(
            Step::skipped(NAME, "the server has no second address to tell by (RFC 5780)")
                .advise("on Turnpike that is the section [discovery]"),
        ),
        (Err(error), _) | (_, Err(error)) => {
            report.add(Step::warning(NAME, format!("could not be looked at: {error}")));
        }
    }
}

/// Tests the mapping behaviour (RFC 5780 §4.3). Returns `None` if the server does not support the
/// test.
fn mapping(server: SocketAddr) -> io::Result<Option<String>> {
    let socket = udp_socket(server)?;
    let Some(first) = binding(&socket, server, None)? else { return Ok(None) };
    let Some(other) = first.other else { return Ok(None) };
    // Find the address that packets to the server leave from.
    let towards = udp_socket(server)?;
    towards.connect(server)?;
    let local = SocketAddr::new(towards.local_addr()?.ip(), socket.local_addr()?.port());
    if first.mapped == local {
        return Ok(Some("no NAT".to_owned()));
    }
    let Some(second) = binding(&socket, SocketAddr::new(other.ip(), server.port()), None)? else {
        return Ok(Some("unknown: the server's second address does not answer".to_owned()));
    };
    if second.mapped == first.mapped {
        return Ok(Some("endpoint-independent: peers can reach this host directly".to_owned()));
    }
    let third = binding(&socket, other, None)?;
    Ok(Some(match third {
        Some(third) if third.mapped == second.mapped => {
            "address-dependent: calls often need a relay".to_owned()
        }
        Some(_) => "address and port-dependent: calls often need a relay".to_owned(),
        None => "unknown: the server's second port does not answer".to_owned(),
    }))
}

/// Tests the filtering behaviour (RFC 5780 §4.4) with a new socket.
fn filtering(server: SocketAddr) -> io::Result<Option<String>> {
    let socket = udp_socket(server)?;
    let Some(first) = binding(&socket, server, None)? else { return Ok(None) };
    if first.other.is_none() {
        return Ok(None);
    }
    let asked =
        |change_ip| binding(&socket, server, Some(ChangeRequest { change_ip, change_port: true }));
    Ok(Some(
        match (asked(true)?, asked(false)?) {
            (Some(_), _) => "endpoint-independent: packets from any address pass",
            (None, Some(_)) => "address-dependent: addresses that were sent to are let in",
            (None, None) => "address and port-dependent: only who was sent to is let in",
        }
        .to_owned(),
    ))
}

/// Sends a Binding request. Returns `None` without a success response from any address.
///
/// # Errors
/// The socket cannot send or receive.
pub(crate) fn binding(
    socket: &UdpSocket,
    server: SocketAddr,
    change: Option<ChangeRequest>,
) -> io::Result<Option<Bound>> {
    let [seed]: [[u8; 32]; 1] = [random_bytes()];
    let mut id = TransactionId::default();
    id.0.copy_from_slice(&seed[..12]);
    let mut request = [0; 64];
    let mut builder = MessageBuilder::new(&mut request, Class::Request, Method::BINDING, id);
    if let Some(change) = change {
        builder.change_request(change);
    }
    let len = builder.finish().ok_or_else(|| io::Error::other("a request is too long"))?;
    for wait in WAITS {
        socket.send_to(&request[..len], server)?;
        let end = Instant::now() + wait;
        while let Some(left) = end.checked_duration_since(Instant::now()) {
            let Some((_, bytes)) = receive_datagram(socket, left)? else { break };
            if let Some(answer) = read(&bytes, id) {
                return Ok(answer);
            }
        }
    }
    Ok(None)
}

/// Parses a datagram. Returns `None` for a message other than the response, and `Some(None)` for an
/// error response.
fn read(bytes: &[u8], id: TransactionId) -> Option<Option<Bound>> {
    let message = Message::parse(bytes).ok().filter(|message| message.transaction_id() == id)?;
    match message.class() {
        Class::Success => {
            let mapped = message.first(AttributeType::XOR_MAPPED_ADDRESS)?;
            let mapped = value::xor_address(mapped, id).ok()?;
            let other = message.first(AttributeType::OTHER_ADDRESS);
            let other = other.and_then(|other| value::address(other).ok());
            Some(Some(Bound { mapped, other }))
        }
        Class::Error => Some(None),
        Class::Request | Class::Indication => None,
    }
}
