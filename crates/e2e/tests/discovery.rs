//! NAT behaviour discovery (RFC 5780) with coturn's client, in front of a NAT and behind it; and
//! clients of RFC 3489.

use std::net::IpAddr;
use std::time::Duration;

use e2e::{Config, Dependence, Host, INSIDE, Lab, Nat, Server, Tool, coturn, require};

/// Each test of a NAT that relies on a timeout takes its time.
const PATIENCE: Duration = Duration::from_secs(60);

/// The server's second address.
const SECOND: &str = "10.77.1.3";

/// A lab with a server that has a second address.
fn discovering(top: &str) -> Option<(Lab, Server)> {
    require(coturn())?;
    let lab = require(Lab::new())?;
    let second = format!("{SECOND}/24");
    let to_client = Lab::end_towards(Host::Client);
    lab.run(Host::Server, "ip", &["addr", "add", &second, "dev", &to_client]);
    let mut config = Config::for_lab(&lab);
    // A listener on every address beside two on one each: both kinds answer for each other.
    config.listen = vec!["0.0.0.0:3478".to_owned()];
    config.top.push_str(top);
    let addresses = [lab.v4.listen.to_string(), SECOND.to_owned()].map(|ip| format!("\"{ip}\""));
    config.tables = format!("[discovery]\naddresses = [{}]\n", addresses.join(", "));
    let server = Server::start(&lab, &config);
    Some((lab, server))
}

/// Runs coturn's client from an address of the client's host.
fn discover(lab: &Lab, from: IpAddr, options: &[&str]) -> String {
    let mut command = lab.command(Host::Client, "turnutils_natdiscovery");
    command.args(options).args(["-L", &from.to_string(), &lab.v4.listen.to_string()]);
    Tool::run(&mut command, PATIENCE).output
}

#[track_caller]
fn assert_says(output: &str, expected: &str) {
    assert!(output.contains(expected), "no {expected:?} in:\n{output}");
}

/// Runs coturn's client until it reports so, three times at most: it does not retransmit, and takes
/// an answer that a busy machine delays for one that a NAT has filtered.
#[track_caller]
fn assert_discovers(lab: &Lab, options: &[&str], expected: &str) {
    let mut output = String::new();
    for _ in 0..3 {
        output = discover(lab, INSIDE, options);
        if output.contains(expected) {
            return;
        }
    }
    assert_says(&output, expected);
}

/// NATs of every kind, seen from behind.
#[test]
fn a_nat_is_known_by_its_behaviour() {
    for (looks, mapping, filtering) in [
        (Dependence::Nowhere, Some("Endpoint Independent"), "Endpoint Independent"),
        // coturn 4.6's client sends its third request to the OTHER-ADDRESS of the second answer,
        // where RFC 5780 §4.3 has that of the first: its report of this mapping is no verdict.
        // `turnpike probe` tests it, in probe.rs.
        (Dependence::AtAddress, None, "Address Dependent"),
        (Dependence::AtPort, Some("Address and Port Dependent"), "Address and Port Dependent"),
    ] {
        let Some((lab, mut server)) = discovering("") else { return };
        let Some(nat) = require(Nat::start(&lab, looks, looks)) else { return };
        if let Some(mapping) = mapping {
            assert_discovers(&lab, &["-m"], &format!("NAT with {mapping} Mapping!"));
        }
        assert_discovers(&lab, &["-f"], &format!("NAT with {filtering} Filtering!"));
        drop(nat);
        assert!(server.stop());
    }
}

/// Requests and answers that are longer than a packet (PADDING).
#[test]
fn padding_passes_in_fragments() {
    let Some((lab, mut server)) = discovering("") else { return };
    let padded = discover(&lab, lab.v4.client, &["-m", "-P"]);
    assert_says(&padded, "No NAT! (Endpoint Independent Mapping)");
    assert_says(&padded, "Other addr");
    let Some(_nat) = require(Nat::start(&lab, Dependence::Nowhere, Dependence::AtPort)) else {
        return;
    };
    assert_discovers(&lab, &["-m", "-P"], "NAT with Endpoint Independent Mapping!");
    assert_discovers(&lab, &["-f", "-P"], "NAT with Address and Port Dependent Filtering!");
    assert!(server.stop());
}

/// One address is not enough, and the error explains it.
#[test]
fn without_a_second_address_there_is_no_discovery() {
    let Some(()) = require(coturn()) else { return };
    let Some(lab) = require(Lab::new()) else { return };
    let server = Server::start(&lab, &Config::for_lab(&lab));
    let output = discover(&lab, lab.v4.client, &["-m"]);
    assert_says(&output, "UDP reflexive addr");
    assert!(!output.contains("Other addr"), "{output}");
    drop(server);
}

/// A message without a magic cookie, byte by byte.
#[test]
fn a_client_of_rfc_3489_gets_its_address() {
    for (top, served) in [("compatibility.rfc3489_clients = true\n", true), ("", false)] {
        let Some((lab, mut server)) = discovering(top) else { return };
        let socket = lab.socket(Host::Client, (lab.v4.client, 3478));
        let mut request = vec![0x00, 0x01, 0x00, 0x08];
        request.extend(*b"sixteen bytes id");
        // CHANGE-REQUEST: another port.
        request.extend([0x00, 0x03, 0x00, 0x04, 0, 0, 0, 0x02]);
        let wait = if served { Duration::from_secs(20) } else { Duration::from_secs(1) };
        let set = socket.set_read_timeout(Some(wait));
        assert!(set.is_ok());
        let sent = socket.send_to(&request, (lab.v4.listen, 3478));
        assert_eq!(sent.ok(), Some(request.len()));
        let mut answer = [0; 1500];
        let received = socket.recv_from(&mut answer);
        assert_eq!(received.is_ok(), served, "{received:?}");
        if let Ok((len, from)) = received {
            assert_eq!((from.ip(), from.port()), (lab.v4.listen, 3479));
            assert_eq!(answer[..20], [&[0x01, 0x01, 0x00, 36], &b"sixteen bytes id"[..]].concat());
            let address = |kind: u8, ip: [u8; 4], port: u16| {
                let [p0, p1] = port.to_be_bytes();
                [&[0, kind, 0, 8, 0, 1, p0, p1][..], &ip].concat()
            };
            let expected = [
                address(1, [10, 77, 1, 2], 3478),
                address(4, [10, 77, 1, 1], 3479),
                address(5, [10, 77, 1, 3], 3479),
            ];
            assert_eq!(answer[20..len], expected.concat());
        }
        assert!(server.stop());
    }
}
