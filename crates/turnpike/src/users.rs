//! User database for workers and commands. Only [`reader`] and [`editor`] choose the kind of
//! database, by the settings.

use std::cell::Cell;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use control::{Asked, Request, UnconfirmedUsers, UserDirectory, UserLookup, Workers};
use settings::{Database, Settings};
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use turn_proto::{Policy, User, UserAnswer, UserKeys, UserQuery};
use turn_types::{PendingId, Secret, WorkerId};
use user_db::{
    Answer, Directory, DirectoryOptions, Health, Layered, LookupClient, SqliteReader, SqliteStore,
    StoreError, UserEditor, UserReader, UserRecord,
};

use crate::throttle::Throttle;

/// Opens the databases of a configuration for look-ups.
pub(crate) fn readers(settings: &Settings) -> Result<Box<dyn UserReader>, StoreError> {
    let all = reader(&settings.user_database())?;
    Ok(match settings.local_users() {
        None => all,
        Some(local) => Box::new(Layered::new(reader(&local)?, all)),
    })
}

/// Opens a database for look-ups.
fn reader(database: &Database) -> Result<Box<dyn UserReader>, StoreError> {
    match database {
        Database::Sqlite(path) => Ok(Box::new(SqliteReader::open(path)?)),
        Database::CoturnSqlite(_) | Database::Server(_) => {
            user_db::server_reader(database.coturn_url().expose())
        }
    }
}

/// Opens a database for changes. Creates a missing SQLite file.
pub(crate) fn editor(database: &Database) -> Result<Box<dyn UserEditor>, StoreError> {
    match database {
        Database::Sqlite(path) => Ok(Box::new(SqliteStore::open(path)?)),
        Database::CoturnSqlite(_) | Database::Server(_) => {
            user_db::server_editor(database.coturn_url().expose())
        }
    }
}

/// Minimum number of characters in a password. Clients send a hash of the password, which an
/// eavesdropper can use to guess the password.
const PASSWORD_CHARS_MIN: usize = 8;

/// Checks a password that an operator has chosen. An empty password is refused together with the
/// name, not here.
///
/// # Errors
/// The password is too short. The error is a sentence.
pub(crate) fn check_chosen(password: &Secret<String>) -> Result<(), String> {
    let chars = password.expose().chars().count();
    if !(1..PASSWORD_CHARS_MIN).contains(&chars) {
        return Ok(());
    }
    let s = if chars == 1 { "" } else { "s" };
    Err(format!("the password has {chars} character{s}, and needs {PASSWORD_CHARS_MIN} or more"))
}

/// Offers SHA-256 in each realm of a policy, unless a user of the realm has only an MD5 key.
///
/// # Errors
/// The database cannot be read.
pub(crate) fn offer_sha256(
    editor: &mut dyn UserEditor,
    mut policy: Policy,
) -> Result<Policy, StoreError> {
    policy.auth.sha256 = !editor.has_md5_only(&policy.realm)?;
    let md5_only = policy.realms.iter().map(|realm| editor.has_md5_only(&realm.name));
    let mut md5_only = md5_only.collect::<Result<Vec<_>, _>>()?.into_iter();
    policy.realms = policy.realms.map(|realm| realm.auth.sha256 = md5_only.next() == Some(false));
    Ok(policy)
}

/// Repeats [`offer_sha256`] at a reload for a database in a file. Other databases have only MD5
/// keys. If the file cannot be read, the previous result remains.
pub(crate) async fn offer_sha256_again(database: Database, policy: Policy) -> Policy {
    if !matches!(database, Database::Sqlite(_)) || !exists(&database) {
        return policy;
    }
    let known = policy.clone();
    let read = spawn_blocking(move || offer_sha256(&mut *editor(&database)?, policy));
    match timeout(KINDS_OF_KEYS_WITHIN, read).await {
        Ok(Ok(Ok(policy))) => policy,
        Ok(Ok(Err(error))) => {
            tracing::warn!(
                "the user database cannot be read, to see which keys its users have: {error}"
            );
            known
        }
        Ok(Err(_)) | Err(_) => known,
    }
}

/// Maximum wait of a reload for the database.
const KINDS_OF_KEYS_WITHIN: Duration = Duration::from_secs(2);

/// Returns true if the database's file exists, or if the database has no file. The editor reports a
/// missing database of another kind.
pub(crate) fn exists(database: &Database) -> bool {
    database.file().is_none_or(Path::exists)
}

/// Receiver of a look-up's result.
#[derive(Clone, Copy, Debug)]
struct Asker {
    worker: WorkerId,
    pending: PendingId,
}

/// User directory that looks users up on background threads.
#[derive(Debug)]
pub(crate) struct Users {
    directory: Directory<Asker>,
    /// Unconfirmed users, with the revision of the directory's set.
    unconfirmed: Mutex<(u64, UnconfirmedUsers)>,
}

impl Users {
    /// Starts the look-up threads, which post results to the workers' mailboxes.
    pub(crate) fn start(reader: Box<dyn UserReader>, workers: Workers) -> Result<Self, StoreError> {
        let warning = Throttle::default();
        let deliver = move |asker: Asker, answer| {
            let request = Request::UserFound {
                pending: asker.pending,
                answer: in_protocol_words(answer, &warning),
            };
            let posted = workers.mailbox(asker.worker).map(|mailbox| mailbox.post(request));
            if let Some(Err(error)) = posted {
                // A mailbox has space for the result of every look-up that can wait. A failed post
                // thus means that the worker has exited or is stuck. The worker's waiting requests
                // expire after `USER_LOOKUP_WITHIN`.
                tracing::debug!(worker = asker.worker.0, %error, "a user was found in vain");
            }
        };
        let options = DirectoryOptions::default();
        let outage = Outage::default();
        let report = move |health| outage.take(&health, Instant::now());
        let started = Directory::start_with_health(reader, options, deliver, report);
        let directory = started.map_err(StoreError::Threads)?;
        Ok(Self { directory, unconfirmed: Mutex::default() })
    }
}

impl UserDirectory for Users {
    fn find(&self, lookup: UserLookup) -> Asked {
        let UserLookup { worker, pending, client, has_allocation, realm, user } = lookup;
        let user = in_words_of_store(user);
        if let Some(known) = self.directory.known(&realm, &user) {
            return Asked::Answered(
                known.map_or(UserAnswer::Unknown, |user| UserAnswer::Known(in_server_words(user))),
            );
        }
        let asker = Asker { worker, pending };
        let client = LookupClient { address: client.ip(), has_allocation };
        if self.directory.find(asker, client, realm, user) { Asked::Taken } else { Asked::Refused }
    }

    fn forget(&self, realm: &str, name: &str) {
        self.directory.forget(realm, name);
    }

    fn unconfirmed(&self) -> UnconfirmedUsers {
        // Ignoring poison is sound, because the value is replaced as a unit.
        let mut known = self.unconfirmed.lock().unwrap_or_else(PoisonError::into_inner);
        let revision = self.directory.unconfirmed_revision();
        if known.0 != revision {
            let users = self.directory.unconfirmed().into_iter();
            let users = users.map(|(realm, user)| (realm, in_words_of_workers(user)));
            *known = (revision, UnconfirmedUsers::new(users.collect()));
        }
        known.1.clone()
    }

    fn distrust(&self, users: &UnconfirmedUsers) {
        let users = users.iter().cloned();
        self.directory.distrust(users.map(|(realm, user)| (realm, in_words_of_store(user))));
    }
}

/// User directory of a server without a user database. The rules of such a server never look up a
/// user.
#[derive(Debug)]
pub(crate) struct NoUsers;

impl UserDirectory for NoUsers {
    fn find(&self, _lookup: UserLookup) -> Asked {
        Asked::Refused
    }

    fn forget(&self, _realm: &str, _name: &str) {}

    fn unconfirmed(&self) -> UnconfirmedUsers {
        UnconfirmedUsers::default()
    }

    fn distrust(&self, _users: &UnconfirmedUsers) {}
}

fn in_words_of_store(user: UserQuery) -> user_db::UserQuery {
    match user {
        UserQuery::Name(name) => user_db::UserQuery::Name(name),
        UserQuery::Hash(hash) => user_db::UserQuery::Hash(hash),
    }
}

fn in_words_of_workers(user: user_db::UserQuery) -> UserQuery {
    match user {
        user_db::UserQuery::Name(name) => UserQuery::Name(name),
        user_db::UserQuery::Hash(hash) => UserQuery::Hash(hash),
    }
}

fn in_protocol_words(answer: Answer, warning: &Throttle) -> UserAnswer {
    match answer {
        Answer::Known(user) => UserAnswer::Known(in_server_words(user)),
        Answer::LastKnown(user) => UserAnswer::LastKnown(in_server_words(user)),
        Answer::Unknown => UserAnswer::Unknown,
        Answer::Overloaded => UserAnswer::Overloaded,
        // A log line about the outage exists already.
        Answer::Unconfirmed(_) => UserAnswer::Unconfirmed,
        Answer::Unavailable(_) => UserAnswer::Unavailable,
        Answer::Unusable(error) => {
            if warning.is_due(Instant::now()) {
                tracing::warn!("{error}");
            }
            UserAnswer::Unknown
        }
    }
}

fn in_server_words(user: UserRecord) -> User {
    User {
        name: user.name,
        keys: UserKeys { md5: user.keys.md5, sha256: user.keys.sha256 },
        allocations_max: user.allocations_max,
    }
}

/// Log lines about a failing database: a warning, repeated each minute, and one line when a
/// reported outage is over. At most two lines a minute are logged.
#[derive(Debug, Default)]
struct Outage {
    warning: Throttle,
    is_told: Cell<bool>,
}

impl Outage {
    fn take(&self, health: &Health, now: Instant) {
        match health {
            Health::Failing(error) if self.warning.is_due(now) => {
                self.is_told.set(true);
                tracing::warn!(
                    "the user database cannot be read ({error}): users whom it has confirmed within the last hour log \
                     in, others cannot"
                );
            }
            Health::Recovered if self.is_told.take() => {
                tracing::info!("the user database is read again");
            }
            Health::Failing(_) | Health::Recovered => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use control::{Wake, WorkerCounters, limits::MAILBOX_CAPACITY, mailbox};
    use turn_types::ClientAddr;
    use user_db::NewUser;

    use super::*;

    struct Knock(std::sync::mpsc::Sender<()>);

    impl Wake for Knock {
        fn wake(&self) {
            let _ = self.0.send(());
        }
    }

    #[test]
    fn a_worker_is_answered_through_its_mailbox() {
        let directory = crate::testing::Directory::new("users");
        let database = Database::Sqlite(directory.path().join("users.sqlite"));
        let mut store = editor(&database).unwrap();
        let password = Secret::new("secret-of-bob".to_owned());
        store.add(&NewUser::new("realm", "bob", &password, Some(3)).unwrap()).unwrap();

        let (knock, knocks) = std::sync::mpsc::channel();
        let (mailbox, inbox) = mailbox(MAILBOX_CAPACITY, Arc::new(Knock(knock)));
        let workers = Workers::new(vec![(mailbox, Arc::new(WorkerCounters::new()))]);
        let users = Users::start(reader(&database).unwrap(), workers).unwrap();
        let ask = |pending, name: &str| {
            let user = UserQuery::Name(name.into());
            let lookup = UserLookup {
                worker: WorkerId(0),
                pending: PendingId(pending),
                client: ClientAddr(([192, 0, 2, 1], 1).into()),
                has_allocation: false,
                realm: "realm".into(),
                user,
            };
            assert_eq!(users.find(lookup), Asked::Taken, "{name} was not looked up before");
            knocks.recv().unwrap();
            match inbox.take() {
                Some(Request::UserFound { pending, answer }) => (pending.0, answer),
                other => panic!("{other:?}"),
            }
        };

        let (pending, answer) = ask(7, "bob");
        assert_eq!(pending, 7);
        let UserAnswer::Known(user) = answer else { panic!("{answer:?}") };
        assert_eq!((&*user.name, user.allocations_max), ("bob", Some(3)));
        let md5 = stun_wire::long_term_key_md5("bob", "realm", "secret-of-bob").unwrap();
        assert_eq!(*user.keys.md5.expose(), md5);
        assert_eq!(ask(8, "alice"), (8, UserAnswer::Unknown));
    }

    #[test]
    fn a_user_with_an_unusable_row_is_refused_and_logged() {
        let row = StoreError::Row { name: "bob".into(), realm: "r".into(), what: "no key" };
        let warning = Throttle::default();
        let answer = in_protocol_words(Answer::Unusable(Arc::new(row)), &warning);
        assert_eq!(answer, UserAnswer::Unknown);
        assert!(!warning.is_due(Instant::now()), "a line was written");
    }

    #[test]
    fn earlier_keys_of_a_user_have_an_end() {
        let DirectoryOptions { changes_after, unreported_for, store_within, .. } =
            DirectoryOptions::default();
        let good_for = changes_after.max(unreported_for);
        assert!(store_within + good_for < control::limits::USER_CHANGE_SEEN_WITHIN);
    }

    #[test]
    fn an_outage_has_a_line_a_minute_and_one_at_its_end() {
        let outage = Outage::default();
        let start = Instant::now();
        let failing = Health::Failing(Arc::new(StoreError::Overloaded));
        let told = |health: &Health, seconds| {
            outage.take(health, start + Duration::from_secs(seconds));
            outage.is_told.get()
        };
        assert!(!told(&Health::Recovered, 0));
        assert!(told(&failing, 1));
        assert!(told(&failing, 2));
        assert!(!told(&Health::Recovered, 3));
        assert!(!told(&failing, 4), "the same minute");
        assert!(told(&failing, 61));
    }

    #[test]
    fn a_failing_database_is_logged_once_a_minute() {
        let warning = Throttle::default();
        let start = Instant::now();
        let is_due = |seconds| warning.is_due(start + Duration::from_secs(seconds));
        assert_eq!([0, 1, 59, 60, 61, 120].map(is_due), [true, false, false, true, false, true]);
    }
}
