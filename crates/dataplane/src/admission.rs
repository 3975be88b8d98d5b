//! How many connections there may be, over all workers.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use turn_types::Prefix;

/// How many connections there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// In all; 0 is any number.
    pub total: u32,
    /// From one [customer](Prefix::customer); 0 is any number.
    pub per_address: u32,
}

/// Counts connections. Touched when one comes or goes, by whichever worker, and never for a packet.
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

/// A connection's place; it is given back with this value.
#[derive(Debug)]
pub(crate) struct Admitted {
    admission: Arc<Admission>,
    /// Whose; `None`: of whoever is behind a load balancer that has not said it yet.
    customer: Option<Prefix>,
}

/// There is no place for a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoPlace {
    /// There are as many as there may be.
    Total,
    /// This address has as many as it may have.
    Address,
}

impl Admission {
    /// Nobody is there yet.
    #[must_use]
    pub fn new(limits: ConnectionLimits) -> Self {
        Self { limits, counts: Mutex::default() }
    }

    /// Whether an address is one customer's. Where addresses may have any number of connections, many customers
    /// are behind each, such as behind a load balancer that does not say who they are.
    pub(crate) const fn is_by_customer(&self) -> bool {
        self.limits.per_address > 0
    }

    /// A place for a client.
    pub(crate) fn admit(self: &Arc<Self>, client: IpAddr) -> Result<Admitted, NoPlace> {
        let mut admitted = self.admit_unknown()?;
        admitted.belongs_to(client)?;
        Ok(admitted)
    }

    /// A place for who is not known yet.
    pub(crate) fn admit_unknown(self: &Arc<Self>) -> Result<Admitted, NoPlace> {
        let mut counts = self.counts();
        if self.limits.total > 0 && counts.total >= self.limits.total {
            return Err(NoPlace::Total);
        }
        counts.total += 1;
        Ok(Admitted { admission: Arc::clone(self), customer: None })
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        // Nothing in it can be half done.
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Admitted {
    /// Now it is known whose it is.
    pub(crate) fn belongs_to(&mut self, client: IpAddr) -> Result<(), NoPlace> {
        let customer = Prefix::customer(client);
        let most = self.admission.limits.per_address;
        let mut counts = self.admission.counts();
        let of_customer = counts.by_customer.entry(customer).or_default();
        // It has an entry then: nothing was added.
        if most > 0 && *of_customer >= most {
            return Err(NoPlace::Address);
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
        assert_eq!(from("192.0.2.1").unwrap_err(), NoPlace::Address);
        let third = from("192.0.2.2").unwrap();
        assert_eq!(from("192.0.2.3").unwrap_err(), NoPlace::Total);
        drop(first);
        let again = from("192.0.2.1").unwrap();
        drop((third, again));
        assert_eq!(admission.counts().total, 1);
        assert_eq!(admission.counts().by_customer.len(), 1, "nobody is remembered");
    }

    #[test]
    fn a_customer_of_ipv6_has_many_addresses() {
        let admission = admission(0, 1);
        let from = |address: &str| admission.admit(address.parse().unwrap());
        let _first = from("2001:db8::1").unwrap();
        assert_eq!(from("2001:db8::ffff:1").unwrap_err(), NoPlace::Address);
        assert!(from("2001:db8:0:1::1").is_ok());
    }

    #[test]
    fn zero_is_any_number() {
        let admission = admission(0, 0);
        let all: Vec<_> = (0..100).map(|_| admission.admit([192, 0, 2, 1].into())).collect();
        assert!(all.iter().all(Result::is_ok));
    }
}
