//! Every bound of the core, its reason, and how they relate. Full is a defined answer, never
//! growth.

use core::time::Duration;

/// User look-ups of clients without an allocation that wait in one worker. With a slow look-up of
/// 50 ms they are 40,000 a second. Each waiting request takes about 256 bytes.
pub const PENDING_USERS_MAX: u32 = 2048;

/// User look-ups of clients that refresh their allocation.
pub const PENDING_KNOWN_USERS_MAX: u32 = 512;

/// Requests that wait for relay sockets, which takes a system call, or for another worker.
pub const PENDING_OTHERS_MAX: u32 = 1536;

/// Requests of one worker that wait for an answer from outside. Beyond the limit of its kind a
/// request is refused; over UDP a user look-up is dropped, and the client retransmits.
pub const PENDING_MAX: usize = (PENDING_USERS_MAX
    + PENDING_KNOWN_USERS_MAX
    + PENDING_AUTHORIZATIONS_MAX
    + PENDING_CONNECTS_MAX
    + PENDING_OTHERS_MAX) as usize;

/// User look-ups at a time for one 5-tuple: a client has one request outstanding, and perhaps a
/// second after it has changed its mind.
pub const PENDING_USERS_PER_FIVE_TUPLE_MAX: usize = 4;

/// Longest user look-up before its request is answered without it: in time for the fourth
/// transmission of a client at the initial timeout of 500 ms (RFC 8489 §6.2.1).
pub const USER_LOOKUP_WITHIN: Duration = Duration::from_secs(3);

/// Time for which confirmed keys of an allocation need no further confirmation by requests for
/// peers: clients repeat these requests each few minutes.
pub const CONFIRMED_FOR: Duration = Duration::from_secs(60);

/// Time after which the look-up of due keys is repeated, while none was answered: the longest of
/// them and some rest for a database in trouble.
pub const CONFIRM_AGAIN_AFTER: Duration = Duration::from_secs(10);

/// Longest wait of a pending request. Past RFC 8489's default of 39.5 s a client has given up.
pub const PENDING_LIFETIME: Duration = Duration::from_secs(40);

/// Largest request in bytes: with a token and padding (RFC 5780) one has 3,000. To verify 64 KiB
/// takes as long as some hundred requests. Indications have data.
pub const REQUEST_BYTES_MAX: usize = 4096;

/// Largest request that may wait for a user look-up, in bytes: one packet of an Ethernet.
/// Longer ones are refused rather than kept.
pub const WAITING_REQUEST_MAX: usize = 1500;

/// Permissions, channels and connections judged in one call after a change of the policy, besides
/// those of one allocation: half a millisecond, for which packets wait. A visit of an allocation
/// counts as one.
pub const JUDGED_PER_PART: usize = 4096;

/// Grain of the timers that reclaim expired state. Deadlines themselves are exact: nothing is
/// relayed past one, it only is freed up to this much later.
pub const TIMER_TICK: Duration = Duration::from_secs(1);

/// Notices kept for a listener that is slow; beyond it new ones are lost and counted, but for ends
/// of allocations, which are the one record of its usage and are bounded by the allocations.
pub const NOTICES_MAX: usize = 4096;

/// Ports tried for one allocation when others on this host hold them, before 508.
pub const PORT_ATTEMPTS_MAX: u32 = 16;

/// Tables of 65,536 addresses that one worker has of one prefix: 262,144 allocations, for 256 KiB.
/// A worker of 2026 does not serve as many, and more prefixes give more.
pub const PREFIX_TABLES_MAX: u32 = 4;

/// Addresses of a table tried for a pair of ports, before the next table: one is taken already only
/// where the first allocation of a pair has ended and the second has not.
pub(crate) const PREFIX_PAIR_ATTEMPTS_MAX: u32 = 16;

/// Most permissions an operator may allow in one allocation: as coturn has it.
pub const PERMISSIONS_MAX: u32 = 1024;

/// Most channels an operator may allow in one allocation: the number space 0x4000..=0x4FFF.
pub const CHANNELS_MAX: u32 = 4096;

/// XOR-PEER-ADDRESS attributes looked at in one CreatePermission: more than fit a request that is
/// not fragmented, and as many as an allocation may hold.
pub const PEERS_PER_REQUEST_MAX: usize = 128;

/// Connections with peers in one allocation: the most that one user can open, of which each may
/// have two buffers. A browser's worth of a proxy.
pub const CONNECTIONS_PER_ALLOCATION_MAX: usize = 64;

/// Connections with peers in one worker, at most: with their clients' ends they need twice this
/// number of descriptors. The driver has a lower limit if it serves fewer connections of clients.
pub const CONNECTIONS_MAX: u32 = 8192;

/// Connect requests that wait for their peers in one worker. A peer that does not answer keeps one
/// waiting for [`CONNECT_WITHIN`].
pub const PENDING_CONNECTS_MAX: u32 = 1024;

/// Longest time for a peer to accept a connection: at least 30 s (RFC 6062 §5.2), and less than a
/// request may wait ([`PENDING_LIFETIME`]).
pub const CONNECT_WITHIN: Duration = Duration::from_secs(30);

/// Longest wait of a peer's connection for the client's (RFC 6062 §§5.2, 5.3).
pub const BIND_WITHIN: Duration = Duration::from_secs(30);

/// Attribute types listed in UNKNOWN-ATTRIBUTES: as many as fit an answer of 548 bytes beside the
/// rest.
pub const UNKNOWN_LISTED_MAX: usize = 32;

/// Reservations live at the same time, over all workers: each holds a port. While few are left, an
/// account and a network have shares.
pub const RESERVATIONS_MAX: u32 = 1024;

/// Reservations of one account: they are not in its quota, and must not let one user hold every
/// port. A client has one at a time, for a moment.
pub const RESERVATIONS_PER_ACCOUNT_MAX: usize = 32;

/// Longest debt of a bandwidth bucket after one report of a fast path: longer than the time between
/// two reports, so that all traffic counts, and short enough that no client is silenced for long by
/// traffic from before the rate was lowered.
pub const CARRIED_DEBT_MAX: Duration = Duration::from_secs(10);

/// Most PADDING in one answer (RFC 5780 §6.1): the MTU of Ethernet, as on the path to almost any
/// client. An answer never has more than its request had.
pub const PADDING_MAX: u16 = 1500;

/// Lowest RESPONSE-PORT that an answer is sent to (RFC 5780 §7.5): lower ones are the system's, and
/// no client needs an answer there.
pub const RESPONSE_PORT_MIN: u16 = 1024;

/// Realm in bytes: fewer than 128 characters (RFC 8489 §14.9), and challenges stay small.
pub const REALM_BYTES_MAX: usize = 127;

/// USERNAME in bytes that is parsed (RFC 8489 §14.3).
pub const USERNAME_BYTES_MAX: usize = 763;

/// Clients of other workers' allocations expected at one worker; beyond it, and beyond the share of
/// a network or account while few places are left, the response is 508. One of each allocation, so
/// that a client that keeps moving takes one place. They are small, and wait for as long as their
/// allocations live.
pub const EXPECTED_CLIENTS_MAX: u32 = 4096;

/// Time until another worker is asked again for an allocation, or for a Refresh by ticket: longer
/// than an iteration of its loop usually takes, and short beside a client's first retransmission
/// (500 ms, RFC 8489 §6.2.1). A message that came twice changes nothing.
pub const MOVE_AGAIN_AFTER: Duration = Duration::from_millis(100);

/// Time until the client gets 500 if a worker takes no question, or the allocation is between
/// workers: some thirty tries, and a client has not given up by then.
pub const MOVE_WITHIN: Duration = Duration::from_secs(3);

/// Bytes of one client's packets that wait for its allocation: half a second of video at 8 Mbit/s.
/// A move takes two messages between threads, well below a millisecond on a host that is not
/// overloaded.
pub const QUEUED_BYTES_PER_CLIENT_MAX: usize = 512 << 10;

/// Bytes of packets that wait for allocations in one worker: 32 clients that move in the same
/// moment and fill their queues, thousands that do not.
pub const QUEUED_BYTES_MAX: u32 = 16 << 20;

/// Memory charged for each waiting packet with its bytes: its path, its share, and its place in
/// the queue.
pub const QUEUED_PACKET_OVERHEAD: usize = 256;

/// Longest ORIGIN that is read, in bytes: scheme, a name of 253 bytes is not sent in practice, and
/// coturn reads as many.
pub const ORIGIN_BYTES_MAX: usize = 127;

/// ORIGIN attributes of one request that are read: a browser sends one, or one for each enclosing
/// page.
pub const ORIGINS_READ_MAX: usize = 4;

/// Longest ACCESS-TOKEN that is decrypted, in bytes: one with a session key of 64 bytes has 106.
pub const TOKEN_BYTES_MAX: usize = 512;

/// Shortest session key in a token, in bytes: 128 bits, below which a captured request can be
/// searched for.
pub const TOKEN_MAC_KEY_BYTES_MIN: usize = 16;

/// Keys of access tokens: only the one that USERNAME names is tried, so that a person's overview is
/// the limit.
pub const TOKEN_KEYS_MAX: usize = 32;

/// The server's name for tokens in bytes: it is in every 401, and challenges stay small.
pub const SERVER_NAME_BYTES_MAX: usize = 127;

/// Prefixes of peers in the limits of one credential: with a name of 40 bytes they fit a USERNAME
/// of 508 (RFC 8489 §14.3).
pub const GRANT_PEERS_MAX: usize = 8;

/// Allocate requests of one worker that wait for the authorizer, or for the user look-up after its
/// consent: with quick answers thousands a second.
pub const PENDING_AUTHORIZATIONS_MAX: u32 = 1024;

/// Largest UDP payload over IPv4 (65,535 - 20 - 8), header in front included.
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
