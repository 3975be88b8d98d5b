//! Detection of other processes at the listeners' UDP ports. The kernel lets processes of one user
//! share a port (`SO_REUSEPORT`), and distributes the clients among them.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::Duration;

use control::Handle;
use linux_net::{PortUser, users_of_udp_port};
use rustix::fs::fstat;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use crate::handover::ListenerCopies;

/// Interval of checks. Each check takes a millisecond in which the kernel walks its table of UDP
/// sockets.
const LOOK_EVERY: Duration = Duration::from_secs(15);

/// Maximum number of allocations for a check. With more allocations, the walk would occupy a core
/// for too long.
const LOOKS_UP_TO: u64 = 10_000;

/// UDP listeners of this process, with the inodes of their sockets.
#[derive(Clone, Debug)]
struct OwnSockets(Vec<(SocketAddr, u32)>);

impl OwnSockets {
    fn of<'a>(listeners: impl Iterator<Item = (SocketAddr, &'a (impl AsFd + 'a))>) -> Self {
        // The kernel also reports at most 32 bits of the inodes of other processes.
        let inode = |socket: &dyn AsFd| fstat(socket).ok().map(|found| found.st_ino as u32);
        Self(listeners.filter_map(|(at, socket)| Some((at, inode(&socket)?))).collect())
    }

    /// Returns a sentence about each port at which another process receives datagrams of clients.
    fn shared(&self) -> Vec<String> {
        let ports: BTreeSet<u16> = self.0.iter().map(|(at, _)| at.port()).collect();
        let is_shared = |port: &u16| {
            users_of_udp_port(*port).is_ok_and(|users| users.iter().any(|user| self.loses_to(user)))
        };
        let text = |port| {
            format!(
                "Another process receives at UDP port {port} as well and takes a part of the clients: `ss -lunp sport = :{port}` \
                 names it."
            )
        };
        ports.into_iter().filter(is_shared).map(text).collect()
    }

    /// Returns true for another process's socket that receives a listener's datagrams. The socket
    /// has the address of a listener, or any address if the listener has an unspecified address.
    fn loses_to(&self, user: &PortUser) -> bool {
        let is_own = self.0.iter().any(|(_, inode)| *inode == user.inode);
        let overlaps = |at: &SocketAddr| {
            let is_for_all = at.ip().is_unspecified() && at.is_ipv4() == user.local.is_ipv4();
            at.port() == user.local.port() && (at.ip() == user.local.ip() || is_for_all)
        };
        !is_own && self.0.iter().any(|(at, _)| overlaps(at))
    }
}

/// Starts the task that detects other processes at the listeners' ports.
pub(crate) fn start(listeners: &[ListenerCopies], handle: &Handle) {
    let own = OwnSockets::of(listeners.iter().flat_map(ListenerCopies::udp));
    tokio::spawn(watch(own, handle.clone()));
}

/// Checks the ports periodically, for the lifetime of the runtime.
async fn watch(own: OwnSockets, handle: Handle) {
    let mut known = Vec::new();
    loop {
        sleep(LOOK_EVERY).await;
        if handle.workers.own_totals().allocations_live() > LOOKS_UP_TO {
            continue;
        }
        let sockets = own.clone();
        let Ok(shared) = spawn_blocking(move || sockets.shared()).await else { return };
        for text in shared.iter().filter(|text| !known.contains(*text)) {
            tracing::error!("{text}");
        }
        handle.set_shared_ports(shared.clone());
        known = shared;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_of_others_count_where_they_take_datagrams() {
        let at = |text: &str| text.parse().unwrap();
        let own = OwnSockets(vec![(at("0.0.0.0:3478"), 7), (at("192.0.2.1:3479"), 8)]);
        let loses_to = |local: &str, inode| own.loses_to(&PortUser { local: at(local), inode });
        assert!(loses_to("0.0.0.0:3478", 9) && loses_to("192.0.2.1:3478", 9));
        assert!(loses_to("192.0.2.1:3479", 9));
        assert!(!loses_to("0.0.0.0:3478", 7), "its own");
        // The kernel prefers the own socket there, or the family differs.
        assert!(!loses_to("0.0.0.0:3479", 9) && !loses_to("[::]:3478", 9));
    }
}
