//! The packet path allocates no memory, for relayed packets, dropped packets, and the response to a
//! Binding request.

mod support;

use std::hint::black_box;

use lab_net::allocations::Counting;
use stun_wire::*;
use support::*;
use turn_proto::*;
use turn_types::*;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Counts the allocations of `work`, after it has run once to warm up.
fn allocations(mut work: impl FnMut()) -> u64 {
    work();
    let before = lab_net::allocations::on_this_thread();
    for _ in 0..1000 {
        work();
    }
    lab_net::allocations::on_this_thread() - before
}

#[test]
fn a_relayed_packet_costs_no_allocation() {
    let mut policy = policy();
    policy.quotas.bytes_per_second = 1 << 40;
    let mut world = World::with(policy);
    let mut client = Client::new(1);
    let relayed = client.allocate(&mut world);
    client.bind(&mut world, 0x4000, PEER).success();
    client.permit(&mut world, &["192.0.2.20:1"]).success();
    let channel = client::channel_message(0x4000, &[0; 1000]);
    let unbound = client::channel_message(0x4001, &[0; 1000]);
    let send = |client: &mut Client, to| {
        client.indication(Method::SEND, |builder| {
            builder.xor_address(AttributeType::XOR_PEER_ADDRESS, addr(to)).data(&[0; 1000]);
        })
    };
    let sent = send(&mut client, "192.0.2.20:1");
    let forbidden = send(&mut client, "192.0.2.66:1");
    let binding = client.bare(Method::BINDING, |_| ());
    let relay = world.socket_at(relayed);
    let (now, path, server) = (world.now, client.path, &mut world.server);
    let mut reply = [0; REPLY_MAX];

    let packets = [channel, unbound, sent, forbidden, binding, vec![0xFF; 100], vec![0; 100]];
    let mut fates = [0; 3];
    let spent = allocations(|| {
        for packet in &packets {
            let verdict = server.handle_client(now, &path, IpMeta::DEFAULT, packet, &mut reply);
            match black_box(verdict) {
                Verdict::ToPeer { .. } => fates[0] += 1,
                Verdict::Reply { .. } => fates[1] += 1,
                Verdict::Drop(_) => fates[2] += 1,
                Verdict::ReplyFrom { .. }
                | Verdict::ToClient { .. }
                | Verdict::Wait
                | Verdict::Hold
                | Verdict::Queued => {
                    panic!("{verdict:?}")
                }
            }
        }
    });
    assert_eq!(spent, 0, "from clients");
    assert_eq!(fates, [2 * 1001, 1001, 4 * 1001], "what was meant to happen did");

    let peers = [peer(PEER), peer("192.0.2.20:1"), peer("192.0.2.66:1")];
    let mut header = [0; HEADER_MAX];
    let mut fates = [0; 2];
    let spent = allocations(|| {
        for peer in peers {
            let meta = IpMeta::DEFAULT;
            let verdict = server.handle_peer(now, relay, peer, meta, 1000, &mut header);
            fates[usize::from(matches!(black_box(verdict), Verdict::Drop(_)))] += 1;
        }
    });
    assert_eq!(spent, 0, "from peers");
    assert_eq!(fates, [2 * 1001, 1001]);

    let report = IcmpReport { family: IpFamily::V4, kind: 3, code: 3, data: 0 };
    let spent = allocations(|| {
        black_box(server.handle_icmp(now, relay, peers[0], report, &mut reply)).unwrap();
    });
    assert_eq!(spent, 0, "ICMP");
}
