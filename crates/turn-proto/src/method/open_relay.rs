//! Relay sockets of an Allocate: claims of ports, and creation of the allocation when the sockets
//! are open.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::net::SocketAddr;
use core::time::Duration;

use turn_types::{Instant, IpFamily, PendingId, RelayId, RelayProtocol, RelayedAddr};

use super::allocate::{Allocate, write_allocation};
use crate::credentials::Grant;
use crate::io::{
    Command, OpenRelayError, Refusal, ReplyBuffer, RequestedAddresses, Responder, Traffic, Verdict,
    without_relay_of,
};
use crate::limits::PORT_ATTEMPTS_MAX;
use crate::policy::prefixes::ClaimedAddress;
use crate::policy::{Policy, PortRequirement};
use crate::store::{
    Account, Allocation, Bucket, Channels, ClaimedPort, History, Mobility, PeerConnections,
    PendingAllocation, Permissions, PolicyRevision, RelaySocket, Reservation, SocketState, Wait,
    Waiting,
};

/// Result of [`Command::OpenRelay`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opened {
    pub(crate) pending: PendingId,
    pub(crate) relay: RelayId,
    pub(crate) result: Result<(), OpenRelayError>,
}

impl Allocate<'_> {
    /// Claims the ports of an Allocate, and opens the relay sockets. The Allocate waits for the
    /// sockets.
    pub(super) fn claim_ports(
        &mut self,
        policy: &Policy,
        now: Instant,
        mut allocation: PendingAllocation,
    ) -> Result<(), Refusal> {
        match allocation.wanted.relayed {
            RequestedAddresses::Reserved(token) => {
                let is_own = |account: &Account| may_redeem(&allocation.grant, account);
                let reservation = self.registry.redeem(token, is_own, now);
                let reservation = reservation.ok_or(Refusal::BadReservationToken)?;
                let family = reservation.relayed.family();
                let port = self.claim_reserved(policy, reservation)?;
                allocation.set(family, SocketState::Opening(port));
            }
            RequestedAddresses::One(family, requirement) => {
                let port = self.claim(policy, family, requirement, &allocation)?;
                allocation.set(family, SocketState::Opening(port));
            }
            RequestedAddresses::Both(requirement) => {
                self.claim_both(policy, requirement, &mut allocation)?;
            }
        }
        self.open(now, allocation);
        Ok(())
    }

    /// Claims the port of a reservation.
    fn claim_reserved(
        &mut self,
        policy: &Policy,
        reservation: Reservation,
    ) -> Result<ClaimedPort, Refusal> {
        let (at, lease) = (reservation.relayed, &reservation.lease);
        // A relay address that was removed and added again does not accept its old leases.
        let public = if policy.prefix_of(at.ip()).is_some_and(|prefix| prefix.has_lease(lease)) {
            at.ip()
        } else {
            let relay = policy.relay.iter().find(|relay| relay.local == at.ip());
            let relay = relay.filter(|relay| lease.is_of(&relay.ports));
            relay.ok_or(Refusal::BadReservationToken)?.public
        };
        Ok(ClaimedPort {
            relay: self.ids.next_relay(),
            at,
            public: RelayedAddr(SocketAddr::new(public, at.port())),
            lease: reservation.lease,
            next: None,
            requirement: None,
        })
    }

    /// Claims an address of a prefix, or a free port on a relay address, within the client's share.
    fn claim(
        &mut self,
        policy: &Policy,
        family: IpFamily,
        requirement: PortRequirement,
        allocation: &PendingAllocation,
    ) -> Result<ClaimedPort, Refusal> {
        if !policy.relays_family(family) {
            return Err(without_relay_of(policy, family));
        }
        allocation.quota.check_ports(policy.port_supply(family, self.ids.worker(), requirement))?;
        self.claim_free(policy, family, allocation.wanted.kept.protocol, requirement)
    }

    /// Claims an address of a prefix, or a free port on a relay address.
    fn claim_free(
        &mut self,
        policy: &Policy,
        family: IpFamily,
        protocol: RelayProtocol,
        requirement: PortRequirement,
    ) -> Result<ClaimedPort, Refusal> {
        self.claim_of_prefix(policy, family, protocol, requirement)
            .or_else(|| self.claim_of_address(policy, family, requirement))
            .ok_or_else(|| {
                let mut relays =
                    policy.relay.iter().filter(|one| IpFamily::of(one.local) == family);
                // The process has too few file descriptors, although ports are free.
                if relays.any(|relay| relay.ports.is_at_limit(policy.ports)) {
                    Refusal::SystemExhausted
                } else {
                    Refusal::PortsExhausted
                }
            })
    }

    /// Claims an address of one of a family's prefixes. The search starts with a random prefix.
    fn claim_of_prefix(
        &mut self,
        policy: &Policy,
        family: IpFamily,
        protocol: RelayProtocol,
        requirement: PortRequirement,
    ) -> Option<ClaimedPort> {
        let prefixes = policy.prefixes_of(family);
        for prefix in self.random.rotated(prefixes) {
            let random = u128::from(self.random.u64()) << 64 | u128::from(self.random.u64());
            let claimed = prefix.claim(self.ids.worker(), requirement, random);
            if let Some(ClaimedAddress { at, lease, next }) = claimed {
                let relay = match protocol {
                    RelayProtocol::Udp => self.ids.next_shared_relay(),
                    RelayProtocol::Tcp => self.ids.next_relay(),
                };
                let at = RelayedAddr(at);
                let requirement = Some(requirement);
                return Some(ClaimedPort { relay, at, public: at, lease, next, requirement });
            }
        }
        None
    }

    /// Claims a free port on one of a family's relay addresses. The search starts with a random
    /// address.
    fn claim_of_address(
        &mut self,
        policy: &Policy,
        family: IpFamily,
        requirement: PortRequirement,
    ) -> Option<ClaimedPort> {
        let addresses = policy.relay_of(family);
        for relay in self.random.rotated(addresses) {
            let random = self.random.u64();
            if let Some((lease, next)) = relay.ports.claim(policy.ports, requirement, random) {
                let port = lease.port();
                return Some(ClaimedPort {
                    relay: self.ids.next_relay(),
                    at: RelayedAddr(SocketAddr::new(relay.local, port)),
                    public: RelayedAddr(SocketAddr::new(relay.public, port)),
                    lease,
                    next,
                    requirement: Some(requirement),
                });
            }
        }
        None
    }

    /// Claims a port of each family. Success with one family is enough.
    fn claim_both(
        &mut self,
        policy: &Policy,
        requirement: PortRequirement,
        allocation: &mut PendingAllocation,
    ) -> Result<(), Refusal> {
        let mut reason = Refusal::PortsExhausted;
        for family in IpFamily::ALL {
            let claimed = self.claim(policy, family, requirement, allocation);
            if let Err(why @ (Refusal::PortsShare | Refusal::RelayAddressAbsent)) = claimed {
                reason = why;
            }
            allocation.set(family, claimed.map_or_else(SocketState::Failed, SocketState::Opening));
        }
        if allocation.waits() { Ok(()) } else { Err(reason) }
    }

    /// Opens the relay sockets of an Allocate, which waits for the results.
    fn open(&mut self, now: Instant, allocation: PendingAllocation) {
        let key = (allocation.responder.path.five_tuple, allocation.responder.transaction);
        let protocol = allocation.wanted.kept.protocol;
        let ports: Vec<_> = allocation.opening().map(|port| (port.relay, port.at)).collect();
        let claimant = allocation.grant.claimant(key.0.client);
        let slot = self.pending.take_slot(Wait::Other, &claimant);
        let waiting = Waiting::Relay(Box::new(allocation));
        let pending = self.pending.insert(now, key, slot, waiting);
        for (relay, at) in ports {
            self.outbox.open(pending, protocol, relay, at);
        }
    }

    /// Handles the result of opening a relay socket. Returns the verdict of the Allocate after the
    /// last socket.
    pub(crate) fn relay_opened(
        &mut self,
        policy: &Policy,
        now: Instant,
        opened: Opened,
        reply: &mut ReplyBuffer,
    ) -> Option<(Responder, Verdict)> {
        let Opened { pending, relay, result } = opened;
        let waiting = self.pending.allocation(pending);
        let taken = waiting
            .and_then(|waiting| Some((waiting.wanted.kept.protocol, waiting.take_opening(relay)?)));
        let Some((protocol, (family, port))) = taken else {
            // The Allocate was abandoned.
            if result.is_ok() {
                self.outbox.command(Command::CloseRelay { relay });
            }
            return None;
        };
        let next = match result {
            Ok(()) => {
                port.lease.mark_open(protocol);
                SocketState::Open(port)
            }
            Err(OpenRelayError::PortTaken) => self.try_another(policy, pending, port),
            Err(OpenRelayError::AddressAbsent) => SocketState::Failed(Refusal::RelayAddressAbsent),
            Err(OpenRelayError::Exhausted) => SocketState::Failed(Refusal::SystemExhausted),
        };
        let waiting = self.pending.allocation(pending)?;
        waiting.set(family, next);
        if waiting.waits() {
            return None;
        }
        let allocation = self.pending.take_allocation(pending)?;
        Some(self.finish(policy, now, allocation, reply))
    }

    /// Claims another port, because another process on this host uses the first port. The number of
    /// attempts is limited.
    fn try_another(
        &mut self,
        policy: &Policy,
        pending: PendingId,
        port: ClaimedPort,
    ) -> SocketState {
        let ClaimedPort { at, lease, requirement, .. } = port;
        let Some(waiting) = self.pending.allocation(pending) else {
            return SocketState::Failed(Refusal::PortsExhausted);
        };
        waiting.taken.push(lease);
        let protocol = waiting.wanted.kept.protocol;
        let tried = u32::try_from(waiting.taken.len()).unwrap_or(u32::MAX);
        let claimed = match requirement {
            // All addresses of a prefix use this port, so another address of a prefix does not
            // help.
            Some(requirement) if policy.prefix_of(at.ip()).is_some() => self
                .claim_of_address(policy, at.family(), requirement)
                .ok_or(Refusal::PortsExhausted),
            Some(requirement) if tried < PORT_ATTEMPTS_MAX => {
                self.claim_free(policy, at.family(), protocol, requirement)
            }
            Some(_) | None => Err(Refusal::PortsExhausted),
        };
        match claimed {
            Ok(port) => {
                self.outbox.open(pending, protocol, port.relay, port.at);
                SocketState::Opening(port)
            }
            Err(reason) => SocketState::Failed(reason),
        }
    }

    /// Creates or refuses the allocation, after each socket is open or has failed.
    fn finish(
        &mut self,
        policy: &Policy,
        now: Instant,
        pending: PendingAllocation,
        reply: &mut ReplyBuffer,
    ) -> (Responder, Verdict) {
        let responder = pending.responder.clone();
        let verdict = match self.make_allocation(policy, now, pending) {
            Ok((allocation, lifetime)) => {
                self.outbox.created(&allocation);
                let verdict = responder.success(reply, |builder| {
                    write_allocation(builder, &allocation, lifetime);
                });
                self.allocations.insert(allocation);
                verdict
            }
            Err(reason) => {
                self.outbox.refused(&responder, reason);
                responder.error(reply, reason, |_| ())
            }
        };
        (responder, verdict)
    }

    fn make_allocation(
        &mut self,
        policy: &Policy,
        now: Instant,
        mut pending: PendingAllocation,
    ) -> Result<(Allocation, Duration), Refusal> {
        let token = match self.reserve_next(policy, now, &mut pending) {
            Ok(token) => token,
            Err(reason) => {
                pending.abandon(self.outbox);
                return Err(reason);
            }
        };
        let PendingAllocation { responder, grant, lifetime, quota, wanted, .. } = pending;
        let serves = |at: RelayedAddr| policy.relays_from(at.ip());
        let (mut sockets, mut relayed, mut failed) = ([None, None], [None, None], None);
        for (family, socket) in IpFamily::ALL.into_iter().zip(pending.sockets) {
            match socket {
                // A reload has removed the address while the socket was opened.
                SocketState::Open(port) if !serves(port.at) => {
                    self.outbox.close_relay(port.relay, port.lease);
                    failed = Some((family, Refusal::SystemExhausted));
                }
                SocketState::Open(ClaimedPort { relay, at, public, lease, .. }) => {
                    let expires = now + lifetime;
                    let socket = RelaySocket { relay, local: at, lease, expires };
                    sockets[family.index()] = Some(socket);
                    relayed[family.index()] = Some(public);
                }
                SocketState::Failed(reason) => failed = Some((family, reason)),
                SocketState::NotRequested | SocketState::Opening(_) => {}
            }
        }
        if sockets.iter().all(Option::is_none) {
            return Err(failed.map_or(Refusal::SystemExhausted, |(_, reason)| reason));
        }
        let id = self.ids.next_allocation();
        let mobility = wanted.mobile.then(|| {
            let location = self.registry.locate(id, self.ids.worker());
            Box::new(Mobility::new(&policy.ticket_key, location))
        });
        let rate = grant.rate(policy.of(&grant.realm).quotas.bytes_per_second);
        let allocation = Allocation {
            id,
            path: responder.path,
            attached: true,
            mobility,
            grant,
            revision: PolicyRevision::default(),
            quota,
            created: now,
            confirmed: now,
            confirm_again: None,
            transaction: responder.transaction,
            token,
            address_error: failed,
            relayed,
            sockets,
            permissions: Permissions::default(),
            channels: Channels::default(),
            attributes: wanted.kept,
            connections: PeerConnections::default(),
            traffic: Traffic::default(),
            history: History::default(),
            to_peer: Bucket::new(rate, now),
            to_client: Bucket::new(rate, now),
        };
        Ok((allocation, lifetime))
    }

    /// Reserves the port that follows the port of an EVEN-PORT allocation.
    fn reserve_next(
        &mut self,
        policy: &Policy,
        now: Instant,
        pending: &mut PendingAllocation,
    ) -> Result<Option<[u8; 8]>, Refusal> {
        let next = pending.sockets.iter_mut().find_map(|socket| match socket {
            SocketState::Open(port) => port.next.take().map(|lease| (port.at, lease)),
            SocketState::NotRequested | SocketState::Failed(_) | SocketState::Opening(_) => None,
        });
        let Some((at, lease)) = next else { return Ok(None) };
        // The port is even, so the next port exists.
        let relayed = RelayedAddr(SocketAddr::new(at.ip(), at.port() + 1));
        let expires = now + policy.of(&pending.grant.realm).lifetimes.reservation;
        let token = self.random.u64().to_be_bytes();
        let account = pending.quota.account().clone();
        let customer = pending.quota.customer();
        let reservation = Reservation { relayed, lease, account, customer, expires };
        self.registry.reserve(token, reservation, now)?;
        *self.sweep_at = Some(expires.earliest(*self.sweep_at));
        Ok(Some(token))
    }
}

/// Returns true if a client may use a reservation made by an account. A token does not name its
/// user, so any token of the realm is accepted.
fn may_redeem(grant: &Grant, account: &Account) -> bool {
    let is_own = account.name == grant.account || grant.keys.are_of_token();
    is_own && account.realm == grant.realm
}
