//! Random walks in which routes and rules agree: a packet is forwarded if, and only if, a route
//! forwards it, and to the same address.

use std::net::SocketAddr;

use client::channel_message;
use netsim::Rng;
use test_support::for_each_seed;
use turn_proto::*;
use turn_types::*;

use crate::support::*;

const PEER_2: &str = "192.0.2.20:1";

/// Channel numbers that are bound and tried; the last one is of RFC 5766.
const NUMBERS: [u16; 3] = [0x4000, 0x4001, 0x5000];

/// A world in which anything happens, and how often a route was followed each way.
struct Walk {
    world: World,
    rng: Rng,
    /// Rules as they were in the beginning.
    first: Policy,
    clients: [Client; 3],
    followed: [u32; 2],
    /// Number of steps without a route to follow.
    withdrawn: u32,
}

impl Walk {
    fn new(seed: u64) -> Self {
        let world = World::new();
        Self {
            first: world.policy.clone(),
            world,
            rng: Rng::new(seed),
            clients: [Client::new(1), Client::v6(2), Client::new(3).over(Transport::Tcp)],
            followed: [0; 2],
            withdrawn: 0,
        }
    }

    /// Peers of both families, and the relayed addresses of clients.
    fn peers(&self) -> Vec<String> {
        let outside = [PEER, "192.0.2.10:5001", PEER_2, PEER_V6].map(String::from);
        let own = self.world.sockets.values().map(|at| at.to_string());
        outside.into_iter().chain(own).collect()
    }

    fn step(&mut self) {
        let peers = self.peers();
        let Self { world, rng, clients, .. } = self;
        let (one, other) = (rng.pick(&peers).as_str(), rng.pick(&peers).as_str());
        let client = rng.pick(&[0, 0, 1, 2]);
        let client = &mut clients[*client];
        client.nonce = None;
        let lifetime = *rng.pick(&[0, 600, 700, 3600, 3600]);
        match rng.below(16) {
            0..=1 => _ = client.try_allocate(world, |b| _ = b.additional_address_family(2)),
            2..=3 => _ = client.permit(world, &[one, other]),
            4..=9 => _ = client.bind(world, *rng.pick(&NUMBERS), one),
            10 => _ = client.refresh(world, Some(lifetime)),
            11 => _ = client.refresh_half(world, *rng.pick(&[1, 2]), lifetime),
            12..=13 => {
                let pause = secs(*rng.pick(&[1, 99, 100, 200, 299, 300, 301, 600]));
                if rng.below(2) == 0 { world.advance(pause) } else { world.advance_silently(pause) }
            }
            14 => self.reload(),
            _ => {
                let ids: Vec<_> = world.server.allocations().map(|one| one.id).collect();
                if !ids.is_empty() && rng.below(4) == 0 {
                    let id = *rng.pick(&ids);
                    world.server.end_allocation(world.now, id, EndReason::EndedByOperator);
                    world.carry_out();
                }
            }
        }
    }

    /// Applies other rules, or the first rules again.
    fn reload(&mut self) {
        let mut policy = self.first.clone();
        match self.rng.below(6) {
            0 => policy.peer_rules = rules(&["192.0.2.10/32"]),
            1 => policy.rfc5766_clients = true,
            2 => policy.quotas.bytes_per_second = 1 << 40,
            3 => _ = policy.relay.remove(self.rng.index(2)),
            4 => policy.lifetimes.permission = secs(100),
            _ => {}
        }
        self.world.apply(policy);
    }

    /// Sends every packet that a route could apply to. The server forwards the packet if, and only
    /// if, a route exists, and to the same address.
    fn agree(&mut self) {
        for client in [0, 1] {
            for number in NUMBERS {
                self.agree_to_peer(client, number);
            }
        }
        let relayed: Vec<SocketAddr> = self.world.sockets.values().map(|at| at.0).collect();
        for relayed in relayed {
            for peer in self.peers() {
                self.agree_to_client(relayed, &peer);
            }
        }
    }

    fn agree_to_peer(&mut self, client: usize, number: u16) {
        let now = self.world.now.instant;
        // The first packet of a channel installs its route.
        let fate = self.clients[client].send_channel(&mut self.world, number, b"x");
        let five_tuple = self.clients[client].path.five_tuple;
        let mut routes = self.world.routes.values().filter(|one| {
            (one.five_tuple, one.id.channel) == (five_tuple, number) && now < one.to_peer_until
        });
        let route = routes.next().copied();
        assert_eq!(routes.next(), None, "two ways for one packet");
        match (fate, route) {
            (Fate::ToPeer { from, to, .. }, Some(route)) => {
                assert_eq!((from, to), (route.relayed, route.peer));
                self.followed[0] += 1;
            }
            // The other allocation may have ended: of that a hairpin's route tells nothing.
            (Fate::Drop(DropReason::OwnAddress), Some(route)) => assert!(route.own, "{route:?}"),
            (Fate::Drop(_), None) => self.withdrawn += 1,
            (fate, route) => panic!("{fate:?}, but {route:?}"),
        }
    }

    fn agree_to_client(&mut self, relayed: SocketAddr, from: &str) {
        let now = self.world.now.instant;
        let fate = self.world.from_peer(relayed, from, b"x");
        let mut routes = self.world.routes.values().filter(|one| {
            (one.relayed.0, one.peer) == (relayed, peer(from)) && now < one.to_client_until
        });
        let route = routes.next().copied();
        assert_eq!(routes.next(), None, "two ways for one packet");
        match (fate, route) {
            (Fate::ToClient { to, from, bytes, .. }, Some(route)) => {
                let FiveTuple { client, server, transport } = route.five_tuple;
                assert_eq!((to, from), (client, server.ip()));
                // On a stream it is padded to four bytes.
                let padding = if transport == Transport::Tcp { 3 } else { 0 };
                let message = [channel_message(route.id.channel, b"x"), vec![0; padding]].concat();
                assert_eq!(bytes, message);
                self.followed[1] += 1;
            }
            (Fate::Drop(DropReason::OwnAddress), Some(route)) => assert!(route.own, "{route:?}"),
            (Fate::Drop(_), None) => {}
            (Fate::ToClient { bytes, .. }, None) => {
                let number = u16::from_be_bytes([bytes[0], bytes[1]]);
                let is_indication = number < 0x4000;
                // Only user space continues with a number that clients may no longer use.
                let is_retired = number > 0x4FFF && !self.world.policy.rfc5766_clients;
                assert!(is_indication || is_retired, "{number:#x} without a route");
            }
            (fate, route) => panic!("{fate:?}, but {route:?}"),
        }
    }
}

#[test]
fn routes_say_what_the_rules_say() {
    let (mut walks, mut followed, mut withdrawn) = (0, [0; 2], 0);
    for_each_seed(0..300, |seed| {
        let mut walk = Walk::new(seed);
        for _ in 0..60 {
            walk.step();
            walk.agree();
        }
        walk.world.server.end_all(walk.world.now, EndReason::Shutdown);
        walk.world.carry_out();
        assert_eq!(walk.world.routes.len(), 0);
        followed = [0, 1].map(|way| followed[way] + walk.followed[way]);
        withdrawn += walk.withdrawn;
        walks += 1;
    });
    // A single walk, repeated by its seed, may be a short walk.
    let often = |times: u32| walks == 1 || times > 5_000;
    assert!(followed.into_iter().all(often) && often(withdrawn), "{followed:?} {withdrawn}");
}
