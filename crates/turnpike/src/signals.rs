//! Signals of the operating system.

use std::io;

use tokio::signal::unix::{self, SignalKind, signal};

/// Meaning of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Signal {
    /// SIGHUP: read the configuration again.
    Reload,
    /// SIGTERM or SIGINT: drain and end; the second of them ends at once.
    End,
    /// SIGUSR1: as configured in `signals.usr1`.
    User1,
    /// SIGUSR2: as configured in `signals.usr2`.
    User2,
}

/// The handled signals. Once it exists they no longer end the process.
pub(crate) struct Signals {
    hangup: unix::Signal,
    terminate: unix::Signal,
    interrupt: unix::Signal,
    user1: unix::Signal,
    user2: unix::Signal,
}

impl Signals {
    /// Must be called within a tokio runtime.
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            hangup: signal(SignalKind::hangup())?,
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            user1: signal(SignalKind::user_defined1())?,
            user2: signal(SignalKind::user_defined2())?,
        })
    }

    /// The next one. May be dropped and called again without losing any.
    pub(crate) async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.hangup.recv() => Signal::Reload,
            _ = self.terminate.recv() => Signal::End,
            _ = self.interrupt.recv() => Signal::End,
            _ = self.user1.recv() => Signal::User1,
            _ = self.user2.recv() => Signal::User2,
        }
    }
}
