//! Interface of the client. `response.rs` processes the responses.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::IpAddr;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng as _;
use stun_wire::{ChannelNumber, Class, Message, PacketKind, classify};
use turn_types::{Instant, IpFamily, PeerAddr, ServerAddr};

use crate::allocation::Allocation;
use crate::config::{AllocateOptions, ClientConfig};
use crate::event::{Event, Failure, LossReason};
use crate::incoming::{IgnoreReason, Incoming};
use crate::limits::{EVENTS_MAX, EXPLICIT_MAX, IN_FLIGHT_MAX, PERMISSIONS_MAX};
use crate::login::Login;
use crate::request::{RequestError, Writer};
use crate::transaction::{Purpose, Start, Timing, Transaction};
use crate::upkeep::{Lost, Upkeep};

/// TURN client with at most one allocation. The crate's documentation describes how to drive the
/// client.
#[derive(Debug)]
pub struct Client {
    pub(crate) config: ClientConfig,
    pub(crate) rng: ChaCha8Rng,
    /// Credentials from the last challenge.
    pub(crate) login: Option<Arc<Login>>,
    pub(crate) options: AllocateOptions,
    /// Mobility ticket of the allocation.
    pub(crate) ticket: Option<Vec<u8>>,
    /// Transactions in the order of their start. There are few, so a Vec is searched faster than a
    /// map.
    pub(crate) transactions: Vec<Transaction>,
    pub(crate) upkeep: Upkeep,
    /// Servers that redirected the client since the caller's Allocate.
    pub(crate) visited: Vec<ServerAddr>,
    events: VecDeque<Event>,
    /// Result of `poll_timeout`, computed on each change rather than on each call.
    timeout: Option<Instant>,
}

impl Client {
    /// Creates a client without state.
    #[must_use]
    pub fn new(config: ClientConfig) -> Self {
        Self {
            rng: ChaCha8Rng::from_seed(config.seed),
            config,
            login: None,
            options: AllocateOptions::default(),
            ticket: None,
            transactions: Vec::new(),
            upkeep: Upkeep::default(),
            visited: Vec::new(),
            events: VecDeque::new(),
            timeout: None,
        }
    }

    // Requests.

    /// Queries the client's address as received by the server (Binding, RFC 8489).
    ///
    /// # Errors
    /// [`RequestError::TooMany`]: too many such requests are in flight.
    pub fn binding(&mut self, now: Instant) -> Result<(), RequestError> {
        self.start_explicit(now, Purpose::Binding)
    }

    /// Requests an allocation, with authentication (RFC 8656 §7).
    ///
    /// # Errors
    /// - [`RequestError::AllocationExists`]: an allocation exists, or a request for an allocation
    ///   is in flight.
    /// - [`RequestError::TooMany`]: too many requests are in flight.
    pub fn allocate(&mut self, now: Instant, options: AllocateOptions) -> Result<(), RequestError> {
        let asking = self.transactions.iter().any(|one| one.purpose == Purpose::Allocate);
        if asking || self.upkeep.allocation().is_some() {
            return Err(RequestError::AllocationExists);
        }
        self.options = options;
        self.visited.clear();
        self.start_explicit(now, Purpose::Allocate)
    }

    /// Refreshes the allocation, or only the address of one family, immediately (RFC 8656 §8). A
    /// lifetime of 0 deletes the allocation or address. Refreshes before expiry are automatic.
    ///
    /// # Errors
    /// - [`RequestError::NoAllocation`]: no allocation exists.
    /// - [`RequestError::TooMany`]: too many requests are in flight.
    pub fn refresh(
        &mut self,
        now: Instant,
        half: Option<IpFamily>,
        lifetime_secs: u32,
    ) -> Result<(), RequestError> {
        if self.upkeep.allocation().is_none() {
            return Err(RequestError::NoAllocation);
        }
        self.check_room()?;
        if half.is_none() && lifetime_secs == 0 {
            self.upkeep.release();
        }
        self.upkeep.refreshing();
        self.start_explicit(now, Purpose::Refresh { half, lifetime_secs: Some(lifetime_secs) })
    }

    /// Deletes the allocation.
    ///
    /// # Errors
    /// Fails for the reasons of [`Client::refresh`].
    pub fn release(&mut self, now: Instant) -> Result<(), RequestError> {
        self.refresh(now, None, 0)
    }

    /// Announces that the client's address has changed, by a Refresh with the mobility ticket (RFC
    /// 8016 §3.2). Unanswered requests fail. [`Event::Refreshed`] reports the response.
    ///
    /// The allocation moves with the first message or data after the Refresh. Until then, the
    /// server sends data to the former address.
    ///
    /// # Errors
    /// [`RequestError::NoAllocation`]: no allocation exists, or the allocation has no ticket.
    pub fn moved(&mut self, now: Instant) -> Result<(), RequestError> {
        if self.ticket.is_none() || !self.upkeep.moved(now) {
            return Err(RequestError::NoAllocation);
        }
        // The responses are sent to the former address, and from the new address the server would
        // refuse these requests.
        for transaction in core::mem::take(&mut self.transactions) {
            self.fail(now, &transaction.purpose, Failure::TimedOut);
        }
        self.upkeep.moved(now);
        self.settle(now);
        Ok(())
    }

    /// Installs a permission for the peer's address, and refreshes the permission (RFC 8656 §9).
    /// Before an allocation exists, the request is stored.
    ///
    /// # Errors
    /// [`RequestError::TooMany`]: 1024 permissions are in use.
    pub fn permit(&mut self, now: Instant, peer: IpAddr) -> Result<(), RequestError> {
        let known = self.upkeep.wants_permission(peer);
        if !known && self.upkeep.permission_count() >= PERMISSIONS_MAX {
            return Err(RequestError::TooMany);
        }
        self.upkeep.want_permission(now, peer);
        self.settle(now);
        Ok(())
    }

    /// Stops refreshing a permission, which expires at the server: RFC 8656 §9 has no request to
    /// delete a permission. Until then the client ignores the peer's data.
    pub fn forget_permission(&mut self, now: Instant, peer: IpAddr) {
        self.upkeep.drop_permission(peer);
        self.settle(now);
    }

    /// Binds a channel to the peer, and refreshes the channel with its permission (RFC 8656 §12).
    /// Before an allocation exists, the request is stored. The number must not be used before
    /// [`Event::ChannelReady`].
    ///
    /// # Errors
    /// [`RequestError::TooMany`]: all 4096 numbers, or 1024 permissions, are in use.
    pub fn bind_channel(
        &mut self,
        now: Instant,
        peer: PeerAddr,
    ) -> Result<ChannelNumber, RequestError> {
        let permitted = self.upkeep.wants_permission(peer.ip());
        if !permitted && self.upkeep.permission_count() >= PERMISSIONS_MAX {
            return Err(RequestError::TooMany);
        }
        let channel = self.upkeep.want_channel(now, peer).ok_or(RequestError::TooMany)?;
        self.settle(now);
        Ok(channel)
    }

    /// Stops refreshing a channel, which expires at the server. The permission is still refreshed.
    pub fn forget_channel(&mut self, now: Instant, channel: ChannelNumber) {
        self.upkeep.drop_channel(channel);
        self.settle(now);
    }

    // State.

    /// Returns the address to send to and receive from: the configured server, or the target of a
    /// redirection.
    #[must_use]
    pub const fn server(&self) -> ServerAddr {
        self.config.server
    }

    /// Returns the allocation, if one exists.
    #[must_use]
    pub const fn allocation(&self) -> Option<&Allocation> {
        self.upkeep.allocation()
    }

    /// Returns true if a permission for this address is installed.
    #[must_use]
    pub fn is_permitted(&self, peer: IpAddr) -> bool {
        self.upkeep.is_permitted(peer)
    }

    /// Returns true if the allocation has a mobility ticket, which [`Client::moved`] needs.
    #[must_use]
    pub const fn is_mobile(&self) -> bool {
        self.ticket.is_some()
    }

    /// Returns the channel bound to the peer. Callers should store the result, because each call
    /// searches all channels.
    #[must_use]
    pub fn channel_of(&self, peer: PeerAddr) -> Option<ChannelNumber> {
        self.upkeep.channel_of(peer)
    }

    /// Returns true if no request is in flight.
    #[must_use]
    pub const fn is_idle(&self) -> bool {
        self.transactions.is_empty()
    }

    // Driving.

    /// Processes a datagram from [`Client::server`]. Over TCP and TLS, pass each message or
    /// ChannelData of the stream.
    pub fn handle_datagram<'d>(&mut self, now: Instant, datagram: &'d [u8]) -> Incoming<'d> {
        match classify(datagram) {
            PacketKind::ChannelData => self.read_channel_data(datagram),
            PacketKind::Stun => {
                let Ok(message) = Message::parse(datagram) else {
                    return Incoming::Ignored(IgnoreReason::Malformed);
                };
                match message.class() {
                    Class::Indication => self.read_indication(&message),
                    Class::Success | Class::Error => {
                        let incoming = self.read_response(now, &message);
                        self.settle(now);
                        incoming
                    }
                    Class::Request => Incoming::Ignored(IgnoreReason::Unexpected),
                }
            }
            PacketKind::Dtls | PacketKind::Other => Incoming::Ignored(IgnoreReason::NotStun),
        }
    }

    /// Processes expired deadlines. Call this at the time returned by [`Client::poll_timeout`].
    /// Earlier and later calls are harmless.
    pub fn handle_timeout(&mut self, now: Instant) {
        let timing = self.timing();
        let mut at = 0;
        while let Some(transaction) = self.transactions.get_mut(at) {
            if transaction.deadline > now || transaction.retransmit(timing) {
                // A very late caller catches up by one transmission at a time.
                at += 1;
            } else {
                let transaction = self.transactions.remove(at);
                let failure = if transaction.untrusted {
                    Failure::IntegrityViolated
                } else {
                    Failure::TimedOut
                };
                self.fail(now, &transaction.purpose, failure);
            }
        }
        while let Some(lost) = self.upkeep.next_lost(now) {
            match lost {
                Lost::Allocation => self.lose_allocation(LossReason::Expired),
                Lost::Permission(peer) => self.tell(Event::PermissionLost { peer }),
                Lost::Channel(channel, peer) => self.tell(Event::ChannelLost { channel, peer }),
            }
        }
        self.settle(now);
    }

    /// Returns the next request to send to [`Client::server`].
    pub fn poll_transmit(&mut self) -> Option<&[u8]> {
        let transaction = self.transactions.iter_mut().find(|one| one.to_send)?;
        transaction.to_send = false;
        Some(&transaction.bytes)
    }

    /// Returns the next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Returns the time of the next call of [`Client::handle_timeout`].
    #[must_use]
    pub const fn poll_timeout(&self) -> Option<Instant> {
        self.timeout
    }

    // Internal functions.

    fn check_room(&self) -> Result<(), RequestError> {
        let room = self.transactions.len() < IN_FLIGHT_MAX + EXPLICIT_MAX;
        if room { Ok(()) } else { Err(RequestError::TooMany) }
    }

    fn start_explicit(&mut self, now: Instant, purpose: Purpose) -> Result<(), RequestError> {
        self.check_room()?;
        self.start(now, purpose, 0);
        self.settle(now);
        Ok(())
    }

    /// Starts a transaction. `challenges` is the number of challenges followed for this request so
    /// far.
    pub(crate) fn start(&mut self, now: Instant, purpose: Purpose, challenges: u8) {
        let id = self.new_id();
        // Binding is never authenticated: RFC 8489 §9.2 leaves authentication to the usage, and
        // TURN servers respond to any client.
        let login = if purpose == Purpose::Binding { None } else { self.login.clone() };
        let ticket = self.ticket.as_deref();
        let writer = Writer {
            config: &self.config,
            options: self.options,
            login: login.as_deref(),
            ticket,
            id,
        };
        match writer.write(&purpose) {
            Some(bytes) => {
                let start = Start { id, purpose, bytes, login, challenges };
                self.transactions.push(Transaction::start(start, now, self.timing()));
            }
            None => self.fail(now, &purpose, Failure::Credentials),
        }
    }

    /// Starts due requests, up to the limit in flight, and computes the next wake-up.
    fn settle(&mut self, now: Instant) {
        while self.has_room() {
            let Some(purpose) = self.upkeep.next_due(now, self.options.lifetime_secs) else {
                break;
            };
            self.start(now, purpose, 0);
        }
        let upkeep = self.upkeep.next_at(self.has_room());
        let requests = self.transactions.iter().map(|one| one.deadline).min();
        self.timeout = [upkeep, requests].into_iter().flatten().min();
    }

    const fn has_room(&self) -> bool {
        self.transactions.len() < IN_FLIGHT_MAX
    }

    const fn timing(&self) -> Timing {
        let reliable = !self.config.transport.is_datagram();
        Timing { retransmission: self.config.retransmission, reliable }
    }

    /// Reports a failed request, and updates the refreshed state.
    pub(crate) fn fail(&mut self, now: Instant, purpose: &Purpose, failure: Failure) {
        self.tell(Event::Failed { request: purpose.kind(), failure });
        self.not_granted(now, purpose, false);
    }

    /// Updates the refreshed state after a request without success. `refused` is true for a refusal
    /// by the server, and false for a lost request.
    pub(crate) fn not_granted(&mut self, now: Instant, purpose: &Purpose, refused: bool) {
        match purpose {
            Purpose::Binding | Purpose::Allocate => {}
            Purpose::Refresh { .. } => self.upkeep.refresh_not_granted(now),
            Purpose::Move { .. } => {
                self.upkeep.refresh_not_granted(now);
                if refused {
                    self.upkeep.move_answered();
                }
            }
            Purpose::CreatePermission { peers } => {
                self.upkeep.permissions_not_granted(now, peers, refused);
            }
            Purpose::ChannelBind { channel, .. } => {
                self.upkeep.channel_not_granted(now, *channel);
            }
        }
    }

    /// Removes the allocation, with its permissions and channels.
    pub(crate) fn lose_allocation(&mut self, reason: LossReason) {
        self.forget_allocation();
        self.tell(Event::AllocationLost(reason));
    }

    pub(crate) fn forget_allocation(&mut self) {
        self.upkeep.clear();
        self.ticket = None;
        self.transactions.retain(|one| matches!(one.purpose, Purpose::Binding | Purpose::Allocate));
    }

    pub(crate) fn tell(&mut self, event: Event) {
        if self.events.len() >= EVENTS_MAX {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }
}
