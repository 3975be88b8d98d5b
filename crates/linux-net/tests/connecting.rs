//! Outgoing TCP connections.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Duration;

use linux_net::{
    ConnectOptions, Epoll, Events, Interest, ReadOutcome, TcpListener, TcpOptions, TcpStream,
};

const PATIENCE: Duration = Duration::from_secs(10);

fn listen() -> TcpListener {
    let second = Duration::from_secs(1);
    let options = TcpOptions {
        reuse_port: false,
        keepalive: second,
        unacknowledged: second,
        backlog: 8,
        device: None,
        free: false,
    };
    TcpListener::bind("127.0.0.1:0".parse().unwrap(), &options).unwrap()
}

/// Returns the event of the only descriptor as (readable, writable), or `None` without an event.
fn told(epoll: &Epoll, patience: Duration) -> Option<(bool, bool)> {
    let mut events = Events::new(1);
    epoll.wait(&mut events, Some(patience)).unwrap();
    events.iter().next().map(|event| (event.readable, event.writable))
}

#[test]
fn a_connection_is_made_without_waiting_and_carries_bytes() {
    let listener = listen();
    let local: SocketAddr = "127.0.0.2:0".parse().unwrap();
    let options = ConnectOptions { local: Some(local), send_buffer: 16_384, reset: true };
    let near = TcpStream::connect_to(listener.local_addr(), &options).unwrap();
    let epoll = Epoll::new().unwrap();
    epoll.add(&near, 1, Interest::Changes).unwrap();
    assert_eq!(told(&epoll, PATIENCE), Some((false, true)));
    assert_eq!(told(&epoll, Duration::ZERO), None, "each change is told once");
    let (far, from) = listener.accept().unwrap().unwrap();
    assert_eq!((from.ip(), from), (local.ip(), near.local_addr().unwrap()));

    let mut buffer = [0; 65_536];
    assert_eq!(far.write([b"ab", b"c"]).unwrap(), 3);
    assert_eq!(told(&epoll, PATIENCE).map(|(readable, _)| readable), Some(true));
    assert_eq!(near.read(&mut buffer).unwrap(), ReadOutcome::Read(3));

    // Writes until the send buffer is full, which is as small as requested. Readiness follows when
    // space is free.
    let mut sent = 0;
    while let taken @ 1.. = near.write([&buffer, &[]]).unwrap() {
        sent += taken;
    }
    while told(&epoll, Duration::ZERO).is_some() {}
    while sent > 0 {
        match far.read(&mut buffer).unwrap() {
            ReadOutcome::Read(len) => sent -= len,
            ReadOutcome::WouldBlock => std::thread::yield_now(),
            ReadOutcome::Ended => panic!("it ended"),
        }
    }
    assert_eq!(told(&epoll, PATIENCE), Some((false, true)));

    drop(near);
    let error = loop {
        match far.read(&mut buffer) {
            Ok(ReadOutcome::WouldBlock) => std::thread::yield_now(),
            Ok(other) => panic!("{other:?} instead of a reset"),
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

#[test]
fn a_refused_connection_is_reported() {
    let nobody = listen().local_addr();
    let refused = TcpStream::connect_to(nobody, &ConnectOptions::default()).and_then(|stream| {
        let epoll = Epoll::new()?;
        epoll.add(&stream, 1, Interest::Changes)?;
        told(&epoll, PATIENCE);
        stream.read(&mut [0; 1])
    });
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::ConnectionRefused);
}
