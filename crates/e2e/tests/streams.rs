//! Slow and hostile connections against the real binary.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use e2e::{Certificates, Config, Host, Lab, Server, require};

/// A Binding request.
const BINDING: [u8; 20] = [0, 1, 0, 0, 0x21, 0x12, 0xA4, 0x42, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1];

/// True if the server answers a Binding request on this connection.
fn answers(stream: &mut TcpStream) -> bool {
    let mut answer = [0; 32];
    stream.write_all(&BINDING).is_ok() && stream.read_exact(&mut answer).is_ok() && answer[1] == 1
}

/// True if the server has closed the connection.
fn is_closed(stream: &mut TcpStream) -> bool {
    stream.set_nonblocking(true).expect("non-blocking");
    let closed = !matches!(stream.read(&mut [0; 16]), Err(error) if error.kind() == std::io::ErrorKind::WouldBlock);
    stream.set_nonblocking(false).expect("blocking");
    closed
}

#[test]
fn connections_that_say_nothing_are_closed_and_others_stay() {
    // 8489-6.2.2-03, 8489-6.2.2-06
    const SLOW: usize = 1000;
    let Some(lab) = require(Lab::new()) else { return };
    let certificates = Certificates::new(&lab);
    let mut config = Config::for_lab(&lab);
    config.tables = format!("[tcp]\nconnections_per_address = 2000\n{}", certificates.simple());
    let server = Server::start(&lab, &config);
    let listen = SocketAddr::new(lab.v4.listen, 3478);
    let connect = || {
        let stream = lab.connect(Host::Client, listen);
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
        stream
    };
    let mut steady = connect();
    assert!(answers(&mut steady));
    // A third of them say nothing, others a byte of a request or of a TLS handshake now and then.
    let mut slow: Vec<TcpStream> = (0..SLOW).map(|_| connect()).collect();
    let begun = Instant::now();
    for second in 0.. {
        let live = server.json(&["status"])["connections"]["live"].as_u64().expect("a number");
        assert!(answers(&mut steady), "one that speaks is served");
        if live == 1 {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "{live} live");
        for (index, stream) in slow.iter_mut().enumerate() {
            let said: &[u8] = match index % 3 {
                0 => continue,
                1 => &BINDING,
                _ => {
                    &[0x16, 3, 1, 2, 0, 1, 0, 1, 0xFC, 3, 3, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7]
                }
            };
            // It may be closed by now.
            let _ = stream.write(&said[second % said.len()..][..1]);
        }
        std::thread::sleep(Duration::from_secs(1));
    }
    assert!(slow.iter_mut().all(is_closed));
    let connections = server.json(&["status"])["connections"].take();
    assert_eq!(connections["ended"]["no_message"], SLOW, "{connections:#}");
    assert!(answers(&mut connect()), "new ones are served");
}
