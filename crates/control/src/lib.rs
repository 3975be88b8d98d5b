//! The contract between the control plane and the data plane; nothing else crosses.
//!
//! The control plane (async, unhurried) holds a [`Handle`]; each worker of the data plane (one
//! thread, never waiting) holds an [`Inbox`] and its [`WorkerCounters`]. The control plane sends a
//! [`Request`] to a bounded [`mailbox()`]; the worker answers by the request's own [`Reply`], a
//! user look-up through a [`UserDirectory`], or a number in the counters, which are read without
//! the worker noticing.
#![forbid(unsafe_code)]

mod counters;
mod earlier;
mod family;
mod handle;
mod histogram;
mod info;
mod mailbox;
mod operator;
mod realm_totals;
pub mod reasons;
mod recent_log;
mod refused;
mod registry;
mod request;
mod revocation;
mod series;
mod session;
mod session_events;
mod totals;
mod traces;
mod users;
mod workers;

pub use counters::WorkerCounters;
pub use earlier::{EarlierTotals, KernelPathTotals};
pub use family::{Family, Kind, Label};
pub use handle::Handle;
pub use histogram::Histogram;
pub use info::{
    CertificateInfo, ConfiguredKey, ConfinementInfo, ConfinementLayer, KeeperState, KeptCapability,
    MissingAddresses, MonitoringInfo, OffloadInfo, OffloadInterface, OffloadWatch, RedirectInfo,
    RelayInfo, ServerInfo, TookOverInfo, UnreadParts,
};
pub use mailbox::{Inbox, Mailbox, PostError, Wake, mailbox};
pub use operator::{
    CancelReport, Change, DrainReport, MintWish, Minted, OperatorRequest, ReloadReport,
};
pub use realm_totals::RealmTotals;
pub use recent_log::{RecentLog, Warning};
pub use refused::{RefusalFilter, Refused, RefusedSubject};
pub use registry::LockedRegistry;
pub use request::{Reply, Request, SessionFilter, SessionNames};
pub use revocation::{
    OperatorError, OperatorErrorKind, Revocable, Revocation, RevokeReport, RevokeWish, RevokedKind,
};
pub use series::{
    AssociationEnd, AssociationRefusal, DtlsOwn, Fate, HelloAnswer, LateAnswer, Leg, Series,
    StreamEnd, StreamRefusal,
};
pub use session::{Session, SessionOffload, WhyNot};
pub use session_events::{EventQueue, RecordOutput, SessionEvent, SessionEvents};
pub use totals::{CounterTotals, Volume};
pub use traces::{TooManyTraces, Trace, Traces};
pub use users::{
    Asked, AuthorizationRequest, Authorizer, NoAuthorizer, UnconfirmedUsers, UserDirectory,
    UserLookup,
};
pub use workers::{ControlError, Workers};

/// Limits, with their reasons.
pub mod limits {
    use std::time::Duration;

    use turn_proto::limits::PENDING_MAX;

    /// Requests that one worker's mailbox holds: one answer for every request that can wait for a
    /// user look-up, so that none is lost, and as much again as operators can ask at one time.
    pub const MAILBOX_CAPACITY: usize = PENDING_MAX + 256;

    /// Deadline of the workers' answers. They answer between two batches, which takes
    /// milliseconds even under full load: later means that a worker is stuck.
    pub const ANSWER_DEADLINE: Duration = Duration::from_secs(2);

    /// Time after which no request is judged by the keys that a user had before a change of the
    /// database. A look-up in flight takes up to 1.4 s, and its answer is valid for half a second.
    pub const USER_CHANGE_SEEN_WITHIN: Duration = Duration::from_secs(2);

    /// Allocations that a worker lists at a time, of all of them: a fraction of a millisecond
    /// between two batches of packets.
    pub const LIST_PAGE: usize = 512;

    /// Allocations that a worker checks at a time for a secret or key that counts no longer: about
    /// two milliseconds between two batches of packets, as a key is derived for each.
    pub const CHECK_PAGE: usize = 256;

    /// Warnings and errors of the log that are kept for operators.
    pub const WARNINGS_MAX: usize = 100;

    /// Longest text of one in bytes; lines of several sentences have some hundreds.
    pub const WARNING_BYTES_MAX: usize = 2048;

    /// Traces at one time: each is compared with each event while there is any.
    pub const TRACES_MAX: usize = 16;

    /// Longest time of a trace: a day, so that a forgotten one ends.
    pub const TRACE_MAX: Duration = Duration::from_secs(86_400);

    /// Operator requests that wait for the binary's main loop; they come one at a time.
    pub const OPERATOR_QUEUE: usize = 16;

    /// Records of sessions that wait for the disk: all of the largest server's, when it ends, or
    /// those of some minutes when the disk is full. Some 10 MB at the most.
    pub const SESSION_EVENTS: usize = 16_384;
}
