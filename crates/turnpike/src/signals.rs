//! Signals of the operating system.

use std::io;

use tokio::signal::unix::{self, SignalKind, signal};

/// Handled signal, by meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Signal {
    /// SIGHUP: read the configuration again.
    Reload,
    /// SIGTERM or SIGINT: drain and exit. A second signal causes an immediate exit.
    End,
    /// SIGUSR1: act as configured in `signals.usr1`.
    User1,
    /// SIGUSR2: act as configured in `signals.usr2`.
    User2,
}

/// Receiver of the handled signals. After its creation the signals no longer kill the process.
pub(crate) struct Signals {
    hangup: unix::Signal,
    terminate: unix::Signal,
    interrupt: unix::Signal,
    user1: unix::Signal,
    user2: unix::Signal,
}

impl Signals {
    /// Registers the signal handlers. Must be called within a tokio runtime.
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            hangup: signal(SignalKind::hangup())?,
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            user1: signal(SignalKind::user_defined1())?,
            user2: signal(SignalKind::user_defined2())?,
        })
    }

    /// Waits for the next signal. Cancellation safe: no signal is lost if the future is dropped.
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
