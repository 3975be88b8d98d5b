//! Where it runs: two network namespaces with a link between them, or the loopback.
//!
//! The link is a pair of virtual Ethernet devices. By default the kernel does the receiving end's
//! work on the core that sends; here each end is told to have it done on its own cores
//! (`rps_cpus`), as a network card's interrupts would: the relay's core pays for what the relay
//! receives, and not for what the clients do. On the loopback the sender's core pays for both ends.

use std::fs::File;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::process::{Command, Stdio};
use std::thread;

use anyhow::{Context as _, Result, bail};

/// Addresses of the link's ends: of 198.18.0.0/15, which is set aside for benchmarks (RFC 2544).
const RELAY: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
const GENERATOR: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 2);

/// The name of either end of the link: each is alone in its namespace.
const DEVICE: &str = "lab0";

/// The cores of each end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cores {
    pub(super) relay: Vec<usize>,
    pub(super) generator: Vec<usize>,
}

impl Cores {
    /// The last `threads` of the cores that this process may use for the relay, the others for the
    /// generator.
    ///
    /// # Errors
    /// Too few cores.
    pub(super) fn divide(mut allowed: Vec<usize>, threads: usize) -> Result<Self> {
        if threads == 0 || allowed.len() <= threads {
            bail!(
                "a relay of {threads} threads takes {threads} cores, and the generator one at \
                 least: this process may use {}",
                allowed.len()
            );
        }
        let relay = allowed.split_off(allowed.len() - threads);
        Ok(Self { relay, generator: allowed })
    }
}

/// Where the ends are.
#[derive(Debug)]
pub(super) enum Place {
    /// A namespace each. They last as long as these files and the sockets opened in them.
    Link {
        /// Where the relay is.
        relay: File,
        /// Where clients and peers are.
        generator: File,
    },
    /// Both on this host's loopback, and why.
    Loopback(String),
}

impl Place {
    /// Namespaces where this process may make them, and otherwise the loopback.
    pub(super) fn make(cores: &Cores) -> Self {
        link(cores).unwrap_or_else(|error| Self::Loopback(format!("{error:#}")))
    }

    /// The relay's address.
    pub(super) const fn relay_ip(&self) -> IpAddr {
        IpAddr::V4(match self {
            Self::Link { .. } => RELAY,
            Self::Loopback(_) => Ipv4Addr::LOCALHOST,
        })
    }

    /// The address of clients and peers.
    pub(super) const fn generator_ip(&self) -> IpAddr {
        IpAddr::V4(match self {
            Self::Link { .. } => GENERATOR,
            Self::Loopback(_) => Ipv4Addr::LOCALHOST,
        })
    }

    /// Runs `open` where the relay is.
    ///
    /// # Errors
    /// Its own.
    pub(super) fn at_relay<T: Send>(
        &self,
        open: impl FnOnce() -> io::Result<T> + Send,
    ) -> io::Result<T> {
        match self {
            Self::Link { relay, .. } => inside(relay, open),
            Self::Loopback(_) => open(),
        }
    }

    /// Runs `open` where clients and peers are.
    ///
    /// # Errors
    /// Its own.
    pub(super) fn at_generator<T: Send>(
        &self,
        open: impl FnOnce() -> io::Result<T> + Send,
    ) -> io::Result<T> {
        match self {
            Self::Link { generator, .. } => inside(generator, open),
            Self::Loopback(_) => open(),
        }
    }
}

/// Runs `open` in a thread that enters the namespace first, and ends with it.
fn inside<T: Send>(namespace: &File, open: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    let within = || {
        lab_net::enter_network_namespace(namespace)?;
        open()
    };
    thread::scope(|scope| scope.spawn(within).join())
        .unwrap_or_else(|_| Err(io::Error::other("a thread in a network namespace panicked")))
}

fn link(cores: &Cores) -> Result<Place> {
    let new = || lab_net::new_network_namespace().context("no network namespaces without root");
    let (relay, generator) = (new()?, new()?);
    inside(&relay, || {
        // A program that does nothing but be there: its process id names the namespace to `ip`.
        let mut there = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn()?;
        let pid = there.id().to_string();
        let made = inside(&generator, || {
            let pair = ["link", "add", DEVICE, "type", "veth", "peer", "name", DEVICE];
            run(Command::new("ip").args(pair).args(["netns", &pid]))?;
            bring_up(GENERATOR, &cores.generator)
        });
        // Its standard input ends, and with that it does.
        drop(there.stdin.take());
        there.wait()?;
        made?;
        bring_up(RELAY, &cores.relay)
    })?;
    Ok(Place::Link { relay, generator })
}

/// Sets up this end of the link, and has its receiving done on `cores`.
fn bring_up(address: Ipv4Addr, cores: &[usize]) -> io::Result<()> {
    run(Command::new("ip").args(["addr", "add", &format!("{address}/24"), "dev", DEVICE]))?;
    run(Command::new("ip").args(["link", "set", DEVICE, "up"]))?;
    // The system's files show the devices of the namespace they are mounted in, and the mount is
    // seen by nobody else and gone with the shell.
    let script =
        "mount -t sysfs lab /sys && echo \"$1\" > \"/sys/class/net/$0/queues/rx-0/rps_cpus\"";
    run(Command::new("unshare").args(["--mount", "sh", "-c", script, DEVICE, &mask(cores)]))
}

/// A set of cores as the kernel reads it: hexadecimal words of 32 cores, the last first.
fn mask(cores: &[usize]) -> String {
    let words = cores.iter().max().map_or(1, |last| last / 32 + 1);
    let mut bits = vec![0_u32; words];
    for core in cores {
        bits[core / 32] |= 1 << (core % 32);
    }
    let words: Vec<String> = bits.iter().rev().map(|word| format!("{word:08x}")).collect();
    words.join(",")
}

fn run(command: &mut Command) -> io::Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|error| io::Error::new(error.kind(), format!("the command {name}: {error}")))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(io::Error::other(format!("the command {name}: {said}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_relay_gets_the_last_cores_and_the_generator_what_is_left() {
        let cores = Cores::divide(vec![0, 1, 4, 5], 1).unwrap();
        assert_eq!(cores, Cores { relay: vec![5], generator: vec![0, 1, 4] });
        assert!(Cores::divide(vec![0, 1], 2).is_err());
        assert!(Cores::divide(vec![0, 1], 0).is_err());
    }

    #[test]
    fn sets_of_cores_are_written_as_the_kernel_reads_them() {
        assert_eq!(mask(&[0]), "00000001");
        assert_eq!(mask(&[1, 3]), "0000000a");
        assert_eq!(mask(&[0, 32, 65]), "00000002,00000001,00000001");
        assert_eq!(mask(&[]), "00000000");
    }
}
