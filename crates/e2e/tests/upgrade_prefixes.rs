//! Relayed addresses of prefixes of clients that stay with an old process: no other client gets one
//! of them.

use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use e2e::certificates::ECDSA;
use e2e::{Caller, Certificates, Config, Host, Lab, Running, Server, pion, pion_run, require};
use test_support::eventually;
use turn_client::Families;

const PATIENCE: Duration = Duration::from_secs(60);

/// Time in which a datagram arrives, if it does.
const ON_ITS_WAY: Duration = Duration::from_millis(500);

/// The prefix: two of its addresses are for clients.
const PREFIX: &str = "10.77.8.0/30";

/// The refusal of an allocation when all addresses are in use.
const INSUFFICIENT_CAPACITY: u16 = 508;

/// A server with DTLS that relays from a prefix, by one worker: that has a port for all of its
/// addresses.
struct Scene {
    lab: Lab,
    config: Config,
    server: Server,
    _files: Certificates,
}

impl Scene {
    fn new() -> Option<Self> {
        let lab = require(Lab::new())?;
        let files = Certificates::new(&lab);
        files.make("turn", "turn.example.org", ECDSA, "90");
        lab.run(Host::Server, "ip", &["route", "add", "local", PREFIX, "dev", "lo"]);
        let next_hop = lab.v4.relay.to_string();
        lab.run(Host::Peer, "ip", &["route", "add", PREFIX, "via", &next_hop]);
        let tables = format!(
            "[tls]\ncertificates = [{}]\n[workers]\ncount = 1\n[offload]\nmode = \"off\"\n",
            files.entry("turn"),
        );
        let relay_keys = format!("prefixes = [\"{PREFIX}\"]\nports = \"50000-50999\"");
        // No other address of IPv4.
        let relay = vec![lab.v6.relay];
        let config = Config { relay, relay_keys, tables, ..Config::for_lab(&lab) };
        let server = Server::start(&lab, &config);
        Some(Self { lab, config, server, _files: files })
    }

    /// Clients over UDP, until one is refused.
    fn exhaust(&self) -> Vec<Caller> {
        let mut callers = Vec::new();
        loop {
            let socket = self.lab.socket(Host::Client, (self.lab.v4.client, 0));
            let at = SocketAddr::new(self.lab.v4.listen, 3478);
            match Caller::ask(socket, at, self.config.accounts[0], Families::V4) {
                Ok(caller) => callers.push(caller),
                Err(code) => {
                    assert_eq!(code, INSUFFICIENT_CAPACITY);
                    return callers;
                }
            }
            assert!(callers.len() <= 2, "two addresses");
        }
    }

    fn release(callers: Vec<Caller>) {
        callers.into_iter().for_each(|mut caller| caller.release());
    }
}

/// A client over DTLS that prints all that the peer sends to it.
pub(crate) struct OverDtls {
    program: Running,
    relayed: SocketAddr,
    peer: UdpSocket,
}

impl OverDtls {
    pub(crate) fn new(lab: &Lab, config: &Config) -> Option<Self> {
        let client = require(pion())?;
        let peer = lab.socket(Host::Peer, (lab.v4.peer, e2e::ECHO_PORT));
        peer.set_read_timeout(Some(PATIENCE)).expect("a time");
        let mut run = pion_run(lab, &client, config, (0, "dtls"));
        let mut program = Running::start(&mut run);
        program.wait_for("relayed address", PATIENCE);
        let said = program.output();
        let line = said.lines().find_map(|line| line.strip_prefix("relayed address "));
        let relayed = line.expect("said").parse().expect("an address");
        Some(Self { program, relayed, peer })
    }

    /// Data goes both ways, from and to its address.
    #[track_caller]
    pub(crate) fn assert_relays(&mut self, text: &str) {
        let deadline = Instant::now() + PATIENCE;
        let mut bytes = [0; 100];
        // Earlier packets prove nothing.
        self.peer.set_nonblocking(true).expect("a mode");
        while self.peer.recv(&mut bytes).is_ok() {}
        self.peer.set_nonblocking(false).expect("a mode");
        loop {
            let (len, from) = self.peer.recv_from(&mut bytes).expect("relayed");
            assert!(Instant::now() < deadline, "nothing of it");
            if from == self.relayed && &bytes[..len] == b"hello" {
                break;
            }
        }
        self.peer.send_to(text.as_bytes(), self.relayed).expect("sent");
        self.program.wait_for(&format!("heard {text}"), PATIENCE);
    }
}

/// Three upgrades in a row.
#[test]
fn an_address_goes_on_with_its_client_and_is_given_to_no_other() {
    let Some(mut scene) = Scene::new() else { return };
    let Some(mut client) = OverDtls::new(&scene.lab, &scene.config) else { return };
    client.assert_relays("before");
    for number in 0..3 {
        scene.server.upgrade_times(1);
        let mut callers = scene.exhaust();
        let relayed: Vec<_> = callers.iter().map(Caller::relayed).collect();
        assert!(!relayed.contains(&client.relayed), "{relayed:?}");
        let [other] = &mut callers[..] else { panic!("{relayed:?}") };
        // Data reaches the right one of both.
        other.permit(scene.lab.v4.peer);
        client.assert_relays(&format!("data {number}"));
        assert!(other.data(ON_ITS_WAY).is_none());
        client.peer.send_to(b"for the other", other.relayed()).expect("sent");
        let data = other.data(PATIENCE).expect("data");
        assert_eq!(data.payload, b"for the other");
        Scene::release(callers);
    }
    assert!(!client.program.output().contains("for the other"));
    scene.server.wait_for_first_to_end();
    // It is free when the session of its client has ended.
    let user = scene.config.accounts[0].name;
    let ended = scene.server.ask(&["session", "end", "--yes", "--user", user]);
    assert!(ended.ok, "{}", ended.output);
    eventually("the address is free", || {
        let callers = scene.exhaust();
        let has_it = callers.iter().any(|caller| caller.relayed() == client.relayed);
        Scene::release(callers);
        has_it
    });
}
