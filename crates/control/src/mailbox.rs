//! A bounded queue from any thread to one worker, and the knock on its door.

use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

use crate::Request;

/// Interrupts a worker's wait for packets, so that it looks into its inbox.
pub trait Wake: Send + Sync {
    /// Wakes the worker. Called from any thread; never blocks; waking an awake worker is harmless.
    fn wake(&self);
}

/// A mailbox of `capacity` requests (at least one) whose owner is woken by `wake`.
#[must_use]
pub fn mailbox(capacity: usize, wake: Arc<dyn Wake>) -> (Mailbox, Inbox) {
    // A capacity of zero would be a rendezvous, at which a worker never waits.
    let (sender, receiver) = sync_channel(capacity.max(1));
    (Mailbox { sender, wake }, Inbox { receiver })
}

/// Sending side of a worker's requests.
#[derive(Clone)]
pub struct Mailbox {
    sender: SyncSender<Request>,
    wake: Arc<dyn Wake>,
}

/// Why a request was not taken; it is dropped, and with it the [`Reply`](crate::Reply) in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PostError {
    /// The worker has not kept up: try later.
    Full,
    /// The worker is gone.
    Gone,
}

impl Mailbox {
    /// Puts a request into the box and wakes the worker. Never blocks.
    ///
    /// # Errors
    /// [`PostError`]; the worker is not woken then.
    pub fn post(&self, request: Request) -> Result<(), PostError> {
        match self.sender.try_send(request) {
            Ok(()) => {
                self.wake.wake();
                Ok(())
            }
            Err(TrySendError::Full(_)) => Err(PostError::Full),
            Err(TrySendError::Disconnected(_)) => Err(PostError::Gone),
        }
    }
}

impl Mailbox {
    /// Wakes the worker, for a turn of its loop.
    pub fn wake(&self) {
        self.wake.wake();
    }
}

impl fmt::Debug for Mailbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mailbox").finish_non_exhaustive()
    }
}

impl fmt::Display for PostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "the worker's mailbox is full",
            Self::Gone => "the worker is gone",
        })
    }
}

impl std::error::Error for PostError {}

/// The worker's end of its mailbox.
#[derive(Debug)]
pub struct Inbox {
    receiver: Receiver<Request>,
}

impl Inbox {
    /// The oldest request, or `None` when there is none. Never blocks.
    #[must_use]
    pub fn take(&self) -> Option<Request> {
        // Disconnected is no news to a worker: it stops when it is told to.
        self.receiver.try_recv().ok()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::sync::{Barrier, mpsc};
    use std::thread;

    use turn_types::AllocationId;

    use super::*;

    #[derive(Default)]
    struct Knocks(AtomicU32);

    impl Wake for Knocks {
        fn wake(&self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn end(id: u64) -> Request {
        Request::End { id: AllocationId(id), reply: Box::new(drop) }
    }

    fn id_of(request: Request) -> u64 {
        let Request::End { id, .. } = request else { panic!("{request:?}") };
        id.0
    }

    #[test]
    fn keeps_the_order_and_wakes_once_for_each_request_taken() {
        let knocks = Arc::new(Knocks::default());
        let (mailbox, inbox) = mailbox(3, Arc::clone(&knocks) as _);
        for id in 1..=3 {
            mailbox.post(end(id)).unwrap();
        }
        assert_eq!(mailbox.post(end(4)), Err(PostError::Full));
        assert_eq!(knocks.0.load(Ordering::Relaxed), 3, "a refused request wakes nobody");
        assert_eq!([(); 3].map(|()| id_of(inbox.take().unwrap())), [1, 2, 3]);
        assert!(inbox.take().is_none());
        mailbox.post(end(5)).unwrap();
        assert_eq!(id_of(inbox.take().unwrap()), 5, "there is room again");
    }

    #[test]
    fn a_request_that_is_not_taken_drops_its_reply_so_that_the_asker_hears_of_it() {
        let (mailbox, inbox) = mailbox(1, Arc::new(Knocks::default()));
        drop(inbox);
        let (sender, answer) = mpsc::channel();
        let reply = Box::new(move |found| sender.send(found).unwrap());
        let refused = mailbox.post(Request::End { id: AllocationId(1), reply });
        assert_eq!(refused, Err(PostError::Gone));
        assert!(answer.recv().is_err());
    }

    #[test]
    fn many_threads_lose_nothing_and_each_keeps_its_own_order() {
        const THREADS: u64 = 4;
        const EACH: u64 = 1000;
        let (mailbox, inbox) = mailbox((THREADS * EACH) as usize, Arc::new(Knocks::default()));
        let start = Barrier::new(THREADS as usize);
        thread::scope(|scope| {
            for thread in 0..THREADS {
                let (mailbox, start) = (mailbox.clone(), &start);
                scope.spawn(move || {
                    start.wait();
                    for n in 0..EACH {
                        mailbox.post(end(thread << 32 | n)).unwrap();
                    }
                });
            }
            let mut next = [0; THREADS as usize];
            let mut taken = 0;
            while taken < THREADS * EACH {
                let Some(request) = inbox.take() else {
                    thread::yield_now();
                    continue;
                };
                let id = id_of(request);
                let expected = &mut next[(id >> 32) as usize];
                assert_eq!(id & 0xFFFF_FFFF, *expected);
                *expected += 1;
                taken += 1;
            }
        });
        assert!(inbox.take().is_none());
    }
}
