//! Schedule of checks of the host. Notifications of the kernel trigger checks, and bursts of
//! notifications are combined.

use std::io;
use std::time::Duration;

use linux_net::{HostChanges, HostMonitor};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

/// Minimum interval between two readings of the host's own addresses. A reading takes a millisecond
/// or less.
const OWN_ADDRESSES_EVERY_AT_MOST: Duration = Duration::from_millis(20);

/// Minimum interval between two decisions about devices. Attaching a program to a network card can
/// interrupt the card, and the start of a container causes a burst of about ten notifications.
const DEVICES_EVERY_AT_MOST: Duration = Duration::from_millis(250);

/// Interval of complete checks without a notification. Abilities of drivers change without
/// notification, and failures may have been temporary.
const LOOK_EVERY: Duration = Duration::from_secs(60);

/// Interval of complete checks if the kernel does not notify, and delay after a failure.
const LOOK_EVERY_UNHEARD: Duration = Duration::from_secs(5);

/// Stream of changes of the host that require checks.
#[derive(Debug)]
pub(crate) struct HostWatch {
    /// Notifications of the kernel. Without them, all parts are checked every few seconds.
    heard: Option<mpsc::Receiver<HostChanges>>,
    gathered: Gathered,
}

impl HostWatch {
    /// Creates a watch from a monitor that was opened before the first check of the host.
    pub(crate) fn new(monitor: io::Result<HostMonitor>) -> Self {
        let gathered = Gathered::new(Instant::now(), LOOK_EVERY);
        match monitor.and_then(listen) {
            Ok(heard) => Self { heard: Some(heard), gathered },
            Err(error) => {
                tracing::warn!(%error, "cannot hear of changes of this host");
                let mut watch = Self { heard: None, gathered };
                watch.go_unheard();
                watch
            }
        }
    }

    fn go_unheard(&mut self) {
        tracing::warn!(
            "the kernel does not notify of new addresses: they are looked for every {} s, and may be \
             reached as peers until then",
            LOOK_EVERY_UNHEARD.as_secs()
        );
        self.heard = None;
        self.gathered = Gathered::new(Instant::now(), LOOK_EVERY_UNHEARD);
        self.gathered.add(HostChanges::ALL);
    }

    /// Waits for parts to check now. Cancellation safe: no part is lost if the future is dropped.
    pub(crate) async fn next(&mut self) -> HostChanges {
        loop {
            let due = self.gathered.take_due(Instant::now());
            if due.any() {
                return due;
            }
            let next = self.gathered.next_due();
            tokio::select! {
                heard = hear(&mut self.heard) => match heard {
                    Some(changes) => self.gathered.add(changes),
                    None => self.go_unheard(),
                },
                () = sleep_until(next) => {}
            }
        }
    }

    /// Schedules a repeated check after a failure. Own addresses are checked a few seconds later.
    pub(crate) fn again(&mut self, changes: HostChanges) {
        self.gathered.again(Instant::now(), changes);
    }
}

/// Starts a dedicated thread that waits for notifications.
fn listen(mut monitor: HostMonitor) -> io::Result<mpsc::Receiver<HostChanges>> {
    // While the server is busy, the kernel queues notifications, and reports an overflow.
    let (sender, receiver) = mpsc::channel(1);
    let thread = std::thread::Builder::new().name("host-monitor".to_owned());
    thread.spawn(move || {
        loop {
            match monitor.wait() {
                Ok(changes) if sender.blocking_send(changes).is_ok() => {}
                Ok(_) => break,
                Err(error) => {
                    tracing::warn!(%error, "cannot hear of changes of this host any more");
                    break;
                }
            }
        }
    })?;
    Ok(receiver)
}

/// Returns the next notifications, or `None` if the monitor has failed. Without a monitor, never
/// returns.
async fn hear(heard: &mut Option<mpsc::Receiver<HostChanges>>) -> Option<HostChanges> {
    match heard {
        Some(heard) => heard.recv().await,
        None => std::future::pending().await,
    }
}

/// Parts of the host that wait for a check, with a limited rate for each.
#[derive(Debug)]
struct Gathered {
    waiting: HostChanges,
    /// Earliest time of the next check of own addresses.
    own_addresses_from: Instant,
    others_from: Instant,
    /// Time of the next check of all parts.
    all_at: Instant,
    every: Duration,
}

impl Gathered {
    fn new(now: Instant, every: Duration) -> Self {
        Self {
            waiting: HostChanges::default(),
            own_addresses_from: now,
            others_from: now,
            all_at: now + every,
            every,
        }
    }

    fn add(&mut self, changes: HostChanges) {
        self.waiting |= changes;
    }

    fn again(&mut self, now: Instant, changes: HostChanges) {
        self.add(changes);
        self.own_addresses_from = now + LOOK_EVERY_UNHEARD;
    }

    fn take_due(&mut self, now: Instant) -> HostChanges {
        if now >= self.all_at {
            self.all_at = now + self.every;
            self.waiting = HostChanges::ALL;
        }
        let mut due = HostChanges::default();
        if now >= self.own_addresses_from && self.waiting.own_addresses {
            due.own_addresses = std::mem::take(&mut self.waiting.own_addresses);
            self.own_addresses_from = now + OWN_ADDRESSES_EVERY_AT_MOST;
        }
        let others = self.waiting.devices || self.waiting.forwarding;
        if now >= self.others_from && others {
            due.devices = std::mem::take(&mut self.waiting.devices);
            due.forwarding = std::mem::take(&mut self.waiting.forwarding);
            self.others_from = now + DEVICES_EVERY_AT_MOST;
        }
        due
    }

    fn next_due(&self) -> Instant {
        let mut next = self.all_at;
        if self.waiting.own_addresses {
            next = next.min(self.own_addresses_from);
        }
        if self.waiting.devices || self.waiting.forwarding {
            next = next.min(self.others_from);
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: HostChanges = HostChanges { own_addresses: true, devices: false, forwarding: false };
    const DEVICES: HostChanges =
        HostChanges { own_addresses: false, devices: true, forwarding: false };

    #[test]
    fn the_first_change_is_looked_at_at_once_and_a_burst_once() {
        let start = Instant::now();
        let mut gathered = Gathered::new(start, LOOK_EVERY);
        assert!(!gathered.take_due(start).any());
        gathered.add(DEVICES);
        assert_eq!(gathered.take_due(start), DEVICES);
        for _ in 0..1000 {
            gathered.add(DEVICES);
            assert!(!gathered.take_due(start).any());
        }
        let later = gathered.next_due();
        assert_eq!(later, start + DEVICES_EVERY_AT_MOST);
        assert_eq!(gathered.take_due(later), DEVICES);
        assert!(!gathered.take_due(later + DEVICES_EVERY_AT_MOST).any());
    }

    #[test]
    fn own_addresses_do_not_wait_for_devices() {
        let start = Instant::now();
        let mut gathered = Gathered::new(start, LOOK_EVERY);
        gathered.add(DEVICES);
        assert!(gathered.take_due(start).devices);
        gathered.add(DEVICES);
        gathered.add(OWN);
        assert_eq!(gathered.take_due(start), OWN);
        gathered.add(OWN);
        assert_eq!(gathered.next_due(), start + OWN_ADDRESSES_EVERY_AT_MOST);
    }

    #[test]
    fn what_failed_is_tried_again_and_all_is_looked_at_now_and_then() {
        let start = Instant::now();
        let mut gathered = Gathered::new(start, LOOK_EVERY);
        gathered.again(start, OWN);
        assert!(!gathered.take_due(start).any());
        assert_eq!(gathered.take_due(start + LOOK_EVERY_UNHEARD), OWN);
        assert_eq!(gathered.next_due(), start + LOOK_EVERY);
        assert_eq!(gathered.take_due(start + LOOK_EVERY), HostChanges::ALL);
        assert_eq!(gathered.next_due(), start + 2 * LOOK_EVERY);
    }
}
