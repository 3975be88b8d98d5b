//! A table of kernel routes that relays nothing: it shows that every route is withdrawn.

use std::collections::BTreeMap;

use dataplane::io::RouteTable;
use netsim::{Chance, Rng};
use turn_types::{AllocationId, Instant};
use xdp_relay::{
    AllocationCounters, Flow, FlowCookie, FlowCounters, FlowId, KernelPathError, Ring,
};

/// Routes of one worker.
#[derive(Debug)]
pub struct SimRoutes {
    routes: BTreeMap<FlowId, Flow>,
    rng: Rng,
    refused: Chance,
}

impl SimRoutes {
    pub(crate) const fn new(rng: Rng, refused: Chance) -> Self {
        Self { routes: BTreeMap::new(), rng, refused }
    }
}

impl RouteTable for SimRoutes {
    fn ring(&mut self) -> Option<&mut Ring> {
        None
    }

    fn set(&mut self, _: Instant, id: FlowId, flow: &Flow) -> Result<(), KernelPathError> {
        if self.rng.happens(self.refused) {
            self.routes.remove(&id);
            return Err(KernelPathError::Full);
        }
        self.routes.insert(id, *flow);
        Ok(())
    }

    fn remove(&mut self, id: FlowId) -> FlowCounters {
        self.routes.remove(&id);
        FlowCounters::default()
    }

    fn deliver_to_ring(
        &mut self,
        _: FlowId,
        _: &Flow,
    ) -> Result<Option<FlowCookie>, KernelPathError> {
        Ok(None)
    }

    fn withdraw_from_ring(&mut self, _: FlowId) -> Option<FlowCookie> {
        None
    }

    fn flow_cookie(&self, _: FlowId) -> Option<FlowCookie> {
        None
    }

    fn prove(&self, _: FlowId) {}

    fn renew(&self, _: Instant) {}

    fn sweep(&mut self, _: usize, _: impl FnMut(FlowId, FlowCounters)) -> bool {
        true
    }

    fn sweep_allocation(&mut self, _: AllocationId, _: impl FnMut(FlowId, FlowCounters)) {}

    fn of_allocation(&self, _: AllocationId) -> Option<AllocationCounters> {
        None
    }

    fn is_by_tc(&self) -> bool {
        true
    }

    fn is_idle(&self) -> bool {
        self.routes.is_empty()
    }

    fn flows(&self) -> usize {
        self.routes.len()
    }
}
