//! Making every flow known to the peer, and seeing every flow work, before a run.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};

use crate::engine::client::ClientSource;
use crate::engine::control::{Body, Message, Refusal};
use crate::engine::receiver::Word;

/// Flows that are greeted at the same time: no server's socket overflows by so few.
const IN_FLIGHT: usize = 128;

/// When an answer is taken for lost.
const REPEAT: Duration = Duration::from_millis(250);

/// How often one flow is greeted in vain before the peer is taken for absent: 3 s. Over a stream 15 s:
/// what an earlier run sent too much goes before it.
pub(crate) const TRIES: u32 = 12;
pub(crate) const STREAM_TRIES: u32 = 60;

/// How long to wait for a word before it is looked whether to repeat one.
const LOOK: Duration = Duration::from_millis(10);

/// What is needed to greet.
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
    /// How often one flow is greeted in vain before the peer is taken for absent.
    pub(crate) tries: u32,
}

#[derive(Clone, Copy)]
struct Waiting {
    flow: u32,
    since: Instant,
    tries: u32,
}

impl Handshake<'_> {
    /// Greets flows 0 to `flows` and returns when all are welcome.
    ///
    /// # Errors
    /// Flows that the peer does not hear or that do not hear the peer; a peer that refuses.
    pub(crate) fn greet(mut self, flows: u32) -> Result<()> {
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

    /// Whether a flow is welcome by this that was not before.
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

/// What a peer's refusal means.
pub(crate) fn refusal(reason: Refusal, peer: SocketAddr) -> String {
    let reason = match reason {
        Refusal::Full => "has as many flows or runs as it may; other loads use it",
        Refusal::Unknown => {
            "does not know the run: it was started again meanwhile, or heard nothing"
        }
        Refusal::Unable => "cannot do this: the run is longer than a day, or its log tells more",
    };
    format!("the peer at {peer} {reason}")
}
