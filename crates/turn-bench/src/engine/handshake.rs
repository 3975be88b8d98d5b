//! Registration of every flow with the peer before a run, which also tests every flow.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};

use crate::engine::client::ClientSource;
use crate::engine::control::{Body, Message, Refusal};
use crate::engine::receiver::Word;

/// Concurrent handshakes: too few to overflow a server's socket.
const IN_FLIGHT: usize = 128;

/// Time after which an answer is lost.
const REPEAT: Duration = Duration::from_millis(250);

/// Hellos of one flow without an answer until the peer counts as absent: 3 s. Over a stream 15 s:
/// queued packets of an earlier run precede them.
pub(crate) const TRIES: u32 = 12;
pub(crate) const STREAM_TRIES: u32 = 60;

/// Wait for a message before repetitions are checked.
const LOOK: Duration = Duration::from_millis(10);

/// State of the handshakes of a run.
pub(crate) struct Handshake<'a> {
    pub(crate) run: u32,
    /// The flows, each with the source of its number modulo their count.
    pub(crate) sources: &'a mut [ClientSource],
    /// The token of each flow, from earlier runs, or 0.
    pub(crate) tokens: &'a mut [u64],
    pub(crate) words: &'a Receiver<Word>,
    /// Set when a receiver failed.
    pub(crate) halt: &'a AtomicBool,
    pub(crate) peer: SocketAddr,
    /// Hellos of one flow until the peer counts as absent.
    pub(crate) tries: u32,
}

#[derive(Clone, Copy)]
struct Waiting {
    flow: u32,
    since: Instant,
    tries: u32,
}

impl Handshake<'_> {
    /// Registers flows 0 to `flows`.
    ///
    /// # Errors
    /// Flows without an answer; a peer that refuses.
    pub(crate) fn complete(mut self, flows: u32) -> Result<()> {
        let mut welcome = vec![false; flows as usize];
        let (mut next, mut done) = (0, 0);
        let mut waiting: VecDeque<Waiting> = VecDeque::new();
        while done < flows && !self.halt.load(Relaxed) {
            while waiting.len() < IN_FLIGHT && next < flows {
                self.hello(next);
                waiting.push_back(Waiting { flow: next, since: Instant::now(), tries: 1 });
                next += 1;
            }
            if let Ok((flow, message)) = self.words.recv_timeout(LOOK) {
                done += u32::from(self.hear(flow, &message, &mut welcome)?);
            }
            while let Some(first) = waiting.front().copied() {
                let heard = welcome[first.flow as usize];
                if !heard && first.since.elapsed() < REPEAT {
                    break;
                }
                waiting.pop_front();
                if !heard {
                    self.repeat(first, &mut waiting, (done, flows))?;
                }
            }
        }
        Ok(())
    }

    fn hello(&mut self, flow: u32) {
        let body = Body::Hello { flow, token: self.tokens[flow as usize] };
        let message = Message { run: self.run, body }.encode();
        let sources = self.sources.len();
        self.sources[flow as usize % sources].send_one(flow as usize / sources, &message);
    }

    fn repeat(
        &mut self,
        one: Waiting,
        waiting: &mut VecDeque<Waiting>,
        (done, flows): (u32, u32),
    ) -> Result<()> {
        let peer = self.peer;
        if one.tries >= self.tries && done == 0 {
            bail!(
                "nothing answers at {peer} through the relay: is `turnpike-bench peer --listen \
                 {peer}` running there, and may the server send to it?"
            );
        }
        ensure!(
            one.tries < self.tries,
            "the peer at {peer} answers on {done} of {flows} flows, but not on flow {}: is the \
             server, or the way to the peer, overloaded?",
            one.flow
        );
        self.hello(one.flow);
        waiting.push_back(Waiting { since: Instant::now(), tries: one.tries + 1, ..one });
        Ok(())
    }

    /// Returns `true` when a message registers a flow.
    fn hear(&mut self, from: u32, message: &Message, welcome: &mut [bool]) -> Result<bool> {
        if message.run != self.run || from as usize >= welcome.len() {
            return Ok(false);
        }
        if let Body::Refused { reason } = message.body {
            bail!("{}", refusal(reason, self.peer));
        }
        if let Body::Challenge { flow, token } = message.body
            && flow == from
        {
            self.tokens[flow as usize] = token;
            self.hello(flow);
        }
        let welcomed = message.body == Body::Welcome { flow: from };
        Ok(welcomed && !std::mem::replace(&mut welcome[from as usize], true))
    }
}

/// Text of a peer's refusal.
pub(crate) fn refusal(reason: Refusal, peer: SocketAddr) -> String {
    let reason = match reason {
        Refusal::Full => "is at its limit of flows or runs: other loads use it",
        Refusal::Unknown => "does not know the run: it restarted, or received nothing",
        Refusal::Unable => "cannot execute the run: it is longer than a day, or see the peer's log",
    };
    format!("the peer at {peer} {reason}")
}
