//! Data to and from peers: Send and Data indications, ChannelData (RFC 8656 §§11, 12).

use core::net::IpAddr;

use rand_chacha::rand_core::Rng as _;
use stun_wire::{
    AttributeType, CHANNEL_HEADER_LEN, ChannelNumber, Class, Message, MessageBuilder, Method,
    TransactionId, channel_data, padded_len, value, write_channel_header,
};
use turn_types::PeerAddr;

use crate::client::Client;
use crate::incoming::{IgnoreReason, Incoming};

impl Client {
    pub(crate) fn read_channel_data<'d>(&self, datagram: &'d [u8]) -> Incoming<'d> {
        let Ok(frame) = channel_data(datagram) else {
            return Incoming::Ignored(IgnoreReason::Malformed);
        };
        match (self.upkeep.channel_peer(frame.number), ChannelNumber::new(frame.number)) {
            (Some(peer), channel @ Some(_)) => {
                Incoming::Data { peer, payload: frame.data, channel }
            }
            _ => Incoming::Ignored(IgnoreReason::UnknownChannel),
        }
    }

    pub(crate) fn read_indication<'d>(&self, message: &Message<'d>) -> Incoming<'d> {
        if message.method() != Method::DATA {
            return Incoming::Ignored(IgnoreReason::Unexpected);
        }
        let known = [AttributeType::XOR_PEER_ADDRESS, AttributeType::DATA];
        let peer = message
            .first(AttributeType::XOR_PEER_ADDRESS)
            .and_then(|value| value::xor_address(value, message.transaction_id()).ok());
        let Some(peer) = peer.map(PeerAddr) else {
            return Incoming::Ignored(IgnoreReason::Malformed);
        };
        if message.unknown_required(|kind| known.contains(&kind)).next().is_some() {
            return Incoming::Ignored(IgnoreReason::Malformed);
        }
        if !self.wants_data_from(peer.ip()) {
            return Incoming::Ignored(IgnoreReason::NoPermission);
        }
        let icmp = message.first(AttributeType::ICMP).map(value::icmp);
        match (message.first(AttributeType::DATA), icmp) {
            (Some(payload), None) => Incoming::Data { peer, payload, channel: None },
            (None, Some(Ok(icmp))) => Incoming::Icmp { peer, icmp },
            // Both, neither, or a malformed ICMP attribute (RFC 8656 §§11.4, 11.6).
            _ => Incoming::Ignored(IgnoreReason::Malformed),
        }
    }

    fn wants_data_from(&self, peer: IpAddr) -> bool {
        self.upkeep.wants_permission(peer)
    }

    /// Writes ChannelData into `out`, and returns the length in bytes. Over TCP and TLS, the
    /// message is padded to a multiple of four bytes (RFC 8656 §12.5). Returns `None` if the
    /// message does not fit, or the payload exceeds 65,535 bytes.
    #[must_use]
    pub fn write_channel_data(
        &self,
        out: &mut [u8],
        channel: ChannelNumber,
        payload: &[u8],
    ) -> Option<usize> {
        let len = u16::try_from(payload.len()).ok()?;
        let end = CHANNEL_HEADER_LEN + payload.len();
        let padded = if self.config.transport.is_datagram() { end } else { padded_len(end) };
        let (header, rest) = out.get_mut(..padded)?.split_first_chunk_mut()?;
        write_channel_header(header, channel, len);
        let (data, padding) = rest.split_at_mut_checked(payload.len())?;
        data.copy_from_slice(payload);
        padding.fill(0);
        Some(padded)
    }

    /// Writes a Send indication into `out`, and returns the length in bytes.
    ///
    /// The length is that of the padded payload, plus 36 bytes for an IPv4 peer or 48 bytes for an
    /// IPv6 peer. DONT-FRAGMENT adds 4 bytes. Returns `None` if the indication does not fit.
    #[must_use]
    pub fn write_send_indication(
        &mut self,
        out: &mut [u8],
        peer: PeerAddr,
        payload: &[u8],
        dont_fragment: bool,
    ) -> Option<usize> {
        let id = self.new_id();
        let mut builder = MessageBuilder::new(out, Class::Indication, Method::SEND, id);
        builder.xor_address(AttributeType::XOR_PEER_ADDRESS, peer.0);
        if dont_fragment {
            builder.dont_fragment();
        }
        builder.data(payload);
        builder.finish()
    }

    pub(crate) fn new_id(&mut self) -> TransactionId {
        let mut id = [0; 12];
        self.rng.fill_bytes(&mut id);
        TransactionId(id)
    }
}
