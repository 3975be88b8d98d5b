//! Clients of other people, and every way of data, notice nothing of upgrades.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use e2e::{Config, Lab, Rounds, Server, Stop, require};
use turn_client::Families;
use turn_types::IpFamily;

/// Upgrades in a row.
const UPGRADES: usize = 3;

/// Upgrades, each time with so many allocations, of which none is new.
#[track_caller]
fn upgrade(server: &mut Server, allocations: u64) {
    for _ in 0..UPGRADES {
        server.upgrade_times(1);
        let status = server.json(&["status"]);
        assert_eq!(status["took_over"]["allocations"], allocations, "{status:#}");
        assert_eq!(status["allocations"]["live"], allocations, "{status:#}");
    }
    let status = server.json(&["status"]);
    assert_eq!(status["allocations"]["total"], 0, "made since the last upgrade: {status:#}");
}

#[test]
fn indications_and_channels_of_both_families_lose_nothing() {
    let Some(lab) = require(Lab::new()) else { return };
    // The kernel path may let a packet overtake another at the moments of a change.
    let tables = "[offload]\nmode = \"off\"\n".to_owned();
    let mut config = Config { tables, ..Config::for_lab(&lab) };
    config.allow = ["10.77.2.0/24", "fd77:2::/64"].map(str::to_owned).to_vec();
    let mut server = Server::start(&lab, &config);
    let mut clients: Vec<Rounds> = [
        (IpFamily::V4, Families::Both),
        (IpFamily::V6, Families::Both),
        (IpFamily::V4, Families::V6),
        (IpFamily::V6, Families::V4),
    ]
    .into_iter()
    .map(|(over, families)| Rounds::new(&lab, &config, over, families))
    .collect();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for client in &mut clients {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    client.exchange();
                }
            });
        }
        // Also if an upgrade fails.
        let _stop = Stop::at_end(&stop);
        upgrade(&mut server, 4);
    });
    let others: [IpAddr; 2] =
        ["10.77.2.77", "fd77:2::77"].map(|ip| ip.parse().expect("an address"));
    for client in &mut clients {
        client.exchange();
        client.caller.refresh();
        for (other, family) in others.into_iter().zip([IpFamily::V4, IpFamily::V6]) {
            if client.caller.relayed_of(family).is_some() {
                client.caller.permit(other);
            }
        }
    }
    server.wait_for_first_to_end();
}
