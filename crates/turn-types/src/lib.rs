//! Basic types that every crate uses, without behaviour.
//!
//! Addresses are typed by owner: [`ClientAddr`], [`ServerAddr`], [`RelayedAddr`], [`PeerAddr`].
//!
//! Time is a value with an epoch chosen by the caller: [`Instant`], [`UnixSeconds`], [`Now`]. There
//! is no `now()` here, so code that uses only these types cannot read a clock.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod addr;
mod direction;
mod id;
mod ip_meta;
mod labels;
mod path;
mod prefix;
pub mod quantity;
mod realm;
mod secret;
mod time;

pub use addr::{ClientAddr, IpFamily, PeerAddr, RelayedAddr, ServerAddr};
pub use direction::Direction;
pub use id::{AllocationId, ConnectionId, PendingId, RelayId, SocketId, WorkerId};
pub use ip_meta::IpMeta;
pub use path::{ClientPath, FiveTuple, RelayProtocol, Transport};
pub use prefix::{Prefix, PrefixError};
pub use realm::Realm;
pub use secret::Secret;
pub use time::{Instant, Now, UnixSeconds};
