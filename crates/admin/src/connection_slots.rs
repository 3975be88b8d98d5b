//! Slots of connections for HTTP at one listener.
//!
//! Connections from this host (Unix sockets, loopback) have separate slots: no sender can block
//! the health checks of the host. Networks share the other slots. When all are taken, the network
//! with most connections loses a connection without a token; while few are without a token, the
//! holder of a token with most connections loses one. Loopback is one network, of which the
//! oldest connection is evicted.

use std::collections::BTreeMap;
use std::future::pending;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use fair_share::{CLIENTS, Claimant, Share, Slots, system_hasher};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot, watch};

use crate::peer::Peer;

/// Interval of log lines about closed connections: strangers can cause any number of them.
const LINE_EVERY: Duration = Duration::from_secs(60);

/// Part of the slots, as a divisor, that connections without a token may take from holders of
/// tokens: each connection has no token at first, and shows it within milliseconds.
const WITHOUT_TOKEN: u32 = 8;

/// Slots of one listener.
#[derive(Debug)]
pub(crate) struct ConnectionSlots {
    /// Slots of Unix sockets.
    unix: Arc<Semaphore>,
    loopback: Mutex<NetworkSlots>,
    network: Mutex<NetworkSlots>,
    closed: Mutex<Closed>,
    /// Closed when connections are served no more: another process has the listener.
    served: watch::Receiver<()>,
}

/// Connections that were closed for want of a slot.
#[derive(Debug, Default)]
struct Closed {
    /// Number since the last line of the log.
    untold: u64,
    line_at: Option<Instant>,
}

/// Slots of connections over TCP, the oldest first.
#[derive(Debug)]
struct NetworkSlots {
    connections: Vec<NetworkConnection>,
    slots: Slots,
    next_number: u64,
}

#[derive(Debug)]
struct NetworkConnection {
    number: u64,
    share: Share,
    peer: Peer,
    evict: oneshot::Sender<()>,
}

/// The slot of a connection.
pub(crate) struct ConnectionSlot {
    pub(crate) slot: SlotGuard,
    /// Completes when the connection has to make room for another.
    pub(crate) evicted: Evicted,
    /// Closed when connections are served no more.
    pub(crate) served: watch::Receiver<()>,
}

/// The part of a slot that is given back when it is dropped.
pub(crate) struct SlotGuard {
    _unix: Option<OwnedSemaphorePermit>,
    tcp: Option<TcpSlot>,
}

/// Slot of a connection over TCP.
struct TcpSlot {
    slots: Arc<ConnectionSlots>,
    is_loopback: bool,
    number: u64,
}

/// The eviction of a connection, which may never come.
pub(crate) type Evicted = Pin<Box<dyn Future<Output = ()> + Send>>;

impl ConnectionSlots {
    /// Slots for `most` connections of Unix sockets, of loopback, and of the network each.
    pub(crate) fn new(most: u32, served: watch::Receiver<()>) -> Arc<Self> {
        Arc::new(Self {
            unix: Arc::new(Semaphore::new(most as usize)),
            loopback: Mutex::new(NetworkSlots::new(most)),
            network: Mutex::new(NetworkSlots::new(most)),
            closed: Mutex::default(),
            served,
        })
    }

    /// Waits for a slot of a Unix socket's connection.
    pub(crate) async fn of_unix_socket(&self) -> ConnectionSlot {
        // The semaphore is never closed, so that there is always a permit to wait for.
        let unix = Arc::clone(&self.unix).acquire_owned().await.ok();
        let slot = SlotGuard { _unix: unix, tcp: None };
        ConnectionSlot { slot, evicted: Box::pin(pending()), served: self.served.clone() }
    }

    /// Takes a slot for a connection over TCP. `None`: all are taken, and none makes room.
    pub(crate) fn of_tcp(self: &Arc<Self>, peer: &Peer, source: IpAddr) -> Option<ConnectionSlot> {
        let is_loopback = source.to_canonical().is_loopback();
        let (number, evicted) = self.network(is_loopback).add(peer, source)?;
        let tcp = TcpSlot { slots: Arc::clone(self), is_loopback, number };
        let slot = SlotGuard { _unix: None, tcp: Some(tcp) };
        // Its sender lives as long as the slot is held.
        let evicted = Box::pin(async { drop(evicted.await) });
        Some(ConnectionSlot { slot, evicted, served: self.served.clone() })
    }

    /// Counts a connection that is closed for want of a slot. Returns the number since the last
    /// line of the log when a line is due.
    pub(crate) fn count_closed(&self, now: Instant) -> Option<u64> {
        let mut closed = self.closed.lock().unwrap_or_else(PoisonError::into_inner);
        closed.untold += 1;
        let is_early = |line_at: Instant| now.saturating_duration_since(line_at) < LINE_EVERY;
        if closed.line_at.is_some_and(is_early) {
            return None;
        }
        closed.line_at = Some(now);
        Some(std::mem::take(&mut closed.untold))
    }

    fn network(&self, is_loopback: bool) -> MutexGuard<'_, NetworkSlots> {
        let slots = if is_loopback { &self.loopback } else { &self.network };
        // Nothing in it can be half done.
        slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl NetworkSlots {
    fn new(most: u32) -> Self {
        let slots = Slots::new(&CLIENTS, most, system_hasher());
        Self { connections: Vec::new(), slots, next_number: 0 }
    }

    fn add(&mut self, peer: &Peer, source: IpAddr) -> Option<(u64, oneshot::Receiver<()>)> {
        let claimant = Claimant::at(source);
        if self.slots.held() >= self.slots.capacity() {
            self.evict_for(&claimant)?;
        }
        let number = self.next_number;
        self.next_number += 1;
        let (evict, evicted) = oneshot::channel();
        let share = self.slots.keep(&claimant);
        self.connections.push(NetworkConnection { number, share, peer: peer.clone(), evict });
        Some((number, evicted))
    }

    /// Evicts a connection without a token, of the network with most. While few connections are
    /// without a token, evicts a connection of the token holder with most.
    fn evict_for(&mut self, newcomer: &Claimant<'_>) -> Option<()> {
        let Self { connections, slots, .. } = self;
        let without_token = positions(connections, |peer| peer.holder().is_none());
        let few = (slots.capacity() / WITHOUT_TOKEN) as usize;
        let most = largest_holder(connections).filter(|_| without_token.len() < few);
        let of_holder = most.map(|most| positions(connections, |peer| peer.holder() == Some(most)));
        let mut rival = |among: Vec<usize>| {
            let share_at = |index: usize| &connections[among[index]].share;
            slots.rival(newcomer, among.len(), share_at).map(|index| among[index])
        };
        let position = of_holder.and_then(&mut rival).or_else(|| rival(without_token))?;
        let evicted = connections.remove(position);
        slots.release(evicted.share);
        // Its task has ended otherwise.
        let _ = evicted.evict.send(());
        Some(())
    }

    fn remove(&mut self, number: u64) {
        let found = self.connections.iter().position(|connection| connection.number == number);
        if let Some(position) = found {
            let connection = self.connections.remove(position);
            self.slots.release(connection.share);
        }
    }
}

/// Positions of the connections whose peers match, the oldest first.
fn positions(connections: &[NetworkConnection], of: impl Fn(&Peer) -> bool) -> Vec<usize> {
    let all = connections.iter().enumerate();
    all.filter(|(_, connection)| of(&connection.peer)).map(|(position, _)| position).collect()
}

/// Holder of tokens with most connections. `None` without connections of holders.
fn largest_holder(connections: &[NetworkConnection]) -> Option<&str> {
    let mut counts = BTreeMap::new();
    for holder in connections.iter().filter_map(|connection| connection.peer.holder()) {
        *counts.entry(holder).or_insert(0) += 1;
    }
    counts.into_iter().max_by_key(|(_, count)| *count).map(|(holder, _)| holder)
}

impl Drop for SlotGuard {
    fn drop(&mut self) {
        if let Some(TcpSlot { slots, is_loopback, number }) = &self.tcp {
            slots.network(*is_loopback).remove(*number);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Waker};

    use super::*;

    const MOST: u32 = 32;

    fn slots() -> Arc<ConnectionSlots> {
        ConnectionSlots::new(MOST, watch::channel(()).1)
    }

    fn slot(slots: &Arc<ConnectionSlots>, source: &str) -> Option<ConnectionSlot> {
        let source: IpAddr = source.parse().unwrap();
        slots.of_tcp(&Peer::tcp((source, 1).into(), false), source)
    }

    fn is_evicted(slot: &mut ConnectionSlot) -> bool {
        slot.evicted.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[test]
    fn a_site_that_takes_all_places_makes_room_for_others() {
        let slots = slots();
        let mut flood: Vec<_> = (0..200)
            .map(|number| slot(&slots, &format!("2001:db8:1:{number:x}::1")).unwrap())
            .collect();
        let evicted = flood.iter_mut().map(is_evicted).filter(|is_evicted| *is_evicted).count();
        assert_eq!(evicted, 200 - MOST as usize);
        let mut honest = slot(&slots, "192.0.2.1").unwrap();
        flood.extend(
            (0..200).map(|number| slot(&slots, &format!("2001:db8:1:{number:x}::2")).unwrap()),
        );
        assert!(!is_evicted(&mut honest));
        drop((flood, honest));
        let network = slots.network(false);
        assert!(network.connections.is_empty() && network.slots.held() == 0);
    }

    #[test]
    fn closed_connections_are_in_the_log_once_a_minute() {
        let (slots, start) = (slots(), Instant::now());
        let due = [0, 1, 59, 60, 61]
            .map(|second| slots.count_closed(start + Duration::from_secs(second)));
        assert_eq!(due, [Some(1), None, None, Some(3), None]);
    }

    /// A connection that has shown a token of this holder.
    fn known(slots: &Arc<ConnectionSlots>, source: &str, holder: &str) -> Option<ConnectionSlot> {
        let slot = slot(slots, source)?;
        slots.network(false).connections.last().unwrap().peer.make_known(holder);
        Some(slot)
    }

    #[test]
    fn a_holder_of_a_token_leaves_places_to_others() {
        for flood_at in ["192.0.2.1", "198.51.100.1"] {
            let slots = slots();
            let mut flood: Vec<_> = (0..200)
                .filter_map(|number| match number % 2 {
                    0 => known(&slots, "192.0.2.1", "mallory"),
                    _ => known(&slots, flood_at, "mallory"),
                })
                .collect();
            let mut bob = known(&slots, "203.0.113.1", "bob").unwrap();
            flood.extend((0..200).filter_map(|_| known(&slots, flood_at, "mallory")));
            assert!(!is_evicted(&mut bob));
            // A flood without a token takes an eighth at most.
            let mut strangers: Vec<_> =
                (0..200).filter_map(|number| slot(&slots, &format!("10.{number}.0.1"))).collect();
            assert!(!is_evicted(&mut bob));
            let kept =
                strangers.iter_mut().map(is_evicted).filter(|is_evicted| !is_evicted).count();
            assert_eq!(kept, (MOST / WITHOUT_TOKEN) as usize);
        }
    }

    #[test]
    fn this_host_has_places_of_its_own_and_so_has_who_has_shown_a_token() {
        let slots = slots();
        let mut known = slot(&slots, "192.0.2.1").unwrap();
        slots.network(false).connections[0].peer.make_known("alice");
        let flood: Vec<_> = (0..200).filter_map(|_| slot(&slots, "192.0.2.1")).collect();
        assert!(!is_evicted(&mut known));
        // The newest of this host is served, such as the host's own health check.
        let mut local: Vec<_> = (0..200).map(|_| slot(&slots, "::1").unwrap()).collect();
        let mut check = slot(&slots, "127.0.0.1").unwrap();
        let kept = local.iter_mut().map(is_evicted).filter(|is_evicted| !is_evicted).count();
        assert_eq!(kept, MOST as usize - 1);
        assert!(!is_evicted(&mut check) && !is_evicted(&mut known));
        drop((flood, local, known, check));
        assert_eq!(slots.network(true).slots.held(), 0);
    }
}
