//! An Allocate on its way: its ports are claimed, its relay sockets are being opened outside. It
//! holds all that it claimed, so that dropping it gives everything back.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::SocketAddr;
use core::time::Duration;

use turn_types::{AllocationId, Instant, IpFamily, PendingId, RelayId, RelayProtocol, RelayedAddr};

use super::allocate::write_allocation;
use crate::allocation::{Allocation, Credentials, Half, index_of};
use crate::answer::Responder;
use crate::auth::Authenticated;
use crate::bandwidth::Bucket;
use crate::channel::Channels;
use crate::command::Command;
use crate::connection::PeerConnections;
use crate::event::OpenRelayError;
use crate::limits::PORT_ATTEMPTS_MAX;
use crate::mobility::Mobility;
use crate::notice::{Refusal, Traffic};
use crate::pending::Waiting;
use crate::permission::Permissions;
use crate::policy::Policy;
use crate::ports::{PortLease, PortRequirement};
use crate::registry::{self, QuotaLease, Reservation};
use crate::state::State;
use crate::verdict::{ReplyBuffer, Verdict};

/// What an Allocate is waiting for.
#[derive(Debug)]
pub(crate) struct Opening {
    responder: Responder,
    who: Authenticated,
    lifetime: Duration,
    /// Whether its client may move.
    mobile: bool,
    quota: QuotaLease,
    protocol: RelayProtocol,
    sockets: [Socket; 2],
    /// Ports that somebody else on this host holds: kept until the end, so as not to be tried twice.
    taken: Vec<PortLease>,
}

/// The answer to [`Command::OpenRelay`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opened {
    pub(crate) pending: PendingId,
    pub(crate) relay: RelayId,
    pub(crate) result: Result<(), OpenRelayError>,
}

/// One relay socket on its way.
#[derive(Debug)]
enum Socket {
    NotWanted,
    Failed(Refusal),
    Opening(Claim),
    Open(Claim),
}

/// A port that is ours to open.
#[derive(Debug)]
struct Claim {
    relay: RelayId,
    at: RelayedAddr,
    /// What the client will be told.
    public: RelayedAddr,
    lease: PortLease,
    /// The next port, to be reserved.
    next: Option<PortLease>,
    /// What to ask for when this port proves to be taken; `None` for a reserved port.
    wish: Option<PortRequirement>,
}

impl Opening {
    pub(crate) fn new(
        responder: Responder,
        who: Authenticated,
        (lifetime, mobile): (Duration, bool),
        (protocol, quota): (RelayProtocol, QuotaLease),
    ) -> Self {
        let sockets = [Socket::NotWanted, Socket::NotWanted];
        let taken = Vec::new();
        Self { responder, who, lifetime, mobile, quota, protocol, sockets, taken }
    }

    /// Claims the port of a reservation.
    pub(crate) fn wants_reserved(
        &mut self,
        policy: &Policy,
        state: &mut State,
        reservation: Reservation,
    ) -> Result<(), Refusal> {
        let at = reservation.relayed;
        // An address that left and came back keeps its ports in another registry.
        let relay = policy.relay.iter().find(|relay| relay.local == at.ip());
        let relay = relay.filter(|relay| reservation.lease.is_of(&relay.ports));
        let public = relay.ok_or(Refusal::BadReservationToken)?.public;
        let claim = Claim {
            relay: state.next_relay(),
            at,
            public: RelayedAddr(SocketAddr::new(public, at.port())),
            lease: reservation.lease,
            next: None,
            wish: None,
        };
        self.sockets[index_of(at.family())] = Socket::Opening(claim);
        Ok(())
    }

    /// Claims a port of one family.
    pub(crate) fn wants(
        &mut self,
        policy: &Policy,
        state: &mut State,
        family: IpFamily,
        wish: PortRequirement,
    ) -> Result<(), Refusal> {
        let claim = state.claim(policy, family, wish)?;
        self.sockets[index_of(family)] = Socket::Opening(claim);
        Ok(())
    }

    /// Claims a port of each family; one of both is enough.
    pub(crate) fn wants_both(
        &mut self,
        policy: &Policy,
        state: &mut State,
        wish: PortRequirement,
    ) -> Result<(), Refusal> {
        for family in IpFamily::ALL {
            if let Err(reason) = self.wants(policy, state, family, wish) {
                self.sockets[index_of(family)] = Socket::Failed(reason);
            }
        }
        if self.waits() { Ok(()) } else { Err(Refusal::PortsExhausted) }
    }

    fn waits(&self) -> bool {
        self.sockets.iter().any(|socket| matches!(socket, Socket::Opening(_)))
    }

    /// The place of a relay socket that is being opened.
    fn place_of(&self, relay: RelayId) -> Option<usize> {
        self.sockets
            .iter()
            .position(|socket| matches!(socket, Socket::Opening(claim) if claim.relay == relay))
    }

    /// Gives up: whatever is open, or may be by now, is closed.
    fn abandon(self, state: &mut State) {
        for socket in self.sockets {
            match socket {
                Socket::Opening(claim) | Socket::Open(claim) => {
                    state.outbox.close_claimed(claim.relay, claim.lease);
                }
                Socket::NotWanted | Socket::Failed(_) => {}
            }
        }
    }
}

impl State {
    /// Has the relay sockets of an Allocate opened, and lets it wait for them.
    pub(crate) fn open(&mut self, now: Instant, opening: Opening) {
        let key = (opening.responder.path.five_tuple, opening.responder.transaction);
        let asked = opening.sockets.each_ref().map(|socket| match socket {
            Socket::Opening(claim) => Some((claim.relay, claim.at)),
            Socket::NotWanted | Socket::Failed(_) | Socket::Open(_) => None,
        });
        let protocol = opening.protocol;
        let pending = self.pending.insert(now, key, Waiting::Relay(Box::new(opening)));
        for (relay, at) in asked.into_iter().flatten() {
            self.outbox.open((pending, protocol), relay, at);
        }
    }

    /// A relay socket was opened, or was not. The verdict is that of the Allocate, once it is known.
    pub(crate) fn relay_opened(
        &mut self,
        policy: &Policy,
        now: Instant,
        opened: Opened,
        reply: &mut ReplyBuffer,
    ) -> Option<(Responder, Verdict)> {
        let Opened { pending, relay, result } = opened;
        let place = self.pending.opening(pending).and_then(|opening| opening.place_of(relay));
        let Some(place) = place else {
            // Nobody waits for it any more.
            if result.is_ok() {
                self.outbox.command(Command::CloseRelay { relay });
            }
            return None;
        };
        let opening = self.pending.opening(pending)?;
        let protocol = opening.protocol;
        let socket = core::mem::replace(&mut opening.sockets[place], Socket::NotWanted);
        let Socket::Opening(claim) = socket else { return None };
        let next = match result {
            Ok(()) => {
                claim.lease.mark_open(protocol);
                Socket::Open(claim)
            }
            Err(OpenRelayError::PortTaken) => self.try_another(policy, pending, claim),
            Err(OpenRelayError::Exhausted) => Socket::Failed(Refusal::SystemExhausted),
        };
        let opening = self.pending.opening(pending)?;
        opening.sockets[place] = next;
        if opening.waits() {
            return None;
        }
        let Some(Waiting::Relay(opening)) = self.pending.take(pending) else { return None };
        Some(self.finish_allocate(policy, now, *opening, reply))
    }

    /// Somebody else on this host has the port: asks for another one, a bounded number of times.
    fn try_another(&mut self, policy: &Policy, pending: PendingId, claim: Claim) -> Socket {
        let Claim { at, lease, wish, .. } = claim;
        let Some(opening) = self.pending.opening(pending) else {
            return Socket::Failed(Refusal::PortsExhausted);
        };
        opening.taken.push(lease);
        let protocol = opening.protocol;
        let tried = u32::try_from(opening.taken.len()).unwrap_or(u32::MAX);
        let claim = match wish {
            Some(wish) if tried < PORT_ATTEMPTS_MAX => self.claim(policy, at.family(), wish),
            Some(_) | None => Err(Refusal::PortsExhausted),
        };
        match claim {
            Ok(claim) => {
                let Claim { relay, at, .. } = claim;
                self.outbox.open((pending, protocol), relay, at);
                Socket::Opening(claim)
            }
            Err(reason) => Socket::Failed(reason),
        }
    }

    /// Claims a free port on one of the relay addresses of a family, beginning with any of them.
    fn claim(
        &mut self,
        policy: &Policy,
        family: IpFamily,
        wish: PortRequirement,
    ) -> Result<Claim, Refusal> {
        let count = policy.relay_of(family).count();
        if count == 0 {
            return Err(Refusal::FamilyUnsupported);
        }
        let random = self.random.u64();
        let start = usize::try_from(random % count as u64).unwrap_or(0);
        for relay in policy.relay_of(family).cycle().skip(start).take(count) {
            let random = self.random.u64();
            if let Some((lease, next)) = relay.ports.claim(policy.ports, wish, random) {
                let port = lease.port();
                return Ok(Claim {
                    relay: self.next_relay(),
                    at: RelayedAddr(SocketAddr::new(relay.local, port)),
                    public: RelayedAddr(SocketAddr::new(relay.public, port)),
                    lease,
                    next,
                    wish: Some(wish),
                });
            }
        }
        Err(Refusal::PortsExhausted)
    }

    /// All sockets are open or have failed: makes the allocation, or refuses it.
    fn finish_allocate(
        &mut self,
        policy: &Policy,
        now: Instant,
        opening: Opening,
        reply: &mut ReplyBuffer,
    ) -> (Responder, Verdict) {
        let responder = opening.responder.clone();
        match self.make_allocation(policy, now, opening) {
            Ok((allocation, lifetime)) => {
                self.outbox.created(&allocation);
                let verdict = responder.success(policy, reply, |builder| {
                    write_allocation(builder, &allocation, lifetime);
                });
                self.table.insert(allocation);
                (responder, verdict)
            }
            Err(reason) => {
                self.tell_refusal(&responder, reason);
                let verdict = responder.error(policy, reply, reason, |_| ());
                (responder, verdict)
            }
        }
    }

    fn make_allocation(
        &mut self,
        policy: &Policy,
        now: Instant,
        mut opening: Opening,
    ) -> Result<(Allocation, Duration), Refusal> {
        let token = match self.reserve_next(policy, now, &mut opening) {
            Ok(token) => token,
            Err(reason) => {
                opening.abandon(self);
                return Err(reason);
            }
        };
        let Opening { responder, who, lifetime, mobile, quota, protocol, sockets, taken: _ } =
            opening;
        let serves = |at: RelayedAddr| policy.relay.iter().any(|relay| relay.local == at.ip());
        let (mut halves, mut relayed, mut failed) = ([None, None], [None, None], None);
        for (family, socket) in IpFamily::ALL.into_iter().zip(sockets) {
            match socket {
                // A reload took the address away while the socket was being opened.
                Socket::Open(claim) if !serves(claim.at) => {
                    self.outbox.close_claimed(claim.relay, claim.lease);
                    failed = Some((family, Refusal::SystemExhausted));
                }
                Socket::Open(Claim { relay, at, public, lease, .. }) => {
                    let expires = now + lifetime;
                    halves[index_of(family)] = Some(Half { relay, local: at, lease, expires });
                    relayed[index_of(family)] = Some(public);
                }
                Socket::Failed(reason) => failed = Some((family, reason)),
                Socket::NotWanted | Socket::Opening(_) => {}
            }
        }
        if halves.iter().all(Option::is_none) {
            return Err(failed.map_or(Refusal::SystemExhausted, |(_, reason)| reason));
        }
        let id = self.next_allocation();
        let mobility = mobile.then(|| {
            let home = registry::settle(&self.registry, id, self.worker);
            Box::new(Mobility::new(policy, home))
        });
        let allocation = Allocation {
            id,
            path: responder.path,
            attached: true,
            mobility,
            credentials: Credentials::of(&who, &policy.realm),
            _quota: quota,
            created: now,
            transaction: responder.transaction,
            token,
            address_error: failed,
            relayed,
            halves,
            permissions: Permissions::default(),
            channels: Channels::default(),
            protocol,
            connections: PeerConnections::default(),
            traffic: Traffic::default(),
            to_peer: Bucket::new(now),
            to_client: Bucket::new(now),
        };
        Ok((allocation, lifetime))
    }

    /// Keeps the port behind an EVEN-PORT allocation for whoever shows the token.
    fn reserve_next(
        &mut self,
        policy: &Policy,
        now: Instant,
        opening: &mut Opening,
    ) -> Result<Option<[u8; 8]>, Refusal> {
        let next = opening.sockets.iter_mut().find_map(|socket| match socket {
            Socket::Open(claim) => claim.next.take().map(|lease| (claim.at, lease)),
            Socket::NotWanted | Socket::Failed(_) | Socket::Opening(_) => None,
        });
        let Some((at, lease)) = next else { return Ok(None) };
        let relayed = RelayedAddr(SocketAddr::new(at.ip(), lease.port()));
        let expires = now + policy.lifetimes.reservation;
        let token = self.random.u64().to_be_bytes();
        let account = opening.quota.account().clone();
        let customer = opening.quota.customer();
        let reservation = Reservation { relayed, lease, account, customer, expires };
        registry::reserve(&self.registry, token, reservation, now)
            .map_err(|_| Refusal::PortsExhausted)?;
        self.sweep_reservations_at(expires);
        Ok(Some(token))
    }

    /// Lets go of a request that will not be answered.
    pub(crate) fn abandon(&mut self, waiting: Waiting) {
        match waiting {
            Waiting::User(_) | Waiting::Worker(_) => {}
            Waiting::Relay(opening) => opening.abandon(self),
            Waiting::Connect(connecting) => self.close_connection(connecting.connection),
        }
    }

    pub(crate) fn next_allocation(&mut self) -> AllocationId {
        self.allocations_made += 1;
        AllocationId::new(self.worker, self.allocations_made)
    }

    pub(crate) fn next_relay(&mut self) -> RelayId {
        self.relays_made += 1;
        RelayId(self.relays_made)
    }
}

impl Credentials {
    pub(crate) fn of(who: &Authenticated, realm: &Arc<str>) -> Self {
        Self {
            user: Arc::clone(&who.user),
            account: Arc::clone(&who.account),
            realm: Arc::clone(realm),
            keys: who.keys.clone(),
            expires: who.expires,
        }
    }
}
