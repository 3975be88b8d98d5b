//! `relay.external = "auto"`: the public address by a STUN server, at the start and when it
//! changes.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use e2e::{Config, Host, Lab, Server, require};
use stun_wire::{AttributeType, Class, Message, MessageBuilder, Method};

const PATIENCE: Duration = Duration::from_secs(60);

/// Requests at the start without an answer.
const UNANSWERED: u32 = 2;

/// A STUN server in the client's host, which tells each sender the address that `told` has for it.
fn stun_server_that_tells(
    lab: &Lab,
    told: impl Fn(IpAddr) -> Option<IpAddr> + Send + 'static,
) -> SocketAddr {
    let socket = lab.socket(Host::Client, (lab.v4.client, 3478));
    socket.set_read_timeout(None).expect("a timeout");
    let at = socket.local_addr().expect("an address");
    std::thread::spawn(move || {
        let mut bytes = [0; 600];
        while let Ok((len, from)) = socket.recv_from(&mut bytes) {
            let Ok(message) = Message::parse(&bytes[..len]) else { continue };
            let Some(ip) = told(from.ip()) else { continue };
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
    let told = Arc::new(Mutex::new(public("7")));
    // No answer at first: the server repeats its request.
    let (to_tell, asked) = (Arc::clone(&told), AtomicU32::new(0));
    let at = stun_server_that_tells(&lab, move |_| {
        let is_silent = asked.fetch_add(1, Ordering::Relaxed) < UNANSWERED;
        if is_silent { None } else { *to_tell.lock().expect("a lock") }
    });
    let mut config = Config::for_lab(&lab);
    config.listen = vec![format!("{}:3478", lab.v4.listen)];
    config.relay = vec![lab.v4.listen];
    config.relay_keys = format!("external = \"auto\"\nexternal_stun = [\"{at}\"]");
    let server = Server::start(&lab, &config);
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

#[test]
fn a_server_without_a_public_address_serves_the_rest_until_one_is_found() {
    let Some(lab) = require(Lab::new()) else { return };
    let told = Arc::new(Mutex::new(None));
    let to_tell = Arc::clone(&told);
    let at = stun_server_that_tells(&lab, move |_| *to_tell.lock().expect("a lock"));
    let mut config = Config::for_lab(&lab);
    config.listen = vec![format!("{}:3478", lab.v4.listen)];
    config.relay = vec![lab.v4.listen];
    config.relay_keys = format!("external = \"auto\"\nexternal_stun = [\"{at}\"]");
    let server = Server::start(&lab, &config);
    let status = server.json(&["status"]);
    assert_eq!(status["relay"], serde_json::json!([]));
    let faults = status["now"]["problems"].to_string();
    assert!(faults.contains("found no public address") && faults.contains("true"), "{faults}");
    *told.lock().expect("a lock") = Some("198.51.100.7".parse().expect("an address"));
    test_support::eventually("the address", || {
        server.json(&["status"])["relay"][0]["public"] == "198.51.100.7"
    });
    assert_eq!(server.json(&["status"])["now"]["problems"], serde_json::json!([]));
}

/// The metadata service of a host in EC2 with two addresses, of which the second is public: it
/// takes requests with a token alone.
fn metadata_service(lab: &Lab) {
    let device = Lab::end_towards(Host::Server);
    lab.run(Host::Client, "ip", &["addr", "add", "169.254.169.254/32", "dev", &device]);
    let device = Lab::end_towards(Host::Client);
    lab.run(Host::Server, "ip", &["route", "add", "169.254.169.254/32", "dev", &device]);
    let listener = lab.listener(Host::Client, ("169.254.169.254".parse().expect("an address"), 80));
    let local = lab.v4.listen;
    let macs = "/latest/meta-data/network/interfaces/macs/";
    let answer = move |request: &str| -> Option<String> {
        let path = request.split(' ').nth(1)?;
        if request.starts_with("PUT /latest/api/token ") {
            let has_ttl = request.contains("X-aws-ec2-metadata-token-ttl-seconds: ");
            return has_ttl.then(|| "dG9rZW4=".to_owned());
        }
        if !request.contains("\r\nX-aws-ec2-metadata-token: dG9rZW4=\r\n") {
            return None;
        }
        match path.strip_prefix(macs)? {
            "" => Some("02:00:00:00:00:01/\n02:00:00:00:00:02/".to_owned()),
            "02:00:00:00:00:02/ipv4-associations/" => Some("198.51.100.6\n198.51.100.7".to_owned()),
            "02:00:00:00:00:02/ipv4-associations/198.51.100.6" => Some("10.9.9.9".to_owned()),
            "02:00:00:00:00:02/ipv4-associations/198.51.100.7" => Some(local.to_string()),
            _ => None,
        }
    };
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let (mut bytes, mut len) = ([0; 2048], 0);
            while !bytes[..len].ends_with(b"\r\n\r\n") {
                match stream.read(&mut bytes[len..]) {
                    Ok(0) | Err(_) => break,
                    Ok(more) => len += more,
                }
            }
            let request = String::from_utf8_lossy(&bytes[..len]);
            let response = match answer(&request) {
                Some(body) => {
                    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len())
                }
                None => "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n".to_owned(),
            };
            drop(stream.write_all(response.as_bytes()));
        }
    });
}

#[test]
fn the_cloud_knows_the_public_address_of_each_local_one() {
    let Some(lab) = require(Lab::new()) else { return };
    metadata_service(&lab);
    let mut config = Config::for_lab(&lab);
    config.listen = vec![format!("{}:3478", lab.v4.listen)];
    config.relay = vec![lab.v4.listen];
    config.relay_keys = "external = \"auto\"\nexternal_metadata = \"aws\"".to_owned();
    let server = Server::start(&lab, &config);
    assert_eq!(server.json(&["status"])["relay"][0]["public"], "198.51.100.7");
}

#[test]
fn a_public_address_in_front_of_a_nat_is_found() {
    let Some(lab) = require(Lab::new()) else { return };
    // All that leaves towards the STUN server is translated, and what comes back.
    let at = stun_server_that_tells(&lab, Some);
    lab.run(
        Host::Client,
        "ip",
        &["route", "add", "198.51.100.7/32", "via", &lab.v4.listen.to_string()],
    );
    let rules = format!(
        "add table ip nat; add chain ip nat out {{ type nat hook postrouting priority 100 ; }}; \
         add rule ip nat out ip daddr {} snat to 198.51.100.7",
        lab.v4.client
    );
    lab.run(Host::Server, "nft", &[&rules]);
    let mut config = Config::for_lab(&lab);
    config.listen = vec![format!("{}:3478", lab.v4.listen)];
    config.relay = vec![lab.v4.listen];
    config.relay_keys = format!("external = \"auto\"\nexternal_stun = [\"{at}\"]");
    let server = Server::start(&lab, &config);
    assert_eq!(server.json(&["status"])["relay"][0]["public"], "198.51.100.7");
}
