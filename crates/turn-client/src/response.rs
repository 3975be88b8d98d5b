//! Responses: their authentication (RFC 8489 §9.2.5), and their effects (RFC 8656 §§7.3, 8.3, 10.3,
//! 12.3).

use alloc::sync::Arc;
use core::time::Duration;

use stun_wire::{AttributeType, Class, Message, value};
use turn_types::{ClientAddr, Instant, IpFamily, PeerAddr, ServerAddr};

use crate::allocation::Allocation;
use crate::client::Client;
use crate::event::{Event, Failure, LossReason};
use crate::incoming::{IgnoreReason, Incoming};
use crate::limits::{CHALLENGES_MAX, REDIRECTS_MAX, TICKET_MAX};
use crate::login::{Login, breaks_nonce_promise};
use crate::transaction::{Purpose, Transaction};

/// Comprehension-required attributes that the client understands in responses.
const KNOWN: [AttributeType; 10] = [
    AttributeType::MAPPED_ADDRESS,
    AttributeType::ERROR_CODE,
    AttributeType::UNKNOWN_ATTRIBUTES,
    AttributeType::LIFETIME,
    AttributeType::REALM,
    AttributeType::NONCE,
    AttributeType::XOR_RELAYED_ADDRESS,
    AttributeType::XOR_MAPPED_ADDRESS,
    AttributeType::RESERVATION_TOKEN,
    AttributeType::USERNAME,
];

impl Client {
    pub(crate) fn read_response<'d>(
        &mut self,
        now: Instant,
        message: &Message<'d>,
    ) -> Incoming<'d> {
        let Some(at) = self.transactions.iter().position(|one| {
            one.id == message.transaction_id() && one.purpose.method() == message.method()
        }) else {
            return Incoming::Ignored(IgnoreReason::UnknownTransaction);
        };
        let error = match message.class() {
            Class::Error => {
                let error = message.first(AttributeType::ERROR_CODE).map(value::error_code);
                let Some(Ok(error)) = error else {
                    return Incoming::Ignored(IgnoreReason::Malformed);
                };
                Some(error)
            }
            Class::Success | Class::Request | Class::Indication => None,
        };
        if let Some((code @ (401 | 438), reason)) = error {
            return self.read_challenge(now, at, message, (code, reason));
        }
        if breaks_nonce_promise(message) || !self.is_authentic(at, message) {
            return self.distrust(now, at);
        }
        let transaction = self.transactions.remove(at);
        if message.unknown_required(|kind| KNOWN.contains(&kind)).next().is_some() {
            self.fail(now, &transaction.purpose, Failure::Malformed);
            return Incoming::Answer;
        }
        match error {
            None => self.read_success(now, &transaction, message),
            Some((300, _)) => self.read_redirect(now, &transaction, message),
            Some((code, reason)) => self.read_refusal(now, &transaction, code, reason),
        }
        Incoming::Answer
    }

    /// Returns true if the response is authentic. Without credentials in the request, only the
    /// transaction id identifies the response.
    fn is_authentic(&self, at: usize, message: &Message<'_>) -> bool {
        self.transactions[at].login.as_ref().is_none_or(|login| login.authenticates(message))
    }

    /// Handles a response that is not authentic. Over UDP, the response is ignored. Over TCP, the
    /// request fails, because no other response follows (RFC 8489 §9.2.5).
    fn distrust<'d>(&mut self, now: Instant, at: usize) -> Incoming<'d> {
        if self.config.transport.is_datagram() {
            self.transactions[at].untrusted = true;
        } else {
            let transaction = self.transactions.remove(at);
            self.fail(now, &transaction.purpose, Failure::IntegrityViolated);
        }
        Incoming::Ignored(IgnoreReason::Untrusted)
    }

    /// Processes a challenge (401 or 438): authenticates, or uses the new nonce, and repeats the
    /// request.
    fn read_challenge<'d>(
        &mut self,
        now: Instant,
        at: usize,
        message: &Message<'d>,
        (code, reason): (u16, &str),
    ) -> Incoming<'d> {
        if self.transactions[at].purpose == Purpose::Binding || self.config.username.is_empty() {
            let transaction = self.transactions.remove(at);
            self.read_refusal(now, &transaction, code, reason);
            return Incoming::Answer;
        }
        let login = match Login::from_challenge(&self.config, message) {
            Ok(login) => login,
            // The challenge may be forged: wait for a valid one.
            Err(Failure::Malformed) => return Incoming::Ignored(IgnoreReason::Malformed),
            Err(failure) => {
                let transaction = self.transactions.remove(at);
                self.fail(now, &transaction.purpose, failure);
                return Incoming::Answer;
            }
        };
        let transaction = self.transactions.remove(at);
        let rejected = code == 401
            && transaction.login.as_ref().is_some_and(|used| used.is_same_credential(&login));
        if rejected {
            self.read_refusal(now, &transaction, code, reason);
        } else if transaction.challenges >= CHALLENGES_MAX {
            self.fail(now, &transaction.purpose, Failure::TooManyChallenges);
        } else {
            self.login = Some(Arc::new(login));
            self.start(now, transaction.purpose, transaction.challenges + 1);
        }
        Incoming::Answer
    }

    fn read_refusal(&mut self, now: Instant, transaction: &Transaction, code: u16, reason: &str) {
        let purpose = &transaction.purpose;
        match (purpose, code) {
            (Purpose::Refresh { half: None, lifetime_secs: Some(0) }, 437) => {
                // Deleted, as requested (RFC 8656 §8.3).
                self.forget_allocation();
                self.tell(Event::Released);
            }
            (
                Purpose::Refresh { .. }
                | Purpose::Move { .. }
                | Purpose::CreatePermission { .. }
                | Purpose::ChannelBind { .. },
                437,
            ) => self.lose_allocation(LossReason::Mismatch),
            _ => {
                self.tell(Event::Refused { request: purpose.kind(), code, reason: reason.into() });
                self.not_granted(now, purpose, true);
            }
        }
    }

    /// Processes a redirection (300): repeats the Allocate at the named server, without credentials
    /// (RFC 8489 §10).
    fn read_redirect(&mut self, now: Instant, transaction: &Transaction, message: &Message<'_>) {
        let target = message
            .attributes()
            .filter(|attribute| attribute.kind == AttributeType::ALTERNATE_SERVER)
            .filter_map(|attribute| value::address(attribute.value).ok())
            .map(ServerAddr)
            .find(|server| server.family() == self.config.server.family());
        let seen =
            |server: &ServerAddr| *server == self.config.server || self.visited.contains(server);
        // Only an authenticated 300 to an Allocate is followed (RFC 8489 §14.8).
        let followed = transaction.purpose == Purpose::Allocate
            && transaction.login.is_some()
            && self.visited.len() < REDIRECTS_MAX;
        let Some(target) = target.filter(|server| followed && !seen(server)) else {
            return self.fail(now, &transaction.purpose, Failure::Redirect);
        };
        let domain = message.first(AttributeType::ALTERNATE_DOMAIN);
        let domain = domain.and_then(|value| value::alternate_domain(value).ok());
        self.visited.push(self.config.server);
        self.config.server = target;
        self.login = None;
        // Other requests in flight were sent to the previous server.
        self.transactions.clear();
        self.tell(Event::Redirected { server: target, domain: domain.map(Into::into) });
        self.start(now, Purpose::Allocate, 0);
    }

    fn read_success(&mut self, now: Instant, transaction: &Transaction, message: &Message<'_>) {
        let started = transaction.started;
        match &transaction.purpose {
            Purpose::Binding => self.read_bound(now, transaction, message),
            Purpose::Allocate => match Allocation::read(message) {
                Some(allocation) => {
                    self.upkeep.allocated(allocation, started);
                    self.read_ticket(message);
                    self.tell(Event::Allocated(allocation));
                }
                None => self.fail(now, &transaction.purpose, Failure::Malformed),
            },
            Purpose::Refresh { half, .. } => {
                let lifetime = message.first(AttributeType::LIFETIME).map(value::lifetime);
                match lifetime {
                    Some(Ok(secs)) => self.read_refreshed(started, *half, secs),
                    Some(Err(_)) | None => {
                        self.fail(now, &transaction.purpose, Failure::Malformed);
                    }
                }
            }
            Purpose::Move { .. } => {
                self.upkeep.move_answered();
                self.read_ticket(message);
                let lifetime = message.first(AttributeType::LIFETIME).map(value::lifetime);
                match lifetime {
                    Some(Ok(secs)) => self.read_refreshed(started, None, secs),
                    Some(Err(_)) | None => {
                        self.fail(now, &transaction.purpose, Failure::Malformed);
                    }
                }
            }
            Purpose::CreatePermission { peers } => {
                let lifetime = self.config.permission_lifetime;
                for peer in peers {
                    if self.upkeep.permission_granted(*peer, started, lifetime) {
                        self.tell(Event::PermissionReady { peer: *peer });
                    }
                }
            }
            Purpose::ChannelBind { channel, peer } => {
                let (channel, peer): (_, PeerAddr) = (*channel, *peer);
                let lifetime = self.config.channel_lifetime;
                if self.upkeep.channel_granted(channel, started, lifetime) {
                    self.tell(Event::ChannelReady { channel, peer });
                }
                // The ChannelBind has created or refreshed the permission too (RFC 8656 §12.2). The
                // permission expires earlier than the channel, and is refreshed separately from now
                // on.
                self.upkeep.want_permission(now, peer.ip());
                let lifetime = self.config.permission_lifetime;
                if self.upkeep.permission_granted(peer.ip(), started, lifetime) {
                    self.tell(Event::PermissionReady { peer: peer.ip() });
                }
            }
        }
    }

    fn read_bound(&mut self, now: Instant, transaction: &Transaction, message: &Message<'_>) {
        let mapped = message
            .first(AttributeType::XOR_MAPPED_ADDRESS)
            .and_then(|value| value::xor_address(value, transaction.id).ok());
        match mapped {
            Some(mapped) => self.tell(Event::Bound { mapped: ClientAddr(mapped) }),
            None => self.fail(now, &transaction.purpose, Failure::Malformed),
        }
    }

    /// Stores the mobility ticket of a response. The previous ticket is void.
    fn read_ticket(&mut self, message: &Message<'_>) {
        let ticket = message.first(AttributeType::MOBILITY_TICKET);
        self.ticket = ticket.filter(|ticket| ticket.len() <= TICKET_MAX).map(<[u8]>::to_vec);
    }

    fn read_refreshed(&mut self, started: Instant, half: Option<IpFamily>, secs: u32) {
        let lifetime = Duration::from_secs(u64::from(secs));
        if self.upkeep.refreshed(started, half, lifetime) {
            self.tell(Event::Refreshed { lifetime });
        } else {
            self.forget_allocation();
            self.tell(Event::Released);
        }
    }
}
