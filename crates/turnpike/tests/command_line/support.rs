//! Helpers of the tests: the program, servers and calls.

use std::io::{BufRead as _, BufReader};
use std::net::{TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::Value;
pub(crate) use test_support::eventually;

/// Temporary directory of a test, deleted when dropped.
pub(crate) struct Directory(pub(crate) PathBuf);

impl Directory {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("turnpike-cli-{}-{next}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, text).unwrap();
        path
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Returns a command of the program, without environment variables of the test.
pub(crate) fn turnpike(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_turnpike"));
    command.args(arguments).stdin(Stdio::null());
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("TURNPIKE_")) {
        command.env_remove(name);
    }
    // Tests must not attach programs to the host's interfaces.
    command.env("TURNPIKE_OFFLOAD__MODE", "off");
    command
}

pub(crate) fn run(arguments: &[&str]) -> Output {
    turnpike(arguments).output().unwrap()
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

pub(crate) fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

pub(crate) fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Returns a free port below the kernel's range for outgoing connections.
pub(crate) fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        let offset = std::process::id() * 16 + NEXT.fetch_add(1, Ordering::Relaxed);
        let port = 20_000 + u16::try_from(offset % 12_000).unwrap();
        let tcp = TcpListener::bind(("127.0.0.1", port));
        if tcp.is_ok() && UdpSocket::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// Running server, whose exit is awaited.
pub(crate) struct Server {
    pub(crate) process: Child,
    pub(crate) log: BufReader<std::process::ChildStderr>,
}

impl Server {
    /// Waits until the server is ready.
    pub(crate) fn start(mut command: Command) -> Self {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let log = BufReader::new(process.stderr.take().unwrap());
        let mut server = Self { process, log };
        server.wait_for("ready");
        server
    }

    /// Waits for a line with a text. After a timeout the server is killed, and the test fails
    /// instead of hanging.
    pub(crate) fn wait_for(&mut self, text: &str) -> String {
        let (_said, silence) = std::sync::mpsc::channel::<()>();
        let id = self.process.id().to_string();
        std::thread::spawn(move || {
            let waited = silence.recv_timeout(std::time::Duration::from_secs(120));
            if waited == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
                let _ = Command::new("kill").args(["-s", "KILL", &id]).status();
            }
        });
        let mut seen = String::new();
        loop {
            let mut line = String::new();
            let read = self.log.read_line(&mut line).unwrap();
            assert!(read > 0, "ended before it said {text:?}:\n{seen}");
            if line.contains(text) {
                return line;
            }
            seen.push_str(&line);
        }
    }

    pub(crate) fn signal(&self, name: &str) {
        let id = self.process.id().to_string();
        assert!(Command::new("kill").args(["-s", name, &id]).status().unwrap().success());
    }

    /// Stops the server with SIGTERM, and returns its output.
    pub(crate) fn stop(mut self) -> String {
        self.signal("TERM");
        self.wait_for("stopped");
        let mut printed = String::new();
        let mut out = self.process.stdout.take().unwrap();
        std::io::Read::read_to_string(&mut out, &mut printed).unwrap();
        assert!(self.process.wait().unwrap().success());
        printed
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Call of the user `bob` by `turnpike demo`, with the server that relays it.
pub(crate) struct Call {
    pub(crate) server: Server,
    demo: Child,
    pub(crate) data: String,
    _directory: Directory,
}

impl Call {
    /// Starts the server with these additional lines of configuration, and waits until both
    /// endpoints of the call send.
    pub(crate) fn through(more: &str) -> Self {
        let directory = Directory::new();
        let port = free_port();
        let config = format!(
            "listen = [\"127.0.0.1:{port}\"]\n[relay]\naddresses = [\"127.0.0.1\"]\n{more}"
        );
        let file = directory.file("turnpike.toml", &config);
        let data = path(&directory.0).to_owned();
        let place = ["--config", path(&file), "--data", &data];
        let server = Server::start(turnpike(&[&["run"][..], &place].concat()));
        // A running server finds users that are added to its database.
        let add =
            run(&[&["user", "add", "bob", "--password", "of-bob-alone"][..], &place].concat());
        assert!(add.status.success(), "{add:?}");
        let uri = format!("turn:127.0.0.1:{port}");
        let demo =
            turnpike(&["demo", "--server", &uri, "--user", "bob", "--password", "of-bob-alone"])
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
        let call = Self { server, demo, data, _directory: directory };
        eventually("both ends of the call send", || {
            let sessions = call.sessions();
            sessions.len() == 2 && sessions.iter().all(|one| one["to_peers"]["packets"] != 0)
        });
        call
    }

    pub(crate) fn ask(&self, arguments: &[&str]) -> Output {
        run(&[arguments, &["--data", &self.data]].concat())
    }

    pub(crate) fn sessions(&self) -> Vec<Value> {
        let list = json(&self.ask(&["sessions", "--user", "bob", "--json"]));
        list["sessions"].as_array().unwrap().clone()
    }

    /// Closes a session of the call, as an operator does.
    pub(crate) fn end(&self, session: &Value) {
        assert!(self.ask(&["session", "end", session["id"].as_str().unwrap()]).status.success());
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        let _ = self.demo.kill();
        let _ = self.demo.wait();
    }
}

/// Starts a server without a configuration file, on a separate port.
pub(crate) fn first_start(directory: &Directory, port: u16) -> Server {
    let mut command = turnpike(&["--data", path(&directory.0)]);
    command
        .env("TURNPIKE_LISTEN", format!("[\"127.0.0.1:{port}\"]"))
        .env("TURNPIKE_RELAY__ADDRESSES", "[\"127.0.0.1\"]");
    Server::start(command)
}
