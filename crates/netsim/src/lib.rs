//! A seeded world for tests: virtual time, hosts, links that lose and delay, routers and NATs.
//!
//! ```text
//! let mut world = World::new(seed);
//! let internet  = world.add_router();
//! let nat       = world.add_nat(Nat::new(NatConfig::symmetric(public_ip)));
//! let client    = world.add_host(MyHost::client());
//! world.attach(internet, nat, LinkConfig::default().loss(Chance::percent(5)), &[public_prefix]);
//! world.connect(nat, client, LinkConfig::default());
//! world.check("what must always hold", |world| ...);     // after every step
//! world.run_for(Duration::from_secs(60));
//! ```
//!
//! Everything that happens follows from the seed: time is virtual, randomness comes from [`Rng`],
//! and events at the same instant happen in the order in which they were caused. A checker that
//! fails prints the seed; tests draw theirs with `test_support::for_each_seed`.
#![forbid(unsafe_code)]

mod link;
mod nat;
mod node;
mod packet;
mod rng;
mod router;
mod stream;
mod trace;
mod world;

pub use link::LinkConfig;
pub use nat::{Dependence, Nat, NatConfig};
pub use node::NodeId;
pub use packet::{Body, Icmp, Packet};
pub use rng::{Chance, Rng};
pub use router::Router;
pub use stream::{Heard, Stream};
pub use world::{Host, LinkId, Outbox, World};
