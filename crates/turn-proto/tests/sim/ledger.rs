//! Grants of the server, read only from its responses, and checks of the server's actions against
//! these grants.
//!
//! The ledger decodes requests and responses independently, and shares no state with the server. It
//! records an allocation only from the success response of the Allocate, and a permission only from
//! the success response to the request that named the peer. It checks both directions: nothing is
//! relayed without a grant, and nothing granted is refused.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use stun_wire::{AttributeType, Class, Message, Method, TransactionId, channel_data, value};
use turn_proto::{DropReason, PeerAccess, Policy};
use turn_types::{FiveTuple, Instant, IpFamily};

use super::setup::{REALM, sealed_by};

/// The outcome of a check: the violation, in words.
pub type Check = Result<(), String>;

/// Maximum length of a response to an unauthenticated client: header 20, ERROR-CODE 8 with a phrase
/// of at most 28, REALM 4 with the padded realm, NONCE 4 and 36, PASSWORD-ALGORITHMS 12, and
/// FINGERPRINT 8. A response with UNKNOWN-ATTRIBUTES has 4 + 64 instead of the three in the middle,
/// and a Binding success has fewer.
pub const UNAUTHENTICATED_REPLY_MAX: usize =
    20 + 8 + 28 + (4 + REALM.len().next_multiple_of(4)) + (4 + 36) + 12 + 8;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    pub packets: u64,
    pub bytes: u64,
}

impl Traffic {
    fn count(&mut self, bytes: usize) {
        self.packets += 1;
        self.bytes += bytes as u64;
    }
}

/// Granted allocation.
#[derive(Clone, Debug)]
pub struct Granted {
    pub user: String,
    pub transaction: TransactionId,
    /// Relayed address and end, IPv4 and IPv6.
    pub halves: [Option<(SocketAddr, Instant)>; 2],
    pub permissions: BTreeMap<IpAddr, Instant>,
    pub channels: BTreeMap<u16, (SocketAddr, Instant)>,
    pub to_peer: Traffic,
    pub to_client: Traffic,
}

impl Granted {
    pub fn half(&self, family: IpFamily, now: Instant) -> Option<SocketAddr> {
        let half = self.halves[family as usize].filter(|(_, expires)| now < *expires);
        half.map(|(relayed, _)| relayed)
    }

    pub fn is_live(&self, now: Instant) -> bool {
        IpFamily::ALL.into_iter().any(|family| self.half(family, now).is_some())
    }

    /// Removes the grants of each family without a relayed address.
    fn forget_ended(&mut self, now: Instant) {
        let live = IpFamily::ALL.map(|family| self.half(family, now).is_some());
        let live = |ip: IpAddr| live[IpFamily::of(ip) as usize];
        self.permissions.retain(|ip, _| live(*ip));
        self.channels.retain(|_, (peer, _)| live(peer.ip()));
    }

    pub fn permits(&self, ip: IpAddr, now: Instant) -> bool {
        self.permissions.get(&ip).is_some_and(|expires| now < *expires)
    }

    pub fn channel(&self, number: u16, now: Instant) -> Option<SocketAddr> {
        let channel = self.channels.get(&number).filter(|(_, expires)| now < *expires);
        channel.map(|(peer, _)| *peer)
    }

    pub fn channel_of(&self, peer: SocketAddr, now: Instant) -> Option<u16> {
        let mut live = self.channels.iter().filter(|(_, (_, expires))| now < *expires);
        live.find(|(_, (bound, _))| *bound == peer).map(|(number, _)| *number)
    }
}

/// A packet from a client that was relayed.
pub struct ToPeer<'a> {
    pub packet: &'a [u8],
    pub relayed: SocketAddr,
    pub peer: SocketAddr,
    pub payload: &'a [u8],
}

/// A packet from a peer that was relayed.
pub struct ToClient<'a> {
    pub relayed: SocketAddr,
    pub peer: SocketAddr,
    pub payload: &'a [u8],
    pub datagram: &'a [u8],
}

/// A request and its answer.
struct Exchange<'a> {
    now: Instant,
    five_tuple: FiveTuple,
    request: Message<'a>,
    reply: Message<'a>,
}

/// Everything granted.
#[derive(Debug)]
pub struct Ledger {
    granted: BTreeMap<FiveTuple, Granted>,
    policy: Arc<Policy>,
}

macro_rules! ensure {
    ($condition:expr, $($why:tt)+) => {
        if !$condition {
            return Err(format!($($why)+));
        }
    };
}

/// Returns true if allocations may have an address.
fn serves(policy: &Policy, ip: IpAddr) -> bool {
    policy.relay.iter().any(|relay| relay.public == ip) || policy.prefix_of(ip).is_some()
}

impl Ledger {
    pub fn new(policy: Arc<Policy>) -> Self {
        Self { granted: BTreeMap::new(), policy }
    }

    /// Applies a new policy: forbidden peers have no permission any more, and the loss of a relay
    /// address ends its allocations.
    pub fn apply(&mut self, now: Instant, policy: Arc<Policy>) {
        let allowed = |ip| match policy.peer_rules.judge(ip) {
            PeerAccess::Allowed => true,
            PeerAccess::OwnAddress => serves(&policy, ip),
            PeerAccess::Denied => false,
        };
        for granted in self.granted.values_mut() {
            for (relayed, expires) in granted.halves.iter_mut().flatten() {
                if !serves(&policy, relayed.ip()) {
                    *expires = now.min(*expires);
                }
            }
            granted.permissions.retain(|ip, _| allowed(*ip));
            granted.channels.retain(|_, (peer, _)| allowed(peer.ip()));
        }
        self.policy = policy;
    }

    /// Returns true if the rules permit this peer: an address of the server only where another
    /// allocation is.
    fn may_reach(&self, peer: SocketAddr) -> bool {
        match self.policy.peer_rules.judge(peer.ip()) {
            PeerAccess::Allowed => true,
            PeerAccess::OwnAddress => {
                let mut relay = self.policy.relay.iter();
                relay.any(|relay| relay.local == peer.ip() && relay.ports.is_open(peer.port()))
                    || self.policy.prefix_of(peer.ip()).is_some_and(|prefix| prefix.is_relay(peer))
            }
            PeerAccess::Denied => false,
        }
    }

    pub fn live(&self, now: Instant, five_tuple: &FiveTuple) -> Option<&Granted> {
        self.granted.get(five_tuple).filter(|granted| granted.is_live(now))
    }

    /// Number of relayed addresses that have not ended, or ended less than `since` ago.
    pub fn relayed(&self, now: Instant, since: Duration) -> usize {
        let halves = self.granted.values().flat_map(|granted| &granted.halves).flatten();
        halves.filter(|(_, expires)| now < *expires + since).count()
    }

    /// An allocation ended; its usage is compared by the caller.
    pub fn end(&mut self, five_tuple: &FiveTuple) -> Option<Granted> {
        self.granted.remove(five_tuple)
    }

    /// The server answered.
    pub fn answered(
        &mut self,
        now: Instant,
        five_tuple: &FiveTuple,
        request: &[u8],
        reply: &[u8],
    ) -> Check {
        let request = Message::parse(request).map_err(|_| "malformed request was answered")?;
        let reply = Message::parse(reply).map_err(|error| format!("reply: {error}"))?;
        ensure!(request.class() == Class::Request, "answered a {:?}", request.class());
        ensure!(reply.transaction_id() == request.transaction_id(), "other transaction");
        ensure!(reply.method() == request.method(), "other method");
        let who = sealed_by(&request);
        let sealed = reply.integrity().is_present();
        match &who {
            Some((_, key)) if sealed => {
                ensure!(reply.verify(key), "the answer is sealed with another key");
            }
            None if sealed => return Err("sealed answer to somebody who proved nothing".into()),
            Some(_) | None => {
                let len = reply.bytes().len();
                ensure!(len <= UNAUTHENTICATED_REPLY_MAX, "{len} bytes to a stranger");
                let software = reply.first(AttributeType::SOFTWARE);
                ensure!(software.is_none(), "told a stranger the software");
                let stranger_may =
                    reply.class() == Class::Error || reply.method() == Method::BINDING;
                ensure!(stranger_may, "{:?} granted to a stranger", reply.method());
            }
        }
        let exchange = Exchange { now, five_tuple: *five_tuple, request, reply };
        match (reply.class(), who) {
            (Class::Success, who) => self.grant(&exchange, who.map(|(user, _)| user)),
            (_, Some((user, _))) => self.refuse(&exchange, &user),
            (_, None) => Ok(()),
        }
    }

    fn refuse(&self, exchange: &Exchange<'_>, user: &str) -> Check {
        let Exchange { now, five_tuple, request, reply } = exchange;
        let code = reply.first(AttributeType::ERROR_CODE).map(value::error_code);
        let Some(Ok((code, _))) = code else { return Err("error without code".into()) };
        let live = self.live(*now, five_tuple);
        if request.method() != Method::ALLOCATE && code == 437 {
            ensure!(live.is_none(), "437 for a live allocation");
        }
        if code == 441 {
            ensure!(live.is_some_and(|live| live.user != user), "441 for the rightful user");
        }
        Ok(())
    }

    fn grant(&mut self, exchange: &Exchange<'_>, user: Option<String>) -> Check {
        let Exchange { now, five_tuple, request, reply } = exchange;
        let now = *now;
        if reply.method() == Method::BINDING {
            let mapped = xor(reply, AttributeType::XOR_MAPPED_ADDRESS)?;
            ensure!(mapped == five_tuple.client.0, "Binding says {mapped}");
            return Ok(());
        }
        let Some(user) = user else { return Err("granted to a stranger".into()) };
        let lifetimes = self.policy.lifetimes;
        let peer = xor(request, AttributeType::XOR_PEER_ADDRESS);
        let reachable = peer.as_ref().is_ok_and(|peer| self.may_reach(*peer));
        if reply.method() == Method::ALLOCATE {
            return self.allocate(exchange, user);
        }
        let granted = self.granted.get_mut(five_tuple).filter(|granted| granted.is_live(now));
        let Some(granted) = granted else { return Err("granted without an allocation".into()) };
        ensure!(granted.user == user, "granted to another user");
        match reply.method() {
            Method::REFRESH => refresh(granted, exchange),
            Method::CREATE_PERMISSION => {
                for attribute in request.attributes() {
                    if attribute.kind == AttributeType::XOR_PEER_ADDRESS {
                        let peer = value::xor_address(attribute.value, request.transaction_id());
                        let peer = peer.map_err(|_| "malformed peer was granted")?;
                        granted.permissions.insert(peer.ip(), now + lifetimes.permission);
                    }
                }
                Ok(())
            }
            Method::CHANNEL_BIND => {
                let peer = peer?;
                ensure!(reachable, "channel to {peer}");
                let number = request.first(AttributeType::CHANNEL_NUMBER);
                let number = number.and_then(|value| value::channel_number(value).ok());
                let Some(number) = number else { return Err("no channel was granted".into()) };
                granted.forget_ended(now);
                let bound = granted.channel(number, now);
                ensure!(bound.is_none_or(|bound| bound == peer), "channel bound to two peers");
                let other = granted.channel_of(peer, now);
                ensure!(other.is_none_or(|other| other == number), "peer bound to two channels");
                granted.permissions.insert(peer.ip(), now + lifetimes.permission);
                granted.channels.insert(number, (peer, now + lifetimes.channel));
                Ok(())
            }
            other => Err(format!("success for {other:?}")),
        }
    }

    fn allocate(&mut self, exchange: &Exchange<'_>, user: String) -> Check {
        let Exchange { now, five_tuple, reply, .. } = exchange;
        let now = *now;
        let mapped = xor(reply, AttributeType::XOR_MAPPED_ADDRESS)?;
        ensure!(mapped == five_tuple.client.0, "Allocate says {mapped}");
        let expires = now + lifetime(reply)?;
        let mut halves = [None; 2];
        for attribute in reply.attributes() {
            if attribute.kind == AttributeType::XOR_RELAYED_ADDRESS {
                let relayed = value::xor_address(attribute.value, reply.transaction_id());
                let relayed = relayed.map_err(|_| "malformed relayed address")?;
                let half = &mut halves[IpFamily::of(relayed.ip()) as usize];
                ensure!(half.is_none(), "two relayed addresses of one family");
                ensure!(
                    serves(&self.policy, relayed.ip()),
                    "{relayed} is no address of this server any more"
                );
                *half = Some((relayed, expires));
            }
        }
        ensure!(halves.iter().any(Option::is_some), "no relayed address");
        let addresses = |halves: &[Option<(SocketAddr, Instant)>; 2]| {
            halves.map(|half| half.map(|(relayed, _)| relayed))
        };
        let transaction = reply.transaction_id();
        if let Some(live) = self.live(now, five_tuple) {
            ensure!(live.transaction == transaction, "a second allocation on a 5-tuple");
            ensure!(live.user == user, "somebody else's allocation was repeated");
            for (told, known) in addresses(&halves).into_iter().zip(addresses(&live.halves)) {
                ensure!(told.is_none() || told == known, "a repeated answer differs");
            }
            return Ok(());
        }
        for relayed in addresses(&halves).into_iter().flatten() {
            let taken = self.granted.iter().find(|(_, other)| {
                IpFamily::ALL.iter().any(|family| other.half(*family, now) == Some(relayed))
            });
            ensure!(taken.is_none(), "{relayed} allocated twice");
        }
        let granted = Granted {
            user,
            transaction,
            halves,
            permissions: BTreeMap::new(),
            channels: BTreeMap::new(),
            to_peer: Traffic::default(),
            to_client: Traffic::default(),
        };
        self.granted.insert(*five_tuple, granted);
        Ok(())
    }

    /// The server relayed a packet of a client.
    pub fn sent_to_peer(
        &mut self,
        now: Instant,
        five_tuple: &FiveTuple,
        sent: &ToPeer<'_>,
    ) -> Check {
        let ToPeer { packet, relayed, peer, payload } = *sent;
        ensure!(self.may_reach(peer), "relayed to {peer}");
        let granted = self.granted.get_mut(five_tuple).filter(|granted| granted.is_live(now));
        let Some(granted) = granted else { return Err("relayed without an allocation".into()) };
        let half = granted.half(IpFamily::of(peer.ip()), now);
        ensure!(half == Some(relayed), "relayed from {relayed}, allocated {half:?}");
        let (wanted, data) = match channel_data(packet) {
            Ok(frame) => (granted.channel(frame.number, now), frame.data),
            Err(_) => {
                let send = Message::parse(packet).map_err(|_| "relayed something malformed")?;
                let named = xor(&send, AttributeType::XOR_PEER_ADDRESS)?;
                let permitted = granted.permits(named.ip(), now);
                let data = send.first(AttributeType::DATA).ok_or("relayed without DATA")?;
                (permitted.then_some(named), data)
            }
        };
        ensure!(wanted == Some(peer), "relayed to {peer}, entitled to {wanted:?}");
        ensure!(data == payload, "payload altered towards {peer}");
        granted.to_peer.count(payload.len());
        Ok(())
    }

    /// The server relayed a peer's datagram.
    pub fn sent_to_client(
        &mut self,
        now: Instant,
        five_tuple: &FiveTuple,
        sent: &ToClient<'_>,
    ) -> Check {
        let ToClient { relayed, peer, payload, datagram } = *sent;
        ensure!(self.may_reach(peer), "relayed from {peer}");
        let granted = self.granted.get_mut(five_tuple).filter(|granted| granted.is_live(now));
        let Some(granted) = granted else { return Err("relayed to nobody's client".into()) };
        let half = granted.half(IpFamily::of(peer.ip()), now);
        ensure!(half == Some(relayed), "came to {relayed}, allocated {half:?}");
        ensure!(granted.permits(peer.ip(), now), "{peer} got through without permission");
        let channel = granted.channel_of(peer, now);
        let data = match (channel, channel_data(datagram)) {
            (Some(number), Ok(frame)) if frame.number == number => frame.data,
            (None, Err(_)) => {
                let data = Message::parse(datagram).map_err(|error| format!("Data: {error}"))?;
                ensure!(data.class() == Class::Indication, "Data is no indication");
                ensure!(data.method() == Method::DATA, "{:?} to a client", data.method());
                ensure!(xor(&data, AttributeType::XOR_PEER_ADDRESS)? == peer, "wrong peer named");
                data.first(AttributeType::DATA).ok_or("Data without DATA")?
            }
            (channel, frame) => return Err(format!("channel {channel:?}, but sent {frame:?}")),
        };
        ensure!(data == payload, "payload altered from {peer}");
        granted.to_client.count(payload.len());
        Ok(())
    }

    /// The server reported an ICMP error.
    pub fn reported(
        &self,
        now: Instant,
        five_tuple: &FiveTuple,
        peer: SocketAddr,
        datagram: &[u8],
    ) -> Check {
        let permitted = self.live(now, five_tuple).is_some_and(|live| live.permits(peer.ip(), now));
        ensure!(permitted, "ICMP about {peer} reported without permission");
        let report = Message::parse(datagram).map_err(|error| format!("report: {error}"))?;
        ensure!(report.first(AttributeType::ICMP).is_some(), "a report without ICMP");
        ensure!(report.first(AttributeType::DATA).is_none(), "a report with DATA");
        ensure!(xor(&report, AttributeType::XOR_PEER_ADDRESS)? == peer, "wrong peer named");
        Ok(())
    }

    /// The server dropped a client's packet, which must not have been covered by a grant.
    pub fn dropped_from_client(
        &self,
        now: Instant,
        five_tuple: &FiveTuple,
        packet: &[u8],
        reason: DropReason,
    ) -> Check {
        let live = self.live(now, five_tuple);
        if reason == DropReason::NoAllocation {
            ensure!(live.is_none(), "dropped as if there were no allocation");
        }
        let Some(live) = live else { return Ok(()) };
        // Grants of a family end with the relayed address of the family.
        let relays = |peer: SocketAddr| live.half(IpFamily::of(peer.ip()), now).is_some();
        if reason == DropReason::ChannelNotBound {
            let frame = channel_data(packet).map_err(|_| "no ChannelData")?;
            let bound = live.channel(frame.number, now);
            ensure!(!bound.is_some_and(&relays), "dropped on a bound channel");
        }
        if reason == DropReason::NoPermission {
            let send = Message::parse(packet).map_err(|_| "no Send indication")?;
            let peer = xor(&send, AttributeType::XOR_PEER_ADDRESS)?;
            let permitted = live.permits(peer.ip(), now) && relays(peer);
            ensure!(!permitted, "dropped although {peer} is permitted");
        }
        Ok(())
    }

    /// The server dropped a peer's datagram.
    pub fn dropped_from_peer(
        &self,
        now: Instant,
        relayed: SocketAddr,
        peer: SocketAddr,
        reason: DropReason,
    ) -> Check {
        let family = IpFamily::of(relayed.ip());
        if IpFamily::of(peer.ip()) != family {
            // No network delivers such a packet.
            return Ok(());
        }
        let owner =
            self.granted.values().find(|granted| granted.half(family, now) == Some(relayed));
        let Some(owner) = owner else { return Ok(()) };
        ensure!(reason != DropReason::RelayClosed, "{relayed} is allocated");
        if reason == DropReason::NoPermission {
            ensure!(!owner.permits(peer.ip(), now), "{peer} is permitted");
        }
        Ok(())
    }
}

fn refresh(granted: &mut Granted, exchange: &Exchange<'_>) -> Check {
    let Exchange { now, request, reply, .. } = exchange;
    let now = *now;
    let family = match request.first(AttributeType::REQUESTED_ADDRESS_FAMILY) {
        Some(value) => {
            let number = value::address_family(value).map_err(|_| "malformed family granted")?;
            Some(IpFamily::from_wire(number).ok_or("unknown family granted")?)
        }
        None => None,
    };
    let lifetime = lifetime(reply)?;
    for each in IpFamily::ALL {
        let live = granted.half(each, now).is_some();
        if family.is_none_or(|family| family == each)
            && live
            && let Some((_, expires)) = &mut granted.halves[each as usize]
        {
            *expires = now + lifetime;
        }
    }
    Ok(())
}

fn lifetime(reply: &Message<'_>) -> Result<Duration, String> {
    let value = reply.first(AttributeType::LIFETIME).ok_or("success without LIFETIME")?;
    let secs = value::lifetime(value).map_err(|_| "malformed LIFETIME")?;
    Ok(Duration::from_secs(u64::from(secs)))
}

fn xor(message: &Message<'_>, kind: AttributeType) -> Result<SocketAddr, String> {
    let value = message.first(kind).ok_or_else(|| format!("no {kind:?}"))?;
    value::xor_address(value, message.transaction_id()).map_err(|_| format!("malformed {kind:?}"))
}
