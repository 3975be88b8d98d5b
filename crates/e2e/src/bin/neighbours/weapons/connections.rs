//! Connections with incomplete messages.

use std::collections::VecDeque;
use std::io::Write as _;
use std::net::TcpStream;

use super::Attack;
use super::hello::first_flight;
use crate::link::{Protocol, tcp_begun};

/// Connections per second to the TURN port, and to each port of HTTP.
const TLS: u32 = 700;
const HTTP: u32 = 100;

/// Open connections to the TURN port, and to each port of HTTP: more than the server takes.
const TLS_OPEN: usize = 5000;
const HTTP_OPEN: usize = 400;

/// A new connection receives its bytes after some others: the TCP handshake is complete then.
const DELAY: usize = 10;

/// Starts TLS sessions. Half of them stop within the ClientHello, the others after it.
pub(crate) fn tls_hellos(mut attack: Attack) {
    let hello = first_flight(Protocol::Tls);
    let mut open = VecDeque::new();
    attack.repeat(TLS, |attack| {
        let whole = attack.noise.next().is_multiple_of(2);
        let from = attack.attacker.address(&mut attack.noise);
        open.extend(tcp_begun(from, attack.places.turn(from)));
        let len = if whole { hello.len() } else { hello.len() / 2 };
        write_to_recent(&open, &hello[..len]);
        while open.len() > TLS_OPEN {
            open.pop_front();
        }
    });
}

/// Connects to the monitoring and to the interface for operators, and stops within a request.
pub(crate) fn http(mut attack: Attack) {
    let hello = first_flight(Protocol::Tls);
    let [mut monitoring, mut operators] = [VecDeque::new(), VecDeque::new()];
    attack.repeat(HTTP, |attack| {
        let from = attack.attacker.address(&mut attack.noise);
        monitoring.extend(tcp_begun(from, attack.places.http(from)));
        write_to_recent(&monitoring, b"GET /healthz HTT");
        operators.extend(tcp_begun(from, attack.places.api(from)));
        write_to_recent(&operators, &hello[..hello.len() / 2]);
        for open in [&mut monitoring, &mut operators] {
            while open.len() > HTTP_OPEN {
                open.pop_front();
            }
        }
    });
}

fn write_to_recent(open: &VecDeque<TcpStream>, bytes: &[u8]) {
    let recent = open.len().checked_sub(DELAY).and_then(|index| open.get(index));
    // The server may have closed it.
    let _ = recent.map(|mut stream| stream.write(bytes));
}
