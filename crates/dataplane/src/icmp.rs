//! ICMP errors about datagrams sent to peers (RFC 8656 §11.5).

use control::Series;
use turn_proto::IcmpReport;
use turn_types::{PeerAddr, RelayId};

use crate::egress::Ways;
use crate::tally::Sent;
use crate::worker::Worker;

impl Worker {
    /// Empties the error queue of a relay socket, and tells the client what the network said.
    pub(crate) fn serve_error_queue(&mut self, relay: RelayId) {
        let Self { rx, egress, server, sockets, streams, associations, observer, now, .. } = self;
        let now = *now;
        let sockets = &*sockets;
        // Closed since it was reported.
        let Some(from) = sockets.relay(relay) else { return };
        let outcome = from.socket.recv_errors(|error| {
            // What this host itself found wrong, the send call has said already.
            let Some(icmp) = error.icmp else { return };
            observer.count(Series::IcmpErrors, 1);
            let report = IcmpReport {
                family: icmp.family,
                kind: icmp.kind,
                code: icmp.code,
                data: icmp.mtu_or_zero,
            };
            egress.make_room(rx, sockets);
            let reply = egress.reply_buffer();
            match server.handle_icmp(now, relay, PeerAddr(error.peer), report, reply) {
                Ok(answer) => {
                    let ways =
                        Ways { sockets, streams: &mut *streams, associations: &mut *associations };
                    egress.answer(answer, Sent::IcmpReported, ways);
                }
                Err(reason) => egress.dropped(reason),
            }
        });
        if outcome.is_err() {
            observer.count(Series::ReceiveErrors, 1);
        }
        self.settle(now);
    }
}
