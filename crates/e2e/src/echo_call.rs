//! A call between two ends in a page of Chromium, which reach each other through the relay alone:
//! one sends messages all the time, the other sends them back. See `clients/browser/call.html`.

use std::fs;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::{Browser, Config, Host, Lab, Server, chromium, repository, require};

/// Messages that have to come back before the call counts as under way.
const SOME: u64 = 100;

/// Packets that the kernel has dropped since its start because the queue of a core was full
/// (`net.core.netdev_max_backlog`): all namespaces share it, floods of other tests included.
fn dropped_between_sockets() -> u64 {
    let cores = fs::read_to_string("/proc/net/softnet_stat").expect("of Linux");
    let dropped = |core: &str| u64::from_str_radix(core.split(' ').nth(1)?, 16).ok();
    cores.lines().filter_map(dropped).sum()
}

/// Expression for the lines that the page has written.
const LOG: &str = "document.getElementById('log').textContent";

/// One browser is as much as two cores take.
static BROWSER: Mutex<()> = Mutex::new(());

/// A running call.
#[derive(Debug)]
pub struct EchoCall {
    browser: Browser,
    /// Number of packets that the kernel had dropped before.
    dropped: u64,
    _one_at_a_time: MutexGuard<'static, ()>,
}

impl EchoCall {
    /// Begins a call of the first user, over this transport by the server's IPv4 listener: `udp`,
    /// `tcp` or `tls`. `None` without a browser, after reporting a skip. Each end's allocation is
    /// the peer of the other's, so that the relay address has to be permitted.
    ///
    /// # Panics
    /// It does not come about.
    #[must_use]
    pub fn begin(lab: &Lab, config: &Config, over: &str) -> Option<Self> {
        let program = require(chromium())?;
        let one_at_a_time = BROWSER.lock().unwrap_or_else(PoisonError::into_inner);
        let (scheme, transport) = match over {
            "udp" => ("turn", "udp"),
            "tcp" => ("turn", "tcp"),
            _ => ("turns", "tcp"),
        };
        let page = repository().join("crates/e2e/clients/browser/call.html").canonicalize();
        let dropped = dropped_between_sockets();
        let mut browser = Browser::start(lab, Host::Client, program);
        browser.open(&format!(
            "file://{}#uri={scheme}:{}:3478%3Ftransport={transport}&over={over}&call=echo&user={}&password={}",
            page.expect("the page").display(),
            lab.v4.listen,
            config.accounts[0].name,
            config.accounts[0].password,
        ));
        browser.wait(&format!("window.echoed > {SOME} || {LOG}.includes('FAIL')"));
        Some(Self { browser, dropped, _one_at_a_time: one_at_a_time })
    }

    /// Waits until more messages have come back, or the call has failed.
    ///
    /// # Panics
    /// Neither happens.
    #[track_caller]
    pub fn go_on(&mut self) {
        let echoed = self.browser.eval("window.echoed").as_u64().expect("a number");
        self.browser.wait(&format!("window.echoed > {} || {LOG}.includes('FAIL')", echoed + SOME));
    }

    /// Ends the call: each message has come back, in order, and the ends were connected all the
    /// time and have lost no packet, unless it was `interrupted`, or the kernel has dropped as many
    /// packets on their way between two sockets of this host.
    ///
    /// # Panics
    /// It is otherwise.
    #[track_caller]
    pub fn finish(mut self, interrupted: bool, lab: &Lab, server: &Server) {
        let excused = dropped_between_sockets().saturating_sub(self.dropped);
        self.browser.eval(&format!("finish({{ interrupted: {interrupted}, excused: {excused} }})"));
        self.browser.wait(&format!("/PASS|FAIL/.test({LOG})"));
        let said = self.browser.eval(LOG);
        if said.as_str().is_some_and(|said| said.contains("PASS echo: ")) {
            return;
        }
        let (status, log) = (server.json(&["status"]), server.process.output());
        // Each packet has one fate: in the server's counters, or in those of its network.
        let kernel = lab.run(Host::Server, "grep", &["^Udp", "/proc/net/snmp"]);
        let sockets = lab.run(Host::Server, "cat", &["/proc/net/udp"]);
        panic!("{said}\n{status:#}\n{kernel}\n{sockets}\n{log}");
    }
}
