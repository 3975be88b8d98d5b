//! `relay.external = "auto"`: the public address by a STUN server, at the start and when it changes.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use e2e::{Config, Host, Lab, Server, require};
use stun_wire::{AttributeType, Class, Message, MessageBuilder, Method};

const PATIENCE: Duration = Duration::from_secs(60);

/// A STUN server in the client's host, which tells everyone the address in `told`; with none it is silent.
fn stun_server(lab: &Lab, told: Arc<Mutex<Option<IpAddr>>>) -> SocketAddr {
    let socket = lab.socket(Host::Client, (lab.v4.client, 3478));
    socket.set_read_timeout(None).expect("a timeout");
    let at = socket.local_addr().expect("an address");
    std::thread::spawn(move || {
        let mut bytes = [0; 600];
        while let Ok((len, from)) = socket.recv_from(&mut bytes) {
            let Ok(message) = Message::parse(&bytes[..len]) else { continue };
            let Some(ip) = *told.lock().expect("a lock") else { continue };
            let mut answer = [0; 128];
            let id = message.transaction_id();
            let mut builder = MessageBuilder::new(&mut answer, Class::Success, Method::BINDING, id);
            builder
                .xor_address(AttributeType::XOR_MAPPED_ADDRESS, SocketAddr::new(ip, from.port()));
            let len = builder.finish().unwrap_or_default();
            drop(socket.send_to(&answer[..len], from));
        }
    });
    at
}

#[test]
fn the_public_address_is_found_and_followed() {
    let Some(lab) = require(Lab::new()) else { return };
    let public = |last: &str| Some(format!("198.51.100.{last}").parse().expect("an address"));
    let told = Arc::new(Mutex::new(None));
    let at = stun_server(&lab, Arc::clone(&told));
    let mut config = Config::for_lab(&lab);
    config.listen = vec![format!("{}:3478", lab.v4.listen)];
    config.relay = vec![lab.v4.listen];
    config.relay_keys = format!("external = \"auto\"\nexternal_stun = [\"{at}\"]");
    // Silent at first: the server waits.
    let later = Arc::clone(&told);
    let starts = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_secs(2));
        *later.lock().expect("a lock") = public("7");
    });
    let server = Server::start(&lab, &config);
    starts.join().expect("it was told");
    let relay = || server.json(&["status"])["relay"][0]["public"].clone();
    assert_eq!(relay(), "198.51.100.7");
    // Another address, at a change of the host.
    *told.lock().expect("a lock") = public("8");
    let device = Lab::end_towards(Host::Client);
    lab.run(Host::Server, "ip", &["addr", "add", "10.77.1.99/32", "dev", &device]);
    let begun = Instant::now();
    while relay() != "198.51.100.8" {
        assert!(begun.elapsed() < 2 * PATIENCE, "{}", server.process.output());
        std::thread::sleep(Duration::from_millis(200));
    }
    let uri = format!("turn:{}", lab.v4.listen);
    let login = ["--username", "alice", "--password", "correct-horse-battery"];
    let report = server.json(&[&["probe", &uri], &login[..]].concat());
    assert!(report.to_string().contains("198.51.100.8:"), "new allocations have it: {report:#}");
    // Silence changes nothing.
    *told.lock().expect("a lock") = None;
    lab.run(Host::Server, "ip", &["addr", "del", "10.77.1.99/32", "dev", &device]);
    let begun = Instant::now();
    while !server.process.output().contains("its last public address stays in force") {
        assert!(begun.elapsed() < 2 * PATIENCE, "{}", server.process.output());
        std::thread::sleep(Duration::from_millis(200));
    }
    assert_eq!(relay(), "198.51.100.8");
}
