//! Senders on the same machine, on virtual links. Their checksums are completed by the device that
//! sends the packet to a wire, if any. The programs relay these packets as well, and the received
//! data must equal the sent data.

mod hosts;

use netsim::Rng;
use xdp_relay::device::Hook;

use self::hosts::{Call, End, Hosts, received};
use crate::support::inside;

const HOOKS: [Hook; 2] = [Hook::Tc, Hook::Xdp];

/// Creates a call for every combination of families.
fn calls(hosts: &mut Hosts) -> [Call; 4] {
    [(false, false), (false, true), (true, false), (true, true)]
        .map(|(client, peer)| hosts.call(client, peer))
}

/// Sends payloads of increasing lengths in both directions of every combination of families. The
/// kernel must relay all of them.
fn exchange(hosts: &mut Hosts, step: usize) -> u64 {
    let calls = calls(hosts);
    let data = Rng::new(1).bytes(1500);
    let mut sent = 0;
    for call in &calls {
        hosts.renew();
        for len in (0..=call.longest()).step_by(step) {
            call.to_peer(&data[..len]);
            call.to_client(&data[data.len() - len..]);
            sent += 1;
        }
    }
    assert_eq!(hosts.counted(), [sent; 2], "{:?}", hosts.path.passed());
    2 * sent
}

#[test]
fn every_length_arrives_both_ways_in_all_families() {
    for hook in HOOKS {
        inside(|| {
            let mut hosts = Hosts::new(hook);
            let sent = exchange(&mut hosts, 1);
            assert_eq!(hosts.path.partial_checksums(), sent, "{hook}");
        });
    }
}

/// The outbound interface completes the checksums. The checksum must be valid wherever the
/// interface expects it.
#[test]
fn interfaces_without_offload_complete_them() {
    for hook in HOOKS {
        inside(|| {
            let mut hosts = Hosts::new(hook);
            hosts.features(End::Here, "tx off");
            let sent = exchange(&mut hosts, 7);
            assert_eq!(hosts.path.partial_checksums(), sent, "{hook}");
        });
    }
}

#[test]
fn one_end_that_completes_its_own() {
    for hook in HOOKS {
        for end in [End::Client, End::Peer] {
            inside(|| {
                let mut hosts = Hosts::new(hook);
                hosts.features(end, "tx off");
                let sent = exchange(&mut hosts, 7);
                assert_eq!(hosts.path.partial_checksums(), sent / 2, "{hook}, {end:?}");
            });
        }
    }
}

/// A complete checksum that equals the sum of the pseudo header by chance is not treated as
/// partial.
#[test]
fn complete_checksums_that_look_partial() {
    for hook in HOOKS {
        inside(|| {
            let mut hosts = Hosts::new(hook);
            hosts.features(End::Client, "tx off");
            hosts.features(End::Peer, "tx off");
            let calls = calls(&mut hosts);
            for call in &calls {
                for rest in [&b"even"[..], b"odd"] {
                    let [to_peer, to_client] = [false, true].map(|way| tuned(call, way, rest));
                    // Building the payloads may have taken long.
                    hosts.renew();
                    call.to_peer(&to_peer);
                    call.to_client(&to_client);
                }
            }
            assert_eq!(hosts.counted(), [8; 2], "{hook}: {:?}", hosts.path.passed());
            if hook == Hook::Tc {
                assert_eq!(hosts.path.partial_checksums(), 0, "the kernel knows better");
            }
        });
    }
}

/// Builds a payload whose datagram has the sum of the pseudo header as checksum.
fn tuned(call: &Call, to_client: bool, rest: &[u8]) -> Vec<u8> {
    use crate::support::frame::{Check, Datagram};
    let flow = &call.flow;
    for word in 0..=u16::MAX {
        let payload = [&word.to_be_bytes()[..], rest].concat();
        let (from, to, sent) = if to_client {
            (flow.peer, flow.relayed, payload.clone())
        } else {
            (flow.client, flow.server, Call::framed(&payload))
        };
        let datagram = Datagram {
            from,
            to,
            ttl: 64,
            tos: 0,
            dont_fragment: false,
            id: 0,
            label: 0,
            payload: sent,
        };
        if datagram.checksum(Check::Right) == datagram.pseudo() {
            return payload;
        }
    }
    panic!("no word makes the sum");
}

/// ChannelData may be padded to four bytes.
#[test]
fn padding_is_cut_off() {
    for hook in HOOKS {
        inside(|| {
            let mut hosts = Hosts::new(hook);
            hosts.features(End::Here, "tx off");
            for call in calls(&mut hosts) {
                for len in 1..=9 {
                    let data = vec![0xA5; len];
                    let mut padded = Call::framed(&data);
                    padded.resize(padded.len().next_multiple_of(4), 0);
                    call.client.send_to(&padded, call.flow.server).unwrap();
                    received(&call.peer, call.flow.relayed, &data);
                }
            }
            assert_eq!(hosts.path.partial_checksums(), 36, "{hook}");
        });
    }
}

#[test]
fn from_one_client_to_another() {
    for hook in HOOKS {
        inside(|| {
            let mut hosts = Hosts::new(hook);
            hosts.features(End::Here, "tx off");
            let data = Rng::new(2).bytes(1400);
            for v6 in [false, true] {
                let (call, other) = hosts.two_clients(v6);
                for len in (0..data.len()).step_by(61) {
                    // With padding, the frame is longer than the outbound frame.
                    let mut sent = Call::framed(&data[..len]);
                    sent.resize(sent.len().next_multiple_of(4), 0);
                    call.client.send_to(&sent, call.flow.server).unwrap();
                    received(&call.peer, other, &Call::framed(&data[..len]));
                }
            }
            assert_eq!(hosts.path.partial_checksums(), 2 * 1400_u64.div_ceil(61), "{hook}");
        });
    }
}

/// The worker has no checksum to verify.
#[test]
fn peers_of_clients_with_connections() {
    for hook in HOOKS {
        inside(|| {
            let mut hosts = Hosts::new(hook);
            let data = Rng::new(3).bytes(1400);
            for v6 in [false, true] {
                let (peer, flow) = hosts.peer_of_a_connection(v6);
                for len in (1..data.len()).step_by(61) {
                    peer.send_to(&data[..len], flow.relayed).unwrap();
                    let mut came = None;
                    test_support::eventually("it is in the ring", || {
                        came = hosts.delivered(&flow);
                        came.is_some()
                    });
                    assert_eq!(came.flatten().as_deref(), Some(&data[..len]), "{hook}");
                }
            }
            assert_eq!(hosts.path.partial_checksums(), 2 * 1399_u64.div_ceil(61), "{hook}");
        });
    }
}

/// Datagrams sent with one call arrive in one buffer, which has only the headers of the first
/// datagram.
#[test]
fn datagrams_sent_at_once_are_left_to_the_sockets() {
    inside(|| {
        let mut hosts = Hosts::new(Hook::Tc);
        let call = hosts.call(false, false);
        hosts.burst_to_client(call, 3);
        test_support::eventually("they are counted", || hosts.passed("merged") == 1);
        assert_eq!(hosts.counted(), [0; 2]);
    });
    // If a driver has a program, datagrams are segmented before.
    inside(|| {
        let mut hosts = Hosts::new(Hook::Xdp);
        let call = hosts.call(false, false);
        let client = hosts.burst_to_client(call, 3);
        let mut bytes = [0; 2048];
        for number in 0..3 {
            let len = client.recv(&mut bytes).unwrap();
            assert_eq!(bytes[..len], Call::framed(&[number; 160]));
        }
        assert_eq!(hosts.counted(), [0, 3]);
    });
}

/// The generic hook cannot distinguish one datagram from several, and a device would complete the
/// checksum at the old location of the UDP header.
#[test]
fn the_generic_hook_leaves_them_to_the_sockets() {
    inside(|| {
        let mut hosts = Hosts::new(Hook::XdpGeneric);
        let calls = calls(&mut hosts);
        for call in &calls {
            call.client.send_to(&Call::framed(b"data"), call.flow.server).unwrap();
            call.peer.send_to(b"data", call.flow.relayed).unwrap();
        }
        let call = hosts.call(false, false);
        hosts.burst_to_client(call, 3);
        test_support::eventually("they are counted", || hosts.passed("checksum") == 9);
        assert_eq!(hosts.counted(), [0; 2]);
        // Packets with complete checksums are relayed.
        hosts.features(End::Client, "tx off");
        hosts.features(End::Peer, "tx off");
        for call in &calls {
            call.to_peer(b"data");
            call.to_client(b"data");
        }
    });
}
