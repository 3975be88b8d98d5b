//! Health checks of the servers that clients are redirected to. Every few seconds each server gets
//! a request, and clients are not redirected to servers without a response.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use control::RedirectInfo;
use settings::Settings;
use stun_wire::Method;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};
use turn_proto::{AlternateServers, Policy};

use crate::asking::{over_tcp, over_udp};

/// Interval of health checks.
const ASKED_EVERY: Duration = Duration::from_secs(5);

/// Number of consecutive checks without a response after which a server is treated as silent. A
/// single packet can be lost on the way.
const SILENT_AFTER: u32 = 2;

/// Maximum number of concurrent checks. The limit leaves capacity for the requests of clients, and
/// all checks still finish within the interval.
const AT_ONCE: usize = 32;

/// Maximum number of servers that are checked. The number suffices for a few realms. Other servers
/// are assumed to respond.
const SERVERS_MAX: usize = 256;

/// List of alternate servers in the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum List {
    Any,
    Udp,
    Tcp,
    Tls,
}

impl List {
    const ALL: [Self; 4] = [Self::Any, Self::Udp, Self::Tcp, Self::Tls];

    /// Returns the transport that the list's servers are for.
    const fn label(self) -> &'static str {
        match self {
            Self::Any => "any",
            Self::Udp => "udp",
            Self::Tcp => "tcp",
            Self::Tls => "tls",
        }
    }

    const fn of(self, servers: &AlternateServers) -> &Vec<SocketAddr> {
        match self {
            Self::Any => &servers.any,
            Self::Udp => &servers.udp,
            Self::Tcp => &servers.tcp,
            Self::Tls => &servers.tls,
        }
    }

    const fn of_mut(self, servers: &mut AlternateServers) -> &mut Vec<SocketAddr> {
        match self {
            Self::Any => &mut servers.any,
            Self::Udp => &mut servers.udp,
            Self::Tcp => &mut servers.tcp,
            Self::Tls => &mut servers.tls,
        }
    }
}

/// Server together with the list that contains it.
pub(crate) type Listed = (List, SocketAddr);

/// Servers that do not respond.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Silent(BTreeSet<Listed>);

impl Silent {
    /// Returns the policy without the silent servers.
    pub(crate) fn put_in(&self, mut policy: Policy) -> Policy {
        if self.0.is_empty() {
            return policy;
        }
        self.leave_out(&mut policy.alternates);
        policy.realms = policy.realms.map(|realm| self.leave_out(&mut realm.alternates));
        policy
    }

    fn leave_out(&self, servers: &mut AlternateServers) {
        for list in List::ALL {
            list.of_mut(servers).retain(|server| !self.0.contains(&(list, *server)));
        }
    }

    /// Describes all servers of a configuration, for operators.
    pub(crate) fn infos(&self, settings: &Settings) -> Vec<RedirectInfo> {
        let info = |(list, server): Listed| RedirectInfo {
            server,
            transport: list.label(),
            answers: !self.0.contains(&(list, server)),
        };
        listed(settings).into_iter().map(info).collect()
    }

    /// Logs each server whose state differs from `before`.
    pub(crate) fn tell(&self, before: &Self) {
        for (list, server) in self.0.difference(&before.0) {
            let transport = list.label();
            tracing::warn!(%server, transport, "no client is redirected to this server: it does not answer");
        }
        for (list, server) in before.0.difference(&self.0) {
            let transport = list.label();
            tracing::info!(%server, transport, "clients are redirected to this server again");
        }
    }
}

/// Returns all servers of a configuration, each once.
fn listed(settings: &Settings) -> BTreeSet<Listed> {
    let all = settings.all_alternate_servers();
    let of = |list: List| {
        all.iter().flat_map(move |servers| list.of(servers)).map(move |at| (list, *at))
    };
    List::ALL.into_iter().flat_map(of).collect()
}

/// Returns the servers to check: none if health checks are disabled.
fn asked(settings: &Settings) -> BTreeSet<Listed> {
    if !settings.redirect.health_checks {
        return BTreeSet::new();
    }
    listed(settings).into_iter().take(SERVERS_MAX).collect()
}

/// Handle of the task that checks alternate servers.
#[derive(Debug)]
pub(crate) struct Alternates {
    asked: watch::Sender<BTreeSet<Listed>>,
    silent: watch::Receiver<Silent>,
}

impl Alternates {
    /// Starts the task of health checks. Requires a tokio runtime.
    pub(crate) fn watch(settings: &Settings) -> Self {
        let (asked, to_ask) = watch::channel(asked(settings));
        let (tell, silent) = watch::channel(Silent::default());
        tokio::spawn(ask(to_ask, tell));
        Self { asked, silent }
    }

    /// Checks the servers of another configuration from now on.
    pub(crate) fn follow(&self, settings: &Settings) {
        let asked = asked(settings);
        self.asked.send_if_modified(|known| {
            let changed = *known != asked;
            *known = asked;
            changed
        });
    }

    /// Waits until the set of silent servers changes, and returns the new set.
    pub(crate) async fn changed(&mut self) -> Silent {
        if self.silent.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
        self.silent.borrow_and_update().clone()
    }
}

async fn ask(mut to_ask: watch::Receiver<BTreeSet<Listed>>, tell: watch::Sender<Silent>) {
    let mut clock = interval(ASKED_EVERY);
    clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut unanswered = Unanswered::default();
    let mut is_failing = false;
    loop {
        let servers = to_ask.borrow_and_update().clone();
        unanswered.0.retain(|server, _| servers.contains(server));
        let mut waiting = servers.into_iter();
        let mut questions: JoinSet<(Listed, Outcome)> = JoinSet::new();
        let mut failed = None;
        loop {
            while questions.len() < AT_ONCE
                && let Some(server) = waiting.next()
            {
                questions.spawn(async move { (server, ask_one(server).await) });
            }
            match questions.join_next().await {
                Some(Ok((server, outcome))) => failed = unanswered.take(server, outcome).or(failed),
                Some(Err(_)) => {}
                None => break,
            }
        }
        if let Some(error) = &failed
            && !is_failing
        {
            tracing::warn!(
                %error,
                "this process cannot ask whether servers of [redirect] answer, and goes by the last answers; \
                 raise its limits"
            );
        }
        is_failing = failed.is_some();
        let silent = unanswered.silent();
        tell.send_if_modified(|known| {
            let changed = *known != silent;
            *known = silent;
            changed
        });
        tokio::select! {
            _ = clock.tick() => {}
            changed = to_ask.changed() => if changed.is_err() {
                return;
            }
        }
    }
}

/// Result of a health check.
#[derive(Debug)]
enum Outcome {
    /// The server responded, possibly with an error. An overloaded server refuses clients without
    /// help.
    Answered,
    /// The server does not respond.
    Silent,
    /// The process has no descriptor, port or memory for the check. The result is no evidence
    /// about the server.
    NotAsked(io::Error),
}

impl Outcome {
    fn of(result: io::Result<()>) -> Self {
        const OWN: [i32; 5] =
            [libc::EMFILE, libc::ENFILE, libc::ENOMEM, libc::ENOBUFS, libc::EAGAIN];
        match result {
            Ok(()) => Self::Answered,
            Err(error) if error.raw_os_error().is_some_and(|code| OWN.contains(&code)) => {
                Self::NotAsked(error)
            }
            Err(_) => Self::Silent,
        }
    }

    /// Combines the results of checks over two transports of the same server.
    fn or(self, other: Self) -> Self {
        match (self, other) {
            (Self::Answered, _) | (_, Self::Answered) => Self::Answered,
            (Self::NotAsked(error), _) | (_, Self::NotAsked(error)) => Self::NotAsked(error),
            (Self::Silent, Self::Silent) => Self::Silent,
        }
    }
}

/// Number of consecutive checks without a response, by server.
#[derive(Debug, Default)]
struct Unanswered(BTreeMap<Listed, u32>);

impl Unanswered {
    /// Records the outcome of a check. Returns the error if the process could not send the request.
    fn take(&mut self, server: Listed, outcome: Outcome) -> Option<io::Error> {
        match outcome {
            Outcome::Answered => {
                self.0.remove(&server);
            }
            Outcome::Silent => {
                let count = self.0.entry(server).or_default();
                *count = count.saturating_add(1);
            }
            Outcome::NotAsked(error) => return Some(error),
        }
        None
    }

    fn silent(&self) -> Silent {
        let silent = self.0.iter().filter(|(_, count)| **count >= SILENT_AFTER);
        Silent(silent.map(|(server, _)| *server).collect())
    }
}

/// Checks a server by an Allocate request without credentials. A working server responds at least
/// with an error.
async fn ask_one((list, server): Listed) -> Outcome {
    let udp = async || Outcome::of(over_udp(server, Method::ALLOCATE).await);
    let tcp = async |in_tls| Outcome::of(over_tcp(server, &[], in_tls, Method::ALLOCATE).await);
    match list {
        List::Udp => udp().await,
        List::Tcp => tcp(false).await,
        List::Tls => tcp(true).await,
        List::Any => {
            let mut outcome = udp().await;
            for in_tls in [false, true] {
                if matches!(outcome, Outcome::Answered) {
                    break;
                }
                outcome = outcome.or(tcp(in_tls).await);
            }
            outcome
        }
    }
}

#[cfg(test)]
mod tests {
    use stun_wire::{Class, Message, MessageBuilder};
    use tokio::net::UdpSocket;

    use super::*;

    fn server() -> Listed {
        (List::Udp, ([192, 0, 2, 1], 3478).into())
    }

    fn own_error() -> Outcome {
        Outcome::of(Err(io::Error::from_raw_os_error(libc::EMFILE)))
    }

    #[test]
    fn a_process_without_descriptors_takes_no_server_for_silent() {
        let mut unanswered = Unanswered::default();
        for _ in 0..9 {
            assert!(unanswered.take(server(), own_error()).is_some());
            assert_eq!(unanswered.silent(), Silent::default());
        }
        // Local errors do not affect a server that responds again either.
        for _ in 0..SILENT_AFTER {
            assert!(unanswered.take(server(), Outcome::Silent).is_none());
            unanswered.take(server(), own_error());
        }
        assert_eq!(unanswered.silent(), Silent([server()].into()));
        unanswered.take(server(), Outcome::Answered);
        assert_eq!(unanswered.silent(), Silent::default());
    }

    #[test]
    fn one_way_that_could_not_be_asked_leaves_the_server_unknown() {
        let both = |one: Outcome, other: Outcome| one.or(other);
        assert!(matches!(both(Outcome::Silent, own_error()), Outcome::NotAsked(_)));
        assert!(matches!(both(own_error(), Outcome::Answered), Outcome::Answered));
        assert!(matches!(both(Outcome::Silent, Outcome::Silent), Outcome::Silent));
    }

    /// Responds to each request with an error.
    async fn refuse_with(socket: UdpSocket, code: u16) {
        let mut buffer = [0; 1500];
        while let Ok((len, from)) = socket.recv_from(&mut buffer).await {
            let request = Message::parse(&buffer[..len]).unwrap();
            let (method, id) = (request.method(), request.transaction_id());
            let mut out = [0; 256];
            let mut builder = MessageBuilder::new(&mut out, Class::Error, method, id);
            builder.error_code(code, "");
            let len = builder.finish().unwrap();
            socket.send_to(&out[..len], from).await.unwrap();
        }
    }

    /// Covers servers that are overloaded, deny requests, or do not respond.
    #[tokio::test]
    async fn a_refusal_is_an_answer_and_silence_is_none() {
        for code in [508, 486, 401, 403] {
            let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
            let at = (List::Udp, socket.local_addr().unwrap());
            let server = tokio::spawn(refuse_with(socket, code));
            assert!(matches!(ask_one(at).await, Outcome::Answered), "{code}");
            server.abort();
            let _ = server.await;
            assert!(matches!(ask_one(at).await, Outcome::Silent), "{code}");
        }
    }
}
