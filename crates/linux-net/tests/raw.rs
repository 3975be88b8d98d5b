//! Datagrams from addresses that are not the sender's.

mod support;

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

use linux_net::RawUdpSocket;
use support::{V4, bind, flow, receive, send, wait};

#[test]
fn a_forged_source_is_seen_and_its_answer_heard() {
    let raw = match RawUdpSocket::open(Ipv4Addr::LOCALHOST) {
        Ok(raw) => raw,
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            return test_support::skip("raw sockets want CAP_NET_RAW");
        }
        Err(error) => panic!("{error}"),
    };
    let server = bind(V4);
    let SocketAddr::V4(to) = server.local_addr() else { panic!("not IPv4") };
    let from = SocketAddrV4::new(Ipv4Addr::new(127, 9, 8, 7), 4321);
    raw.send(from, to, b"forged").unwrap();
    wait(&server);
    let received = receive(&server, 1);
    assert_eq!(
        (received[0].from, received[0].segments[0].as_slice()),
        (from.into(), &b"forged"[..])
    );
    // The copy of our own is not heard: it is not from the server's address.
    send(&server, flow(from.into()), &[b"an answer"]);
    let heard = loop {
        wait(&raw);
        // Other tests of this host may use the server's address, and other ports.
        if let Some(heard) = raw.recv().unwrap()
            && heard.from == to
        {
            break heard;
        }
    };
    assert_eq!((heard.to, heard.len), (from, 9));
}
