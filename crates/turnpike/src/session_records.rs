//! Outputs of session records: event queues, threads, and interim records of live sessions.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use accounting::{
    Delivery, Journal, Lines, Losses, OutputQueue, REQUEST_WITHIN, Recorder, Rotation, Spool,
    Webhook, Writer, output_queue,
};
use anyhow::anyhow;
use control::{
    EventQueue, Handle, RecordOutput, Series, SessionEvent, SessionEvents, SessionFilter, Workers,
};
use linux_net::Clock;
use outgoing_http::{Client, Roots, Url};
use settings::Settings;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{MissedTickBehavior, interval};
use turn_types::Secret;
use user_db::Publisher;

use crate::failure::{Failure, OrFail as _, Result};
use crate::redis_statistics::RedisStatistics;

/// Pause before another attempt to put a record into a full queue. Records of session ends do not
/// wait.
const ROOM: Duration = Duration::from_millis(20);

/// Pause between two attempts to list the sessions that were taken over.
const SURVIVORS_AGAIN: Duration = Duration::from_secs(10);

/// Maximum number of attempts to put an interim record into a queue, [`ROOM`] apart. A stuck output
/// must not delay the others.
const ROOM_TRIES: u32 = 250;

/// Maximum size in bytes of the file with a header's value. Web servers commonly accept 8 KiB.
const AUTHORIZATION_BYTES_MAX: u64 = 64 << 10;

/// Queues of session events, and the threads that receive the events.
#[derive(Debug)]
pub(crate) struct SessionRecords {
    pub(crate) events: SessionEvents,
    outputs: Outputs,
}

#[derive(Debug)]
struct Outputs {
    recorder: Option<Recorder>,
    writer: Option<Writer>,
    delivery: Option<Delivery>,
    redis: Option<RedisStatistics>,
}

/// Starts the configured outputs. Returns `None` if no output is configured.
pub(crate) fn start(settings: &Settings, workers: &Workers) -> Result<Option<SessionRecords>> {
    let mut events = SessionEvents::default();
    let mut queues = Queues::default();
    let writer = settings.accounting_file().map(|path| file(settings, &path, workers, &mut queues));
    let delivery = settings
        .accounting
        .webhook
        .as_ref()
        .map(|url| webhook(settings, url, workers, &mut queues));
    let (writer, delivery) = (writer.transpose()?, delivery.transpose()?);
    let redis = settings.statistics().map(|url| redis(&url, workers, &mut events));
    let outputs = Outputs {
        recorder: queues.start(settings, workers, &mut events)?,
        writer,
        delivery,
        redis: redis.transpose()?,
    };
    Ok((!events.queues().is_empty()).then_some(SessionRecords { events, outputs }))
}

/// Queues of the outputs that receive records.
#[derive(Default)]
struct Queues {
    outputs: Vec<RecordOutput>,
    queues: Vec<OutputQueue>,
}

impl Queues {
    /// Adds the queue of an output that stores records in these files.
    fn add(
        &mut self,
        output: RecordOutput,
        workers: &Workers,
        files: impl Fn() -> Vec<PathBuf> + Send + 'static,
    ) -> Lines {
        let (queue, lines) = output_queue(losses(workers, output).lost, Box::new(files));
        self.outputs.push(output);
        self.queues.push(queue);
        lines
    }

    fn start(
        self,
        settings: &Settings,
        workers: &Workers,
        events: &mut SessionEvents,
    ) -> Result<Option<Recorder>> {
        if self.queues.is_empty() {
            return Ok(None);
        }
        let ledger = settings.data.directory.join(LEDGER);
        let lost = losses(workers, RecordOutput::Ledger).lost;
        let recorder = Recorder::start(&ledger, lost, events.add(&self.outputs), self.queues);
        recorder.map(Some).or_fail("cannot start a thread")
    }
}

/// File name of the list of open sessions, in the data directory.
const LEDGER: &str = "open-sessions.jsonl";

fn file(
    settings: &Settings,
    path: &Path,
    workers: &Workers,
    queues: &mut Queues,
) -> Result<Writer> {
    let rotation = Rotation {
        bytes: settings.accounting.rotate_at.get(),
        files: settings.accounting.files.get(),
    };
    let journal = Journal::open(path, rotation).map_err(|error| {
        let what = anyhow!("the records of sessions {} cannot be written: {error}", path.display());
        let hint = "accounting.file names a file in a directory that the server's user may write to; under \
                    systemd it has to be in ReadWritePaths= as well";
        Failure::failed(what).hint(hint)
    })?;
    let losses = losses(workers, RecordOutput::File);
    let path = path.to_owned();
    let lines = queues.add(RecordOutput::File, workers, move || Journal::files(&path));
    accounting::start(journal, lines, losses).or_fail("cannot start a thread")
}

/// Returns the counters of the records that an output loses.
fn losses(workers: &Workers, output: RecordOutput) -> Losses {
    let count = |series| {
        let counters = Arc::clone(workers.control_plane());
        Box::new(move |records| counters.add(series, records))
    };
    Losses {
        lost: count(Series::SessionRecordsLost(output)),
        refused: count(Series::SessionRecordsRefused),
    }
}

fn webhook(
    settings: &Settings,
    url: &settings::ServiceUrl,
    workers: &Workers,
    queues: &mut Queues,
) -> Result<Delivery> {
    let wrong = |key: &str, error: &dyn std::fmt::Display| {
        Failure::failed(anyhow!("accounting.{key}: {error}"))
    };
    let roots = settings.webhook_authorities().map(|path| Roots::read(&path)).transpose();
    let roots = roots.map_err(|error| wrong("webhook_authorities", &error))?;
    let client = Client::new(&roots.unwrap_or_else(Roots::public));
    let client = client.map_err(|error| wrong("webhook", &error))?;
    let url = Url::parse(url.as_str()).map_err(|error| wrong("webhook", &error))?;
    let authorization = settings.webhook_authorization().map(|path| {
        let key = "webhook_authorization_file";
        let text = atomic_file::read_to_string(&path, AUTHORIZATION_BYTES_MAX)
            .map_err(|error| wrong(key, &format_args!("{}: {error}", path.display())))?;
        let value = text.trim();
        if value.is_empty() || !value.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
            let hint = "it holds one line, the value of the header: Bearer 0123abcd";
            let what = format_args!("{} has no value of a header", path.display());
            return Err(wrong(key, &what).hint(hint));
        }
        Ok(value.to_owned())
    });
    let directory = settings.webhook_spool();
    let spool =
        Spool::open(&directory, settings.accounting.webhook_spool.get()).map_err(|error| {
            let what = format_args!("the spool {} cannot be used: {error}", directory.display());
            wrong("webhook", &what)
                .hint("the server's user has to be able to write to data.directory")
        })?;
    let batch = settings.accounting.webhook_batch.get() as usize;
    let webhook = Webhook {
        client,
        url,
        authorization: authorization.transpose()?,
        batch,
        deadline: REQUEST_WITHIN,
    };
    let lines = queues.add(RecordOutput::Webhook, workers, move || Spool::files(&directory));
    Delivery::start(webhook, spool, lines, losses(workers, RecordOutput::Webhook))
        .or_fail("cannot start a thread")
}

fn redis(
    url: &Secret<String>,
    workers: &Workers,
    events: &mut SessionEvents,
) -> Result<RedisStatistics> {
    let publisher = Publisher::open(url.expose()).map_err(|error| {
        Failure::failed(anyhow!("accounting.redis: {error}"))
            .hint("write it as redis://127.0.0.1/0")
    })?;
    let count_lost = losses(workers, RecordOutput::Redis).lost;
    RedisStatistics::start(publisher, events.add(&[RecordOutput::Redis]), count_lost)
        .or_fail("cannot start a thread")
}

/// Running outputs of session records.
#[derive(Debug)]
pub(crate) struct Keeping {
    handle: Handle,
    events: SessionEvents,
    interim: Option<JoinHandle<()>>,
    outputs: Outputs,
}

impl SessionRecords {
    /// Starts the task of interim records, if an interval is configured.
    pub(crate) fn keep(self, handle: &Handle, settings: &Settings) -> Keeping {
        let every = settings.accounting.interim.get();
        let Self { events, outputs } = self;
        let task = || tokio::spawn(record_at_each(every, handle.clone(), events.clone()));
        let interim = (!every.is_zero()).then(task);
        Keeping { handle: handle.clone(), events, interim, outputs }
    }
}

impl Keeping {
    /// Writes interim records of all live sessions.
    pub(crate) async fn record_live(&self) {
        record_live(&self.handle, &self.events).await;
    }

    /// Reports the sessions that this process has taken over, once it serves. The outputs then
    /// write end records for other sessions of predecessors.
    pub(crate) fn report_survivors(&self) {
        tokio::spawn(report_survivors(self.handle.clone(), self.events.clone()));
    }

    /// Waits until all records are written or in the spool. The workers must have exited before.
    pub(crate) async fn end(self) {
        let Self { events, interim, outputs, .. } = self;
        if let Some(task) = interim {
            task.abort();
            let _ = task.await;
        }
        // Each queue closes when its last sender is dropped.
        drop(events);
        let Outputs { recorder, writer, delivery, redis } = outputs;
        let _ = spawn_blocking(|| {
            writer.into_iter().for_each(Writer::join);
            delivery.into_iter().for_each(Delivery::join);
            redis.into_iter().for_each(RedisStatistics::join);
            recorder.into_iter().for_each(Recorder::join);
        })
        .await;
    }
}

async fn record_at_each(every: Duration, handle: Handle, events: SessionEvents) {
    let mut clock = interval(every);
    clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
    clock.tick().await;
    loop {
        clock.tick().await;
        record_live(&handle, &events).await;
    }
}

async fn report_survivors(handle: Handle, events: SessionEvents) {
    let sessions = loop {
        match handle.workers.all_sessions(&SessionFilter::default()).await {
            Ok(sessions) => break sessions,
            Err(error) => {
                tracing::warn!(%error, "sessions of an earlier process have no end records yet")
            }
        }
        tokio::time::sleep(SURVIVORS_AGAIN).await;
    };
    let ids = sessions.iter().map(|session| session.record.id).collect();
    let event = SessionEvent::Survivors(ids);
    for queue in events.queues() {
        while !put_when_there_is_room(queue, event.clone()).await {}
    }
}

async fn record_live(handle: &Handle, events: &SessionEvents) {
    let sessions = match handle.workers.all_sessions(&SessionFilter::default()).await {
        Ok(sessions) => sessions,
        Err(error) => {
            tracing::warn!(%error, "no interim records of sessions");
            return;
        }
    };
    let at = Clock::now().instant;
    let records: Vec<_> = sessions.into_iter().map(|session| session.record).collect();
    for queue in events.queues() {
        for record in &records {
            let event = SessionEvent::Interim { record: Box::new(record.clone()), at };
            if !put_when_there_is_room(queue, event).await {
                tracing::warn!("an output of records takes nothing: interim records are left out");
                break;
            }
        }
    }
}

/// Puts an event into a queue, and tries again while the queue is full. Session ends, which have no
/// second attempt, take precedence in this way.
async fn put_when_there_is_room(queue: &EventQueue, event: SessionEvent) -> bool {
    for _ in 0..ROOM_TRIES {
        if queue.put(event.clone()) {
            return true;
        }
        tokio::time::sleep(ROOM).await;
    }
    false
}
