//! The interfaces to look at.

use crate::host::Host;
use crate::setting::{EthtoolValue, Setting};

/// Interfaces that one stands on, and these on others: a VLAN on a bond on two cards is 3 deep.
const DEPTH_MAX: usize = 8;

/// The kernel's flag of an interface that loops back (IFF_LOOPBACK).
const LOOPBACK: u32 = 0x8;

/// An interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Interface {
    /// Name.
    pub(crate) name: String,
    /// Reason for the lack of a card, where there is none.
    pub(crate) no_card: Option<&'static str>,
    /// True for the loopback interface.
    pub(crate) loopback: bool,
    /// Its receive queues: `rx-0` and so on.
    pub(crate) rx_queues: Vec<String>,
    /// Its transmit queues.
    pub(crate) tx_queues: Vec<String>,
    /// Output of `ethtool -l`, or its complaint.
    pub(crate) channels: Result<String, String>,
    /// Output of `ethtool -g`.
    pub(crate) rings: Result<String, String>,
    /// Output of `ethtool -c`.
    pub(crate) coalescing: Result<String, String>,
    /// Output of `ethtool -k`.
    pub(crate) features: Result<String, String>,
}

/// The interfaces to look at, and notes on their choice.
#[derive(Debug, Default)]
pub(crate) struct Chosen {
    pub(crate) interfaces: Vec<Interface>,
    pub(crate) notes: Vec<String>,
}

impl Interface {
    /// Reads the properties of an interface.
    pub(crate) fn read(host: &Host, name: &str) -> Self {
        let directory = directory(name);
        let flags = host.read(&format!("{directory}/flags")).unwrap_or_default();
        let flags = u32::from_str_radix(flags.trim_start_matches("0x"), 16).unwrap_or_default();
        let loopback = flags & LOOPBACK != 0;
        let no_card = if loopback {
            Some("it is the loopback: no card, and no interrupts of its own")
        } else if !host.exists(&format!("{directory}/device")) {
            Some("it is virtual: no card, and no interrupts of its own")
        } else {
            None
        };
        let queues = host.names(&format!("{directory}/queues"));
        let of = |kind: &str| queues.iter().filter(|q| q.starts_with(kind)).cloned().collect();
        let ethtool = |option| match no_card {
            Some(reason) => Err(reason.to_owned()),
            None => host.ethtool(&[option, name]),
        };
        Self {
            name: name.to_owned(),
            no_card,
            loopback,
            rx_queues: of("rx-"),
            tx_queues: of("tx-"),
            channels: ethtool("-l"),
            rings: ethtool("-g"),
            coalescing: ethtool("-c"),
            features: ethtool("-k"),
        }
    }

    /// A value that `ethtool` sets for it.
    pub(crate) fn setting(&self, value: EthtoolValue) -> Setting {
        Setting::Ethtool { interface: self.name.clone(), value }
    }
}

/// Directory of an interface in sysfs.
pub(crate) fn directory(name: &str) -> String {
    format!("/sys/class/net/{name}")
}

/// The interfaces of these names; without names, the cards of the default routes.
///
/// # Errors
/// There is no interface of such a name.
pub(crate) fn choose(host: &Host, names: &[String]) -> Result<Chosen, String> {
    let shown = shown(host);
    let own = own(host);
    if own.as_ref().is_some_and(|own| *own != shown) {
        let note = "/sys shows the interfaces of another network namespace, so none is looked at \
                    (`ip netns exec` mounts the right one)";
        if names.is_empty() {
            return Ok(Chosen { interfaces: Vec::new(), notes: vec![note.to_owned()] });
        }
        return Err(note.to_owned());
    }
    if let Some(unknown) = names.iter().find(|name| !shown.contains(name)) {
        return Err(format!("there is no interface {unknown}; there are: {}", shown.join(", ")));
    }
    let mut chosen = Chosen::default();
    let names = if names.is_empty() {
        let routes = default_routes(host);
        if routes.is_empty() {
            let note = "there is no default route, so no interface is looked at: name one with \
                        --interface";
            chosen.notes.push(note.to_owned());
        }
        let cards: Vec<String> = routes.iter().flat_map(|name| cards(host, name, 0)).collect();
        if !cards.is_empty() && cards != routes {
            let note = format!("{} stands on {}", routes.join(", "), cards.join(", "));
            chosen.notes.push(note);
        }
        if cards.is_empty() { routes } else { cards }
    } else {
        names.to_vec()
    };
    for name in names {
        if chosen.interfaces.iter().all(|known| known.name != name) {
            chosen.interfaces.push(Interface::read(host, &name));
        }
    }
    Ok(chosen)
}

/// The interfaces in sysfs.
fn shown(host: &Host) -> Vec<String> {
    let names = host.names("/sys/class/net");
    // A file among the directories is no interface (bonding_masters).
    names.into_iter().filter(|name| host.path(&directory(name)).is_dir()).collect()
}

/// The interfaces of this network namespace, in the order of `shown`.
fn own(host: &Host) -> Option<Vec<String>> {
    let text = host.read("/proc/net/dev").ok()?;
    // Names may hold a colon (aliases); the counters behind the last one hold none.
    let listed = text.lines().filter_map(|line| line.rsplit_once(':'));
    let listed: Vec<String> = listed.map(|(name, _)| name.trim().to_owned()).collect();
    let mut own: Vec<String> = shown(host).into_iter().filter(|n| listed.contains(n)).collect();
    own.extend(listed.into_iter().filter(|name| !host.exists(&directory(name))));
    Some(own)
}

/// The interfaces of the default routes, IPv4's first.
fn default_routes(host: &Host) -> Vec<String> {
    let v4 = host.read("/proc/net/route").unwrap_or_default();
    let v4 = v4.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let all = fields.get(1) == Some(&"00000000") && fields.get(7) == Some(&"00000000");
        all.then(|| fields[0].to_owned())
    });
    let v6 = host.read("/proc/net/ipv6_route").unwrap_or_default();
    let v6 = v6.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let all = fields.first().is_some_and(|to| to.bytes().all(|digit| digit == b'0'))
            && fields.get(1) == Some(&"00");
        // Routes that refuse are shown on the loopback.
        fields.last().filter(|name| all && **name != "lo").map(|name| (*name).to_owned())
    });
    let mut names: Vec<String> = Vec::new();
    for name in v4.chain(v6) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// The cards that an interface stands on, itself if it is one.
fn cards(host: &Host, name: &str, depth: usize) -> Vec<String> {
    if host.exists(&format!("{}/device", directory(name))) {
        return vec![name.to_owned()];
    }
    if depth == DEPTH_MAX {
        return Vec::new();
    }
    let entries = host.names(&directory(name));
    let lower = entries.iter().filter_map(|entry| entry.strip_prefix("lower_"));
    lower.flat_map(|name| cards(host, name, depth + 1)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Fake;

    const ROUTES: &str = "Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT\n\
                          bond0.5 00000000 010200C0 0003 0 0 0 00000000 0 0 0\n\
                          bond0.5 000200C0 00000000 0001 0 0 0 00FFFFFF 0 0 0\n";

    fn names(chosen: &Chosen) -> Vec<&str> {
        chosen.interfaces.iter().map(|interface| interface.name.as_str()).collect()
    }

    #[test]
    fn the_cards_below_the_default_route_are_chosen() {
        let fake = Fake::new();
        fake.put("/proc/net/route", ROUTES);
        fake.put("/sys/class/net/bond0.5/lower_bond0/x", "");
        fake.put("/sys/class/net/bond0/lower_eth0/x", "");
        fake.put("/sys/class/net/bond0/lower_eth1/x", "");
        fake.card("eth0");
        fake.card("eth1");
        let chosen = choose(fake.host(), &[]).unwrap();
        assert_eq!(names(&chosen), ["eth0", "eth1"]);
        assert_eq!(chosen.notes, ["bond0.5 stands on eth0, eth1"]);
        assert!(chosen.interfaces.iter().all(|interface| interface.no_card.is_none()));
    }

    #[test]
    fn a_virtual_interface_is_taken_where_it_is_all_there_is() {
        let fake = Fake::new();
        let route = "fe80 00\n00000000000000000000000000000000 00 x 00 y 400 1 0 3 eth0\n\
                     00000000000000000000000000000000 00 x 00 y 400 1 0 3 lo\n";
        fake.put("/proc/net/ipv6_route", route);
        fake.put("/sys/class/net/eth0/flags", "0x1003");
        fake.put("/sys/class/net/lo/flags", "0x9");
        let chosen = choose(fake.host(), &[]).unwrap();
        assert_eq!(names(&chosen), ["eth0"]);
        assert!(chosen.interfaces[0].no_card.unwrap().contains("virtual"));
        let chosen = choose(fake.host(), &["lo".to_owned()]).unwrap();
        assert!(chosen.interfaces[0].loopback);
        let error = choose(fake.host(), &["eth7".to_owned()]).unwrap_err();
        assert_eq!(error, "there is no interface eth7; there are: eth0, lo");
    }

    #[test]
    fn interfaces_of_another_namespace_are_left_alone() {
        let fake = Fake::new();
        fake.card("eth0");
        fake.put("/proc/net/dev", "Inter-| Receive\n face |bytes\n    lo: 0 0\n  eth0: 1 2\n");
        let chosen = choose(fake.host(), &[]).unwrap();
        assert!(chosen.interfaces.is_empty());
        assert!(chosen.notes[0].contains("another network namespace"));
        assert!(choose(fake.host(), &["eth0".to_owned()]).is_err());
        fake.put("/sys/class/net/lo/flags", "0x9");
        assert_eq!(names(&choose(fake.host(), &["eth0".to_owned()]).unwrap()), ["eth0"]);
    }
}
