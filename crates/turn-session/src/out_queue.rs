//! Bounded queue of messages to send on a stream.

use std::collections::VecDeque;

use state_format::fields;

/// Message in the queue.
#[derive(Clone, Copy, Debug)]
struct Queued {
    /// Number of unsent bytes.
    left: usize,
    /// True if the message is partly sent. It must then be sent completely, or the stream loses its
    /// framing.
    begun: bool,
    /// True if the message may be dropped in favour of later messages.
    droppable: bool,
    /// Tag provided by the caller.
    tag: u32,
}

/// Bounded queue of complete messages, as bytes. Above the limit, the oldest data is dropped: late
/// data is like a lost datagram. Answers are never dropped.
#[derive(Debug, Default)]
pub struct OutQueue {
    bytes: VecDeque<u8>,
    messages: VecDeque<Queued>,
    /// Number of queued messages that must not be dropped.
    answers: usize,
}

/// Message to append to an [`OutQueue`].
#[derive(Clone, Copy, Debug)]
pub struct Outgoing<'a> {
    /// Consecutive parts of the message.
    pub parts: [&'a [u8]; 3],
    /// True for data, which may be dropped; false for answers.
    pub droppable: bool,
    /// Value passed to the callback when the message is sent or dropped.
    pub tag: u32,
}

impl Outgoing<'_> {
    fn len(&self) -> usize {
        self.parts.iter().map(|part| part.len()).sum()
    }
}

/// Queued message in the form that moves to another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuedMessage {
    /// Number of unsent bytes.
    pub left: u32,
    /// True if the message is partly sent.
    pub begun: bool,
    /// True if the message may be dropped in favour of later messages.
    pub droppable: bool,
    /// Tag from the [`Outgoing`] message.
    pub tag: u32,
}

fields!(QueuedMessage { 1 => left, 2 => begun, 3 => droppable, 4 => tag or 0 });

/// Error: queued answers exceed the limit, because the remote does not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueFull;

impl OutQueue {
    /// Appends a message. If the queue would exceed `most` bytes, data is dropped, the oldest
    /// first, and finally this message. `on_drop` receives the tag of each dropped message.
    ///
    /// # Errors
    /// The queued answers and this one exceed the limit. This answer is not queued.
    pub fn push(
        &mut self,
        message: Outgoing<'_>,
        most: usize,
        mut on_drop: impl FnMut(u32),
    ) -> Result<(), QueueFull> {
        let len = message.len();
        let was_above = self.bytes.len() > most;
        while self.bytes.len() + len > most {
            if let Some(tag) = self.drop_oldest() {
                on_drop(tag);
            } else if message.droppable {
                on_drop(message.tag);
                return Ok(());
            } else {
                return Err(QueueFull);
            }
        }
        if was_above {
            // `most` is lower than in an earlier call.
            self.bytes.shrink_to(most);
        }
        for part in message.parts {
            self.bytes.extend(part);
        }
        let Outgoing { droppable, tag, .. } = message;
        self.answers += usize::from(!droppable);
        self.messages.push_back(Queued { left: len, begun: false, droppable, tag });
        Ok(())
    }

    /// Drops the oldest data message without sent bytes, and returns the message's tag.
    fn drop_oldest(&mut self) -> Option<u32> {
        let place = self.messages.iter().position(|queued| queued.droppable && !queued.begun)?;
        let start: usize = self.messages.iter().take(place).map(|queued| queued.left).sum();
        let queued = self.messages.remove(place)?;
        // Only answers and one partly sent message precede the dropped message, so few bytes move.
        self.bytes.drain(start..start + queued.left);
        Some(queued.tag)
    }

    /// Returns the next bytes to send, as the two slices of a ring buffer.
    #[must_use]
    pub fn next(&self) -> (&[u8], &[u8]) {
        self.bytes.as_slices()
    }

    /// Removes sent bytes. `on_sent` receives the tag of each message that is completely sent.
    pub fn sent(&mut self, bytes: usize, mut on_sent: impl FnMut(u32)) {
        let mut bytes = bytes.min(self.bytes.len());
        self.bytes.drain(..bytes);
        while let Some(first) = self.messages.front_mut() {
            if first.left > bytes {
                first.left -= bytes;
                first.begun |= bytes > 0;
                return;
            }
            bytes -= first.left;
            self.answers -= usize::from(!first.droppable);
            on_sent(first.tag);
            self.messages.pop_front();
        }
    }

    /// Returns the queued messages, for another process. [`next`](Self::next) returns their bytes.
    pub fn messages(&self) -> impl Iterator<Item = QueuedMessage> {
        self.messages.iter().map(|queued| QueuedMessage {
            // `most` keeps the queue far below this maximum.
            left: u32::try_from(queued.left).unwrap_or(u32::MAX),
            begun: queued.begun,
            droppable: queued.droppable,
            tag: queued.tag,
        })
    }

    /// Rebuilds the queue of another process. Returns `None` if the lengths of the messages do not
    /// add up to the number of bytes.
    #[must_use]
    pub fn restore(bytes: Vec<u8>, messages: &[QueuedMessage]) -> Option<Self> {
        let sum: u64 = messages.iter().map(|message| u64::from(message.left)).sum();
        let answers = messages.iter().filter(|message| !message.droppable).count();
        let restored = messages.iter().map(|message| Queued {
            left: message.left as usize,
            begun: message.begun,
            droppable: message.droppable,
            tag: message.tag,
        });
        (sum == bytes.len() as u64).then(|| Self {
            bytes: bytes.into(),
            messages: restored.collect(),
            answers,
        })
    }

    /// Returns true if the queue is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Returns the number of queued bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the size of the byte buffer in memory, in bytes, without the list of messages.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// Returns the number of queued answers, including partly sent answers.
    #[must_use]
    pub const fn answers(&self) -> usize {
        self.answers
    }

    /// Empties the queue of a connection that cannot send any more, and returns the tags of all
    /// messages.
    pub fn give_up(&mut self) -> impl Iterator<Item = u32> {
        self.bytes.clear();
        self.answers = 0;
        std::mem::take(&mut self.messages).into_iter().map(|queued| queued.tag)
    }

    /// Frees the memory of a burst, if the queue is empty. Call this rarely: memory freed in each
    /// iteration is allocated again in the next.
    pub fn shrink(&mut self) {
        if self.is_empty() {
            self.bytes.shrink_to_fit();
            self.messages.shrink_to_fit();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MOST: usize = 100;

    fn push(
        queue: &mut OutQueue,
        tag: u32,
        len: usize,
        droppable: bool,
    ) -> (Result<(), QueueFull>, Vec<u32>) {
        let bytes = vec![tag as u8; len];
        let (head, tail) = bytes.split_at(len / 2);
        let mut dropped = Vec::new();
        let message = Outgoing { parts: [head, tail, &[]], droppable, tag };
        (queue.push(message, MOST, |tag| dropped.push(tag)), dropped)
    }

    #[test]
    fn another_process_sends_the_rest() {
        let mut queue = OutQueue::default();
        for (tag, len) in [(1, 30), (2, 40), (3, 20)] {
            assert_eq!(push(&mut queue, tag, len, tag != 2), (Ok(()), vec![]));
        }
        queue.sent(10, |_| ());
        let messages: Vec<_> = queue.messages().collect();
        assert!(OutQueue::restore(all(&queue)[1..].to_vec(), &messages).is_none());
        let mut restored = OutQueue::restore(all(&queue), &messages).unwrap();
        assert_eq!(all(&restored), all(&queue));
        // The first message is partly sent, and the second is an answer: the third is dropped.
        assert_eq!(push(&mut restored, 9, 30, true), (Ok(()), vec![3]));
        let mut sent = Vec::new();
        assert_eq!(restored.answers(), queue.answers());
        restored.sent(usize::MAX, |tag| sent.push(tag));
        assert_eq!(sent, [1, 2, 9]);
    }

    fn all(queue: &OutQueue) -> Vec<u8> {
        let (one, two) = queue.next();
        [one, two].concat()
    }

    #[test]
    fn messages_leave_in_order_and_in_any_pieces() {
        let mut queue = OutQueue::default();
        for (tag, len) in [(1, 3), (2, 4), (3, 1)] {
            assert_eq!(push(&mut queue, tag, len, tag != 2), (Ok(()), vec![]));
        }
        assert_eq!(all(&queue), [1, 1, 1, 2, 2, 2, 2, 3]);
        let mut sent = Vec::new();
        for (bytes, wanted) in [(2, &[][..]), (1, &[1]), (0, &[1]), (4, &[1, 2]), (1, &[1, 2, 3])] {
            queue.sent(bytes, |tag| sent.push(tag));
            assert_eq!(sent, wanted);
        }
        assert!(queue.is_empty());
    }

    #[test]
    fn the_oldest_data_is_dropped_and_answers_are_not() {
        let mut queue = OutQueue::default();
        for (tag, droppable) in [(1, true), (2, false), (3, true), (4, true)] {
            assert_eq!(push(&mut queue, tag, 25, droppable), (Ok(()), vec![]));
        }
        assert_eq!(push(&mut queue, 5, 30, true), (Ok(()), vec![1, 3]));
        assert_eq!(push(&mut queue, 6, 20, false), (Ok(()), vec![]));
        assert_eq!(push(&mut queue, 7, 60, false), (Err(QueueFull), vec![4, 5]));
        assert_eq!(push(&mut queue, 8, 60, true), (Ok(()), vec![8]), "for there are only answers");
        assert_eq!(all(&queue), [[2; 25].as_slice(), &[6; 20]].concat());
    }

    #[test]
    fn a_partly_sent_message_is_completed() {
        let mut queue = OutQueue::default();
        push(&mut queue, 1, 50, true).0.unwrap();
        push(&mut queue, 2, 50, true).0.unwrap();
        queue.sent(10, |_| panic!("not whole"));
        assert_eq!(push(&mut queue, 3, 50, true), (Ok(()), vec![2]));
        assert_eq!(all(&queue), [[1; 40].as_slice(), &[3; 50]].concat());
        assert_eq!(queue.give_up().collect::<Vec<_>>(), [1, 3]);
        assert!(queue.is_empty());
    }

    #[test]
    fn a_message_of_which_nothing_left_may_still_be_dropped() {
        let mut queue = OutQueue::default();
        push(&mut queue, 1, 60, true).0.unwrap();
        queue.sent(0, |_| panic!("not whole"));
        assert_eq!(push(&mut queue, 2, 60, true), (Ok(()), vec![1]));
    }

    #[test]
    fn memory_of_a_burst_is_freed_once_all_of_it_left() {
        let mut queue = OutQueue::default();
        assert!(queue.is_empty());
        push(&mut queue, 1, 60, true).0.unwrap();
        queue.sent(20, |_| panic!("not whole"));
        queue.shrink();
        assert_eq!((queue.len(), queue.is_empty()), (40, false));
        assert_eq!(all(&queue), [1; 40]);
        queue.sent(40, |_| ());
        queue.shrink();
        assert_eq!((queue.bytes.capacity(), queue.messages.capacity()), (0, 0));
    }

    proptest! {
        /// Complete messages leave in order, each has one fate, and the queue remains within its
        /// bound, for any sequence of pushes and takes.
        #[test]
        fn each_message_leaves_whole_or_is_dropped(
            steps in proptest::collection::vec((0_usize..60, any::<bool>(), 0_usize..80), 1..200)
        ) {
            let mut queue = OutQueue::default();
            let (mut wire, mut fates) = (Vec::new(), Vec::new());
            let mut lens = Vec::new();
            for (len, droppable, taken) in steps {
                let tag = lens.len() as u32;
                lens.push(len);
                let (pushed, dropped) = push(&mut queue, tag, len, droppable);
                fates.extend(dropped.into_iter().map(|tag| (tag, false)));
                if pushed.is_err() {
                    prop_assert!(!droppable);
                    fates.push((tag, false));
                }
                prop_assert!(queue.len() <= MOST);
                let answers = queue.messages().filter(|message| !message.droppable).count();
                prop_assert_eq!(queue.answers(), answers);
                let next = all(&queue);
                let taken = taken.min(next.len());
                wire.extend_from_slice(&next[..taken]);
                queue.sent(taken, |tag| fates.push((tag, true)));
            }
            wire.extend(all(&queue));
            queue.sent(usize::MAX, |tag| fates.push((tag, true)));
            let sent: Vec<u32> = fates.iter().filter(|fate| fate.1).map(|fate| fate.0).collect();
            let whole: Vec<u8> =
                sent.iter().flat_map(|tag| vec![*tag as u8; lens[*tag as usize]]).collect();
            prop_assert_eq!(wire, whole);
            let mut tags: Vec<u32> = fates.into_iter().map(|fate| fate.0).collect();
            tags.sort_unstable();
            prop_assert_eq!(tags, (0..lens.len() as u32).collect::<Vec<_>>());
        }
    }
}
