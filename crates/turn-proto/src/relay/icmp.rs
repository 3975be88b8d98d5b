//! ICMP errors about datagrams sent from a relay socket (RFC 8656 §11.5).

use stun_wire::{AttributeType, Class, Icmp, MessageBuilder, Method};
use turn_types::IpFamily;

use super::FromPeer;
use crate::io::{Answer, DropReason, IcmpReport, ReplyBuffer};
use crate::policy::peers::to_public;
use crate::random::Random;
use crate::store::{Allocations, with_headers};

/// Writes the Data indication about a datagram to `packet.peer`, even if the peer has a channel
/// (§12.5).
pub(crate) fn to_client(
    allocations: &mut Allocations,
    packet: &FromPeer<'_>,
    report: IcmpReport,
    random: &mut Random,
    reply: &mut ReplyBuffer,
) -> Result<Answer, DropReason> {
    let icmp = reported(report).ok_or(DropReason::IcmpIgnored)?;
    let FromPeer { policy, now, peer, relay, .. } = *packet;
    if report.family != peer.family() {
        return Err(DropReason::IcmpIgnored);
    }
    let slot = allocations.of_peer(relay, peer).ok_or(DropReason::IcmpIgnored)?;
    let revision = allocations.revision();
    let allocation = allocations.get_mut(slot);
    let socket = allocation.socket(peer.family(), now);
    let permission = allocation.permissions.live(peer.ip(), now);
    let is_allowed =
        allocation.revision == revision || allocation.judge(policy, peer.ip()).is_some();
    if socket.is_none() || permission.is_none() || !is_allowed || !allocation.attached {
        return Err(DropReason::IcmpIgnored);
    }
    let to = allocation.path;
    let id = random.transaction();
    let mut builder = MessageBuilder::new(reply, Class::Indication, Method::DATA, id);
    builder.xor_address(AttributeType::XOR_PEER_ADDRESS, to_public(policy, peer));
    builder.icmp(icmp);
    let len = builder.finish().and_then(|len| u16::try_from(len).ok());
    let len = len.ok_or(DropReason::TooLong)?;
    let size = with_headers(to.five_tuple.client.family(), 1, len.into());
    if !allocation.to_client.take(now, size) {
        return Err(DropReason::Bandwidth);
    }
    Ok(Answer { to, len, error: false, held: false })
}

/// Returns the ICMP attribute for a report; `None` for a type that is not forwarded (§11.5).
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
