//! All sessions with their rates, gathered for everybody that asks within a second.

use std::collections::HashMap;
use std::sync::Arc;

use control::{ControlError, Session, SessionFilter, Workers};
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep};
use turn_proto::Traffic;
use turn_types::AllocationId;

use crate::limits::{ROLL_FORGOTTEN, ROLL_VALID};
use crate::types::{Rate, SessionRates};

/// The sessions as they were last gathered. One asker gathers at a time, the others wait for it.
#[derive(Debug, Default)]
pub(crate) struct Roll {
    last: Mutex<Option<Arc<Gathered>>>,
}

/// All sessions at one time.
#[derive(Debug)]
pub(crate) struct Gathered {
    at: Instant,
    pub(crate) sessions: Vec<Session>,
    /// Since the time before; `None` where there was none shortly before.
    rates: Option<HashMap<AllocationId, SessionRates>>,
}

impl Gathered {
    /// The rates of a session; `None` for one that is new.
    pub(crate) fn rates(&self, id: AllocationId) -> Option<SessionRates> {
        self.rates.as_ref()?.get(&id).copied()
    }
}

impl Roll {
    /// All sessions, with rates: gathered again unless that was done within [`ROLL_VALID`]. The
    /// first asker waits as long, since a rate needs two times.
    pub(crate) async fn take(&self, workers: &Workers) -> Result<Arc<Gathered>, ControlError> {
        let mut last = self.last.lock().await;
        loop {
            let age = last.as_ref().map(|gathered| gathered.at.elapsed());
            if let Some(gathered) = &*last
                && gathered.rates.is_some()
                && gathered.at.elapsed() < ROLL_VALID
            {
                return Ok(Arc::clone(gathered));
            }
            if let Some(early) = age.and_then(|age| ROLL_VALID.checked_sub(age)) {
                sleep(early).await;
            }
            let before = last.take().filter(|gathered| gathered.at.elapsed() < ROLL_FORGOTTEN);
            *last = Some(Arc::new(gather(workers, before.as_deref()).await?));
        }
    }

    /// Makes the next asker gather again: a session was ended.
    pub(crate) async fn forget(&self) {
        *self.last.lock().await = None;
    }
}

async fn gather(workers: &Workers, before: Option<&Gathered>) -> Result<Gathered, ControlError> {
    let sessions = workers.all_sessions(&SessionFilter::default()).await?;
    let at = Instant::now();
    let rates = before.map(|before| rates(before, &sessions, (at - before.at).as_secs_f64()));
    Ok(Gathered { at, sessions, rates })
}

fn rates(
    before: &Gathered,
    sessions: &[Session],
    seconds: f64,
) -> HashMap<AllocationId, SessionRates> {
    let mut rates = HashMap::with_capacity(sessions.len());
    // Both are in the order of ids.
    let mut old = before.sessions.iter().peekable();
    for Session { record, .. } in sessions {
        while old.next_if(|old| old.record.id < record.id).is_some() {}
        if let Some(old) = old.next_if(|old| old.record.id == record.id) {
            rates.insert(record.id, between(&old.record.traffic, &record.traffic, seconds));
        }
    }
    rates
}

fn between(old: &Traffic, new: &Traffic, seconds: f64) -> SessionRates {
    let rate = |packets: (u64, u64), bytes: (u64, u64)| Rate {
        packets_per_second: per_second(packets, 1.0, seconds),
        bits_per_second: per_second(bytes, 8.0, seconds),
    };
    SessionRates {
        to_peers: rate(
            (old.to_peer_packets, new.to_peer_packets),
            (old.to_peer_bytes, new.to_peer_bytes),
        ),
        to_client: rate(
            (old.to_client_packets, new.to_client_packets),
            (old.to_client_bytes, new.to_client_bytes),
        ),
    }
}

/// The rate of a counter in units of `factor`.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a rate for people, of numbers far below 2^52"
)]
pub(crate) fn per_second((old, new): (u64, u64), factor: f64, seconds: f64) -> u64 {
    (new.saturating_sub(old) as f64 * factor / seconds).round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_a_difference_in_time() {
        let old = Traffic { to_peer_packets: 10, to_peer_bytes: 1000, ..Traffic::default() };
        let new = Traffic { to_peer_packets: 30, to_peer_bytes: 3000, ..Traffic::default() };
        let rates = between(&old, &new, 2.0);
        assert_eq!(rates.to_peers, Rate { packets_per_second: 10, bits_per_second: 8000 });
        assert_eq!(rates.to_client, Rate::default());
        assert_eq!(per_second((7, 3), 1.0, 1.0), 0, "a counter that began anew");
    }
}
