//! Log of the process: text, logfmt or JSON on standard error. Under coturn's name, coturn's
//! options determine the destination. A reload can change the level. While the server runs, the
//! process writes nothing else to the destination.
//!
//! A dedicated thread writes the lines from a bounded queue. When the queue is full, lines are
//! dropped. No worker waits for a log reader that stalls.

mod coturn;
mod gathered;
mod logfmt;
mod parts;
mod target;

use std::fmt;
use std::io::{self, IsTerminal as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use control::RecentLog;
use dataplane::TRACED;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_appender::non_blocking::{ErrorCounter, NonBlocking, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::{Context, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Layer, Registry, reload};

use self::gathered::{Gathered, UnwrittenLines};
pub(crate) use self::target::{LogFile, LogTarget};
use self::target::{Sink, WithSeverity};

/// Format of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogFormat {
    /// Text for people.
    Text,
    /// Lines of `key=value` pairs, for people and programs.
    Logfmt,
    /// Lines with a JSON object each, for programs.
    Json,
    /// Lines of coturn's form, for programs that parse coturn's log.
    Coturn,
}

impl From<settings::LogFormat> for LogFormat {
    fn from(format: settings::LogFormat) -> Self {
        match format {
            settings::LogFormat::Text => Self::Text,
            settings::LogFormat::Logfmt => Self::Logfmt,
            settings::LogFormat::Json => Self::Json,
            settings::LogFormat::Coturn => Self::Coturn,
        }
    }
}

/// Maximum number of lines that wait to be written. The queue needs some MiB at most.
const QUEUED_LINES_MAX: usize = 16_384;

/// Handle of the log that changes the level while the server runs. Queued lines are written when
/// the last clone is dropped.
#[derive(Clone, Default)]
pub(crate) struct LogLevel {
    handle: Option<reload::Handle<Targets, Registry>>,
    recent: RecentLog,
    reopen: Arc<AtomicBool>,
    /// Number of lines dropped because the queue was full.
    dropped: Option<ErrorCounter>,
    unwritten: UnwrittenLines,
    _writer: Option<Arc<WorkerGuard>>,
}

impl LogLevel {
    /// Sets the level of subsequent lines.
    pub(crate) fn set(&self, level: LevelFilter) {
        if let Some(handle) = &self.handle {
            // Fails only if the subscriber has been dropped, and then no lines are logged.
            let _ = handle.reload(lines_of(level));
        }
    }
}

impl LogLevel {
    /// Requests that the log file is opened again by name before the next line.
    pub(crate) fn reopen(&self) {
        self.reopen.store(true, Ordering::Relaxed);
    }

    /// Returns a function that reads the number of lost lines: dropped by a full queue, or refused
    /// by the destination. The function does not keep the writer alive. The last lines are thus
    /// written when the last `LogLevel` is dropped.
    pub(crate) fn lines_lost(&self) -> impl Fn() -> u64 + use<> {
        let (dropped, unwritten) = (self.dropped.clone(), self.unwritten.clone());
        move || {
            let dropped = dropped.as_ref().map_or(0, |dropped| dropped.dropped_lines() as u64);
            dropped + unwritten.count()
        }
    }

    /// Returns the recent warnings and errors.
    pub(crate) fn recent(&self) -> RecentLog {
        self.recent.clone()
    }
}

/// Layer that stores warnings and errors for operators, at any level of the log.
struct Keeper(RecentLog);

impl<S: Subscriber> Layer<S> for Keeper {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let level = *event.metadata().level();
        if level <= Level::WARN {
            let mut line = Line::default();
            event.record(&mut line);
            let text = format!("{}{}", line.message, line.fields);
            self.0.push(SystemTime::now(), level == Level::ERROR, text);
        }
    }
}

/// Text of a log line.
#[derive(Default)]
struct Line {
    message: String,
    fields: String,
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        use fmt::Write as _;
        // Writing to a string cannot fail.
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }
}

impl fmt::Debug for LogLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LogLevel")
    }
}

/// Starts logging for the process.
///
/// # Errors
/// A logger was started before.
pub(crate) fn start(
    format: LogFormat,
    level: LevelFilter,
    target: &LogTarget,
) -> anyhow::Result<LogLevel> {
    let (filter, handle) = reload::Layer::new(lines_of(level));
    let reopen = Arc::new(AtomicBool::new(false));
    let unwritten = UnwrittenLines::default();
    let sink = Sink::new(target, Arc::clone(&reopen), unwritten.clone());
    let (writer, guard) = queued(sink, unwritten.clone());
    let dropped = Some(writer.error_counter());
    let recent = RecentLog::default();
    let kept = Keeper(recent.clone());
    let layer = match target {
        LogTarget::Syslog { .. } => for_syslog(format, WithSeverity(writer)),
        LogTarget::Stderr => lines(format, writer, io::stderr().is_terminal()),
        LogTarget::Stdout => lines(format, writer, io::stdout().is_terminal()),
        LogTarget::File(_) => lines(format, writer, false),
    };
    tracing_subscriber::registry().with(filter).with(layer).with(kept).try_init()?;
    let writer = Some(Arc::new(guard));
    Ok(LogLevel { handle: Some(handle), recent, reopen, dropped, unwritten, _writer: writer })
}

/// Starts the thread that writes queued lines.
fn queued(
    sink: impl io::Write + Send + 'static,
    unwritten: UnwrittenLines,
) -> (NonBlocking, WorkerGuard) {
    NonBlockingBuilder::default()
        .lossy(true)
        .buffered_lines_limit(QUEUED_LINES_MAX)
        .thread_name("log")
        .finish(Gathered::new(sink, unwritten))
}

type Filtered = tracing_subscriber::layer::Layered<reload::Layer<Targets, Registry>, Registry>;

/// Returns the filter of a level. Lines about traced clients always pass, since they occur only
/// during a trace.
fn lines_of(level: LevelFilter) -> Targets {
    Targets::new().with_default(level).with_target(TRACED, LevelFilter::DEBUG)
}

/// Returns the layer for the system log. Text lines have no time and no level there, because the
/// system log stores both separately.
fn for_syslog(format: LogFormat, writer: WithSeverity) -> Box<dyn Layer<Filtered> + Send + Sync> {
    if format != LogFormat::Text {
        return lines(format, writer, false);
    }
    let layer = tracing_subscriber::fmt::layer().with_writer(writer).with_target(false);
    layer.with_ansi(false).without_time().with_level(false).boxed()
}

/// Returns the layer that writes lines to `writer`, with colours if requested.
fn lines<W>(format: LogFormat, writer: W, colours: bool) -> Box<dyn Layer<Filtered> + Send + Sync>
where
    W: for<'a> tracing_subscriber::fmt::MakeWriter<'a> + Send + Sync + 'static,
{
    let layer = tracing_subscriber::fmt::layer().with_writer(writer).with_target(false);
    match format {
        LogFormat::Text => layer.with_ansi(colours).boxed(),
        LogFormat::Logfmt => layer.event_format(logfmt::Logfmt).boxed(),
        LogFormat::Coturn => layer.event_format(coturn::Coturn).boxed(),
        // Log collectors accept one flat object without configuration.
        LogFormat::Json => {
            layer.json().flatten_event(true).with_current_span(false).with_span_list(false).boxed()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    pub(super) struct Lines(pub(super) Arc<Mutex<Vec<u8>>>);

    impl io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Simulates a reader of the log that stalls.
    #[test]
    fn lines_that_find_the_queue_full_are_counted() {
        use io::Write as _;
        let stalled = Lines::default();
        let lock = Arc::clone(&stalled.0);
        let held = lock.lock().unwrap();
        let (mut writer, guard) = queued(stalled, UnwrittenLines::default());
        let level = LogLevel { dropped: Some(writer.error_counter()), ..LogLevel::default() };
        let lines_lost = level.lines_lost();
        assert_eq!(lines_lost(), 0);
        // Some lines are in the buffer of the writer.
        let line = [b'.'; 1024];
        for _ in 0..QUEUED_LINES_MAX + 200 {
            writer.write_all(&line).unwrap();
        }
        assert!((1..=200).contains(&lines_lost()), "{}", lines_lost());
        drop(held);
        drop(guard);
    }

    /// Simulates a destination that refuses every line.
    #[test]
    fn lines_of_a_failing_write_are_counted() {
        use io::Write as _;
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let unwritten = UnwrittenLines::default();
        let (mut writer, guard) = queued(full, unwritten.clone());
        let dropped = Some(writer.error_counter());
        let level = LogLevel { dropped, unwritten, ..LogLevel::default() };
        for _ in 0..3 {
            writer.write_all(b"a line\n").unwrap();
        }
        // The last lines are written.
        drop(guard);
        assert_eq!(level.lines_lost()(), 3);
    }

    /// Returns the lines of warnings that `events` logs.
    pub(super) fn warnings(events: impl FnOnce()) -> String {
        written(LogFormat::Logfmt, events)
    }

    /// Returns the text that `events` logs.
    pub(super) fn written(format: LogFormat, events: impl FnOnce()) -> String {
        let written = Lines::default();
        let writer = written.clone();
        let (filter, _handle) = reload::Layer::new(lines_of(LevelFilter::INFO));
        let subscriber = tracing_subscriber::registry().with(filter).with(lines(
            format,
            move || writer.clone(),
            false,
        ));
        tracing::subscriber::with_default(subscriber, events);
        let text = written.0.lock().unwrap().clone();
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn json_lines_are_flat_and_the_level_changes() {
        let written = Lines::default();
        let writer = written.clone();
        let (filter, handle) = reload::Layer::new(lines_of(LevelFilter::INFO));
        let level = LogLevel { handle: Some(handle), ..LogLevel::default() };
        let subscriber = tracing_subscriber::registry().with(filter).with(lines(
            LogFormat::Json,
            move || writer.clone(),
            false,
        ));
        tracing::subscriber::with_default(subscriber, || {
            tracing::debug!("not yet");
            tracing::debug!(target: TRACED, "traced");
            tracing::info!(client = %"192.0.2.1:5", "allocation ended");
            level.set(LevelFilter::DEBUG);
            tracing::debug!("now");
        });
        let written = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
        let mut lines: Vec<serde_json::Value> =
            written.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 3, "{written}");
        assert_eq!(lines.remove(0)["message"], "traced");
        assert_eq!(lines[0]["message"], "allocation ended");
        assert_eq!(lines[0]["client"], "192.0.2.1:5");
        assert_eq!(lines[0]["level"], "INFO");
        assert_eq!(lines[1]["message"], "now");
    }
}
