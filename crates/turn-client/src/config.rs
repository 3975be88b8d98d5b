//! Configuration of a client, and options of its requests.

use alloc::sync::Arc;
use core::time::Duration;

use turn_types::{Secret, ServerAddr, Transport};

/// Configuration of a client.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// Address of the server.
    pub server: ServerAddr,
    /// Transport of the messages. Over UDP and DTLS, requests are retransmitted. Over TCP and TLS,
    /// ChannelData is padded.
    pub transport: Transport,
    /// User name (USERNAME), at most 508 bytes. With an empty name, the client never authenticates.
    pub username: Arc<str>,
    /// Password of the user.
    pub password: Secret<Arc<str>>,
    /// Access token, used instead of the password. The user name is then the name of the key that
    /// encrypts the token.
    pub token: Option<AccessToken>,
    /// Acceptable password algorithms.
    pub algorithms: AlgorithmChoice,
    /// True to send USERHASH instead of USERNAME if the server offers this (RFC 8489 §9.2).
    pub userhash: bool,
    /// Retransmission of requests.
    pub retransmission: Retransmission,
    /// Lifetime of a permission at the server: 300 s (RFC 8656 §9).
    pub permission_lifetime: Duration,
    /// Lifetime of a channel at the server: 600 s (RFC 8656 §12).
    pub channel_lifetime: Duration,
    /// SOFTWARE in Allocate and Refresh requests, at most 127 bytes.
    pub software: Option<Arc<str>>,
    /// True to send FINGERPRINT in requests.
    pub fingerprint: bool,
    /// Seed of transaction ids, which must be unpredictable (RFC 8489 §5). Outside of tests, use 32
    /// bytes from the operating system.
    pub seed: [u8; 32],
}

impl ClientConfig {
    /// Creates the configuration of a client over UDP, with the recommended values of the RFCs.
    #[must_use]
    pub fn new(server: ServerAddr, username: &str, password: &str, seed: [u8; 32]) -> Self {
        Self {
            server,
            transport: Transport::Udp,
            username: username.into(),
            password: Secret::new(password.into()),
            token: None,
            algorithms: AlgorithmChoice::AsOffered,
            userhash: false,
            retransmission: Retransmission::DEFAULT,
            permission_lifetime: Duration::from_secs(300),
            channel_lifetime: Duration::from_secs(600),
            software: None,
            fingerprint: false,
            seed,
        }
    }
}

/// Access token of an authorization server (RFC 7635).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessToken {
    /// Value of ACCESS-TOKEN, at most 512 bytes.
    pub value: Arc<[u8]>,
    /// Session key.
    pub mac_key: Secret<Arc<[u8]>>,
}

/// Choice of password algorithms that a client accepts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AlgorithmChoice {
    /// The first supported algorithm of the server's list (RFC 8489 §9.2.5).
    #[default]
    AsOffered,
    /// Only SHA-256. Servers without this algorithm are refused.
    Sha256,
    /// Behaviour of clients of RFC 5389: MD5, without attributes for algorithms.
    Rfc5389,
}

/// Retransmission of a request (RFC 8489 §6.2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retransmission {
    /// Time to the first retransmission (RTO). Each further wait is twice as long.
    pub rto: Duration,
    /// Maximum number of transmissions of a request (Rc).
    pub sends_max: u32,
    /// Wait after the last transmission, in multiples of the RTO (Rm).
    pub last_wait: u32,
    /// Wait for a response over TCP and TLS, where nothing is retransmitted (Ti).
    pub reliable_timeout: Duration,
}

impl Retransmission {
    /// Transmissions at 0, 0.5, 1.5, 3.5, 7.5, 15.5 and 31.5 s, and a timeout at 39.5 s.
    pub const DEFAULT: Self = Self {
        rto: Duration::from_millis(500),
        sends_max: 7,
        last_wait: 16,
        reliable_timeout: Duration::from_millis(39_500),
    };
}

impl Default for Retransmission {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// Attributes of an Allocate request (RFC 8656 §7.1). Contradictory attributes are sent unchanged:
/// some callers test that the server refuses them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AllocateOptions {
    /// Families of relayed addresses.
    pub families: Families,
    /// Request for an even port (EVEN-PORT).
    pub even_port: Option<EvenPort>,
    /// RESERVATION-TOKEN of an earlier allocation.
    pub reservation_token: Option<[u8; 8]>,
    /// DONT-FRAGMENT: the caller will use this attribute in Send indications.
    pub dont_fragment: bool,
    /// LIFETIME in seconds. Without a value, the server chooses. Refreshes request the same
    /// lifetime.
    pub lifetime_secs: Option<u32>,
    /// True to request a ticket for [`Client::moved`](crate::Client::moved), by an empty
    /// MOBILITY-TICKET (RFC 8016).
    pub mobility: bool,
}

/// Families of relayed addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Families {
    /// IPv4, without an attribute.
    #[default]
    Unsaid,
    /// IPv4, with REQUESTED-ADDRESS-FAMILY.
    V4,
    /// IPv6, with REQUESTED-ADDRESS-FAMILY.
    V6,
    /// Addresses of both families, with ADDITIONAL-ADDRESS-FAMILY.
    Both,
}

/// Request for an even port (EVEN-PORT, RFC 8656 §18.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EvenPort {
    /// An even port.
    Even,
    /// An even port, with a reservation of the next higher port.
    EvenAndReserveNext,
}
