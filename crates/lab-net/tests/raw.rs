//! Datagrams with forged sources, and the answers to them.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};

use lab_net::RawUdpSocket;
use test_support::eventually;

#[test]
fn a_forged_source_is_seen_and_its_answer_received() {
    let raw = match RawUdpSocket::open(Ipv4Addr::LOCALHOST) {
        Ok(raw) => raw,
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            return test_support::skip("raw sockets want CAP_NET_RAW");
        }
        Err(error) => panic!("{error}"),
    };
    let server = UdpSocket::bind("127.0.0.1:0").unwrap();
    let SocketAddr::V4(to) = server.local_addr().unwrap() else { panic!("not IPv4") };
    let forged = SocketAddrV4::new(Ipv4Addr::new(127, 9, 8, 7), 4321);
    raw.send(forged, to, b"forged").unwrap();
    let mut buffer = [0; 100];
    let (len, from) = server.recv_from(&mut buffer).unwrap();
    assert_eq!((&buffer[..len], from), (&b"forged"[..], forged.into()));
    server.send_to(b"an answer", forged).unwrap();
    // The copy of the forged datagram is filtered out. Other tests of this host may use the
    // server's address, and other ports.
    let mut heard = None;
    eventually("the answer arrives", || {
        heard = raw.recv().unwrap().filter(|heard| heard.from == to).or(heard);
        heard.is_some()
    });
    assert_eq!(heard.map(|heard| (heard.to, heard.len)), Some((forged, 9)));
}
