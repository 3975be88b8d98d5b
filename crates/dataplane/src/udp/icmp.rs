//! ICMP errors about datagrams sent to peers (RFC 8656 §11.5).

use control::Series;
use turn_proto::{DropReason, IcmpReport};
use turn_types::{PeerAddr, RelayId};

use crate::context::{Connections, Context, Output};
use crate::io::{Net, UdpIo as _};
use crate::report::Sent;

/// Empties the error queue of a relay socket, and reports the errors to the clients.
pub(crate) fn serve_error_queue<N: Net>(
    cx: &mut Context<N>,
    clients: &mut impl Connections<N>,
    number: RelayId,
) {
    let Context { rx, egress, server, sockets, observer, reply, now, .. } = cx;
    // The socket may have been closed after the report.
    let Some(from) = sockets.relay(number) else { return };
    let sharing = sockets.relays_of(number);
    let outcome = from.socket.take_errors(|error| {
        // The send call has already returned errors of this host.
        let Some(icmp) = error.icmp else { return };
        observer.count(Series::IcmpErrors, 1);
        let relay = match sharing {
            None => Some(number),
            Some(relays) => error.local.and_then(|local| relays.get(&local)).copied(),
        };
        let Some(relay) = relay else { return egress.dropped(DropReason::RelayClosed) };
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
