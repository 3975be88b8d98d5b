//! Database servers of a test's own, with coturn's tables: on a private directory, a Unix socket
//! and a loopback port; filled and read by coturn's own `turnadmin`, which has no MongoDB in
//! Debian.

mod mongo;
mod tls;

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::ops::Range;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::eventually;

/// Coturn's tables, as its package has them.
const SCHEMA: &str = "/usr/share/coturn/schema.sql";

/// Kinds of servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DatabaseKind {
    /// PostgreSQL.
    Postgres,
    /// MariaDB.
    Mariadb,
    /// Redis.
    Redis,
    /// A file of SQLite, which has no server.
    Sqlite,
    /// A server in Java that speaks MongoDB's protocol: MongoDB itself is in no registry of
    /// packages. No Unix socket, and its data ends with it.
    Mongo,
}

/// A running server; it ends with the value.
#[derive(Debug)]
pub struct DatabaseServer {
    kind: DatabaseKind,
    directory: PathBuf,
    port: u16,
    /// A command with its arguments that the server and `turnadmin` are started by.
    through: Vec<String>,
    /// Connections from now on are encrypted.
    is_encrypted: bool,
    process: Option<Child>,
}

impl DatabaseServer {
    /// Starts a server with coturn's tables in it.
    ///
    /// # Errors
    /// One of its programs, or coturn's, is not installed.
    ///
    /// # Panics
    /// It does not start.
    pub fn start(kind: DatabaseKind) -> Result<Self, String> {
        Self::start_through(kind, &[])
    }

    /// The same by a command such as `ip netns exec NAME`, so that its port is on the loopback of
    /// that namespace.
    ///
    /// # Errors
    /// As [`DatabaseServer::start`].
    ///
    /// # Panics
    /// As [`DatabaseServer::start`].
    pub fn start_through(kind: DatabaseKind, through: &[&str]) -> Result<Self, String> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        if kind != DatabaseKind::Mongo && !Path::new(SCHEMA).exists() {
            return Err("coturn is not installed".to_owned());
        }
        let program = if kind == DatabaseKind::Sqlite { None } else { Some(program(kind)?) };
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let directory = std::env::temp_dir().join(format!("db-{}-{number}", std::process::id()));
        fs::create_dir_all(&directory).expect("a directory");
        let port = own_port(number);
        let through: Vec<String> = through.iter().map(|word| (*word).to_owned()).collect();
        let Some(program) = program else {
            let server =
                Self { kind, directory, port, through, is_encrypted: false, process: None };
            // It makes the file.
            server.turnadmin(&["-l"]);
            return Ok(server);
        };
        if kind == DatabaseKind::Mongo
            && let Err(missing) = mongo::fetch(&directory)
        {
            let _ = fs::remove_dir_all(&directory);
            return Err(missing);
        }
        prepare(kind, &program, &directory);
        let mut server =
            Self { kind, directory, port, through, is_encrypted: false, process: None };
        server.process = Some(server.spawn(&program));
        server.wait_until_ready("postgres");
        server.fill();
        Ok(server)
    }

    /// The URL of its Unix socket, where it has one, for `users.database`.
    #[must_use]
    pub fn url(&self) -> String {
        let directory = self.directory.display().to_string().replace('/', "%2F");
        match self.kind {
            DatabaseKind::Postgres => format!("postgresql://turn@{directory}:{}/turn", self.port),
            DatabaseKind::Mariadb => {
                format!("mysql://turn:turn-password@localhost/turn?socket={directory}%2Fsocket")
            }
            DatabaseKind::Redis => format!("redis+unix://{}/socket?db=0", self.directory.display()),
            DatabaseKind::Mongo => self.tcp_url(),
            DatabaseKind::Sqlite => format!("sqlite-coturn://{}/turndb", self.directory.display()),
        }
    }

    /// The URL of its port on loopback.
    #[must_use]
    pub fn tcp_url(&self) -> String {
        let port = self.port;
        match self.kind {
            DatabaseKind::Postgres => format!("postgresql://turn@127.0.0.1:{port}/turn"),
            DatabaseKind::Mariadb => {
                format!("mysql://turn:turn-password@127.0.0.1:{port}/turn")
            }
            DatabaseKind::Redis => format!("redis://127.0.0.1:{port}/0"),
            DatabaseKind::Mongo => format!("mongodb://127.0.0.1:{port}/turn"),
            DatabaseKind::Sqlite => self.url(),
        }
    }

    /// The option by which coturn's programs use it.
    #[must_use]
    pub fn coturn_option(&self) -> String {
        let port = self.port;
        match self.kind {
            DatabaseKind::Postgres => format!(
                "--psql-userdb=host={} port={port} dbname=turn user=turn",
                self.directory.display()
            ),
            DatabaseKind::Mariadb => format!(
                "--mysql-userdb=host=127.0.0.1 port={port} dbname=turn user=turn password=turn-password"
            ),
            DatabaseKind::Redis => format!("--redis-userdb=ip=127.0.0.1 port={port} dbname=0"),
            DatabaseKind::Sqlite => format!("--userdb={}/turndb", self.directory.display()),
            DatabaseKind::Mongo => format!("--mongo-userdb={}", self.tcp_url()),
        }
    }

    /// Runs coturn's `turnadmin` on it; returns what it prints.
    ///
    /// # Panics
    /// The command fails.
    pub fn turnadmin(&self, arguments: &[&str]) -> String {
        let mut command = after(&self.through, Command::new("turnadmin"));
        let out = command.args(arguments).arg(self.coturn_option()).output().expect("turnadmin");
        let text = [out.stdout, out.stderr].concat();
        let text = String::from_utf8_lossy(&text).into_owned();
        assert!(out.status.success(), "turnadmin {arguments:?}: {text}");
        text
    }

    /// Runs SQL, or a command of Redis, as its administrator.
    ///
    /// # Panics
    /// The command fails.
    pub fn run(&self, text: &str) -> String {
        self.run_in("turn", text)
    }

    /// Runs SQL as [`run`](Self::run) does, in another database of the server.
    ///
    /// # Panics
    /// The command fails.
    pub fn run_in(&self, database: &str, text: &str) -> String {
        let out = self.client(database, text);
        assert!(out.status.success(), "{text}: {}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8_lossy(&out.stdout).into_owned()
    }

    /// Stops all its processes where they are, as if the host hung.
    pub fn pause(&self) {
        self.signal("-STOP");
    }

    /// Lets them go on.
    pub fn resume(&self) {
        self.signal("-CONT");
    }

    /// Ends it; its data stays.
    pub fn stop(&mut self) {
        self.resume();
        // PostgreSQL's fast shutdown; the others end as by SIGTERM.
        let signal = if self.kind == DatabaseKind::Postgres { "-INT" } else { "-TERM" };
        if let Some(process) = &mut self.process {
            kill(signal, process.id());
            let _ = process.wait();
        }
    }

    /// Starts it again on its data.
    ///
    /// # Panics
    /// It does not start.
    pub fn start_again(&mut self) {
        let program = program(self.kind).expect("it was there");
        self.process = Some(self.spawn(&program));
        self.wait_until_ready("turn");
    }

    fn wait_until_ready(&mut self, database: &str) {
        eventually("the database server starts", || {
            let ended = self.process.as_mut().and_then(|process| process.try_wait().ok()?);
            if let Some(status) = ended {
                let log = fs::read_to_string(self.directory.join("log")).unwrap_or_default();
                panic!("the database server ended, {status}: {log}");
            }
            self.answers(database)
        });
    }

    fn answers(&self, database: &str) -> bool {
        let (database, nothing) = match self.kind {
            DatabaseKind::Mongo => return TcpStream::connect(("127.0.0.1", self.port)).is_ok(),
            DatabaseKind::Redis => (database, "PING"),
            DatabaseKind::Mariadb => ("mysql", "SELECT 1"),
            DatabaseKind::Postgres | DatabaseKind::Sqlite => (database, "SELECT 1"),
        };
        self.client(database, nothing).status.success()
    }

    fn spawn(&self, program: &Path) -> Child {
        let Self { kind, directory, port, .. } = self;
        let mut command = after(&self.through, as_user(*kind, program));
        let (port, data) = (port.to_string(), directory.join("data"));
        let socket = directory.join("socket").display().to_string();
        match kind {
            DatabaseKind::Postgres => {
                command.args(["-p", &port, "-c", "listen_addresses=127.0.0.1", "-c", "fsync=off"]);
                command.arg("-D").arg(&data).arg("-k").arg(directory);
            }
            DatabaseKind::Mariadb => {
                command.arg("--no-defaults").arg(format!("--datadir={}", data.display()));
                command.arg(format!("--socket={socket}")).arg(format!("--port={port}"));
                command.args(["--bind-address=127.0.0.1", "--innodb-flush-log-at-trx-commit=0"]);
                if is_root() {
                    command.arg("--user=root");
                }
            }
            DatabaseKind::Redis => {
                command.args(["--bind", "127.0.0.1", "--unixsocket", &socket]);
                command.arg("--dir").arg(directory);
                if self.is_encrypted {
                    command.args(["--port", "0", "--tls-port", &port]);
                } else {
                    command.args(["--port", &port]);
                }
            }
            DatabaseKind::Mongo => {
                command.args(mongo::words(directory)).arg(&port);
            }
            DatabaseKind::Sqlite => {}
        }
        if self.is_encrypted {
            command.args(tls::words(*kind, directory));
        }
        let log = fs::File::create(directory.join("log")).expect("a log");
        let again = log.try_clone().expect("a log");
        command.stdin(Stdio::null()).stdout(log).stderr(again).process_group(0);
        command.current_dir("/tmp").spawn().expect("the database server")
    }

    fn fill(&self) {
        let sql = fs::read_to_string(SCHEMA).expect("coturn's tables");
        match self.kind {
            DatabaseKind::Postgres => {
                assert!(self.client("postgres", "CREATE DATABASE turn").status.success());
                self.run(&sql);
            }
            DatabaseKind::Mariadb => {
                let out = self.client(
                    "mysql",
                    "CREATE DATABASE turn; CREATE USER turn IDENTIFIED BY 'turn-password';
                     CREATE USER turn@localhost IDENTIFIED BY 'turn-password';
                     GRANT ALL ON turn.* TO turn; GRANT ALL ON turn.* TO turn@localhost;",
                );
                assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
                self.run(&sql);
            }
            DatabaseKind::Redis | DatabaseKind::Sqlite | DatabaseKind::Mongo => {}
        }
    }

    fn client(&self, database: &str, text: &str) -> Output {
        let directory = self.directory.display();
        let mut command = match self.kind {
            DatabaseKind::Postgres => {
                let mut command = Command::new("psql");
                command.args(["-X", "-q", "-v", "ON_ERROR_STOP=1", "-U", "turn", "-d", database]);
                command.args([
                    "-h",
                    &directory.to_string(),
                    "-p",
                    &self.port.to_string(),
                    "-c",
                    text,
                ]);
                command
            }
            DatabaseKind::Mariadb => {
                let mut command = Command::new("mariadb");
                command.arg("--no-defaults").arg(format!("--socket={directory}/socket"));
                command.args(["-u", "root", "-e", text, database]);
                command
            }
            DatabaseKind::Redis => {
                let mut command = Command::new("redis-cli");
                command.arg("-s").arg(self.directory.join("socket")).args(text.split_whitespace());
                command
            }
            DatabaseKind::Sqlite => {
                const RUN: &str = "import sqlite3, sys
db = sqlite3.connect(sys.argv[1])
for row in db.execute(sys.argv[2]): print('|'.join(map(str, row)))
db.commit()";
                let mut command = Command::new("python3");
                command.args(["-c", RUN]).arg(self.directory.join("turndb")).arg(text);
                command
            }
            DatabaseKind::Mongo => panic!("the shell of MongoDB is in no registry of packages"),
        };
        command.output().expect("the client of a database")
    }

    /// Of PostgreSQL each connection is a process, in a group of its own.
    fn signal(&self, signal: &str) {
        let Some(process) = &self.process else { return };
        let pid = process.id();
        kill(signal, pid);
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        for child in children.unwrap_or_default().split_whitespace() {
            kill(signal, child.parse().expect("a process id"));
        }
    }
}

/// Returns a free port below the ephemeral range: another test cannot get the port from the system
/// before the server binds it. The search starts at a number derived from the process id.
fn own_port(number: u32) -> u16 {
    const PORTS: Range<u32> = 10_000..30_000;
    let first = std::process::id().wrapping_mul(8).wrapping_add(number);
    let mut ports = (0..PORTS.end - PORTS.start).map(|further| {
        let place = first.wrapping_add(further) % (PORTS.end - PORTS.start);
        u16::try_from(PORTS.start + place).expect("it is a port")
    });
    ports.find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok()).expect("a free port")
}

impl Drop for DatabaseServer {
    fn drop(&mut self) {
        self.stop();
        let _ = fs::remove_dir_all(&self.directory);
    }
}

fn kill(signal: &str, pid: u32) {
    let _ = Command::new("kill").arg(signal).arg(pid.to_string()).stderr(Stdio::null()).status();
}

/// The server's program.
fn program(kind: DatabaseKind) -> Result<PathBuf, String> {
    let candidates: Vec<PathBuf> = match kind {
        DatabaseKind::Postgres => fs::read_dir("/usr/lib/postgresql")
            .into_iter()
            .flatten()
            .filter_map(|version| Some(version.ok()?.path().join("bin/postgres")))
            .collect(),
        DatabaseKind::Mariadb => vec!["/usr/sbin/mariadbd".into(), "/usr/bin/mariadbd".into()],
        DatabaseKind::Redis => vec!["/usr/bin/redis-server".into()],
        DatabaseKind::Mongo => vec!["/usr/bin/java".into()],
        DatabaseKind::Sqlite => Vec::new(),
    };
    let found = candidates.into_iter().find(|path| path.exists());
    found.ok_or_else(|| format!("{kind:?} is not installed"))
}

/// A command as the user that may run it: PostgreSQL refuses root.
fn as_user(kind: DatabaseKind, program: &Path) -> Command {
    if kind != DatabaseKind::Postgres || !is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups", "--"]).arg(program);
    command
}

fn is_root() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    status.lines().any(|line| line.starts_with("Uid:\t0\t"))
}

/// Makes the directory `data` of a server: a copy of one that is made once for all tests, since
/// that takes seconds.
fn prepare(kind: DatabaseKind, program: &Path, directory: &Path) {
    if matches!(kind, DatabaseKind::Redis | DatabaseKind::Sqlite | DatabaseKind::Mongo) {
        return;
    }
    if kind == DatabaseKind::Postgres && is_root() {
        give_to_postgres(directory);
    }
    let data = directory.join("data");
    let own = std::env::current_exe().expect("its path");
    // Of each version of the program: its path names PostgreSQL's.
    let name = program.display().to_string().replace('/', "_");
    let made = own.ancestors().nth(2).expect("the directory of cargo").join("databases").join(name);
    let lock = made.with_extension("lock");
    fs::create_dir_all(made.parent().expect("a directory")).expect("a directory");
    let lock = fs::File::create(lock).and_then(|file| file.lock().map(|()| file)).expect("a lock");
    if !made.exists() {
        initialise(kind, program, &data);
        let part = made.with_extension("part");
        let _ = fs::remove_dir_all(&part);
        copy(&data, &part);
        fs::rename(part, made).expect("the copy is named");
    } else {
        drop(lock);
        copy(&made, &data);
    }
}

/// Copies a directory with owners and modes.
fn copy(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("-a").args([from, to]).status();
    assert!(copied.is_ok_and(|status| status.success()), "{} is not copied", from.display());
}

fn give_to_postgres(directory: &Path) {
    let id = |option| {
        let out = Command::new("id").args([option, "postgres"]).output().expect("id");
        String::from_utf8_lossy(&out.stdout).trim().parse().expect("an id")
    };
    chown(directory, Some(id("-u")), Some(id("-g"))).expect("the owner changes");
}

fn initialise(kind: DatabaseKind, program: &Path, data: &Path) {
    let mut command = if kind == DatabaseKind::Postgres {
        let mut command = as_user(kind, &program.with_file_name("initdb"));
        command.args(["-A", "trust", "-U", "turn", "-E", "UTF8", "--locale=C", "--no-sync"]);
        command.arg("-D").arg(data);
        command
    } else {
        let mut command = Command::new("mariadb-install-db");
        command.args(["--no-defaults", "--skip-test-db", "--force"]);
        command.arg("--auth-root-authentication-method=normal");
        command.arg(format!("--datadir={}", data.display()));
        if is_root() {
            command.arg("--user=root");
        }
        command
    };
    let out = command.current_dir("/tmp").output().expect("its data is made");
    assert!(out.status.success(), "{kind:?}: {}", String::from_utf8_lossy(&out.stderr));
}

/// A command that another one starts.
fn after(through: &[String], command: Command) -> Command {
    let Some((first, words)) = through.split_first() else { return command };
    let mut outer = Command::new(first);
    outer.args(words).arg(command.get_program()).args(command.get_args());
    outer
}
