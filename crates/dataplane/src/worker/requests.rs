//! Requests of the control plane, served between two batches.

use control::{Request, Session, SessionFilter};
use turn_proto::{AllocationPeers, AllocationRecord, Event};
use turn_types::AllocationId;

use super::Worker;
use crate::io::Net;
use crate::limits::REQUESTS_PER_TURN;

impl<N: Net> Worker<N> {
    /// Serves requests of the control plane.
    pub(super) fn serve_requests(&mut self) {
        for _ in 0..REQUESTS_PER_TURN {
            let Some(request) = self.inbox.take() else { return };
            self.serve_request(request);
        }
        // More requests may wait.
        self.is_busy = true;
    }

    fn serve_request(&mut self, request: Request) {
        let now = self.cx.now;
        // The successor has the allocations, so an empty response would be wrong.
        let is_own = matches!(
            request,
            Request::Refusals { .. } | Request::CountTraffic { .. } | Request::Stop
        );
        if self.handover.is_retired() && !is_own {
            return;
        }
        match request {
            Request::Apply { policy, done } => {
                self.exclude_listening_ports(&policy);
                self.cx.server.apply(now, policy);
                self.settle();
                done(());
            }
            Request::List { filter, limit, reply } => reply(self.list(&filter, limit)),
            Request::Show { id, reply } => reply(self.show(id)),
            Request::End { id, reply } => {
                let ended = self.cx.server.end_for_operator(now, id);
                self.settle();
                self.send_removed();
                reply(ended);
            }
            Request::Limit { id, limits, reply } => {
                let limited = self.cx.server.limit(now.instant, id, &limits);
                self.settle();
                reply(limited);
            }
            Request::EndUnaccepted { realm, after, limit, reply } => {
                let part = self.cx.server.end_unaccepted(now, realm.as_ref(), after, limit);
                self.settle();
                self.send_removed();
                reply(part);
            }
            Request::Refusals { filter, limit, reply } => {
                reply(self.cx.observer.recent_refusals(&filter, limit));
            }
            Request::Drain(on) => self.cx.server.drain(on),
            Request::CountTraffic { done } => {
                self.count_traffic();
                done(());
            }
            Request::UserFound { pending, answer } => {
                self.cx.lookup_ended(pending);
                self.hand_in(Event::UserFound { pending, answer });
                self.settle();
            }
            Request::Authorized { pending, answer } => {
                self.hand_in(Event::Authorized { pending, answer });
                self.settle();
            }
            Request::Stop => self.stopping = true,
        }
    }

    /// Returns sessions with up-to-date counters of the kernel.
    fn list(&mut self, filter: &SessionFilter, limit: usize) -> Vec<Session> {
        let server = &self.cx.server;
        let taken = server
            .allocations_after(filter.after)
            .filter(|record| filter.takes(record))
            .take(limit);
        let records: Vec<AllocationRecord> = taken.collect();
        records.into_iter().map(|record| self.complete(record)).collect()
    }

    fn show(&mut self, id: AllocationId) -> Option<(Session, AllocationPeers)> {
        let (record, peers) = self.cx.server.allocation(id)?;
        Some((self.complete(record), peers))
    }

    fn complete(&mut self, mut record: AllocationRecord) -> Session {
        let Self { cx, offload, .. } = self;
        let counters = cx.observer.counters();
        let traffic = offload.sweep_allocation(record.id, &mut cx.server, counters);
        record.credit(&traffic);
        Session { offload: offload.of(&record), record }
    }
}
