//! A link and its neighbours, by the command `ip`.

use std::net::{IpAddr, UdpSocket};
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::Mac;

/// Checks of a neighbour entry, and their interval: enough for three solicitations, a second apart.
const ASKED: u32 = 80;
const ASKED_EVERY: Duration = Duration::from_millis(50);

/// Checks after which neighbour discovery is triggered again, since the kernel may have given up.
const LOOKS_A_DATAGRAM: u32 = 20;

/// A datagram to this port (discard) triggers neighbour discovery, and has no answer.
const DISCARD: u16 = 9;

/// An interface of this network namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Name of the interface.
    pub interface: String,
    /// Its MAC address.
    pub mac: Mac,
    /// It is one end of a veth pair.
    pub veth: bool,
}

impl Link {
    /// Looks an interface up.
    ///
    /// # Errors
    /// There is none, or it has no Ethernet address, or the command `ip` is not installed.
    pub fn read(interface: &str) -> Result<Self> {
        let links = ip(&["-d", "link", "show", "dev", interface])?;
        let link = links.get(0).with_context(|| format!("there is no interface {interface}"))?;
        if link["link_type"] != "ether" {
            bail!("{interface} is no Ethernet link: frames cannot be sent on it");
        }
        let mac = link["address"].as_str().unwrap_or_default();
        Ok(Self {
            interface: interface.to_owned(),
            mac: mac.parse().map_err(anyhow::Error::msg)?,
            veth: link["linkinfo"]["info_kind"] == "veth",
        })
    }

    /// The MAC address of the next hop to `destination`, by neighbour discovery if need be.
    ///
    /// # Errors
    /// Packets leave by another interface, or the next hop does not answer.
    pub fn next_hop(&self, destination: IpAddr) -> Result<Mac> {
        let routes = ip(&["route", "get", &destination.to_string()])
            .with_context(|| format!("there is no route to {destination}"))?;
        let route = &routes[0];
        let own = &self.interface;
        match route["dev"].as_str() {
            Some(dev) if dev == own => {}
            dev => bail!(
                "packets to {destination} leave by {}, not by {own}: name that interface",
                dev.unwrap_or("no interface")
            ),
        }
        let next = route["gateway"].as_str().map_or(Ok(destination), str::parse)?;
        for asked in 0..ASKED {
            if let Some(mac) = self.neighbour(next)? {
                return Ok(mac);
            }
            if asked % LOOKS_A_DATAGRAM == 0 {
                ask_for(next)?;
            }
            thread::sleep(ASKED_EVERY);
        }
        bail!("{next} on {own} does not tell its MAC address: is it up?")
    }

    fn neighbour(&self, address: IpAddr) -> Result<Option<Mac>> {
        let found = ip(&["neigh", "show", "to", &address.to_string(), "dev", &self.interface])?;
        let mac = found[0]["lladdr"].as_str();
        mac.map(|text| text.parse().map_err(anyhow::Error::msg)).transpose()
    }

    /// Packets sent by this link so far.
    ///
    /// # Errors
    /// The interface is gone.
    pub fn sent(&self) -> Result<u64> {
        let links = ip(&["-s", "link", "show", "dev", &self.interface])?;
        links[0]["stats64"]["tx"]["packets"].as_u64().context("`ip -s link` tells no packets")
    }
}

/// Sends one empty datagram to a neighbour.
fn ask_for(neighbour: IpAddr) -> Result<()> {
    let any: IpAddr = match neighbour {
        IpAddr::V4(_) => std::net::Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => std::net::Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).context("cannot open a socket")?;
    socket
        .send_to(&[], (neighbour, DISCARD))
        .with_context(|| format!("cannot send to {neighbour}"))?;
    Ok(())
}

/// Output of `ip -j`: a list, empty without output.
fn ip(arguments: &[&str]) -> Result<Value> {
    let output = Command::new("ip")
        .arg("-j")
        .args(arguments)
        .output()
        .context("cannot run the command ip (Debian's package iproute2)")?;
    if !output.status.success() {
        bail!("ip {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    if output.stdout.trim_ascii().is_empty() {
        return Ok(Value::Array(Vec::new()));
    }
    serde_json::from_slice(&output.stdout)
        .with_context(|| format!("ip {}: no JSON", arguments.join(" ")))
}
