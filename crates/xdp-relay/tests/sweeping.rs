//! The kernel's counts are reported in parts. Every packet is reported once, and no flow is left
//! out.

use std::collections::BTreeMap;
use std::time::Duration;

use turn_types::AllocationId;
use xdp_relay::device::Hook;
use xdp_relay::{Flow, FlowId, Verdict};

use crate::support::flow::{flow, flow_id};
use crate::support::frame::Check;
use crate::support::random::plain;
use crate::support::world::{COMES, HOOKS};
use crate::support::{World, inside};

/// Smallest part: one flow.
const ONE_FLOW: usize = 1;

/// Flows by number, with the numbers of relayed and of reported datagrams.
struct Flows {
    world: World,
    hook: Hook,
    carried: BTreeMap<FlowId, u64>,
    reported: BTreeMap<FlowId, u64>,
}

impl Flows {
    fn new(hook: Hook, numbers: impl IntoIterator<Item = u16>) -> Self {
        let world = World::new(Duration::ZERO);
        let mut flows = Self { world, hook, carried: BTreeMap::new(), reported: BTreeMap::new() };
        for number in numbers {
            flows.set(number);
        }
        flows
    }

    fn set(&mut self, number: u16) {
        let now = linux_net::Clock::instant();
        self.world.routes.renew(now);
        self.world.routes.set(now, flow_id(number), &flow(number)).unwrap();
    }

    /// Makes a flow relay a datagram of its client.
    fn carry(&mut self, number: u16) {
        let Flow { client, server, channel, .. } = flow(number);
        let payload = [&channel.to_be_bytes()[..], &[0, 4], b"data"].concat();
        let frame = plain(client, server, payload).frame(COMES, Check::Right);
        let ran = self.world.path.run(self.hook, &frame, 1).unwrap();
        assert_eq!(ran.verdict, Verdict::Redirect);
        *self.carried.entry(flow_id(number)).or_default() += 1;
    }

    fn remove(&mut self, number: u16) {
        let last = self.world.routes.remove(flow_id(number));
        *self.reported.entry(flow_id(number)).or_default() += last.to_peer_packets;
    }

    /// Sweeps one part. Returns the reported flows, and true at the end of a round.
    fn sweep(&mut self, cells_max: usize) -> (Vec<FlowId>, bool) {
        let mut flows = Vec::new();
        let is_over =
            self.world.routes.sweep(linux_net::Clock::instant(), cells_max, |id, carried| {
                *self.reported.entry(id).or_default() += carried.to_peer_packets;
                flows.push(id);
            });
        (flows, is_over)
    }
}

#[test]
fn a_part_visits_no_more_than_it_may_and_a_round_visits_all() {
    for hook in HOOKS {
        inside(|| {
            let mut flows = Flows::new(hook, 1..=20);
            for _ in 0..2 {
                (1..=20).for_each(|number| flows.carry(number));
                for number in 1..=20 {
                    assert_eq!(flows.sweep(ONE_FLOW), (vec![flow_id(number)], number == 20));
                }
            }
            (1..=20).for_each(|number| flows.carry(number));
            assert_eq!(
                flows.sweep(usize::MAX),
                ((1..=20).map(flow_id).collect(), true),
                "all at once"
            );
            assert_eq!(flows.sweep(usize::MAX), (vec![], true), "nothing is reported twice");
            assert_eq!(flows.reported, flows.carried);
        });
    }
}

#[test]
fn flows_that_end_within_a_round_are_reported_once() {
    for hook in HOOKS {
        inside(|| {
            let mut flows = Flows::new(hook, 1..=8);
            (1..=8).for_each(|number| flows.carry(number));
            for _ in 0..3 {
                flows.sweep(ONE_FLOW);
            }
            (1..=8).for_each(|number| flows.carry(number));
            // A visited flow, the next flow, a flow not visited yet, and the last flow of the
            // round.
            for number in [2, 4, 6, 8] {
                flows.remove(number);
            }
            // One of the flows is installed again, with a separate count.
            flows.set(6);
            flows.carry(6);
            while !flows.sweep(ONE_FLOW).1 {}
            assert_eq!(
                flows.sweep(usize::MAX).0,
                [1, 3].map(flow_id),
                "visited before they went on"
            );
            assert_eq!(flows.reported, flows.carried);
            // All flows of the round are removed.
            flows.sweep(ONE_FLOW);
            for number in [1, 3, 5, 6, 7] {
                flows.remove(number);
            }
            assert_eq!(flows.sweep(ONE_FLOW), (vec![], true));
            assert_eq!(flows.sweep(ONE_FLOW), (vec![], true));
        });
    }
}

#[test]
fn new_flows_make_no_round_longer() {
    inside(|| {
        let mut flows = Flows::new(Hook::Xdp, 1..=8);
        flows.carry(1);
        for number in 1..=8 {
            assert_eq!(flows.sweep(ONE_FLOW).1, number == 8);
            flows.set(100 + number);
        }
        flows.carry(1);
        assert_eq!(
            flows.sweep(ONE_FLOW).0,
            [flow_id(1)],
            "it is not kept waiting for the new ones"
        );
        flows.carry(104);
        while !flows.sweep(ONE_FLOW).1 {}
        assert_eq!(flows.reported, flows.carried, "they are visited in the next round");
    });
}

#[test]
fn an_allocation_is_reported_out_of_turn() {
    inside(|| {
        let mut flows = Flows::new(Hook::Xdp, 1..=4);
        (1..=4).for_each(|number| flows.carry(number));
        flows.sweep(ONE_FLOW);
        let reported = &mut flows.reported;
        flows.world.routes.sweep_allocation(AllocationId(3), |id, carried| {
            *reported.entry(id).or_default() += carried.to_peer_packets;
        });
        assert_eq!(flows.reported[&flow_id(3)], 1);
        while !flows.sweep(ONE_FLOW).1 {}
        assert_eq!(flows.reported, flows.carried);
    });
}
