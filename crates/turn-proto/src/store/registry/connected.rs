//! Shares of allocations whose clients have a connection or a DTLS session.
//!
//! The server evicts connections without an allocation from a full table, and keeps the others.
//! Allocations take a part of the table, in which networks, accounts and realms have shares.
//! Otherwise one account at many addresses could fill the table with connections that stay.

use ahash::RandomState;
use fair_share::{Claimant, LOGGED_IN, Share, Slots};
use turn_types::Transport;

use crate::policy::Quotas;

/// Table with an entry for each client over a transport other than UDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClientTable {
    /// Connections over TCP and TLS.
    Connections,
    /// DTLS sessions.
    DtlsSessions,
}

impl ClientTable {
    const ALL: [Self; 2] = [Self::Connections, Self::DtlsSessions];

    /// Returns the table of a transport; `None` for UDP.
    pub(super) const fn of(transport: Transport) -> Option<Self> {
        match transport {
            Transport::Udp => None,
            Transport::Tcp | Transport::Tls => Some(Self::Connections),
            Transport::Dtls => Some(Self::DtlsSessions),
        }
    }
}

/// Slots of allocations, by table.
#[derive(Debug)]
pub(super) struct ConnectedSlots([Slots; ClientTable::ALL.len()]);

/// Slots of one allocation. In both tables while the client moves from one to the other.
#[derive(Debug, Default)]
pub(super) struct ConnectedShares([Option<Share>; ClientTable::ALL.len()]);

impl ConnectedSlots {
    /// Slots without a limit.
    pub(super) fn new(hasher: &RandomState) -> Self {
        Self(ClientTable::ALL.map(|_| Slots::new(&LOGGED_IN, u32::MAX, hasher.clone())))
    }

    pub(super) const fn set_realms_compete(&mut self, compete: bool) {
        let [connections, dtls_sessions] = &mut self.0;
        connections.set_realms_compete(compete);
        dtls_sessions.set_realms_compete(compete);
    }

    /// Sets the number of slots in each table. Allocations beyond it stay.
    pub(super) const fn set_limits(&mut self, quotas: &Quotas) {
        let [connections, dtls_sessions] = &mut self.0;
        connections.set_capacity(quotas.stream_allocations);
        dtls_sessions.set_capacity(quotas.dtls_allocations);
    }

    /// Returns true if a client, at the levels at which shares limit it, may have a slot.
    pub(super) fn has_slot(&self, table: ClientTable, client: &Claimant<'_>) -> bool {
        self.0[table as usize].check(client).is_ok()
    }

    /// Claims a slot, even beyond the limits, unless the allocation has one.
    pub(super) fn keep(
        &mut self,
        table: ClientTable,
        client: &Claimant<'_>,
        shares: &mut ConnectedShares,
    ) {
        let slots = &mut self.0[table as usize];
        shares.0[table as usize].get_or_insert_with(|| slots.keep(client));
    }

    /// Releases the slots of an allocation.
    pub(super) fn release(&mut self, shares: &mut ConnectedShares) {
        for (slots, share) in self.0.iter_mut().zip(&mut shares.0) {
            if let Some(share) = share.take() {
                slots.release(share);
            }
        }
    }
}

impl ConnectedShares {
    pub(super) const fn has(&self, table: ClientTable) -> bool {
        self.0[table as usize].is_some()
    }
}
