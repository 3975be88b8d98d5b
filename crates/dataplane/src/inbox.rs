//! What the control plane wants, between two batches.

use control::{Request, Session, SessionFilter};
use turn_proto::{AllocationRecord, EndReason, Event};
use turn_types::Now;

use crate::limits::REQUESTS_PER_TURN;
use crate::worker::Worker;

impl Worker {
    /// Carries out requests; true when more may wait.
    pub(crate) fn serve_inbox(&mut self) -> bool {
        for _ in 0..REQUESTS_PER_TURN {
            let Some(request) = self.inbox.take() else { return false };
            self.serve_request(self.now, request);
        }
        true
    }

    fn serve_request(&mut self, now: Now, request: Request) {
        match request {
            Request::Apply { policy, done } => {
                self.sockets.exclude_listening_ports(&policy);
                self.server.apply(now, policy);
                self.settle(now);
                done(());
            }
            Request::List { filter, limit, reply } => reply(self.list(&filter, limit)),
            Request::End { id, reply } => {
                let ended = self.server.end_for_operator(now, id);
                self.settle(now);
                reply(ended);
            }
            Request::Drain(on) => self.server.drain(on),
            Request::UserFound { pending, answer } => {
                self.hand_in(now, Event::UserFound { pending, answer });
                self.settle(now);
            }
            Request::Stop => self.stopping = true,
        }
    }

    /// With what the kernel relayed for each of them up to this moment.
    fn list(&mut self, filter: &SessionFilter, limit: usize) -> Vec<Session> {
        let Self { server, fast_path, observer, .. } = self;
        let taken = server.allocations().filter(|record| filter.takes(record)).take(limit);
        let records: Vec<AllocationRecord> = taken.collect();
        let complete = |mut record: AllocationRecord| {
            let traffic = fast_path.sweep_allocation(record.id, server, observer.counters());
            record.traffic.add(&traffic);
            Session { offload: fast_path.of(&record), record }
        };
        records.into_iter().map(complete).collect()
    }

    /// Ends all allocations, and forgets the requests that wait: the server ends.
    pub(crate) fn end_all(&mut self) {
        self.server.end_all(self.now, EndReason::Shutdown);
        self.settle(self.now);
    }
}
