//! Connection limits, shared by all workers.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use turn_types::Prefix;

/// Limits of connections; 0 is no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// All connections.
    pub total: u32,
    /// Connections of one [customer](Prefix::customer).
    pub per_address: u32,
}

/// Counts of connections. Locked when a connection begins or ends, never for a packet.
#[derive(Debug)]
pub struct Admission {
    limits: ConnectionLimits,
    counts: Mutex<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    total: u32,
    by_customer: HashMap<Prefix, u32>,
}

/// Permit of one connection, returned when it is dropped.
#[derive(Debug)]
pub(crate) struct Admitted {
    admission: Arc<Admission>,
    /// Customer; `None` until a load balancer has named the client.
    customer: Option<Prefix>,
}

/// Limit that a connection would exceed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LimitReached {
    /// [`ConnectionLimits::total`].
    Total,
    /// [`ConnectionLimits::per_address`].
    Address,
}

impl Admission {
    /// Returns limits with all counts at zero.
    #[must_use]
    pub fn new(limits: ConnectionLimits) -> Self {
        Self { limits, counts: Mutex::default() }
    }

    /// Returns true where an address is one customer's. Without a limit per address many customers
    /// may share one, as behind a load balancer that does not name its clients.
    pub(crate) const fn is_by_customer(&self) -> bool {
        self.limits.per_address > 0
    }

    /// Admits a client's connection.
    pub(crate) fn admit(self: &Arc<Self>, client: IpAddr) -> Result<Admitted, LimitReached> {
        let mut admitted = self.admit_unknown()?;
        admitted.assign(client)?;
        Ok(admitted)
    }

    /// Admits a connection whose client is not known yet.
    pub(crate) fn admit_unknown(self: &Arc<Self>) -> Result<Admitted, LimitReached> {
        let mut counts = self.counts();
        if self.limits.total > 0 && counts.total >= self.limits.total {
            return Err(LimitReached::Total);
        }
        counts.total += 1;
        Ok(Admitted { admission: Arc::clone(self), customer: None })
    }

    /// Counts a connection that another process has admitted, even beyond the limits. `None`: its
    /// client is not known yet.
    pub(crate) fn keep(self: &Arc<Self>, client: Option<IpAddr>) -> Admitted {
        let customer = client.map(Prefix::customer);
        let mut counts = self.counts();
        counts.total += 1;
        if let Some(customer) = customer {
            *counts.by_customer.entry(customer).or_default() += 1;
        }
        Admitted { admission: Arc::clone(self), customer }
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        // Nothing in it can be half done.
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Admitted {
    /// Counts the connection for its customer.
    pub(crate) fn assign(&mut self, client: IpAddr) -> Result<(), LimitReached> {
        let customer = Prefix::customer(client);
        let most = self.admission.limits.per_address;
        let mut counts = self.admission.counts();
        let of_customer = counts.by_customer.entry(customer).or_default();
        // It has an entry then: nothing was added.
        if most > 0 && *of_customer >= most {
            return Err(LimitReached::Address);
        }
        *of_customer += 1;
        self.customer = Some(customer);
        Ok(())
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        let mut counts = self.admission.counts();
        counts.total -= 1;
        let Some(customer) = self.customer else { return };
        if let Some(count) = counts.by_customer.get_mut(&customer) {
            *count -= 1;
            if *count == 0 {
                counts.by_customer.remove(&customer);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admission(total: u32, per_address: u32) -> Arc<Admission> {
        Arc::new(Admission::new(ConnectionLimits { total, per_address }))
    }

    #[test]
    fn places_are_bounded_and_given_back() {
        let admission = admission(3, 2);
        let from = |address: &str| admission.admit(address.parse().unwrap());
        let first = from("192.0.2.1").unwrap();
        let _second = from("192.0.2.1").unwrap();
        assert_eq!(from("192.0.2.1").unwrap_err(), LimitReached::Address);
        let third = from("192.0.2.2").unwrap();
        assert_eq!(from("192.0.2.3").unwrap_err(), LimitReached::Total);
        drop(first);
        let again = from("192.0.2.1").unwrap();
        drop((third, again));
        assert_eq!(admission.counts().total, 1);
        assert_eq!(admission.counts().by_customer.len(), 1, "nobody is remembered");
    }

    #[test]
    fn connections_of_the_process_before_are_kept_and_count() {
        let admission = admission(2, 1);
        let kept: Vec<_> = (0..3).map(|_| admission.keep(Some([192, 0, 2, 1].into()))).collect();
        let refused = admission.admit([192, 0, 2, 2].into()).unwrap_err();
        assert_eq!(refused, LimitReached::Total);
        drop(kept);
        assert!(admission.admit([192, 0, 2, 1].into()).is_ok());
        assert!(admission.counts().by_customer.is_empty());
    }

    #[test]
    fn a_customer_of_ipv6_has_many_addresses() {
        let admission = admission(0, 1);
        let from = |address: &str| admission.admit(address.parse().unwrap());
        let _first = from("2001:db8::1").unwrap();
        assert_eq!(from("2001:db8::ffff:1").unwrap_err(), LimitReached::Address);
        assert!(from("2001:db8:0:1::1").is_ok());
    }

    #[test]
    fn zero_is_any_number() {
        let admission = admission(0, 0);
        let all: Vec<_> = (0..100).map(|_| admission.admit([192, 0, 2, 1].into())).collect();
        assert!(all.iter().all(Result::is_ok));
    }
}
