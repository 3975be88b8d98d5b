//! Two network namespaces with a link between them, or the loopback.
//!
//! By default the kernel receives from a virtual link on the core that sends; here each end
//! receives on its own cores (`rps_cpus`), as a network card's interrupts would have it. On the
//! loopback the sender's core pays for both ends.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

use anyhow::{Result, ensure};

use crate::network::{Namespace, ip, run};

/// Addresses of the link's ends, of 198.18.0.0/15, which is reserved for benchmarks (RFC 2544).
const RELAY: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
const GENERATOR: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 2);

/// The name of either end of the link.
const DEVICE: &str = "lab0";

/// The cores of each end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cores {
    pub(super) relay: Vec<usize>,
    pub(super) generator: Vec<usize>,
}

impl Cores {
    /// Gives the relay the last `threads` cores of this process, and the generator the others.
    ///
    /// # Errors
    /// Too few cores.
    pub(super) fn divide(mut allowed: Vec<usize>, threads: usize) -> Result<Self> {
        ensure!(
            threads > 0 && allowed.len() > threads,
            "a relay of {threads} threads takes {threads} cores, and the generator one at least: this \
             process may use {}",
            allowed.len()
        );
        let relay = allowed.split_off(allowed.len() - threads);
        Ok(Self { relay, generator: allowed })
    }
}

/// The networks of the two ends.
#[derive(Debug)]
pub(super) enum Place {
    /// A namespace each.
    Link { relay: Namespace, generator: Namespace },
    /// Both on this host's loopback, with the reason.
    Loopback(String),
}

impl Place {
    /// Namespaces where this process may make them, and otherwise the loopback.
    pub(super) fn make(cores: &Cores) -> Self {
        link(cores).unwrap_or_else(|error| Self::Loopback(format!("{error:#}")))
    }

    pub(super) const fn relay_ip(&self) -> IpAddr {
        IpAddr::V4(if let Self::Link { .. } = self { RELAY } else { Ipv4Addr::LOCALHOST })
    }

    pub(super) const fn generator_ip(&self) -> IpAddr {
        IpAddr::V4(if let Self::Link { .. } = self { GENERATOR } else { Ipv4Addr::LOCALHOST })
    }

    /// Runs `action` in the network of the relay.
    pub(super) fn at_relay<T: Send>(&self, action: impl FnOnce() -> T + Send) -> T {
        match self {
            Self::Link { relay, .. } => relay.within(action),
            Self::Loopback(_) => action(),
        }
    }

    /// Runs `action` in the network of clients and peers.
    pub(super) fn at_generator<T: Send>(&self, action: impl FnOnce() -> T + Send) -> T {
        match self {
            Self::Link { generator, .. } => generator.within(action),
            Self::Loopback(_) => action(),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Link { .. } => f.write_str("a link between two network namespaces"),
            Self::Loopback(reason) => write!(f, "the loopback ({reason})"),
        }
    }
}

fn link(cores: &Cores) -> Result<Place> {
    let (relay, generator) = (Namespace::new()?, Namespace::new()?);
    relay.link(DEVICE, &generator, DEVICE)?;
    relay.within(|| bring_up(RELAY, &cores.relay))?;
    generator.within(|| bring_up(GENERATOR, &cores.generator))?;
    Ok(Place::Link { relay, generator })
}

/// Sets up this end of the link, which receives on `cores`.
fn bring_up(address: Ipv4Addr, cores: &[usize]) -> Result<()> {
    ip(&format!("addr add {address}/24 dev {DEVICE}"))?;
    ip(&format!("link set {DEVICE} up"))?;
    // sysfs shows the devices of the namespace in which it is mounted; the mount ends with the
    // shell.
    let script =
        "mount -t sysfs lab /sys && echo \"$1\" > \"/sys/class/net/$0/queues/rx-0/rps_cpus\"";
    run("unshare", &["--mount", "sh", "-c", script, DEVICE, &mask(cores)]).map(drop)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_relay_gets_the_last_cores() {
        let cores = Cores::divide(vec![0, 1, 4, 5], 1).unwrap();
        assert_eq!(cores, Cores { relay: vec![5], generator: vec![0, 1, 4] });
        assert!(Cores::divide(vec![0, 1], 2).is_err() && Cores::divide(vec![0, 1], 0).is_err());
    }

    #[test]
    fn sets_of_cores_are_words_of_32() {
        assert_eq!(mask(&[1, 3]), "0000000a");
        assert_eq!(mask(&[0, 32, 65]), "00000002,00000001,00000001");
        assert_eq!(mask(&[]), "00000000");
    }
}
