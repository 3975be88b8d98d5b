//! Packet path (RFC 8656 §§11-15): ChannelData and Send from a client, datagrams and ICMP from
//! the network. Nothing here allocates memory or waits. Peer rules were evaluated when the
//! permission or channel was created. After a change of the rules they are evaluated for each
//! packet, until the review of the allocation (`store/review.rs`).
//!
//! ```text
//! ChannelData      5-tuple -> allocation -> channel                    -> ToPeer
//! Send indication  5-tuple -> allocation -> permission                 -> ToPeer
//! datagram         relay, peer -> allocation -> permission -> channel? -> ToClient
//! ```
//!
//! The kernel path relays bound channels by the same rules (`xdp-relay/bpf/relay.h`). Each new rule
//! about relayed data requires a counterpart there, which passes such packets to the sockets.
//! `xdp-relay/tests/differential.rs` compares the two implementations.

use stun_wire::{
    AttributeType, CHANNEL_HEADER_LEN, ChannelData, Message, TransactionId, padded_len,
    write_channel_header, write_data_header,
};
use turn_types::{ClientPath, Instant, IpMeta, PeerAddr, RelayId, RelayProtocol, Transport};

pub(crate) mod icmp;
mod ip_header;

use self::ip_header::{meta_to_client, meta_to_peer};
use crate::io::{DropReason, HeaderBuffer, Verdict, is_understood};
use crate::limits::UDP_PAYLOAD_MAX;
use crate::policy::Policy;
use crate::policy::peers::{OwnPorts, is_reachable, read_peer, to_public};
use crate::random::Random;
use crate::store::{Allocation, Allocations, Outbox, PolicyRevision, routes, with_headers};

/// Datagram or message from a client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FromClient<'a> {
    pub(crate) policy: &'a Policy,
    pub(crate) revision: PolicyRevision,
    pub(crate) now: Instant,
    pub(crate) path: &'a ClientPath,
    pub(crate) meta: IpMeta,
    pub(crate) bytes: &'a [u8],
}

/// Datagram of `len` bytes that a relay socket received. The bytes are not needed here.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FromPeer<'a> {
    pub(crate) policy: &'a Policy,
    pub(crate) now: Instant,
    pub(crate) relay: RelayId,
    pub(crate) peer: PeerAddr,
    pub(crate) meta: IpMeta,
    pub(crate) len: usize,
}

/// Position of the payload within a packet, and DONT-FRAGMENT.
#[derive(Clone, Copy, Debug)]
struct Payload {
    start: u16,
    len: u16,
    dont_fragment: bool,
}

/// Relays ChannelData (RFC 8656 §12.6). A bound channel suffices, and permissions are not checked.
pub(crate) fn channel_data(
    allocation: &mut Allocation,
    packet: &FromClient<'_>,
    message: &ChannelData<'_>,
    outbox: &mut Outbox,
) -> Result<Verdict, DropReason> {
    let now = packet.now;
    counted(live(allocation, now)?, |allocation| {
        relays_datagrams(allocation)?;
        let bound = allocation.channels.of_number(message.number, now);
        let channel = bound.ok_or(DropReason::ChannelNotBound)?;
        let peer = channel.peer;
        let current = (packet.policy, packet.revision);
        check_peer(allocation, current, peer, &channel.own, DropReason::ChannelNotBound)?;
        let awaits_data = channel.awaits_data;
        let len = u16::try_from(message.data.len()).map_err(|_| DropReason::TooLong)?;
        let start = CHANNEL_HEADER_LEN as u16;
        let payload = Payload { start, len, dont_fragment: false };
        let verdict = send_to_peer(allocation, packet, peer, payload);
        if awaits_data && verdict.is_ok() {
            routes::install(allocation, message.number, packet.policy, now, outbox);
        }
        verdict
    })
}

/// Relays the data of a Send indication (RFC 8656 §11.2).
pub(crate) fn send(
    allocation: &mut Allocation,
    packet: &FromClient<'_>,
    indication: &SendIndication<'_>,
) -> Result<Verdict, DropReason> {
    let SendIndication { peer, data, dont_fragment, transaction } = *indication;
    counted(live(allocation, packet.now)?, |allocation| {
        relays_datagrams(allocation)?;
        let (peer, _) = read_peer(packet.policy, peer, transaction)
            .filter(|(peer, _)| peer.port() != 0)
            .ok_or(DropReason::MalformedSend)?;
        if allocation.socket(peer.family(), packet.now).is_none() {
            return Err(DropReason::PeerFamily);
        }
        let live = allocation.permissions.live(peer.ip(), packet.now);
        let permission = live.ok_or(DropReason::NoPermission)?;
        let current = (packet.policy, packet.revision);
        check_peer(allocation, current, peer, &permission.own, DropReason::NoPermission)?;
        // Attribute values are parts of the packet, which has at most 65,535 bytes.
        let start = data.as_ptr().addr() - packet.bytes.as_ptr().addr();
        let start = u16::try_from(start).map_err(|_| DropReason::TooLong)?;
        let len = u16::try_from(data.len()).map_err(|_| DropReason::TooLong)?;
        send_to_peer(allocation, packet, peer, Payload { start, len, dont_fragment })
    })
}

/// Relays a datagram from a permitted peer to the client (RFC 8656 §§11.3, 12.7). The header is
/// ChannelData if the peer has a channel, and otherwise a Data indication.
pub(crate) fn to_client(
    allocations: &mut Allocations,
    packet: &FromPeer<'_>,
    random: &mut Random,
    header: &mut HeaderBuffer,
    outbox: &mut Outbox,
) -> Result<Verdict, DropReason> {
    let FromPeer { now, peer, len, .. } = *packet;
    let Some(slot) = allocations.of_peer(packet.relay, peer) else {
        return Err(unpermitted(allocations, packet.relay));
    };
    let current = (packet.policy, allocations.revision());
    counted(allocations.get_mut(slot), |allocation| {
        if allocation.socket(peer.family(), now).is_none() {
            return Err(DropReason::RelayClosed);
        }
        let live = allocation.permissions.live(peer.ip(), now);
        let permission = live.ok_or(DropReason::NoPermission)?;
        check_peer(allocation, current, peer, &permission.own, DropReason::NoPermission)?;
        if !allocation.attached {
            return Err(DropReason::StreamClosed);
        }
        let five_tuple = allocation.path.five_tuple;
        let meta = meta_to_client(&five_tuple, packet.meta, peer.family())?;
        let size = with_headers(five_tuple.client.family(), 1, len as u64);
        if !allocation.to_client.take(now, size) {
            return Err(DropReason::Bandwidth);
        }
        let frame = frame(allocation, packet, random, header, outbox)?;
        allocation.traffic.to_client_packets += 1;
        allocation.traffic.to_client_bytes += len as u64;
        Ok(Verdict::ToClient {
            socket: allocation.path.socket,
            client: five_tuple.client,
            from: five_tuple.server.ip(),
            header: frame.header,
            padding: frame.padding,
            meta,
        })
    })
}

/// Checks a peer's address and port. `own` is the judgement stored in the permission or channel.
/// Before the review of the allocation, the policy decides instead.
fn check_peer(
    allocation: &Allocation,
    (policy, revision): (&Policy, PolicyRevision),
    peer: PeerAddr,
    own: &OwnPorts,
    denied: DropReason,
) -> Result<(), DropReason> {
    let is_open = if allocation.revision == revision {
        is_reachable(own, peer.port())
    } else {
        is_reachable(&allocation.judge(policy, peer.ip()).ok_or(denied)?, peer.port())
    };
    if is_open { Ok(()) } else { Err(DropReason::OwnAddress) }
}

/// Returns the allocation, unless expired. A timer reclaims expired allocations.
fn live(allocation: &mut Allocation, now: Instant) -> Result<&mut Allocation, DropReason> {
    if allocation.is_live(now) { Ok(allocation) } else { Err(DropReason::NoAllocation) }
}

/// Returns the reason to drop a datagram without a permission. Counts the drop if an allocation has
/// the relay socket.
fn unpermitted(allocations: &mut Allocations, relay: RelayId) -> DropReason {
    let Some(slot) = allocations.of_relay(relay) else {
        return DropReason::RelayClosed;
    };
    let reason = DropReason::NoPermission;
    allocations.get_mut(slot).count_drop(reason);
    reason
}

fn relays_datagrams(allocation: &Allocation) -> Result<(), DropReason> {
    match allocation.attributes.protocol {
        RelayProtocol::Udp => Ok(()),
        RelayProtocol::Tcp => Err(DropReason::RelaysTcp),
    }
}

/// Relays a packet, and counts a drop in the allocation.
fn counted(
    allocation: &mut Allocation,
    relay: impl FnOnce(&mut Allocation) -> Result<Verdict, DropReason>,
) -> Result<Verdict, DropReason> {
    let verdict = relay(allocation);
    if let Err(reason) = verdict {
        allocation.count_drop(reason);
    }
    verdict
}

/// Performs the last steps towards a peer, for both ChannelData and Send.
fn send_to_peer(
    allocation: &mut Allocation,
    packet: &FromClient<'_>,
    peer: PeerAddr,
    payload: Payload,
) -> Result<Verdict, DropReason> {
    let socket = allocation.socket(peer.family(), packet.now).ok_or(DropReason::PeerFamily)?;
    let relay = socket.relay;
    let meta =
        meta_to_peer(&packet.path.five_tuple, packet.meta, peer.family(), payload.dont_fragment)?;
    let bytes = u64::from(payload.len);
    let size = with_headers(peer.family(), 1, bytes);
    if !allocation.to_peer.take(packet.now, size) {
        return Err(DropReason::Bandwidth);
    }
    allocation.traffic.to_peer_packets += 1;
    allocation.traffic.to_peer_bytes += bytes;
    Ok(Verdict::ToPeer { relay, peer, start: payload.start, len: payload.len, meta })
}

/// Framing of a peer's datagram for the client.
struct Frame {
    /// Number of bytes in the header buffer.
    header: u8,
    /// Number of zero bytes after the datagram.
    padding: u8,
}

/// Writes the header of a peer's datagram: ChannelData if the peer has a channel, and otherwise a
/// Data indication.
fn frame(
    allocation: &mut Allocation,
    packet: &FromPeer<'_>,
    random: &mut Random,
    header: &mut HeaderBuffer,
    outbox: &mut Outbox,
) -> Result<Frame, DropReason> {
    let FromPeer { policy, now, peer, len, .. } = *packet;
    let mut padding = padded_len(len) - len;
    let header_len = if let Some(channel) = allocation.channels.of_peer(peer, now) {
        let len = u16::try_from(len).map_err(|_| DropReason::TooLong)?;
        let start = header.first_chunk_mut().ok_or(DropReason::TooLong)?;
        write_channel_header(start, channel.number, len);
        if channel.awaits_data {
            let number = channel.number.get();
            routes::install(allocation, number, policy, now, outbox);
        }
        // Streams need padding to find the next message. Some clients read DTLS as a stream. Over
        // DTLS padding is allowed (RFC 8656 §12.5), and costs nothing compared with the record.
        if allocation.path.five_tuple.transport == Transport::Udp {
            padding = 0;
        }
        CHANNEL_HEADER_LEN
    } else {
        let (id, public) = (random.transaction(), to_public(policy, peer));
        write_data_header(header, id, public, len).ok_or(DropReason::TooLong)?
    };
    if header_len + len + padding > UDP_PAYLOAD_MAX {
        return Err(DropReason::TooLong);
    }
    // At most HEADER_MAX and 3.
    Ok(Frame { header: header_len as u8, padding: padding as u8 })
}

/// Attributes of a Send indication.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SendIndication<'a> {
    peer: &'a [u8],
    data: &'a [u8],
    dont_fragment: bool,
    transaction: TransactionId,
}

impl<'a> SendIndication<'a> {
    /// Reads the first attribute of each kind, in one pass.
    pub(crate) fn read(policy: &Policy, message: &Message<'a>) -> Result<Self, DropReason> {
        let (mut peer, mut data, mut dont_fragment) = (None, None, false);
        for attribute in message.attributes() {
            match attribute.kind {
                AttributeType::XOR_PEER_ADDRESS => peer = peer.or(Some(attribute.value)),
                AttributeType::DATA => data = data.or(Some(attribute.value)),
                AttributeType::DONT_FRAGMENT => dont_fragment = true,
                kind if kind.is_comprehension_required() && !is_understood(policy, kind) => {
                    return Err(DropReason::UnknownAttribute);
                }
                _ => {}
            }
        }
        let (Some(peer), Some(data)) = (peer, data) else {
            return Err(DropReason::MalformedSend);
        };
        Ok(Self { peer, data, dont_fragment, transaction: message.transaction_id() })
    }
}
