//! Send batches: datagrams as lists of byte ranges, with equal datagrams of a flow joined into
//! runs.
//!
//! A run is one send with `UDP_SEGMENT`. All datagrams of a run belong to one flow (socket,
//! destination, source, header fields). All have equal sizes, except that the last may be shorter.
//!
//! A way is a socket with a destination and a source address. A datagram joins the latest run of
//! its way, or starts a new run after that run. The order on a way therefore never changes,
//! although datagrams of other ways may be pushed in between. All runs of one socket are sent
//! together.

mod flush;
mod grouping;
mod headers;
mod segmentation;
mod types;
mod warning;
mod wire;

pub use self::flush::{SendStats, SocketTable};
pub use self::types::{Flow, Part, SendSocket};
pub use self::warning::Warning;

use self::flush::{Load, Sender};
use self::grouping::{Latest, hash_socket, hash_way};
use self::types::{Group, MAX_RUN_SEGMENTS, Message, Segment};
use crate::{RxBatch, SendError};

/// Maximum number of datagrams in a batch. This is enough for the responses to a receive batch of
/// 32 messages with 64 segments each.
const MAX_DATAGRAMS: usize = 2048;
const _: () = assert!(MAX_DATAGRAMS <= u16::MAX as usize, "messages are numbered in 16 bits");

/// Maximum number of parts in a batch: a header, a payload, and sometimes padding for each
/// datagram.
const MAX_PARTS: usize = 3 * MAX_DATAGRAMS;

/// Maximum number of parts in a datagram. All parts of a run are passed to one call, which accepts
/// 1024 (`UIO_MAXIOV`).
const MAX_PARTS_PER_DATAGRAM: usize = 16;
const _: () = assert!(MAX_PARTS_PER_DATAGRAM * MAX_RUN_SEGMENTS <= 1024);

/// Size of the arena in bytes, for headers and replies. This is twice the size of a header of 48
/// bytes for each of 2048 datagrams.
const ARENA_BYTES: usize = 192 * 1024;

/// Error: the batch is full. The caller must flush the batch before the next push.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// Error: the arena has not enough free space. The caller must flush the batch first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArenaFull;

/// Datagrams to send in one iteration of a worker's loop.
///
/// Payloads are ranges of the [`RxBatch`] that is passed to [`flush`](Self::flush). Headers and
/// replies are written into the batch's arena. The batch is allocated once and reused.
pub struct TxBatch {
    groups: Vec<Group>,
    messages: Vec<Message>,
    segments: Vec<Segment>,
    parts: Vec<Part>,
    /// Latest group by socket.
    latest_group: Latest,
    /// Latest message by socket, source and destination.
    latest_message: Latest,
    arena: Box<[u8]>,
    arena_used: usize,
    sender: Sender,
}

impl Default for TxBatch {
    fn default() -> Self {
        Self::new()
    }
}

impl TxBatch {
    /// Creates an empty batch, and allocates all memory that the batch will use.
    #[must_use]
    pub fn new() -> Self {
        Self::with_runs(true)
    }

    /// Creates an empty batch that sends every datagram as a separate message, as if the kernel did
    /// not support runs.
    #[must_use]
    pub fn without_runs() -> Self {
        Self::with_runs(false)
    }

    fn with_runs(runs: bool) -> Self {
        Self {
            groups: Vec::with_capacity(MAX_DATAGRAMS),
            messages: Vec::with_capacity(MAX_DATAGRAMS),
            segments: Vec::with_capacity(MAX_DATAGRAMS),
            parts: Vec::with_capacity(MAX_PARTS),
            latest_group: Latest::new(),
            latest_message: Latest::new(),
            arena: vec![0; ARENA_BYTES].into_boxed_slice(),
            arena_used: 0,
            sender: Sender::new(MAX_PARTS, runs),
        }
    }

    /// Removes all pushed datagrams and all bytes in the arena.
    pub fn clear(&mut self) {
        self.groups.clear();
        self.messages.clear();
        self.segments.clear();
        self.parts.clear();
        self.arena_used = 0;
    }

    /// Returns true if the batch has no datagrams.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Returns the number of datagrams in the batch.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.segments.len()
    }

    /// Copies bytes (a header, a reply) into the arena.
    ///
    /// # Errors
    /// Returns [`ArenaFull`] if the free space is too small. Flush first.
    pub fn arena_write(&mut self, bytes: &[u8]) -> Result<Part, ArenaFull> {
        self.arena_space(bytes.len())?.copy_from_slice(bytes);
        Ok(self.arena_commit(bytes.len()))
    }

    /// Lends `len` bytes of the arena's free space to be written in place. The contents are
    /// arbitrary. [`arena_commit`](Self::arena_commit) retains the bytes. Without a commit the next
    /// call lends this space again.
    ///
    /// # Errors
    /// Returns [`ArenaFull`] if the free space is too small. Flush first.
    pub fn arena_space(&mut self, len: usize) -> Result<&mut [u8], ArenaFull> {
        self.arena[self.arena_used..].get_mut(..len).ok_or(ArenaFull)
    }

    /// Retains the first `len` bytes of the arena's free space, written through
    /// [`arena_space`](Self::arena_space). Panics if the free space is smaller, because the caller
    /// cannot have borrowed so many bytes.
    pub fn arena_commit(&mut self, len: usize) -> Part {
        let start = self.arena_used;
        assert!(len <= self.arena.len() - start, "{len} bytes were never lent");
        self.arena_used += len;
        Part::Arena { start, len }
    }

    /// Adds a datagram that consists of up to 16 `parts` (asserted). The datagram joins the latest
    /// run to the destination if possible. If the datagram cannot be sent, `on_fail` of
    /// [`flush`](Self::flush) receives `tag`.
    ///
    /// # Errors
    /// Returns [`Full`] if the batch is full. Flush and push again.
    pub fn push(&mut self, flow: Flow, parts: &[Part], tag: u32) -> Result<(), Full> {
        assert!(parts.len() <= MAX_PARTS_PER_DATAGRAM, "{} parts", parts.len());
        if self.segments.len() == MAX_DATAGRAMS || self.parts.len() + parts.len() > MAX_PARTS {
            return Err(Full);
        }
        let bytes = parts.iter().map(|part| part.len()).sum();
        let index = self.segments.len();
        let first_part = self.parts.len();
        self.parts.extend_from_slice(parts);
        self.segments.push(Segment { next: 0, first_part, parts: parts.len(), bytes, tag });
        let latest = self.latest_message.slot(hash_way(flow.socket, flow.from, flow.to));
        match self.messages.get_mut(usize::from(*latest)) {
            // A message of this way in the slot is the latest message of the way.
            Some(message) if message.takes(&flow, bytes) => {
                self.segments[message.last].next = index;
                message.join(index, bytes);
            }
            Some(_) | None => {
                *latest = self.messages.len() as u16;
                self.begin(Message::new(flow, index, bytes));
            }
        }
        Ok(())
    }

    /// Appends a message to the messages of the message's socket.
    fn begin(&mut self, message: Message) {
        let (socket, index) = (message.flow.socket, self.messages.len());
        self.messages.push(message);
        let latest = self.latest_group.slot(hash_socket(socket));
        match self.groups.get_mut(usize::from(*latest)) {
            Some(group) if group.socket == socket => {
                self.messages[group.last].next = index;
                group.last = index;
            }
            Some(_) | None => {
                *latest = self.groups.len() as u16;
                self.groups.push(Group { socket, first: index, last: index });
            }
        }
    }

    /// Sends all datagrams and empties the batch.
    ///
    /// `rx` must be the receive batch whose ranges were pushed, and must not have received since. A
    /// range outside `rx` panics, like slice indexing. `on_fail` receives the tag of each datagram
    /// that was not sent, and the reason.
    ///
    /// No error is fatal. If a socket's send buffer is full, the remaining datagrams of that socket
    /// are dropped. A run that the kernel refuses is sent as single datagrams. An error left by
    /// ICMP on the socket causes a second try.
    pub fn flush(
        &mut self,
        rx: &RxBatch,
        sockets: &impl SocketTable,
        stats: &mut SendStats,
        on_fail: impl FnMut(u32, SendError),
    ) {
        if !self.messages.is_empty() {
            let (load, sender) = self.split(rx);
            sender.send(load, sockets, stats, on_fail);
        }
        self.clear();
    }

    /// Passes each datagram to `send` instead of the kernel, with flow, bytes and tag. Afterwards
    /// the batch is empty.
    pub fn drain(&mut self, rx: &RxBatch, mut send: impl FnMut(Flow, &[u8], u32)) {
        let mut bytes = Vec::new();
        for message in &self.messages {
            let mut index = message.first;
            for _ in 0..message.segments {
                let segment = self.segments[index];
                bytes.clear();
                for part in &self.parts[segment.first_part..][..segment.parts] {
                    bytes.extend_from_slice(match *part {
                        Part::Rx { message, start, len } => {
                            &rx.message(message).data[start..][..len]
                        }
                        Part::Arena { start, len } => &self.arena[start..][..len],
                    });
                }
                send(message.flow, &bytes, segment.tag);
                index = segment.next;
            }
        }
        self.clear();
    }

    /// Returns the next [`Warning`] that was not returned before. Each kind is returned once in the
    /// lifetime of the batch.
    pub fn take_warnings(&mut self) -> Option<Warning> {
        self.sender.take_warning()
    }

    /// Returns the pushed datagrams and the sender.
    pub(crate) fn split<'a>(&'a mut self, rx: &'a RxBatch) -> (Load<'a>, &'a mut Sender) {
        let load = Load {
            groups: &self.groups,
            messages: &self.messages,
            segments: &self.segments,
            parts: &self.parts,
            arena: &self.arena[..self.arena_used],
            rx,
        };
        (load, &mut self.sender)
    }
}

impl std::fmt::Debug for TxBatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TxBatch")
            .field("messages", &self.messages.len())
            .field("datagrams", &self.segments.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use turn_types::IpMeta;

    use super::types::SendSocket;
    use super::*;

    fn flow(port: u16) -> Flow {
        let to = SocketAddr::from(([127, 0, 0, 1], port));
        Flow { socket: SendSocket(1), to, from: None, meta: IpMeta::DEFAULT }
    }

    /// Pushes datagrams and returns the resulting runs as (segment size, number of segments).
    fn runs(datagrams: &[(Flow, usize)]) -> Vec<(usize, usize)> {
        let mut batch = TxBatch::new();
        for (flow, len) in datagrams {
            batch.push(*flow, &[Part::Rx { message: 0, start: 0, len: *len }], 0).unwrap();
        }
        batch.messages.iter().map(|m| (m.segment_size, m.segments)).collect()
    }

    fn sizes(sizes: &[usize]) -> Vec<(usize, usize)> {
        runs(&sizes.iter().map(|&size| (flow(1), size)).collect::<Vec<_>>())
    }

    #[test]
    fn equal_neighbours_form_a_run_and_a_shorter_one_ends_it() {
        assert_eq!(sizes(&[100, 100, 100]), [(100, 3)]);
        assert_eq!(sizes(&[100, 100, 40, 40]), [(100, 3), (40, 1)]);
        assert_eq!(sizes(&[100, 40, 100]), [(100, 2), (100, 1)]);
        assert_eq!(sizes(&[40, 100]), [(40, 1), (100, 1)]);
    }

    #[test]
    fn empty_datagrams_stay_alone() {
        assert_eq!(sizes(&[0, 0, 100, 0, 100]), [(0, 1), (0, 1), (100, 1), (0, 1), (100, 1)]);
    }

    #[test]
    fn a_run_ends_at_64_segments_and_at_the_largest_payload() {
        assert_eq!(sizes(&[10; 130]), [(10, 64), (10, 64), (10, 2)]);
        // 54 * 1200 = 64,800 bytes. One more datagram would exceed 65,507 bytes.
        assert_eq!(sizes(&[1200; 55]), [(1200, 54), (1200, 1)]);
        assert_eq!(sizes(&[65_506, 1, 1]), [(65_506, 2), (1, 1)]);
        assert_eq!(sizes(&[65_507, 65_507]), [(65_507, 1), (65_507, 1)]);
    }

    #[test]
    fn any_difference_of_flow_splits() {
        let base = flow(1);
        let other_ways = [
            Flow { socket: SendSocket(2), ..base },
            Flow { from: Some([127, 0, 0, 2].into()), ..base },
            flow(2),
        ];
        let same_way = [
            Flow { meta: IpMeta { ttl: 9, ..IpMeta::DEFAULT }, ..base },
            Flow { meta: IpMeta { tos: 1, ..IpMeta::DEFAULT }, ..base },
            Flow { meta: IpMeta { dont_fragment: true, ..IpMeta::DEFAULT }, ..base },
        ];
        for other in other_ways {
            assert_eq!(runs(&[(base, 5), (other, 5), (base, 5)]), [(5, 2), (5, 1)], "{other:?}");
        }
        for other in same_way {
            assert_eq!(runs(&[(base, 5), (other, 5), (base, 5)]), [(5, 1); 3], "{other:?}");
        }
        for other in other_ways.into_iter().chain(same_way) {
            assert_eq!(runs(&[(other, 5), (other, 5)]), [(5, 2)], "{other:?}");
        }
    }

    #[test]
    fn datagrams_taken_in_turn_from_many_flows_form_a_run_for_each() {
        let flows = 100;
        let turns: Vec<_> = (0..1000).map(|n| (flow(1 + n % flows), 200)).collect();
        let runs = runs(&turns);
        // A few flows may collide in the table of the latest messages, and start new runs.
        assert!(runs.len() < 2 * usize::from(flows), "{}", runs.len());
    }

    /// Returns the datagrams sent by each socket as (destination, tag), in sending order.
    fn sent(batch: &TxBatch) -> Vec<Vec<(SocketAddr, u32)>> {
        let chain = |first: usize, next: &dyn Fn(usize) -> usize| {
            let mut all = vec![first];
            while next(all[all.len() - 1]) != 0 {
                all.push(next(all[all.len() - 1]));
            }
            all
        };
        let of_message = |index: usize| {
            let message = &batch.messages[index];
            let segments = chain(message.first, &|at| batch.segments[at].next);
            assert_eq!(segments.len(), message.segments);
            segments.into_iter().map(|at| (message.flow.to, batch.segments[at].tag))
        };
        let of_group = |group: &Group| {
            let messages = chain(group.first, &|at| batch.messages[at].next);
            assert!(messages.iter().all(|&at| batch.messages[at].flow.socket == group.socket));
            messages.into_iter().flat_map(of_message).collect()
        };
        batch.groups.iter().map(of_group).collect()
    }

    #[test]
    fn the_order_on_a_way_is_kept_and_nothing_is_lost_or_doubled() {
        let mut batch = TxBatch::new();
        // Several batches, so the tables contain entries of earlier batches.
        for round in 0_u32..20 {
            batch.clear();
            let mut random = round.wrapping_mul(0x9E37_79B9) | 1;
            let mut below = |n: u32| {
                random ^= random << 13;
                random ^= random >> 17;
                random ^= random << 5;
                random % n
            };
            let count = 1 + below(MAX_DATAGRAMS as u32);
            for tag in 0..count {
                let meta = IpMeta { tos: (below(8) / 7) as u8, ..IpMeta::DEFAULT };
                let socket = SendSocket(u64::from(below(40)));
                let flow = Flow { socket, meta, ..flow(1 + below(5) as u16) };
                let part = Part::Rx { message: 0, start: 0, len: 100 - (below(6) / 5) as usize };
                batch.push(flow, &[part], tag).unwrap();
            }
            let sent = sent(&batch);
            let mut tags: Vec<u32> = sent.iter().flatten().map(|(_, tag)| *tag).collect();
            tags.sort_unstable();
            assert_eq!(tags, (0..count).collect::<Vec<_>>());
            for ways in &sent {
                for port in 1..=5 {
                    let on_way = ways.iter().filter(|(to, _)| to.port() == port);
                    assert!(on_way.map(|(_, tag)| tag).is_sorted(), "round {round}");
                }
            }
        }
    }

    #[test]
    fn sizes_are_those_of_all_parts_together() {
        let mut batch = TxBatch::new();
        for (header, payload) in [(4, 96), (36, 64), (0, 100)] {
            let header = batch.arena_write(&vec![0; header]).unwrap();
            let payload = Part::Rx { message: 3, start: 7, len: payload };
            batch.push(flow(1), &[header, payload], 0).unwrap();
        }
        assert_eq!((batch.messages.len(), batch.len()), (1, 3));
        assert_eq!(batch.messages[0].segment_size, 100);
    }

    #[test]
    fn a_full_batch_returns_full_and_takes_more_once_cleared() {
        let mut batch = TxBatch::new();
        let part = Part::Rx { message: 0, start: 0, len: 1 };
        for _ in 0..MAX_DATAGRAMS {
            batch.push(flow(1), &[part], 0).unwrap();
        }
        assert_eq!(batch.push(flow(1), &[part], 0), Err(Full));
        assert_eq!(batch.len(), MAX_DATAGRAMS, "a refused datagram leaves nothing behind");
        batch.clear();
        assert!(batch.is_empty());
        for _ in 0..MAX_PARTS / 16 {
            batch.push(flow(1), &[part; 16], 0).unwrap();
        }
        assert_eq!(batch.push(flow(1), &[part; 16], 0), Err(Full));
    }

    #[test]
    fn the_arena_lends_its_free_space() {
        let mut batch = TxBatch::new();
        batch.arena_space(100).unwrap()[..3].copy_from_slice(b"abc");
        assert_eq!(batch.arena_commit(3), Part::Arena { start: 0, len: 3 });
        assert_eq!(batch.arena_write(b"de"), Ok(Part::Arena { start: 3, len: 2 }));
        assert_eq!(&batch.arena[..5], b"abcde");
        assert!(batch.arena_space(ARENA_BYTES - 5).is_ok());
        assert_eq!(batch.arena_space(ARENA_BYTES - 4), Err(ArenaFull));
        batch.clear();
        assert!(batch.arena_space(ARENA_BYTES).is_ok());
    }
}
