//! Connected UDP sockets.

use crate::support::{V4, V6, bind, closed_port, errors, wait};

#[test]
fn only_the_far_end_is_heard() {
    for like in [V4, V6] {
        let (mut client, mut server, mut stranger) = (bind(like), bind(like), bind(like));
        client.connect(server.local_addr()).unwrap();
        server.connect(client.local_addr()).unwrap();
        stranger.connect(client.local_addr()).unwrap();
        client.send(b"question").unwrap();
        wait(&server);
        let mut buffer = [0; 64];
        assert_eq!(server.recv(&mut buffer).unwrap(), Some(8));
        assert_eq!(&buffer[..8], b"question");
        stranger.send(b"forged").unwrap();
        server.send(b"answer").unwrap();
        wait(&client);
        assert_eq!(client.recv(&mut buffer).unwrap(), Some(6));
        assert_eq!(&buffer[..6], b"answer");
        assert_eq!(client.recv(&mut buffer).unwrap(), None);
    }
}

#[test]
fn connecting_selects_the_local_address() {
    let (mut client, server) = (bind("0.0.0.0:0"), bind(V4));
    let port = client.local_addr().port();
    client.connect(server.local_addr()).unwrap();
    assert_eq!(client.local_addr(), (server.local_addr().ip(), port).into());
}

#[test]
fn a_clone_is_the_same_socket() {
    let (mut client, server) = (bind(V4), bind(V4));
    client.connect(server.local_addr()).unwrap();
    let clone = client.try_clone().unwrap();
    assert_eq!(clone.local_addr(), client.local_addr());
    drop(client);
    clone.send(b"still here").unwrap();
    wait(&server);
    assert_eq!(server.recv(&mut [0; 64]).unwrap(), Some(10));
}

#[test]
fn a_closed_port_is_reported_by_the_error_queue_alone() {
    let mut client = bind(V4);
    let nobody = closed_port(V4);
    client.connect(nobody).unwrap();
    client.send(b"hello").unwrap();
    let told = errors(&client);
    assert_eq!(told.len(), 1);
    assert_eq!((told[0].peer, told[0].icmp.map(|icmp| icmp.code)), (nobody, Some(3)));
    client.send(b"again").unwrap();
    client.send(b"an error was left, and is swallowed").unwrap();
}
