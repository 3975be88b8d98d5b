//! Transfer of reserved ports (EVEN-PORT, RFC 8656 §7.2) to the successor. Reserved ports have no
//! sockets yet, so the transfer contains only data.

use alloc::sync::Arc;
use core::fmt;

use state_format::fields;
use turn_types::{Instant, Prefix, Realm, RelayedAddr};

use super::Moves;
use super::import::claim;
use crate::policy::Policy;
use crate::store::{Account, Reservation};

/// Port reserved for the second Allocate of a client that requested a pair.
pub struct ReservedPort {
    token: [u8; 8],
    relayed: RelayedAddr,
    realm: Realm,
    account: Arc<str>,
    customer: Prefix,
    expires: Instant,
}

fields!(ReservedPort {
    1 => token,
    2 => relayed,
    3 => realm,
    4 => account,
    5 => customer,
    6 => expires,
});

impl fmt::Debug for ReservedPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The token is secret like a password.
        f.debug_struct("ReservedPort").field("relayed", &self.relayed).finish_non_exhaustive()
    }
}

impl ReservedPort {
    pub(crate) fn of(token: [u8; 8], held: &Reservation) -> Self {
        let Reservation { relayed, lease: _, account, customer, expires } = held;
        Self {
            token,
            relayed: *relayed,
            realm: account.realm.clone(),
            account: Arc::clone(&account.name),
            customer: *customer,
            expires: *expires,
        }
    }
}

impl Moves<'_> {
    /// Reserves the port, if the port is available and the reservation has not expired. Returns the
    /// expiry.
    pub(crate) fn reserve_again(
        &self,
        policy: &Policy,
        now: Instant,
        port: &ReservedPort,
    ) -> Option<Instant> {
        let ReservedPort { token, relayed, realm, account, customer, expires } = port;
        if *expires <= now {
            return None;
        }
        let lease = claim(policy, relayed.0).ok()?;
        let account = Account { realm: realm.clone(), name: Arc::clone(account) };
        let (relayed, customer, expires) = (*relayed, *customer, *expires);
        let reservation = Reservation { relayed, lease, account, customer, expires };
        self.registry.reserve(*token, reservation, now).ok().map(|()| expires)
    }
}
