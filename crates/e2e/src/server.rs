//! The real binary, started in the lab's server host with a configuration of the test's own.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::{Host, Lab, Running, Tool};

/// Longest time for a start, a command or a stop.
const PATIENCE: Duration = Duration::from_secs(60);

static COUNTER: AtomicU32 = AtomicU32::new(0);

/// A user of the server.
#[derive(Clone, Copy, Debug)]
pub struct Account {
    /// USERNAME.
    pub name: &'static str,
    /// The password.
    pub password: &'static str,
}

/// Commands for a server, also during upgrades.
#[derive(Clone, Debug)]
pub struct Operator {
    namespace: String,
    directory: PathBuf,
}

impl Operator {
    /// Runs a command of the program.
    ///
    /// # Panics
    /// The command does not end.
    #[must_use]
    pub fn ask(&self, arguments: &[&str]) -> Tool {
        Tool::run(
            Command::new("ip")
                .args(["netns", "exec", &self.namespace])
                .arg(binary())
                .args(arguments)
                .arg("--data")
                .arg(&self.directory),
            PATIENCE,
        )
    }
}

/// Configuration of the server for a test.
#[derive(Clone, Debug)]
pub struct Config {
    /// Users to add before the start.
    pub accounts: Vec<Account>,
    /// Listeners, as in the configuration file.
    pub listen: Vec<String>,
    /// Addresses that it relays from.
    pub relay: Vec<IpAddr>,
    /// Further keys of `[relay]`.
    pub relay_keys: String,
    /// A command with its arguments that the server is started by, such as `setpriv`; empty: none.
    pub through: Vec<String>,
    /// Addresses and networks that clients may reach: the lab's addresses are private, and refused
    /// by default.
    pub allow: Vec<String>,
    /// Addresses and networks that clients may not reach.
    pub deny: Vec<String>,
    /// Further lines at the top level of the configuration.
    pub top: String,
    /// Further tables after it.
    pub tables: String,
}

impl Config {
    /// One user, `alice`, who may reach the lab's peer, with `rfc5766_clients`: coturn's utilities
    /// bind channels up to 0x7FFF.
    #[must_use]
    pub fn for_lab(lab: &Lab) -> Self {
        Self {
            accounts: vec![Account { name: "alice", password: "correct-horse-battery" }],
            listen: vec![format!("{}:3478", lab.v4.listen), format!("[{}]:3478", lab.v6.listen)],
            relay: vec![lab.v4.relay, lab.v6.relay],
            relay_keys: String::new(),
            through: Vec::new(),
            allow: vec![lab.v4.peer.to_string(), lab.v6.peer.to_string()],
            deny: Vec::new(),
            top: "compatibility.rfc5766_clients = true\n".to_owned(),
            tables: String::new(),
        }
    }

    /// The configuration file.
    #[must_use]
    pub fn text(&self) -> String {
        format!(
            "realm = \"turn.test\"\nlisten = [{}]\n{}\n\
             [relay]\naddresses = [{}]\n{}\n\
             [peers]\nallow = [{}]\ndeny = [{}]\n{}\n",
            quoted(&self.listen),
            self.top,
            quoted(&self.relay),
            self.relay_keys,
            quoted(&self.allow),
            quoted(&self.deny),
            self.tables,
        )
    }
}

/// Texts of a list in the configuration file.
fn quoted(texts: &[impl ToString]) -> String {
    let quoted: Vec<String> =
        texts.iter().map(|text| format!("\"{}\"", text.to_string())).collect();
    quoted.join(", ")
}

/// A running server; it is killed with this value.
#[derive(Debug)]
pub struct Server {
    /// The process.
    pub process: Running,
    directory: PathBuf,
    namespace: String,
    /// Processes that have taken its place.
    successors: Vec<u32>,
}

impl Server {
    /// Starts it and waits until it answers on its control socket.
    ///
    /// # Panics
    /// When it does not start.
    #[must_use]
    pub fn start(lab: &Lab, config: &Config) -> Self {
        let namespace = lab.namespace(Host::Server);
        // Servers of one lab have directories of their own.
        let number = COUNTER.fetch_add(1, Ordering::Relaxed);
        let directory = std::env::temp_dir().join(format!("{namespace}-{number}"));
        drop(std::fs::remove_dir_all(&directory));
        std::fs::create_dir_all(&directory)
            .unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
        write(&directory.join("turnpike.toml"), &config.text());
        for account in &config.accounts {
            let added = Tool::run(
                Command::new(binary())
                    .args(["user", "add", account.name, "--password", account.password, "--config"])
                    .arg(directory.join("turnpike.toml"))
                    .arg("--data")
                    .arg(&directory),
                PATIENCE,
            );
            assert!(added.ok, "user add: {}", added.output);
        }
        let process = start(lab, &config.through, &directory);
        Self { process, directory, namespace, successors: Vec::new() }
    }

    /// Starts it again after its end, with the same files.
    ///
    /// # Panics
    /// When it does not start.
    pub fn start_again(&mut self, lab: &Lab, through: &[String]) {
        self.process = start(lab, through, &self.directory);
    }

    /// Starts its keeper, and waits until that is there.
    ///
    /// # Panics
    /// When it does not start.
    #[must_use]
    pub fn keeper(&self, lab: &Lab) -> Running {
        let mut keeper = lab.command(Host::Server, binary());
        let mut keeper = Running::start(keeper.arg("keep").arg("--data").arg(&self.directory));
        keeper.wait_for("waiting for a server", PATIENCE);
        keeper
    }

    /// Path of the configuration file.
    #[must_use]
    pub fn config_file(&self) -> PathBuf {
        self.directory.join("turnpike.toml")
    }

    /// Rewrites the configuration file, without a reload.
    pub fn rewrite(&self, config: &Config) {
        write(&self.directory.join("turnpike.toml"), &config.text());
    }

    /// Runs a command of the binary against this server, such as `status --json`.
    #[must_use]
    pub fn ask(&self, arguments: &[&str]) -> Tool {
        self.operator().ask(arguments)
    }

    /// Returns an operator of the server, for commands during upgrades.
    #[must_use]
    pub fn operator(&self) -> Operator {
        Operator { namespace: self.namespace.clone(), directory: self.directory.clone() }
    }

    /// The answer of a command with `--json`.
    ///
    /// # Panics
    /// The answer is not JSON.
    #[must_use]
    #[track_caller]
    pub fn json(&self, arguments: &[&str]) -> Value {
        let out = self.ask(&[arguments, &["--json"]].concat());
        serde_json::from_str(&out.output)
            .unwrap_or_else(|error| panic!("{arguments:?}: {error}:\n{}", out.output))
    }

    /// A file of the server's data directory.
    ///
    /// # Panics
    /// It cannot be read.
    #[must_use]
    #[track_caller]
    pub fn file(&self, name: &str) -> String {
        let path = self.directory.join(name);
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    /// Starts another process in its place, with these options; returns what the command said.
    ///
    /// # Panics
    /// The command names no process.
    pub fn upgrade(&mut self, options: &[&str]) -> Tool {
        let out = self.ask(&[&["upgrade"], options].concat());
        self.note_successor(out)
    }

    /// The same by a program that runs the command, such as `setpriv` with its options.
    ///
    /// # Panics
    /// The command names no process.
    pub fn upgrade_through(&mut self, lab: &Lab, through: &[&str]) -> Tool {
        let mut command = lab.command(Host::Server, through[0]);
        command.args(&through[1..]).arg(binary()).arg("upgrade").arg("--data").arg(&self.directory);
        let out = Tool::run(&mut command, PATIENCE);
        self.note_successor(out)
    }

    fn note_successor(&mut self, out: Tool) -> Tool {
        if out.ok {
            let number = out.output.split_whitespace().nth(1).and_then(|pid| pid.parse().ok());
            let number = number.unwrap_or_else(|| panic!("no process: {}", out.output));
            self.successors.push(number);
        }
        out
    }

    /// Upgrades so often; each time another process serves.
    ///
    /// # Panics
    /// An upgrade fails.
    #[track_caller]
    pub fn upgrade_times(&mut self, times: usize) {
        for _ in 0..times {
            let before = self.serving();
            let out = self.upgrade(&[]);
            assert!(out.ok, "{}\n{}", out.output, self.process.output());
            assert!(
                out.output.contains(&format!("in place of process {before}")),
                "{}",
                out.output
            );
        }
    }

    /// Waits until the first process, which is not needed any more, has ended. Its standard error
    /// is its successor's.
    ///
    /// # Panics
    /// The command does not end.
    #[track_caller]
    pub fn wait_for_first_to_end(&self) {
        let status = format!("/proc/{}/status", self.process.pid());
        let until = Instant::now() + PATIENCE;
        while std::fs::read_to_string(&status).is_ok_and(|status| !status.contains("State:\tZ")) {
            assert!(Instant::now() < until, "{}", self.process.output());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The process that serves, by its id.
    #[must_use]
    pub fn serving(&self) -> u32 {
        self.successors.last().copied().unwrap_or_else(|| self.process.pid())
    }

    /// Resident memory in KiB, as the kernel counts it.
    ///
    /// # Panics
    /// When the process has ended.
    #[must_use]
    pub fn resident_kib(&self) -> u64 {
        let path = format!("/proc/{}/status", self.process.pid());
        let status =
            std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
        status
            .lines()
            .find_map(|line| {
                line.strip_prefix("VmRSS:")?.trim().strip_suffix("kB")?.trim().parse().ok()
            })
            .unwrap_or_else(|| panic!("no VmRSS in {path}"))
    }

    /// Stops it and waits for its end; true for exit status 0.
    pub fn stop(&mut self) -> bool {
        self.process.signal("TERM");
        self.process.wait(PATIENCE)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("log of the server:\n{}", self.process.output());
        }
        for process in &self.successors {
            // Those that have ended are gone.
            drop(Command::new("kill").args(["-KILL", &process.to_string()]).output());
        }
        drop(std::fs::remove_dir_all(&self.directory));
    }
}

/// Starts a server of this directory by a command, and waits until it serves.
fn start(lab: &Lab, through: &[String], directory: &Path) -> Running {
    let binary = binary();
    let mut words = through.iter().map(std::ffi::OsStr::new).chain([binary.as_os_str()]);
    let first = words.next().unwrap_or_default();
    let mut process = Running::start(
        lab.command(Host::Server, first)
            .args(words)
            .arg("run")
            .arg("--config")
            .arg(directory.join("turnpike.toml"))
            .arg("--data")
            .arg(directory),
    );
    process.wait_for("ready", PATIENCE);
    process
}

/// The binary in Cargo's directory of this test or program.
///
/// # Panics
/// When it is not there.
#[must_use]
pub fn binary() -> PathBuf {
    let test = std::env::current_exe().unwrap_or_else(|error| panic!("current_exe: {error}"));
    // target/<profile>/deps/<test>, or target/<profile>/<program> -> target/<profile>/turnpike
    let path = test
        .ancestors()
        .skip(1)
        .find(|directory| !directory.ends_with("deps"))
        .map(|profile| profile.join("turnpike"))
        .unwrap_or_default();
    assert!(
        path.exists(),
        "{} is missing: run `cargo build -p turnpike` or `make test`",
        path.display()
    );
    path
}

fn write(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}
