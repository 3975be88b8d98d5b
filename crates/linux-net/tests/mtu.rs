//! Datagrams larger than an MTU: fragments, DF, refused runs, ICMP of routers.
//!
//! The loopback's MTU is larger than any datagram, so each test runs itself again in a separate
//! network namespace. If the system forbids namespaces (containers without user namespaces), the
//! test is skipped, and `make test` counts the skip.

use std::process::Command;

use linux_net::{Flow, IcmpReport, RxBatch, SendError, SendStats, TxBatch, Warning};
use turn_types::{IpFamily, IpMeta};

use crate::support::{self, V4, V6, bind, errors, flow, receive, send, sizes, try_send};

/// Environment variable that is set in the inner run. The value does not matter.
const INSIDE: &str = "LINUX_NET_TEST_NAMESPACE";

/// Environment variable with the process in the router's namespace. Set only if there is a router.
const ROUTER: &str = "LINUX_NET_TEST_ROUTER";

const SMALL_LOOPBACK: &str = "ip link set lo mtu 1500 up";

/// Setup of a second namespace that forwards to a network with a smaller MTU. Neither side resolves
/// link addresses. This side has the router's address, and a test adds this side's address to the
/// router.
const BEHIND_A_ROUTER: &str = "
    ip link set lo up
    unshare -n sleep 600 & router=$!
    trap 'kill $router' EXIT
    until [ \"$(readlink /proc/$router/ns/net)\" != \"$(readlink /proc/self/ns/net)\" ]; do :; done
    ip link add near address 02:00:00:00:00:01 type veth \
        peer name far address 02:00:00:00:00:02 netns $router
    ip link set near arp off
    ip addr add 10.0.0.1/24 dev near
    ip addr add fd00::1/64 dev near nodad
    ip link set near up
    nsenter -t $router -n sh -ec '
        ip addr add 10.0.0.2/24 dev far
        ip addr add fd00::2/64 dev far nodad
        ip link set far up
        ip link add beyond type veth peer name end
        ip link set end up
        ip link set beyond mtu 1280 up
        ip addr add 10.0.1.1/24 dev beyond
        ip addr add fd01::1/64 dev beyond nodad
        echo 1 > /proc/sys/net/ipv4/ip_forward
        echo 1 > /proc/sys/net/ipv6/conf/all/forwarding
    '
    ip neigh add 10.0.0.2 lladdr 02:00:00:00:00:02 dev near
    ip neigh add fd00::2 lladdr 02:00:00:00:00:02 dev near
    ip route add 10.0.1.0/24 via 10.0.0.2
    ip route add fd01::/64 via fd00::2
    export LINUX_NET_TEST_ROUTER=$router
";

/// Returns true in the inner run. The outer run executes the test again in a namespace prepared by
/// `setup`, and fails if the inner run fails.
#[expect(clippy::unwrap_used, reason = "a test may fail here as well")]
fn inside(setup: &str) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    let unshare = ["-r", "-n", "sh", "-ec"];
    let permitted = Command::new("unshare").args(unshare).arg("ip link set lo up").output();
    if !permitted.is_ok_and(|output| output.status.success()) {
        test_support::skip("network namespaces are not permitted here");
        return false;
    }
    // The thread of a test has the test's name.
    let thread = std::thread::current();
    let test = thread.name().unwrap();
    let output = Command::new("unshare")
        .args(unshare)
        .arg(format!("{setup}\n\"$0\" --exact {test} --nocapture"))
        .arg(std::env::current_exe().unwrap())
        .env(INSIDE, "1")
        .output()
        .unwrap();
    let (out, err) = (&output.stdout, &output.stderr);
    assert!(
        output.status.success() && String::from_utf8_lossy(out).contains("1 passed"),
        "{}{}",
        String::from_utf8_lossy(out),
        String::from_utf8_lossy(err)
    );
    false
}

/// Runs a command in the router's namespace.
#[expect(clippy::unwrap_used, reason = "a test may fail here as well")]
fn on_router(command: &str) {
    let router = std::env::var(ROUTER).unwrap();
    let status =
        Command::new("nsenter").args(["-t", &router, "-n", "sh", "-ec", command]).status().unwrap();
    assert!(status.success(), "{command}");
}

fn no_fragments(flow: Flow) -> Flow {
    Flow { meta: IpMeta { dont_fragment: true, ..IpMeta::DEFAULT }, ..flow }
}

#[test]
fn segments_that_do_not_fit_are_sent_one_by_one_in_fragments() {
    if !inside(SMALL_LOOPBACK) {
        return;
    }
    for (family, fits) in [(V4, 1472), (V6, 1452)] {
        let (sender, receiver) = (bind(family), bind(family));
        let (mut batch, mut stats) = (TxBatch::new(), SendStats::default());
        for (size, refused) in [(fits, 0), (fits + 1, 1), (fits + 1, 1), (3000, 1), (fits, 1)] {
            for tag in 0..3 {
                let part = batch.arena_write(&vec![tag as u8; size]).unwrap();
                batch.push(flow(receiver.local_addr()), &[part], tag).unwrap();
            }
            let rx = RxBatch::new(1);
            batch.flush(&rx, &sender, &mut stats, |tag, error| panic!("{tag}: {error:?}"));
            let messages = receive(&receiver, 3);
            let expected = if size > fits { vec![vec![size]; 3] } else { vec![vec![size; 3]] };
            assert_eq!(sizes(&messages), expected, "{family} {size}");
            assert_eq!(stats.refused_runs, refused, "{family} {size}");
        }
        let warning = batch.take_warnings();
        assert!(matches!(warning, Some(Warning::RunRefused { segment_size, .. })
            if segment_size == fits + 1));
    }
}

#[test]
fn df_refuses_long_datagrams_and_affects_no_other() {
    if !inside(SMALL_LOOPBACK) {
        return;
    }
    for (family, fits) in [(V4, 1472), (V6, 1452)] {
        let (sender, receiver) = (bind(family), bind(family));
        let to = flow(receiver.local_addr());
        let (over, fitting) = (vec![1; fits + 1], vec![2; fits]);
        let mut batch = TxBatch::new();
        let order = [(to, &over), (no_fragments(to), &over), (no_fragments(to), &fitting)];
        for (tag, (flow, bytes)) in (0..).zip(order.into_iter().chain([(to, &over)])) {
            let part = batch.arena_write(bytes).unwrap();
            batch.push(flow, &[part], tag).unwrap();
        }
        let (stats, failed) = support::flush(&mut batch, &sender);
        assert_eq!(failed, [(1, SendError::TooBig)], "{family}");
        assert_eq!((stats.datagrams, stats.failed), (3, 1));
        assert_eq!(sizes(&receive(&receiver, 3)), [[fits + 1], [fits], [fits + 1]]);
        // This host detected the fault, so no ICMP message exists.
        let reported = errors(&sender);
        assert!(!reported.is_empty());
        for error in reported {
            assert_eq!((error.errno, error.icmp), (libc::EMSGSIZE, None));
            assert_eq!(error.peer.ip(), receiver.local_addr().ip());
        }
    }
}

#[test]
fn a_router_that_would_have_to_fragment_is_heard() {
    if !inside(BEHIND_A_ROUTER) {
        return;
    }
    let sender = bind("10.0.0.1:0");
    let far = flow("10.0.1.9:9".parse().unwrap());
    // The router's ICMP message waits until the router has this host's link address. Until then the
    // socket leaves the state that sets DF. The socket must receive the error nevertheless.
    send(&sender, no_fragments(far), &[&[1; 1400]]);
    send(&sender, far, &[&[1; 1400]]);
    on_router(
        "ip neigh add 10.0.0.1 lladdr 02:00:00:00:00:01 dev far || ip neigh replace 10.0.0.1 lladdr 02:00:00:00:00:01 dev far",
    );
    let expected = IcmpReport { family: IpFamily::V4, kind: 3, code: 4, mtu_or_zero: 1280 };
    let reported = errors(&sender);
    assert_eq!(reported.len(), 1, "{reported:?}");
    assert_eq!((reported[0].peer, reported[0].icmp), (far.to, Some(expected)));
    // DF measures the current path. An earlier ICMP message of a router does not prevent further
    // probes.
    for _ in 0..2 {
        send(&sender, no_fragments(far), &[&[1; 1400]]);
        assert_eq!(errors(&sender)[0].icmp, Some(expected));
    }

    // IPv6: the kernel learns the path MTU and fragments to that size. Larger datagrams with DF are
    // refused.
    let sender = bind("[fd00::1]:0");
    let far = flow("[fd01::9]:9".parse().unwrap());
    on_router("ip neigh replace fd00::1 lladdr 02:00:00:00:00:01 dev far");
    send(&sender, no_fragments(far), &[&[1; 1400]]);
    let expected = IcmpReport { family: IpFamily::V6, kind: 2, code: 0, mtu_or_zero: 1280 };
    let reported = errors(&sender);
    assert_eq!((reported[0].peer, reported[0].icmp), (far.to, Some(expected)));
    send(&sender, far, &[&[1; 1400]]);
    let (_, failed) = try_send(&sender, no_fragments(far), &[&[1; 1400]]);
    assert_eq!(failed, [(0, SendError::TooBig)]);
}
