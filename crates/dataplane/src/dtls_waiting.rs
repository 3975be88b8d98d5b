//! DTLS handshakes wait for processor time, and are served in the first turn of the loop that has some.

use std::convert::Infallible;
use std::ops::Range;

use control::{AssociationRefusal, Fate, Series};
use turn_proto::DropReason;
use turn_types::{ClientPath, FiveTuple};

use crate::dtls::Newcomer;
use crate::handshake_queue::{Part, Pushed, Waiting};
use crate::handshakes::{NoTime, Step};
use crate::worker::Worker;

impl Worker {
    /// Has part of a handshake wait for the next turn. It has its fate when it is served or dropped.
    pub(crate) fn queue_handshake(
        &mut self,
        five_tuple: FiveTuple,
        part: Part,
        (message, range): (usize, Range<usize>),
    ) {
        let bytes = &self.rx.message(message).data[range];
        match self.handshake_queue.push(self.now.instant, five_tuple, part, bytes) {
            Pushed::Queued => {}
            Pushed::Repeated => self.observer.count(Series::Fate(Fate::Dtls), 1),
            Pushed::Dropped(five_tuple, part) => self.drop_handshake(&five_tuple, part),
        }
    }

    /// Serves what waits, while this turn has time for it.
    pub(crate) fn serve_handshake_queue(&mut self) {
        let now = self.now.instant;
        let is_by_customer = self.dtls_admission.is_by_customer();
        let mut position = 0;
        loop {
            let Self { handshakes, handshake_queue, .. } = self;
            let next = handshake_queue.take_next(now, &mut position, |customer, part| {
                let step = match part {
                    _ if !is_by_customer => Step::Unshared,
                    Part::Hello { .. } => Step::Begin,
                    Part::Records(_) => Step::Continue,
                };
                // One whose customer has used its share is served with a refusal.
                handshakes.admit(now, customer, step) != Err(NoTime::Turn)
            });
            match next {
                Some(waiting) if waiting.is_stale(now) => {
                    self.drop_handshake(&waiting.five_tuple, waiting.part);
                }
                Some(waiting) => self.serve_waiting(&waiting),
                None => return,
            }
        }
    }

    /// Serves a datagram as if it came now.
    fn serve_waiting(&mut self, waiting: &Waiting) {
        let Waiting { five_tuple, part, bytes, .. } = waiting;
        self.make_room_to_receive();
        let filled = self.rx.fill(five_tuple.client.0, |room| {
            room[..bytes.len()].copy_from_slice(bytes);
            Ok::<_, Infallible>(bytes.len())
        });
        let Ok(filled) = filled;
        let Some(message) = filled else {
            // Room was made, so not reached; counted all the same.
            return self.drop_handshake(five_tuple, *part);
        };
        let range = 0..bytes.len();
        match *part {
            Part::Hello { listener, .. } => {
                let path = ClientPath { five_tuple: *five_tuple, socket: listener };
                let known = self.associations.find(&(five_tuple.client.0, five_tuple.server.0));
                self.take_hello(&Newcomer { message, range, path, known });
            }
            Part::Records(id) => self.take_records_within_share(message, &[range], id),
        }
    }

    /// Drops all that waits: the server ends.
    pub(crate) fn drop_handshake_queue(&mut self) {
        while let Some(waiting) = self.handshake_queue.pop() {
            self.drop_handshake(&waiting.five_tuple, waiting.part);
        }
    }

    /// Drops part of a handshake for which no turn had time.
    fn drop_handshake(&mut self, five_tuple: &FiveTuple, part: Part) {
        self.warn_of_handshakes(five_tuple.client.0.ip(), NoTime::Turn);
        match part {
            Part::Hello { .. } => self.count_refused(AssociationRefusal::Busy),
            Part::Records(_) => self.egress.dropped(DropReason::DtlsBusy),
        }
    }
}
