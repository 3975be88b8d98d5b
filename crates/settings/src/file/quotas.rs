//! The section `[quotas]`: bounds for users, for clients of one address, and for sources without credentials.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::value::{Bytes, Count};

/// `[quotas]`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Quotas {
    /// Allocations that one user may have at a time; 0 is any number. A client has two or three for each
    /// call. The default keeps one leaked credential from taking every port, and leaves room for services
    /// whose clients all share one user; where each person is a user of their own, 20 is enough. A
    /// time-limited name counts without its time, so that a service that hands out bare times, or access
    /// tokens, is bounded by `allocations_per_address` alone. Those beyond are refused with 486.
    #[schemars(example = 20, extend("x-applied" = "live"))]
    pub allocations_per_user: Count<0, 10_000_000>,
    /// Allocations that the clients of one address (a /64 of IPv6) may have at a time, whichever users they
    /// are; 0 is any number. The default is some 700 calls at once from behind one NAT: more than the
    /// largest offices and what carriers put behind one address, and an eighth of the ports. Raise it where
    /// a proxy that does not speak the PROXY protocol, or the NAT of a cluster, stands in front of all
    /// clients. Those beyond are refused with 486.
    #[schemars(example = 200, extend("x-applied" = "live"))]
    pub allocations_per_address: Count<0, 10_000_000>,
    /// Allocations that there may be at a time; 0 is as many as there are ports.
    #[schemars(example = 5000, extend("x-applied" = "live"))]
    pub allocations_total: Count<0, 10_000_000>,
    /// Permissions (addresses that may send) in one allocation.
    #[schemars(extend("x-applied" = "live"))]
    pub permissions: Count<1, { turn_proto::limits::PERMISSIONS_MAX }>,
    /// Channels in one allocation.
    #[schemars(extend("x-applied" = "live"))]
    pub channels: Count<1, { turn_proto::limits::CHANNELS_MAX }>,
    /// Addresses per second that the clients of one address (a /64 of IPv6) may begin to send to, whichever
    /// users they are; 0 is any number. A minute's worth may be used at once: with the default 6,000
    /// addresses, where a client of WebRTC has 5 to 20 for each call, so that a whole office may come back at
    /// the same time. It keeps a leaked credential from scanning the Internet through this host. A user may
    /// have twenty times as much from all addresses together. Those beyond are refused with 508.
    #[schemars(example = 5, extend("x-applied" = "live"))]
    pub new_peers_per_second: Count<0, 1_000_000>,
    /// Bytes per second that one allocation may carry in each direction, with 28 bytes of headers for each packet
    /// sent over IPv4 and 48 over IPv6; `"0 B"` is any amount.
    #[schemars(example = &"2 MiB", extend("x-applied" = "live"))]
    pub bytes_per_second: Bytes<0, { 1 << 40 }>,
    /// Responses per second to requests without credentials from one network of clients (a /24 of IPv4, a
    /// /48 of IPv6); 0 is any number. It bounds what forged source addresses make this host send to
    /// others: with the default, about 2 Mbit/s to any network. One half is for STUN Binding, the
    /// other for the first step of a login (401, 438), so that neither uses up the other's. Of each half,
    /// a half is kept for addresses that ask seldom: when some addresses of a network ask too often, each of
    /// the others still gets about two responses a second.
    ///
    /// Clients whose address is no forgery (they came over TCP, TLS or DTLS, or sent a nonce that was given to
    /// their address) take nothing of that. They have as many responses for each address (a /64 of IPv6), and a
    /// twentieth of it for requests whose credentials turn out wrong: beyond that nothing from that
    /// address is verified for a moment, but for clients that have an allocation.
    /// `turnpike status` counts packets dropped by an exhausted budget as `unauthenticated_budget`,
    /// `proved_address_budget` or `verification_budget`, and the log names the network once a minute.
    #[schemars(extend("x-applied" = "live"))]
    pub unauthenticated_responses_per_second: Count<0, 1_000_000>,
}

impl Default for Quotas {
    fn default() -> Self {
        Self {
            allocations_per_user: Count::new(1000),
            allocations_per_address: Count::new(2000),
            allocations_total: Count::new(0),
            permissions: Count::new(128),
            channels: Count::new(128),
            new_peers_per_second: Count::new(100),
            bytes_per_second: Bytes::new(0),
            unauthenticated_responses_per_second: Count::new(2000),
        }
    }
}
