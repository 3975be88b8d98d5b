//! Three hosts in a row, each a network namespace of its own.

use std::net::IpAddr;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};

/// One of the hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Host {
    /// Where TURN clients run.
    Client,
    /// Where Turnpike runs.
    Server,
    /// Whom clients want to reach.
    Peer,
}

impl Host {
    const ALL: [Self; 3] = [Self::Client, Self::Server, Self::Peer];

    const fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Server => "server",
            Self::Peer => "peer",
        }
    }
}

/// The addresses of one family.
#[derive(Clone, Copy, Debug)]
pub struct Addresses {
    /// The client.
    pub client: IpAddr,
    /// The server, on the link to the client: where it listens.
    pub listen: IpAddr,
    /// The server, on the link to the peer: where it relays.
    pub relay: IpAddr,
    /// The peer.
    pub peer: IpAddr,
}

/// Three hosts, two links: client - server - peer. The server does not forward packets.
#[derive(Debug)]
pub struct Lab {
    id: String,
    /// IPv4 addresses, all of 10.77.0.0/16.
    pub v4: Addresses,
    /// IPv6 addresses, all of fd77::/16.
    pub v6: Addresses,
}

static COUNTER: AtomicU32 = AtomicU32::new(0);

impl Lab {
    /// Builds the hosts and links.
    ///
    /// # Errors
    /// Why this machine does not let us: a reason to skip the test.
    pub fn new() -> Result<Self, String> {
        let id = format!("tp{}-{}", std::process::id(), COUNTER.fetch_add(1, Ordering::Relaxed));
        let lab = Self {
            id,
            v4: addresses(["10.77.1.2", "10.77.1.1", "10.77.2.1", "10.77.2.2"]),
            v6: addresses(["fd77:1::2", "fd77:1::1", "fd77:2::1", "fd77:2::2"]),
        };
        for host in Host::ALL {
            ip(&["netns", "add", &lab.namespace(host)])
                .map_err(|error| format!("network namespaces cannot be made here ({error})"))?;
        }
        lab.link(
            (Host::Client, lab.v4.client, lab.v6.client),
            (Host::Server, lab.v4.listen, lab.v6.listen),
        )?;
        lab.link(
            (Host::Server, lab.v4.relay, lab.v6.relay),
            (Host::Peer, lab.v4.peer, lab.v6.peer),
        )?;
        Ok(lab)
    }

    /// The name of a host's namespace.
    #[must_use]
    pub fn namespace(&self, host: Host) -> String {
        format!("{}-{}", self.id, host.name())
    }

    /// A command that runs in a host.
    pub fn command(&self, host: Host, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.namespace(host)]).arg(program);
        command
    }

    fn link(&self, a: (Host, IpAddr, IpAddr), b: (Host, IpAddr, IpAddr)) -> Result<(), String> {
        // The name of a link's end tells where it leads: the client's end is called "to-server".
        let (end_a, end_b) = (format!("to-{}", b.0.name()), format!("to-{}", a.0.name()));
        ip(&[
            "link",
            "add",
            &end_a,
            "netns",
            &self.namespace(a.0),
            "type",
            "veth",
            "peer",
            "name",
            &end_b,
            "netns",
            &self.namespace(b.0),
        ])?;
        for ((host, v4, v6), end) in [(a, end_a), (b, end_b)] {
            let namespace = self.namespace(host);
            ip(&["-n", &namespace, "addr", "add", &format!("{v4}/24"), "dev", &end])?;
            // No duplicate address detection: the address is usable at once.
            ip(&["-n", &namespace, "addr", "add", &format!("{v6}/64"), "dev", &end, "nodad"])?;
            ip(&["-n", &namespace, "link", "set", "lo", "up"])?;
            ip(&["-n", &namespace, "link", "set", &end, "up"])?;
        }
        Ok(())
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        for host in Host::ALL {
            drop(ip(&["netns", "delete", &self.namespace(host)]));
        }
    }
}

fn addresses([client, listen, relay, peer]: [&str; 4]) -> Addresses {
    let read = |text: &str| text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
    Addresses { client: read(client), listen: read(listen), relay: read(relay), peer: read(peer) }
}

fn ip(arguments: &[&str]) -> Result<(), String> {
    match Command::new("ip").args(arguments).output() {
        Ok(Output { status, .. }) if status.success() => Ok(()),
        Ok(Output { stderr, .. }) => Err(String::from_utf8_lossy(&stderr).trim().to_owned()),
        Err(error) => Err(format!("the command ip: {error}")),
    }
}
