//! The last text in each format, which answers others that ask within half a second. A text costs
//! the only thread of HTTP milliseconds, and each worker a look at its allocations.

use std::sync::Arc;

use axum::body::Bytes;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::text::{self, Format};
use crate::limits::METRICS_VALID;
use crate::monitored::Monitored;

/// Texts of a server.
pub(crate) struct Texts {
    monitored: Monitored,
    open_metrics: Arc<Mutex<Option<Text>>>,
    prometheus: Arc<Mutex<Option<Text>>>,
}

/// A text as it was made.
struct Text {
    at: Instant,
    /// The setting that it was made with.
    coturn_metrics: bool,
    bytes: Bytes,
}

impl Texts {
    pub(crate) fn new(monitored: Monitored) -> Self {
        Self { monitored, open_metrics: Arc::default(), prometheus: Arc::default() }
    }

    /// The text in a format. `None` while the process ends.
    pub(super) async fn get(&self, format: Format) -> Option<Bytes> {
        let last = match format {
            Format::OpenMetrics => &self.open_metrics,
            Format::Prometheus => &self.prometheus,
        };
        // Held while a text is made: the next to ask waits, and gets the same.
        let mut last = Arc::clone(last).lock_owned().await;
        let coturn_metrics = self.monitored.handle.info().monitoring.coturn_metrics;
        if let Some(text) = &*last
            && text.at.elapsed() < METRICS_VALID
            && text.coturn_metrics == coturn_metrics
        {
            return Some(text.bytes.clone());
        }
        let monitored = self.monitored.clone();
        // In a task of its own: a client that leaves meanwhile has made it for the next one.
        let made = tokio::spawn(async move {
            let bytes = Bytes::from(text::encode(super::collect(&monitored).await, format));
            let text = Text { at: Instant::now(), coturn_metrics, bytes: bytes.clone() };
            *last = Some(text);
            bytes
        });
        made.await.ok()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use control::{
        Handle, Leg, MonitoringInfo, Request, Series, Wake, WorkerCounters, Workers, mailbox,
    };
    use tokio::sync::Notify;
    use tokio::time::{sleep, timeout};

    use super::*;
    use crate::metrics::example_info;

    /// Time in which the worker adds up its traffic.
    const ADDS_UP_IN: Duration = Duration::from_millis(20);

    struct Knock(Notify);

    impl Wake for Knock {
        fn wake(&self) {
            self.0.notify_one();
        }
    }

    /// Texts of a server with a worker that counts a packet each time that it adds up its traffic.
    fn texts() -> Texts {
        let (counters, knock) = (Arc::new(WorkerCounters::new()), Arc::new(Knock(Notify::new())));
        let (mailbox, inbox) = mailbox(16, Arc::clone(&knock) as _);
        let workers = Workers::new(vec![(mailbox, Arc::clone(&counters))]);
        let (handle, _) = Handle::new(workers, example_info());
        tokio::spawn(async move {
            loop {
                knock.0.notified().await;
                while let Some(request) = inbox.take() {
                    sleep(ADDS_UP_IN).await;
                    counters.add(Series::Packets(Leg::FromClients), 1);
                    let Request::CountTraffic { done } = request else { panic!("for metrics") };
                    done(());
                }
            }
        });
        let clock = || turn_types::Instant::ZERO;
        Texts::new(Monitored { handle, clock, offload: None })
    }

    /// Number of times that the traffic had been added up when a text was made.
    async fn made(texts: &Texts, format: Format) -> String {
        let text = texts.get(format).await.unwrap();
        let text = String::from_utf8(text.to_vec()).unwrap();
        let name = "turnpike_packets_total{leg=\"from_clients\",path=\"sockets\"} ";
        text.lines().find_map(|line| line.strip_prefix(name)).unwrap().to_owned()
    }

    #[tokio::test(start_paused = true)]
    async fn a_text_is_made_once_in_half_a_second() {
        let texts = texts();
        for _ in 0..100 {
            assert_eq!(made(&texts, Format::Prometheus).await, "1");
        }
        assert_eq!(made(&texts, Format::OpenMetrics).await, "2", "each format has one");
        sleep(METRICS_VALID - ADDS_UP_IN).await;
        assert_eq!(made(&texts, Format::OpenMetrics).await, "2");
        assert_eq!(made(&texts, Format::Prometheus).await, "3");
    }

    #[tokio::test(start_paused = true)]
    async fn all_that_wait_get_one_text() {
        let texts = Arc::new(texts());
        let ask = |texts: Arc<Texts>| async move { made(&texts, Format::Prometheus).await };
        let asking: Vec<_> = (0..30).map(|_| tokio::spawn(ask(Arc::clone(&texts)))).collect();
        for one in asking {
            assert_eq!(one.await.unwrap(), "1");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn clients_that_leave_make_no_more_texts() {
        let texts = texts();
        for _ in 0..20 {
            let left = timeout(ADDS_UP_IN / 4, texts.get(Format::Prometheus)).await;
            drop(left);
        }
        assert_eq!(made(&texts, Format::Prometheus).await, "1");
    }

    #[tokio::test(start_paused = true)]
    async fn another_configuration_has_another_text() {
        let texts = texts();
        assert_eq!(made(&texts, Format::Prometheus).await, "1");
        let mut info = example_info();
        info.monitoring = MonitoringInfo { coturn_metrics: false, ..info.monitoring };
        texts.monitored.handle.set_info(info);
        assert_eq!(made(&texts, Format::Prometheus).await, "2");
    }
}
