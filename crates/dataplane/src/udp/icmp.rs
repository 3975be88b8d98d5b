//! ICMP errors about datagrams sent to peers (RFC 8656 §11.5).

use control::Series;
use turn_proto::IcmpReport;
use turn_types::{PeerAddr, RelayId};

use crate::context::{Connections, Context, Output};
use crate::io::{Net, UdpIo as _};
use crate::report::Sent;

/// Empties the error queue of a relay socket, and reports its errors to the client.
pub(crate) fn serve_error_queue<N: Net>(
    cx: &mut Context<N>,
    clients: &mut impl Connections<N>,
    relay: RelayId,
) {
    let Context { rx, egress, server, sockets, observer, reply, now, .. } = cx;
    // Closed since it was reported.
    let Some(from) = sockets.relay(relay) else { return };
    let outcome = from.socket.take_errors(|error| {
        // Errors of this host were returned by the send call already.
        let Some(icmp) = error.icmp else { return };
        observer.count(Series::IcmpErrors, 1);
        let report = IcmpReport {
            family: icmp.family,
            kind: icmp.kind,
            code: icmp.code,
            data: icmp.mtu_or_zero,
        };
        match server.handle_icmp(*now, relay, PeerAddr(error.peer), report, reply) {
            Ok(answer) => Output { egress: &mut *egress, rx, sockets }.answer(
                clients,
                answer,
                reply,
                Sent::IcmpReported,
            ),
            Err(reason) => egress.dropped(reason),
        }
    });
    if outcome.is_err() {
        observer.count(Series::ReceiveErrors, 1);
    }
}
