//! Sockets from descriptors, as received from another process. Valid sockets work, and others are
//! refused.

use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Duration;

use test_support::eventually;

use crate::support;

use linux_net::{ReadOutcome, TcpListener, TcpOptions, TcpStream, UdpOptions, UdpSocket};

use crate::support::{V4, V6, bind, receive, wait};

const OPTIONS: TcpOptions = TcpOptions {
    reuse_port: false,
    keepalive: Duration::from_secs(60),
    unacknowledged: Duration::from_secs(60),
    backlog: 8,
    device: None,
    free: false,
};

/// Returns a copy of the descriptor, as another process receives it.
fn handed_over(socket: &impl std::os::fd::AsFd) -> OwnedFd {
    socket.as_fd().try_clone_to_owned().unwrap()
}

#[test]
fn a_udp_socket_goes_on_under_its_address_with_what_waits() {
    for address in [V4, V6] {
        let (before, client) = (bind(address), bind(address));
        let local = before.local_addr();
        support::send(&client, support::flow(local), &[b"waits"]);
        let after = UdpSocket::from_fd(handed_over(&before), &UdpOptions::default()).unwrap();
        drop(before);
        assert_eq!(after.local_addr(), local);
        assert_eq!(receive(&after, 1)[0].segments, [b"waits"]);
        // The socket keeps the options that were set before.
        support::send(&client, support::flow(local), &[b"waits"]);
        let last = UdpSocket::adopt(handed_over(&after), &UdpOptions::default()).unwrap();
        drop(after);
        assert_eq!((last.local_addr(), last.family()), (local, client.family()));
        let received = receive(&last, 1);
        assert_eq!((&received[0].segments[0], received[0].meta.ttl), (&b"waits".to_vec(), 64));
    }
    // A blocking socket of another program.
    let foreign = std::net::UdpSocket::bind(V4).unwrap();
    let socket = UdpSocket::from_fd(foreign.into(), &UdpOptions::default()).unwrap();
    let mut batch = linux_net::RxBatch::new(1);
    assert_eq!(batch.recv(&socket).unwrap(), 0, "it does not wait");
}

/// A program that treats a message as one datagram would relay several datagrams as one.
#[test]
fn merged_datagrams_that_wait_arrive_as_they_were_sent() {
    type Take = fn(OwnedFd, &UdpOptions) -> std::io::Result<UdpSocket>;
    for (address, take) in [
        (V4, UdpSocket::adopt as Take),
        (V6, UdpSocket::adopt),
        (V4, UdpSocket::from_fd),
        (V6, UdpSocket::from_fd),
    ] {
        let (before, client) = (bind(address), bind(address));
        before.merge(true);
        support::send(&client, support::flow(before.local_addr()), &[b"first", b"other"]);
        let options = UdpOptions { gro: false, ..UdpOptions::default() };
        let after = take(handed_over(&before), &options).unwrap();
        drop(before);
        let received = receive(&after, 2);
        let segments: Vec<_> = received.iter().flat_map(|message| &message.segments).collect();
        assert_eq!(segments, [b"first", b"other"]);
        assert!(after.cease_merging(), "nothing waits");
        support::send(&client, support::flow(after.local_addr()), &[b"third", b"fifth"]);
        assert_eq!(receive(&after, 2).len(), 2, "no longer merged");
    }
}

#[test]
fn a_listener_and_a_connection_go_on() {
    let before = std::net::TcpListener::bind(V4).unwrap();
    let local = before.local_addr().unwrap();
    let mut client = std::net::TcpStream::connect(local).unwrap();
    let listener = TcpListener::from_fd(before.into(), &OPTIONS).unwrap();
    assert_eq!(listener.local_addr(), local);
    wait(listener.as_fd());
    let (accepted, from) = listener.accept().unwrap().unwrap();
    assert_eq!(from, client.local_addr().unwrap());
    let stream = TcpStream::from_fd(handed_over(&accepted)).unwrap();
    drop(accepted);
    assert_eq!(stream.read(&mut [0; 8]).unwrap(), ReadOutcome::WouldBlock);
    assert_eq!(stream.write([b"a", b"b"]).unwrap(), 2);
    let mut bytes = [0; 2];
    client.read_exact(&mut bytes).unwrap();
    assert_eq!(&bytes, b"ab");
    client.write_all(b"c").unwrap();
}

/// The kernel removes the addresses of the closed connection.
#[test]
fn unread_bytes_of_a_closed_connection_are_read_by_the_next_process() {
    let listener = std::net::TcpListener::bind(V4).unwrap();
    let mut client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (accepted, _) = listener.accept().unwrap();
    // Shuts down both directions, starting with this side.
    accepted.shutdown(Shutdown::Write).unwrap();
    assert_eq!(client.read(&mut [0; 1]).unwrap(), 0);
    client.write_all(b"unread").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    eventually("it is closed", || accepted.peer_addr().is_err());
    let stream = TcpStream::from_fd(handed_over(&accepted)).unwrap();
    drop(accepted);
    let mut bytes = [0; 8];
    assert_eq!(stream.read(&mut bytes).unwrap(), ReadOutcome::Read(6));
    assert_eq!(&bytes[..6], b"unread");
    assert_eq!(stream.read(&mut bytes).unwrap(), ReadOutcome::Ended);
}

#[test]
fn each_kind_of_socket_takes_no_other() {
    let (udp, listener) = (bind(V4), std::net::TcpListener::bind(V4).unwrap());
    let stream = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    assert!(UdpSocket::from_fd(handed_over(&listener), &UdpOptions::default()).is_err());
    assert!(TcpListener::from_fd(handed_over(&udp), &OPTIONS).is_err());
    assert!(TcpListener::from_fd(handed_over(&stream), &OPTIONS).is_err());
    assert!(TcpStream::from_fd(handed_over(&udp)).is_err());
    assert!(TcpStream::from_fd(handed_over(&listener)).is_err());
}
