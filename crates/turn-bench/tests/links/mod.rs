//! Three hosts in a row, client - server - peer, each a network namespace.

#![allow(dead_code, reason = "each test file uses its own part")]

use turn_bench::frames::Unavailable;
use turn_bench::network::{Namespace, ip, run};

/// The hosts.
pub(crate) struct Chain {
    client: Namespace,
    server: Namespace,
    peer: Namespace,
}

impl Chain {
    /// Builds the hosts and the links between them.
    pub(crate) fn new() -> Result<Self, String> {
        match turn_bench::frames::available() {
            Ok(()) => {}
            Err(Unavailable::Failed(error)) => panic!("{error:#}"),
            Err(reason) => return Err(reason.to_string()),
        }
        let host = || Namespace::new().map_err(|error| format!("{error:#}"));
        let chain = Self { client: host()?, server: host()?, peer: host()? };
        chain.link(1, ("client", 2), ("server", 1));
        chain.link(2, ("server", 1), ("peer", 2));
        Ok(chain)
    }

    fn host(&self, name: &str) -> &Namespace {
        match name {
            "client" => &self.client,
            "server" => &self.server,
            "peer" => &self.peer,
            _ => panic!("no host {name}"),
        }
    }

    /// Joins two hosts by the network 10.77.n.0/24 and fd77:n::/64.
    fn link(&self, network: u8, a: (&str, u8), b: (&str, u8)) {
        let (end_a, end_b) = (format!("to-{}", b.0), format!("to-{}", a.0));
        self.host(a.0).link(&end_a, self.host(b.0), &end_b).unwrap();
        for (end, (name, host)) in [(end_a, a), (end_b, b)] {
            self.within(name, || {
                ip(&format!("addr add 10.77.{network}.{host}/24 dev {end}")).unwrap();
                ip(&format!("addr add fd77:{network}::{host}/64 dev {end} nodad")).unwrap();
                ip(&format!("link set {end} up")).unwrap();
            });
        }
    }

    /// Runs `action` in a host, on a thread of its own.
    pub(crate) fn within<T: Send>(&self, host: &str, action: impl FnOnce() -> T + Send) -> T {
        self.host(host).within(action)
    }

    /// Has ends of links poll (NAPI), so that they take frames.
    pub(crate) fn poll(&self, host: &str, ends: &[&str]) -> Result<(), String> {
        let on = |end: &&str| run("ethtool", &["-K", end, "gro", "on"]).map(drop);
        self.within(host, || ends.iter().try_for_each(on)).map_err(|error| format!("{error:#}"))
    }

    /// Output of `ip` about a link.
    pub(crate) fn link_details(&self, host: &str, interface: &str) -> String {
        self.within(host, || ip(&format!("-j -d link show {interface}"))).unwrap()
    }
}
