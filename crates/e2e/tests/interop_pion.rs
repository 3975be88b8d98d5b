//! pion, the Go client that LiveKit and many others are built on.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr};
use std::time::Duration;

use e2e::{
    Certificates, Config, Host, Lab, Running, Server, Tool, echo_peer, pion, pion_run, require,
};

#[test]
fn echoes_by_send_indications_and_channels() {
    let Some(client) = require(pion()) else { return };
    let Some(lab) = require(Lab::new()) else { return };
    let certificates = Certificates::new(&lab);
    let config =
        Config { top: String::new(), tables: certificates.simple(), ..Config::for_lab(&lab) };
    let _server = Server::start(&lab, &config);
    let _peer = echo_peer(&lab, lab.v4.peer);
    for transport in ["udp", "tcp", "tls", "dtls"] {
        let out = Tool::run(
            &mut pion_run(&lab, &client, &config, (300, transport)),
            Duration::from_secs(60),
        );
        assert!(
            out.ok && out.output.contains("echoed 300 datagrams"),
            "{transport}: {}",
            out.output
        );
    }
}

#[test]
fn relays_tcp_to_peers_and_from_them() {
    // RFC 6062
    const PATIENCE: Duration = Duration::from_secs(60);
    let Some(client) = require(pion()) else { return };
    let Some(lab) = require(Lab::new()) else { return };
    let tables = "[tcp]\nrelaying = true\n".to_owned();
    let config = Config { top: String::new(), tables, ..Config::for_lab(&lab) };
    let server = Server::start(&lab, &config);
    let listener = lab.listener(Host::Peer, (lab.v4.peer, 3480));
    let echo = std::thread::spawn(move || {
        let (mut stream, from) = listener.accept().expect("a call");
        let mut back = stream.try_clone().expect("a second handle");
        std::io::copy(&mut stream, &mut back).expect("echoed");
        from
    });
    let mut program = Running::start(&mut pion_run(&lab, &client, &config, (100, "tcp-relay")));
    program.wait_for("relayed address ", PATIENCE);
    let output = program.output();
    assert!(output.contains("echoed 100 pieces"), "{output}");
    let relayed = output.split("relayed address ").nth(1).and_then(|rest| rest.lines().next());
    let relayed: SocketAddr = relayed.expect("an address").parse().expect("an address");

    let mut call = lab.connect(Host::Peer, relayed);
    call.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let said: Vec<u8> = (0..300_000_u32).map(|at| (at % 251) as u8).collect();
    let mut saying = call.try_clone().expect("a second handle");
    let (to_say, mut heard) = (said.clone(), Vec::new());
    let saying = std::thread::spawn(move || {
        saying.write_all(&to_say).expect("said");
        saying.shutdown(Shutdown::Write).expect("ended");
    });
    call.read_to_end(&mut heard).expect("heard");
    saying.join().expect("said");
    assert!(heard == said, "{} bytes of {}", heard.len(), said.len());
    let _told = lab.connect(Host::Peer, relayed);
    assert!(program.wait(PATIENCE), "{}", program.output());
    assert!(program.output().contains("a peer was served"), "{}", program.output());
    assert_eq!(echo.join().expect("echoed"), relayed, "the call left by the relayed address");
    let status = server.json(&["status"]);
    assert_eq!(status["allocations"]["live"], 0, "{status:#}");
}
