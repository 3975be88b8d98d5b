//! Queries to the peer during a run.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::engine::client::ClientSource;
use crate::engine::control::{Body, Message, Report};
use crate::engine::handshake::refusal;
use crate::engine::receiver::Word;

/// Time after which an answer is lost.
const REPEAT: Duration = Duration::from_millis(50);

/// The flow of queries and answers.
pub(crate) struct Line<'a> {
    pub(crate) run: u32,
    /// Of flow 0 alone.
    pub(crate) source: &'a mut ClientSource,
    pub(crate) words: &'a Receiver<Word>,
    /// Set when a receiver failed.
    pub(crate) halt: &'a AtomicBool,
    pub(crate) peer: SocketAddr,
    /// Number of queries.
    pub(crate) asked: u32,
}

impl Line<'_> {
    pub(crate) fn send(&mut self, body: Body) {
        self.source.send_one(0, &Message { run: self.run, body }.encode());
    }

    /// The next message of this run, within `patience`.
    ///
    /// # Errors
    /// The peer refuses, or a receiver failed.
    pub(crate) fn hear(&self, patience: Duration) -> Result<Option<Body>> {
        let until = Instant::now() + patience;
        loop {
            if self.halt.load(Relaxed) {
                bail!("the run was ended");
            }
            let left = until.saturating_duration_since(Instant::now());
            match self.words.recv_timeout(left) {
                Ok((_, Message { run, .. })) if run != self.run => {}
                Ok((_, Message { body: Body::Refused { reason }, .. })) => {
                    bail!("{}", refusal(reason, self.peer))
                }
                Ok((_, Message { body, .. })) => return Ok(Some(body)),
                Err(_) => return Ok(None),
            }
        }
    }

    /// Repeats a message until there is an answer, for at most `patience`.
    ///
    /// # Errors
    /// As [`Line::hear`].
    pub(crate) fn ask<T>(
        &mut self,
        question: Body,
        patience: Duration,
        answer: impl Fn(&Body) -> Option<T>,
    ) -> Result<Option<T>> {
        let until = Instant::now() + patience;
        while Instant::now() < until {
            self.send(question);
            let repeat = (Instant::now() + REPEAT).min(until);
            while let left = repeat.saturating_duration_since(Instant::now())
                && !left.is_zero()
            {
                match self.hear(left)?.as_ref().and_then(&answer) {
                    None => {}
                    found => return Ok(found),
                }
            }
        }
        Ok(None)
    }

    /// Queries the peer's counts.
    ///
    /// # Errors
    /// As [`Line::hear`].
    pub(crate) fn report(&mut self, patience: Duration) -> Result<Option<Report>> {
        self.asked += 1;
        let wanted = self.asked;
        self.ask(Body::Query { number: wanted }, patience, |body| {
            if let Body::Report { number, report } = body
                && *number == wanted
            {
                Some(*report)
            } else {
                None
            }
        })
    }
}
