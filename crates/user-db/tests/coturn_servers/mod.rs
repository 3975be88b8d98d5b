//! Coturn's layout in real database servers: filled and read by coturn's `turnadmin`, paused and
//! restarted.

mod encrypted;
mod hanging_reports;
#[cfg(feature = "mongodb")]
mod mongo;

use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use test_support::{DatabaseKind, DatabaseServer, eventually, require};
use turn_types::Secret;
use user_db::{
    Answer, Directory, DirectoryOptions, LookupClient, NewUser, Page, Position, Reading, Row,
    StoreError, Table, TableEditor, TableWatch, TableWatchOptions, UserEditor, UserQuery,
    create_file, server_editor, server_reader, server_tables,
};

const REALM: &str = "example.org";
/// Time longer than any deadline of a look-up.
const PATIENCE: Duration = Duration::from_secs(60);

fn user(name: &str, password: &str) -> NewUser {
    NewUser::new(REALM, name, &Secret::new(password.to_owned()), None).unwrap()
}

struct Asked {
    directory: Directory<()>,
    answers: Receiver<Answer>,
}

impl Asked {
    fn of(url: &str) -> Self {
        let (deliver, answers) = channel();
        let reader = server_reader(url).unwrap();
        let deliver = move |(), answer| deliver.send(answer).unwrap();
        let directory = Directory::start(reader, DirectoryOptions::default(), deliver).unwrap();
        Self { directory, answers }
    }

    fn ask(&self, name: &str) -> Answer {
        let client = LookupClient { address: [192, 0, 2, 1].into(), has_allocation: false };
        assert!(self.directory.find((), client, REALM.into(), UserQuery::Name(name.into())));
        self.answers.recv_timeout(PATIENCE).unwrap()
    }

    fn is_known(&self, name: &str) -> bool {
        matches!(self.ask(name), Answer::Known(_))
    }

    fn is_unknown(&self, name: &str) -> bool {
        matches!(self.ask(name), Answer::Unknown)
    }
}

/// A name that the encoding of a database cannot represent is an unknown user's. Any client may
/// send such a name. A failure of the database would be logged, and admit last known users.
fn text_without_a_place_is_nobody(url: &str) {
    server_editor(url).unwrap().add(&user("zo\u{eb}", "p")).unwrap();
    let asked = Asked::of(url);
    assert!(asked.is_known("zo\u{eb}"));
    for name in ["\u{439}\u{446}\u{443}", "\u{4e2d}", "a\u{1f600}", "\u{20ac}\u{142}"] {
        assert!(asked.is_unknown(name), "{name}");
    }
    assert!(asked.is_known("zo\u{eb}"));
}

#[test]
fn names_beyond_latin1_are_unknown_to_postgresql() {
    let Some(server) = server(DatabaseKind::Postgres) else { return };
    server.run(
        "CREATE DATABASE latin ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0",
    );
    server.run_in(
        "latin",
        "CREATE TABLE turnusers_lt (realm varchar(127), name varchar(512), hmackey char(128),
         PRIMARY KEY (realm, name))",
    );
    let url = server.tcp_url();
    text_without_a_place_is_nobody(&format!("{}latin", url.strip_suffix("turn").unwrap()));
}

#[test]
fn names_beyond_latin1_are_unknown_to_mariadb() {
    let Some(server) = server(DatabaseKind::Mariadb) else { return };
    server.run("ALTER TABLE turnusers_lt CONVERT TO CHARACTER SET latin1");
    text_without_a_place_is_nobody(&server.url());
}

/// Each program immediately detects the changes of the other.
fn shared_with_coturn(server: &DatabaseServer) {
    let url = server.url();
    let mut editor = server_editor(&url).unwrap();
    let asked = Asked::of(&url);
    assert!(asked.is_unknown("bob"));
    assert!(editor.realms().unwrap().is_empty());

    editor.add(&user("alice", "correct-horse")).unwrap();
    assert!(matches!(editor.add(&user("alice", "x")), Err(StoreError::Exists { .. })));
    let listed = server.turnadmin(&["-l", "-r", REALM]);
    assert!(listed.contains("alice"), "{listed}");

    server.turnadmin(&["-a", "-u", "bob", "-r", REALM, "-p", "battery"]);
    eventually("a user of turnadmin is known", || asked.is_known("bob"));
    let Answer::Known(bob) = asked.ask("bob") else { panic!("bob is known") };
    assert_eq!(bob.keys.md5, user("bob", "battery").keys().md5);
    assert_eq!(bob.keys.sha256, None);

    server.turnadmin(&["-a", "-u", "bob", "-r", REALM, "-p", "another"]);
    eventually("a new password is known", || {
        let Answer::Known(bob) = asked.ask("bob") else { return false };
        bob.keys.md5 == user("bob", "another").keys().md5
    });
    server.turnadmin(&["-d", "-u", "bob", "-r", REALM]);
    eventually("a user that turnadmin deletes is gone", || asked.is_unknown("bob"));

    edited(&mut *editor);
    let listed = server.turnadmin(&["-l", "-r", REALM]);
    assert!(!listed.contains("alice") && listed.contains("carol"), "{listed}");
}

/// Every function of an editor, on a database with alice as the only user.
fn edited(editor: &mut dyn UserEditor) {
    assert!(!editor.set_keys(&user("carol", "p")).unwrap());
    assert!(!editor.replace(&user("carol", "p")).unwrap());
    assert!(editor.replace(&user("carol", "p")).unwrap(), "the same key again");
    assert!(editor.set_keys(&user("carol", "q")).unwrap());
    let found = editor.user(REALM, &UserQuery::Name("carol".into())).unwrap().unwrap();
    assert_eq!(found.keys.md5, user("carol", "q").keys().md5);
    let upper = editor.user(REALM, &UserQuery::Name("CAROL".into())).unwrap();
    assert_eq!(upper, None, "names are compared byte by byte");
    assert!(!editor.delete(REALM, "CAROL").unwrap());

    let limited = NewUser::new(REALM, "dave", &Secret::new("p".to_owned()), Some(3)).unwrap();
    assert!(matches!(editor.add(&limited), Err(StoreError::NoLimits)));
    assert!(matches!(
        editor.set_allocations_max(REALM, "carol", Some(3)),
        Err(StoreError::NoLimits)
    ));
    assert!(editor.has_md5_only(REALM).unwrap());

    let other = NewUser::new("a*realm", "eve", &Secret::new("p".to_owned()), None).unwrap();
    editor.add(&other).unwrap();
    assert_eq!(editor.realms().unwrap(), [(REALM.to_owned(), 2), ("a*realm".to_owned(), 1)]);
    let mut pages = Vec::new();
    let mut after = None;
    loop {
        let page = Page { realm: None, after: after.take(), limit: 2 };
        let found = editor.list(&page).unwrap();
        let Some(last) = found.last() else { break };
        after = Some(Position { realm: last.realm.clone(), name: last.name.clone() });
        pages.push(found.into_iter().map(|user| user.name).collect::<Vec<_>>());
    }
    assert_eq!(pages, [vec!["eve", "alice"], vec!["carol"]]);
    let one = Page { realm: Some("a*realm".to_owned()), after: None, limit: 9 };
    assert_eq!(editor.list(&one).unwrap().len(), 1);
    assert!(editor.delete(REALM, "alice").unwrap());
    assert!(!editor.delete(REALM, "alice").unwrap());
}

/// While the server hangs or is stopped, known users are served, and others get the answer of an
/// outage.
fn outages(server: &mut DatabaseServer) {
    let url = server.tcp_url();
    let mut editor = server_editor(&url).unwrap();
    editor.replace(&user("alice", "p")).unwrap();
    let asked = Asked::of(&url);
    assert!(asked.is_known("alice"));

    server.pause();
    assert!(matches!(asked.ask("nobody"), Answer::Unavailable(_)));
    assert!(matches!(asked.ask("alice"), Answer::LastKnown(_)));
    server.resume();
    eventually("it is asked again when it goes on", || asked.is_unknown("nobody"));

    server.stop();
    let Answer::Unavailable(error) = asked.ask("frank") else { panic!("it is away") };
    let error = error.to_string();
    assert!(!error.contains("turn-password"), "{error}");
    assert!(matches!(asked.ask("alice"), Answer::LastKnown(_)));
    server.start_again();
    eventually("it is asked again when it is back", || asked.is_unknown("frank"));
    let mut editor = server_editor(&url).unwrap();
    editor.replace(&user("frank", "p")).unwrap();
    eventually("a new user is known", || asked.is_known("frank"));
}

fn server(kind: DatabaseKind) -> Option<DatabaseServer> {
    require(DatabaseServer::start(kind))
}

#[test]
fn postgresql_is_shared_with_coturn_and_may_fail() {
    let Some(mut server) = server(DatabaseKind::Postgres) else { return };
    shared_with_coturn(&server);
    outages(&mut server);
}

#[test]
fn mariadb_is_shared_with_coturn_and_may_fail() {
    let Some(mut server) = server(DatabaseKind::Mariadb) else { return };
    shared_with_coturn(&server);
    outages(&mut server);
}

#[test]
fn redis_is_shared_with_coturn_and_may_fail() {
    let Some(mut server) = server(DatabaseKind::Redis) else { return };
    shared_with_coturn(&server);
    outages(&mut server);
}

#[test]
fn a_file_of_sqlite_is_shared_with_coturn_and_may_be_locked() {
    let Some(server) = server(DatabaseKind::Sqlite) else { return };
    shared_with_coturn(&server);
    let mut editor = server_editor(&server.url()).unwrap();
    editor.replace(&user("alice", "p")).unwrap();
    let asked = Asked::of(&server.url());
    assert!(asked.is_known("alice"));

    let path = server.url().replace("sqlite-coturn://", "");
    let writer = rusqlite::Connection::open(&path).unwrap();
    writer.execute_batch("BEGIN EXCLUSIVE").unwrap();
    assert!(matches!(asked.ask("nobody"), Answer::Unavailable(_)));
    assert!(matches!(asked.ask("alice"), Answer::LastKnown(_)));
    writer.execute_batch("ROLLBACK").unwrap();
    eventually("it is asked again", || asked.is_unknown("nobody"));
}

#[test]
fn changes_of_a_file_of_sqlite_are_reported() {
    let Some(server) = server(DatabaseKind::Sqlite) else { return };
    server.turnadmin(&["-l"]);
    changes_are_reported(&server);
}

#[test]
fn a_file_that_is_not_there_is_created_by_turnadmin_only() {
    let path = std::env::temp_dir().join(format!("no-turndb-{}", std::process::id()));
    let url = format!("sqlite-coturn://{}", path.display());
    let asked = Asked::of(&url);
    let Answer::Unavailable(error) = asked.ask("alice") else { panic!("there is no file") };
    // An error names a mistyped path, and no database without users is created.
    let missing = format!("{url}: there is no such file");
    assert!(error.to_string().starts_with(&missing), "{error}");
    let mut editor = server_editor(&url).unwrap();
    let refused = [
        editor.realms().map(drop),
        editor.add(&user("alice", "p")),
        server_tables(&url).unwrap().rows(Table::Secrets, 9).map(drop),
        server_tables(&url).unwrap().put(Table::Secrets, row(&[REALM, "secret"])),
    ];
    for refused in refused {
        let error = refused.unwrap_err().to_string();
        assert!(error.starts_with(&missing), "{error}");
    }
    assert!(!path.exists());
    create_file(&url).unwrap();
    editor.add(&user("alice", "p")).unwrap();
    assert_eq!(std::os::unix::fs::MetadataExt::mode(&path.metadata().unwrap()) & 0o777, 0o600);
    eventually("she is known", || asked.is_known("alice"));
    std::fs::remove_file(&path).unwrap();
}

/// A path may also lead to the database of another program.
#[test]
fn a_file_of_another_program_gets_no_tables_of_coturn() {
    let path = std::env::temp_dir().join(format!("no-coturn-{}", std::process::id()));
    let other = rusqlite::Connection::open(&path).unwrap();
    other.execute_batch("CREATE TABLE other (value)").unwrap();
    let url = format!("sqlite-coturn://{}", path.display());
    let error = server_editor(&url).unwrap().add(&user("alice", "p")).unwrap_err().to_string();
    assert!(error.contains("not a file of coturn"), "{error}");
    let tables: i64 =
        other.query_row("SELECT COUNT(*) FROM sqlite_schema", [], |row| row.get(0)).unwrap();
    assert_eq!(tables, 1);
    std::fs::remove_file(&path).unwrap();
}

/// Every kind of database stores rows unchanged, and reads those of `turnadmin`.
fn rows_are_kept(kind: DatabaseKind) {
    let Some(server) = server(kind) else { return };
    let tables = server_tables(&server.url()).unwrap();
    server.turnadmin(&["-s", "a-secret-of-coturn", "-r", REALM]);
    assert_eq!(tables.rows(Table::Secrets, 9).unwrap(), [row(&[REALM, "a-secret-of-coturn"])]);
    tables.remove(Table::Secrets, row(&[REALM, "a-secret-of-coturn"])).unwrap();
    rows_are_as_they_were_put(&tables);
}

fn row(values: &[&str]) -> Row {
    values.iter().map(|value| (*value).to_owned()).collect()
}

/// Tests of changes in tables without rows.
fn rows_are_as_they_were_put(tables: &TableEditor) {
    for (table, first, second) in [
        (Table::Secrets, &[REALM, "a"][..], &[REALM, "b"][..]),
        (Table::Origins, &["http://a:80", "r"], &["http://b:80", "r"]),
        (Table::Options, &[REALM, "max-bps", "7"], &[REALM, "user-quota", "8"]),
        (Table::AllowedPeers, &["", "10.0.0.0/8"], &[REALM, "10.0.0.1-10.0.0.9"]),
        (Table::DeniedPeers, &["", "192.0.2.1"], &[REALM, "192.0.2.2"]),
        (
            Table::TokenKeys,
            &["k", "a2V5", "5", "6", "A128GCM", "r"],
            &["l", "a2V5", "0", "0", "", "r"],
        ),
        (Table::Admins, &["root", "", "$5$00$11"], &["second", "r", "x"]),
    ] {
        for _ in 0..2 {
            tables.put(table, row(first)).unwrap();
            tables.put(table, row(second)).unwrap();
        }
        assert_eq!(tables.rows(table, 9).unwrap(), [row(first), row(second)], "{table:?}");
        assert_eq!(tables.rows(table, 0).unwrap().len(), 1, "one more than the limit");
    }
    tables.put(Table::Options, row(&[REALM, "max-bps", "9"])).unwrap();
    tables.remove(Table::Options, row(&[REALM, "user-quota"])).unwrap();
    assert_eq!(tables.rows(Table::Options, 9).unwrap(), [row(&[REALM, "max-bps", "9"])]);
    tables.remove(Table::Secrets, row(&[REALM])).unwrap();
    assert!(tables.rows(Table::Secrets, 9).unwrap().is_empty());
}

#[test]
fn rows_are_kept_in_each_kind() {
    for kind in
        [DatabaseKind::Postgres, DatabaseKind::Mariadb, DatabaseKind::Redis, DatabaseKind::Sqlite]
    {
        rows_are_kept(kind);
    }
}

/// A tenant may write the keys of its own realm. Rows of other realms must still be readable.
#[test]
fn unusable_values_of_one_realm_hide_no_row_of_another() {
    let Some(server) = server(DatabaseKind::Redis) else { return };
    let tables = server_tables(&server.url()).unwrap();
    for command in [
        "SADD turn/realm/one/secret a-secret-of-realm-one",
        r"EVAL return(redis.call('SADD','turn/realm/two/secret','0123456789abcde\255')) 0",
        "SET turn/realm/two/denied-peer-ip text",
        "SADD turn/realm/two/max-bps 7",
    ] {
        server.run(command);
    }
    let secrets = tables.rows(Table::Secrets, 9).unwrap();
    assert_eq!(secrets, [row(&["one", "a-secret-of-realm-one"]), row(&["two", ""])]);
    let denied = tables.rows(Table::DeniedPeers, 9).unwrap();
    assert!(denied.contains(&row(&["two", "0.0.0.0-255.255.255.255"])), "{denied:?}");
    assert_eq!(tables.rows(Table::Options, 9).unwrap(), [row(&["two", "max-bps", ""])]);
}

/// Readings of a server that hangs retain the last rows, and continue afterwards.
#[test]
fn tables_outlast_a_server_that_hangs() {
    let Some(server) = server(DatabaseKind::Postgres) else { return };
    server.turnadmin(&["-s", "secret-1", "-r", REALM]);
    let options = TableWatchOptions {
        every: Duration::from_millis(10),
        within: Duration::from_millis(500),
        ..TableWatchOptions::default()
    };
    let watch = TableWatch::start(&server.tcp_url(), vec![Table::Secrets], options);
    let mut watch = watch.unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut next = |is_wanted: &dyn Fn(&Reading) -> bool| {
        runtime.block_on(async {
            loop {
                let reading = tokio::time::timeout(PATIENCE, watch.changed()).await.unwrap();
                if is_wanted(&reading) {
                    return reading.rows.map(|rows| rows.len());
                }
            }
        })
    };
    assert_eq!(next(&|reading| reading.rows.is_some()), Some(1));
    server.pause();
    assert_eq!(next(&|reading| reading.failure.is_some()), Some(1), "the last known row");
    server.resume();
    assert_eq!(next(&|reading| reading.failure.is_none()), Some(1));
    server.turnadmin(&["-s", "secret-2", "-r", REALM]);
    assert_eq!(next(&|reading| reading.rows.as_ref().is_some_and(|rows| rows.len() == 2)), Some(2));
}

/// The trigger of docs/operate/databases.md.
const TRIGGER: &str = "CREATE FUNCTION turnpike_users() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN NOTIFY turnpike_users; RETURN NULL; END $$;
    CREATE TRIGGER turnpike_users AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON turnusers_lt
    FOR EACH STATEMENT EXECUTE FUNCTION turnpike_users();";

#[test]
fn notifications_of_postgresql_are_heard() {
    let Some(server) = server(DatabaseKind::Postgres) else { return };
    server.run(TRIGGER);
    changes_are_reported(&server);
}

#[test]
fn keyspace_events_of_redis_are_heard() {
    let Some(server) = server(DatabaseKind::Redis) else { return };
    server.run("CONFIG SET notify-keyspace-events KEA");
    changes_are_reported(&server);
}

fn changes_are_reported(server: &DatabaseServer) {
    let reader = server_reader(&server.url()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut last = reader.revision().await.unwrap();
        let begun = tokio::time::Instant::now();
        while !reader.reports_changes() {
            assert!(begun.elapsed() < PATIENCE, "changes are reported");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        // The first report concerns the time before the subscription.
        for (verb, name) in [("-a", "gina"), ("-d", "gina")] {
            tokio::time::sleep(Duration::from_millis(50)).await;
            last = reader.revision().await.unwrap().max(last);
            server.turnadmin(&[verb, "-u", name, "-r", REALM, "-p", "p"]);
            while reader.revision().await.unwrap() == last {
                assert!(begun.elapsed() < PATIENCE, "{verb} is reported");
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    });
}

/// The server uses an editor like this when it starts.
#[tokio::test]
async fn an_editor_works_within_a_runtime_and_without_its_server() {
    let mut editor = server_editor("redis://turn:turn-password@127.0.0.1:1/0").unwrap();
    let error = editor.realms().unwrap_err().to_string();
    assert!(error.starts_with("redis://127.0.0.1:1/0: "), "{error}");
    drop(editor);
    let mut editor = server_editor("mysql://turn:turn-password@127.0.0.1:1/turn").unwrap();
    let error = editor.realms().unwrap_err().to_string();
    let refused = "mysql://127.0.0.1:1/turn: Connection refused (os error 111)";
    assert_eq!(error, refused);
    drop(editor);
}

#[test]
fn a_change_is_known_within_a_second_where_none_is_reported() {
    let options = DirectoryOptions::default();
    assert!(options.unreported_for <= Duration::from_millis(500));
    assert!(options.changes_after <= Duration::from_millis(500));
}
