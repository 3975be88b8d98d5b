//! Counters go on when another process takes the place of the server.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr};
use std::sync::atomic::AtomicBool;
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use e2e::{Call, Config, Host, Lab, Sent, Server, Stop, repository, require, said};
use serde_json::Value;
use test_support::eventually;
use turn_types::IpFamily::V4;

/// Port of the metrics.
const METRICS: u16 = 9641;

/// Time between two packets of a flow, in each direction.
const PACKET_EVERY: Duration = Duration::from_millis(10);

/// Time between two looks of a worker at the counters of the kernel path, and a little more.
const COUNTED_EVERY: Duration = Duration::from_millis(1500);

/// The same on a busy machine.
const COUNTED_WITHIN: Duration = Duration::from_secs(10);

/// The mode without a kernel path.
const OFF: &str = "\"off\"";

/// A server that relays by this mode of the kernel path. Without one each packet waits for the next
/// process.
fn config(lab: &Lab, mode: &str) -> Config {
    let at = SocketAddr::from((lab.v4.listen, METRICS));
    let tables = format!("[offload]\nmode = \"{mode}\"\n[http]\nlisten = [\"{at}\"]\n");
    Config { tables, ..Config::for_lab(lab) }
}

/// The server's counters, by name and labels.
fn counters(lab: &Lab) -> BTreeMap<String, f64> {
    let at = SocketAddr::from((lab.v4.listen, METRICS));
    let mut stream = lab.connect(Host::Client, at);
    let request = format!("GET /metrics HTTP/1.0\r\nhost: {at}\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("a request");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("an answer");
    let counters = text.lines().filter_map(|line| {
        let (name, value) = line.rsplit_once(' ')?;
        let family = name.split('{').next()?;
        let counts = ["_total", "_bucket", "_count", "_sum"];
        let is_one =
            family.starts_with("turnpike_") && counts.iter().any(|it| family.ends_with(it));
        is_one.then(|| (name.to_owned(), value.parse().expect("a number")))
    });
    counters.collect()
}

/// None is less than it was.
#[track_caller]
fn assert_go_on(before: &BTreeMap<String, f64>, now: &BTreeMap<String, f64>) {
    assert!(before.len() > 100, "{before:?}");
    for (name, before) in before {
        let now = now.get(name).unwrap_or_else(|| panic!("{name} is gone"));
        assert!(now >= before, "{name}: {now} after {before}");
    }
}

/// Sum of the counters of this name that have this label.
fn sum(lab: &Lab, name: &str, label: &str) -> f64 {
    let all = counters(lab);
    let is_it = |one: &&String| one.starts_with(name) && one.contains(label);
    all.keys().filter(is_it).map(|name| all[name]).sum()
}

/// Packets that were relayed in a direction.
fn relayed(lab: &Lab, direction: &str) -> f64 {
    sum(lab, "turnpike_relayed_packets_total", &format!("direction=\"{direction}\""))
}

/// Packets that came from clients and from peers and were relayed by the kernel.
fn relayed_by_kernel(lab: &Lab) -> f64 {
    ["from_clients", "from_peers"]
        .map(|leg| sum(lab, "turnpike_packets_total", &format!("leg=\"{leg}\",path=\"kernel\"")))
        .into_iter()
        .sum()
}

/// Sends packets both ways while `take_over` has another process take the place of the server, some
/// times.
#[track_caller]
fn go_on(lab: &Lab, config: &Config, server: &mut Server, take_over: impl Fn(&mut Server)) {
    const TIMES: usize = 3;
    // A packet that the kernel path relays may overtake the one before it, which waits in a socket.
    let ordered = config.tables.contains(OFF);
    let call = Call::new(lab, config, V4);
    let stop = AtomicBool::new(false);
    let sent = Sent::default();
    thread::scope(|scope| {
        scope.spawn(|| call.send(PACKET_EVERY, &stop, &sent));
        let to_peer = scope.spawn(|| call.missing_at_peer(ordered, &sent));
        let to_client = scope.spawn(|| call.missing_at_client(ordered, &sent));
        let all_arrive = {
            let _stop = Stop::at_end(&stop);
            for _ in 0..TIMES {
                let before = counters(lab);
                take_over(server);
                assert_go_on(&before, &counters(lab));
            }
            sent.wait_for_more(100);
            [to_peer, to_client]
        };
        for missing in all_arrive {
            assert!(missing.join().expect("received").is_empty(), "{}", server.process.output());
        }
    });
    let sent = f64::from(sent.count().expect("told"));
    assert!(sent > 100.0, "{sent}");
    // Each once, whatever process relayed it. The ones that the kernel has relayed are counted
    // within a second, and not again in the next.
    let all = || ["to_peer", "to_client"].map(|direction| relayed(lab, direction));
    let deadline = Instant::now() + COUNTED_WITHIN;
    while all() != [sent; 2] && Instant::now() < deadline {
        sleep(PACKET_EVERY);
    }
    sleep(COUNTED_EVERY);
    assert_eq!(all(), [sent; 2], "{}", server.process.output());
    let all = counters(lab);
    assert_eq!(all["turnpike_allocations_created_total"], 1.0, "by the first process");
}

#[test]
fn in_upgrades() {
    let Some(lab) = require(Lab::new()) else { return };
    let config = config(&lab, "off");
    let mut server = Server::start(&lab, &config);
    go_on(&lab, &config, &mut server, |server| server.upgrade_times(1));
    assert_eq!(relayed_by_kernel(&lab), 0.0);
}

/// The kernel relays until just before the next process serves, and the last process counts that.
#[test]
fn in_upgrades_with_a_kernel_path() {
    let Some(lab) = require(Lab::new()) else { return };
    let Some(()) = require(lab.behave_as_cards()) else { return };
    let config = config(&lab, "tc");
    let mut server = Server::start(&lab, &config);
    go_on(&lab, &config, &mut server, |server| {
        let before = relayed_by_kernel(&lab);
        eventually("the kernel relays", || relayed_by_kernel(&lab) > before);
        server.upgrade_times(1);
    });
}

#[test]
fn in_restarts() {
    let Some(lab) = require(Lab::new()) else { return };
    let manager = repository().join("crates/e2e/clients/service_manager.py");
    let through = vec!["python3".to_owned(), manager.display().to_string()];
    let config = Config { through, ..config(&lab, "off") };
    let mut server = Server::start(&lab, &config);
    let process = |server: &Server| {
        let status = server.ask(&["status", "--json"]);
        let status: Value = serde_json::from_str(&status.output).unwrap_or_default();
        status["took_over"]["process"].as_u64()
    };
    go_on(&lab, &config, &mut server, |server| {
        let before = process(server);
        server.process.signal("HUP");
        eventually("the next process serves", || {
            let now = process(server);
            now.is_some() && now != before
        });
    });
}

/// A next process that fails has counted nothing.
#[test]
fn behind_an_upgrade_that_fails() {
    let Some(lab) = require(Lab::new()) else { return };
    let config = config(&lab, "off");
    let mut server = Server::start(&lab, &config);
    go_on(&lab, &config, &mut server, |server| {
        let goes_on = |server: &Server| server.process.output().matches("goes on").count();
        let before = goes_on(server);
        let mut process = said::hang(server);
        // The server sends its counters, and nobody hears them.
        process.shutdown(Shutdown::Read).expect("deaf");
        process.write_all(&said::step(said::READY)).expect("said");
        eventually("it has taken everything back", || goes_on(server) > before);
    });
}
