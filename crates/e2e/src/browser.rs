//! A headless Chromium that a test steers, by the DevTools protocol over two named pipes.

use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::{Host, Lab, Running};

/// Time for a browser's start, an answer, or a page: other programs have the processor as well.
const PATIENCE: Duration = Duration::from_secs(90);

/// Interval of looks at a page.
const LOOK: Duration = Duration::from_millis(100);

/// A browser with one page. It ends with this value.
#[derive(Debug)]
pub struct Browser {
    process: Running,
    commands: File,
    answers: Receiver<Value>,
    directory: PathBuf,
    session: String,
    next: u64,
    /// Errors that the page has written to the console so far.
    pub errors: Vec<String>,
}

impl Browser {
    /// Starts `program` in a host of the lab.
    ///
    /// # Panics
    /// It does not start.
    #[must_use]
    pub fn start(lab: &Lab, host: Host, program: &str) -> Self {
        let directory = std::env::temp_dir().join(format!("{}-browser", lab.namespace(host)));
        drop(std::fs::remove_dir_all(&directory));
        std::fs::create_dir_all(&directory).expect("a directory");
        let [input, output] = ["commands", "answers"].map(|name| pipe(&directory.join(name)));
        let flags = "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run \
                     --disable-background-networking --disable-component-update --disable-sync --mute-audio \
                     --ignore-certificate-errors --remote-debugging-pipe";
        let script = format!(
            "exec {program} {flags} --user-data-dir={profile} about:blank 3<{input} 4>{output}",
            profile = directory.join("profile").display(),
            input = input.0.display(),
            output = output.0.display(),
        );
        let process = Running::start(lab.command(host, "sh").arg("-c").arg(script));
        let answers = read(output.1);
        let commands = input.1;
        let mut browser = Self {
            process,
            commands,
            answers,
            directory,
            session: String::new(),
            next: 0,
            errors: Vec::new(),
        };
        browser.attach();
        browser
    }

    fn attach(&mut self) {
        let deadline = Instant::now() + PATIENCE;
        let page = loop {
            let targets = self.call("Target.getTargets", &json!({}));
            let list = targets["targetInfos"].as_array().cloned().unwrap_or_default();
            if let Some(page) = list.iter().find(|target| target["type"] == "page") {
                break page["targetId"].clone();
            }
            assert!(Instant::now() < deadline, "no page: {}", self.process.output());
            std::thread::sleep(LOOK);
        };
        let attached =
            self.call("Target.attachToTarget", &json!({ "targetId": page, "flatten": true }));
        self.session = attached["sessionId"].as_str().expect("a session").to_owned();
        for domain in ["Page", "Runtime", "Log"] {
            self.call(&format!("{domain}.enable"), &json!({}));
        }
    }

    /// Sends a command and waits for its result.
    ///
    /// # Panics
    /// The browser refuses it, or does not answer.
    pub fn call(&mut self, method: &str, parameters: &Value) -> Value {
        self.next += 1;
        let id = self.next;
        let mut message = json!({ "id": id, "method": method, "params": parameters });
        if !self.session.is_empty() && !method.starts_with("Target.") {
            message["sessionId"] = json!(self.session);
        }
        let mut text = message.to_string().into_bytes();
        text.push(0);
        self.commands.write_all(&text).expect("the browser reads");
        loop {
            let answer = self.answers.recv_timeout(PATIENCE).unwrap_or_else(|error| {
                panic!("{method}: {error}: {}", self.process.output());
            });
            if answer["id"] == id {
                assert!(answer["error"].is_null(), "{method}: {answer}");
                return answer["result"].clone();
            }
            self.note(&answer);
        }
    }

    /// Keeps errors of the page.
    fn note(&mut self, event: &Value) {
        let parameters = &event["params"];
        let is_error = match event["method"].as_str() {
            Some("Runtime.exceptionThrown") => true,
            Some("Log.entryAdded") => parameters["entry"]["level"] == "error",
            Some("Runtime.consoleAPICalled") => parameters["type"] == "error",
            Some(_) | None => false,
        };
        if is_error {
            self.errors.push(parameters.to_string());
        }
    }

    /// Opens a page and waits until it is there.
    ///
    /// # Panics
    /// The browser shows an error in place of the page.
    #[track_caller]
    pub fn open(&mut self, url: &str) {
        let opened = self.call("Page.navigate", &json!({ "url": url }));
        assert!(opened["errorText"].is_null(), "{url}: {}", opened["errorText"]);
        self.wait("document.readyState === 'complete'");
    }

    /// The value of an expression on the page.
    ///
    /// # Panics
    /// It throws.
    pub fn eval(&mut self, expression: &str) -> Value {
        let parameters =
            json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let result = self.call("Runtime.evaluate", &parameters);
        assert!(result["exceptionDetails"].is_null(), "{expression}: {result}");
        result["result"]["value"].clone()
    }

    /// Waits until an expression is true.
    ///
    /// # Panics
    /// It stays false.
    #[track_caller]
    pub fn wait(&mut self, expression: &str) {
        let deadline = Instant::now() + PATIENCE;
        // While a page is loaded there is none to ask.
        let guarded = format!(
            "(() => {{ try {{ return Boolean({expression}); }} catch {{ return false; }} }})()"
        );
        while self.eval(&guarded) != json!(true) {
            if Instant::now() >= deadline {
                let text = self.eval("document.body.innerText");
                panic!("never: {expression}\n{}", text.as_str().unwrap_or_default());
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Types a text into the element that has the focus.
    pub fn type_text(&mut self, text: &str) {
        self.call("Input.insertText", &json!({ "text": text }));
    }

    /// Presses a key: `Tab`, `Enter`, `Escape`, `Space`.
    pub fn press(&mut self, key: &str) {
        let (code, text) = match key {
            "Tab" => (9, None),
            "Enter" => (13, Some("\r")),
            "Escape" => (27, None),
            _ => (32, Some(" ")),
        };
        let name = if key == "Space" { " " } else { key };
        let mut down =
            json!({ "type": "keyDown", "key": name, "code": key, "windowsVirtualKeyCode": code });
        if let Some(text) = text {
            down["text"] = json!(text);
        }
        self.call("Input.dispatchKeyEvent", &down);
        down["type"] = json!("keyUp");
        self.call("Input.dispatchKeyEvent", &down);
    }

    /// Presses Tab until an expression is true.
    ///
    /// # Panics
    /// It is not after a hundred times.
    #[track_caller]
    pub fn tab_to(&mut self, expression: &str) {
        for _ in 0..100 {
            if self.eval(&format!("Boolean({expression})")) == json!(true) {
                return;
            }
            self.press("Tab");
        }
        panic!("Tab never leads to {expression}");
    }

    /// Makes the window as large as this, in a light or dark scheme.
    pub fn look(&mut self, width: u32, height: u32, scheme: &str) {
        let size = json!({
            "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600,
        });
        self.call("Emulation.setDeviceMetricsOverride", &size);
        let feature = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        self.call("Emulation.setEmulatedMedia", &feature);
    }

    /// A picture of the window, as base64 of a PNG.
    pub fn picture(&mut self) -> String {
        let picture = self.call("Page.captureScreenshot", &json!({}));
        picture["data"].as_str().unwrap_or_default().to_owned()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        self.process.signal("TERM");
        self.process.wait(PATIENCE);
        drop(std::fs::remove_dir_all(&self.directory));
    }
}

/// Makes a named pipe and opens it; for reading and writing, as that does not wait for the other
/// end.
fn pipe(path: &Path) -> (PathBuf, File) {
    let made = Command::new("mkfifo").arg(path).status();
    assert!(made.is_ok_and(|status| status.success()), "mkfifo {}", path.display());
    let file = OpenOptions::new().read(true).write(true).open(path).expect("a pipe");
    (path.to_owned(), file)
}

/// Messages of the browser, each with a zero byte behind it. The thread ends with the browser's
/// last message, or with the program.
fn read(pipe: File) -> Receiver<Value> {
    let (sender, messages) = channel();
    std::thread::spawn(move || {
        let mut pipe = BufReader::new(pipe);
        let mut bytes = Vec::new();
        while pipe.read_until(0, &mut bytes).is_ok_and(|len| len > 0) {
            bytes.pop();
            let Ok(message) = serde_json::from_slice(&bytes) else { return };
            if sender.send(message).is_err() {
                return;
            }
            bytes.clear();
        }
    });
    messages
}
