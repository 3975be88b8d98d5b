//! Restart: the exiting process parks its calls with the service manager, and the successor
//! continues these calls.

use std::io;
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::process::{PidfdFlags, pidfd_open};
use settings::Settings;
use settings::value::HttpListen;

use crate::handover::{Handovers, KeeperLink, Parked, Predecessor};
use crate::service_manager::ServiceManager;
use crate::{cores, handover};

/// Maximum wait for the exit of a killed process. The kernel frees the memory of the process first,
/// and closes the sockets later. Until then the control socket accepts connections, and the keeper
/// has no calls. If another server continues to run, this start is refused after this time.
const EXIT_WITHIN: Duration = Duration::from_secs(2);

/// Waits for the exit of the process that listens at the control socket, if any, for at most
/// [`EXIT_WITHIN`].
pub(crate) fn wait_for_exit(control: &Path) {
    let Ok(stream) = UnixStream::connect(control) else { return };
    let process =
        socket_peercred(&stream).and_then(|peer| pidfd_open(peer.pid, PidfdFlags::empty()));
    let Ok(process) = process else { return };
    let until = Instant::now() + EXIT_WITHIN;
    let mut exit = [PollFd::new(&process, PollFlags::IN)];
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let Ok(left) = Timespec::try_from(left) else { return };
        // A signal interrupts the wait.
        if poll(&mut exit, Some(&left)) != Err(Errno::INTR) {
            return;
        }
    }
}

/// Returns the predecessor whose calls the service manager or keeper stores. Returns `None` if no
/// calls are stored, or if the stored calls do not fit these settings. In that case the sockets are
/// closed, and the allocations have ended.
pub(crate) fn predecessor(found: Option<Parked>, settings: &Settings) -> Option<Predecessor> {
    let predecessor = match found {
        Some(found) => Predecessor::find(found).map(Some),
        None => Predecessor::ask_keeper(&handover::keeper_socket(&settings.control_socket())),
    };
    let predecessor = predecessor.unwrap_or_else(|error| {
        tracing::warn!("the allocations of the process before have ended: {error}");
        None
    })?;
    let (listeners, services) = (listeners(settings), services(settings));
    let (before, now) = (predecessor.workers(), workers(settings));
    let is_own_network = predecessor.is_of_own_network().unwrap_or_default();
    let in_the_way = predecessor.in_the_way(&listeners, &services);
    // The kernel distributes clients over the sockets of all workers. With another number of
    // workers, most clients would reach the wrong worker.
    let why = (before != now)
        .then(|| format!("it had {before} workers, and this one has {now}"))
        .or_else(|| (!is_own_network).then(|| "it was in another network namespace".to_owned()))
        .or_else(|| {
            in_the_way.map(|(at, now)| format!("it listened at {at}, and this one does at {now}"))
        });
    if let Some(why) = why {
        tracing::warn!("the allocations of process {} have ended: {why}", predecessor.process());
        predecessor.discard();
        return None;
    }
    Some(predecessor.with_listeners_at(&listeners, &services))
}

fn workers(settings: &Settings) -> usize {
    cores::cores(settings.workers.count, settings.workers.pin).len()
}

fn listeners(settings: &Settings) -> Vec<SocketAddr> {
    settings.listeners().iter().chain(&settings.tls_listen).copied().collect()
}

fn services(settings: &Settings) -> Vec<SocketAddr> {
    let monitoring = settings.http.listen.iter().filter_map(|listen| match listen {
        HttpListen::Tcp(address) => Some(*address),
        HttpListen::Unix(_) => None,
    });
    monitoring.chain(settings.api.listen.iter().map(|endpoint| endpoint.0)).collect()
}

/// Parks the calls with the service manager, if the manager stores descriptors. Without parking,
/// the copies at a keeper are unchanged.
pub(crate) fn leave(
    handovers: Option<&Handovers>,
    keeper: Option<&KeeperLink>,
    manager: &ServiceManager,
) {
    let Some(handovers) = handovers.filter(|_| manager.keeps()) else { return };
    match handovers.park(|parked| manager.keep(parked)) {
        Ok(allocations) => {
            tracing::info!(
                allocations,
                "the service manager keeps the sockets of clients for the next process"
            );
            if let Some(keeper) = keeper {
                keeper.leave();
            }
        }
        Err(error) => tracing::warn!("a restart ends the calls of this process: {}", why(&error)),
    }
}

fn why(error: &io::Error) -> String {
    if error.kind() == io::ErrorKind::TimedOut {
        return "the service manager does not answer".to_owned();
    }
    error.to_string()
}
