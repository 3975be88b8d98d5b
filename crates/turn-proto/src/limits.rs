//! Bounds of the crate, with reasons and relations. A full table or queue has a defined result, and
//! never grows.

use core::time::Duration;

/// Maximum number of waiting user look-ups of clients without an allocation, in one worker. With
/// slow look-ups of 50 ms this permits 40,000 look-ups per second. Each waiting request takes about
/// 256 bytes.
pub const PENDING_USERS_MAX: u32 = 2048;

/// Maximum number of waiting user look-ups of clients that refresh an allocation, in one worker.
pub const PENDING_KNOWN_USERS_MAX: u32 = 512;

/// Maximum number of requests in one worker that wait for relay sockets or another worker. Opening
/// a relay socket takes a system call.
pub const PENDING_OTHERS_MAX: u32 = 1536;

/// Maximum number of requests in one worker that wait for the result of a command. Each kind of
/// request has a separate limit, beyond which requests are refused. Over UDP excess user look-ups
/// are dropped, and the client retransmits.
pub const PENDING_MAX: usize = (PENDING_USERS_MAX
    + PENDING_KNOWN_USERS_MAX
    + PENDING_AUTHORIZATIONS_MAX
    + PENDING_CONNECTS_MAX
    + PENDING_OTHERS_MAX) as usize;

/// Maximum number of concurrent user look-ups for one 5-tuple. A client has one outstanding
/// request, and possibly a second after abandoning the first.
pub const PENDING_USERS_PER_FIVE_TUPLE_MAX: usize = 4;

/// Maximum duration of a user look-up. After that the request gets a response without the look-up.
/// The response is in time for the client's fourth transmission with an initial timeout of 500 ms
/// (RFC 8489 §6.2.1).
pub const USER_LOOKUP_WITHIN: Duration = Duration::from_secs(3);

/// Duration for which confirmed keys of an allocation need no new confirmation by requests for
/// peers. Clients repeat these requests every few minutes.
pub const CONFIRMED_FOR: Duration = Duration::from_secs(60);

/// Interval of look-ups of due keys without an answer. It exceeds the time of one look-up, and
/// spares a database in trouble.
pub const CONFIRM_AGAIN_AFTER: Duration = Duration::from_secs(10);

/// Maximum wait of a pending request. A client abandons a request after RFC 8489's default of
/// 39.5 s.
pub const PENDING_LIFETIME: Duration = Duration::from_secs(40);

/// Maximum length of a request in bytes. A request with a token and padding (RFC 5780) has 3,000
/// bytes. Verifying 64 KiB would take as long as some hundred requests. Indications may be longer,
/// because they contain data.
pub const REQUEST_BYTES_MAX: usize = 4096;

/// Maximum length in bytes of a request that may wait for a user look-up: one Ethernet packet.
/// Longer requests are refused instead of stored.
pub const WAITING_REQUEST_MAX: usize = 1500;

/// Maximum number of permissions, channels and connections judged in one call after a policy
/// change. The last allocation of a call may exceed this number. A call takes half a millisecond,
/// during which packets wait. A visit to an allocation adds one to the number.
pub const JUDGED_PER_PART: usize = 4096;

/// Resolution of the timers that reclaim expired state. Deadlines themselves are exact. Nothing is
/// relayed past a deadline, and memory is freed up to this much later.
pub const TIMER_TICK: Duration = Duration::from_secs(1);

/// Maximum number of notices stored for a slow reader. Further notices are lost and counted, except
/// for ends of allocations. An end is the only record of the allocation's usage, and each
/// allocation has one.
pub const NOTICES_MAX: usize = 4096;

/// Maximum number of ports tried for one allocation, if other processes on this host use the first
/// ports. Then the client gets 508.
pub const PORT_ATTEMPTS_MAX: u32 = 16;

/// Maximum number of tables per worker and prefix, each with 65,536 addresses. The tables hold
/// 262,144 allocations in 256 KiB. A worker on hardware of 2026 serves fewer, and further prefixes
/// add more.
pub const PREFIX_TABLES_MAX: u32 = 4;

/// Maximum number of addresses tried in one table for a pair of ports, before the next table. A
/// pair is partly taken only if its first allocation has ended and its second has not.
pub(crate) const PREFIX_PAIR_ATTEMPTS_MAX: u32 = 16;

/// Maximum number of permissions that an operator may configure for one allocation, as in coturn.
pub const PERMISSIONS_MAX: u32 = 1024;

/// Maximum number of channels that an operator may configure for one allocation: the size of the
/// number space 0x4000..=0x4FFF.
pub const CHANNELS_MAX: u32 = 4096;

/// Maximum number of XOR-PEER-ADDRESS attributes read in one CreatePermission. More than fit an
/// unfragmented request, and no more than an allocation may hold.
pub const PEERS_PER_REQUEST_MAX: usize = 128;

/// Maximum number of connections with peers in one allocation. One user can open this many
/// connections, each with up to two buffers. A browser opens about this number through a proxy.
pub const CONNECTIONS_PER_ALLOCATION_MAX: usize = 64;

/// Maximum number of connections with peers in one worker. Together with the clients' connections
/// this takes twice the number of descriptors. The driver has a lower limit if it serves fewer
/// connections of clients.
pub const CONNECTIONS_MAX: u32 = 8192;

/// Maximum number of Connect requests in one worker that wait for peers. A silent peer keeps a
/// request waiting for [`CONNECT_WITHIN`].
pub const PENDING_CONNECTS_MAX: u32 = 1024;

/// Maximum time for a peer to accept a connection. RFC 6062 §5.2 requires at least 30 s. The time
/// must be shorter than the maximum wait of a request ([`PENDING_LIFETIME`]).
pub const CONNECT_WITHIN: Duration = Duration::from_secs(30);

/// Maximum wait of a peer's connection for the client's connection (RFC 6062 §§5.2, 5.3).
pub const BIND_WITHIN: Duration = Duration::from_secs(30);

/// Maximum number of attribute types listed in UNKNOWN-ATTRIBUTES. This number fits a response of
/// 548 bytes next to the other attributes.
pub const UNKNOWN_LISTED_MAX: usize = 32;

/// Maximum number of live reservations of all workers. Each holds a port. While few are left,
/// accounts and networks have shares.
pub const RESERVATIONS_MAX: u32 = 1024;

/// Maximum number of reservations of one account. The account's quota does not include
/// reservations, and one user must not hold every port. A client has one reservation at a time, for
/// a moment.
pub const RESERVATIONS_PER_ACCOUNT_MAX: usize = 32;

/// Maximum debt of a bandwidth bucket after one report of a fast path. The duration exceeds the
/// time between two reports, so all traffic is charged. The duration is also short, because traffic
/// from before a reduction of the rate must not silence a client longer than necessary.
pub const CARRIED_DEBT_MAX: Duration = Duration::from_secs(10);

/// Maximum length of PADDING in one response in bytes (RFC 5780 §6.1): the MTU of Ethernet, as on
/// the path to almost any client. A response never has more PADDING than its request.
pub const PADDING_MAX: u16 = 1500;

/// Minimum RESPONSE-PORT to which a response is sent (RFC 5780 §7.5). Lower ports belong to the
/// system, and no client needs a response there.
pub const RESPONSE_PORT_MIN: u16 = 1024;

/// Maximum length of a realm in bytes. RFC 8489 §14.9 permits fewer than 128 characters, and short
/// realms keep challenges small.
pub const REALM_BYTES_MAX: usize = 127;

/// Maximum length in bytes of a parsed USERNAME (RFC 8489 §14.3).
pub const USERNAME_BYTES_MAX: usize = 763;

/// Maximum number of clients that one worker expects after a move from another worker. Beyond this
/// number the response is 508. While few slots are left, this also applies beyond the share of a
/// network or account. Each allocation has one slot, even if its client keeps moving. Entries are
/// small, and remain for the life of the allocation.
pub const EXPECTED_CLIENTS_MAX: u32 = 4096;

/// Time after which a request to another worker for an allocation or a Refresh by ticket is
/// repeated. Usually longer than an iteration of the worker's loop, and short compared with a
/// client's first retransmission (500 ms, RFC 8489 §6.2.1). A repeated message has no further
/// effect.
pub const MOVE_AGAIN_AFTER: Duration = Duration::from_millis(100);

/// Time after which the client gets 500, if a worker takes no question or the allocation is between
/// workers. This time permits some thirty attempts, and the client has not abandoned the request by
/// then.
pub const MOVE_WITHIN: Duration = Duration::from_secs(3);

/// Maximum number of bytes of one client's packets that wait for the allocation: half a second of
/// video at 8 Mbit/s. A move takes two messages between threads. On a host without overload this
/// takes well below a millisecond.
pub const QUEUED_BYTES_PER_CLIENT_MAX: usize = 512 << 10;

/// Maximum number of bytes of packets that wait for allocations in one worker. The space suffices
/// for 32 clients that move at the same moment and fill their queues, or for thousands that do not.
pub const QUEUED_BYTES_MAX: u32 = 16 << 20;

/// Number of bytes charged for each waiting packet in addition to the content: for path, share and
/// queue entry.
pub const QUEUED_PACKET_OVERHEAD: usize = 256;

/// Maximum length in bytes of an ORIGIN that is read. ORIGIN consists of a scheme and a host name,
/// and names of 253 bytes do not occur in practice. Coturn reads the same length.
pub const ORIGIN_BYTES_MAX: usize = 127;

/// Maximum number of ORIGIN attributes read from one request. A browser sends one, or one for each
/// enclosing page.
pub const ORIGINS_READ_MAX: usize = 4;

/// Maximum length in bytes of an ACCESS-TOKEN that is decrypted. A token with a session key of 64
/// bytes has 106 bytes.
pub const TOKEN_BYTES_MAX: usize = 512;

/// Minimum length of a session key in bytes. With fewer than 128 bits, an attacker could search for
/// the key of a captured request.
pub const TOKEN_MAC_KEY_BYTES_MIN: usize = 16;

/// Maximum number of keys for access tokens. Only the key named by USERNAME is tried, so the limit
/// serves only the operator's overview.
pub const TOKEN_KEYS_MAX: usize = 32;

/// Maximum length in bytes of the server's name for tokens. Every 401 contains the name, and
/// challenges must be small.
pub const SERVER_NAME_BYTES_MAX: usize = 127;

/// Maximum number of peer prefixes in the limits of one credential. Together with a name of 40
/// bytes they fit a USERNAME of 508 bytes (RFC 8489 §14.3).
pub const GRANT_PEERS_MAX: usize = 8;

/// Maximum number of Allocate requests in one worker that wait for the authorizer, or for the user
/// look-up after the consent. With quick responses this permits thousands per second.
pub const PENDING_AUTHORIZATIONS_MAX: u32 = 1024;

/// Maximum UDP payload over IPv4 in bytes, including the header before a peer's datagram (65,535 -
/// 20 - 8).
pub const UDP_PAYLOAD_MAX: usize = 65_507;

const _: () = assert!(
    CONNECT_WITHIN.as_secs() + TIMER_TICK.as_secs() < PENDING_LIFETIME.as_secs(),
    "a Connect is answered before it is forgotten"
);
const _: () = assert!(
    USER_LOOKUP_WITHIN.as_secs() < PENDING_LIFETIME.as_secs(),
    "a user look-up is given up before its request is forgotten"
);
const _: () = assert!(PEERS_PER_REQUEST_MAX <= PERMISSIONS_MAX as usize);
