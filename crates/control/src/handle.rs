//! All that the interface for operators holds of a running server.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::mpsc;
use turn_types::Instant;

use crate::limits::OPERATOR_QUEUE;
use crate::{
    ConfiguredKey, ControlError, KeeperState, OperatorRequest, ServerInfo, Traces,
    UnconfirmedUsers, UserDirectory, Workers,
};

/// The workers, the facts about the server, and the door to the binary's main loop. Cheap to
/// clone.
#[derive(Clone, Debug)]
pub struct Handle {
    /// The workers.
    pub workers: Workers,
    info: Arc<Mutex<Arc<ServerInfo>>>,
    drain_deadline: Arc<Mutex<Option<Instant>>>,
    keeper: Arc<Mutex<KeeperState>>,
    configuration: Arc<Mutex<Arc<[ConfiguredKey]>>>,
    operator: mpsc::Sender<OperatorRequest>,
    /// Clients and users whose events are logged in detail.
    pub traces: Arc<Traces>,
    log_lines_lost: LostLines,
    users: KnownUsers,
    /// True after the changed users were passed on to another process.
    users_passed_on: Arc<Mutex<bool>>,
    differences: Arc<Mutex<Arc<[String]>>>,
    /// A sentence about each port that another process has as well.
    shared_ports: Arc<Mutex<Arc<[String]>>>,
}

/// The directory of the user database; `None` without one.
#[derive(Clone, Default)]
struct KnownUsers(Option<Arc<dyn UserDirectory>>);

impl fmt::Debug for KnownUsers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("KnownUsers").finish_non_exhaustive()
    }
}

/// Reads the number of log lines that were lost since the start.
#[derive(Clone)]
struct LostLines(Arc<dyn Fn() -> u64 + Send + Sync>);

impl fmt::Debug for LostLines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LostLines").field(&(self.0)()).finish()
    }
}

impl Handle {
    /// A handle, and the end at which the binary's main loop takes operator requests.
    #[must_use]
    pub fn new(workers: Workers, info: ServerInfo) -> (Self, mpsc::Receiver<OperatorRequest>) {
        let (operator, requests) = mpsc::channel(OPERATOR_QUEUE);
        let info = Arc::new(Mutex::new(Arc::new(info)));
        (
            Self {
                workers,
                info,
                drain_deadline: Arc::default(),
                keeper: Arc::default(),
                configuration: Arc::default(),
                operator,
                traces: Arc::default(),
                log_lines_lost: LostLines(Arc::new(|| 0)),
                users: KnownUsers::default(),
                users_passed_on: Arc::default(),
                differences: Arc::default(),
                shared_ports: Arc::default(),
            },
            requests,
        )
    }

    /// Uses the traces that the workers have.
    #[must_use]
    pub fn with_traces(self, traces: Arc<Traces>) -> Self {
        Self { traces, ..self }
    }

    /// Reads the number of lost log lines from `count`.
    #[must_use]
    pub fn with_lost_lines(self, count: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        Self { log_lines_lost: LostLines(Arc::new(count)), ..self }
    }

    /// Uses the directory that the workers have.
    #[must_use]
    pub fn with_users(self, users: Arc<dyn UserDirectory>) -> Self {
        Self { users: KnownUsers(Some(users)), ..self }
    }

    /// Forgets a database user that an operator has changed. Returns false if another process has
    /// the changed users already, without this one: the change is to be repeated there.
    #[must_use]
    pub fn forget_user(&self, realm: &str, name: &str) -> bool {
        let passed_on = self.users_passed_on.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(users) = &self.users.0 {
            users.forget(realm, name);
        }
        !*passed_on
    }

    /// Unconfirmed users for another process, which serves from now on.
    #[must_use]
    pub fn pass_on_users(&self) -> UnconfirmedUsers {
        *self.users_passed_on.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.unconfirmed_users()
    }

    /// Notes that no other process serves.
    pub fn keep_users(&self) {
        *self.users_passed_on.lock().unwrap_or_else(PoisonError::into_inner) = false;
    }

    /// Users whom the database has to confirm before earlier keys count in an outage.
    #[must_use]
    pub fn unconfirmed_users(&self) -> UnconfirmedUsers {
        self.users.0.as_ref().map(|users| users.unconfirmed()).unwrap_or_default()
    }

    /// Takes the unconfirmed users of an earlier process.
    pub fn distrust_users(&self, users: &UnconfirmedUsers) {
        if let Some(directory) = &self.users.0 {
            directory.distrust(users);
        }
    }

    /// Number of log lines that were lost since the start.
    #[must_use]
    pub fn log_lines_lost(&self) -> u64 {
        (self.log_lines_lost.0)()
    }

    /// The facts about the server.
    #[must_use]
    pub fn info(&self) -> Arc<ServerInfo> {
        Arc::clone(&self.info.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces the facts, after a reload.
    pub fn set_info(&self, info: ServerInfo) {
        *self.info.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(info);
    }

    /// Differences from the server in whose place this one runs, a sentence about each.
    #[must_use]
    pub fn differences(&self) -> Arc<[String]> {
        Arc::clone(&self.differences.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces the differences from the server in whose place this one runs.
    pub fn set_differences(&self, differences: Vec<String>) {
        *self.differences.lock().unwrap_or_else(PoisonError::into_inner) = differences.into();
    }

    /// A sentence about each port of a listener that another process has as well.
    #[must_use]
    pub fn shared_ports(&self) -> Arc<[String]> {
        Arc::clone(&self.shared_ports.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces the sentences about ports that another process has as well.
    pub fn set_shared_ports(&self, shared: Vec<String>) {
        *self.shared_ports.lock().unwrap_or_else(PoisonError::into_inner) = shared.into();
    }

    /// Time at which a draining server ends live allocations; `None` while it does not drain.
    #[must_use]
    pub fn drain_deadline(&self) -> Option<Instant> {
        *self.drain_deadline.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the time at which a draining server ends live allocations, for queries.
    pub fn set_drain_deadline(&self, deadline: Option<Instant>) {
        *self.drain_deadline.lock().unwrap_or_else(PoisonError::into_inner) = deadline;
    }

    /// The process that has copies of all calls over UDP and DTLS, if one has.
    #[must_use]
    pub fn keeper(&self) -> KeeperState {
        self.keeper.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sets the process that has copies of all calls over UDP and DTLS, for queries.
    pub fn set_keeper(&self, keeper: KeeperState) {
        *self.keeper.lock().unwrap_or_else(PoisonError::into_inner) = keeper;
    }

    /// The configuration in force; empty where nobody said it.
    #[must_use]
    pub fn configuration(&self) -> Arc<[ConfiguredKey]> {
        Arc::clone(&self.configuration.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces the configuration in force.
    pub fn set_configuration(&self, keys: Vec<ConfiguredKey>) {
        *self.configuration.lock().unwrap_or_else(PoisonError::into_inner) = keys.into();
    }

    /// Asks something of the server as a whole; the answer comes through the request itself.
    ///
    /// # Errors
    /// [`ControlError::Stopping`] when the server's loop has ended.
    pub async fn operator(&self, request: OperatorRequest) -> Result<(), ControlError> {
        self.operator.send(request).await.map_err(|_| ControlError::Stopping)
    }
}
