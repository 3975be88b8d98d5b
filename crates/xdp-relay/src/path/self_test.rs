//! Self-test of the programs on this kernel: every combination of address families, in both
//! directions and at both hooks, before the programs receive real packets. Nothing is sent.

mod frame;

use turn_types::{Instant, WorkerId};

use self::frame::{Datagram, without_identification};
use crate::bpf::layout::{WORKERS_MAX, way};
use crate::device::Hook;
use crate::error::KernelPathError;
use crate::limits::TEST_WITHIN;
use crate::path::{EgressContext, KernelPath, Link, Verdict};
use crate::routes::FlowCookie;
use crate::routes::flow::{Directions, Flow, RouteSlots};

/// Addresses in documentation prefixes (RFC 5737, RFC 3849): client, server, relay, peer.
const V4: [&str; 4] = ["192.0.2.1:9", "192.0.2.2:9", "198.51.100.1:9", "198.51.100.2:9"];
const V6: [&str; 4] =
    ["[2001:db8:1::1]:9", "[2001:db8:1::2]:9", "[2001:db8:2::1]:9", "[2001:db8:2::2]:9"];

/// Channel number of the self-test.
const CHANNEL: u16 = 0x4001;

/// Worker number of the self-test: the last lease.
const SELF_TEST_WORKER: u8 = (WORKERS_MAX - 1) as u8;

/// Flow cookie of the self-test's routes.
const FLOW_COOKIE: FlowCookie = FlowCookie(7);

/// Size of the self-test's ring in bytes: enough for the datagrams of one family, and valid for any
/// page size.
const SELF_TEST_RING_BYTES: u32 = 64 << 10;

/// Index of the loopback, equal in every network namespace.
const LOOPBACK: u32 = 1;

/// Payload with an odd length, so sums stop within a word.
const PAYLOAD: &[u8] = b"turnpike tries itself";

impl KernelPath {
    /// Tests the program of a hook.
    ///
    /// # Errors
    /// Returns [`KernelPathError::SelfTest`] with the deviation. Other errors: the kernel cannot
    /// run a program on a given frame, or no slot is free.
    pub fn self_test(&mut self, now: Instant, hook: Hook) -> Result<(), KernelPathError> {
        // Slots are allocated from the shared tables, since workers may already have routes.
        let common = self.common();
        let (flow, bucket) = (common.flows.take(now), common.limits.take(now));
        let tried = flow.zip(bucket).map_or(Err(KernelPathError::Full), |(flow, bucket)| {
            self.common().empty(bucket);
            let (worker, flow_label, probe) = (SELF_TEST_WORKER, 0, true);
            self.try_all(now, hook, RouteSlots { flow, bucket, worker, flow_label, probe })
        });
        let common = self.common();
        flow.into_iter().for_each(|slot| common.flows.put_back(now, slot));
        bucket.into_iter().for_each(|slot| common.limits.put_back(now, slot));
        self.forget_passes();
        tried
    }

    fn try_all(
        &mut self,
        now: Instant,
        hook: Hook,
        place: RouteSlots,
    ) -> Result<(), KernelPathError> {
        // Inbound device of the self-test. No program is attached there.
        self.set_link(Link {
            index: LOOPBACK,
            mac: [0; 6],
            leave_xdp: false,
            leave_tc: false,
            partial_at_xdp: true,
        })?;
        for client in [V4, V6] {
            for peer in [V4, V6] {
                let flow = test_flow(now, client, peer)?;
                self.put(&flow, &flow.directions(place), now)?;
                let tried = self.try_both(hook, &flow);
                // The second part uses routes like those of a worker, for which packets in the
                // stack are evidence.
                let proving = flow.directions(RouteSlots { probe: false, ..place });
                let tried = tried.and_then(|()| self.put(&flow, &proving, now));
                let tried = tried.and_then(|()| self.try_tap(hook, &flow));
                self.take_out(now);
                tried?;
            }
        }
        if self.can_fill_rings() { self.try_ring_delivery(now, hook, place) } else { Ok(()) }
    }

    /// Tests that datagrams are delivered unaltered to a worker's ring.
    fn try_ring_delivery(
        &mut self,
        now: Instant,
        hook: Hook,
        place: RouteSlots,
    ) -> Result<(), KernelPathError> {
        const TTL: u8 = 64;
        let mut ring = self.ring(WorkerId(u16::from(SELF_TEST_WORKER)), SELF_TEST_RING_BYTES)?;
        for peer in [V4, V6] {
            let flow = test_flow(now, V4, peer)?;
            let to_client = flow.ring_route(place, FLOW_COOKIE);
            self.put(&flow, &Directions { to_client, ..flow.directions(place) }, now)?;
            let Flow { peer, relayed, .. } = flow;
            // Payloads at the limits of each size for which the program reserves space.
            let payloads = [1, 256, 257, 768, 769, 1472].map(|len| vec![0x5A; len]);
            let ran: Result<Vec<_>, _> = payloads
                .iter()
                .map(|payload| Datagram { from: peer, to: relayed, ttl: TTL, payload })
                .map(|datagram| self.run(hook, &datagram.frame(), 1))
                .collect();
            self.take_out(now);
            for (payload, ran) in payloads.iter().zip(ran?) {
                let came = ring.next().is_some_and(|datagram| {
                    datagram.flow_cookie() == FLOW_COOKIE
                        && datagram.payload() == payload
                        && datagram.meta().ttl == TTL
                        && datagram.is_intact(peer, relayed)
                });
                if !came || ran.verdict != Verdict::Drop {
                    let (len, verdict) = (payload.len(), ran.verdict);
                    return Err(KernelPathError::SelfTest(format!(
                        "{len} bytes from {peer} were not delivered to the ring: {verdict:?}"
                    )));
                }
            }
        }
        Ok(())
    }

    fn try_both(&self, hook: Hook, flow: &Flow) -> Result<(), KernelPathError> {
        const TTL: u8 = 64;
        let len = (PAYLOAD.len() as u16).to_be_bytes();
        let framed = [&CHANNEL.to_be_bytes()[..], &len, PAYLOAD].concat();
        let Flow { client, server, relayed, peer, .. } = *flow;
        self.try_one(
            hook,
            Datagram { from: client, to: server, ttl: TTL, payload: &framed },
            Datagram { from: relayed, to: peer, ttl: TTL - 1, payload: PAYLOAD },
        )?;
        self.try_one(
            hook,
            Datagram { from: peer, to: relayed, ttl: TTL, payload: PAYLOAD },
            Datagram { from: server, to: client, ttl: TTL - 1, payload: &framed },
        )
    }

    /// Tests that a packet that passed to the stack and leaves as expected proves its direction,
    /// and that no other packet does.
    fn try_tap(&self, hook: Hook, flow: &Flow) -> Result<(), KernelPathError> {
        const TTL: u8 = 64;
        let len = (PAYLOAD.len() as u16).to_be_bytes();
        let framed = [&CHANNEL.to_be_bytes()[..], &len, PAYLOAD].concat();
        let Flow { client, server, relayed, peer, .. } = *flow;
        for (from, to, payload) in [(client, server, &framed[..]), (peer, relayed, PAYLOAD)] {
            let ran = self.run(hook, &Datagram { from, to, ttl: TTL, payload }.frame(), 1)?;
            if ran.verdict != Verdict::Pass {
                return Err(KernelPathError::SelfTest(format!(
                    "a datagram from {from} to {to} had no proof, and came out as {:?}",
                    ran.verdict
                )));
            }
        }
        let here = EgressContext { by: LOOPBACK, ..EgressContext::default() };
        let redirected = EgressContext { came_by: LOOPBACK, ..here };
        let steps = [
            (relayed, peer, PAYLOAD, redirected, [false, false]),
            // The payload differs from that of the packet in the stack.
            (relayed, peer, &PAYLOAD[1..], here, [false, false]),
            (relayed, peer, PAYLOAD, here, [true, false]),
            // The packet is not ChannelData.
            (server, client, PAYLOAD, here, [true, false]),
            (server, client, &framed, here, [true, true]),
        ];
        for (from, to, payload, leaving, wanted) in steps {
            self.run_tap(&Datagram { from, to, ttl: TTL - 1, payload }.frame(), leaving)?;
            let proofs = self.self_test_proofs().unwrap_or_default();
            let is = proofs.map(|(proven, by)| proven != 0 && by == way(LOOPBACK, [0; 6]));
            if is != wanted {
                return Err(KernelPathError::SelfTest(format!(
                    "what left from {from} to {to} proved {proofs:x?}"
                )));
            }
        }
        Ok(())
    }

    fn try_one(
        &self,
        hook: Hook,
        comes: Datagram<'_>,
        leaves: Datagram<'_>,
    ) -> Result<(), KernelPathError> {
        let mut frames = vec![comes.frame()];
        // A test run at tc cannot have a packet with a partial checksum.
        frames.extend((hook != Hook::Tc).then(|| comes.frame_with_partial_checksum()));
        for frame in frames {
            let ran = self.run(hook, &frame, 1)?;
            let (is, wanted) = (without_identification(&ran.frame), leaves.frame());
            if ran.verdict != Verdict::Tried || is != without_identification(&wanted) {
                return Err(KernelPathError::SelfTest(format!(
                    "a datagram from {} to {} came out as {:?}",
                    comes.from, comes.to, ran.verdict
                )));
            }
        }
        Ok(())
    }
}

fn test_flow(now: Instant, client: [&str; 4], peer: [&str; 4]) -> Result<Flow, KernelPathError> {
    let address = |text: &str| {
        text.parse().map_err(|_| KernelPathError::SelfTest(format!("{text} is no address")))
    };
    Ok(Flow {
        client: address(client[0])?,
        server: address(client[1])?,
        channel: CHANNEL,
        relayed: address(peer[2])?,
        peer: address(peer[3])?,
        hairpin: false,
        to_peer_until: now + TEST_WITHIN,
        to_client_until: now + TEST_WITHIN,
        bytes_per_second: 0,
    })
}

impl KernelPath {
    fn put(
        &mut self,
        flow: &Flow,
        routes: &Directions,
        now: Instant,
    ) -> Result<(), KernelPathError> {
        self.common().open_ports(flow);
        self.common().lease(SELF_TEST_WORKER, now + TEST_WITHIN);
        self.install(now, routes)
    }

    fn take_out(&mut self, now: Instant) {
        self.common().lease(SELF_TEST_WORKER, Instant::ZERO);
        self.uninstall(now);
    }
}

#[cfg(test)]
mod tests {
    use linux_net::Clock;
    use turn_types::AllocationId;

    use super::*;
    use crate::device::missing_capabilities;
    use crate::options::{Options, Proof};
    use crate::routes::FlowId;

    #[test]
    fn a_ring_of_routes_before_the_programs_is_filled_by_them() {
        if !missing_capabilities().is_empty() {
            // Tests of the programs report that they are skipped.
            return;
        }
        let options = Options { flows: 1024, look_up_from: 0, proof: Proof::NOT_REQUIRED };
        let mut path = KernelPath::prepare(options).unwrap();
        if !path.can_fill_rings() {
            return;
        }
        let worker = WorkerId(3);
        let mut routes = path.routes(worker).unwrap();
        let now = Clock::instant();
        let flow = test_flow(now, V4, V6).unwrap();
        let id = FlowId { allocation: AllocationId::new(worker, 1), channel: CHANNEL };
        routes.renew(now);
        let cookie = routes.deliver_to_ring(id, &flow).unwrap();
        path.load().unwrap();
        let (leave_xdp, leave_tc, partial_at_xdp) = (false, false, false);
        let link = Link { index: LOOPBACK, mac: [0; 6], leave_xdp, leave_tc, partial_at_xdp };
        path.set_link(link).unwrap();
        for hook in [Hook::Xdp, Hook::Tc] {
            let Flow { peer, relayed, .. } = flow;
            let datagram = Datagram { from: peer, to: relayed, ttl: 64, payload: PAYLOAD };
            let ran = path.run(hook, &datagram.frame(), 1).unwrap();
            assert_eq!(ran.verdict, Verdict::Drop, "{hook}");
            let came = routes.ring().unwrap().next().map(|came| came.flow_cookie());
            assert_eq!(came, cookie, "{hook}");
        }
    }
}
