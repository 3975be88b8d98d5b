//! One allocation (RFC 8656 §6): who made it, over which 5-tuple, and what it holds. A dual
//! allocation has two halves, one relayed address of each family, that end on their own.

use alloc::boxed::Box;
use alloc::sync::Arc;

use stun_wire::TransactionId;
use turn_types::{
    AllocationId, ClientPath, Instant, IpFamily, RelayId, RelayProtocol, RelayedAddr, UnixSeconds,
};

use crate::auth::{Authenticated, Keys, Known};
use crate::bandwidth::{Bucket, with_headers};
use crate::channel::Channels;
use crate::connection::PeerConnections;
use crate::mobility::Mobility;
use crate::notice::{AllocationRecord, EndReason, Refusal, Traffic};
use crate::permission::Permissions;
use crate::ports::PortLease;
use crate::registry::QuotaLease;

/// Where an allocation of a family stands in arrays of two.
pub(crate) const fn index_of(family: IpFamily) -> usize {
    match family {
        IpFamily::V4 => 0,
        IpFamily::V6 => 1,
    }
}

/// Who made an allocation: the keys are kept, never the password (RFC 8656 §6).
#[derive(Clone, Debug)]
pub(crate) struct Credentials {
    pub(crate) user: Arc<str>,
    pub(crate) account: Arc<str>,
    pub(crate) realm: Arc<str>,
    pub(crate) keys: Keys,
    /// When a time-limited credential or an access token runs out.
    pub(crate) expires: Option<UnixSeconds>,
}

impl Credentials {
    /// Whether `who` is who these are of (RFC 8656 §5). A token says who vouches for its user, not who
    /// the user is, and is followed by others, perhaps of another key: any of them will do.
    pub(crate) fn are_of(&self, who: &Authenticated) -> bool {
        match (&self.keys, &who.keys) {
            (Keys::Token(_), Keys::Token(_)) => true,
            (Keys::LongTerm(_), Keys::LongTerm(_)) => self.user == who.user,
            (Keys::Token(_), Keys::LongTerm(_)) | (Keys::LongTerm(_), Keys::Token(_)) => false,
        }
    }

    /// Whether `who` may have the allocation at another 5-tuple. A token has to be the very one that
    /// was shown last: others of its kid may be anybody's.
    pub(crate) fn may_be_moved_by(&self, who: &Authenticated) -> bool {
        self.are_of(who) && (!who.keys.are_of_token() || self.keys == who.keys)
    }

    /// A token that prolongs an allocation seals what comes after it. Quotas count as before.
    pub(crate) fn renew(&mut self, who: &Authenticated) {
        if who.keys.are_of_token() {
            self.user = Arc::clone(&who.user);
            self.keys = who.keys.clone();
            self.expires = who.expires;
        }
    }

    /// What later requests of the same user are checked by, without asking anybody. Who allocated
    /// on an open relay has no keys that prove anything.
    pub(crate) fn known(&self) -> Option<Known<'_>> {
        let Self { user, account, keys, expires, .. } = self;
        (!user.is_empty()).then_some(Known { user, account, keys, expires: *expires })
    }
}

/// One relayed address. Dropping it frees the port.
#[derive(Debug)]
pub(crate) struct Half {
    pub(crate) relay: RelayId,
    /// What the socket is bound to.
    pub(crate) local: RelayedAddr,
    pub(crate) lease: PortLease,
    pub(crate) expires: Instant,
}

#[derive(Debug)]
pub(crate) struct Allocation {
    pub(crate) id: AllocationId,
    /// Where its client is, or was when it was [`Self::attached`] last.
    pub(crate) path: ClientPath,
    /// Whether there is a way to its client; only one who may move can be without.
    pub(crate) attached: bool,
    /// What it has besides if its client may move.
    pub(crate) mobility: Option<Box<Mobility>>,
    pub(crate) credentials: Credentials,
    /// Counts against the user until the allocation is gone.
    pub(crate) _quota: QuotaLease,
    pub(crate) created: Instant,
    /// Of the Allocate that made it, to know a retransmission by.
    pub(crate) transaction: TransactionId,
    /// RESERVATION-TOKEN of that answer, for the same reason.
    pub(crate) token: Option<[u8; 8]>,
    /// ADDRESS-ERROR-CODE of that answer, for the same reason.
    pub(crate) address_error: Option<(IpFamily, Refusal)>,
    /// Relayed addresses as the client was told them: IPv4, IPv6.
    pub(crate) relayed: [Option<RelayedAddr>; 2],
    pub(crate) halves: [Option<Half>; 2],
    /// Of both halves: the family of the address says whose.
    pub(crate) permissions: Permissions,
    pub(crate) channels: Channels,
    pub(crate) protocol: RelayProtocol,
    pub(crate) connections: PeerConnections,
    pub(crate) traffic: Traffic,
    pub(crate) to_peer: Bucket,
    pub(crate) to_client: Bucket,
}

impl Allocation {
    /// The half of a family, if there is one that has not run out.
    pub(crate) fn half(&self, family: IpFamily, now: Instant) -> Option<&Half> {
        self.halves[index_of(family)].as_ref().filter(|half| now < half.expires)
    }

    /// Whether any half has not run out.
    pub(crate) fn is_live(&self, now: Instant) -> bool {
        self.halves.iter().flatten().any(|half| now < half.expires)
    }

    /// The end of the later half; `None` once both are gone.
    pub(crate) fn expires(&self) -> Option<Instant> {
        self.halves.iter().flatten().map(|half| half.expires).max()
    }

    /// The next moment at which something of it runs out.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        let halves = self.halves.iter().flatten().map(|half| half.expires).min();
        let Self { permissions, channels, connections, .. } = self;
        [halves, permissions.next_expiry(), channels.next_expiry(), connections.next_deadline()]
            .into_iter()
            .flatten()
            .min()
    }

    /// Counts what somebody else carried for it, also against its `rate`: bytes per second in each
    /// direction, 0 for unlimited.
    pub(crate) fn credit(&mut self, carried: &Traffic, rate: u64) {
        self.traffic.add(carried);
        let Traffic { to_peer_packets, to_peer_bytes, to_client_packets, to_client_bytes, .. } =
            *carried;
        // Of a dual allocation it is not told which peers it was for.
        let peers = if self.halves[1].is_some() { IpFamily::V6 } else { IpFamily::V4 };
        let client = self.path.five_tuple.client.family();
        self.to_peer.draw(rate, with_headers(peers, to_peer_packets, to_peer_bytes));
        self.to_client.draw(rate, with_headers(client, to_client_packets, to_client_bytes));
    }

    /// What is told about it.
    pub(crate) fn record(&self, end: Option<(EndReason, Instant)>) -> AllocationRecord {
        let ended = end.map(|(_, at)| at);
        AllocationRecord {
            id: self.id,
            user: Arc::clone(&self.credentials.user),
            account: Arc::clone(&self.credentials.account),
            realm: Arc::clone(&self.credentials.realm),
            five_tuple: self.path.five_tuple,
            relayed: self.relayed,
            created: self.created,
            expires: self.expires().or(ended).unwrap_or_default(),
            permissions: u32::try_from(self.permissions.len()).unwrap_or(u32::MAX),
            channels: u32::try_from(self.channels.len()).unwrap_or(u32::MAX),
            protocol: self.protocol,
            connections: u32::try_from(self.connections.len()).unwrap_or(u32::MAX),
            traffic: self.traffic,
            end,
        }
    }
}
