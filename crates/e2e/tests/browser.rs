//! Calls of a real browser, headless Chromium, whose two ends reach each other through the relay
//! alone.

use std::fs;
use std::path::PathBuf;
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use e2e::{Config, Host, Lab, Running, Server, chromium, repository, require};

/// A call of twenty seconds, and a browser's start on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// A temporary profile of a browser.
struct Profile(PathBuf);

impl Profile {
    fn new(lab: &Lab) -> Self {
        let directory =
            std::env::temp_dir().join(format!("{}-profile", lab.namespace(Host::Client)));
        drop(fs::remove_dir_all(&directory));
        Self(directory)
    }
}

impl Drop for Profile {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

/// Two browsers at most, which is as much as two cores take: both videos, or one transfer of data.
static BROWSERS: RwLock<()> = RwLock::new(());

/// Has the page make a call (`data` or `video`), over `udp` or `tcp`.
fn call(call: &str, over: &str) {
    let Some(browser) = require(chromium()) else { return };
    let (_video, _data) = match call {
        "video" => (Some(BROWSERS.read().unwrap_or_else(PoisonError::into_inner)), None),
        _ => (None, Some(BROWSERS.write().unwrap_or_else(PoisonError::into_inner))),
    };
    let Some(lab) = require(Lab::new()) else { return };
    let mut config = Config { top: String::new(), ..Config::for_lab(&lab) };
    // Both ends are relayed from the same address, so one allocation is the peer of the other.
    config.allow.push(lab.v4.relay.to_string());
    let server = Server::start(&lab, &config);
    let profile = Profile::new(&lab);
    let page = repository().join("crates/e2e/clients/browser/call.html").canonicalize();
    let page = format!(
        "file://{}#uri=turn:{}:3478%3Ftransport={over}&over={over}&call={call}&user={}&password={}",
        page.expect("the page").display(),
        lab.v4.listen,
        config.accounts[0].name,
        config.accounts[0].password,
    );
    let mut chromium = Running::start(
        lab.command(Host::Client, browser)
            .args(["--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run"])
            .args(["--use-fake-ui-for-media-stream", "--use-fake-device-for-media-stream"])
            .args(["--enable-logging=stderr", "--mute-audio"])
            .arg(format!("--user-data-dir={}", profile.0.display()))
            .arg(page),
    );
    chromium.wait_for(&format!(" {call}: "), PATIENCE);
    let said = chromium.output();
    chromium.signal("TERM");
    chromium.wait(PATIENCE);
    assert!(said.contains(&format!("PASS {call}: ")), "{said}");
    let status = server.json(&["status"]);
    let connections = if over == "tcp" { 2 } else { 0 };
    assert!(status["connections"]["total"].as_u64() >= Some(connections), "{status:#}");
    assert!(status["allocations"]["total"].as_u64() >= Some(2), "{status:#}");
}

#[test]
fn ten_megabytes_each_way_over_udp() {
    call("data", "udp");
}

#[test]
fn ten_megabytes_each_way_over_tcp() {
    call("data", "tcp");
}

#[test]
fn a_video_call_over_udp() {
    call("video", "udp");
}

#[test]
fn a_video_call_over_tcp() {
    call("video", "tcp");
}
