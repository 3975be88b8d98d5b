//! Programs of other people, run in one of the lab's hosts.

use std::io::{BufRead, BufReader, Read, Write as _};
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
    /// Runs a command to its end, for at most `limit`; after that it is killed and counts as
    /// failed.
    ///
    /// # Panics
    /// The program cannot be started.
    #[must_use]
    pub fn run(command: &mut Command, limit: Duration) -> Self {
        let mut child = spawn(command, Stdio::null());
        let stdout = collect(child.stdout.take());
        let stderr = collect(child.stderr.take());
        let deadline = Instant::now() + limit;
        let mut killed = String::new();
        let ok = loop {
            match child.try_wait() {
                Ok(Some(status)) => break status.success(),
                Ok(None) if Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(2))
                }
                Ok(None) | Err(_) => {
                    drop(child.kill());
                    drop(child.wait());
                    killed = format!("killed after {limit:?}\n");
                    break false;
                }
            }
        };
        let text = |thread: JoinHandle<String>| thread.join().unwrap_or_default();
        Self { ok, output: text(stdout) + &text(stderr) + &killed }
    }
}

fn spawn(command: &mut Command, input: Stdio) -> Child {
    command
        .stdin(input)
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
        Self::with_input(command, Stdio::null())
    }

    /// The same with an input, open until [`Running::end_input`].
    ///
    /// # Panics
    /// The program cannot be started.
    #[must_use]
    pub fn listening(command: &mut Command) -> Self {
        Self::with_input(command, Stdio::piped())
    }

    fn with_input(command: &mut Command, input: Stdio) -> Self {
        let mut child = spawn(command, input);
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

    /// Returns true if it has ended.
    pub fn has_ended(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(Some(_)))
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
        let said = self.says(text, limit);
        assert!(said, "ended before it said {text:?}:\n{}", self.output());
    }

    /// Waits for an output line that contains `text`; false if the program ends first.
    ///
    /// # Panics
    /// `limit` passes.
    #[must_use]
    pub fn says(&mut self, text: &str, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        while !self.output().contains(text) {
            if let Ok(Some(_)) = self.child.try_wait() {
                self.read_to_end();
                return self.output().contains(text);
            }
            assert!(
                Instant::now() < deadline,
                "did not say {text:?} in {limit:?}:\n{}",
                self.output()
            );
            std::thread::sleep(Duration::from_millis(10));
        }
        true
    }

    /// Writes to the input.
    ///
    /// # Panics
    /// There is none, or the program has closed it.
    pub fn say(&mut self, text: &str) {
        let input = self.child.stdin.as_mut().expect("an input");
        input.write_all(text.as_bytes()).expect("it reads");
    }

    /// Closes the input.
    pub fn end_input(&mut self) {
        drop(self.child.stdin.take());
    }

    /// Reads the rest of the output of an ended program.
    fn read_to_end(&mut self) {
        for reader in self.readers.drain(..) {
            drop(reader.join());
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
                self.read_to_end();
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
