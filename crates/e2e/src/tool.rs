//! Programs of other people, run in one of the lab's hosts.

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The root of the repository.
#[must_use]
pub fn repository() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// A finished program.
#[derive(Debug)]
pub struct Tool {
    /// Exit status 0.
    pub ok: bool,
    /// All it printed, standard output before standard error.
    pub output: String,
}

impl Tool {
    /// Runs a command to its end, for at most `limit`; after that it is killed and counts as failed.
    ///
    /// # Panics
    /// The program cannot be started.
    #[must_use]
    pub fn run(command: &mut Command, limit: Duration) -> Self {
        let mut child = spawn(command);
        let stdout = collect(child.stdout.take());
        let stderr = collect(child.stderr.take());
        let deadline = Instant::now() + limit;
        let ok = loop {
            match child.try_wait() {
                Ok(Some(status)) => break status.success(),
                Ok(None) if Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(20))
                }
                Ok(None) | Err(_) => {
                    drop(child.kill());
                    drop(child.wait());
                    break false;
                }
            }
        };
        let text = |thread: JoinHandle<String>| thread.join().unwrap_or_default();
        Self { ok, output: text(stdout) + &text(stderr) }
    }
}

fn spawn(command: &mut Command) -> Child {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

fn collect(from: Option<impl Read + Send + 'static>) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut from) = from {
            drop(from.read_to_end(&mut bytes));
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// A program that runs beside the test and is killed with this value.
#[derive(Debug)]
pub struct Running {
    child: Child,
    lines: Arc<Mutex<Vec<String>>>,
    readers: Vec<JoinHandle<()>>,
}

impl Running {
    /// Starts a command and collects its output.
    ///
    /// # Panics
    /// The program cannot be started.
    #[must_use]
    pub fn start(command: &mut Command) -> Self {
        let mut child = spawn(command);
        let lines = Arc::new(Mutex::new(Vec::new()));
        let mut readers = Vec::new();
        readers.extend(child.stdout.take().map(|out: ChildStdout| gather(out, &lines)));
        readers.extend(child.stderr.take().map(|err| gather(err, &lines)));
        Self { child, lines, readers }
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Output so far.
    #[must_use]
    pub fn output(&self) -> String {
        self.lines.lock().map(|lines| lines.join("\n")).unwrap_or_default()
    }

    /// Waits for an output line that contains `text`.
    ///
    /// # Panics
    /// The program ends first, or `limit` passes.
    pub fn wait_for(&mut self, text: &str, limit: Duration) {
        let deadline = Instant::now() + limit;
        while !self.output().contains(text) {
            if let Ok(Some(status)) = self.child.try_wait() {
                panic!("ended ({status}) before it said {text:?}:\n{}", self.output());
            }
            assert!(
                Instant::now() < deadline,
                "did not say {text:?} in {limit:?}:\n{}",
                self.output()
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits for its end; whether it ended with status 0.
    ///
    /// # Panics
    /// When `limit` passes first.
    pub fn wait(&mut self, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        loop {
            if let Ok(Some(status)) = self.child.try_wait() {
                for reader in self.readers.drain(..) {
                    drop(reader.join());
                }
                return status.success();
            }
            assert!(Instant::now() < deadline, "still runs after {limit:?}:\n{}", self.output());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Sends it a signal by its name, such as `TERM`.
    pub fn signal(&self, name: &str) {
        drop(Command::new("kill").args([&format!("-{name}"), &self.pid().to_string()]).status());
    }
}

fn gather(from: impl Read + Send + 'static, lines: &Arc<Mutex<Vec<String>>>) -> JoinHandle<()> {
    let lines = Arc::clone(lines);
    std::thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            if let Ok(mut lines) = lines.lock() {
                lines.push(line);
            }
        }
    })
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
