//! A predecessor that serves no more, and the kernel path that it still has or has left.

use control::EarlierTotals;
use xdp_relay::ParkedPath;

use super::PATIENCE;
use super::messages::{Orders, Step};
use super::passing::Outlet as _;
use super::wire::Wire;

/// A predecessor that serves no more, and may still have the kernel path.
#[derive(Debug)]
pub(crate) struct Retiring {
    /// To one that runs.
    wire: Option<Wire>,
    /// Of one that has ended.
    kernel_path: Option<ParkedPath>,
    totals: Option<EarlierTotals>,
    /// Orders of operators.
    orders: Orders,
    /// Connection with the keeper that the calls were imported from.
    keeper: Option<Wire>,
}

impl Retiring {
    /// One that runs: it lets go of the kernel path.
    pub(super) const fn runs(wire: Wire, totals: Option<EarlierTotals>, orders: Orders) -> Self {
        Self { wire: Some(wire), kernel_path: None, totals, orders, keeper: None }
    }

    /// One that has ended. Its kernel path relays no more from here on: this process may refuse a
    /// peer that it has allowed.
    pub(super) fn ended(kernel_path: Option<ParkedPath>, totals: Option<EarlierTotals>) -> Self {
        let kernel_path = kernel_path.and_then(|path| match path.end_leases() {
            Ok(()) => Some(path),
            Err(error) => {
                tracing::warn!("the kernel path pauses: {error}");
                path.end();
                None
            }
        });
        Self { wire: None, kernel_path, totals, orders: Orders::default(), keeper: None }
    }

    /// Predecessor that has died; the calls were imported from `keeper`.
    pub(super) fn died(kernel_path: Option<ParkedPath>, orders: Orders, mut keeper: Wire) -> Self {
        let ended = Self::ended(kernel_path, None);
        // Without a connection the keeper has discarded everything already.
        let _ = keeper.send(&Step::Ready);
        Self { keeper: Some(keeper), orders, ..ended }
    }

    /// Returns the orders of operators; empty after a restart.
    pub(crate) const fn orders(&self) -> &Orders {
        &self.orders
    }

    /// Its counters, which go on; `None`: they begin anew.
    pub(crate) const fn take_totals(&mut self) -> Option<EarlierTotals> {
        self.totals.take()
    }

    /// Waits until it has let go of the kernel path, or for some seconds. Returns the connection
    /// with the keeper, which has its copies until the connection is closed.
    pub(crate) fn wait(self) -> Option<Wire> {
        let Self { wire, kernel_path, keeper, .. } = self;
        // A process that is gone has let go of it as well.
        if let Some(mut wire) = wire {
            let _ = wire.set_patience(PATIENCE);
            let _ = wire.expect(Step::Released);
        }
        if let Some(path) = kernel_path {
            path.end();
        }
        keeper
    }
}
