//! Rules of a TURN server (RFC 8656) and a STUN server (RFC 8489), without input or output.
//!
//! A [`Server`] takes packets, events and time, and returns verdicts and commands. The server owns
//! no socket, reads no clock, starts no thread and logs nothing. The code around it is the driver,
//! which owns the sockets and executes the commands. To drive a server:
//!
//! ```text
//! verdict = server.handle_client(now, path, meta, packet, &mut reply) // from a client
//! verdict = server.handle_peer(now, relay, peer, meta, len, &mut header) // to a relay socket
//! answer  = server.handle_icmp(now, relay, peer, report, &mut reply) // about a sent datagram
//! answer  = server.handle_event(now, event, &mut reply)              // result of a command
//! server.handle_timeout(now)                                         // at poll_timeout()
//! while let Some(packet)  = server.poll_queued()  { handle again }   // clients that have moved
//! while let Some(command) = server.poll_command() { execute }        // after each of the above
//! while let Some(notice)  = server.poll_notice()  { count, log }
//! ```
//!
//! A fast path forwards packets without the server, such as a program in the kernel. A driver with
//! a fast path sets [`ServerConfig::routes`]. Then `poll_command` also returns new, changed and
//! removed routes of bound channels ([`Command::SetRoute`], [`Command::RemoveRoute`]).
//! [`Server::credit`] takes the traffic of the fast path.
//!
//! A driver that relays TCP (RFC 6062, [`Policy::tcp_relaying`]) also executes [`Command::Tcp`].
//! The driver reports peers that connect ([`Server::handle_peer_connection`]), and the traffic and
//! the end of connections. The driver passes a ConnectionBind to the server of the connection
//! ([`Server::bind_connection`]).
//!
//! Read [`Server`] first, then [`Verdict`], then `relay.rs` (the packet path) and the files under
//! `method/`. There is one file per RFC method. Imports go only down this list:
//!
//! ```text
//! server       the public state machine, the only module with access to all stores
//! method       a file per method, with the stores that the method needs
//! mobility     clients that move (RFC 8016)
//! relay        the packet path, on one allocation
//! store        allocations, pending requests, budgets, registry, outbox …: private state, verbs
//! auth         the long-term mechanism, shared secrets, access tokens: a request -> a grant
//! io           commands, events, verdicts, notices: plain values
//! credentials  grants and tickets: plain values
//! policy       settings, peer rules, ports
//! ```
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod auth;
mod credentials;
mod io;
pub mod limits;
mod method;
mod mobility;
mod policy;
mod random;
mod relay;
mod server;
mod store;

pub use auth::{expiry_and_account, shared_nonce_key};
pub use credentials::grant::UserKeys;
pub use io::allocate_request::AllocationAttributes;
pub use io::command::{Applicant, Command, TcpCommand, UserQuery};
pub use io::event::{
    Authorization, ConnectError, Event, IcmpReport, OpenRelayError, User, UserAnswer,
};
pub use io::history::{ServedRequests, SessionHistory};
pub use io::notice::{
    AllocationPeers, AllocationRecord, Budget, EndReason, ForbiddenPeer, Notice, RefusedRequest,
    ShareHolder, Traffic,
};
pub use io::queued_packet::QueuedPacket;
pub use io::refusal::Refusal;
pub use io::route::{Route, RouteId};
pub use io::verdict::{
    Answer, DropReason, HEADER_MAX, HeaderBuffer, PeerRefusal, REPLY_MAX, ReplyBuffer, Verdict,
};
pub use io::worker::{BindRequest, Fetch, Question, WorkerAnswer};
pub use mobility::expected::ExpectedMove;
pub use mobility::import::{AllocationCopy, AllocationImportError, ImportedAllocation};
pub use mobility::reserved::ReservedPort;
pub use mobility::worker_move::{Departure, Renamed};
pub use policy::alternates::AlternateServers;
pub use policy::grant_limits::{GrantLimits, LimitsError};
pub use policy::origin::{NotAnOrigin, Origin};
pub use policy::peer_rules::{DeniedBy, PeerAccess, PeerRules, PlacedRule, canonical, is_tunnel};
pub use policy::ports::{PortLease, PortRange, PortRequirement, RelayPorts};
pub use policy::prefixes::{RelayPrefix, RelayPrefixError};
pub use policy::realms::{RealmPolicy, Realms};
pub use policy::revoked::{Revoked, without_limits};
pub use policy::{
    AuthPolicy, DefaultFamily, DiscoverySockets, Lifetimes, NonceKey, Policy, Quotas, RelayAddress,
    SharedSecret, TokenAlgorithm, TokenAuthority, TokenKey, UnauthenticatedBudget, WhenSilent,
};
pub use server::{EndedPart, EndedWait, Server, ServerConfig};
pub use store::Progress;
pub use store::carried::CarriedTraffic;
pub use store::population::Population;
pub use store::registry::{Registry, SharedRegistry};
pub use stun_wire::{UserName, UserNameError};
