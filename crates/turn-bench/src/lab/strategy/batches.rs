//! Many packets per system call, by the batches that the server uses.

use std::io;

use linux_net::{Epoll, Events, Flow, Interest, Part, RxBatch, SendSocket, SendStats, TxBatch};
use turn_types::IpMeta;

use crate::lab::protocol::SessionId;
use crate::lab::relay::{LOOK_UP, Lane, Tally};
use crate::lab::sessions::OwnSessions;

/// Messages per receive call.
const MESSAGES: usize = 32;

/// Relays with `tx`, which says whether runs are sent as such, until the lane says to stop.
pub(super) fn run(lane: &Lane, mut sessions: OwnSessions, mut tx: TxBatch) -> io::Result<Tally> {
    let epoll = Epoll::new()?;
    epoll.add(&lane.socket, 0, Interest::Read)?;
    let mut events = Events::new(1);
    let mut rx = RxBatch::new(MESSAGES);
    let (mut unknown, mut stats) = (0, SendStats::default());
    while lane.goes_on() {
        sessions.read_mail();
        if rx.recv(&lane.socket)? == 0 {
            epoll.wait(&mut events, Some(LOOK_UP))?;
            continue;
        }
        for message in 0..rx.len() {
            for (start, datagram) in rx.message(message).segments() {
                let client = SessionId::split(datagram).and_then(|(id, _)| sessions.client(id));
                let Some(to) = client else {
                    unknown += 1;
                    continue;
                };
                let flow = Flow { socket: SendSocket(0), to, from: None, meta: IpMeta::DEFAULT };
                let part = Part::Rx { message, start, len: datagram.len() };
                if tx.push(flow, &[part], 0).is_err() {
                    tx.flush(&rx, &lane.socket, &mut stats, |_, _| {});
                    let pushed = tx.push(flow, &[part], 0);
                    debug_assert!(pushed.is_ok(), "an empty batch takes a datagram");
                }
            }
        }
        tx.flush(&rx, &lane.socket, &mut stats, |_, _| {});
    }
    Ok(Tally { forwarded: stats.datagrams, unknown, refused: stats.failed })
}
