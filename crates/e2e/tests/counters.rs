//! Counters go on when another process takes the place of the server.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr};
use std::sync::atomic::AtomicBool;
use std::thread::{self, sleep};
use std::time::Duration;

use e2e::{Call, Config, Host, Lab, Sent, Server, Stop, repository, require, said};
use serde_json::Value;
use test_support::eventually;
use turn_types::IpFamily::V4;

/// Port of the metrics.
const METRICS: u16 = 9641;

/// Time between two packets of a flow, in each direction.
const PACKET_EVERY: Duration = Duration::from_millis(2);

/// Time for some hundred packets.
const A_WHILE: Duration = Duration::from_secs(1);

/// A server that relays everything by sockets: each packet waits for the next process.
fn config(lab: &Lab) -> Config {
    let at = SocketAddr::from((lab.v4.listen, METRICS));
    let tables = format!("[offload]\nmode = \"off\"\n[http]\nlisten = [\"{at}\"]\n");
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

/// Packets that were relayed in a direction.
fn relayed(lab: &Lab, direction: &str) -> f64 {
    let direction = format!("direction=\"{direction}\"");
    let is_it = |name: &&String| {
        name.starts_with("turnpike_relayed_packets_total") && name.contains(&direction)
    };
    let all = counters(lab);
    all.keys().filter(is_it).map(|name| all[name]).sum()
}

/// Sends packets both ways while `take_over` has another process take the place of the server, some times.
#[track_caller]
fn go_on(lab: &Lab, config: &Config, server: &mut Server, take_over: impl Fn(&mut Server)) {
    const TIMES: usize = 3;
    let call = Call::new(lab, config, V4);
    let stop = AtomicBool::new(false);
    let sent = Sent::default();
    thread::scope(|scope| {
        scope.spawn(|| sent.set(call.send(PACKET_EVERY, &stop)));
        let to_peer = scope.spawn(|| call.missing_at_peer(true, &sent));
        let to_client = scope.spawn(|| call.missing_at_client(true, &sent));
        let all_arrive = {
            let _stop = Stop::at_end(&stop);
            for _ in 0..TIMES {
                let before = counters(lab);
                take_over(server);
                assert_go_on(&before, &counters(lab));
            }
            sleep(A_WHILE);
            [to_peer, to_client]
        };
        for missing in all_arrive {
            assert!(missing.join().expect("received").is_empty(), "{}", server.process.output());
        }
    });
    let sent = f64::from(sent.count().expect("told"));
    assert!(sent > 100.0, "{sent}");
    // Each once, whatever process relayed it.
    for direction in ["to_peer", "to_client"] {
        assert_eq!(relayed(lab, direction), sent, "{direction}: {}", server.process.output());
    }
    let all = counters(lab);
    assert_eq!(all["turnpike_allocations_created_total"], 1.0, "by the first process");
}

#[test]
fn in_upgrades() {
    let Some(lab) = require(Lab::new()) else { return };
    let config = config(&lab);
    let mut server = Server::start(&lab, &config);
    go_on(&lab, &config, &mut server, |server| server.upgrade_times(1));
}

#[test]
fn in_restarts() {
    let Some(lab) = require(Lab::new()) else { return };
    let manager = repository().join("crates/e2e/clients/service_manager.py");
    let through = vec!["python3".to_owned(), manager.display().to_string()];
    let config = Config { through, ..config(&lab) };
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
    let config = config(&lab);
    let mut server = Server::start(&lab, &config);
    go_on(&lab, &config, &mut server, |server| {
        let goes_on = |server: &Server| server.process.output().matches("goes on").count();
        let before = goes_on(server);
        let mut process = said::hang(server);
        // The server sends its counters, and nobody hears them.
        process.shutdown(Shutdown::Read).expect("deaf");
        process.write_all(&said::step(said::PREPARED)).expect("said");
        eventually("it has taken everything back", || goes_on(server) > before);
    });
}
