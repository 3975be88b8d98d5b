//! Writing of requests (RFC 8656 §§7.1, 8.1, 10.1, 12.1).

use alloc::vec::Vec;
use core::fmt;
use core::net::SocketAddr;

use stun_wire::{AttributeType, Class, MessageBuilder, Method, TransactionId};
use turn_types::IpFamily;

use crate::config::{AllocateOptions, ClientConfig, EvenPort, Families};
use crate::limits::{REQUEST_MAX, TOKEN_MAX};
use crate::login::Login;
use crate::transaction::Purpose;

/// Protocol number of UDP, in REQUESTED-TRANSPORT.
const UDP: u8 = 17;

/// Reason why a request was not started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestError {
    /// An allocation exists, or a request for an allocation is in flight.
    AllocationExists,
    /// No allocation exists.
    NoAllocation,
    /// The number of permissions, channels or requests in flight has reached the limit of the
    /// client.
    TooMany,
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AllocationExists => "there is an allocation already",
            Self::NoAllocation => "there is no allocation",
            Self::TooMany => "too many permissions, channels or requests at a time",
        })
    }
}

impl core::error::Error for RequestError {}

/// Common data of all requests.
pub(crate) struct Writer<'a> {
    pub(crate) config: &'a ClientConfig,
    pub(crate) options: AllocateOptions,
    pub(crate) login: Option<&'a Login>,
    pub(crate) ticket: Option<&'a [u8]>,
    pub(crate) id: TransactionId,
}

impl Writer<'_> {
    /// Writes a request. Returns `None` if the request exceeds the maximum length, for example
    /// because of a token of kilobytes, or if the ticket is missing.
    pub(crate) fn write(&self, purpose: &Purpose) -> Option<Vec<u8>> {
        let mut buffer = [0; REQUEST_MAX];
        let mut builder =
            MessageBuilder::new(&mut buffer, Class::Request, purpose.method(), self.id);
        match purpose {
            Purpose::Binding => {}
            Purpose::Allocate => self.write_allocate(&mut builder),
            Purpose::Refresh { half, lifetime_secs } => {
                self.write_software(&mut builder);
                if let Some(secs) = lifetime_secs {
                    builder.lifetime(*secs);
                }
                if let Some(family) = half {
                    builder.requested_address_family(family.wire());
                }
            }
            Purpose::Move { lifetime_secs } => {
                self.write_software(&mut builder);
                if let Some(secs) = lifetime_secs {
                    builder.lifetime(*secs);
                }
                builder.mobility_ticket(self.ticket?);
            }
            Purpose::CreatePermission { peers } => {
                for peer in peers {
                    // The port is ignored (RFC 8656 §9.1).
                    let peer = SocketAddr::new(*peer, 0);
                    builder.xor_address(AttributeType::XOR_PEER_ADDRESS, peer);
                }
            }
            Purpose::ChannelBind { channel, peer } => {
                builder.channel_number(*channel);
                builder.xor_address(AttributeType::XOR_PEER_ADDRESS, peer.0);
            }
        }
        if let (Some(token), true) = (&self.config.token, self.login.is_some())
            && matches!(purpose.method(), Method::ALLOCATE | Method::REFRESH)
        {
            let value = Some(&token.value).filter(|value| value.len() <= TOKEN_MAX)?;
            builder.attribute(AttributeType::ACCESS_TOKEN, value);
        }
        let len = self.finish(builder)?;
        Some(buffer[..len].to_vec())
    }

    fn write_allocate(&self, builder: &mut MessageBuilder<'_>) {
        self.write_software(builder);
        builder.requested_transport(UDP);
        let options = &self.options;
        match options.families {
            Families::Unsaid => {}
            Families::V4 => {
                builder.requested_address_family(IpFamily::V4.wire());
            }
            Families::V6 => {
                builder.requested_address_family(IpFamily::V6.wire());
            }
            Families::Both => {
                builder.additional_address_family(IpFamily::V6.wire());
            }
        }
        if let Some(even_port) = options.even_port {
            builder.even_port(even_port == EvenPort::EvenAndReserveNext);
        }
        if let Some(token) = options.reservation_token {
            builder.reservation_token(token);
        }
        if options.dont_fragment {
            builder.dont_fragment();
        }
        if let Some(secs) = options.lifetime_secs {
            builder.lifetime(secs);
        }
        if options.mobility {
            builder.mobility_ticket(&[]);
        }
    }

    fn write_software(&self, builder: &mut MessageBuilder<'_>) {
        if let Some(software) = &self.config.software {
            builder.software(software);
        }
    }

    fn finish(&self, mut builder: MessageBuilder<'_>) -> Option<usize> {
        match (self.login, self.config.fingerprint) {
            (None, false) => builder.finish(),
            (None, true) => builder.fingerprint(),
            (Some(login), fingerprint) => {
                login.write(&mut builder);
                let signed = builder.integrity(login.integrity(), login.key());
                if fingerprint { signed.fingerprint() } else { signed.finish() }
            }
        }
    }
}
