//! Sessions that are open, and runs of traffic over them.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::sync_channel;
use std::thread;

use anyhow::{Context as _, Result, anyhow, bail, ensure};

use crate::cpu::{Meters, Watched};
use crate::engine::backend::{Ends, Sink as _, Target};
use crate::engine::client::ClientSource;
use crate::engine::clock::ClockId;
use crate::engine::counts::Counts;
use crate::engine::handshake::{Handshake, STREAM_TRIES, TRIES};
use crate::engine::line::Line;
use crate::engine::progress::Progress;
use crate::engine::receiver::{Assignment, Receiver};
use crate::engine::run::Run;
use crate::outcome::Traffic;
use crate::packet::HEADER;
use crate::session::{self, Session, SessionOptions};
use crate::traffic::{Backend, TrafficSpec, Transport};

/// The largest payload: with the headers of a relayed packet, in IPv6 too, it fits a link of 1500
/// bytes.
const SIZE_MAX: u16 = 1400;

/// The longest run that a peer is asked for, warm-up and all.
const RUN_SECONDS_MAX: u64 = 24 * 3600;

/// Capacity for messages of the peer: two for each flow in a handshake, with room to spare. Beyond
/// it they are lost, and requested again.
const WORDS: usize = 1024;

/// Options of a bench, for many runs.
#[derive(Clone, Debug)]
pub struct BenchOptions {
    /// The sessions: one flow each.
    pub sessions: SessionOptions,
    /// Threads that send, 1 or more.
    pub senders: usize,
    /// Threads that receive, 1 or more.
    pub receivers: usize,
    /// Cores and process to watch during each run.
    pub watched: Watched,
    /// Hides progress on standard error.
    pub quiet: bool,
}

/// Open sessions, divided among threads.
pub struct Bench {
    sources: Vec<ClientSource>,
    receivers: Vec<Receiver>,
    /// Sends on flow 0 while the sources are busy.
    line: ClientSource,
    counts: Counts,
    /// The peer's token for each flow, once it is known.
    tokens: Vec<u64>,
    clock: ClockId,
    meters: Meters,
    ends: Option<Box<dyn Ends>>,
    peer: SocketAddr,
    transport: Transport,
    quiet: bool,
}

impl Bench {
    /// Opens the sessions and starts the meters.
    ///
    /// # Errors
    /// The server's refusal of a session; a core or a process that cannot be watched.
    pub fn open(options: &BenchOptions) -> Result<Self> {
        ensure!(options.sessions.sessions > 0, "without sessions there is nothing to measure");
        // All that can fail without a server comes first.
        let meters = Meters::start(&options.watched)?;
        let sessions = session::open(&options.sessions)?;
        let count = sessions.len();
        let (senders, receivers) = (options.senders.max(1), options.receivers.max(1));
        let handle = |session: &Session| session.wire.share().context("a second handle");
        let line = vec![(target(0, &sessions[0]), handle(&sessions[0])?)];
        let mut handles: Vec<Vec<_>> = (0..senders.min(count)).map(|_| Vec::new()).collect();
        let mut members: Vec<Vec<_>> = (0..receivers.min(count)).map(|_| Vec::new()).collect();
        for (flow, session) in (0_u32..).zip(sessions) {
            let index = flow as usize;
            let sender = index % handles.len();
            handles[sender].push((target(flow, &session), handle(&session)?));
            let receiver = index % members.len();
            members[receiver].push((flow, session));
        }
        Ok(Self {
            counts: Counts::new(members.len()),
            sources: handles.into_iter().map(ClientSource::of_sessions).collect(),
            receivers: members.into_iter().map(Receiver::new).collect::<Result<_>>()?,
            line: ClientSource::of_sessions(line),
            tokens: vec![0; count],
            clock: ClockId::own(),
            meters,
            ends: None,
            peer: options.sessions.peer,
            transport: options.sessions.transport,
            quiet: options.quiet,
        })
    }

    /// Adds a backend for frames.
    pub fn with_frames(&mut self, ends: Box<dyn Ends>) {
        self.ends = Some(ends);
    }

    /// Number of open sessions.
    #[must_use]
    pub fn sessions(&self) -> u32 {
        u32::try_from(self.tokens.len()).unwrap_or(u32::MAX)
    }

    /// One run of traffic over the first `flows` sessions.
    ///
    /// # Errors
    /// A specification that cannot be followed; a peer that does not answer; a session that the
    /// server ended. Lost packets are no error.
    pub fn run(&mut self, spec: &TrafficSpec, flows: u32, backend: Backend) -> Result<Traffic> {
        check(spec)?;
        ensure!(flows > 0, "a run has at least one flow");
        ensure!(flows <= self.sessions(), "{flows} flows want as many sessions");
        ensure!(
            backend == Backend::Sockets || !self.transport.has_connections(),
            "clients send frames of UDP alone: leave out --backend frames"
        );
        let ends = match (backend, &self.ends) {
            (Backend::Sockets, _) => None,
            (Backend::Frames, Some(ends)) => Some(&**ends),
            (Backend::Frames, None) => bail!("frames want an --interface to leave and arrive by"),
        };
        let run = u32::from_be_bytes(linux_net::random_bytes()).max(1);
        self.counts.expect(run, spec.size)?;
        if let Some(ends) = ends {
            ends.sink().expect(run, spec.size)?;
        }
        self.sources.iter_mut().for_each(|source| source.restrict(flows));
        let dropped_before = dropped(&self.receivers);

        let halt = AtomicBool::new(false);
        let (told, words) = sync_channel(WORDS);
        let Self { sources, receivers, line, counts, tokens, meters, .. } = self;
        let (counts, clock, peer, quiet) = (&*counts, self.clock, self.peer, self.quiet);
        let transport = self.transport;
        let tries = if transport.is_stream() { STREAM_TRIES } else { TRIES };
        let result = thread::scope(|scope| {
            let receiving: Vec<_> = receivers
                .iter_mut()
                .enumerate()
                .map(|(thread, receiver)| {
                    let (told, halt) = (told.clone(), &halt);
                    scope.spawn(move || {
                        receiver.run(Assignment { thread, counts, words: &told, halt })
                    })
                })
                .collect();
            let handshake =
                Handshake { run, sources, tokens, words: &words, halt: &halt, peer, tries };
            let outcome = handshake.complete(flows).and_then(|()| {
                let line = Line { run, source: line, words: &words, halt: &halt, peer, asked: 0 };
                let progress = Progress::new(quiet);
                Run {
                    line,
                    spec,
                    flows,
                    backend,
                    transport,
                    sources,
                    counts,
                    ends,
                    clock,
                    meters,
                    progress,
                }
                .go()
            });
            halt.store(true, Relaxed);
            // A receiver's failure is the cause of others.
            for thread in receiving {
                thread.join().unwrap_or_else(|_| Err(anyhow!("a receiver panicked")))?;
            }
            outcome
        });
        let mut traffic = result?;
        traffic.dropped += dropped(&self.receivers) - dropped_before;
        Ok(traffic)
    }

    /// Releases the allocations, and returns how many releases the server did not confirm.
    pub fn close(self) -> usize {
        session::close(self.receivers.into_iter().flat_map(Receiver::into_sessions).collect())
    }
}

fn dropped(receivers: &[Receiver]) -> u64 {
    receivers.iter().map(Receiver::dropped).sum()
}

fn target(flow: u32, session: &Session) -> Target {
    let channel = Some(session.channel);
    Target { flow, from: session.wire.local_addr(), to: session.client.server().0, channel }
}

fn check(spec: &TrafficSpec) -> Result<()> {
    let size = usize::from(spec.size);
    ensure!(
        (HEADER..=usize::from(SIZE_MAX)).contains(&size),
        "packets have {HEADER} to {SIZE_MAX} bytes, not {size}"
    );
    ensure!(!spec.duration.is_zero(), "a run takes longer than nothing");
    ensure!(spec.rate != Some(0), "a rate of 0 sends nothing");
    let seconds = spec.warm_up.as_secs().saturating_add(spec.duration.as_secs());
    ensure!(seconds < RUN_SECONDS_MAX, "a run takes at most a day");
    Ok(())
}
