//! Records of sessions: the file and its writer, and the records of sessions that go on.

use std::time::Duration;

use accounting::{Journal, Rotation, Writer};
use anyhow::anyhow;
use control::{Handle, SessionEvent, SessionEvents, SessionFilter};
use linux_net::Clock;
use settings::Settings;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{MissedTickBehavior, interval};

use crate::failure::{Failure, OrFail as _, Result};

/// Wait for room in the queue, of records that are no end of a session.
const ROOM: Duration = Duration::from_millis(20);

/// The queue of records, and the thread at its end.
#[derive(Debug)]
pub(crate) struct SessionRecords {
    pub(crate) events: SessionEvents,
    writer: Writer,
}

/// Opens the file and starts its writer; `None` where no records are kept.
pub(crate) fn start(settings: &Settings) -> Result<Option<SessionRecords>> {
    let Some(path) = settings.accounting_file() else { return Ok(None) };
    let rotation = Rotation {
        bytes: settings.accounting.rotate_at.get(),
        files: settings.accounting.files.get(),
    };
    let journal = Journal::open(&path, rotation).map_err(|error| {
        let what = anyhow!("the records of sessions {} cannot be written: {error}", path.display());
        let hint = "accounting.file names a file in a directory that the server's user may write to; under \
                    systemd it has to be in ReadWritePaths= as well";
        Failure::failed(what).hint(hint)
    })?;
    let (events, taken) = SessionEvents::new();
    let writer = accounting::start(journal, taken).or_fail("cannot start a thread")?;
    Ok(Some(SessionRecords { events, writer }))
}

/// Records that are being kept.
#[derive(Debug)]
pub(crate) struct Keeping {
    interim: Option<JoinHandle<()>>,
    writer: Writer,
}

impl SessionRecords {
    /// Also records sessions that go on, if there is an interval for it.
    pub(crate) fn keep(self, handle: &Handle, settings: &Settings) -> Keeping {
        let every = settings.accounting.interim.get();
        let task = || tokio::spawn(record_live(handle.clone(), self.events.clone(), every));
        Keeping { interim: (!every.is_zero()).then(task), writer: self.writer }
    }
}

impl Keeping {
    /// Waits until all records are written. The workers have ended.
    pub(crate) async fn end(self) {
        if let Some(task) = self.interim {
            task.abort();
            // Its end of the queue is gone then.
            let _ = task.await;
        }
        let _ = spawn_blocking(|| self.writer.join()).await;
    }
}

async fn record_live(handle: Handle, events: SessionEvents, every: Duration) {
    let mut clock = interval(every);
    clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
    clock.tick().await;
    loop {
        clock.tick().await;
        let sessions = match handle.workers.all_sessions(&SessionFilter::default()).await {
            Ok(sessions) => sessions,
            Err(error) => {
                tracing::warn!(%error, "no interim records of sessions");
                continue;
            }
        };
        let at = Clock::now().instant;
        for session in sessions {
            let event = SessionEvent::Interim { record: Box::new(session.record), at };
            // Ends of sessions come first: they have no second try.
            while !events.put(event.clone()) {
                tokio::time::sleep(ROOM).await;
            }
        }
    }
}
