//! Expected clients after an import. The snapshot of an allocation contains the worker and the
//! 5-tuple where the client is expected. The successor's workers exchange expected clients before
//! serving, because a client does not repeat a Refresh by ticket after its response.

use core::fmt;
use core::time::Duration;

use fair_share::Claimant;
use stun_wire::TransactionId;
use turn_types::{AllocationId, ClientPath, FiveTuple, Instant, SocketId, WorkerId};

use super::Moves;
use crate::credentials::Grant;
use crate::io::{Granted, whole_seconds};
use crate::store::{Allocation, ExpectedClient, Next};

/// Client expected at a different worker than the worker that has the allocation.
pub struct ExpectedMove {
    allocation: AllocationId,
    five_tuple: FiveTuple,
    grant: Grant,
    transaction: Option<TransactionId>,
    granted: Granted,
    expires: Instant,
}

impl fmt::Debug for ExpectedMove {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExpectedMove").field("allocation", &self.allocation).finish_non_exhaustive()
    }
}

impl Moves<'_> {
    /// Returns the clients that are expected at other workers, each with that worker.
    pub(crate) fn expected_elsewhere(
        &self,
        now: Instant,
    ) -> impl Iterator<Item = (WorkerId, ExpectedMove)> {
        self.allocations.iter().filter_map(move |allocation| expected_move(allocation, now))
    }

    /// Expects a client of another worker's allocation. `socket_of` returns the socket of the
    /// client's path.
    pub(crate) fn expect(
        &mut self,
        now: Instant,
        expected: ExpectedMove,
        socket_of: impl Fn(&ClientPath) -> Option<SocketId>,
    ) {
        let ExpectedMove { allocation, five_tuple, grant, transaction, granted, expires } =
            expected;
        let mut path = ClientPath { five_tuple, socket: SocketId(0) };
        let Some(socket) = socket_of(&path) else { return };
        path.socket = socket;
        let is_known = self.allocations.of_client(&five_tuple).is_some()
            || self.expected.get(&five_tuple, now).is_some();
        let claimant = Claimant::at(five_tuple.client.ip());
        if is_known || self.expected.check(&claimant).is_err() {
            return;
        }
        let asked = None;
        let client =
            ExpectedClient { allocation, path, grant, transaction, granted, expires, asked };
        if let Some(before) = self.expected.insert(client) {
            self.review_queue(&before, now);
        }
    }
}

fn expected_move(allocation: &Allocation, now: Instant) -> Option<(WorkerId, ExpectedMove)> {
    let Next::Worker(worker, five_tuple) = allocation.next()? else { return None };
    let (mobility, expires) = (allocation.mobility.as_ref()?, allocation.expires()?);
    let answered = mobility.answered.filter(|answered| answered.five_tuple == five_tuple);
    let left: Duration = expires.saturating_since(now);
    let lifetime = answered.map_or_else(|| whole_seconds(left), |answered| answered.lifetime);
    let expected = ExpectedMove {
        allocation: allocation.id,
        five_tuple,
        grant: allocation.grant.clone(),
        transaction: answered.map(|answered| answered.transaction),
        granted: Granted { lifetime, ticket: Some(mobility.ticket) },
        expires,
    };
    Some((worker, expected))
}
