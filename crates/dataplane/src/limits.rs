//! Limits of a worker, each with its reason.

use std::time::Duration;

/// Messages per receive call: the share of one socket before the next one has its turn.
pub const MESSAGES_PER_RECEIVE: usize = 32;

/// Datagrams of the ring per round: they are written to connections together, which costs less.
pub const RING_DATAGRAMS_PER_ROUND: u64 = 512;

/// The same in bytes: half of the queue of one connection, which may be the receiver of all.
pub const RING_BYTES_PER_ROUND: u64 = STREAM_BACKLOG_BYTES as u64 / 2;

/// Rounds of the ring per turn: the sockets have their turn after them.
pub const RING_ROUNDS_PER_TURN: usize = 4;

/// Batches that are received by a shared relay socket before one of its allocations leaves for
/// another worker: more than its buffer holds of ordinary packets. A datagram behind them would be
/// lost.
pub const SHARED_ROUNDS_PER_MOVE: usize = 64;

/// Messages gathered from all sockets before their results are sent: the more are gathered, the
/// longer are the GSO batches. It bounds the delay of the first one. Each has a buffer of 64 KiB,
/// of which a worker keeps the part that messages ever filled: 1.5 MiB with small ones, 16 MiB at
/// most.
pub const MESSAGES_PER_GATHERING: usize = 256;

/// Bytes gathered before they are sent, in whole receive calls: more are evicted from the
/// second-level cache before they are sent.
pub const BYTES_PER_GATHERING: usize = 256 << 10;

/// Skipped allocation ids after the last known id of the predecessor: more than a worker assigns
/// between two copies.
pub const IDS_SKIPPED: u64 = 1 << 20;

/// Record numbers that a DTLS session skips after an import from a keeper's copy; no number may be
/// used twice. The copy is as old as the last change of the allocation. Data needs a permission,
/// and each renewal of a permission, every five minutes, is a change: no session sends so many
/// records in that time. A session has 2⁴⁸ numbers.
pub const RECORDS_SKIPPED: u64 = 1 << 32;

/// Bits of a random number of further skipped records: the numbers differ also where two processes
/// import one copy.
pub const RECORDS_SKIPPED_SPREAD: u32 = 40;

/// Record numbers, as a power of 2, that each further process skips with the same copy: more than
/// the process before has skipped and sent. Clients discard records with lower numbers as replays.
pub const RECORDS_SKIPPED_AGAIN: u32 = 41;

const _: () = assert!(
    1 << RECORDS_SKIPPED_AGAIN > 2 * RECORDS_SKIPPED + (1 << RECORDS_SKIPPED_SPREAD),
    "the next process begins behind the records of the one before"
);

/// Maximum number of incomplete ClientHellos of a worker, of 2 KiB each. Beyond it, the network
/// with most of them loses one, and the client retransmits.
pub const HELLO_PIECES: u32 = 256;

/// Timeout for an incomplete ClientHello: clients retransmit after a second (RFC 6347 §4.2.4.1).
pub const HELLO_PIECES_KEPT: Duration = Duration::from_secs(1);

/// Time for a worker to leave its allocations to the next process. It does so between two batches,
/// and takes some milliseconds for a few thousand; later means that it is stuck, and the hand-over
/// fails.
pub const LEAVE_DEADLINE: Duration = Duration::from_secs(2);

/// Time between copies for a keeper: what is newer is lost with the process. Each copy of an
/// allocation takes some microseconds, and a client that begins a call changes its own a few times
/// within this.
pub const COPIES_EVERY: Duration = Duration::from_millis(250);

/// The same for the next process, which takes over as soon as it has everything: the fewer have
/// changed since the last copies, the shorter is the pause.
pub const COPIES_TO_NEXT_EVERY: Duration = Duration::from_millis(5);

/// Longest time for which a worker that has left everything looks for nothing but messages.
pub const REST_MAX: Duration = Duration::from_millis(100);

/// Allocations copied in one turn: half a millisecond, for which packets wait.
pub const COPIES_PER_TURN: usize = 64;

/// Copies on their way to the other process. While none fits the worker waits, and gathers what
/// changes by its id alone.
pub const COPIES_WAITING: usize = 16;

/// Pause after copies that found no room.
pub const COPIES_AGAIN_AFTER: Duration = Duration::from_millis(10);

/// Pause after copies of sockets for which no descriptors were left. Each try costs a few dozen
/// system calls, and calls that have begun meanwhile are lost in a crash.
pub const SOCKETS_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Pauses of a worker that ends, for a keeper that takes its last copies slowly: two seconds of the
/// five that the process waits for its workers.
pub const LAST_COPIES_PAUSES: u32 = 200;

/// Sockets after which results are sent while fewer are ready than a turn serves: the packets of
/// the first of a few dozen need not wait for those of the last, and a send call for so many costs
/// each of them little.
pub const SOCKETS_SENT_EARLY: usize = 4;

/// Sockets served per turn of the loop, each with one receive call (a listener may have one for
/// each relay): the bound of the delay of mailbox and timers. epoll reports the others in the next
/// turn before it repeats these.
pub const SOCKETS_PER_TURN: usize = 32;

/// Relays of one address that are served as the kernel reports them. Further relays of the address,
/// and of networks with many, are served in the fair order of the input of connections: hundreds of
/// busy relays would delay all others by milliseconds.
pub const RELAYS_OUT_OF_ORDER: u64 = 32;

/// Number of waiting sources up to which the kernel reports input of the relays among them again. A
/// quarter of the reports of one iteration: these cost less than two changes of interest for each
/// relay.
pub const WAITING_REPORTED: usize = REPORTS_PER_TURN * SOCKETS_PER_TURN / 4;

/// Receive and send buffer of a relay socket in bytes, at most. It carries one client's media, and
/// there is one per allocation: with a listener's buffers, a few hundred flooded relays would use
/// up the kernel's memory for UDP (`net.ipv4.udp_mem`) for all sockets.
pub const RELAY_BUFFER_MAX: usize = 512 << 10;

/// Datagrams gathered before they are sent within a receive batch: half of the capacity of a
/// transmit batch, so that it is never full.
pub const DATAGRAMS_PER_FLUSH: usize = 1024;

/// Requests of the control plane per turn: user look-ups come in bursts, and each costs about as
/// much as a packet.
pub const REQUESTS_PER_TURN: usize = 64;

/// Connections from the listener's own address that are admitted although all slots are taken, and
/// not evicted.
/// Health checks of the server open one at a time.
pub const OWN_CONNECTIONS_BEYOND_LIMITS: u32 = 4;

/// Connections accepted from one socket per turn: the delay of the other sockets' packets.
pub const ACCEPTS_PER_TURN: usize = 16;

/// Number of messages that one read of a connection serves: 64 KiB may hold thousands of requests.
/// Further messages wait for the next turn.
pub const MESSAGES_PER_READ: u64 = 64;

/// Number of answers in the queue of a connection without progress, above which the connection is
/// not read. A client that pipelines requests and reads nothing takes 20 KiB, not a full queue.
/// Clients in a call send a few requests together.
pub const ANSWERS_UNREAD: usize = 16;

/// Work for the input of all connections and crowded relays in one iteration of the loop, for which
/// datagrams wait: half a millisecond with the datagrams that are sent for it. A message is a unit,
/// and so are a TLS record, a read, and [`INPUT_UNIT_BYTES`] of it. Further connections wait, in a
/// fair order.
pub const INPUT_PER_TURN: usize = 128;

/// Time for the input of all connections in one iteration: requests take five times the time of
/// data, and more for keys of time-limited names.
pub const INPUT_TIME_PER_TURN: Duration = Duration::from_micros(500);

/// Messages between two looks at the clock.
pub const MESSAGES_PER_LOOK: u64 = 8;

/// Reports of the kernel that one iteration gathers while connections fill them: the connections
/// that were idle are then sorted before those that are ready all the time.
pub const REPORTS_PER_TURN: usize = 32;

/// Work for one connection after which it waits for the next iteration, in the same units.
pub const INPUT_PER_CONNECTION: usize = 64;

/// Bytes of a read that cost as much as a message. The bytes of pipes are no messages.
pub const INPUT_UNIT_BYTES: usize = 4 << 10;

/// Longest time for which a source delays others of its client after it was served: the time of
/// [`INPUT_PER_CONNECTION`]. Longer ones are the scheduler's.
pub const INPUT_DELAY_MAX: Duration = Duration::from_micros(250);

/// Time for which a source delays others of its client before it was served: that of one message.
pub const INPUT_DELAY_MIN: Duration = Duration::from_micros(4);

/// Number of entries from which closed sources are removed from the queue of input, and twice the
/// number that remained: the work per entry is constant, and half of a long queue waits.
pub const INPUT_ENTRIES_MIN: usize = 256;

/// Encrypted bytes per read: four records.
pub const CIPHERTEXT_PER_READ: usize = 64 << 10;

/// Output queue of one connection in bytes. Beyond it the oldest data is dropped; answers alone
/// beyond it close the connection. A picture of a video call has a tenth of it, a second of one at
/// 2 Mbit/s as much: older data is of no use to a call.
pub const STREAM_BACKLOG_BYTES: usize = 256 << 10;

/// Output queues of all connections in bytes, approximately: beyond it each connection has
/// [`STREAM_BACKLOG_BYTES_MIN`]. A thousand clients that read nothing have as much at most, and
/// with twice the number each queue is half as long.
pub const BACKLOGS_BYTES: usize = 256 << 20;

/// Bytes of data that the output queue of one connection may always have: some pictures.
pub const STREAM_BACKLOG_BYTES_MIN: usize = 16 << 10;

/// Bytes of a peer in the queue of its client at which the peer is not read any more, and the most
/// per read: with as many in the other direction, a pipe keeps 200 KiB at most.
pub const PIPE_BYTES: usize = 64 << 10;

/// Peers' connections that wait to be accepted at one relay; the worker accepts them within a turn.
pub const PEERS_WAITING: u16 = 32;

/// Messages of other workers in the queue of one. Beyond it ConnectionBinds get 508, and mobility
/// requests 500.
pub const WORKER_MESSAGES_WAITING: usize = 256;

/// Silence of a pipe with one ended direction, at most.
pub const HALF_CLOSED_FOR: Duration = Duration::from_mins(1);

/// Time for which one end of a pipe may take no bytes. It costs a bounded buffer alone, and
/// programs do pause.
pub const PIPE_STUCK_FOR: Duration = Duration::from_mins(5);

/// Time to answer a ConnectionBind: longer than a user look-up may take.
pub const HELD_FOR: Duration = Duration::from_secs(45);

/// Maximum length of a message from clients without an allocation, and of one read from such a
/// client: a request with a token and the attributes of a certificate. A part may be kept for
/// [`MESSAGE_WITHIN`].
pub const UNAUTHENTICATED_MESSAGE_BYTES: usize = 4096;

/// Time to the first message of a connection: clients connect to send one.
pub const FIRST_MESSAGE_WITHIN: Duration = Duration::from_secs(10);

/// Time from the first to the last byte of a message: 65 KiB in it is 17 kbit/s.
pub const MESSAGE_WITHIN: Duration = Duration::from_secs(30);

/// Time for which a connection may take no bytes of its output.
pub const STUCK_FOR: Duration = Duration::from_secs(30);

/// Silence of a connection without an allocation, at most: longer than a person takes to log in.
/// RFC 8489 §6.2.2 wants it left open; a client that returns later connects again.
pub const IDLE_FOR: Duration = Duration::from_mins(1);

/// Silence after which a connection may be evicted for another one: longer than any answer takes.
pub const EVICTABLE_AFTER: Duration = Duration::from_secs(10);

/// Silence after which a connection without a PROXY header is evicted for another connection: a
/// load balancer sends the header immediately, or with the client's first data.
pub const NAMED_WITHIN: Duration = Duration::from_secs(1);

/// Slots of a full table that are examined for a connection to evict. If such connections have a
/// tenth of the table, 96 of 100 searches find one. Small tables are examined completely.
pub const RIVALS_COMPARED: usize = 32;

/// Connections evicted per second: sixteen times the connections accepted per turn of the loop.
pub const EVICTED_PER_SWEEP: usize = 16 * ACCEPTS_PER_TURN;

/// Close timeout after a final response.
pub const ENDING_FOR: Duration = Duration::from_secs(5);

/// Interval of the search for connections past their deadlines.
pub const SWEEP_STREAMS_EVERY: Duration = Duration::from_secs(1);

/// Maximum number of DTLS sessions of one worker with an incomplete handshake. Beyond it, the
/// network with most of them loses one. Each takes about 50 KB. With a round trip of 0.2 s they are
/// 2500 handshakes per second.
pub const HALF_OPEN_MAX: u32 = 512;

/// Entries for cookies that have begun a session: 256 KiB. Within the lifetime of a cookie one
/// customer's share of the time is worth about a third of them.
pub const COOKIES_USED: usize = 32_768;

/// Processor time for DTLS and TLS handshakes per turn of the loop, of which the second half is for
/// customers that have used little. Relayed packets wait for that long, and for the step that
/// exceeds it: one takes 0.1 ms, with RSA of 2,048 bits a
/// millisecond, of 4,096 bits 8 ms. Excess work waits for the next turn.
pub const HANDSHAKE_TIME_PER_TURN: Duration = Duration::from_millis(1);

/// Datagrams of DTLS handshakes that wait for a turn with time: as many clients as half-open
/// sessions. They are served within 0.1 s, with RSA within half a second.
pub const HANDSHAKES_WAITING: usize = HALF_OPEN_MAX as usize;

/// Delay of the next handshake datagram of an address in the queue, for each earlier datagram. A
/// client that repeats handshakes all the time comes after clients that started within seconds.
pub const HANDSHAKE_DELAY: Duration = Duration::from_millis(500);

/// Maximum number of waiting datagrams from one address and port. The second flight of a client has
/// three messages, perhaps each in a separate datagram; twice that, for a repetition.
pub const HANDSHAKES_WAITING_PER_CLIENT: usize = 8;

/// Length of a waiting handshake datagram, at most: a longer hello is refused, and later messages
/// have a few hundred bytes. A worker's queue has 1 MiB at most.
pub const HANDSHAKE_DATAGRAM_MAX: usize = turn_session::dtls::HELLO_MAX;

/// Longest wait of a handshake datagram. Clients first repeat it after a second (RFC 6347
/// §4.2.4.1), which renews the time of a hello; a client that has not done so within two is gone.
pub const HANDSHAKE_WAIT_MAX: Duration = Duration::from_secs(2);

/// Share of one address in a worker's time for handshakes, as a divisor: some 20 handshakes per
/// second, with RSA 7. A company's network has an eighth, a provider's a half. Calls are protected
/// by the bound of the turn; the share keeps one network from taking the time of all.
pub const HANDSHAKE_SHARE: u32 = 128;

/// Burst of that share: some 1600 handshakes, with RSA 700, as when a company's clients reconnect
/// together. The last quarter is for finishing them. A hostile address has it once in two minutes:
/// a second or two in which each turn takes its millisecond.
pub const HANDSHAKE_BURST: Duration = Duration::from_secs(1);

/// Maximum use of a client with little use: a few handshakes.
pub const HANDSHAKE_TIME_FEW: Duration = Duration::from_millis(5);

/// Smallest charge of a handshake step: for the work around it, and for coarse clocks.
pub const HANDSHAKE_STEP_MIN: Duration = Duration::from_micros(50);

/// Largest charge of a handshake step: no step takes as long, and a clock that jumps locks no
/// customer out for long.
pub const HANDSHAKE_STEP_MAX: Duration = Duration::from_millis(20);

/// Beginning of a TLS handshake that is kept until there is time for it: one record (RFC 8446
/// §5.1).
pub const HELLO_KEPT_BYTES: usize = 5 + (16 << 10);

/// Connections with a TLS handshake that waits for its customer's share, resumed per sweep: the
/// check takes time as well. The others have until [`FIRST_MESSAGE_WITHIN`].
pub const PAUSED_RESUMED: usize = 64;

/// Time for a DTLS handshake: a client repeats its flight after 1, 3, 7 and 15 seconds.
pub const HANDSHAKE_WITHIN: Duration = Duration::from_secs(30);

/// Interval of the check for flights to be repeated: OpenSSL knows the time, but cannot be asked
/// for it.
pub const RESEND_EVERY: Duration = Duration::from_millis(250);

/// Silence of a DTLS session without an allocation, at most. Unlike TCP, UDP does not report that a
/// client is gone.
pub const SESSION_IDLE_FOR: Duration = Duration::from_mins(2);

/// Interval of the search for idle sessions.
pub const SWEEP_SESSIONS_EVERY: Duration = Duration::from_secs(5);

/// Log lines about ended connections, per second and worker: no credentials are needed to connect.
pub const STREAM_LINES_PER_SECOND: u32 = 10;

/// Kinds of recent refusals (user, network and reason, of clients at proved addresses) that a
/// worker keeps for an operator: a day's trouble of a busy server, and with the longest names half
/// a megabyte.
pub const REFUSALS_KEPT: usize = 512;

/// Least time between two lines at INFO about refusals of one kind.
pub const REFUSAL_LINE_EVERY: Duration = Duration::from_secs(60);

/// Log lines about refused requests, per second and worker: clients can cause any number of them.
pub const REFUSAL_LINES_PER_SECOND: u32 = 10;

/// Log lines about traced clients, per second and worker: enough to follow a client that fails
/// again and again.
pub const TRACED_LINES_PER_SECOND: u32 = 50;

/// Interval of the sweeps, which read the kernel's counters. Statistics lag behind by as much, and
/// the lease of a worker's routes ([`xdp_relay::limits::LEASE`]) is renewed several times before it
/// ends.
pub const SWEEP_EVERY: Duration = Duration::from_secs(1);

/// Cells of the kernel's counters per part of a sweep; a flow has one for each processor. A cell is
/// a cache line of another processor, about 100 ns: packets wait for 0.1 ms.
pub const SWEEP_CELLS: usize = 1024;

/// Channels that were refused a slot in the kernel and may claim one again, per sweep. A claim
/// takes some microseconds: all together take a thousandth of a worker's time.
pub const RETRIES_PER_SWEEP: usize = 256;

/// Time between two parts of a sweep, which so take a tenth of a worker's time at most. A worker
/// with 16,384 flows on 31 processors is through in [`SWEEP_EVERY`]; with twice as many of either
/// its statistics lag behind by two seconds.
pub const SWEEP_PART_EVERY: Duration = Duration::from_millis(2);

/// Datagrams within [`UNCOALESCED_WITHIN`] that reach a socket with routes at tc, until it
/// coalesces: far more than the program passes where it can relay, and their extra cost is nothing
/// by then. For a relay socket every datagram counts; for a listener the relayed ones that follow
/// one of the same client, since it has all clients' requests besides.
pub const UNCOALESCED_MAX: u64 = 64;

/// See [`UNCOALESCED_MAX`].
pub const UNCOALESCED_WITHIN: Duration = Duration::from_secs(1);

/// Time for which a socket with routes at tc then coalesces, before it tries again whether the
/// program relays: a failed trial costs [`UNCOALESCED_MAX`] datagrams.
pub const COALESCING_ROUTED_FOR: Duration = Duration::from_mins(1);

/// Datagrams within [`UNCOALESCED_WITHIN`] that a socket without routes is judged by, at least: it
/// coalesces if half of them follow one of the same sender. A picture of a video call or two.
pub const ALIKE_MIN: u64 = 16;

/// Time that it is judged by, unless there are [`ALIKE_MANY`]: the burst of one client among many
/// calls is not taken for all of them.
pub const ALIKE_OVER: Duration = Duration::from_millis(20);

/// Datagrams that are enough at any time: more than two of the longest bursts of 64 KiB with a
/// hundred other calls between them.
pub const ALIKE_MANY: u64 = 256;

/// Full receive calls in a row behind which a socket coalesces whatever it receives: it has more
/// than it can take. A pause of the scheduler of some milliseconds fills a few.
pub const FULL_CALLS_MIN: u32 = 8;

/// Time for which a socket with bursts coalesces before it sees again whether that is worth it: of
/// 300 packets of video a second one in thirty is received alone.
pub const COALESCING_FOR: Duration = Duration::from_secs(2);

/// The same where it had more than it could take, which may have been for a moment. While it still
/// has, messages wait, and it goes on.
pub const COALESCING_FULL_FOR: Duration = Duration::from_millis(100);

/// Time for which coalesced datagrams still come behind the end of coalescing: two ticks of the
/// kernel's clock, as long as it may keep them for more.
pub const COALESCED_LATE: Duration = Duration::from_millis(20);

/// Time until the next attempt to stop coalescing at a socket where a message waited: an attempt
/// takes three system calls, and under load a message may always wait.
pub const STOP_AGAIN_AFTER: Duration = Duration::from_millis(10);

/// Reasons that the line of an ended allocation names, of its refusals and of its drops: the most
/// frequent ones. Most allocations have one or two.
pub const LOGGED_REASONS_MAX: usize = 4;

/// Interval of log lines about one condition.
pub const WARNING_EVERY: Duration = Duration::from_secs(60);

const _: () = assert!(MESSAGES_PER_RECEIVE <= MESSAGES_PER_GATHERING);
const _: () = assert!(xdp_relay::limits::LEASE.as_secs() >= 3 * SWEEP_EVERY.as_secs());
const _: () = assert!(2 * PIPE_BYTES < STREAM_BACKLOG_BYTES);
const _: () = assert!(HELD_FOR.as_secs() > turn_proto::limits::PENDING_LIFETIME.as_secs());
