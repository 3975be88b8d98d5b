//! IP header fields of a relayed datagram (RFC 8656 §§13-16). DSCP and ECN are preserved, TTL is
//! decremented, and DF is preserved from IPv4 to IPv4. Fewer fields apply between a datagram and a
//! stream.

use turn_types::{FiveTuple, IpFamily, IpMeta};

use crate::io::DropReason;

/// ECN field: the two low bits of the traffic class.
const ECN: u8 = 0b11;

/// Returns the header fields of a datagram to a peer of this family. `dont_fragment` is true if the
/// client requested DF with DONT-FRAGMENT.
pub(crate) fn meta_to_peer(
    client: &FiveTuple,
    received: IpMeta,
    peer: IpFamily,
    dont_fragment: bool,
) -> Result<IpMeta, DropReason> {
    if !client.transport.is_datagram() {
        // Data in a stream has the DSCP of the connection, and neither TTL nor ECN (§15).
        return Ok(IpMeta { ttl: 0, tos: received.tos & !ECN, dont_fragment });
    }
    // DONT-FRAGMENT is ignored if either side is IPv6 (§13).
    let v4 = is_v4_to_v4(client, peer);
    let dont_fragment = v4 && (dont_fragment || received.dont_fragment);
    Ok(IpMeta { ttl: one_hop_less(received.ttl)?, tos: received.tos, dont_fragment })
}

/// Returns the header fields of data from a peer of this family to the client.
pub(crate) fn meta_to_client(
    client: &FiveTuple,
    received: IpMeta,
    peer: IpFamily,
) -> Result<IpMeta, DropReason> {
    if !client.transport.is_datagram() {
        return Ok(IpMeta::DEFAULT); // the connection has separate header fields (§16)
    }
    let dont_fragment = is_v4_to_v4(client, peer) && received.dont_fragment;
    Ok(IpMeta { ttl: one_hop_less(received.ttl)?, tos: received.tos, dont_fragment })
}

fn is_v4_to_v4(client: &FiveTuple, peer: IpFamily) -> bool {
    client.client.family() == IpFamily::V4 && peer == IpFamily::V4
}

/// Decrements a TTL, because a relay is a hop. Otherwise relays that send to each other would
/// continue forever (§21.1.7).
const fn one_hop_less(ttl: u8) -> Result<u8, DropReason> {
    match ttl {
        0 => Ok(0), // unknown, hence the system's default
        1 => Err(DropReason::TtlExpired),
        more => Ok(more - 1),
    }
}
