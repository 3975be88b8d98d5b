//! The IP header fields that a relayed datagram keeps (RFC 8656 §§13-16): DSCP and ECN as they
//! came, TTL one less, DF from IPv4 to IPv4. Between a datagram and a stream there is less to keep.

use turn_types::{FiveTuple, IpFamily, IpMeta};

use crate::io::DropReason;

/// The two low bits of the traffic class.
const ECN: u8 = 0b11;

/// Header fields of a datagram to a peer of this family. `dont_fragment` says whether the client
/// asked for DF by DONT-FRAGMENT.
pub(crate) fn meta_to_peer(
    client: &FiveTuple,
    received: IpMeta,
    peer: IpFamily,
    dont_fragment: bool,
) -> Result<IpMeta, DropReason> {
    if !client.transport.is_datagram() {
        // What a stream carries has one DSCP, no TTL and no ECN of its own (§15).
        return Ok(IpMeta { ttl: 0, tos: received.tos & !ECN, dont_fragment });
    }
    // DONT-FRAGMENT is ignored where IPv6 is on either side (§13).
    let v4 = is_v4_to_v4(client, peer);
    let dont_fragment = v4 && (dont_fragment || received.dont_fragment);
    Ok(IpMeta { ttl: one_hop_less(received.ttl)?, tos: received.tos, dont_fragment })
}

/// Header fields of data from a peer of this family, towards the client.
pub(crate) fn meta_to_client(
    client: &FiveTuple,
    received: IpMeta,
    peer: IpFamily,
) -> Result<IpMeta, DropReason> {
    if !client.transport.is_datagram() {
        return Ok(IpMeta::DEFAULT); // the connection has its own (§16)
    }
    let dont_fragment = is_v4_to_v4(client, peer) && received.dont_fragment;
    Ok(IpMeta { ttl: one_hop_less(received.ttl)?, tos: received.tos, dont_fragment })
}

fn is_v4_to_v4(client: &FiveTuple, peer: IpFamily) -> bool {
    client.client.family() == IpFamily::V4 && peer == IpFamily::V4
}

/// A relay is a hop: without this, relays that send to each other would do so for ever (§21.1.7).
const fn one_hop_less(ttl: u8) -> Result<u8, DropReason> {
    match ttl {
        0 => Ok(0), // not known, hence the system's default
        1 => Err(DropReason::TtlExpired),
        more => Ok(more - 1),
    }
}
