//! Limits of a worker, each with a reason.

use std::time::Duration;

/// Maximum number of messages per receive call. After this number, the next socket is served.
pub const MESSAGES_PER_RECEIVE: usize = 32;

/// Maximum number of ring datagrams per round. The datagrams of a round are written to connections
/// together, which costs less.
pub const RING_DATAGRAMS_PER_ROUND: u64 = 512;

/// Maximum number of ring bytes per round: half of a connection's output queue. One connection may
/// receive all datagrams of a round.
pub const RING_BYTES_PER_ROUND: u64 = STREAM_BACKLOG_BYTES as u64 / 2;

/// Maximum number of ring rounds per iteration of the loop. The sockets are served afterwards.
pub const RING_ROUNDS_PER_TURN: usize = 4;

/// Maximum number of batches received at a shared relay socket before an allocation of the socket
/// moves to another worker. These batches hold more ordinary packets than the socket's buffer. A
/// datagram that remained in the buffer would be lost.
pub const SHARED_ROUNDS_PER_MOVE: usize = 64;

/// Maximum number of messages gathered from all sockets before the results are sent. A larger
/// number lengthens GSO batches. The number also bounds the delay of the first message.
///
/// Each message has a buffer of 64 KiB, and a worker keeps the parts that messages have ever
/// filled. These parts occupy 1.5 MiB with small messages, and at most 16 MiB.
pub const MESSAGES_PER_GATHERING: usize = 256;

/// Number of gathered bytes at which the results are sent, checked before each receive call. With
/// more bytes, data would be evicted from the second-level cache before the data is sent.
pub const BYTES_PER_GATHERING: usize = 256 << 10;

/// Number of allocation ids skipped after the last known id of the predecessor. A worker assigns
/// fewer ids between two copies.
pub const IDS_SKIPPED: u64 = 1 << 20;

/// Number of record numbers that a DTLS session skips after an import from a keeper's copy. Using a
/// number twice would be insecure.
///
/// The copy has the age of the last change of the allocation. Data needs a permission, and each
/// renewal of a permission, every five minutes, is a change. No session sends so many records in
/// that time. A session has 2⁴⁸ numbers.
pub const RECORDS_SKIPPED: u64 = 1 << 32;

/// Number of bits of a random number of further skipped records. The random number keeps record
/// numbers different if two processes import the same copy.
pub const RECORDS_SKIPPED_SPREAD: u32 = 40;

/// Number of record numbers that each further process skips with the same copy, as a power of 2.
/// The number exceeds the numbers that the predecessor has skipped and sent. Clients discard
/// records with lower numbers as replays.
pub const RECORDS_SKIPPED_AGAIN: u32 = 41;

const _: () = assert!(
    1 << RECORDS_SKIPPED_AGAIN > 2 * RECORDS_SKIPPED + (1 << RECORDS_SKIPPED_SPREAD),
    "the next process begins behind the records of the one before"
);

/// Maximum number of incomplete ClientHellos in one worker, each with 2 KiB. In a full table, the
/// network with the most incomplete hellos loses one hello, and the client retransmits.
pub const HELLO_PIECES: u32 = 256;

/// Timeout for an incomplete ClientHello. Clients retransmit after a second (RFC 6347 §4.2.4.1).
pub const HELLO_PIECES_KEPT: Duration = Duration::from_secs(1);

/// Maximum time for a worker to export its allocations to the successor. The export takes place
/// between two batches, and takes some milliseconds for a few thousand allocations. After a longer
/// time the worker is considered stuck, and the hand-over fails.
pub const LEAVE_DEADLINE: Duration = Duration::from_secs(2);

/// Interval of copies for a keeper. Later changes are lost in a crash. Each copy of an allocation
/// takes some microseconds. A client that starts a call changes the allocation a few times within
/// this interval.
pub const COPIES_EVERY: Duration = Duration::from_millis(250);

/// Interval of copies for a successor. The successor serves the calls after the last copies. The
/// pause is shorter if fewer allocations have changed since the last copies.
pub const COPIES_TO_NEXT_EVERY: Duration = Duration::from_millis(5);

/// Maximum wait of a paused worker for messages in one iteration.
pub const REST_MAX: Duration = Duration::from_millis(100);

/// Maximum number of allocations copied in one iteration. The copies take half a millisecond,
/// during which packets wait.
pub const COPIES_PER_TURN: usize = 64;

/// Maximum number of copies queued for the other process. While the queue is full, the worker
/// records changed allocations only by id.
pub const COPIES_WAITING: usize = 16;

/// Pause after copies that found the queue full.
pub const COPIES_AGAIN_AFTER: Duration = Duration::from_millis(10);

/// Pause after copies of sockets for which no descriptors were left. Each attempt costs a few dozen
/// system calls. Calls that start during the pause are lost in a crash.
pub const SOCKETS_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Maximum number of pauses of a stopping worker for a keeper that reads the last copies slowly.
/// The pauses take two of the five seconds for which the process waits for the workers.
pub const LAST_COPIES_PAUSES: u32 = 200;

/// Number of sockets after which results are sent early, if less than a full report is ready. The
/// packets of the first socket then do not wait for a few dozen other sockets. One send call for
/// these sockets adds a small cost per packet.
pub const SOCKETS_SENT_EARLY: usize = 4;

/// Maximum number of sockets in one report of epoll. An iteration serves about this number of UDP
/// sockets, each with one receive call per round. A listener may have a receive call for each
/// relay. The number bounds the delay of the mailbox and timers. epoll reports further sockets
/// before repeating these sockets.
pub const SOCKETS_PER_TURN: usize = 32;

/// Number of relays of one address that are served in the kernel's report order. Further relays of
/// the address, and of networks with many relays, are crowded. Crowded relays are served in the
/// fair order of connection input, because hundreds of busy relays would delay all others by
/// milliseconds.
pub const RELAYS_OUT_OF_ORDER: u64 = 32;

/// Number of waiting sources up to which the kernel continues to report waiting relays. This is a
/// quarter of the reports of one iteration. Such reports cost less than two changes of interest for
/// each relay.
pub const WAITING_REPORTED: usize = REPORTS_PER_TURN * SOCKETS_PER_TURN / 4;

/// Maximum receive and send buffer of a relay socket in bytes. The socket carries one client's
/// media, and each allocation at an address of the host has such a socket. With a listener's
/// buffers, a few hundred flooded relays would use up the kernel's UDP memory for all sockets
/// (`net.ipv4.udp_mem`).
pub const RELAY_BUFFER_MAX: usize = 512 << 10;

/// Maximum number of datagrams gathered before a send within a receive batch. Half of the transmit
/// batch remains free, so the batch never becomes full.
pub const DATAGRAMS_PER_FLUSH: usize = 1024;

/// Maximum number of control plane requests served per iteration. User look-ups arrive in bursts,
/// and each result costs about the time of a packet.
pub const REQUESTS_PER_TURN: usize = 64;

/// Maximum number of connections from the listener's address that are admitted although all slots
/// are taken. These connections are not evicted. Health checks of the server open one connection at
/// a time.
pub const OWN_CONNECTIONS_BEYOND_LIMITS: u32 = 4;

/// Maximum number of connections accepted from one socket per iteration. This bounds the delay of
/// other sockets' packets.
pub const ACCEPTS_PER_TURN: usize = 16;

/// Maximum number of messages served per read of a connection. 64 KiB may contain thousands of
/// requests. Further messages wait for the next iteration.
pub const MESSAGES_PER_READ: u64 = 64;

/// Maximum number of answers in the output queue of a blocked connection that is still read. A
/// client that pipelines requests and reads nothing occupies 20 KiB instead of a full queue.
/// Clients in a call send a few requests together.
pub const ANSWERS_UNREAD: usize = 16;

/// Maximum work for the input of all connections and crowded relays in one iteration. Datagrams
/// wait during that work, for half a millisecond including the resulting sends.
///
/// The unit of work is a message, a TLS record, a read, or [`INPUT_UNIT_BYTES`] of a read. Further
/// connections wait in a fair order.
pub const INPUT_PER_TURN: usize = 128;

/// Maximum time for the input of all connections in one iteration. A request takes five times as
/// long as data, and longer if the key of a time-limited name must be derived.
pub const INPUT_TIME_PER_TURN: Duration = Duration::from_micros(500);

/// Number of messages between two checks of the clock.
pub const MESSAGES_PER_LOOK: u64 = 8;

/// Maximum number of epoll reports gathered in one iteration while connections fill the reports.
/// The fair queue then puts connections that were idle before connections that are always ready.
pub const REPORTS_PER_TURN: usize = 32;

/// Work for one connection after which the connection waits for the next iteration, in the units of
/// [`INPUT_PER_TURN`].
pub const INPUT_PER_CONNECTION: usize = 64;

/// Number of bytes of a read that cost as much as a message. Bytes of pipes contain no messages.
pub const INPUT_UNIT_BYTES: usize = 4 << 10;

/// Maximum delay of a client's other sources after one source was served: the time of
/// [`INPUT_PER_CONNECTION`]. Longer times are caused by the scheduler.
pub const INPUT_DELAY_MAX: Duration = Duration::from_micros(250);

/// Delay of a client's other sources before one source was served: the time of one message.
pub const INPUT_DELAY_MIN: Duration = Duration::from_micros(4);

/// Minimum number of queue entries at which closed sources are removed from the input queue. The
/// next removal is at twice the remaining number. So the work per entry is constant, and at least
/// half of a long queue consists of waiting sources.
pub const INPUT_ENTRIES_MIN: usize = 256;

/// Maximum number of encrypted bytes per read: four records.
pub const CIPHERTEXT_PER_READ: usize = 64 << 10;

/// Maximum output queue of one connection in bytes. Beyond this size the oldest data is dropped. If
/// answers fill the queue, the connection is closed. A picture of a video call has a tenth of this
/// size, and a second of video at 2 Mbit/s fills the queue. Older data is useless for a call.
pub const STREAM_BACKLOG_BYTES: usize = 256 << 10;

/// Maximum size of all connections' output queues in bytes, approximately. Beyond this size each
/// connection may queue [`STREAM_BACKLOG_BYTES_MIN`]. A thousand clients that read nothing occupy
/// at most this size. With twice the number of clients each queue is half as long.
pub const BACKLOGS_BYTES: usize = 256 << 20;

/// Number of data bytes that each connection may always queue for output: some pictures.
pub const STREAM_BACKLOG_BYTES_MIN: usize = 16 << 10;

/// Number of queued bytes from a peer at which the peer is not read any more, and the maximum per
/// read. With an equal number in the other direction, a pipe stores at most 200 KiB.
pub const PIPE_BYTES: usize = 64 << 10;

/// Maximum number of peers' connections waiting for acceptance at one relay. The worker accepts
/// these connections within an iteration.
pub const PEERS_WAITING: u16 = 32;

/// Maximum number of messages from other workers in a worker's queue. If the queue is full,
/// ConnectionBinds get 508 and mobility requests get 500.
pub const WORKER_MESSAGES_WAITING: usize = 256;

/// Maximum silence of a pipe in which one direction has ended.
pub const HALF_CLOSED_FOR: Duration = Duration::from_mins(1);

/// Maximum time for which one end of a pipe may accept no bytes. A stuck pipe costs only a bounded
/// buffer, and programs do pause.
pub const PIPE_STUCK_FOR: Duration = Duration::from_mins(5);

/// Maximum time to respond to a ConnectionBind. A user look-up takes less time.
pub const HELD_FOR: Duration = Duration::from_secs(45);

/// Maximum length in bytes of a message from a client without an allocation, and of one read from
/// such a client. A request with a token and the attributes of a certificate fits. A part of a
/// message may be kept for [`MESSAGE_WITHIN`].
pub const UNAUTHENTICATED_MESSAGE_BYTES: usize = 4096;

/// Maximum time from the opening of a connection to the first message. Clients connect to send a
/// message.
pub const FIRST_MESSAGE_WITHIN: Duration = Duration::from_secs(10);

/// Maximum time from the first to the last byte of a message. 65 KiB in this time is 17 kbit/s.
pub const MESSAGE_WITHIN: Duration = Duration::from_secs(30);

/// Maximum time for which a connection may accept none of the queued output.
pub const STUCK_FOR: Duration = Duration::from_secs(30);

/// Maximum silence of a connection without an allocation: longer than a person needs to log in. RFC
/// 8489 §6.2.2 recommends to keep the connection open. A client that returns later connects again.
pub const IDLE_FOR: Duration = Duration::from_mins(1);

/// Minimum silence of a connection that may be evicted for another connection. Any answer takes
/// less time.
pub const EVICTABLE_AFTER: Duration = Duration::from_secs(10);

/// Minimum silence of a connection without a PROXY header that may be evicted for another
/// connection. A load balancer sends the header immediately, or with the client's first data.
pub const NAMED_WITHIN: Duration = Duration::from_secs(1);

/// Number of slots of a full table that are examined for a connection to evict. If a tenth of the
/// slots hold such connections, 96 of 100 searches succeed. Small tables are examined completely.
pub const RIVALS_COMPARED: usize = 32;

/// Maximum number of idle connections evicted per second: sixteen times the number accepted per
/// iteration.
pub const EVICTED_PER_SWEEP: usize = 16 * ACCEPTS_PER_TURN;

/// Close timeout after a final response.
pub const ENDING_FOR: Duration = Duration::from_secs(5);

/// Interval of the search for connections past their deadlines.
pub const SWEEP_STREAMS_EVERY: Duration = Duration::from_secs(1);

/// Maximum number of DTLS sessions with an incomplete handshake in one worker. Beyond this number,
/// the network with the most of these sessions loses one session. Each session takes about 50 KB.
/// With a round trip of 0.2 s this permits 2500 handshakes per second.
pub const HALF_OPEN_MAX: u32 = 512;

/// Number of entries for cookies that have started a session: 256 KiB. Within the lifetime of a
/// cookie, one customer's share of handshake time permits about a third of this number.
pub const COOKIES_USED: usize = 32_768;

/// Maximum processor time for DTLS and TLS handshakes per iteration. The second half of the time is
/// reserved for customers that have used little.
///
/// Relayed packets wait for this time, and for the step that exceeds it. A step takes 0.1 ms, with
/// RSA of 2,048 bits a millisecond, and with RSA of 4,096 bits 8 ms. Further work waits for the
/// next iteration.
pub const HANDSHAKE_TIME_PER_TURN: Duration = Duration::from_millis(1);

/// Maximum number of datagrams of DTLS handshakes that wait for an iteration with time. The number
/// equals the limit of half-open sessions. The datagrams are served within 0.1 s, with RSA within
/// half a second.
pub const HANDSHAKES_WAITING: usize = HALF_OPEN_MAX as usize;

/// Delay of an address's next handshake datagram in the queue, for each earlier datagram of the
/// address. A client that repeats handshakes permanently is served after clients that started
/// within seconds.
pub const HANDSHAKE_DELAY: Duration = Duration::from_millis(500);

/// Maximum number of waiting datagrams from one address and port. A client's second flight has
/// three messages, each possibly in a separate datagram. Further datagrams allow for a repetition
/// of the flight.
pub const HANDSHAKES_WAITING_PER_CLIENT: usize = 8;

/// Maximum length in bytes of a waiting handshake datagram. A longer hello is refused, and later
/// messages have a few hundred bytes. A worker's queue occupies at most 1 MiB.
pub const HANDSHAKE_DATAGRAM_MAX: usize = turn_session::dtls::HELLO_MAX;

/// Maximum wait of a handshake datagram. Clients first repeat a datagram after a second (RFC 6347
/// §4.2.4.1). The repetition renews the time of a hello. A client without a repetition in this time
/// is assumed to have disconnected.
pub const HANDSHAKE_WAIT_MAX: Duration = Duration::from_secs(2);

/// Share of one address in a worker's handshake time, as a divisor. This permits about 20
/// handshakes per second, and 7 with RSA. A company's network has an eighth of the time, and a
/// provider's network half of the time. The limit per iteration protects calls. The share prevents
/// one network from using all of the time.
pub const HANDSHAKE_SHARE: u32 = 128;

/// Maximum handshake time of one address in a burst: about 1600 handshakes, or 700 with RSA. A
/// company's clients need this number when all reconnect together. The last quarter is reserved for
/// finishing handshakes. A hostile address can use this burst once in two minutes. Then handshakes
/// use the full time of each iteration, for a second or two.
pub const HANDSHAKE_BURST: Duration = Duration::from_secs(1);

/// Maximum recent use of a client that is considered to have used little: a few handshakes.
pub const HANDSHAKE_TIME_FEW: Duration = Duration::from_millis(5);

/// Minimum charge of a handshake step. The charge covers the work around the step, and coarse
/// clocks.
pub const HANDSHAKE_STEP_MIN: Duration = Duration::from_micros(50);

/// Maximum charge of a handshake step. No step takes that long. A clock that jumps locks out no
/// customer for a long time.
pub const HANDSHAKE_STEP_MAX: Duration = Duration::from_millis(20);

/// Maximum number of bytes of a TLS handshake that are stored until the handshake has time: one
/// record (RFC 8446 §5.1).
pub const HELLO_KEPT_BYTES: usize = 5 + (16 << 10);

/// Maximum number of paused connections resumed per sweep. A paused connection has a TLS handshake
/// that waits for the customer's share. The check takes time as well. Other connections remain
/// paused until [`FIRST_MESSAGE_WITHIN`].
pub const PAUSED_RESUMED: usize = 64;

/// Maximum duration of a DTLS handshake. A client repeats a flight after 1, 3, 7 and 15 seconds.
pub const HANDSHAKE_WITHIN: Duration = Duration::from_secs(30);

/// Interval of the check for handshake flights to repeat. OpenSSL stores the time of the
/// repetition, and provides no access to this time.
pub const RESEND_EVERY: Duration = Duration::from_millis(250);

/// Maximum silence of a DTLS session without an allocation. Unlike TCP, UDP does not report that a
/// client has disconnected.
pub const SESSION_IDLE_FOR: Duration = Duration::from_mins(2);

/// Interval of the search for idle sessions.
pub const SWEEP_SESSIONS_EVERY: Duration = Duration::from_secs(5);

/// Maximum number of log lines about closed connections, per second and worker. Connecting needs no
/// credentials.
pub const STREAM_LINES_PER_SECOND: u32 = 10;

/// Maximum number of kinds of recent refusals that a worker keeps for an operator. A kind is a
/// user, network and reason. Only clients with verified addresses are included. The number covers a
/// day's problems of a busy server. With the longest names these refusals occupy half a megabyte.
pub const REFUSALS_KEPT: usize = 512;

/// Minimum time between two lines at INFO about refusals of one kind.
pub const REFUSAL_LINE_EVERY: Duration = Duration::from_secs(60);

/// Maximum number of log lines about refused requests, per second and worker. Clients can cause any
/// number of such lines.
pub const REFUSAL_LINES_PER_SECOND: u32 = 10;

/// Maximum number of log lines about traced clients, per second and worker. This suffices to follow
/// a client that fails repeatedly.
pub const TRACED_LINES_PER_SECOND: u32 = 50;

/// Interval of the sweeps that read the kernel's counters. Statistics lag by this time. Each sweep
/// renews the lease of a worker's routes ([`xdp_relay::limits::LEASE`]), several times before the
/// lease expires.
pub const SWEEP_EVERY: Duration = Duration::from_secs(1);

/// Maximum number of kernel counter cells per part of a sweep. A flow has one cell for each
/// processor. Each cell is a cache line of another processor, about 100 ns. So packets wait for 0.1
/// ms.
pub const SWEEP_CELLS: usize = 1024;

/// Maximum number of channels per sweep that may claim a slot in the kernel again after a refusal.
/// A claim takes some microseconds. All claims together take a thousandth of a worker's time.
pub const RETRIES_PER_SWEEP: usize = 256;

/// Time between two parts of a sweep. So sweeps take at most a tenth of a worker's time. A worker
/// with 16,384 flows on 31 processors finishes a sweep in [`SWEEP_EVERY`]. With twice the number of
/// flows or processors, the statistics lag by two seconds.
pub const SWEEP_PART_EVERY: Duration = Duration::from_millis(2);

/// Number of datagrams within [`UNCOALESCED_WITHIN`] that reach a socket with routes at tc before
/// the socket coalesces. The program at tc passes far fewer datagrams where relaying in the kernel
/// is possible. The extra cost of this number of datagrams is negligible.
///
/// At a relay socket all datagrams are included. At a listener only relayed datagrams that directly
/// follow a datagram of the same client are included, because a listener also receives all clients'
/// requests.
pub const UNCOALESCED_MAX: u64 = 64;

/// Time window of [`UNCOALESCED_MAX`] and [`ALIKE_MIN`].
pub const UNCOALESCED_WITHIN: Duration = Duration::from_secs(1);

/// Time for which a socket with routes at tc coalesces before checking again if the program relays.
/// A failed check costs [`UNCOALESCED_MAX`] datagrams.
pub const COALESCING_ROUTED_FOR: Duration = Duration::from_mins(1);

/// Minimum number of datagrams within [`UNCOALESCED_WITHIN`] for a decision about a socket without
/// routes. The socket coalesces if half of the datagrams follow a datagram of the same sender. One
/// or two pictures of a video call have this number.
pub const ALIKE_MIN: u64 = 16;

/// Minimum time for such a decision, if fewer than [`ALIKE_MANY`] datagrams arrived. So one
/// client's burst among many calls does not decide for all calls.
pub const ALIKE_OVER: Duration = Duration::from_millis(20);

/// Number of datagrams that suffices for a decision at any time. The number exceeds two of the
/// longest bursts of 64 KiB, with a hundred other calls between the bursts.
pub const ALIKE_MANY: u64 = 256;

/// Number of consecutive full receive calls after which a socket coalesces in any case. Such a
/// socket receives more than the worker can process. A scheduler pause of some milliseconds fills a
/// few calls.
pub const FULL_CALLS_MIN: u32 = 8;

/// Time for which a socket with bursts coalesces before measuring again. With 300 packets of video
/// per second, one packet in thirty is received without coalescing.
pub const COALESCING_FOR: Duration = Duration::from_secs(2);

/// Time for which an overloaded socket coalesces before measuring again. The overload may have been
/// short. Coalescing continues while messages wait.
pub const COALESCING_FULL_FOR: Duration = Duration::from_millis(100);

/// Time for which coalesced datagrams still arrive after coalescing has stopped. The kernel may
/// delay such datagrams by two clock ticks.
pub const COALESCED_LATE: Duration = Duration::from_millis(20);

/// Pause after a failed attempt to stop coalescing, which a waiting message prevents. An attempt
/// takes three system calls, and under load a message may always wait.
pub const STOP_AGAIN_AFTER: Duration = Duration::from_millis(10);

/// Maximum number of named reasons for refusals, and for drops, in the log line of an ended
/// allocation. The most frequent reasons are named. Most allocations have one or two reasons.
pub const LOGGED_REASONS_MAX: usize = 4;

/// Minimum interval of log lines about one condition.
pub const WARNING_EVERY: Duration = Duration::from_secs(60);

const _: () = assert!(MESSAGES_PER_RECEIVE <= MESSAGES_PER_GATHERING);
const _: () = assert!(xdp_relay::limits::LEASE.as_secs() >= 3 * SWEEP_EVERY.as_secs());
const _: () = assert!(2 * PIPE_BYTES < STREAM_BACKLOG_BYTES);
const _: () = assert!(HELD_FOR.as_secs() > turn_proto::limits::PENDING_LIFETIME.as_secs());
