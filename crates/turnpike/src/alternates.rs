//! Health of the servers that clients are redirected to. Each is asked every few seconds, and no
//! client is sent to one that is silent.

use std::collections::{BTreeMap, BTreeSet};
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

/// Interval of questions.
const ASKED_EVERY: Duration = Duration::from_secs(5);

/// Questions in a row without an answer until a server counts as silent: one may be lost on the
/// way.
const SILENT_AFTER: u32 = 2;

/// Questions at once: they leave room for those of clients, and all are done within the interval.
const AT_ONCE: usize = 32;

/// Servers that are asked: those of a few realms. The others are taken to answer.
const SERVERS_MAX: usize = 256;

/// A list of servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum List {
    Any,
    Udp,
    Tcp,
    Tls,
}

impl List {
    const ALL: [Self; 4] = [Self::Any, Self::Udp, Self::Tcp, Self::Tls];

    /// The transport that its servers are for.
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

/// A server of a list.
pub(crate) type Listed = (List, SocketAddr);

/// The servers that do not answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Silent(BTreeSet<Listed>);

impl Silent {
    /// Returns rules that send no client to a silent server.
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

    /// The servers of a configuration, for operators.
    pub(crate) fn infos(&self, settings: &Settings) -> Vec<RedirectInfo> {
        let info = |(list, server): Listed| RedirectInfo {
            server,
            transport: list.label(),
            answers: !self.0.contains(&(list, server)),
        };
        listed(settings).into_iter().map(info).collect()
    }

    /// Logs what has changed since `before`.
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

/// The servers of a configuration, each once.
fn listed(settings: &Settings) -> BTreeSet<Listed> {
    let all = settings.all_alternate_servers();
    let of = |list: List| {
        all.iter().flat_map(move |servers| list.of(servers)).map(move |at| (list, *at))
    };
    List::ALL.into_iter().flat_map(of).collect()
}

/// The servers that are asked.
fn asked(settings: &Settings) -> BTreeSet<Listed> {
    if !settings.redirect.health_checks {
        return BTreeSet::new();
    }
    listed(settings).into_iter().take(SERVERS_MAX).collect()
}

/// The questions, and what came of them.
#[derive(Debug)]
pub(crate) struct Alternates {
    asked: watch::Sender<BTreeSet<Listed>>,
    silent: watch::Receiver<Silent>,
}

impl Alternates {
    /// Begins to ask. Within a runtime.
    pub(crate) fn watch(settings: &Settings) -> Self {
        let (asked, to_ask) = watch::channel(asked(settings));
        let (tell, silent) = watch::channel(Silent::default());
        tokio::spawn(ask(to_ask, tell));
        Self { asked, silent }
    }

    /// Asks the servers of another configuration from now on.
    pub(crate) fn follow(&self, settings: &Settings) {
        let asked = asked(settings);
        self.asked.send_if_modified(|known| {
            let changed = *known != asked;
            *known = asked;
            changed
        });
    }

    /// Waits until other servers are silent.
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
    let mut unanswered: BTreeMap<Listed, u32> = BTreeMap::new();
    loop {
        let servers = to_ask.borrow_and_update().clone();
        unanswered.retain(|server, _| servers.contains(server));
        let mut waiting = servers.into_iter();
        let mut questions: JoinSet<(Listed, bool)> = JoinSet::new();
        loop {
            while questions.len() < AT_ONCE
                && let Some(server) = waiting.next()
            {
                questions.spawn(async move { (server, answers(server).await) });
            }
            match questions.join_next().await {
                Some(Ok((server, true))) => unanswered.remove(&server).map_or((), drop),
                Some(Ok((server, false))) => {
                    let count = unanswered.entry(server).or_default();
                    *count = count.saturating_add(1);
                }
                Some(Err(_)) => {}
                None => break,
            }
        }
        let silent = unanswered.iter().filter(|(_, count)| **count >= SILENT_AFTER);
        let silent = Silent(silent.map(|(server, _)| *server).collect());
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

/// Asks a server for an allocation, without what one needs: an error is the answer of a TURN server
/// that works.
async fn answers((list, server): Listed) -> bool {
    let udp = || over_udp(server, Method::ALLOCATE);
    let tcp = |in_tls| over_tcp(server, &[], in_tls, Method::ALLOCATE);
    match list {
        List::Udp => udp().await.is_ok(),
        List::Tcp => tcp(false).await.is_ok(),
        List::Tls => tcp(true).await.is_ok(),
        List::Any => udp().await.is_ok() || tcp(false).await.is_ok() || tcp(true).await.is_ok(),
    }
}
