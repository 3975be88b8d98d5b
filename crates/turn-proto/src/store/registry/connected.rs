//! Shares of allocations with a client over a connection or DTLS session.
//!
//! A full table evicts connections without an allocation, and keeps the connections of allocations.
//! Therefore only a part of the table is available to allocations, and networks, accounts and
//! realms have shares of this part. Otherwise an account with many addresses could fill the table
//! with connections that are never evicted.

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

/// Slots of one allocation. Both tables have a slot while the client moves between a connection and
/// a DTLS session.
#[derive(Debug, Default)]
pub(super) struct ConnectedShares([Option<Share>; ClientTable::ALL.len()]);

impl ConnectedSlots {
    /// Returns slots without a limit.
    pub(super) fn new(hasher: &RandomState) -> Self {
        Self(ClientTable::ALL.map(|_| Slots::new(&LOGGED_IN, u32::MAX, hasher.clone())))
    }

    pub(super) const fn set_realms_compete(&mut self, compete: bool) {
        let [connections, dtls_sessions] = &mut self.0;
        connections.set_realms_compete(compete);
        dtls_sessions.set_realms_compete(compete);
    }

    /// Sets the number of slots in each table. Allocations beyond the limit remain.
    pub(super) const fn set_limits(&mut self, quotas: &Quotas) {
        let [connections, dtls_sessions] = &mut self.0;
        connections.set_capacity(quotas.stream_allocations);
        dtls_sessions.set_capacity(quotas.dtls_allocations);
    }

    /// Returns true if a client may have a slot. `client` contains the levels at which shares limit
    /// the client.
    pub(super) fn has_slot(&self, table: ClientTable, client: &Claimant<'_>) -> bool {
        self.0[table as usize].check(client).is_ok()
    }

    /// Claims a slot, even beyond the limits, unless the allocation already has a slot.
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
