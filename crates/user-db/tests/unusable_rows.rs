//! Rows that the server cannot use: the user is refused, but the database is not treated as
//! failing. Operators disable users by such keys.

use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use test_support::{DatabaseKind, DatabaseServer, eventually, require};
use user_db::{
    Answer, Directory, DirectoryOptions, Health, LookupClient, SqliteReader, SqliteStore,
    UserEditor as _, UserReader, create_file, server_editor, server_reader,
};

use crate::support::{TempDir, by_name, user};

const REALM: &str = "example.org";

/// Directory that caches each answer until the database reports a change, with the reports about
/// the database.
struct World {
    directory: Directory<()>,
    answers: Receiver<Answer>,
    health: Receiver<Health>,
}

impl World {
    fn new(reader: Box<dyn UserReader>) -> Self {
        let (deliver, answers) = channel();
        let (report, health) = channel();
        let hour = Duration::from_secs(3600);
        let options = DirectoryOptions {
            changes_after: Duration::ZERO,
            known_for: hour,
            unknown_for: hour,
            store_within: hour,
            ..DirectoryOptions::default()
        };
        let deliver = move |(), answer| deliver.send(answer).unwrap();
        let report = move |state| report.send(state).unwrap();
        let directory = Directory::start_with_health(reader, options, deliver, report).unwrap();
        Self { directory, answers, health }
    }

    fn ask(&self, name: &str, has_allocation: bool) -> Answer {
        let client = LookupClient { address: [192, 0, 2, 1].into(), has_allocation };
        assert!(self.directory.find((), client, REALM.into(), by_name(name)));
        self.answers.recv().unwrap()
    }

    /// Returns true for a refusal that names the user, without the stored text, and without an
    /// outage.
    fn is_refused(&self, name: &str, stored: &str) -> bool {
        let answer = self.ask(name, false);
        if let Answer::Unusable(error) = &answer {
            let error = error.to_string();
            assert!(error.contains(name) && error.contains(REALM), "{error}");
            assert!(stored.is_empty() || !error.contains(stored), "{error}");
        }
        let known = self.ask(name, true);
        matches!((answer, known), (Answer::Unusable(_) | Answer::Unknown, Answer::Unknown))
    }
}

#[test]
fn a_user_with_an_unusable_key_of_coturn_is_refused() {
    let dir = TempDir::new();
    let path = dir.file("turndb");
    let url = format!("sqlite-coturn://{}", path.display());
    create_file(&url).unwrap();
    let mut editor = server_editor(&url).unwrap();
    editor.add(&user("bob", "a password")).unwrap();
    let world = World::new(server_reader(&url).unwrap());
    let raw = rusqlite::Connection::open(&path).unwrap();
    for (key, stored) in [
        ("NULL", ""),
        ("''", ""),
        ("'!disabled'", "!disabled"),
        ("'7da2270ccfa49786e0115366d3a3d1'", "7da2270ccfa49786e0115366d3a3d1"),
        ("'zda2270ccfa49786e0115366d3a3d14d'", "zda2270ccfa49786e0115366d3a3d14d"),
        ("X'FFFE'", ""),
        ("17", ""),
        ("1.5", ""),
    ] {
        editor.replace(&user("alice", "a password")).unwrap();
        eventually("alice is known", || matches!(world.ask("alice", false), Answer::Known(_)));
        let sql = format!("UPDATE turnusers_lt SET hmackey = {key} WHERE name = 'alice'");
        raw.execute(&sql, []).unwrap();
        eventually(key, || world.is_refused("alice", stored));
        assert!(matches!(world.ask("bob", false), Answer::Known(_)), "{key}");
        assert!(editor.user(REALM, &by_name("alice")).is_err(), "commands name the error: {key}");
    }
    let reports: Vec<_> = world.health.try_iter().collect();
    assert!(reports.is_empty(), "{reports:?}");
}

/// The drivers of database servers report NULL and other types in different ways.
#[test]
fn a_user_with_an_unusable_key_in_a_server_is_refused() {
    let sql = |key: &str| format!("UPDATE turnusers_lt SET hmackey = {key} WHERE name = 'alice'");
    let key = format!("turn/realm/{REALM}/user/alice/key");
    let keys = [sql("NULL"), sql("''"), sql("'!'")];
    let of_redis = [format!("SET {key} !"), format!("DEL {key}\nRPUSH {key} list")];
    for (kind, changes) in [
        (DatabaseKind::Postgres, &keys[..]),
        (DatabaseKind::Mariadb, &keys),
        (DatabaseKind::Redis, &of_redis),
    ] {
        let Some(server) = require(DatabaseServer::start(kind)) else { return };
        let mut editor = server_editor(&server.url()).unwrap();
        editor.add(&user("bob", "a password")).unwrap();
        let world = World::new(server_reader(&server.url()).unwrap());
        for change in changes {
            editor.replace(&user("alice", "a password")).unwrap();
            eventually("alice is known", || matches!(world.ask("alice", false), Answer::Known(_)));
            change.lines().for_each(|command| drop(server.run(command)));
            eventually(change, || world.is_refused("alice", ""));
            assert!(matches!(world.ask("bob", false), Answer::Known(_)), "{change}");
            editor.delete(REALM, "alice").unwrap();
        }
        let reports: Vec<_> = world.health.try_iter().collect();
        assert!(reports.is_empty(), "{kind:?}: {reports:?}");
    }
}

/// A migration changes the type of the column. The database still answers, and no cached key is
/// used.
#[test]
fn a_column_of_another_type_is_no_outage() {
    for (kind, change) in [
        (DatabaseKind::Postgres, "ALTER TABLE turnusers_lt ALTER hmackey TYPE bigint USING 1"),
        (
            DatabaseKind::Mariadb,
            "UPDATE turnusers_lt SET hmackey = '1'; ALTER TABLE turnusers_lt MODIFY hmackey BIGINT",
        ),
    ] {
        let Some(server) = require(DatabaseServer::start(kind)) else { return };
        server_editor(&server.url()).unwrap().add(&user("alice", "a password")).unwrap();
        let world = World::new(server_reader(&server.url()).unwrap());
        assert!(matches!(world.ask("alice", false), Answer::Known(_)));
        server.run(change);
        eventually(change, || world.is_refused("alice", ""));
        let reports: Vec<_> = world.health.try_iter().collect();
        assert!(reports.is_empty(), "{kind:?}: {reports:?}");
    }
}

/// A denied key concerns one user, and must not re-enable cached answers about others. If a right
/// that all look-ups need is missing, the operator gets a warning, and known users are served.
#[test]
fn a_key_that_redis_denies_is_no_outage_and_a_denied_command_is_one() {
    let Some(server) = require(DatabaseServer::start(DatabaseKind::Redis)) else { return };
    let mut editor = server_editor(&server.url()).unwrap();
    editor.add(&user("alice", "a password")).unwrap();
    editor.add(&user("bob", "a password")).unwrap();
    let world = World::new(server_reader(&server.url()).unwrap());
    for name in ["alice", "bob"] {
        assert!(matches!(world.ask(name, false), Answer::Known(_)));
    }
    server.run("ACL SETUSER default resetkeys ~turn/realm/*/user/bob/key");
    eventually("the key is denied", || world.is_refused("alice", ""));
    assert!(matches!(world.ask("bob", false), Answer::Known(_)));
    let reports: Vec<_> = world.health.try_iter().collect();
    assert!(reports.is_empty(), "{reports:?}");

    server.run("ACL SETUSER default -get");
    let mut health = None;
    eventually("the command is denied", || {
        assert!(
            matches!(world.ask("bob", false), Answer::Known(_) | Answer::LastKnown(_)),
            "as last confirmed"
        );
        health = world.health.try_recv().ok();
        health.is_some()
    });
    let Some(Health::Failing(error)) = health else { panic!("{health:?}") };
    assert!(error.to_string().contains("'get'"), "{error}");

    // Refused commands share the connection.
    let connections = || -> u64 {
        let stats = server.run("INFO stats");
        let number =
            stats.lines().find_map(|line| line.strip_prefix("total_connections_received:"));
        number.unwrap().trim().parse().unwrap()
    };
    let before = connections();
    for number in 0..20 {
        assert!(matches!(world.ask(&format!("stranger{number}"), false), Answer::Unavailable(_)));
    }
    // The probes of the outage share the connection too. This program opens one for each reading.
    let opened = connections() - before;
    assert!(opened < 5, "{opened}");
}

/// A failed login is repeated until a login succeeds.
#[test]
fn a_login_to_redis_that_failed_is_repeated() {
    let Some(server) = require(DatabaseServer::start(DatabaseKind::Redis)) else { return };
    server_editor(&server.url()).unwrap().add(&user("alice", "a password")).unwrap();
    server.run("ACL SETUSER turn on >secret ~* &* +@all");
    let url = format!("{}&user=turn&pass=secret", server.url());
    let world = World::new(server_reader(&url).unwrap());
    assert!(matches!(world.ask("alice", false), Answer::Known(_)));
    server.run("ACL SETUSER turn off");
    server.run("CLIENT KILL USER turn");
    let mut logins = 0;
    eventually("some logins fail", || {
        assert!(matches!(world.ask("alice", false), Answer::LastKnown(_)), "as last confirmed");
        logins +=
            world.health.try_iter().filter(|health| matches!(health, Health::Failing(_))).count();
        logins >= 3
    });
    server.run("ACL SETUSER turn on");
    eventually("the server logs in again", || {
        world.ask("alice", false);
        world.health.try_iter().any(|health| matches!(health, Health::Recovered))
    });
}

/// A row that another program has written without the checks of the table.
#[test]
fn a_user_with_an_unusable_row_is_refused() {
    for row in ["md5 = X'0102'", "sha256 = X'0102'", "allocations_max = -1"] {
        let dir = TempDir::new();
        let mut store = SqliteStore::open(&dir.database()).unwrap();
        store.add(&user("alice", "a password")).unwrap();
        store.add(&user("bob", "a password")).unwrap();
        let world = World::new(Box::new(SqliteReader::open(&dir.database()).unwrap()));
        assert!(matches!(world.ask("alice", false), Answer::Known(_)));
        let raw = rusqlite::Connection::open(dir.database()).unwrap();
        raw.execute_batch("PRAGMA ignore_check_constraints = ON").unwrap();
        raw.execute(&format!("UPDATE users SET {row} WHERE name = 'alice'"), []).unwrap();
        assert!(world.is_refused("alice", ""), "{row}");
        assert!(matches!(world.ask("bob", false), Answer::Known(_)), "{row}");
        assert!(world.health.try_recv().is_err(), "{row}");
    }
}

/// Errors of the database are an outage, and known users are served.
#[test]
fn a_missing_table_is_an_outage() {
    let dir = TempDir::new();
    let path = dir.file("turndb");
    let url = format!("sqlite-coturn://{}", path.display());
    create_file(&url).unwrap();
    server_editor(&url).unwrap().add(&user("alice", "a password")).unwrap();
    let world = World::new(server_reader(&url).unwrap());
    assert!(matches!(world.ask("alice", false), Answer::Known(_)));
    let raw = rusqlite::Connection::open(&path).unwrap();
    raw.execute("ALTER TABLE turnusers_lt RENAME TO elsewhere", []).unwrap();
    eventually("the table is missed", || matches!(world.ask("bob", false), Answer::Unavailable(_)));
    assert!(matches!(world.ask("alice", false), Answer::LastKnown(_)), "as last confirmed");
    assert!(matches!(world.health.try_recv(), Ok(Health::Failing(_))));
}
