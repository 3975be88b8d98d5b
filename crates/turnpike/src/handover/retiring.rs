//! Predecessor that has stopped serving, and its kernel path.

use control::EarlierTotals;
use xdp_relay::ParkedPath;

use super::PATIENCE;
use super::messages::{Orders, Step};
use super::passing::Outlet as _;
use super::wire::Wire;

/// Predecessor that has stopped serving. Its kernel path may still relay.
#[derive(Debug)]
pub(crate) struct Retiring {
    /// Connection with a running predecessor.
    wire: Option<Wire>,
    /// Kernel path of an exited predecessor.
    kernel_path: Option<ParkedPath>,
    totals: Option<EarlierTotals>,
    /// Orders of operators.
    orders: Orders,
    /// Connection with the keeper from which the calls were imported.
    keeper: Option<Wire>,
}

impl Retiring {
    /// Creates the value for a running predecessor, which releases the kernel path.
    pub(super) const fn runs(wire: Wire, totals: Option<EarlierTotals>, orders: Orders) -> Self {
        Self { wire: Some(wire), kernel_path: None, totals, orders, keeper: None }
    }

    /// Creates the value for an exited predecessor. Its kernel path stops relaying here, because
    /// this process may refuse a peer that the predecessor allowed.
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

    /// Creates the value for a dead predecessor, whose calls were imported from `keeper`.
    pub(super) fn died(kernel_path: Option<ParkedPath>, orders: Orders, mut keeper: Wire) -> Self {
        let ended = Self::ended(kernel_path, None);
        // A keeper without a connection has already discarded everything.
        let _ = keeper.send(&Step::Ready);
        Self { keeper: Some(keeper), orders, ..ended }
    }

    /// Returns the orders of operators. Empty after a restart.
    pub(crate) const fn orders(&self) -> &Orders {
        &self.orders
    }

    /// Removes and returns the predecessor's counters. `None` means that counters start at 0.
    pub(crate) const fn take_totals(&mut self) -> Option<EarlierTotals> {
        self.totals.take()
    }

    /// Waits until the predecessor has released the kernel path, at most [`PATIENCE`]. Returns the
    /// connection with the keeper, which retains its copies until that connection is closed.
    pub(crate) fn wait(self) -> Option<Wire> {
        let Self { wire, kernel_path, keeper, .. } = self;
        // A predecessor that has exited has released the kernel path as well.
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
