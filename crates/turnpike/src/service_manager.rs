//! Service manager that started the server: systemd (sd_notify(3)), or another program that sets
//! `NOTIFY_SOCKET`. The manager is notified of readiness, reloads and shutdown. It receives
//! heartbeats while every worker makes progress, and a status line.
//!
//! The socket is connected before the process is confined, because landlock refuses new connections
//! to abstract sockets.

mod store;

use std::cell::{Cell, RefCell};
use std::ffi::OsStr;
use std::io::{self, ErrorKind};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;
use std::time::Duration;

use linux_net::Clock;

use crate::handover::Parked;
use crate::output;
use crate::watchdog;

/// Maximum time for sending a message. The control plane waits if the manager's queue is full.
const SEND_DEADLINE: Duration = Duration::from_millis(250);

/// Extension of the manager's deadline for shutdown, repeated each second during a drain.
const EXTENSION: Duration = Duration::from_secs(30);

/// Minimum interval of status lines, in reports. Each status line is a message on the system bus.
const STATUS_EVERY: u32 = 5;

/// Minimum useful `WatchdogSec=`: heartbeats are sent once a second.
const WATCHDOG_MIN: Duration = Duration::from_secs(3);

/// Environment variables of a service (sd_notify(3), sd_watchdog_enabled(3)).
const SOCKET: &str = "NOTIFY_SOCKET";
const WATCHDOG: &str = "WATCHDOG_USEC";
const WATCHDOG_PID: &str = "WATCHDOG_PID";

/// Connection with the service manager, if any.
#[derive(Debug, Default)]
pub(crate) struct ServiceManager {
    connection: Option<Connection>,
    /// True if the manager expects heartbeats.
    heartbeats: bool,
    /// True if the manager stores descriptors for the successor.
    keeps: bool,
    /// Parked state of the predecessor.
    found: Option<Parked>,
    /// The last status line, and the number of reports since then.
    status: RefCell<(String, u32)>,
    /// Problems of the environment variables, for the log.
    pub(crate) warnings: Vec<String>,
}

#[derive(Debug)]
struct Connection {
    address: SocketAddr,
    socket: UnixDatagram,
    /// True if the last message was not accepted. Only the first failure is logged.
    broken: Cell<bool>,
}

/// State of the server, for the manager's status line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct State {
    /// Live allocations.
    pub(crate) allocations: u64,
    /// Remaining time of a drain.
    pub(crate) drain: Option<Duration>,
    /// True if the last reload was refused.
    pub(crate) reload_refused: bool,
    /// True if each worker makes progress.
    pub(crate) workers_alive: bool,
}

impl ServiceManager {
    /// Connects to the manager's socket. Without a manager all messages are discarded. `takes_over`
    /// is true in a successor during an upgrade, which inherits the variables of its predecessor.
    pub(crate) fn connect(takes_over: bool) -> Self {
        let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let text = |name: &str| variable(name).and_then(|value| value.into_string().ok());
        let mut manager = Self::default();
        let Some(socket) = variable(SOCKET) else { return manager };
        match address(&socket).and_then(Connection::open) {
            Ok(connection) => manager.connection = Some(connection),
            Err(error) => manager.warnings.push(format!(
                "the service manager cannot be notified: {SOCKET}={}: {error}",
                Path::new(&socket).display()
            )),
        }
        manager.keeps = text(store::STORE)
            .and_then(|descriptors| descriptors.parse::<u32>().ok())
            .is_some_and(|descriptors| descriptors > 1);
        match store::found(text) {
            store::Found::Nothing => {}
            store::Found::Pair(parked) => manager.found = Some(parked),
            store::Found::Part => {
                manager.forget();
                manager.warnings.push(
                    "the calls of the process before have ended: the service manager had only a part of their \
                     state and sockets"
                        .to_owned(),
                );
            }
        }
        let own = text(WATCHDOG_PID).is_none_or(|pid| pid == std::process::id().to_string());
        let own = own || takes_over;
        let timeout =
            text(WATCHDOG).and_then(|value| value.parse().ok()).map(Duration::from_micros);
        if let Some(timeout) = timeout.filter(|_| own) {
            manager.heartbeats = true;
            if timeout < WATCHDOG_MIN {
                manager.warnings.push(format!(
                    "WatchdogSec= is below {} s: the server sends one heartbeat a second",
                    WATCHDOG_MIN.as_secs()
                ));
            }
        }
        manager
    }

    /// Notifies the manager that the server has started, or that a reload is complete.
    pub(crate) fn ready(&self) {
        self.send("READY=1");
    }

    /// Notifies the manager that a reload has started. [`Self::ready`] reports completion.
    pub(crate) fn reloading(&self) {
        let now = Clock::instant().as_nanos() / 1000;
        self.send(&format!("RELOADING=1\nMONOTONIC_USEC={now}"));
    }

    /// Notifies the manager that `process` is the service from now on. Later messages of this
    /// process are discarded.
    pub(crate) fn hand_over(&mut self, process: u32) {
        self.send(&format!("MAINPID={process}"));
        self.connection = None;
    }

    /// Removes and returns the predecessor's parked state.
    pub(crate) fn take_found(&mut self) -> Option<Parked> {
        self.found.take()
    }

    /// Returns true if the manager stores descriptors for the successor.
    pub(crate) const fn keeps(&self) -> bool {
        self.keeps && self.connection.is_some()
    }

    /// Parks state with the manager, for the successor.
    ///
    /// # Errors
    /// The manager is not connected, or does not accept the descriptors in time.
    pub(crate) fn keep(&self, parked: &Parked) -> io::Result<()> {
        let connection = self.connection.as_ref().ok_or(ErrorKind::NotConnected)?;
        store::keep(&connection.socket, parked)
    }

    /// Removes parked state from the manager.
    pub(crate) fn forget(&self) {
        store::removal().iter().for_each(|message| self.send(message));
    }

    /// Notifies the manager of the shutdown. The process exits when its allocations have ended or
    /// the drain is over.
    pub(crate) fn stopping(&self) {
        self.send("STOPPING=1");
        self.extend_deadline();
    }

    /// Delays the manager's deadline for shutdown (`TimeoutStopSec=`) while the server drains.
    pub(crate) fn extend_deadline(&self) {
        self.send(&format!("EXTEND_TIMEOUT_USEC={}", EXTENSION.as_micros()));
    }

    /// Reports the state after each check of the watchdog. Sends a heartbeat if each worker makes
    /// progress, and a changed status line at most every [`STATUS_EVERY`] reports. The first line,
    /// and lines about hung workers, are sent immediately.
    pub(crate) fn report(&self, state: State) {
        if self.heartbeats && state.workers_alive {
            self.send("WATCHDOG=1");
        }
        let mut last = self.status.borrow_mut();
        last.1 = last.1.saturating_add(1);
        let line = state.line();
        let urgent = !state.workers_alive || last.0.is_empty();
        if line != last.0 && (urgent || last.1 >= STATUS_EVERY) {
            self.send(&format!("STATUS={line}"));
            *last = (line, 0);
        }
    }

    fn send(&self, message: &str) {
        if let Some(connection) = &self.connection {
            connection.send(message.as_bytes());
        }
    }
}

impl Connection {
    fn open(address: SocketAddr) -> io::Result<Self> {
        let socket = connected(&address)?;
        Ok(Self { address, socket, broken: Cell::new(false) })
    }

    fn send(&self, message: &[u8]) {
        let sent = self.socket.send(message).or_else(|error| {
            // The kernel reports `NotConnected` for all attempts after the first.
            if matches!(error.kind(), ErrorKind::ConnectionRefused | ErrorKind::NotConnected) {
                // The manager has created its socket again at the same path.
                return connected(&self.address)?.send(message);
            }
            Err(error)
        });
        match sent {
            Ok(_) => self.broken.set(false),
            Err(error) if !self.broken.replace(true) => {
                tracing::warn!(%error, "the service manager does not accept messages");
            }
            Err(_) => {}
        }
    }
}

/// Returns a socket that sends to `address`.
fn connected(address: &SocketAddr) -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    socket.set_write_timeout(Some(SEND_DEADLINE))?;
    socket.connect_addr(address)?;
    Ok(socket)
}

/// Returns the address in a value of `NOTIFY_SOCKET`: a path, or `@` and a name in the abstract
/// namespace.
fn address(value: &OsStr) -> io::Result<SocketAddr> {
    match value.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
        [b'/', ..] => SocketAddr::from_pathname(value),
        _ => Err(io::Error::new(ErrorKind::Unsupported, "neither a path nor an abstract name")),
    }
}

impl State {
    /// Returns the status line for `systemctl status`.
    fn line(self) -> String {
        let live = match self.allocations {
            1 => "1 allocation is live".to_owned(),
            live => format!("{} allocations are live", output::grouped(live)),
        };
        let mut line = match self.drain {
            Some(left) => format!("draining: {live}; ends in {} at the latest", minutes(left)),
            None => live,
        };
        if !self.workers_alive {
            line = format!("a worker has done nothing for {} s; {line}", watchdog::REPORTED_AFTER);
        }
        if self.reload_refused {
            line.push_str("; the last reload was refused (turnpike check shows why)");
        }
        line
    }
}

/// Formats a time in minutes, rounded up. Coarse times prevent a new status line every second.
fn minutes(time: Duration) -> String {
    output::duration(Duration::from_secs(time.as_secs().div_ceil(60).max(1) * 60))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_paths_or_abstract_names() {
        let read = |value: &str| address(OsStr::new(value));
        assert_eq!(read("/run/n").unwrap().as_pathname(), Some(Path::new("/run/n")));
        assert_eq!(read("@turnpike/n").unwrap().as_abstract_name(), Some(&b"turnpike/n"[..]));
        for unsupported in ["vsock:2:1", "run/n"] {
            assert_eq!(read(unsupported).unwrap_err().kind(), ErrorKind::Unsupported);
        }
    }

    #[test]
    fn the_line_names_the_drain_and_faults() {
        let state =
            State { allocations: 1, drain: None, reload_refused: false, workers_alive: true };
        assert_eq!(state.line(), "1 allocation is live");
        let drain = Some(Duration::from_secs(61));
        let state = State { allocations: 2000, drain, ..state };
        assert_eq!(
            state.line(),
            "draining: 2,000 allocations are live; ends in 2 min at the latest"
        );
        let state = State { drain: None, reload_refused: true, workers_alive: false, ..state };
        let line = state.line();
        assert!(line.starts_with("a worker has done nothing for 5 s; 2,000"), "{line}");
        assert!(line.ends_with("the last reload was refused (turnpike check shows why)"), "{line}");
    }

    /// A restarted manager has another socket at the same path.
    #[test]
    fn a_socket_that_was_replaced_is_connected_again() {
        let directory = crate::testing::Directory::new("notify");
        let path = directory.path().join("notify");
        std::fs::create_dir_all(directory.path()).unwrap();
        let receive = |socket: &UnixDatagram| {
            let mut bytes = [0; 64];
            socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            let length = socket.recv(&mut bytes).unwrap();
            String::from_utf8_lossy(&bytes[..length]).into_owned()
        };
        let first = UnixDatagram::bind(&path).unwrap();
        let connection = Connection::open(SocketAddr::from_pathname(&path).unwrap()).unwrap();
        connection.send(b"READY=1");
        assert_eq!(receive(&first), "READY=1");
        drop(first);
        std::fs::remove_file(&path).unwrap();
        connection.send(b"WATCHDOG=1");
        assert!(connection.broken.get());
        let second = UnixDatagram::bind(&path).unwrap();
        connection.send(b"STOPPING=1");
        assert_eq!(receive(&second), "STOPPING=1");
        assert!(!connection.broken.get());
    }
}
