//! Two links in a temporary network namespace, and the hosts on them.
//!
//! ```text
//! near clients, gateway to far ones -- clients0 [this host] peers0 -- near peers, gateway
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::net::IpAddr;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;

use super::frame::{Mac, Macs};
use test_support::skip;
use xdp_relay::device::{devices, missing_capabilities};

/// Addresses of this host: on the link of clients, on the link of peers.
pub const OWN_V4: [&str; 2] = ["10.9.1.1", "10.9.2.1"];
pub const OWN_V6: [&str; 2] = ["fd09:1::1", "fd09:2::1"];

/// Last numbers of the neighbours' addresses. The last neighbour is the gateway.
pub const NEIGHBOURS: std::ops::RangeInclusive<u8> = 2..=20;
pub const GATEWAY: u8 = 20;
/// Neighbour whose link-layer address is unknown.
pub const SILENT: u8 = 30;

/// Names of the links.
pub const LINKS: [&str; 2] = ["clients0", "peers0"];

/// Networks reached by the gateway of the clients. All others are reached by the gateway of the
/// peers.
const FAR_CLIENTS: [&str; 2] = ["100.64.0.0/10", "2001:db8:64::/48"];

pub const MTU: usize = 1500;

/// Lock for one test at a time, since the names of the programs' maps depend on the process.
static ONE: Mutex<()> = Mutex::new(());

/// Runs a test in a separate network namespace. Without the privilege it reports a skip, which
/// `make test` counts.
pub fn inside(test: impl FnOnce() + Send) {
    let missing = missing_capabilities();
    if !missing.is_empty() {
        return skip(format!("BPF programs want {}", missing.join(" and ")));
    }
    let namespace = match lab_net::new_network_namespace() {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            return skip("network namespaces want root");
        }
        Err(error) => panic!("{error}"),
    };
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    thread::scope(|scope| {
        let inside = scope.spawn(|| {
            lab_net::enter_network_namespace(&namespace).unwrap();
            test();
        });
        inside.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}

/// Runs commands of `ip` that must succeed, one per line, in the namespace of the calling thread.
pub fn ip(commands: &str) {
    let mut child = Command::new("ip")
        .args(["-batch", "-"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(commands.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{commands}: {complaint}");
}

pub fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Hosts of the network.
#[derive(Clone, Debug)]
pub struct Network {
    /// Link-layer addresses and indices of the links.
    pub macs: [Mac; 2],
    pub indices: [u32; 2],
    neighbours: BTreeMap<IpAddr, (usize, Mac)>,
}

impl Network {
    /// Sets up the namespace of the calling thread.
    pub fn make() -> Self {
        for family in ["ipv4", "ipv6"] {
            // Enables look-ups of next hops.
            fs::write(format!("/proc/sys/net/{family}/conf/lo/forwarding"), "1").unwrap();
        }
        let mut commands = vec!["link set lo up".to_owned()];
        let mut neighbours = BTreeMap::new();
        let macs = [0, 1].map(|link| mac(link, 1));
        for (link, name) in LINKS.iter().enumerate() {
            let other = format!("{name}x");
            let own = text(macs[link]);
            commands.push(format!("link add {name} address {own} type veth peer name {other}"));
            for device in [name, other.as_str()] {
                commands.push(format!("link set {device} addrgenmode none"));
                commands.push(format!("link set {device} mtu {MTU} up"));
            }
            commands.push(format!("address add {}/24 dev {name}", OWN_V4[link]));
            commands.push(format!("address add {}/64 dev {name} nodad", OWN_V6[link]));
            for host in NEIGHBOURS {
                let mac = mac(link, host);
                for at in near(link, host) {
                    neighbours.insert(at, (link, mac));
                    let mac = text(mac);
                    commands.push(format!("neigh add {at} lladdr {mac} dev {name} nud permanent"));
                }
            }
        }
        for prefix in FAR_CLIENTS {
            let gateway = near(0, GATEWAY)[usize::from(prefix.contains(':'))];
            commands.push(format!("route add {prefix} via {gateway}"));
        }
        for (all, gateway) in ["0.0.0.0/0", "::/0"].into_iter().zip(near(1, GATEWAY)) {
            commands.push(format!("route add {all} via {gateway}"));
        }
        ip(&commands.join("\n"));
        let all = devices().unwrap();
        let index = |name| all.iter().find(|device| device.name == name).unwrap().index;
        Self { macs, indices: LINKS.map(index), neighbours }
    }

    /// Returns the Ethernet addresses of a packet to `to`, or `None` without a known neighbour.
    pub fn way(&self, to: IpAddr) -> Option<Macs> {
        let far = |link| near(link, GATEWAY)[usize::from(to.is_ipv6())];
        let next = match to {
            IpAddr::V4(v4) => match v4.octets() {
                [10, 9, 1 | 2, _] => to,
                [100, 64..=127, ..] => far(0),
                _ => far(1),
            },
            IpAddr::V6(v6) => match v6.segments() {
                [0xfd09, 1 | 2, 0, 0, ..] => to,
                [0x2001, 0xdb8, 0x64, ..] => far(0),
                _ => far(1),
            },
        };
        let (link, to) = *self.neighbours.get(&next)?;
        Some(Macs { to, from: self.macs[link] })
    }
}

/// Returns the addresses of a host on a link.
pub fn near(link: usize, host: u8) -> [IpAddr; 2] {
    let number = link + 1;
    [format!("10.9.{number}.{host}"), format!("fd09:{number}::{host:x}")].map(|at| address(&at))
}

const fn mac(link: usize, host: u8) -> Mac {
    [2, 0xC0, link as u8, 7, 0xF0, host]
}

fn text(mac: Mac) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}
