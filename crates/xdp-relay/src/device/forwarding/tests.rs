use std::env;
use std::net::{IpAddr, UdpSocket};
use std::process;

use test_support::eventually;

use super::super::testing::{Namespace, Way, command, look_up, may_load, namespace};
use super::*;

fn setting(host: &Namespace, name: &str) -> String {
    let path = Path::new(SETTINGS).join(name);
    host.run(|| fs::read_to_string(path).unwrap().trim().to_owned())
}

fn set_by_hand(host: &Namespace, name: &str, value: &str) {
    let path = Path::new(SETTINGS).join(name);
    host.run(|| fs::write(path, value).unwrap());
}

/// Creates a namespace without forwarding, like a host that is not a router. New namespaces inherit
/// some settings of the host.
fn no_router() -> Option<Namespace> {
    let host = namespace()?;
    for name in ["ipv4/conf/all/forwarding", "ipv6/conf/all/forwarding"] {
        set_by_hand(&host, name, "0");
    }
    for name in ["ipv4/conf/lo/forwarding", "ipv6/conf/lo/forwarding"] {
        assert_eq!(setting(&host, name), "0");
    }
    Some(host)
}

/// Host between two other hosts that can reach each other only through this host.
struct Between {
    client: Namespace,
    host: Namespace,
    peer: Namespace,
}

impl Between {
    fn new() -> Option<Self> {
        let between = Self { client: namespace()?, host: no_router()?, peer: namespace()? };
        let Self { client, host, peer } = &between;
        let (client_path, peer_path) = (client.path(), peer.path());
        host.ip(&format!(
            "link set lo up
            link add c0 address 02:00:00:00:01:01 type veth peer name e0 address 02:00:00:00:01:02 netns {client_path}
            link add p0 address 02:00:00:00:02:01 type veth peer name e0 address 02:00:00:00:02:02 netns {peer_path}
            addr add 10.1.0.1/24 dev c0
            addr add fd01::1/64 dev c0 nodad
            addr add 10.2.0.1/24 dev p0
            addr add fd02::1/64 dev p0 nodad
            link set c0 up
            link set p0 up"
        ));
        for (end, number) in [(client, 1), (peer, 2)] {
            end.ip(&format!(
                "addr add 10.{number}.0.2/24 dev e0
                addr add fd0{number}::2/64 dev e0 nodad
                link set e0 up
                route add default via 10.{number}.0.1
                -6 route add default via fd0{number}::1
                neigh add 10.{number}.0.1 lladdr 02:00:00:00:0{number}:01 dev e0
                neigh add fd0{number}::1 lladdr 02:00:00:00:0{number}:01 dev e0"
            ));
        }
        host.ip("neigh add 10.2.0.2 lladdr 02:00:00:00:02:02 dev p0
            neigh add fd02::2 lladdr 02:00:00:00:02:02 dev p0");
        Some(between)
    }

    /// Looks up the next hop from the host's address to the peer.
    fn look_up(&self, from: u32) -> [Way; 2] {
        [("10.2.0.1", "10.2.0.2"), ("fd02::1", "fd02::2")].map(|(source, destination)| {
            let (source, destination) = (source.parse().unwrap(), destination.parse().unwrap());
            self.host.run(|| look_up(from, source, destination))
        })
    }
}

#[test]
fn next_hops_are_looked_up_and_no_packet_is_forwarded() {
    let Some(between) = Between::new() else { return };
    if !may_load() {
        return;
    }
    let Between { client, host, peer } = &between;
    let came_by = host.device("c0").index;
    let out = host.device("p0").index;
    let disabled = [Way::ForwardingDisabled, Way::ForwardingDisabled];
    assert_eq!(between.look_up(came_by), disabled);
    assert_eq!(between.look_up(LOOPBACK), disabled);

    let lookup = host.run(|| prepare().unwrap());
    assert_eq!(lookup.from, LOOPBACK);
    assert!(lookup.refused.is_none());
    assert_eq!(between.look_up(lookup.from), [Way::Found(out), Way::Found(out)]);
    assert_eq!(between.look_up(came_by), disabled);

    // The client cannot send to the peer through this host until the host becomes a router.
    // Datagrams that arrive first were sent before, because the link preserves the order. The link
    // may lose datagrams: a new interface sends nothing at first, and the queue of a processor may
    // be full.
    for (family, from, to) in [("ipv4", "10.1.0.2", "10.2.0.2"), ("ipv6", "fd01::2", "fd02::2")] {
        let (from, to): (IpAddr, IpAddr) = (from.parse().unwrap(), to.parse().unwrap());
        let sender = client.run(|| UdpSocket::bind((from, 0)).unwrap());
        let receiver = peer.run(|| UdpSocket::bind((to, 4000)).unwrap());
        receiver.set_nonblocking(true).unwrap();
        for _ in 0..10 {
            sender.send_to(b"through a host", (to, 4000)).unwrap();
        }
        let all = format!("{family}/conf/all/forwarding");
        set_by_hand(host, &all, "1");
        let mut buffer = [0; 64];
        eventually("a router lets a datagram through", || {
            sender.send_to(b"through a router", (to, 4000)).unwrap();
            let Ok(len) = receiver.recv(&mut buffer) else { return false };
            assert_eq!(&buffer[..len], b"through a router");
            true
        });
        set_by_hand(host, &all, "0");
    }
}

#[test]
fn it_is_the_way_of_a_local_socket() {
    let Some(between) = Between::new() else { return };
    if !may_load() {
        return;
    }
    let host = &between.host;
    // The host's packets leave by another device than forwarded packets.
    host.ip("link add o0 type veth peer name o0x
        addr add 10.3.0.1/24 dev o0
        link set o0x up
        link set o0 up
        neigh add 10.3.0.2 lladdr 02:00:00:00:03:02 dev o0
        route add default via 10.2.0.2
        route add default via 10.3.0.2 table 100
        rule add iif lo table 100");
    let lookup = host.run(|| prepare().unwrap());
    let way = |from: u32| {
        let ips = ["10.2.0.1", "192.0.2.1"].map(|ip| ip.parse().unwrap());
        host.run(|| look_up(from, ips[0], ips[1]))
    };
    assert_eq!(way(lookup.from), Way::Found(host.device("o0").index));
    set_by_hand(host, "ipv4/conf/c0/forwarding", "1");
    assert_eq!(way(host.device("c0").index), Way::Found(host.device("p0").index));
}

#[test]
fn settings_are_put_back_where_they_were_changed() {
    let Some(host) = no_router() else { return };
    let names = ["ipv4/conf/lo/forwarding", "ipv6/conf/lo/forwarding"];
    let read = || names.map(|name| setting(&host, name));
    set_by_hand(&host, names[0], "1");
    let lookup = host.run(|| prepare().unwrap());
    assert_eq!(read(), ["1", "3478"]);
    assert_eq!(lookup.switched_on(), ["net.ipv6.conf.lo.forwarding"]);
    // This thread is not in the namespace of the settings.
    drop(lookup);
    assert_eq!(read(), ["1", "0"]);
    assert_eq!(setting(&host, "ipv4/conf/all/forwarding"), "0");
    assert_eq!(setting(&host, "ipv6/conf/all/forwarding"), "0");
}

#[test]
fn the_last_server_that_ends_puts_settings_back() {
    let Some(host) = no_router() else { return };
    let names = ["ipv4/conf/lo/forwarding", "ipv6/conf/lo/forwarding"];
    let read = || names.map(|name| setting(&host, name));
    let first = host.run(|| prepare().unwrap());
    let second = host.run(|| prepare().unwrap());
    drop(first);
    assert_eq!(read(), ["3478", "3478"], "the other needs them");
    let third = host.run(|| prepare().unwrap());
    drop(second);
    assert_eq!(read(), ["3478", "3478"]);
    drop(third);
    assert_eq!(read(), ["0", "0"]);
}

#[test]
fn settings_of_a_killed_server_are_restored_by_the_next() {
    let Some(host) = no_router() else { return };
    let names = ["ipv4/conf/lo/forwarding", "ipv6/conf/lo/forwarding"];
    names.iter().for_each(|name| set_by_hand(&host, name, "3478"));
    let lookup = host.run(|| prepare().unwrap());
    assert_eq!(lookup.switched_on().len(), 2);
    drop(lookup);
    assert_eq!(names.map(|name| setting(&host, name)), ["0", "0"]);
}

#[test]
fn settings_of_other_programs_are_reported_or_left() {
    let Some(host) = no_router() else { return };
    let names = ["ipv4/conf/lo/forwarding", "ipv6/conf/lo/forwarding"];
    let lookup = host.run(|| prepare().unwrap());
    assert_eq!(lookup.renew(), [""; 0]);
    set_by_hand(&host, names[0], "0");
    set_by_hand(&host, names[1], "1");
    let told = lookup.renew();
    assert!(told.len() == 1 && told[0].contains("net.ipv4.conf.lo.forwarding"), "{told:?}");
    assert_eq!(names.map(|name| setting(&host, name)), ["3478", "1"]);
    drop(lookup);
    assert_eq!(names.map(|name| setting(&host, name)), ["0", "1"], "what they set stays");
}

/// Calls [`prepare`] in a separate mount namespace with a read-only /proc/sys, as in containers.
fn prepare_in_container(host: &Namespace) -> Result<Lookup, Refused> {
    host.run(|| {
        // SAFETY: takes no pointers. Only this thread has the new mounts, and the thread exits.
        assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWNS) }, 0);
        command("mount", "--make-rprivate /");
        command("mount", "--bind /proc/sys /proc/sys");
        command("mount", "-o remount,bind,ro /proc/sys");
        prepare()
    })
}

#[test]
fn unwritable_settings_are_reported_with_a_remedy() {
    let Some(between) = Between::new() else { return };
    let host = &between.host;
    let error = prepare_in_container(host).unwrap_err().to_string();
    for part in [
        "/proc/sys/net/ipv4/conf/lo/forwarding",
        "Read-only file system",
        "sysctl -w net.ipv4.conf.lo.forwarding=1",
        "--sysctl net.ipv6.conf.lo.forwarding=1",
    ] {
        assert!(error.contains(part), "{part}: {error}");
    }

    // One of two families works.
    set_by_hand(host, "ipv4/conf/lo/forwarding", "1");
    let lookup = prepare_in_container(host).unwrap();
    assert_eq!(lookup.from, LOOPBACK);
    let refused = lookup.refused.unwrap().to_string();
    assert!(refused.contains("ipv6") && !refused.contains("ipv4"), "{refused}");

    // Both families work, because of settings made from outside.
    set_by_hand(host, "ipv6/conf/lo/forwarding", "1");
    let lookup = prepare_in_container(host).unwrap();
    assert_eq!(lookup.from, LOOPBACK);
    assert!(lookup.refused.is_none());
}

#[test]
fn a_router_needs_no_setting_of_the_loopback() {
    let Some(between) = Between::new() else { return };
    let host = &between.host;
    for family in FAMILIES {
        set_by_hand(host, &format!("{family}/conf/all/forwarding"), "1");
        set_by_hand(host, &format!("{family}/conf/lo/forwarding"), "0");
    }
    let lookup = prepare_in_container(host).unwrap();
    assert_eq!(lookup.from, 0);
    assert!(lookup.refused.is_none());
    if may_load() {
        let out = host.device("p0").index;
        let ways = between.look_up(host.device("c0").index);
        assert_eq!(ways, [Way::Found(out), Way::Found(out)]);
    }
}

#[test]
fn a_host_without_one_family_needs_nothing_for_it() {
    let settings = env::temp_dir().join(format!("turnpike-forwarding-{}", process::id()));
    let v4 = settings.join("ipv4/conf/lo/forwarding");
    fs::create_dir_all(v4.parent().unwrap()).unwrap();
    fs::write(&v4, "0\n").unwrap();
    let lookup = prepare_in(&settings).unwrap();
    assert_eq!((lookup.from, lookup.refused.is_none()), (LOOPBACK, true));
    assert_eq!(fs::read_to_string(&v4).unwrap(), "3478\n");
    drop(lookup);
    assert_eq!(fs::read_to_string(&v4).unwrap().lines().next(), Some("0"));
    fs::remove_dir_all(&settings).unwrap();
    // Without settings look-ups cannot be enabled.
    assert!(prepare_in(&settings).unwrap_err().to_string().contains("mount /proc"));
}
