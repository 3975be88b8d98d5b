use std::net::Ipv4Addr;

use turn_types::AllocationId;

use super::*;
use crate::device::testing::{Namespace, may_load, namespace, succeeds};
use crate::routes::{Flow, FlowId};

const ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

/// Creates a kernel path in a namespace with only the loopback. Returns `None` if that is not
/// permitted here.
fn offload(interfaces: &[&str]) -> Option<(Namespace, Offload)> {
    let host = namespace()?;
    if !may_load() {
        return None;
    }
    host.ip("link set lo up");
    let wanted = OffloadConfig {
        hook: None,
        interfaces: interfaces.iter().map(ToString::to_string).collect(),
        listeners: vec![ADDRESS],
        relays: vec![ADDRESS],
        flows: 1024,
    };
    let offload = host.run(|| start(&wanted).unwrap());
    Some((host, offload))
}

/// Runs one examination. Returns the messages, and the state of each interface afterwards.
fn update(host: &Namespace, offload: &mut Offload) -> (Vec<String>, Vec<(String, Option<Hook>)>) {
    let changes = host.run(|| offload.update(false).unwrap());
    let shown = offload.attached().iter().map(|one| (one.name.clone(), one.hook));
    (changes, shown.collect())
}

fn by_tc(name: &str) -> (String, Option<Hook>) {
    (name.to_owned(), Some(Hook::Tc))
}

fn by_sockets(name: &str) -> (String, Option<Hook>) {
    (name.to_owned(), None)
}

#[test]
fn interfaces_are_used_when_they_come_and_followed_under_whatever_name() {
    let Some((host, mut offload)) = offload(&[]) else { return };
    assert_eq!(update(&host, &mut offload), (vec![], vec![]));
    assert!(offload.idle_because().unwrap().contains("no interface carries"));

    host.ip("link add v0 type veth peer name v1
        addr add 192.0.2.1/24 dev v0");
    let (changes, shown) = update(&host, &mut offload);
    assert_eq!(shown, [by_sockets("v0")]);
    assert!(changes[0].contains("v0 is down"), "{changes:?}");
    assert!(offload.idle_because().unwrap().contains("accepts"));
    assert_eq!(update(&host, &mut offload).0, [""; 0], "nothing new");

    host.ip("link set v0 up");
    let (changes, shown) = update(&host, &mut offload);
    assert_eq!(shown, [by_tc("v0")]);
    assert!(changes[0].starts_with("v0 by tc"), "{changes:?}");
    assert_eq!(offload.idle_because(), None);

    host.ip("link set v0 down
        link set v0 name w0
        link set w0 up");
    let (changes, shown) = update(&host, &mut offload);
    assert_eq!(shown, [by_tc("w0")]);
    assert!(
        changes[0].starts_with("w0 by tc") && changes[0].ends_with("which was v0"),
        "{changes:?}"
    );

    host.ip("link del w0");
    let (changes, shown) = update(&host, &mut offload);
    assert_eq!((changes, shown), (vec!["w0 is gone".to_owned()], vec![]));
    host.ip("link add w0 type veth peer name v1
        addr add 192.0.2.1/24 dev w0
        link set w0 up");
    assert_eq!(update(&host, &mut offload).1, [by_tc("w0")]);

    // A device that carries no traffic any more keeps the program. Traffic may return, and
    // attaching interrupts network cards.
    host.ip("addr flush dev w0");
    assert_eq!(update(&host, &mut offload), (vec![], vec![by_tc("w0")]));
}

#[test]
fn interfaces_that_an_operator_named() {
    let Some((host, mut offload)) = offload(&["v0"]) else { return };
    let (changes, shown) = update(&host, &mut offload);
    assert_eq!(shown, [by_sockets("v0")]);
    assert!(changes[0].contains("no such interface"), "{changes:?}");

    host.ip("link add v0 type veth peer name v1
        link set v0 up
        link set v1 up");
    assert_eq!(update(&host, &mut offload).1, [by_tc("v0")]);
    host.ip("link set v0 down
        link set v0 name w0
        link set w0 up");
    assert_eq!(update(&host, &mut offload).1, [by_tc("w0")]);
    host.ip("link add v0 type veth peer name x0
        link set v0 up");
    assert_eq!(update(&host, &mut offload).1, [by_tc("v0"), by_tc("w0")]);
    host.ip("link del v0
        link del w0");
    let (_, shown) = update(&host, &mut offload);
    assert_eq!(shown, [by_sockets("v0")], "it is waited for");
}

/// A packet leaves first by the bridge and then by the port. The last tap would determine the
/// interface of the proof.
#[test]
fn ports_of_a_bridge_have_no_tap() {
    let Some((host, mut offload)) = offload(&["v0"]) else { return };
    host.ip("link add v0 type veth peer name v1
        link set v0 up");
    if !host.run(|| succeeds("ip", "link add b0 type bridge")) {
        return test_support::skip("this kernel has no bridges");
    }
    let index = host.device("v0").index;
    assert_eq!(update(&host, &mut offload).1, [by_tc("v0")]);
    assert!(offload.path.is_tapped(index));
    host.ip("link set v0 master b0");
    assert_eq!(update(&host, &mut offload), (vec![], vec![by_tc("v0")]));
    assert!(!offload.path.is_tapped(index));
    host.ip("link set v0 nomaster");
    assert_eq!(update(&host, &mut offload), (vec![], vec![by_tc("v0")]));
    assert!(offload.path.is_tapped(index));
}

#[test]
fn where_only_the_loopback_carries_anything_there_is_none() {
    let wanted = OffloadConfig {
        hook: None,
        interfaces: Vec::new(),
        listeners: vec![Ipv4Addr::LOCALHOST.into()],
        relays: vec![Ipv4Addr::LOCALHOST.into()],
        flows: 1024,
    };
    let Some(host) = namespace() else { return };
    if !may_load() {
        return;
    }
    let why = host.run(|| start(&wanted).map(drop).unwrap_err());
    assert!(why.contains("loopback"), "{why}");
}

#[test]
fn a_setting_reset_repeatedly_is_reported_once_a_minute() {
    let Some((host, mut offload)) = offload(&[]) else { return };
    let setting = "/proc/sys/net/ipv4/conf/lo/forwarding";
    let warnings = |offload: &mut Offload, seconds: u64| {
        host.run(|| {
            std::fs::write(setting, "0").unwrap();
            let now = Instant::ZERO + Duration::from_secs(seconds);
            let changes = offload.renew_lookup(now).len();
            assert_eq!(std::fs::read_to_string(setting).unwrap().trim(), "3478");
            changes
        })
    };
    assert_eq!([0, 59, 60, 61].map(|seconds| warnings(&mut offload, seconds)), [1, 0, 1, 0]);
}

#[test]
fn programs_are_loaded_when_workers_have_routes_already() {
    let Some(host) = namespace() else { return };
    if !may_load() {
        return;
    }
    host.ip("link set lo up
        link add v0 type veth peer name v1
        addr add 192.0.2.1/24 dev v0
        link set v0 up");
    let wanted = OffloadConfig {
        hook: None,
        interfaces: Vec::new(),
        listeners: vec![ADDRESS],
        relays: vec![ADDRESS],
        flows: 1024,
    };
    host.run(|| {
        let mut offload = prepare(&wanted).unwrap();
        let mut routes = offload.routes(WorkerId(0)).unwrap();
        let id = FlowId { allocation: AllocationId::new(WorkerId(0), 1), channel: 0x4000 };
        let now = Clock::instant();
        let until = now + Duration::from_secs(60);
        let flow = Flow {
            client: "192.0.2.9:5000".parse().unwrap(),
            server: "192.0.2.1:3478".parse().unwrap(),
            channel: 0x4000,
            relayed: "192.0.2.1:50000".parse().unwrap(),
            peer: "192.0.2.8:6000".parse().unwrap(),
            hairpin: false,
            to_peer_until: until,
            to_client_until: until,
            bytes_per_second: 1000,
        };
        routes.set(now, id, &flow).unwrap();
        assert_eq!(offload.update(true), Ok(vec![]), "nothing is attached before");
        assert_eq!(offload.idle_because(), Some("its programs are being loaded"));

        offload.load().unwrap();
        assert!(offload.update(true).unwrap()[0].starts_with("v0 by tc"));
        let mut reported = Vec::new();
        routes.sweep_allocation(id.allocation, |id, carried| reported.push((id, carried)));
        assert_eq!(reported, [], "the datagrams of the self-test are not its traffic");
        assert_eq!(offload.load(), Ok(()), "once is enough");

        offload.end();
        assert_eq!(offload.update(true), Ok(vec![]), "the interfaces are another process's");
    });
}
