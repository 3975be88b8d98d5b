//! One run with registered flows: start, send, wait, query, add up.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail};

use crate::cpu::Meters;
use crate::engine::backend::{Ends, Gauge, Sent, Sink, Source};
use crate::engine::client::ClientSource;
use crate::engine::clock::{self, ClockId};
use crate::engine::control::{Body, Report, START_LEAD};
use crate::engine::counts::Counts;
use crate::engine::line::Line;
use crate::engine::plan::Plan;
use crate::engine::progress::{Progress, Sample};
use crate::engine::tally::Tally;
use crate::outcome::{Latency, Traffic, Used};
use crate::traffic::{Backend, Direction, TrafficSpec, Transport};

/// Time for the last packets to arrive.
const GRACE: Duration = Duration::from_millis(200);

/// Time from the announcement of a run to its first packet; doubled each time the answer is late.
const LEAD: Duration = Duration::from_millis(50);
const LEAD_MAX: Duration = Duration::from_secs(2);

/// Time for the final report of the peer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Interval of queries during a run: the peer takes silence for the end.
const ASK: Duration = Duration::from_millis(250);

/// Packets sent by a source, on a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Meter(AtomicU64);

/// One run.
pub(crate) struct Run<'a> {
    pub(crate) line: Line<'a>,
    pub(crate) spec: &'a TrafficSpec,
    pub(crate) flows: u32,
    pub(crate) backend: Backend,
    pub(crate) transport: Transport,
    pub(crate) sources: &'a mut [ClientSource],
    pub(crate) counts: &'a Counts,
    /// Backend in place of sockets.
    pub(crate) ends: Option<&'a dyn Ends>,
    pub(crate) clock: ClockId,
    pub(crate) meters: &'a mut Meters,
    pub(crate) progress: Progress,
}

/// A run that both ends agreed on.
#[derive(Clone, Copy)]
struct Begun {
    plan: Plan,
    /// The plan's begin by our own clock; where the peer sends, perhaps a little late.
    begin: u64,
    one_clock: bool,
}

impl Run<'_> {
    /// Executes the run.
    ///
    /// # Errors
    /// A peer that falls silent or refuses, a source that cannot send.
    pub(crate) fn go(mut self) -> Result<Traffic> {
        let result = self.steps();
        // The peer need not wait for more, nor send more.
        self.line.send(Body::Stop);
        result
    }

    fn steps(&mut self) -> Result<Traffic> {
        let begun = match self.spec.direction {
            Direction::ClientToPeer | Direction::Echo => self.start_own()?,
            Direction::PeerToClient => self.start_peers()?,
        };
        for sink in self.sinks() {
            sink.begin(&begun.plan, begun.one_clock || self.spec.direction == Direction::Echo)?;
        }
        let (own, used) = match self.spec.direction {
            Direction::ClientToPeer | Direction::Echo => self.send(&begun)?,
            Direction::PeerToClient => {
                (Sent::default(), self.watch(&begun, &[], || clock::now() >= begun.end())?)
            }
        };
        self.progress.finish();
        thread::sleep(GRACE);
        let report = self.last_report()?;
        let traffic = self.outcome(&own, &report)?;
        Ok(Traffic { used, ..traffic })
    }

    fn sinks(&self) -> impl Iterator<Item = &dyn Sink> {
        let counts: &dyn Sink = self.counts;
        [Some(counts), self.ends.map(Ends::sink)].into_iter().flatten()
    }

    /// Announces a run that we send, and returns in time for its begin.
    fn start_own(&mut self) -> Result<Begun> {
        let mut lead = LEAD;
        while lead <= LEAD_MAX {
            let begin = clock::now() + u64::try_from(lead.as_nanos()).unwrap_or(u64::MAX);
            let plan = Plan::new(self.line.run, self.spec, self.flows, begin);
            let question = Body::Start { plan, clock: self.clock };
            // A response to an earlier plan may be late.
            let answer = |body: &Body| started(body).filter(|(told, _)| *told == plan);
            if let Some((_, theirs)) = self.line.ask(question, lead, answer)?
                && clock::now() < begin
            {
                return Ok(Begun { plan, begin, one_clock: theirs == self.clock });
            }
            lead *= 2;
        }
        bail!("{}", silent(&self.line))
    }

    /// Starts a run that the peer sends.
    fn start_peers(&mut self) -> Result<Begun> {
        // Only its specification counts: the peer sets the times.
        let plan = Plan::new(self.line.run, self.spec, self.flows, 0);
        let question = Body::Start { plan, clock: self.clock };
        let answer = self.line.ask(question, PATIENCE, started)?;
        let (plan, theirs) = answer.with_context(|| silent(&self.line))?;
        let one_clock = theirs == self.clock;
        let lead = u64::try_from(START_LEAD.as_nanos()).unwrap_or(u64::MAX);
        let begin = if one_clock { plan.begin } else { clock::now().saturating_add(lead) };
        Ok(Begun { plan, begin, one_clock })
    }

    /// Runs the sources to their end.
    fn send(&mut self, begun: &Begun) -> Result<(Sent, Used)> {
        let plan = &begun.plan;
        let targets = || self.sources.iter().flat_map(ClientSource::targets).collect::<Vec<_>>();
        let mut made = match self.ends {
            Some(ends) => ends.sources(plan, &targets())?,
            None => Vec::new(),
        };
        let sockets = std::mem::take(&mut self.sources);
        let sources: Vec<&mut dyn Source> = if made.is_empty() {
            sockets.iter_mut().map(|source| source as _).collect()
        } else {
            made.iter_mut().map(|source| &mut **source as _).collect()
        };
        let meters: Vec<Meter> = sources.iter().map(|_| Meter::default()).collect();
        let halt = self.line.halt;
        thread::scope(|scope| {
            let threads: Vec<_> = sources
                .into_iter()
                .zip(&meters)
                .map(|(source, meter)| {
                    let gauge = Gauge { sent: &meter.0, halt };
                    scope.spawn(move || source.run(plan, gauge))
                })
                .collect();
            let watched = self.watch(begun, &meters, || threads.iter().all(|t| t.is_finished()));
            if watched.is_err() {
                halt.store(true, Relaxed);
            }
            let mut sent = Sent::default();
            for thread in threads {
                sent.add(&thread.join().unwrap_or_else(|_| Err(anyhow!("a sender panicked")))?);
            }
            Ok((sent, watched?))
        })
    }

    /// Waits for the end, queries the peer, shows progress, and measures the cores and the process
    /// during the measured time.
    fn watch(&mut self, begun: &Begun, meters: &[Meter], over: impl Fn() -> bool) -> Result<Used> {
        let (mut measuring, mut used) = (false, None);
        let mut ask = Instant::now();
        while !over() {
            let now = clock::now();
            if !measuring && now >= begun.start() {
                measuring = true;
                self.meters.begin();
            }
            if measuring && now >= begun.end() && used.is_none() {
                used = Some(self.meters.end());
            }
            if Instant::now() >= ask {
                ask = Instant::now() + ASK;
                self.line.asked += 1;
                self.line.send(Body::Query { number: self.line.asked });
            }
            let next = if measuring { begun.end() } else { begun.start() };
            let patience = Duration::from_nanos(next.saturating_sub(now).max(1_000_000)).min(ASK);
            if let Some(Body::Report { report, .. }) = self.line.hear(patience)? {
                self.show(meters, &report)?;
            }
        }
        Ok(used.unwrap_or_else(|| self.meters.end()))
    }

    fn show(&mut self, meters: &[Meter], report: &Report) -> Result<()> {
        if self.progress.is_off() {
            return Ok(());
        }
        let own: u64 = meters.iter().map(|meter| meter.0.load(Relaxed)).sum();
        let (sent, received, latency) = match self.spec.direction {
            Direction::ClientToPeer => (own, report.so_far, report.latency),
            Direction::Echo | Direction::PeerToClient => {
                let tally = self.tally()?;
                let sent = if meters.is_empty() { report.so_far } else { own };
                (sent, tally.received, Latency::of(&tally.latency))
            }
        };
        self.progress.show(Sample { at: Instant::now(), sent, received, latency });
        Ok(())
    }

    fn tally(&self) -> Result<Tally> {
        let mut sum = Tally::new();
        for sink in self.sinks() {
            sum.add(&sink.tally()?);
        }
        Ok(sum)
    }

    /// The final report of the peer.
    fn last_report(&mut self) -> Result<Report> {
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            match self.line.report(PATIENCE)? {
                Some(report) if report.done => return Ok(report),
                // It sends by its own clock, and is not done yet.
                Some(_) => thread::sleep(GRACE / 4),
                None => break,
            }
        }
        bail!("{}", silent(&self.line))
    }

    fn outcome(&self, own: &Sent, report: &Report) -> Result<Traffic> {
        let tally = self.tally()?;
        let theirs = Sent {
            sent: report.sent,
            refused: report.refused,
            scheduled: report.scheduled,
            missed: report.missed,
        };
        let (sent, far) = match self.spec.direction {
            Direction::ClientToPeer => (own, true),
            Direction::Echo => (own, false),
            Direction::PeerToClient => (&theirs, false),
        };
        let latency = if far { report.latency } else { Latency::of(&tally.latency) };
        let choose = |theirs, ours| if far { theirs } else { ours };
        Ok(Traffic {
            spec: *self.spec,
            backend: self.backend,
            transport: self.transport,
            flows: self.flows,
            sent: sent.sent,
            refused: sent.refused,
            behind: sent.missed as f64 / sent.scheduled.max(1) as f64,
            delivered: choose(report.delivered, tally.delivered),
            duplicates: choose(report.duplicates, tally.duplicates),
            reordered: choose(report.reordered, tally.reordered),
            damaged: choose(report.damaged, tally.damaged),
            dropped: report.dropped,
            latency,
            used: Used::default(),
        })
    }
}

impl Begun {
    /// The begin of the measured time, by our own clock.
    const fn start(&self) -> u64 {
        self.begin + (self.plan.window.start - self.plan.begin)
    }

    /// The end of the measured time, by our own clock.
    const fn end(&self) -> u64 {
        self.begin + (self.plan.window.end - self.plan.begin)
    }
}

fn started(body: &Body) -> Option<(Plan, ClockId)> {
    if let Body::Started { plan, clock } = body { Some((*plan, *clock)) } else { None }
}

fn silent(line: &Line<'_>) -> String {
    format!(
        "the peer at {} answered before, but no longer: did it end, or is the server overloaded?",
        line.peer
    )
}
