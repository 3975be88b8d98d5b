//! Three hosts in a row, client - server - peer, each a network namespace.

#![allow(dead_code, reason = "each test file uses its own part")]

use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::process::{Command, Output};
use std::thread;

use lab_net::{enter_network_namespace, new_network_namespace};
use turn_bench::frames::Unavailable;

/// The hosts. They go with this value, however the test ends.
pub(crate) struct Chain {
    client: File,
    server: File,
    peer: File,
}

impl Chain {
    /// Builds the hosts and the links between them.
    pub(crate) fn new() -> Result<Self, String> {
        match turn_bench::frames::available() {
            Ok(()) => {}
            Err(Unavailable::Failed(error)) => panic!("{error:#}"),
            Err(reason) => return Err(reason.to_string()),
        }
        let host = || {
            new_network_namespace()
                .map_err(|error| format!("network namespaces cannot be made here ({error})"))
        };
        let chain = Self { client: host()?, server: host()?, peer: host()? };
        chain.link(1, ("client", 2), ("server", 1))?;
        chain.link(2, ("server", 1), ("peer", 2))?;
        Ok(chain)
    }

    fn host(&self, name: &str) -> &File {
        match name {
            "client" => &self.client,
            "server" => &self.server,
            "peer" => &self.peer,
            _ => panic!("no host {name}"),
        }
    }

    /// Joins two hosts by the network 10.77.n.0/24 and fd77:n::/64.
    fn link(&self, network: u8, a: (&str, u8), b: (&str, u8)) -> Result<(), String> {
        let (end_a, end_b) = (format!("to-{}", b.0), format!("to-{}", a.0));
        let far = format!("/proc/{}/fd/{}", std::process::id(), self.host(b.0).as_raw_fd());
        self.within(a.0, || {
            ip(&["link", "add", &end_a, "type", "veth", "peer", "name", &end_b, "netns", &far])
        })?;
        for (end, (name, host)) in [(end_a, a), (end_b, b)] {
            let v4 = format!("10.77.{network}.{host}/24");
            let v6 = format!("fd77:{network}::{host}/64");
            self.within(name, || {
                ip(&["addr", "add", &v4, "dev", &end])?;
                ip(&["addr", "add", &v6, "dev", &end, "nodad"])?;
                ip(&["link", "set", "lo", "up"])?;
                ip(&["link", "set", &end, "up"])
            })?;
        }
        Ok(())
    }

    /// Does something in a host, on a thread of its own.
    pub(crate) fn within<T: Send>(&self, host: &str, action: impl FnOnce() -> T + Send) -> T {
        thread::scope(|scope| {
            let inside = scope.spawn(|| {
                enter_network_namespace(self.host(host)).unwrap();
                action()
            });
            inside.join().unwrap()
        })
    }

    /// Has ends of links poll, so that frames are taken there.
    pub(crate) fn poll(&self, host: &str, ends: &[&str]) -> Result<(), String> {
        let on = |end: &&str| tool("ethtool", &["-K", end, "gro", "on"]).map(drop);
        self.within(host, || ends.iter().try_for_each(on))
    }

    /// What `ip` says of a link.
    pub(crate) fn link_details(&self, host: &str, interface: &str) -> String {
        self.within(host, || ip(&["-j", "-d", "link", "show", interface])).unwrap()
    }
}

fn ip(arguments: &[&str]) -> Result<String, String> {
    tool("ip", arguments)
}

fn tool(name: &str, arguments: &[&str]) -> Result<String, String> {
    match Command::new(name).args(arguments).output() {
        Ok(Output { status, stdout, .. }) if status.success() => {
            Ok(String::from_utf8_lossy(&stdout).into_owned())
        }
        Ok(Output { stderr, .. }) => Err(String::from_utf8_lossy(&stderr).trim().to_owned()),
        Err(error) => Err(format!("the command {name}: {error}")),
    }
}
