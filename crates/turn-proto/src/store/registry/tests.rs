use super::*;
use crate::limits::RESERVATIONS_MAX;
use crate::policy::{PortRange, PortRequirement, RelayPorts};
use core::time::Duration;
use std::sync::Mutex;
use std::thread;
use std::vec::Vec;

struct Locked(Mutex<Registry>);

impl SharedRegistry for Locked {
    fn with(&self, f: &mut dyn FnMut(&mut Registry)) {
        f(&mut self.0.lock().unwrap());
    }
}

fn shared() -> RegistryHandle {
    let hasher = RandomState::with_seeds(1, 2, 3, 4);
    RegistryHandle::new(Arc::new(Locked(Mutex::new(Registry::new()))), hasher)
}

fn realm() -> Realm {
    "example.org".into()
}

fn anybody(_: &Account) -> bool {
    true
}

fn account(name: &str) -> Account {
    Account { realm: realm(), name: name.into() }
}

fn customer(last: u8) -> Prefix {
    Prefix::customer([198, 51, 100, last].into())
}

/// Takes a quota at one customer.
fn take_quota(
    registry: &RegistryHandle,
    account: Account,
    quota: AllocationQuota,
) -> Result<QuotaLease, Refusal> {
    registry.take_quota(account, customer(7), Transport::Udp, quota)
}

fn read<T>(registry: &RegistryHandle, f: impl Fn(&Registry) -> T) -> T {
    registry.with(|registry| f(registry))
}

const UNLIMITED: AllocationQuota = AllocationQuota {
    per_account: 0,
    per_realm: 0,
    per_customer: 0,
    total: 0,
    rate: 0,
    realm_rate: 0,
    total_rate: 0,
};

const fn quota(per_account: u32, total: u32) -> AllocationQuota {
    AllocationQuota { per_account, per_realm: 0, per_customer: 0, total, ..UNLIMITED }
}

fn at(seconds: u64) -> Instant {
    Instant::ZERO + Duration::from_secs(seconds)
}

fn reservation(ports: &Arc<RelayPorts>, expires: Instant) -> Reservation {
    reservation_of("", ports, expires)
}

/// Returns a reservation of a separate customer for each name.
fn reservation_of(name: &str, ports: &Arc<RelayPorts>, expires: Instant) -> Reservation {
    let (lease, _) = ports.claim(PortRange::DYNAMIC, PortRequirement::Any, 7).unwrap();
    let relayed = RelayedAddr(([192, 0, 2, 1], lease.port()).into());
    let [high, low] = lease.port().to_be_bytes();
    let customer = Prefix::customer([198, 51, high, low].into());
    Reservation { relayed, lease, account: account(name), customer, expires }
}

#[test]
fn an_account_has_its_quota_and_a_dropped_lease_gives_back() {
    let registry = shared();
    let first = take_quota(&registry, account("ann"), quota(2, 0)).unwrap();
    let second = take_quota(&registry, account("ann"), quota(2, 0)).unwrap();
    assert_eq!(take_quota(&registry, account("ann"), quota(2, 0)).unwrap_err(), Refusal::UserQuota);
    let _bob = take_quota(&registry, account("bob"), quota(2, 0)).unwrap();
    assert_eq!(
        read(&registry, |registry| (
            registry.allocations_of(&account("ann")),
            registry.allocations()
        )),
        (2, 3)
    );
    drop(first);
    let third = take_quota(&registry, account("ann"), quota(2, 0)).unwrap();
    assert_eq!(third.account(), &account("ann"));
    drop((second, third));
    assert_eq!(
        read(&registry, |registry| (
            registry.allocations_of(&account("ann")),
            registry.allocations()
        )),
        (0, 1)
    );
    assert_eq!(
        read(&registry, |registry| registry.accounts.len()),
        1,
        "an account without allocations is forgotten"
    );
}

#[test]
fn realms_keep_accounts_of_one_name_apart() {
    let registry = shared();
    let elsewhere = Account { realm: "example.net".into(), name: "ann".into() };
    let _here = take_quota(&registry, account("ann"), quota(1, 0)).unwrap();
    let _there = take_quota(&registry, elsewhere, quota(1, 0)).unwrap();
    assert_eq!(take_quota(&registry, account("ann"), quota(1, 0)).unwrap_err(), Refusal::UserQuota);
}

#[test]
fn a_realm_has_a_total_of_its_own() {
    let registry = shared();
    let quota =
        AllocationQuota { per_account: 0, per_realm: 2, per_customer: 0, total: 3, ..UNLIMITED };
    let elsewhere = |name: &str| Account { realm: "example.net".into(), name: name.into() };
    let mut held: Vec<_> =
        ["a", "b"].map(|name| take_quota(&registry, account(name), quota).unwrap()).into();
    assert_eq!(take_quota(&registry, account("c"), quota).unwrap_err(), Refusal::RealmQuota);
    held.push(take_quota(&registry, elsewhere("a"), quota).unwrap());
    assert_eq!(take_quota(&registry, elsewhere("b"), quota).unwrap_err(), Refusal::TotalQuota);
    held.remove(0);
    held.push(take_quota(&registry, account("c"), quota).unwrap());
    drop(held);
    assert_eq!(read(&registry, |registry| registry.realms.len()), 0, "nothing is left behind");
}

#[test]
fn rates_add_up_to_those_of_the_realm_and_of_the_server() {
    let registry = shared();
    let quota = AllocationQuota { rate: 10, realm_rate: 20, total_rate: 35, ..UNLIMITED };
    let elsewhere = |name: &str| Account { realm: "example.net".into(), name: name.into() };
    let mut held: Vec<_> =
        ["a", "b"].map(|name| take_quota(&registry, account(name), quota).unwrap()).into();
    let refused = |account, quota| take_quota(&registry, account, quota).unwrap_err();
    assert_eq!(refused(account("c"), quota), Refusal::BandwidthQuota);
    held.push(take_quota(&registry, elsewhere("a"), quota).unwrap());
    assert_eq!(refused(elsewhere("b"), quota), Refusal::BandwidthQuota, "5 of 35 are left");
    let slower = AllocationQuota { rate: 5, ..quota };
    held.push(take_quota(&registry, elsewhere("b"), slower).unwrap());
    // The released rate is the rate taken, regardless of the present rate.
    held.remove(0);
    held.push(take_quota(&registry, account("c"), quota).unwrap());
    drop(held);
    assert_eq!(read(&registry, |registry| registry.total), Held::default());
    assert_eq!(read(&registry, |registry| registry.realms.len()), 0, "nothing is left behind");
}

#[test]
fn the_total_counts_all_accounts() {
    let registry = shared();
    let leases: Vec<_> = (0..3)
        .map(|i| take_quota(&registry, account(&std::format!("user{i}")), quota(0, 3)).unwrap())
        .collect();
    assert_eq!(
        take_quota(&registry, account("late"), quota(0, 3)).unwrap_err(),
        Refusal::TotalQuota
    );
    assert_eq!(
        read(&registry, |registry| registry.allocations_of(&account("late"))),
        0,
        "a refusal takes nothing"
    );
    drop(leases);
    assert!(take_quota(&registry, account("late"), quota(0, 3)).is_ok());
}

#[test]
fn nobody_in_particular_has_no_quota_of_their_own() {
    let registry = shared();
    let leases: Vec<_> =
        (0..5).map(|_| take_quota(&registry, account(""), quota(1, 5)).unwrap()).collect();
    assert_eq!(take_quota(&registry, account(""), quota(1, 5)).unwrap_err(), Refusal::TotalQuota);
    drop(leases);
    assert_eq!(read(&registry, Registry::allocations), 0);
}

#[test]
fn a_quota_lowered_below_what_is_in_use_refuses_until_enough_ended() {
    let registry = shared();
    let mut leases: Vec<_> =
        (0..4).map(|_| take_quota(&registry, account("ann"), quota(0, 0)).unwrap()).collect();
    assert!(take_quota(&registry, account("ann"), quota(2, 0)).is_err());
    leases.truncate(2);
    assert!(take_quota(&registry, account("ann"), quota(2, 0)).is_err());
    leases.truncate(1);
    assert!(take_quota(&registry, account("ann"), quota(2, 0)).is_ok());
}

#[test]
fn a_token_is_good_once_until_it_expires() {
    let (registry, ports) = (shared(), RelayPorts::new());
    let kept = reservation(&ports, at(30));
    let relayed = kept.relayed;
    registry.reserve([1; 8], kept, at(0)).unwrap();
    assert_eq!(registry.redeem([2; 8], anybody, at(1)), None, "another token");
    assert_eq!(ports.used(), 1, "the port is held meanwhile");
    assert_eq!(registry.redeem([1; 8], |_| false, at(29)), None, "of another account");
    let redeemed = registry.redeem([1; 8], anybody, at(29)).unwrap();
    assert_eq!((redeemed.relayed, redeemed.lease.port()), (relayed, relayed.port()));
    assert_eq!(registry.redeem([1; 8], anybody, at(29)), None, "used");
    drop(redeemed);
    assert_eq!(ports.used(), 0);

    registry.reserve([3; 8], reservation(&ports, at(30)), at(0)).unwrap();
    assert_eq!(registry.redeem([3; 8], anybody, at(30)), None, "expired");
    assert_eq!(ports.used(), 0, "and its port is free");
}

#[test]
fn expired_reservations_are_swept_and_their_ports_free() {
    let (registry, ports) = (shared(), RelayPorts::new());
    for i in 0..3 {
        registry.reserve([i; 8], reservation(&ports, at(30 + u64::from(i))), at(0)).unwrap();
    }
    registry.sweep(at(31));
    assert_eq!((ports.used(), read(&registry, Registry::reservations)), (1, 1));
    registry.reserve([9; 8], reservation(&ports, at(70)), at(40)).unwrap();
    assert_eq!(
        (ports.used(), read(&registry, Registry::reservations)),
        (1, 1),
        "reserving sweeps, too"
    );
}

#[test]
fn reservations_are_bounded_and_a_refused_one_frees_its_port() {
    let (registry, ports) = (shared(), RelayPorts::new());
    let reserve = |token: &u64| {
        registry.reserve(token.to_be_bytes(), reservation(&ports, at(30)), at(0)).is_ok()
    };
    let reserved = (0..=u64::from(RESERVATIONS_MAX)).take_while(reserve).count();
    assert!((RESERVATIONS_MAX / 2..=RESERVATIONS_MAX).contains(&(reserved as u32)), "{reserved}");
    let late = || reservation(&ports, at(60));
    assert_eq!(registry.reserve([0xFF; 8], late(), at(1)), Err(Refusal::PortsExhausted));
    assert_eq!(ports.used() as usize, reserved);
    assert!(registry.reserve([0xFF; 8], late(), at(30)).is_ok(), "room after expiry");
    assert_eq!(
        registry.reserve([0xFF; 8], late(), at(30)),
        Err(Refusal::PortsExhausted),
        "the token is taken"
    );
    assert_eq!(ports.used(), 1);
}

#[test]
fn one_account_cannot_reserve_every_port() {
    let (registry, ports) = (shared(), RelayPorts::new());
    let reserve_for = |name: &str, token: u64| {
        registry.reserve(token.to_be_bytes(), reservation_of(name, &ports, at(30)), at(0))
    };
    for token in 0..RESERVATIONS_PER_ACCOUNT_MAX as u64 {
        reserve_for("eve", token).unwrap();
    }
    assert_eq!(reserve_for("eve", 1000), Err(Refusal::PortsExhausted));
    assert_eq!(reserve_for("ann", 1001), Ok(()));
}

#[test]
fn one_customer_cannot_reserve_every_port_by_many_names() {
    let (registry, ports) = (shared(), RelayPorts::new());
    let reserve_at = |last, token: u64| {
        let name = std::format!("{}", 1_900_000_000 + token);
        let kept = reservation_of(&name, &ports, at(30));
        let kept = Reservation { customer: customer(last), ..kept };
        registry.reserve(token.to_be_bytes(), kept, at(0))
    };
    for token in 0..RESERVATIONS_PER_ACCOUNT_MAX as u64 {
        reserve_at(1, token).unwrap();
    }
    assert_eq!(reserve_at(1, 1000), Err(Refusal::PortsExhausted));
    assert_eq!(reserve_at(2, 1001), Ok(()));
}

#[test]
fn a_site_leaves_reservations_to_others() {
    let (registry, ports) = (shared(), RelayPorts::new());
    let reserve_at = |address: u128, token: u64| {
        let name = std::format!("{}", 1_900_000_000 + token);
        let kept = reservation_of(&name, &ports, at(30));
        let customer = Prefix::customer(core::net::Ipv6Addr::from_bits(address).into());
        registry.reserve(token.to_be_bytes(), Reservation { customer, ..kept }, at(0))
    };
    let site = 0x2001_0db8_0001 << 80;
    let tokens = 0..u64::from(RESERVATIONS_MAX);
    let refused =
        tokens.clone().find(|token| reserve_at(site + (u128::from(*token) << 64), *token).is_err());
    assert!(refused.is_some_and(|token| token > tokens.end / 2), "{refused:?}");
    assert_eq!(reserve_at(0x2001_0db9 << 96, tokens.end), Ok(()));
    // Redeemed and expired reservations take no slots.
    assert!(registry.redeem(0_u64.to_be_bytes(), anybody, at(1)).is_some());
    let held = || {
        read(&registry, |registry| registry.shares.as_ref().unwrap().reservations.held() as usize)
    };
    assert_eq!(held(), read(&registry, Registry::reservations));
    registry.sweep(at(30));
    assert_eq!(held(), 0);
}

#[test]
fn workers_together_keep_the_quota() {
    let registry = shared();
    let granted: u32 = thread::scope(|scope| {
        let workers: Vec<_> = (0..4)
            .map(|_| {
                let registry = &registry;
                scope.spawn(move || {
                    let leases: Vec<_> = (0..100)
                        .filter_map(|_| take_quota(registry, account("ann"), quota(50, 0)).ok())
                        .collect();
                    assert!(
                        read(registry, |registry| registry.allocations_of(&account("ann"))) <= 50
                    );
                    u32::try_from(leases.into_iter().map(mem::forget).count()).unwrap()
                })
            })
            .collect();
        workers.into_iter().map(|worker| worker.join().unwrap()).sum()
    });
    assert_eq!((granted, read(&registry, Registry::allocations)), (50, 50));
}

#[test]
fn a_customer_has_its_quota_whichever_accounts_it_uses() {
    let registry = shared();
    let quota =
        AllocationQuota { per_account: 0, per_realm: 0, per_customer: 2, total: 0, ..UNLIMITED };
    let take = |name: &str, last| {
        registry.take_quota(account(name), customer(last), Transport::Udp, quota)
    };
    // Bare time stamps: each is a separate account.
    let first = take("1900000000", 1).unwrap();
    let _second = take("1900000001", 1).unwrap();
    assert_eq!(take("1900000002", 1).unwrap_err(), Refusal::AddressQuota);
    let _elsewhere = take("1900000002", 2).unwrap();
    drop(first);
    assert!(take("1900000003", 1).is_ok());
    assert_eq!(read(&registry, |registry| registry.customers.len()), 2);
}

/// Copies of an allocation that moves during a hand-over arrive at both workers, in any order.
#[test]
fn of_two_places_of_an_allocation_the_later_one_counts() {
    let registry = shared();
    let id = AllocationId::new(WorkerId(1), 9);
    let first = registry.locate(id, WorkerId(1));
    let second = registry.locate(id, WorkerId(2));
    drop(first);
    assert_eq!(registry.location_of(id), Some(WorkerId(2)));
    drop(second);
    assert_eq!(registry.location_of(id), None);
}
