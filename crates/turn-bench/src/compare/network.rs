//! Three hosts in a row, client - server - peer, each a network namespace of its own.
//!
//! Nothing of them outlives the process, however it ends: a shell that waits for the other end of a
//! pipe to be closed removes the namespaces and the directory of the run.

mod cleanup;
mod steer;

use std::ffi::OsStr;
use std::fs::File;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;

use super::cores::Cores;
use super::host::{CLIENT, Ends, Host, LISTEN, PEER, PEERS, RELAY, RELAYS};
use crate::network::run;
use crate::traffic::Backend;
use cleanup::Cleanup;

/// The hosts, their links, and a directory for files of the run.
#[derive(Debug)]
pub(crate) struct Network {
    id: u32,
    directory: PathBuf,
    cores: Cores,
    /// Last to drop: it removes everything.
    _cleanup: Cleanup,
}

impl Network {
    /// Builds hosts and links for these backends, and pins the work of each host's links to its
    /// cores.
    ///
    /// # Errors
    /// Missing programs or privileges.
    pub(crate) fn new(cores: Cores, ends: Ends) -> anyhow::Result<Self> {
        cleanup::remove_leftovers();
        let id = std::process::id();
        let directory = std::env::temp_dir().join(format!("turnpike-bench-{id}"));
        let namespaces = Host::ALL.map(|host| cleanup::namespace(id, host));
        let cleanup = Cleanup::start(&namespaces, &directory)?;
        make_directory(&directory)?;
        for namespace in &namespaces {
            run("ip", &["netns", "add", namespace]).map(drop).context(
                "network namespaces cannot be made: a comparison wants root, in a place that \
                 allows mounts (not in an unprivileged container)",
            )?;
        }
        let network = Self { id, directory, cores, _cleanup: cleanup };
        for host in Host::ALL {
            // Neighbour discovery of IPv6 is noise.
            network.shell(host, "echo 1 >/proc/sys/net/ipv6/conf/default/disable_ipv6")?;
            network.ip(host, &["link", "set", "lo", "up"])?;
        }
        network.link((Host::Client, CLIENT), (Host::Server, LISTEN), ends.client)?;
        network.link((Host::Peer, PEER), (Host::Server, RELAY), ends.peer)?;
        network.ip(Host::Peer, &["route", "add", "local", PEERS, "dev", "lo"])?;
        network.ip(Host::Server, &["route", "add", PEERS, "via", &PEER.to_string()])?;
        network.ip(Host::Server, &["route", "add", "local", RELAYS, "dev", "lo"])?;
        network.ip(Host::Peer, &["route", "add", RELAYS, "via", &RELAY.to_string()])?;
        Ok(network)
    }

    /// Directory for files of the run, readable by its owner alone.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// The cores of each host.
    pub(crate) fn cores(&self) -> &Cores {
        &self.cores
    }

    /// A host's interface on the link to another.
    pub(crate) fn interface(&self, from: Host, to: Host) -> String {
        // A name is at most 15 bytes, and 10 with the longest process id.
        format!("{}2{}{}", from.initial(), to.initial(), self.id)
    }

    /// A host's namespace, for threads that enter it.
    ///
    /// # Errors
    /// It was removed.
    pub(crate) fn namespace(&self, host: Host) -> anyhow::Result<File> {
        let path = Path::new("/run/netns").join(cleanup::namespace(self.id, host));
        File::open(&path).with_context(|| format!("opening {}", path.display()))
    }

    /// The hardware addresses of a host's interface on the link to another, and of that link's
    /// other end.
    pub(crate) fn hardware(from: Host, to: Host) -> [[u8; 6]; 2] {
        let address = |this, other| match (this, other) {
            (Host::Client, _) => CLIENT,
            (Host::Peer, _) => PEER,
            (Host::Server, Host::Peer) => RELAY,
            (Host::Server, _) => LISTEN,
        };
        [hardware(address(from, to)), hardware(address(to, from))]
    }

    /// A command that runs in a host, on its cores, and ends with this thread.
    ///
    /// # Errors
    /// Cores that no machine has.
    pub(crate) fn command(
        &self,
        host: Host,
        program: impl AsRef<OsStr>,
    ) -> anyhow::Result<Command> {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &cleanup::namespace(self.id, host)]).arg(program);
        lab_net::tie_to_parent(&mut command, self.cores.of(host))?;
        Ok(command)
    }

    /// Joins two hosts, with permanent neighbour entries, so that no neighbour discovery disturbs a
    /// measurement.
    fn link(
        &self,
        a: (Host, Ipv4Addr),
        b: (Host, Ipv4Addr),
        backend: Backend,
    ) -> anyhow::Result<()> {
        let namespaces = [a.0, b.0].map(|host| cleanup::namespace(self.id, host));
        let ends = [self.interface(a.0, b.0), self.interface(b.0, a.0)];
        // As many queues as the host at the end has cores for them.
        let queues = [a.0, b.0].map(|host| self.cores.of(host).len().to_string());
        let [of_a, of_b] = &queues;
        #[rustfmt::skip]
        run("ip", &[
            "link", "add", &ends[0], "netns", &namespaces[0],
                "numrxqueues", of_a, "numtxqueues", of_b, "type", "veth",
            "peer", "name", &ends[1], "netns", &namespaces[1],
                "numrxqueues", of_b, "numtxqueues", of_a,
        ])?;
        for (this, other, end) in [(a, b, &ends[0]), (b, a, &ends[1])] {
            let host = this.0;
            self.ip(host, &["link", "set", end, "address", &written(hardware(this.1))])?;
            self.ip(host, &["addr", "add", &format!("{}/24", this.1), "dev", end])?;
            self.ip(host, &["link", "set", end, "up"])?;
            let (neighbour, at) = (other.1.to_string(), written(hardware(other.1)));
            self.ip(host, &["neigh", "replace", &neighbour, "lladdr", &at, "dev", end])?;
        }
        for (host, end) in [(a.0, &ends[0]), (b.0, &ends[1])] {
            steer::steer(self, host, end, backend).with_context(|| {
                format!("giving the work of the link's end at the {} to its cores", host.name())
            })?;
        }
        Ok(())
    }

    fn ip(&self, host: Host, arguments: &[&str]) -> anyhow::Result<()> {
        let namespace = cleanup::namespace(self.id, host);
        run("ip", &[&["-n", &namespace][..], arguments].concat()).map(drop)
    }

    /// Runs a line of shell in a host, with the host's interfaces in `/sys`.
    fn shell(&self, host: Host, line: &str) -> anyhow::Result<()> {
        let namespace = cleanup::namespace(self.id, host);
        run("ip", &["netns", "exec", &namespace, "sh", "-ec", line]).map(drop)
    }
}

/// A hardware address made of an address: locally administered.
fn hardware(address: Ipv4Addr) -> [u8; 6] {
    let [a, b, c, d] = address.octets();
    [2, 0, a, b, c, d]
}

fn written(hardware: [u8; 6]) -> String {
    hardware.map(|byte| format!("{byte:02x}")).join(":")
}

fn make_directory(directory: &Path) -> anyhow::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    std::fs::DirBuilder::new()
        .mode(0o700)
        .create(directory)
        .with_context(|| format!("making the directory {}", directory.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_run_in_their_host_and_nothing_remains() {
        let Some(network) = test_support::require(Cores::assign(1).and_then(|cores| {
            Network::new(cores, Ends { client: Backend::Sockets, peer: Backend::Sockets })
        })) else {
            return;
        };
        let run = |host, program, arguments: &[&str]| {
            let output = network.command(host, program).unwrap().args(arguments).output().unwrap();
            assert!(output.status.success(), "{output:?}");
            String::from_utf8(output.stdout).unwrap()
        };
        let addresses = run(Host::Server, "ip", &["-4", "-brief", "address"]);
        assert!(addresses.contains("10.78.1.1/24") && addresses.contains("10.78.2.1/24"));
        let cores = run(Host::Server, "grep", &["Cpus_allowed_list", "/proc/self/status"]);
        let expected = network.cores().server[0].to_string();
        assert_eq!(cores.split_whitespace().last(), Some(expected.as_str()));

        let directory = network.directory().to_owned();
        let namespace = Path::new("/run/netns").join(cleanup::namespace(network.id, Host::Server));
        assert!(directory.exists() && namespace.exists());
        drop(network);
        assert!(!directory.exists() && !namespace.exists());
    }
}
