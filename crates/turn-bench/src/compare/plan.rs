//! What one server is asked for in one round, and how it is answered: the words between `compare`
//! and the process in the clients' host (`steps`), as JSON.

use std::net::SocketAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::cells::Cell;
use crate::cpu::Watched;
use crate::outcome::Outcome;
use crate::session::Login;
use crate::traffic::{Backend, Transport};

/// All of one server's turn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Plan {
    /// Where clients log in.
    pub(super) server: SocketAddr,
    /// By what.
    pub(super) transport: Transport,
    /// Where the peer is.
    pub(super) peer: SocketAddr,
    /// As whom clients log in.
    pub(super) login: PlannedLogin,
    /// What sends and receives.
    pub(super) backend: Backend,
    /// The interface of the clients' host, for frames.
    pub(super) interface: String,
    /// Threads that send, and as many that receive.
    pub(super) threads: usize,
    /// Cores to be watched, and the server's process, whose memory is measured as well.
    pub(super) watched: Watched,
    /// How long runs take.
    pub(super) times: Times,
    /// What to do, in this order.
    pub(super) steps: Vec<Step>,
}

/// As whom clients log in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum PlannedLogin {
    /// With a user's password.
    Password {
        /// The user.
        user: String,
        /// The password.
        password: String,
    },
    /// With time-limited credentials.
    Secret {
        /// In whose name.
        user: String,
        /// What they are made from.
        secret: String,
    },
}

impl PlannedLogin {
    pub(super) fn login(&self) -> Login {
        match self {
            Self::Password { user, password } => Login::password(user, password),
            Self::Secret { user, secret } => Login::shared_secret(user, secret),
        }
    }
}

/// How long runs take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Times {
    /// Before what counts, in each run.
    pub(super) warm_up: Duration,
    /// What counts of a run at the common rate, and of the run that confirms a maximum.
    pub(super) measured: Duration,
    /// What counts of a try while a maximum is searched.
    pub(super) attempt: Duration,
}

/// One thing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Step {
    /// Under which load.
    pub(super) cell: Cell,
    /// What.
    pub(super) task: Task,
}

/// What is to be found out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Task {
    /// Nothing: a run that does not count, so that the first that does is like the others.
    WarmUp,
    /// How much it can do.
    Most {
        /// What it could do before: where a search may begin.
        near: Option<u32>,
    },
    /// What it takes to do this much per second.
    CommonRate(u32),
    /// What memory it takes.
    Memory,
}

impl Task {
    /// As results name it.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::WarmUp => "warm-up",
            Self::Most { .. } => MOST,
            Self::CommonRate(_) => COMMON_RATE,
            Self::Memory => MEMORY,
        }
    }
}

/// Steps of this name tell how much there can be.
pub(super) const MOST: &str = "most";
/// Steps of this name were made at the rate that all servers got.
pub(super) const COMMON_RATE: &str = "common-rate";
/// Steps of this name tell of memory.
pub(super) const MEMORY: &str = "memory";

/// What came of a step, on a line of its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Answer {
    /// It begins.
    Begun(Step),
    /// It is done; nothing is said of a warm-up.
    Done(Option<Box<Outcome>>),
    /// It could not be done.
    Failed(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_arrives_as_it_was_written() {
        let plan = Plan {
            server: "10.78.1.1:3478".parse().unwrap(),
            transport: Transport::Tls,
            peer: "10.78.2.2:7000".parse().unwrap(),
            login: PlannedLogin::Secret { user: "u".into(), secret: "s".into() },
            backend: Backend::Sockets,
            interface: "c2s7".into(),
            threads: 1,
            watched: Watched { cores: vec!["server=1".parse().unwrap()], process: Some(7) },
            times: Times {
                warm_up: Duration::from_millis(300),
                measured: Duration::from_secs(1),
                attempt: Duration::from_millis(250),
            },
            steps: [
                ("audio:1:c2p", Task::WarmUp),
                ("audio:1:c2p", Task::Most { near: Some(7) }),
                ("alloc", Task::CommonRate(9)),
                ("footprint", Task::Memory),
            ]
            .map(|(cell, task)| Step { cell: cell.parse().unwrap(), task })
            .into(),
        };
        let text = serde_json::to_string(&plan).unwrap();
        assert_eq!(serde_json::from_str::<Plan>(&text).unwrap(), plan);
        assert!(text.contains("\"audio:1:c2p:200\""), "{text}");
    }
}
