//! Limits of a worker, each with its reason.

use std::time::Duration;

/// Messages per receive call: what one socket is given before the next one has its turn.
pub const MESSAGES_PER_RECEIVE: usize = 32;

/// Datagrams that are taken of what the kernel hands over before they are written to connections: what is
/// written together costs less.
pub const RING_DATAGRAMS_PER_ROUND: u64 = 512;

/// The same in bytes: half of what may wait for one connection, which may be all of it.
pub const RING_BYTES_PER_ROUND: u64 = STREAM_BACKLOG_BYTES as u64 / 2;

/// How often that is done before others have their turn.
pub const RING_ROUNDS_PER_TURN: usize = 4;

/// Messages gathered from all sockets before what they gave is sent: the more come together,
/// the more of one flow leave as a run. It bounds how long the first of them waits. Each has a
/// buffer of 64 KiB, of which a worker keeps what messages ever filled: 1.5 MiB of small ones,
/// 16 MiB at most.
pub const MESSAGES_PER_GATHERING: usize = 256;

/// Bytes gathered before they are sent, as far as they come in whole receive calls: more fall
/// out of the second-level cache before they are sent.
pub const BYTES_PER_GATHERING: usize = 256 << 10;

/// Sockets served in one turn of the loop, each with one receive call (a listener may have
/// one for each relay): what bounds the time until the mailbox and the timers have theirs.
/// epoll reports the others at the next turn before it repeats these.
pub const SOCKETS_PER_TURN: usize = 32;

/// Bytes of receive and of send buffer that a relay socket gets at most. It carries one client's
/// media, and there is one per allocation: with a listener's buffers, a few hundred flooded
/// relays would use up the kernel's memory for UDP (`net.ipv4.udp_mem`) for all sockets.
pub const RELAY_BUFFER_MAX: usize = 512 << 10;

/// Datagrams gathered before they are sent without waiting for the end of the receive batch:
/// half of what a transmit batch holds, so that it is never full.
pub const DATAGRAMS_PER_FLUSH: usize = 1024;

/// Requests of the control plane carried out in one turn: user look-ups come in bursts, and
/// each costs about as much as a packet.
pub const REQUESTS_PER_TURN: usize = 64;

/// Connections accepted from one socket in one turn: the others' packets wait for that long.
pub const ACCEPTS_PER_TURN: usize = 16;

/// Reads of one connection in one turn, where TLS holds more than was asked for.
pub const READS_PER_TURN: usize = 4;

/// Encrypted bytes read at once: four records.
pub const CIPHERTEXT_PER_READ: usize = 64 << 10;

/// Bytes that wait for one connection to take them; of more, the oldest data is dropped, and when
/// answers alone are more the connection is closed. A picture of a video call has a tenth of it; a
/// second of one at 2 Mbit/s as much: what is older is of no use to a call.
pub const STREAM_BACKLOG_BYTES: usize = 256 << 10;

/// Bytes of what a peer said that may wait for its client before the peer is read again, and most that is
/// read of it at once: with as much the other way, a connection that is relayed keeps 200 KiB at most.
pub const PIPE_BYTES: usize = 64 << 10;

/// Peers' connections that may wait to be accepted at one relay; the worker takes them within a turn.
pub const PEERS_WAITING: u16 = 32;

/// What other workers have handed over and one has not taken yet: connections, of more of which the requests
/// are refused (508), and messages about clients that move, of more of which are told 500.
pub const WORKER_MESSAGES_WAITING: usize = 256;

/// How long a connection of which one end has said all may carry nothing the other way.
pub const HALF_CLOSED_FOR: Duration = Duration::from_mins(1);

/// How long one end of a relayed connection may take nothing of what there is for it. That costs a bounded
/// buffer alone, and programs do pause.
pub const PIPE_STUCK_FOR: Duration = Duration::from_mins(5);

/// How long a ConnectionBind may be without an answer: longer than its user may be looked up.
pub const HELD_FOR: Duration = Duration::from_secs(45);

/// The longest message of who has no allocation: a request with a token and a certificate's worth of
/// attributes. Its beginning may have to be kept for [`MESSAGE_WITHIN`].
pub const UNAUTHENTICATED_MESSAGE_BYTES: usize = 4096;

/// How long a connection may be silent at first. Clients connect to say something.
pub const FIRST_MESSAGE_WITHIN: Duration = Duration::from_secs(10);

/// How long a message may take from one end to the other: 65 KiB in that time is 17 kbit/s.
pub const MESSAGE_WITHIN: Duration = Duration::from_secs(30);

/// How long a connection may take nothing of what there is for it.
pub const STUCK_FOR: Duration = Duration::from_secs(30);

/// How long a connection without an allocation may be silent: longer than it takes a person to log in.
/// (RFC 8489 §6.2.2 wants it left open; a client that comes back later than this connects again.)
pub const IDLE_FOR: Duration = Duration::from_mins(1);

/// How long one is silent at least before it ends for another one's sake: longer than any answer takes.
pub const EVICTABLE_AFTER: Duration = Duration::from_secs(10);

/// Connections that end so in a second: sixteen times what is accepted in a turn of the loop.
pub const EVICTED_PER_SWEEP: usize = 16 * ACCEPTS_PER_TURN;

/// How long who was told to go may take to go.
pub const ENDING_FOR: Duration = Duration::from_secs(5);

/// How often connections are looked at that may have had their time.
pub const SWEEP_STREAMS_EVERY: Duration = Duration::from_secs(1);

/// DTLS associations of one worker whose handshake is not done; for one more, the oldest goes of the customer
/// that has most. Each has about 50 KB.
pub const HALF_OPEN_MAX: usize = 512;

/// The same of one customer, of which the oldest goes: a company behind one address, all of whose clients come
/// back together. A client whose association is ended for another one has to begin anew, so they are more than
/// the hellos of a customer that may wait. Where a round trip takes 0.2 s, they are 1000 handshakes a second.
pub const HALF_OPEN_PER_CUSTOMER: usize = HALF_OPEN_MAX / 2;

/// Places for cookies that have begun an association: 256 KiB. Within the life of a cookie one customer's
/// share of the time is worth about a third of them.
pub const COOKIES_USED: usize = 32_768;

/// Processor time for handshakes of DTLS and TLS in one turn of the loop, of which the second half is for
/// customers that have used little. Relayed packets wait for that long, and for the step that exceeds it: one
/// takes 0.1 ms, with RSA up to a millisecond. What finds no time waits for the next turn.
pub const HANDSHAKE_TIME_PER_TURN: Duration = Duration::from_millis(1);

/// Datagrams of DTLS handshakes that wait for a turn with time: as many clients as half-open associations.
/// They are served within 0.1 s, with RSA within half a second.
pub const HANDSHAKES_WAITING: usize = HALF_OPEN_MAX;

/// The same of one customer: so that a few hostile addresses do not make others wait behind all of them.
pub const HANDSHAKES_WAITING_PER_CUSTOMER: usize = HANDSHAKES_WAITING / 4;

/// The same of one client's address and port. A client's second flight has three messages, each of which may
/// come as a datagram; twice that, for it may be sent again.
pub const HANDSHAKES_WAITING_PER_CLIENT: usize = 8;

/// The longest datagram of a handshake that waits: a longer hello is not taken at all, and what follows it has
/// a few hundred bytes. So a worker's queue has 1 MiB at most.
pub const HANDSHAKE_DATAGRAM_MAX: usize = turn_session::dtls::HELLO_MAX;

/// Longest wait of a handshake datagram. Clients first send again after a second (RFC 6347 §4.2.4.1),
/// which a hello's place is renewed by; a client that has not done so within two is gone.
pub const HANDSHAKE_WAIT_MAX: Duration = Duration::from_secs(2);

/// The part of a worker's time that one customer may have for handshakes, as a divisor: some 80 handshakes a
/// second, with RSA 30. Calls are protected by the bound of the turn, whoever shakes hands; the share keeps one
/// address from taking the time of all. At the share of a hostile one, a packet in 32 meets a handshake and
/// waits a tenth of a millisecond for it, with RSA a whole one: less than the delay of a network varies by.
pub const HANDSHAKE_SHARE: u32 = 32;

/// The same at once: some 1600 handshakes, with RSA 700, as when a company's clients come back all together.
/// The last quarter is for finishing them. A hostile address has it once in half a minute: a second or two in
/// which each turn takes its millisecond.
pub const HANDSHAKE_BURST: Duration = Duration::from_secs(1);

/// What a customer has used little by: a few handshakes.
pub const HANDSHAKE_TIME_FEW: Duration = Duration::from_millis(5);

/// What a step of a handshake is charged at least: for what is around it, and where the clock is coarse.
pub const HANDSHAKE_STEP_MIN: Duration = Duration::from_micros(50);

/// What one is charged at most: no step takes as long, and a clock that jumps locks nobody out for long.
pub const HANDSHAKE_STEP_MAX: Duration = Duration::from_millis(20);

/// The beginning of a TLS handshake that is kept until there is time for it: one record (RFC 8446 §5.1).
pub const HELLO_KEPT_BYTES: usize = 5 + (16 << 10);

/// Connections whose TLS handshake waits for its customer's share that go on with each sweep: looking
/// whether they may takes time as well. The others have until [`FIRST_MESSAGE_WITHIN`].
pub const PAUSED_RESUMED: usize = 64;

/// How long a handshake may take: a client sends again after 1, 3, 7 and 15 seconds.
pub const HANDSHAKE_WITHIN: Duration = Duration::from_secs(30);

/// How often it is looked whether something is to be sent again: OpenSSL knows when, and is not asked.
pub const RESEND_EVERY: Duration = Duration::from_millis(250);

/// How long an association without an allocation may be silent. Unlike the end of a connection, that its
/// client has gone is heard of only if that says so.
pub const ASSOCIATION_IDLE_FOR: Duration = Duration::from_mins(2);

/// How often associations are looked at that may have had their time.
pub const SWEEP_ASSOCIATIONS_EVERY: Duration = Duration::from_secs(5);

/// Log lines about connections that ended, per second and worker: anybody can connect.
pub const STREAM_LINES_PER_SECOND: u32 = 10;

/// Log lines about refused requests per second and worker. They are the clients' fault, so
/// anybody can cause any number of them.
pub const REFUSAL_LINES_PER_SECOND: u32 = 10;

/// Time between the starts of two sweeps, which take over the kernel's counters. Statistics lag behind by as much, and the
/// lease of a worker's routes ([`xdp_relay::limits::LEASE`]) is renewed several times before it ends.
pub const SWEEP_EVERY: Duration = Duration::from_secs(1);

/// Cells of the kernel's counters that are read at once in a sweep; a flow has one for each processor. A cell
/// is a line of the cache that another processor wrote, about 100 ns: packets wait for 0.1 ms.
pub const SWEEP_CELLS: usize = 1024;

/// Time between two parts of a sweep, which so take a tenth of a worker's time at most. A
/// worker with 16,384 flows on 31 processors is through in [`SWEEP_EVERY`]; with twice as many of either its
/// statistics lag behind by two seconds.
pub const SWEEP_PART_EVERY: Duration = Duration::from_millis(2);

/// Datagrams within [`UNMERGED_WITHIN`] that the system brings to a socket one by one, though the
/// program at tc has routes of it, until the socket asks for them merged: far more than that program leaves
/// to the socket where it can relay, and what they cost more is nothing by then. To a relay socket any
/// count; to a listener those that are relayed and follow one of the same client, since it has all
/// clients' requests besides.
pub const UNMERGED_MAX: u64 = 64;

/// See [`UNMERGED_MAX`].
pub const UNMERGED_WITHIN: Duration = Duration::from_secs(1);

/// How long a socket then asks, before it sees whether the program relays them now: which costs
/// [`UNMERGED_MAX`] datagrams where it does not.
pub const MERGING_FOR: Duration = Duration::from_mins(1);

/// Until a socket that is to cease, and at which something waited, is looked at again: looking
/// takes three system calls, and under load there may always be something.
pub const CEASE_AGAIN_AFTER: Duration = Duration::from_millis(10);

/// How often one kind of trouble is logged.
pub const WARNING_EVERY: Duration = Duration::from_secs(60);

const _: () = assert!(MESSAGES_PER_RECEIVE <= MESSAGES_PER_GATHERING);
const _: () = assert!(xdp_relay::limits::LEASE.as_secs() >= 3 * SWEEP_EVERY.as_secs());
const _: () = assert!(2 * PIPE_BYTES < STREAM_BACKLOG_BYTES);
const _: () = assert!(HANDSHAKES_WAITING_PER_CUSTOMER < HALF_OPEN_PER_CUSTOMER);
const _: () = assert!(HELD_FOR.as_secs() > turn_proto::limits::PENDING_LIFETIME.as_secs());
