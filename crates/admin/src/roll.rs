//! All sessions with their rates, gathered for everybody that asks within a second.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, OnceLock};

use control::{ControlError, Session, SessionFilter, Workers};
use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio::time::{Instant, sleep};
use turn_proto::Traffic;
use turn_types::{AllocationId, Realm};

use crate::limits::{ROLL_FORGOTTEN, ROLL_VALID};
use crate::types::{ActiveUser, Rate, SessionRates};

/// The sessions as they were last gathered. One asker gathers at a time, the others wait for it.
#[derive(Debug, Default)]
pub(crate) struct Roll {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    last: Option<Arc<Gathered>>,
    /// Start of the next rates: equal to `last`, except after an early gathering because a session
    /// was closed. A rate needs at least a second.
    base: Option<Arc<Gathered>>,
    failed: Option<(Instant, ControlError)>,
}

/// All sessions at one time.
#[derive(Debug)]
pub(crate) struct Gathered {
    at: Instant,
    /// Sorted by id.
    sessions: Vec<Session>,
    /// Since the time before; `None` where there was none shortly before.
    rates: Option<Arc<HashMap<AllocationId, SessionRates>>>,
    /// Positions of the sessions of each realm: a tenant does not pay for the others.
    by_realm: OnceLock<HashMap<Realm, Vec<usize>>>,
    /// Sorted by realm and account.
    users: OnceLock<Vec<ActiveUser>>,
}

impl Gathered {
    /// Sessions of now, without rates.
    pub(crate) fn fresh(sessions: Vec<Session>) -> Self {
        Self {
            at: Instant::now(),
            sessions,
            rates: None,
            by_realm: OnceLock::new(),
            users: OnceLock::new(),
        }
    }

    /// The rates of a session; `None` for one that is new.
    pub(crate) fn rates(&self, id: AllocationId) -> Option<SessionRates> {
        self.rates.as_ref()?.get(&id).copied()
    }

    /// The sessions of a realm, or of all.
    pub(crate) fn sessions(
        &self,
        realm: Option<&str>,
    ) -> Box<dyn Iterator<Item = &Session> + Send + '_> {
        let Some(realm) = realm else { return Box::new(self.sessions.iter()) };
        let by_realm = self.by_realm.get_or_init(|| by_realm(&self.sessions));
        let positions = by_realm.get(realm).map(Vec::as_slice).unwrap_or_default();
        Box::new(positions.iter().filter_map(|position| self.sessions.get(*position)))
    }

    /// The users of a realm, or all, sorted by realm and account.
    pub(crate) fn users(&self, realm: Option<&str>) -> &[ActiveUser] {
        let users = self.users.get_or_init(|| users(self));
        let Some(realm) = realm else { return users };
        let begin = users.partition_point(|user| *user.realm < *realm);
        let users = &users[begin..];
        &users[..users.partition_point(|user| user.realm == realm)]
    }
}

impl State {
    /// Sessions gathered within [`ROLL_VALID`].
    fn valid(&self) -> Option<&Arc<Gathered>> {
        self.last.as_ref().filter(|last| last.at.elapsed() < ROLL_VALID)
    }

    /// Time until the first rates can be made; `None` where they are known or can be made now.
    fn until_rates(&self) -> Option<std::time::Duration> {
        let base = self.base.as_ref().filter(|base| base.rates.is_none())?;
        ROLL_VALID.checked_sub(base.at.elapsed())
    }

    /// Takes new sessions.
    fn keep(&mut self, sessions: Vec<Session>) -> Arc<Gathered> {
        let mut gathered = Gathered::fresh(sessions);
        let base = self.base.take().filter(|base| base.at.elapsed() < ROLL_FORGOTTEN);
        let early = base.as_ref().filter(|base| gathered.at - base.at < ROLL_VALID);
        gathered.rates = match (early, &base) {
            (Some(early), _) => early.rates.clone(),
            (None, Some(base)) => Some(Arc::new(rates(base, &gathered))),
            (None, None) => None,
        };
        let early = early.cloned();
        let gathered = Arc::new(gathered);
        self.base = Some(early.unwrap_or_else(|| Arc::clone(&gathered)));
        self.last = Some(Arc::clone(&gathered));
        gathered
    }

    /// Frees sessions without further queries.
    fn let_go(&mut self) {
        let is_old = |one: &Option<Arc<Gathered>>| {
            one.as_ref().is_some_and(|one| one.at.elapsed() >= ROLL_FORGOTTEN)
        };
        if is_old(&self.last) {
            self.last = None;
        }
        if is_old(&self.base) {
            self.base = None;
        }
    }
}

impl Roll {
    /// All sessions, perhaps without rates: gathered again unless that was done within
    /// [`ROLL_VALID`].
    pub(crate) async fn take(&self, workers: &Workers) -> Result<Arc<Gathered>, ControlError> {
        let state = Arc::clone(&self.state).lock_owned().await;
        if let Some(gathered) = state.valid() {
            return Ok(Arc::clone(gathered));
        }
        gather(state, workers).await
    }

    /// The same with rates. The first asker waits for [`ROLL_VALID`], since a rate needs two times;
    /// those that need no rates do not wait for it.
    pub(crate) async fn take_with_rates(
        &self,
        workers: &Workers,
    ) -> Result<Arc<Gathered>, ControlError> {
        loop {
            let state = Arc::clone(&self.state).lock_owned().await;
            if let Some(gathered) = state.valid().filter(|gathered| gathered.rates.is_some()) {
                return Ok(Arc::clone(gathered));
            }
            if let Some(early) = state.until_rates() {
                drop(state);
                sleep(early).await;
                continue;
            }
            let gathered = gather(state, workers).await?;
            if gathered.rates.is_some() {
                return Ok(gathered);
            }
        }
    }

    /// Makes the next asker gather again: a session was ended.
    pub(crate) async fn forget(&self) {
        self.state.lock().await.last = None;
    }
}

/// Gathers in a separate task, which continues without its query: a later query uses the result,
/// and queries that disconnect cause no further work of the workers.
async fn gather(
    mut state: OwnedMutexGuard<State>,
    workers: &Workers,
) -> Result<Arc<Gathered>, ControlError> {
    // Those that waited for a worker that hangs do not wait for it one after another.
    if let Some((at, error)) = state.failed
        && at.elapsed() < ROLL_VALID
    {
        return Err(error);
    }
    let workers = workers.clone();
    let gathering = tokio::spawn(async move {
        match workers.all_sessions(&SessionFilter::default()).await {
            Ok(sessions) => {
                state.failed = None;
                let all = Arc::clone(OwnedMutexGuard::mutex(&state));
                // Tens of thousands of rates: on another thread than all requests.
                let kept = tokio::task::spawn_blocking(move || state.keep(sessions)).await;
                let gathered = kept.map_err(|_| ControlError::Stopping)?;
                tokio::spawn(async move {
                    sleep(ROLL_FORGOTTEN).await;
                    all.lock().await.let_go();
                });
                Ok(gathered)
            }
            Err(error) => {
                state.failed = Some((Instant::now(), error));
                Err(error)
            }
        }
    });
    gathering.await.unwrap_or(Err(ControlError::Stopping))
}

fn by_realm(sessions: &[Session]) -> HashMap<Realm, Vec<usize>> {
    let mut positions: HashMap<Realm, Vec<usize>> = HashMap::new();
    for (position, Session { record, .. }) in sessions.iter().enumerate() {
        match positions.get_mut(&*record.realm) {
            Some(of_realm) => of_realm.push(position),
            None => drop(positions.insert(record.realm.clone(), vec![position])),
        }
    }
    positions
}

fn users(gathered: &Gathered) -> Vec<ActiveUser> {
    let mut users: BTreeMap<(&str, &str), ActiveUser> = BTreeMap::new();
    for Session { record, .. } in &gathered.sessions {
        let user = users.entry((&record.realm, &record.account)).or_default();
        user.sessions += 1;
        user.to_peers.packets += record.traffic.to_peer_packets;
        user.to_peers.bytes += record.traffic.to_peer_bytes;
        user.to_client.packets += record.traffic.to_client_packets;
        user.to_client.bytes += record.traffic.to_client_bytes;
        if let Some(rates) = gathered.rates(record.id) {
            add(&mut user.rates.to_peers, rates.to_peers);
            add(&mut user.rates.to_client, rates.to_client);
        }
    }
    let named = |((realm, account), user): ((&str, &str), ActiveUser)| ActiveUser {
        account: account.to_owned(),
        realm: realm.to_owned(),
        ..user
    };
    users.into_iter().map(named).collect()
}

const fn add(sum: &mut Rate, rate: Rate) {
    sum.packets_per_second = sum.packets_per_second.saturating_add(rate.packets_per_second);
    sum.bits_per_second = sum.bits_per_second.saturating_add(rate.bits_per_second);
}

fn rates(before: &Gathered, now: &Gathered) -> HashMap<AllocationId, SessionRates> {
    let seconds = (now.at - before.at).as_secs_f64();
    let mut rates = HashMap::with_capacity(now.sessions.len());
    // Both are in the order of ids.
    let mut old = before.sessions.iter().peekable();
    for Session { record, .. } in &now.sessions {
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
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use control::{Request, SessionOffload, Wake, WhyNot, WorkerCounters, mailbox};
    use tokio::time::timeout;
    use turn_proto::AllocationRecord;

    use super::*;

    struct Knock(mpsc::Sender<()>);

    impl Wake for Knock {
        fn wake(&self) {
            let _ = self.0.send(());
        }
    }

    /// A worker that lists one session after a time, and counts the requests.
    fn slow(time: Duration) -> (Workers, Arc<AtomicU32>) {
        let (knock, knocks) = mpsc::channel();
        let (mailbox, inbox) = mailbox(16, Arc::new(Knock(knock)));
        let asked = Arc::new(AtomicU32::new(0));
        let counts = Arc::clone(&asked);
        thread::spawn(move || {
            while knocks.recv().is_ok() {
                while let Some(Request::List { reply, .. }) = inbox.take() {
                    counts.fetch_add(1, Ordering::Relaxed);
                    thread::sleep(time);
                    let offload = SessionOffload::Sockets(WhyNot::NoChannel);
                    reply(vec![Session { record: AllocationRecord::sample(), offload }]);
                }
            }
        });
        (Workers::new(vec![(mailbox, Arc::new(WorkerCounters::new()))]), asked)
    }

    #[tokio::test]
    async fn askers_that_go_away_do_not_make_the_workers_begin_again() {
        let (roll, (workers, asked)) = (Roll::default(), slow(Duration::from_millis(100)));
        for _ in 0..3 {
            let gone = timeout(Duration::from_millis(10), roll.take(&workers)).await;
            assert!(gone.is_err(), "it takes longer");
        }
        assert_eq!(roll.take(&workers).await.unwrap().sessions(None).count(), 1);
        assert_eq!(asked.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn what_nobody_asks_for_is_let_go() {
        for (age, is_kept) in [(ROLL_FORGOTTEN, false), (ROLL_FORGOTTEN / 2, true)] {
            let at = Instant::now().checked_sub(age).unwrap();
            let old = Some(Arc::new(Gathered { at, ..Gathered::fresh(Vec::new()) }));
            let mut state = State { last: old.clone(), base: old, failed: None };
            state.let_go();
            assert_eq!([state.last.is_some(), state.base.is_some()], [is_kept; 2]);
        }
    }

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
