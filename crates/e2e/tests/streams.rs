//! Slow and hostile connections against the real binary.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use e2e::{Config, Host, Lab, Server, require};

/// A Binding request.
const BINDING: [u8; 20] = [0, 1, 0, 0, 0x21, 0x12, 0xA4, 0x42, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1];

/// Whether the server answers a Binding request on this connection.
fn answers(stream: &mut TcpStream) -> bool {
    let mut answer = [0; 32];
    stream.write_all(&BINDING).is_ok() && stream.read_exact(&mut answer).is_ok() && answer[1] == 1
}

/// Whether the server has closed it.
fn is_closed(stream: &mut TcpStream) -> bool {
    stream.set_nonblocking(true).expect("non-blocking");
    let closed = !matches!(stream.read(&mut [0; 16]), Err(error) if error.kind() == std::io::ErrorKind::WouldBlock);
    stream.set_nonblocking(false).expect("blocking");
    closed
}

#[test]
fn connections_that_say_nothing_are_closed_and_others_stay() {
    // 8489-6.2.2-03, 8489-6.2.2-06
    const SLOW: usize = 500;
    let Some(lab) = require(Lab::new()) else { return };
    let config = Config::for_lab(&lab);
    let server = Server::start(&lab, &config);
    let listen = SocketAddr::new(lab.v4.listen, 3478);
    let connect = || {
        let stream = lab.connect(Host::Client, listen);
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
        stream
    };
    let mut steady = connect();
    assert!(answers(&mut steady));
    // Half of them say nothing, half a byte of a request now and then.
    let mut slow: Vec<TcpStream> = (0..SLOW).map(|_| connect()).collect();
    let begun = Instant::now();
    for byte in BINDING.iter().cycle() {
        let live = server.json(&["status"])["connections"]["live"].as_u64().expect("a number");
        assert!(answers(&mut steady), "one that speaks is served");
        if live == 1 {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(40), "{live} live");
        for stream in slow.iter_mut().step_by(2) {
            // It may be closed by now.
            let _ = stream.write(&[*byte]);
        }
        std::thread::sleep(Duration::from_secs(1));
    }
    assert!(slow.iter_mut().all(is_closed));
    let connections = server.json(&["status"])["connections"].take();
    assert_eq!(connections["ended"]["no_message"], SLOW, "{connections:#}");
    assert!(answers(&mut connect()), "new ones are served");
}
