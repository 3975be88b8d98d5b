//! Configuration of a client, and options of its requests.

use alloc::sync::Arc;
use core::time::Duration;

use turn_types::{Secret, ServerAddr, Transport};

/// Configuration of a client.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// The server.
    pub server: ServerAddr,
    /// Transport of the messages. Over UDP and DTLS requests are retransmitted; over TCP and TLS
    /// ChannelData is padded.
    pub transport: Transport,
    /// USERNAME, at most 508 bytes. Empty: the client never logs in.
    pub username: Arc<str>,
    /// The password.
    pub password: Secret<Arc<str>>,
    /// An access token in place of the password; the user name is then the name of the key that it
    /// is encrypted by.
    pub token: Option<AccessToken>,
    /// Which password algorithms are acceptable.
    pub algorithms: AlgorithmChoice,
    /// Send USERHASH instead of USERNAME where the server offers it (RFC 8489 §9.2).
    pub userhash: bool,
    /// Retransmission of requests.
    pub retransmission: Retransmission,
    /// Lifetime of a permission at the server: 300 s (RFC 8656 §9).
    pub permission_lifetime: Duration,
    /// Lifetime of a channel at the server: 600 s (RFC 8656 §12).
    pub channel_lifetime: Duration,
    /// SOFTWARE in Allocate and Refresh requests, at most 127 bytes.
    pub software: Option<Arc<str>>,
    /// Requests carry FINGERPRINT.
    pub fingerprint: bool,
    /// Seed of transaction ids. They must be unpredictable (RFC 8489 §5): outside of tests this is
    /// 32 bytes from the operating system.
    pub seed: [u8; 32],
}

impl ClientConfig {
    /// A client over UDP with the recommended values of the RFCs.
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

/// An access token of an authorization server (RFC 7635).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessToken {
    /// Value of ACCESS-TOKEN, at most 512 bytes.
    pub value: Arc<[u8]>,
    /// The session key.
    pub mac_key: Secret<Arc<[u8]>>,
}

/// Which password algorithms a client accepts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AlgorithmChoice {
    /// The first of the server's list that is known here (RFC 8489 §9.2.5).
    #[default]
    AsOffered,
    /// SHA-256 or nothing: servers that do not offer it are refused.
    Sha256,
    /// Do as clients of RFC 5389 do: MD5, and no word of algorithms.
    Rfc5389,
}

/// Retransmission of a request (RFC 8489 §6.2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retransmission {
    /// RTO: time to the first retransmission; each further one waits twice as long.
    pub rto: Duration,
    /// Rc: how often a request is sent in all.
    pub sends_max: u32,
    /// Rm: the wait after the last one, in multiples of RTO.
    pub last_wait: u32,
    /// Ti: how long to wait over TCP and TLS, where nothing is retransmitted.
    pub reliable_timeout: Duration,
}

impl Retransmission {
    /// Sent at 0, 0.5, 1.5, 3.5, 7.5, 15.5 and 31.5 s; given up at 39.5 s.
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

/// Attributes of an Allocate request (RFC 8656 §7.1). Contradictory ones are sent unchanged: the
/// server refuses them, and some callers test that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AllocateOptions {
    /// Which families of relayed addresses.
    pub families: Families,
    /// EVEN-PORT.
    pub even_port: Option<EvenPort>,
    /// RESERVATION-TOKEN of an earlier allocation.
    pub reservation_token: Option<[u8; 8]>,
    /// DONT-FRAGMENT: the caller means to set it in Send indications.
    pub dont_fragment: bool,
    /// LIFETIME in seconds; without it the server chooses. Refreshes request the same.
    pub lifetime_secs: Option<u32>,
    /// An empty MOBILITY-TICKET: requests a ticket for [`Client::moved`](crate::Client::moved) (RFC
    /// 8016).
    pub mobility: bool,
}

/// Families of relayed addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Families {
    /// No attribute: IPv4.
    #[default]
    Unsaid,
    /// REQUESTED-ADDRESS-FAMILY IPv4.
    V4,
    /// REQUESTED-ADDRESS-FAMILY IPv6.
    V6,
    /// ADDITIONAL-ADDRESS-FAMILY IPv6: one address of each.
    Both,
}

/// EVEN-PORT (RFC 8656 §18.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EvenPort {
    /// An even port.
    Even,
    /// An even port, and the next higher one reserved.
    EvenAndReserveNext,
}
