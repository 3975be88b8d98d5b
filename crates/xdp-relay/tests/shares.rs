//! Shares of the table of flows. One client cannot take all slots, and silent flows lose their
//! slots while others need slots.

use std::net::IpAddr;
use std::time::Duration;

use fair_share::Claimant;
use turn_types::Instant;
use xdp_relay::device::Hook;
use xdp_relay::limits::{REST, SCARCE_FOR, SILENT_AFTER};
use xdp_relay::{Flow, FlowId, KernelPathError, Verdict};

use crate::support::flow::{flow, flow_id};
use crate::support::frame::Check;
use crate::support::random::plain;
use crate::support::world::COMES;
use crate::support::{World, inside};

/// Number of slots in a [`World`].
const SLOTS: usize = 1024;

/// World with flows of two clients.
struct Clients(World);

const GREEDY: &str = "198.51.100.1";
const OTHER: &str = "203.0.113.1";

impl Clients {
    fn new() -> Self {
        Self(World::new(Duration::ZERO))
    }

    /// Claims a slot, and installs the flow.
    fn set(&mut self, now: Instant, client: &str, number: u16) -> Result<(), KernelPathError> {
        let routes = &mut self.0.routes;
        routes.claim(now, flow_id(number), &claimant(client))?;
        routes.set(now, flow_id(number), &flow(number))
    }

    /// Installs flows until one is refused. Returns the number of installed flows and the refusal.
    fn fill(&mut self, now: Instant, client: &str) -> (usize, KernelPathError) {
        let refused = |number| Some((number, self.set(now, client, number).err()?));
        let (number, error) = (0..).find_map(refused).unwrap();
        (usize::from(number), error)
    }

    /// Makes a flow relay a datagram of its client.
    fn carry(&self, number: u16) {
        self.0.routes.renew(linux_net::Clock::instant());
        let Flow { client, server, channel, .. } = flow(number);
        let payload = [&channel.to_be_bytes()[..], &[0, 4], b"data"].concat();
        let frame = plain(client, server, payload).frame(COMES, Check::Right);
        assert_eq!(self.0.path.run(Hook::Xdp, &frame, 1).unwrap().verdict, Verdict::Redirect);
    }

    /// Sweeps all flows. Returns the silent flows, sorted.
    fn silent(&mut self, now: Instant) -> Vec<FlowId> {
        assert!(self.0.routes.sweep(now, usize::MAX, |_, _| ()));
        let mut silent: Vec<_> = std::iter::from_fn(|| self.0.routes.pop_silent()).collect();
        silent.sort_unstable();
        silent
    }
}

fn claimant(client: &str) -> Claimant<'_> {
    Claimant::at(client.parse::<IpAddr>().unwrap()).with_account("example.org", client)
}

#[test]
fn a_client_with_many_flows_leaves_slots_to_others() {
    inside(|| {
        let mut clients = Clients::new();
        let now = linux_net::Clock::instant();
        let (installed, refused) = clients.fill(now, GREEDY);
        assert!(matches!(refused, KernelPathError::Share), "{refused}");
        assert!((SLOTS / 2..SLOTS * 9 / 10).contains(&installed), "{installed}");
        for number in 0..50 {
            clients.set(now, OTHER, 10_000 + number).unwrap();
        }
        // A flow that has a slot can be updated.
        clients.set(now, GREEDY, 0).unwrap();
        // A released slot is in use until it has rested.
        (0..200).for_each(|number| _ = clients.0.routes.remove(flow_id(number)));
        assert!(matches!(clients.set(now, GREEDY, 20_000), Err(KernelPathError::Share)));
        let rested = linux_net::Clock::instant() + REST;
        clients.set(rested, GREEDY, 20_000).unwrap();
    });
}

#[test]
fn silent_flows_give_their_slots_back_while_others_want_them() {
    inside(|| {
        let mut clients = Clients::new();
        let now = linux_net::Clock::instant();
        let before = Instant::from_nanos(now.as_nanos() - SILENT_AFTER.as_nanos() as u64);
        for number in 0..20 {
            clients.set(before, GREEDY, number).unwrap();
        }
        clients.carry(7);
        assert_eq!(clients.silent(now), [], "slots are free");

        let (installed, _) = clients.fill(now, OTHER);
        assert!(installed < SLOTS);
        let expected: Vec<_> = (0..20).filter(|number| *number != 7).map(flow_id).collect();
        // Flows of the other client are new.
        assert_eq!(clients.silent(now), expected);
        assert_eq!(clients.silent(now + SCARCE_FOR), [], "nobody was refused for a while");
    });
}

#[test]
fn silent_ring_routes_give_their_slots_back() {
    inside(|| {
        let mut clients = Clients::new();
        if clients.0.routes.ring().is_none() {
            return;
        }
        let now = linux_net::Clock::instant();
        for number in [30_000, 30_001] {
            let routes = &mut clients.0.routes;
            routes.claim(now, flow_id(number), &claimant(GREEDY)).unwrap();
            routes.deliver_to_ring(flow_id(number), &flow(number)).unwrap().unwrap();
        }
        clients.fill(now, OTHER);
        let silent = clients.silent(now);
        assert!(!silent.contains(&flow_id(30_000)), "they are new: {silent:?}");

        let later = linux_net::Clock::instant() + SILENT_AFTER;
        assert!(clients.set(later, OTHER, 40_000).is_err());
        let silent = clients.silent(later);
        assert!(
            [30_000, 30_001].iter().all(|number| silent.contains(&flow_id(*number))),
            "{silent:?}"
        );
    });
}
