//! Shares of ports and quotas: a site with many time-limited names does not use up the ports of
//! others.

use std::net::Ipv6Addr;

use stun_wire::*;
use turn_proto::*;
use turn_types::*;

use crate::support::*;

const SECRET: &[u8] = b"0123456789abcdef";

/// First address of a `/48`.
const SITE: u128 = 0x2001_0db8_0001 << 80;

fn with_secret(ports: u16) -> Policy {
    let mut policy = with_ports(50_000, 50_000 + ports - 1);
    let secret = Secret::new(SECRET.into());
    policy.quotas = Quotas::default();
    policy.auth.secrets = vec![SharedSecret { name: "web".into(), secret }];
    policy
}

/// A client with a name that no other client has.
fn client(address: impl std::fmt::Display, number: u32) -> Client {
    let mut client = Client::at(&format!("{address}:{}", 1024 + number));
    client.user = format!("1900003600:user{number}").leak();
    client.password = time_limited_password(SECRET, client.user).leak();
    client
}

/// A client in a separate `/64` of one `/48`.
fn of_site(number: u32) -> Client {
    let network = u128::from(number as u16) * 4099 % 65_536;
    let address = Ipv6Addr::from_bits(SITE | network << 64 | 1);
    client(format_args!("[{address}]"), number)
}

/// Number of allocations that 1,000 clients of the site get, with the last reason.
fn fill(world: &mut World) -> (usize, Refusal) {
    let is_granted = |number: &u32| of_site(*number).try_allocate(world, |_| ()).code().is_none();
    let count = (0..1000).filter(is_granted).count();
    (count, *world.refusals().last().unwrap())
}

fn allocates_elsewhere(world: &mut World, number: u32) -> bool {
    let mut other = client(format_args!("198.51.{number}.1"), 2000 + number);
    other.try_allocate(world, |_| ()).code().is_none()
}

#[test]
fn a_site_leaves_relay_ports_to_others() {
    let mut world = World::with(with_secret(400));
    let (count, reason) = fill(&mut world);
    assert!((350..400).contains(&count), "{count}");
    assert_eq!(reason, Refusal::PortsShare);
    // The notice names the holder of the share: the site.
    of_site(1001).try_allocate(&mut world, |_| ()).refused(508);
    let site = Prefix::containing(Ipv6Addr::from_bits(SITE).into(), 48);
    assert_eq!(world.share_holder(), Some(ShareHolder::Network(site)));
    for number in 0..10 {
        assert!(allocates_elsewhere(&mut world, number), "client {number} of another network");
    }
    // Ended allocations are not counted any more. The site's allocations live until then.
    assert_eq!(world.server.allocations().count(), count + 10);
    for number in 0..100 {
        let mut leaving = of_site(number);
        leaving.log_in(&mut world);
        leaving.refresh(&mut world, Some(0)).success();
    }
    assert_eq!(of_site(1000).try_allocate(&mut world, |_| ()).code(), None);
}

/// A reservation outlives its allocation, and pairs are fewer than ports.
#[test]
fn a_site_leaves_pairs_of_ports_to_others() {
    let mut world = World::with(with_secret(400));
    let pair = |builder: &mut MessageBuilder<'_>| {
        builder.even_port(true);
    };
    let reserves = |world: &mut World, mut client: Client| {
        let is_granted = client.try_allocate(world, pair).code().is_none();
        if is_granted {
            client.refresh(world, Some(0)).success();
        }
        is_granted
    };
    let count = (0..400).filter(|number| reserves(&mut world, of_site(*number))).count();
    assert!((150..200).contains(&count), "{count}");
    assert_eq!(world.refusals().last(), Some(&Refusal::PortsShare));
    for number in 0..5 {
        let other = client(format_args!("198.51.{number}.1"), 2000 + number);
        assert!(reserves(&mut world, other), "client {number} of another network");
    }
}

#[test]
fn a_site_leaves_allocations_of_a_total_quota_to_others() {
    let mut policy = policy_with_total(400);
    policy.quotas.bytes_per_second = 1000;
    let mut world = World::with(policy);
    let (count, reason) = fill(&mut world);
    assert!((350..400).contains(&count), "{count}");
    assert_eq!(reason, Refusal::QuotaShare);
    for number in 0..10 {
        assert!(allocates_elsewhere(&mut world, number), "client {number} of another network");
    }
}

#[test]
fn a_site_leaves_bytes_per_second_to_others() {
    let mut policy = policy_with_total(0);
    policy.quotas.bytes_per_second = 1000;
    policy.quotas.bytes_per_second_total = 400_000;
    let mut world = World::with(policy);
    let (count, reason) = fill(&mut world);
    assert!((350..400).contains(&count), "{count}");
    assert_eq!(reason, Refusal::QuotaShare);
    of_site(1001).try_allocate(&mut world, |_| ()).refused(508);
    let site = Prefix::containing(Ipv6Addr::from_bits(SITE).into(), 48);
    assert_eq!(world.share_holder(), Some(ShareHolder::Network(site)));
    assert!(allocates_elsewhere(&mut world, 0));
}

fn policy_with_total(total: u32) -> Policy {
    let mut policy = with_secret(4000);
    policy.quotas.allocations_total = total;
    policy
}

/// Networks have no shares if addresses have no limit, because many customers share an address.
#[test]
fn an_address_of_many_customers_has_all_ports() {
    let mut policy = with_secret(100);
    policy.quotas.allocations_per_customer = 0;
    let mut world = World::with(policy);
    for number in 0..100 {
        assert_eq!(client("198.51.100.1", number).try_allocate(&mut world, |_| ()).code(), None);
    }
    client("198.51.100.1", 100).try_allocate(&mut world, |_| ()).refused(508);
    assert_eq!(world.refusals().last(), Some(&Refusal::PortsExhausted));
}

/// A user of many networks, where an operator has limited the allocations of users.
#[test]
fn one_user_leaves_relay_ports_to_others() {
    let mut policy = with_secret(2000);
    policy.quotas.allocations_per_customer = 0;
    let mut world = World::with(policy.clone());
    let alice = |number: u32| {
        let [_, _, high, low] = number.to_be_bytes();
        Client::at(&format!("198.51.{high}.{low}:1024"))
    };
    policy.quotas.allocations_per_user = 10_000;
    world.apply(policy);
    let granted = (0..2000)
        .take_while(|number| alice(*number).try_allocate(&mut world, |_| ()).code().is_none());
    assert!((1750..2000).contains(&granted.count()));
    assert_eq!(world.share_holder(), Some(ShareHolder::Account("alice".into())));
    alice(2001).try_allocate(&mut world, |_| ()).refused(508);
    assert_eq!(world.refusals().last(), Some(&Refusal::PortsShare));
    assert!(allocates_elsewhere(&mut world, 0));
}

/// A connection with an allocation is never evicted, even from a full table of connections.
#[test]
fn one_user_leaves_connections_that_may_have_an_allocation_to_others() {
    let limited = Quotas { stream_allocations: 200, dtls_allocations: 300, ..Quotas::default() };
    let mut world = World::with(Policy { quotas: limited, ..with_secret(4000) });
    let alice = |number: u32, transport| {
        let [_, _, high, low] = number.to_be_bytes();
        Client::at(&format!("198.51.{high}.{low}:1024")).over(transport)
    };
    for (transport, most) in [(Transport::Tls, 200), (Transport::Dtls, 300)] {
        let mut allocates = |number: &u32| {
            alice(*number, transport).try_allocate(&mut world, |_| ()).code().is_none()
        };
        let granted = (0..most).take_while(&mut allocates).count();
        assert!((most * 7 / 8..most).contains(&(granted as u32)), "{granted}");
        assert_eq!(world.share_holder(), Some(ShareHolder::Account("alice".into())));
        alice(most, transport).try_allocate(&mut world, |_| ()).refused(508);
        assert_eq!(world.refusals().last(), Some(&Refusal::ConnectionShare));
        let mut other = client("203.0.113.1", most).over(transport);
        assert_eq!(other.try_allocate(&mut world, |_| ()).code(), None);
    }
    assert_eq!(alice(999, Transport::Udp).try_allocate(&mut world, |_| ()).code(), None);
    let mut leaving = alice(0, Transport::Tls);
    for number in 0..20 {
        leaving = alice(number, Transport::Tls);
        leaving.log_in(&mut world);
        leaving.refresh(&mut world, Some(0)).success();
    }
    assert_eq!(leaving.try_allocate(&mut world, |_| ()).code(), None);
}
