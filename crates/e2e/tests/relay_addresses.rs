//! The host gets addresses, loses them and has other ones while the server runs.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use e2e::{Caller, Config, Host, Lab, Server, require};
use test_support::eventually;
use turn_client::Families;

/// Longest time for a datagram that is on its way.
const ON_THE_WAY: Duration = Duration::from_secs(5);

/// A server that finds its relay addresses, and listens at all of the host's.
fn automatic(lab: &Lab) -> Config {
    let mut config = Config::for_lab(lab);
    config.listen = vec!["0.0.0.0:3478".to_owned(), "[::]:3478".to_owned()];
    config.through = ["env", "TURNPIKE_RELAY__ADDRESSES=auto"].map(str::to_owned).to_vec();
    config.allow.push(lab.v4.listen.to_string());
    config.tables = "[http]\nlisten = [\"127.0.0.1:9641\"]\n".to_owned();
    config
}

/// Changes addresses of the server's host.
fn ip(lab: &Lab, words: &str) {
    let words: Vec<&str> = words.split(' ').collect();
    lab.run(Host::Server, "ip", &words);
}

fn end_towards(host: Host) -> String {
    Lab::end_towards(host)
}

/// A client allocates at `listen`.
fn ask(lab: &Lab, config: &Config, listen: IpAddr, families: Families) -> Result<Caller, u16> {
    let from = if listen.is_ipv4() { lab.v4.client } else { lab.v6.client };
    let socket = lab.socket(Host::Client, (from, 0));
    Caller::ask(socket, SocketAddr::new(listen, 3478), config.accounts[0], families)
}

/// Waits until a new allocation is relayed from `expected`.
fn eventually_relays_from(lab: &Lab, config: &Config, listen: IpAddr, expected: IpAddr) {
    let families = if expected.is_ipv4() { Families::V4 } else { Families::V6 };
    eventually(&format!("{expected} is relayed from"), || {
        let relayed = ask(lab, config, listen, families).map(|caller| caller.relayed().ip());
        relayed == Ok(expected)
    });
}

fn readiness(lab: &Lab) -> String {
    let url = "http://127.0.0.1:9641/readyz";
    let words = ["-s", "-o", "/dev/null", "-w", "%{http_code}", url];
    lab.run(Host::Server, "curl", &words).trim().to_owned()
}

fn wrong_now(server: &Server) -> String {
    server.ask(&["status"]).output
}

#[test]
fn a_server_waits_for_the_first_address() {
    let Some(lab) = require(Lab::new()) else { return };
    let config = automatic(&lab);
    for end in [Host::Client, Host::Peer].map(end_towards) {
        ip(&lab, &format!("addr flush dev {end}"));
    }
    let server = Server::start(&lab, &config);
    let shown = wrong_now(&server);
    assert!(shown.contains("finds no address on this host other than loopback"), "{shown}");
    assert!(shown.contains("no address of its own"), "{shown}");
    assert_eq!(readiness(&lab), "503");
    let (end, listen) = (end_towards(Host::Client), lab.v4.listen);
    ip(&lab, &format!("addr add {listen}/24 dev {end}"));
    eventually_relays_from(&lab, &config, listen, listen);
    assert_eq!(readiness(&lab), "200");
    // The status shows refusals of the last minute, also before the address.
    let shown = wrong_now(&server);
    assert!(!shown.contains("finds no address") && !shown.contains("of its own"), "{shown}");
    // The other family comes later.
    ip(&lab, &format!("addr add {}/64 dev {end} nodad", lab.v6.listen));
    eventually_relays_from(&lab, &config, listen, lab.v6.listen);
}

#[test]
fn another_address_takes_the_place_of_the_first() {
    let Some(lab) = require(Lab::new()) else { return };
    let config = automatic(&lab);
    let server = Server::start(&lab, &config);
    let (end, before) = (end_towards(Host::Client), lab.v4.listen);
    eventually_relays_from(&lab, &config, before, before);
    let later: IpAddr = "10.77.1.7".parse().expect("an address");
    ip(&lab, &format!("addr del {before}/24 dev {end}"));
    ip(&lab, &format!("addr flush dev {}", end_towards(Host::Peer)));
    ip(&lab, &format!("addr add {later}/24 dev {end}"));
    eventually_relays_from(&lab, &config, later, later);
    for line in [
        format!("new allocations are relayed from {later}"),
        format!("no new allocation is relayed from {before}"),
    ] {
        eventually(&line, || server.process.output().contains(&line));
    }
}

#[test]
fn a_call_goes_on_when_its_address_is_back() {
    let Some(lab) = require(Lab::new()) else { return };
    let config = automatic(&lab);
    let server = Server::start(&lab, &config);
    let (end, listen) = (end_towards(Host::Client), lab.v4.listen);
    ip(&lab, &format!("addr flush dev {}", end_towards(Host::Peer)));
    let [mut one, mut other] =
        [(); 2].map(|()| ask(&lab, &config, listen, Families::V4).expect("an allocation"));
    let (first, second) = (one.relayed(), other.relayed());
    let _ = one.bind(second);
    let channel = other.bind(first);
    ip(&lab, &format!("addr del {listen}/24 dev {end}"));
    eventually("it is missed", || wrong_now(&server).contains("any more"));
    let relays = server.json(&["status"])["relay"].clone();
    let missing = relays.as_array().into_iter().flatten().find(|one| one["is_missing"] == true);
    assert_eq!(missing.map(|one| &one["local"]), Some(&listen.to_string().into()), "{relays}");
    ip(&lab, &format!("addr add {listen}/24 dev {end}"));
    eventually_relays_from(&lab, &config, listen, listen);
    other.send(channel, b"hello");
    let heard = one.data(ON_THE_WAY).expect("the call goes on");
    assert_eq!((heard.peer, &*heard.payload), (second, &b"hello"[..]));
}

#[test]
fn named_addresses_are_waited_for() {
    let Some(lab) = require(Lab::new()) else { return };
    let mut config = Config::for_lab(&lab);
    let [listen, relay]: [IpAddr; 2] =
        ["10.77.1.9", "10.77.2.9"].map(|ip| ip.parse().expect("an address"));
    config.listen = vec![format!("{}:3478", lab.v4.listen), format!("{listen}:3478")];
    config.relay = vec![relay, lab.v6.relay];
    config.tables = format!("[http]\nlisten = [\"{listen}:9641\"]\n");
    let server = Server::start(&lab, &config);
    let shown = wrong_now(&server);
    for missing in [
        "relay.addresses: 10.77.2.9 is no",
        "listen: 10.77.1.9 is no",
        "http.listen: 10.77.1.9 is no",
    ] {
        assert!(shown.contains(missing), "{missing}: {shown}");
    }
    // The rest serves.
    let refused = ask(&lab, &config, lab.v4.listen, Families::V4).map(|caller| caller.relayed());
    assert_eq!(refused, Err(508));
    assert_eq!(server.json(&["status"])["refusals"]["relay_address_absent"], 1);
    eventually_relays_from(&lab, &config, lab.v4.listen, lab.v6.relay);
    ip(&lab, &format!("addr add {relay}/24 dev {}", end_towards(Host::Peer)));
    eventually_relays_from(&lab, &config, lab.v4.listen, relay);
    ip(&lab, &format!("addr add {listen}/24 dev {}", end_towards(Host::Client)));
    eventually_relays_from(&lab, &config, listen, relay);
    let url = format!("http://{listen}:9641/healthz");
    lab.run(Host::Server, "curl", &["-sf", &url]);
    // The listener has waited at the address, and is sooner than the look at the host.
    eventually("nothing is missing", || !wrong_now(&server).contains("is no address"));
}

/// Another host has the address (duplicate address detection): IPv4 is served.
#[test]
fn a_duplicate_address_is_not_relayed_from() {
    let Some(lab) = require(Lab::new()) else { return };
    let config = automatic(&lab);
    let end = end_towards(Host::Client);
    ip(&lab, &format!("-6 addr flush dev {end} scope global"));
    ip(&lab, &format!("-6 addr flush dev {} scope global", end_towards(Host::Peer)));
    let set = format!("echo 1 >/proc/sys/net/ipv6/conf/{end}/accept_dad");
    lab.run(Host::Server, "sh", &["-c", &set]);
    // The client's own.
    ip(&lab, &format!("addr add {}/64 dev {end}", lab.v6.client));
    eventually("it is a duplicate", || {
        lab.run(Host::Server, "ip", &["addr", "show", "dev", &end]).contains("dadfailed")
    });
    let server = Server::start(&lab, &config);
    eventually_relays_from(&lab, &config, lab.v4.listen, lab.v4.listen);
    let relays = server.json(&["status"])["relay"].clone();
    assert_eq!(relays.as_array().map(Vec::len), Some(1), "{relays}");
    let refused = ask(&lab, &config, lab.v4.listen, Families::V6).map(|caller| caller.relayed());
    assert_eq!(refused, Err(440));
}

#[test]
fn a_renamed_interface_keeps_its_calls() {
    let Some(lab) = require(Lab::new()) else { return };
    let config = automatic(&lab);
    let _server = Server::start(&lab, &config);
    let (end, listen) = (end_towards(Host::Client), lab.v4.listen);
    eventually_relays_from(&lab, &config, listen, listen);
    ip(&lab, &format!("link set {end} down"));
    ip(&lab, &format!("link set {end} name renamed0"));
    ip(&lab, "link set renamed0 up");
    eventually_relays_from(&lab, &config, listen, listen);
}

/// A host prefers its temporary addresses for itself. They are gone within days, and the calls on
/// them.
#[test]
fn an_address_that_lasts_is_relayed_from() {
    let Some(lab) = require(Lab::new()) else { return };
    let config = automatic(&lab);
    let (end, stable) = (end_towards(Host::Client), lab.v6.listen);
    for one in [Host::Client, Host::Peer].map(end_towards) {
        ip(&lab, &format!("-6 addr flush dev {one} scope global"));
    }
    let set = format!("echo 2 >/proc/sys/net/ipv6/conf/{end}/use_tempaddr");
    lab.run(Host::Server, "sh", &["-c", &set]);
    ip(&lab, &format!("addr add {stable}/64 dev {end} mngtmpaddr nodad"));
    let shown = || lab.run(Host::Server, "ip", &["-6", "addr", "show", "dev", &end]);
    eventually("it has a temporary address", || {
        shown().lines().any(|line| line.contains("temporary") && !line.contains("tentative"))
    });
    let _server = Server::start(&lab, &config);
    eventually_relays_from(&lab, &config, lab.v4.listen, stable);
    // Another prefix takes its place.
    let later: IpAddr = "fd77:1::8".parse().expect("an address");
    ip(&lab, &format!("addr add {later}/64 dev {end} nodad"));
    ip(&lab, &format!("addr change {stable}/64 dev {end} preferred_lft 0"));
    eventually_relays_from(&lab, &config, lab.v4.listen, later);
}
