//! State of a server in small stores with separate methods. No store depends on the handling of a
//! STUN method.

pub(crate) mod allocation;
pub(crate) mod allocations;
mod apply;
pub(crate) mod bandwidth;
pub(crate) mod budgets;
pub(crate) mod carried;
pub(crate) mod changes;
pub(crate) mod channel;
pub(crate) mod connection;
pub(crate) mod expected_clients;
pub(crate) mod history;
pub(crate) mod ids;
pub(crate) mod lifecycle;
pub(crate) mod mobility;
pub(crate) mod move_queue;
pub(crate) mod new_peers;
pub(crate) mod outbox;
pub(crate) mod pending;
pub(crate) mod pending_allocation;
pub(crate) mod permission;
pub(crate) mod population;
pub(crate) mod registry;
pub(crate) mod review;
pub(crate) mod routes;
pub(crate) mod snapshot;
mod timers;

pub(crate) use self::allocation::{Allocation, RelaySocket};
pub(crate) use self::allocations::{Allocations, Slot};
pub(crate) use self::bandwidth::{Bucket, with_headers};
pub(crate) use self::budgets::{Budgets, Source};
pub(crate) use self::channel::{Channel, Channels};
pub(crate) use self::connection::{PeerConnection, PeerConnections, Phase};
pub(crate) use self::expected_clients::{ExpectedClient, ExpectedClients};
pub(crate) use self::history::History;
pub(crate) use self::ids::Ids;
pub(crate) use self::mobility::{Answered, Mobility, Next};
pub(crate) use self::move_queue::{MoveQueues, QueueFull};
pub(crate) use self::new_peers::NewPeers;
pub(crate) use self::outbox::Outbox;
pub(crate) use self::pending::{
    DeferredRequest, Pending, PendingConnect, PendingMove, UserLookup, Wait, Waiting,
};
pub(crate) use self::pending_allocation::{ClaimedPort, PendingAllocation, SocketState};
pub(crate) use self::permission::{Permission, Permissions};
pub(crate) use self::registry::{
    Account, AllocationQuota, QuotaLease, RegistryHandle, Reservation, SharedRegistry,
};
pub(crate) use self::review::PolicyRevision;
pub use self::snapshot::Progress;
pub(crate) use self::snapshot::{Leases, Snapshot};
