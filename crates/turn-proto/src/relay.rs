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
    padded_len, write_channel_header, write_data_header,
};
use turn_types::{ClientPath, Instant, IpFamily, Marks, PeerAddr, RelayId, Transport};

use crate::allocation::Allocation;
use crate::event::IcmpReport;
use crate::limits::UDP_PAYLOAD_MAX;
use crate::peers::{is_reachable, read_peer, to_public};
use crate::policy::Policy;
use crate::request::is_understood;
use crate::state::State;
use crate::verdict::{Answer, DropReason, HeaderBuffer, ReplyBuffer, Verdict};

/// A datagram from a client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FromClient<'a> {
    pub(crate) policy: &'a Policy,
    pub(crate) now: Instant,
    pub(crate) path: &'a ClientPath,
    pub(crate) marks: Marks,
    pub(crate) bytes: &'a [u8],
}

/// A datagram of `len` bytes that came to a relay socket; its bytes are not needed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FromPeer<'a> {
    pub(crate) policy: &'a Policy,
    pub(crate) now: Instant,
    pub(crate) relay: RelayId,
    pub(crate) peer: PeerAddr,
    pub(crate) marks: Marks,
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
        let message = channel_data(packet.bytes).map_err(|_| DropReason::MalformedChannelData)?;
        let allocation = self.of_client(packet)?;
        let now = packet.now;
        counted(allocation, |allocation| {
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
        let SendParts { peer, data, dont_fragment } = SendParts::read(message)?;
        let allocation = self.of_client(packet)?;
        counted(allocation, |allocation| {
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
        let id = self.random_transaction();
        counted(self.table.get_mut(slot), |allocation| {
            if allocation.half(peer.family(), now).is_none() {
                return Err(DropReason::RelayClosed);
            }
            let live = allocation.permissions.live(peer.ip(), now);
            let permission = live.ok_or(DropReason::NoPermission)?;
            if !is_reachable(&permission.own, peer.port()) {
                return Err(DropReason::OwnAddress);
            }
            let five_tuple = allocation.path.five_tuple;
            let marks = marks_to_client(
                packet.marks,
                five_tuple.transport,
                five_tuple.client.family(),
                peer.family(),
            )?;
            let padding = padded_len(len) - len;
            let short_len = u16::try_from(len).map_err(|_| DropReason::TooLong)?;
            let (header_len, padding) = match allocation.channels.of_peer(peer, now) {
                Some(channel) => {
                    let [h0, h1, h2, h3, ..] = header;
                    let mut bytes = [*h0, *h1, *h2, *h3];
                    write_channel_header(&mut bytes, channel.number, short_len);
                    header[..CHANNEL_HEADER_LEN].copy_from_slice(&bytes);
                    // Padding is for streams, which need it to find the next message.
                    let padding = if five_tuple.transport.is_datagram() { 0 } else { padding };
                    (CHANNEL_HEADER_LEN, padding)
                }
                None => {
                    let shown = to_public(policy, peer);
                    let written = write_data_header(header, id, shown, len);
                    (written.ok_or(DropReason::TooLong)?, padding)
                }
            };
            if header_len + len + padding > UDP_PAYLOAD_MAX {
                return Err(DropReason::TooLong);
            }
            let rate = policy.quotas.bytes_per_second;
            if !allocation.to_client.take(now, rate, len as u64) {
                return Err(DropReason::Bandwidth);
            }
            allocation.traffic.to_client_packets += 1;
            allocation.traffic.to_client_bytes += len as u64;
            Ok(Verdict::ToClient {
                socket: allocation.path.socket,
                client: five_tuple.client,
                from: five_tuple.server.ip(),
                header: header_len as u8,
                padding: padding as u8,
                marks,
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
        let id = self.random_transaction();
        let allocation = self.table.get(slot);
        let half = allocation.half(peer.family(), now);
        let permission = allocation.permissions.live(peer.ip(), now);
        if half.is_none() || permission.is_none() {
            return Err(DropReason::IcmpIgnored);
        }
        let mut builder = MessageBuilder::new(reply, Class::Indication, Method::DATA, id);
        builder.xor_address(AttributeType::XOR_PEER_ADDRESS, to_public(policy, peer));
        builder.icmp(icmp);
        let len = builder.finish().and_then(|len| u16::try_from(len).ok());
        let len = len.ok_or(DropReason::TooLong)?;
        Ok(Answer { to: allocation.path, len, error: false })
    }

    fn of_client(&mut self, packet: &FromClient<'_>) -> Result<&mut Allocation, DropReason> {
        let slot = self.table.of_client(&packet.path.five_tuple).ok_or(DropReason::NoAllocation)?;
        let allocation = self.table.get_mut(slot);
        // One that has run out is reclaimed by its timer.
        if allocation.is_live(packet.now) { Ok(allocation) } else { Err(DropReason::NoAllocation) }
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
    let marks = marks_to_peer(packet, peer.family(), payload.dont_fragment)?;
    let bytes = u64::from(payload.len);
    if !allocation.to_peer.take(packet.now, packet.policy.quotas.bytes_per_second, bytes) {
        return Err(DropReason::Bandwidth);
    }
    allocation.traffic.to_peer_packets += 1;
    allocation.traffic.to_peer_bytes += bytes;
    Ok(Verdict::ToPeer { relay, peer, start: payload.start, len: payload.len, marks })
}

/// What a Send indication carries.
struct SendParts<'a> {
    peer: &'a [u8],
    data: &'a [u8],
    dont_fragment: bool,
}

impl<'a> SendParts<'a> {
    /// The first attribute of each kind, found in one pass.
    fn read(message: &Message<'a>) -> Result<Self, DropReason> {
        let (mut peer, mut data, mut dont_fragment) = (None, None, false);
        for attribute in message.attributes() {
            match attribute.kind {
                AttributeType::XOR_PEER_ADDRESS => peer = peer.or(Some(attribute.value)),
                AttributeType::DATA => data = data.or(Some(attribute.value)),
                AttributeType::DONT_FRAGMENT => dont_fragment = true,
                kind if kind.is_comprehension_required() && !is_understood(kind) => {
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

/// TTL, traffic class and DF towards a peer: TTL one less, DSCP and ECN as they came (RFC 8656
/// §§13, 14), over a stream no ECN and no TTL (§15).
fn marks_to_peer(
    packet: &FromClient<'_>,
    family: IpFamily,
    asked: bool,
) -> Result<Marks, DropReason> {
    let five_tuple = &packet.path.five_tuple;
    if !five_tuple.transport.is_datagram() {
        let tos = packet.marks.tos & !ECN;
        return Ok(Marks { ttl: 0, tos, dont_fragment: asked });
    }
    // Only from IPv4 to IPv4 is there a DF to set; DONT-FRAGMENT is ignored elsewhere (§13).
    let v4 = five_tuple.client.family() == IpFamily::V4 && family == IpFamily::V4;
    let dont_fragment = v4 && (asked || packet.marks.dont_fragment);
    Ok(Marks { ttl: one_hop_less(packet.marks.ttl)?, tos: packet.marks.tos, dont_fragment })
}

/// The same towards a client; over a stream the system's defaults (RFC 8656 §16).
fn marks_to_client(
    marks: Marks,
    transport: Transport,
    client: IpFamily,
    peer: IpFamily,
) -> Result<Marks, DropReason> {
    if !transport.is_datagram() {
        return Ok(Marks::DEFAULT);
    }
    let v4 = client == IpFamily::V4 && peer == IpFamily::V4;
    let dont_fragment = v4 && marks.dont_fragment;
    Ok(Marks { ttl: one_hop_less(marks.ttl)?, tos: marks.tos, dont_fragment })
}

/// The two low bits of the traffic class.
const ECN: u8 = 0b11;

/// We are a hop: without this, relays that send to each other would do so for ever (§21.1.7).
const fn one_hop_less(ttl: u8) -> Result<u8, DropReason> {
    match ttl {
        0 => Ok(0), // not known, hence the system's default
        1 => Err(DropReason::TtlExpired),
        more => Ok(more - 1),
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
