//! A NAT in front of the client, with a given behaviour: a process of the client's host
//! (`clients/nat.py`), so that it works wherever namespaces do.

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::time::Duration;

use crate::{Host, Lab, Running, repository};

/// The address behind the NAT: packets sent from it are translated.
pub const INSIDE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 168, 77, 2));

/// The interface of the NAT in the client's host.
const INTERFACE: &str = "inside";

/// Dependence of a behaviour on the outside endpoint (RFC 4787).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dependence {
    /// On nothing: endpoint-independent.
    Nowhere,
    /// At the address: address-dependent.
    AtAddress,
    /// At address and port: address and port-dependent.
    AtPort,
}

impl Dependence {
    const fn word(self) -> &'static str {
        match self {
            Self::Nowhere => "endpoint",
            Self::AtAddress => "address",
            Self::AtPort => "port",
        }
    }
}

/// A NAT that runs until the value is dropped.
#[derive(Debug)]
pub struct Nat {
    _process: Running,
}

impl Nat {
    /// Puts [`INSIDE`] behind a NAT with this mapping and filtering, whose outside is the client's
    /// own address. One for each lab.
    ///
    /// # Errors
    /// A reason to skip the test.
    ///
    /// # Panics
    /// The client's host cannot be set up.
    pub fn start(lab: &Lab, mapping: Dependence, filtering: Dependence) -> Result<Self, String> {
        if !Path::new("/dev/net/tun").exists() {
            return Err("there is no /dev/net/tun for a NAT".to_owned());
        }
        let (inside, outside) = (format!("{INSIDE}/32"), lab.v4.client.to_string());
        for command in [
            &["tuntap", "add", "mode", "tun", INTERFACE][..],
            &["addr", "add", &inside, "dev", INTERFACE],
            // A packet larger than the outside MTU is fragmented there, not in front of the NAT.
            &["link", "set", INTERFACE, "mtu", "9000", "up"],
            &["route", "add", "default", "dev", INTERFACE, "table", "77"],
            &["rule", "add", "from", &INSIDE.to_string(), "lookup", "77"],
        ] {
            lab.run(Host::Client, "ip", command);
        }
        let script = repository().join("crates/e2e/clients/nat.py");
        let mut process = Running::start(lab.command(Host::Client, "python3").arg(script).args([
            INTERFACE,
            &outside,
            mapping.word(),
            filtering.word(),
        ]));
        process.wait_for("ready", Duration::from_secs(20));
        Ok(Self { _process: process })
    }
}
