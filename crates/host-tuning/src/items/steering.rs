//! Spreading packets over processors where the card cannot, or not enough.

use super::interface::{Interface, directory};
use crate::cpus;
use crate::entry::{Area, By, Entry};
use crate::host::Host;
use crate::item::{Change, Item, Verdict};
use crate::setting::{QueueFile, Setting};

pub(crate) static RPS: Entry = Entry {
    name: "rps",
    area: Area::Interface,
    by: By::Us,
    rule: "all processors, where there are fewer receive queues than processors",
    why: "With fewer receive queues than processors some of them would receive nothing; RPS hands \
          flows on to all.",
};

pub(crate) static RFS: Entry = Entry {
    name: "rps-flow-cnt",
    area: Area::Interface,
    by: By::Hand,
    rule: "any",
    why: "It is for net.core.rps_sock_flow_entries, which is of no use to Turnpike's sockets: they \
          are not connected.",
};

pub(crate) static XPS: Entry = Entry {
    name: "xps",
    area: Area::Interface,
    by: By::Us,
    rule: "the processors shared out among the transmit queues",
    why: "Each processor sends by a queue of its own, and waits for no other's lock.",
};

pub(crate) fn look(host: &Host, interface: &Interface) -> Vec<Item> {
    vec![rps(host, interface), flows(host, interface), xps(host, interface)]
}

fn setting(interface: &Interface, queue: &str, file: QueueFile) -> Setting {
    Setting::Queue { interface: interface.name.clone(), queue: queue.to_owned(), file }
}

fn rps(host: &Host, interface: &Interface) -> Item {
    if interface.loopback {
        return Item::cannot(&RPS, "", "it is the loopback: packets are where they were sent");
    }
    let cpus = host.cpus();
    let queues = interface.rx_queues.len();
    let masks = interface.rx_queues.iter().map(|queue| {
        let setting = setting(interface, queue, QueueFile::RpsCpus);
        setting.read(host).map(|mask| (setting, mask))
    });
    let masks: Vec<(Setting, String)> = match masks.collect() {
        Ok(masks) => masks,
        Err(error) => return Item::cannot(&RPS, "", error.to_string()),
    };
    let now = masks.iter().map(|(_, mask)| mask.as_str()).collect::<Vec<_>>().join(" ");
    if queues == 0 {
        return Item::cannot(&RPS, "", "the kernel does not show its queues");
    }
    if queues >= cpus.len() {
        let enough = format!("{now} ({queues} queues for {} processors)", cpus.len());
        return Item::good(&RPS, enough);
    }
    let all = cpus::mask(&cpus);
    let changes: Vec<Change> = masks
        .into_iter()
        .filter(|(_, mask)| mask == "0")
        .map(|(setting, _)| Change { setting, to: all.clone() })
        .collect();
    if changes.is_empty() {
        return Item::good(&RPS, now);
    }
    Item::new(&RPS, now, Verdict::Change { advised: all, changes })
}

fn flows(host: &Host, interface: &Interface) -> Item {
    let counts = interface.rx_queues.iter().map(|queue| {
        host.read(&format!("{}/queues/{queue}/rps_flow_cnt", directory(&interface.name)))
    });
    match counts.collect::<Result<Vec<_>, _>>() {
        Ok(counts) if !counts.is_empty() => Item::good(&RFS, counts.join(" ")),
        Ok(_) | Err(_) => Item::cannot(&RFS, "", "the kernel does not show it"),
    }
}

fn xps(host: &Host, interface: &Interface) -> Item {
    if let Some(item) = interface.skip(&XPS) {
        return item;
    }
    let queues = interface.tx_queues.len();
    if queues < 2 {
        return Item::good(&XPS, "one queue, nothing to choose");
    }
    let masks = interface.tx_queues.iter().map(|queue| {
        let setting = setting(interface, queue, QueueFile::XpsCpus);
        setting.read(host).map(|mask| (setting, mask))
    });
    let masks: Vec<(Setting, String)> = match masks.collect() {
        Ok(masks) => masks,
        Err(error) => return Item::cannot(&XPS, "", error.to_string()),
    };
    let now = masks.iter().map(|(_, mask)| mask.as_str()).collect::<Vec<_>>().join(" ");
    if masks.iter().any(|(_, mask)| mask != "0") {
        return Item::good(&XPS, now);
    }
    let cpus: Vec<usize> = host.cpus().into_iter().collect();
    let changes: Vec<Change> = (0..)
        .zip(masks)
        .map(|(i, (setting, _))| {
            // A queue beyond the processors serves one that has a queue already.
            let own = cpus.iter().enumerate().filter(|(at, _)| at % queues == i % cpus.len());
            Change { setting, to: cpus::mask(&own.map(|(_, cpu)| *cpu).collect()) }
        })
        .collect();
    let advised = changes.iter().map(|change| change.to.as_str()).collect::<Vec<_>>().join(" ");
    Item::new(&XPS, now, Verdict::Change { advised, changes })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Fake, advised};

    fn host(cpus: &str, queues: usize, mask: &str) -> (Fake, Interface) {
        let fake = Fake::whole();
        fake.put("/sys/devices/system/cpu/online", cpus);
        fake.remove("/sys/class/net/eth0/queues");
        for queue in 0..queues {
            fake.put(&format!("/sys/class/net/eth0/queues/rx-{queue}/rps_cpus"), mask);
            fake.put(&format!("/sys/class/net/eth0/queues/rx-{queue}/rps_flow_cnt"), "0");
            fake.put(&format!("/sys/class/net/eth0/queues/tx-{queue}/xps_cpus"), mask);
        }
        let interface = Interface::read(fake.host(), "eth0");
        (fake, interface)
    }

    #[test]
    fn too_few_queues_are_spread_over_all_processors() {
        for (cpus, queues, mask, expected) in [
            ("0-1", 1, "0", Some("3")),
            ("0-39", 2, "00,00000000", Some("ff,ffffffff")),
            ("0-1", 2, "0", None),
            ("0-3", 1, "2", None),
            ("0", 1, "0", None),
        ] {
            let (fake, interface) = host(cpus, queues, mask);
            let item = rps(fake.host(), &interface);
            assert_eq!(advised(&item).as_deref(), expected, "{cpus} {queues} {mask}");
        }
    }

    #[test]
    fn processors_are_shared_out_among_transmit_queues() {
        for (cpus, queues, mask, expected) in [
            ("0-3", 2, "0", Some("5 a")),
            ("0-1", 2, "0", Some("1 2")),
            ("0-1", 4, "0", Some("1 2 1 2")),
            ("0-1", 1, "0", None),
            ("0-1", 2, "3", None),
        ] {
            let (fake, interface) = host(cpus, queues, mask);
            let item = xps(fake.host(), &interface);
            assert_eq!(advised(&item).as_deref(), expected, "{cpus} {queues} {mask}");
        }
    }
}
