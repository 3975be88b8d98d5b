//! The packet path (RFC 8656 §§11-15): ChannelData and Send from a client, datagrams and ICMP from
//! the network. Nothing here allocates memory, waits, or looks at rules: those were looked at when
//! the permission or channel was made, and are looked at anew when they change.
//!
//! ```text
//! ChannelData      5-tuple -> allocation -> channel                    -> ToPeer
//! Send indication  5-tuple -> allocation -> permission                 -> ToPeer
//! datagram         relay, peer -> allocation -> permission -> channel? -> ToClient
//! ```

use stun_wire::{
    AttributeType, CHANNEL_HEADER_LEN, Class, Icmp, Message, MessageBuilder, Method, channel_data,
    channel_data_rfc5766, padded_len, write_channel_header, write_data_header,
};
use turn_types::{
    ClientPath, Instant, IpFamily, IpMeta, PeerAddr, RelayId, RelayProtocol, Transport,
};

use crate::allocation::Allocation;
use crate::bandwidth::with_headers;
use crate::event::IcmpReport;
use crate::ip_header::{meta_to_client, meta_to_peer};
use crate::limits::UDP_PAYLOAD_MAX;
use crate::peers::{is_reachable, read_peer, to_public};
use crate::policy::Policy;
use crate::random::Random;
use crate::request::is_understood;
use crate::state::State;
use crate::table::Slot;
use crate::verdict::{Answer, DropReason, HeaderBuffer, ReplyBuffer, Verdict};

/// A datagram from a client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FromClient<'a> {
    pub(crate) policy: &'a Policy,
    pub(crate) now: Instant,
    pub(crate) path: &'a ClientPath,
    pub(crate) meta: IpMeta,
    pub(crate) bytes: &'a [u8],
}

/// A datagram of `len` bytes that came to a relay socket; its bytes are not needed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FromPeer<'a> {
    pub(crate) policy: &'a Policy,
    pub(crate) now: Instant,
    pub(crate) relay: RelayId,
    pub(crate) peer: PeerAddr,
    pub(crate) meta: IpMeta,
    pub(crate) len: usize,
}

/// Where the payload of a packet lies, and whether DF was asked for it.
#[derive(Clone, Copy, Debug)]
struct Payload {
    start: u16,
    len: u16,
    dont_fragment: bool,
}

impl State {
    /// ChannelData (RFC 8656 §12.6). A bound channel is enough: permissions are not asked.
    pub(crate) fn relay_channel_data(
        &mut self,
        packet: &FromClient<'_>,
    ) -> Result<Verdict, DropReason> {
        let read = if packet.policy.rfc5766_clients { channel_data_rfc5766 } else { channel_data };
        let message = read(packet.bytes).map_err(|_| DropReason::MalformedChannelData)?;
        let Some(slot) = self.slot_of_client(packet) else {
            return self.queue_data(packet);
        };
        let now = packet.now;
        counted(self.live(slot, now)?, |allocation| {
            relays_datagrams(allocation)?;
            let bound = allocation.channels.of_number(message.number, now);
            let channel = bound.ok_or(DropReason::ChannelNotBound)?;
            let peer = channel.peer;
            if !is_reachable(&channel.own, peer.port()) {
                return Err(DropReason::OwnAddress);
            }
            let len = u16::try_from(message.data.len()).map_err(|_| DropReason::TooLong)?;
            let start = CHANNEL_HEADER_LEN as u16;
            send_to_peer(allocation, packet, peer, Payload { start, len, dont_fragment: false })
        })
    }

    /// A Send indication (RFC 8656 §11.2).
    pub(crate) fn relay_send(
        &mut self,
        packet: &FromClient<'_>,
        message: &Message<'_>,
    ) -> Result<Verdict, DropReason> {
        let SendParts { peer, data, dont_fragment } = SendParts::read(packet.policy, message)?;
        let Some(slot) = self.slot_of_client(packet) else {
            return self.queue_data(packet);
        };
        counted(self.live(slot, packet.now)?, |allocation| {
            relays_datagrams(allocation)?;
            let (peer, _) = read_peer(packet.policy, peer, message.transaction_id())
                .filter(|(peer, _)| peer.port() != 0)
                .ok_or(DropReason::MalformedSend)?;
            if allocation.half(peer.family(), packet.now).is_none() {
                return Err(DropReason::PeerFamily);
            }
            let live = allocation.permissions.live(peer.ip(), packet.now);
            let permission = live.ok_or(DropReason::NoPermission)?;
            if !is_reachable(&permission.own, peer.port()) {
                return Err(DropReason::OwnAddress);
            }
            // Attribute values are parts of the packet, which is at most 65,535 bytes long.
            let start = data.as_ptr().addr() - packet.bytes.as_ptr().addr();
            let start = u16::try_from(start).map_err(|_| DropReason::TooLong)?;
            let len = u16::try_from(data.len()).map_err(|_| DropReason::TooLong)?;
            send_to_peer(allocation, packet, peer, Payload { start, len, dont_fragment })
        })
    }

    /// A datagram to a relay socket (RFC 8656 §§11.3, 12.7): from a permitted peer it goes to the
    /// client, in ChannelData if the peer has a channel, else in a Data indication.
    pub(crate) fn relay_to_client(
        &mut self,
        packet: &FromPeer<'_>,
        header: &mut HeaderBuffer,
    ) -> Result<Verdict, DropReason> {
        let FromPeer { policy, now, peer, len, .. } = *packet;
        let Some(slot) = self.table.of_peer(packet.relay, peer.ip()) else {
            return Err(self.unpermitted(packet));
        };
        let Self { table, random, .. } = self;
        counted(table.get_mut(slot), |allocation| {
            if allocation.half(peer.family(), now).is_none() {
                return Err(DropReason::RelayClosed);
            }
            let live = allocation.permissions.live(peer.ip(), now);
            let permission = live.ok_or(DropReason::NoPermission)?;
            if !is_reachable(&permission.own, peer.port()) {
                return Err(DropReason::OwnAddress);
            }
            if !allocation.attached {
                return Err(DropReason::StreamClosed);
            }
            let five_tuple = allocation.path.five_tuple;
            let meta = meta_to_client(&five_tuple, packet.meta, peer.family())?;
            let size = with_headers(five_tuple.client.family(), 1, len as u64);
            if !allocation.to_client.take(now, policy.quotas.bytes_per_second, size) {
                return Err(DropReason::Bandwidth);
            }
            let frame = frame(allocation, packet, random, header)?;
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

    /// An ICMP error about a datagram that left a relay socket for `peer` (RFC 8656 §11.5). It comes
    /// as a Data indication even if the peer has a channel (§12.5).
    pub(crate) fn report_icmp(
        &mut self,
        packet: &FromPeer<'_>,
        report: IcmpReport,
        reply: &mut ReplyBuffer,
    ) -> Result<Answer, DropReason> {
        let icmp = reported(report).ok_or(DropReason::IcmpIgnored)?;
        let FromPeer { policy, now, peer, relay, .. } = *packet;
        if report.family != peer.family() {
            return Err(DropReason::IcmpIgnored);
        }
        let slot = self.table.of_peer(relay, peer.ip()).ok_or(DropReason::IcmpIgnored)?;
        let allocation = self.table.get(slot);
        let half = allocation.half(peer.family(), now);
        let permission = allocation.permissions.live(peer.ip(), now);
        if half.is_none() || permission.is_none() || !allocation.attached {
            return Err(DropReason::IcmpIgnored);
        }
        let to = allocation.path;
        let id = self.random.transaction();
        let mut builder = MessageBuilder::new(reply, Class::Indication, Method::DATA, id);
        builder.xor_address(AttributeType::XOR_PEER_ADDRESS, to_public(policy, peer));
        builder.icmp(icmp);
        let len = builder.finish().and_then(|len| u16::try_from(len).ok());
        let len = len.ok_or(DropReason::TooLong)?;
        let size = with_headers(to.five_tuple.client.family(), 1, len.into());
        let allocation = self.table.get_mut(slot);
        if !allocation.to_client.take(now, policy.quotas.bytes_per_second, size) {
            return Err(DropReason::Bandwidth);
        }
        Ok(Answer { to, len, error: false, held: false })
    }

    /// The allocation of the client that a packet is from. Its move is complete with that (RFC 8016).
    fn slot_of_client(&mut self, packet: &FromClient<'_>) -> Option<Slot> {
        let five_tuple = &packet.path.five_tuple;
        let slot = self.table.of_client(five_tuple)?;
        if self.table.get(slot).expects(five_tuple) {
            self.complete_move(packet.policy, packet.now, slot);
        }
        Some(slot)
    }

    /// An allocation that has not run out: one that has is reclaimed by its timer.
    fn live(&mut self, slot: Slot, now: Instant) -> Result<&mut Allocation, DropReason> {
        let allocation = self.table.get_mut(slot);
        if allocation.is_live(now) { Ok(allocation) } else { Err(DropReason::NoAllocation) }
    }

    /// Why nobody gets a datagram that no permission was found for.
    fn unpermitted(&mut self, packet: &FromPeer<'_>) -> DropReason {
        let Some(slot) = self.table.of_relay(packet.relay) else {
            return DropReason::RelayClosed;
        };
        self.table.get_mut(slot).traffic.dropped_packets += 1;
        DropReason::NoPermission
    }
}

fn relays_datagrams(allocation: &Allocation) -> Result<(), DropReason> {
    match allocation.protocol {
        RelayProtocol::Udp => Ok(()),
        RelayProtocol::Tcp => Err(DropReason::RelaysTcp),
    }
}

/// Counts what an allocation drops.
fn counted(
    allocation: &mut Allocation,
    relay: impl FnOnce(&mut Allocation) -> Result<Verdict, DropReason>,
) -> Result<Verdict, DropReason> {
    let verdict = relay(allocation);
    if verdict.is_err() {
        allocation.traffic.dropped_packets += 1;
    }
    verdict
}

/// The last steps towards a peer, the same for ChannelData and Send.
fn send_to_peer(
    allocation: &mut Allocation,
    packet: &FromClient<'_>,
    peer: PeerAddr,
    payload: Payload,
) -> Result<Verdict, DropReason> {
    let half = allocation.half(peer.family(), packet.now).ok_or(DropReason::PeerFamily)?;
    let relay = half.relay;
    let meta =
        meta_to_peer(&packet.path.five_tuple, packet.meta, peer.family(), payload.dont_fragment)?;
    let bytes = u64::from(payload.len);
    let size = with_headers(peer.family(), 1, bytes);
    if !allocation.to_peer.take(packet.now, packet.policy.quotas.bytes_per_second, size) {
        return Err(DropReason::Bandwidth);
    }
    allocation.traffic.to_peer_packets += 1;
    allocation.traffic.to_peer_bytes += bytes;
    Ok(Verdict::ToPeer { relay, peer, start: payload.start, len: payload.len, meta })
}

/// What surrounds a peer's datagram on its way to the client.
struct Frame {
    /// Bytes of the header buffer.
    header: u8,
    /// Zero bytes behind the datagram.
    padding: u8,
}

/// Writes what goes in front of a peer's datagram: the header of ChannelData if the peer has a
/// channel, else that of a Data indication.
fn frame(
    allocation: &Allocation,
    packet: &FromPeer<'_>,
    random: &mut Random,
    header: &mut HeaderBuffer,
) -> Result<Frame, DropReason> {
    let FromPeer { policy, now, peer, len, .. } = *packet;
    let mut padding = padded_len(len) - len;
    let header_len = if let Some(channel) = allocation.channels.of_peer(peer, now) {
        let len = u16::try_from(len).map_err(|_| DropReason::TooLong)?;
        let start = header.first_chunk_mut().ok_or(DropReason::TooLong)?;
        write_channel_header(start, channel.number, len);
        // Streams need it to find the next message. Some clients read DTLS as a stream: there it is allowed
        // (RFC 8656 §12.5), and costs nothing beside the record.
        if allocation.path.five_tuple.transport == Transport::Udp {
            padding = 0;
        }
        CHANNEL_HEADER_LEN
    } else {
        let (id, shown) = (random.transaction(), to_public(policy, peer));
        write_data_header(header, id, shown, len).ok_or(DropReason::TooLong)?
    };
    if header_len + len + padding > UDP_PAYLOAD_MAX {
        return Err(DropReason::TooLong);
    }
    // At most HEADER_MAX and 3.
    Ok(Frame { header: header_len as u8, padding: padding as u8 })
}

/// What a Send indication carries.
struct SendParts<'a> {
    peer: &'a [u8],
    data: &'a [u8],
    dont_fragment: bool,
}

impl<'a> SendParts<'a> {
    /// The first attribute of each kind, found in one pass.
    fn read(policy: &Policy, message: &Message<'a>) -> Result<Self, DropReason> {
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
        Ok(Self { peer, data, dont_fragment })
    }
}

/// The ICMP attribute for a report, if its type is one of those that are passed on (§11.5).
fn reported(report: IcmpReport) -> Option<Icmp> {
    const UNREACHABLE_V4: u8 = 3;
    const FRAGMENTATION_NEEDED: u8 = 4;
    const TIME_EXCEEDED_V4: u8 = 11;
    const PACKET_TOO_BIG_V6: u8 = 2;
    let (passed_on, carries_mtu) = match report.family {
        IpFamily::V4 => (
            matches!(report.kind, UNREACHABLE_V4 | TIME_EXCEEDED_V4),
            report.kind == UNREACHABLE_V4 && report.code == FRAGMENTATION_NEEDED,
        ),
        IpFamily::V6 => (matches!(report.kind, 1..=3), report.kind == PACKET_TOO_BIG_V6),
    };
    let data = if carries_mtu { report.data } else { 0 };
    passed_on.then_some(Icmp { kind: report.kind, code: report.code.into(), data })
}
