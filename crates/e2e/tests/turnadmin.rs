//! `turnpike turnadmin` and coturn's own, with the same commands on the same databases: the same
//! rows, output and exit status.

use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::Command;

use e2e::require;
use test_support::{DatabaseKind, DatabaseServer};

/// Programs that are called turnadmin.
struct Programs {
    directory: PathBuf,
}

impl Programs {
    fn new(name: &str) -> Self {
        let directory =
            std::env::temp_dir().join(format!("turnadmin-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap_or_else(|error| panic!("{error}"));
        let link = directory.join("turnadmin");
        symlink(e2e::binary(), &link).unwrap_or_else(|error| panic!("{error}"));
        Self { directory }
    }

    /// Exit status and output of a command; coturn logs on standard output, too.
    fn run(&self, ours: bool, words: &[&str], option: &str) -> (Option<i32>, String) {
        let program = if ours { self.directory.join("turnadmin") } else { "turnadmin".into() };
        let out =
            Command::new(program).args(words).arg(option).current_dir(&self.directory).output();
        let out = out.unwrap_or_else(|error| panic!("{error}"));
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        let mut lines: Vec<&str> = text.lines().filter(|line| !is_log_line(line)).collect();
        lines.sort_unstable();
        (out.status.code(), lines.join("\n"))
    }
}

/// A line of coturn's log, which begins with the seconds since its start (seen: `0: :` and, where
/// a command crosses a second, `1: :`).
fn is_log_line(line: &str) -> bool {
    line.split_once(": :").is_some_and(|(seconds, _)| seconds.parse::<u64>().is_ok())
}

impl Drop for Programs {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// All rows, or keys with their values; of a salted hash its form alone.
fn dump(database: &DatabaseServer, kind: DatabaseKind) -> Vec<String> {
    let mut all = Vec::new();
    if kind == DatabaseKind::Redis {
        for key in database.run("KEYS turn/*").lines() {
            let get = match database.run(&format!("TYPE {key}")).trim() {
                "string" => "GET",
                "set" => "SMEMBERS",
                _ => "HGETALL",
            };
            let text = database.run(&format!("{get} {key}"));
            let mut values: Vec<&str> = text.lines().collect();
            values.sort_unstable();
            all.push(format!("{key} {}", values.join(" ")));
        }
    } else {
        for table in [
            "turnusers_lt",
            "turn_secret",
            "turn_origin_to_realm",
            "turn_realm_option",
            "admin_user",
        ] {
            let rows = database.run(&format!("SELECT * FROM {table}"));
            all.extend(rows.lines().map(|row| format!("{table} {row}")));
        }
    }
    for line in &mut all {
        if let Some(at) = line.find("$5$") {
            line.replace_range(at..at + 3 + 16 + 1 + 64, "HASH");
        }
    }
    all.sort();
    all
}

fn clear(database: &DatabaseServer, kind: DatabaseKind) {
    if kind == DatabaseKind::Redis {
        database.run("FLUSHALL");
        return;
    }
    for table in
        ["turnusers_lt", "turn_secret", "turn_origin_to_realm", "turn_realm_option", "admin_user"]
    {
        database.run(&format!("DELETE FROM {table}"));
    }
}

const WRITE: &[&[&str]] = &[
    &["-a", "-u", "alice", "-r", "example.org", "-p", "correct horse"],
    &["-a", "-u", "bob", "-r", "example.org", "-p", "first"],
    &["--add", "--user=bob", "--realm=example.org", "--password=second"],
    &["-a", "-u", "carol", "-r", "other.example", "-p", "x"],
    &["-d", "-u", "carol", "-r", "other.example"],
    &["-d", "-u", "nobody", "-r", "example.org"],
    &["-A", "-u", "root", "-p", "magi"],
    &["-A", "-u", "boss", "-r", "example.org", "-p", "magi"],
    &["-A", "-u", "gone", "-p", "magi"],
    &["-D", "-u", "gone"],
    &["-s", "secret-1", "-r", "example.org"],
    &["--set-secret=secret-2", "-r", "example.org"],
    &["-s", "secret-3", "-r", "example.org"],
    &["-X", "secret-3", "-r", "example.org"],
    &["-O", "-o", "https://Meet.Example.org/room", "-r", "example.org"],
    &["-O", "-o", "http://a.example:8080", "-r", "other.example"],
    &["-O", "-o", "turn://b.example", "-r", "other.example"],
    &["-R", "-o", "turn://b.example"],
    &["-g", "-r", "example.org", "--max-bps=100000", "--user-quota=12"],
    &["-g", "-r", "example.org", "--user-quota=13", "--total-quota", "1000"],
];

const READ: &[&[&str]] = &[
    &["-l"],
    &["-l", "-r", "example.org"],
    &["-l", "-r", "nothing.example"],
    &["-L"],
    &["-S"],
    &["-S", "-r", "example.org"],
    &["-I"],
    &["-I", "-r", "other.example"],
    &["-G", "-r", "example.org"],
    &["-k", "-u", "gorst", "-r", "north.gov", "-p", "hero"],
    &["-a", "-u", "alice", "-r", "example.org"],
    &["-a", "-u", "alice", "-p", "x"],
    &["-s", "secret"],
    &["-O", "-r", "x"],
    &["-a", "-u", "a\"b", "-r", "example.org", "-p", "x"],
    &["-z"],
    &[],
];

fn is_as_coturn(kind: DatabaseKind) {
    let Some(database) = require(DatabaseServer::start(kind)) else { return };
    let programs = Programs::new(&format!("{kind:?}"));
    let option = database.coturn_option();
    let run = |ours| {
        let mut seen = Vec::new();
        for words in WRITE.iter().chain(READ) {
            // An error names its reason on standard error, in other words.
            let (status, output) = programs.run(ours, words, &option);
            seen.push(format!(
                "{words:?} {status:?} {}",
                if status == Some(0) { &output } else { "" }
            ));
        }
        (seen, dump(&database, kind))
    };
    let theirs = run(false);
    assert!(theirs.1.len() >= 8, "{:#?}", theirs.1);
    clear(&database, kind);
    let ours = run(true);
    assert_eq!(theirs.1, ours.1, "rows");
    for (theirs, ours) in theirs.0.iter().zip(&ours.0) {
        assert_eq!(theirs, ours);
    }

    // Coturn reads and deletes what we wrote, and we delete what coturn wrote.
    programs.run(true, &["--delete-all-secrets", "-r", "example.org"], &option);
    assert_eq!(programs.run(false, &["-S"], &option).1, "");
    programs.run(
        true,
        &["-g", "-r", "example.org", "--max-bps=0", "--user-quota=0", "--total-quota=0"],
        &option,
    );
    assert_eq!(programs.run(false, &["-G", "-r", "example.org"], &option).1, "");
    programs.run(false, &["-d", "-u", "alice", "-r", "example.org"], &option);
    assert_eq!(programs.run(true, &["-l"], &option).1, "bob[example.org]");
}

#[test]
fn rows_and_output_are_those_of_coturn_in_postgresql() {
    is_as_coturn(DatabaseKind::Postgres);
}

#[test]
fn rows_and_output_are_those_of_coturn_in_mariadb() {
    is_as_coturn(DatabaseKind::Mariadb);
}

#[test]
fn rows_and_output_are_those_of_coturn_in_redis() {
    is_as_coturn(DatabaseKind::Redis);
}

#[test]
fn rows_and_output_are_those_of_coturn_in_a_file_of_sqlite() {
    is_as_coturn(DatabaseKind::Sqlite);
}
