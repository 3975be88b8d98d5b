//! The queues of a card: how many, and how long.

use super::interface::{Interface, directory};
use crate::entry::{Area, By, Entry};
use crate::ethtool::{self, Amounts};
use crate::host::Host;
use crate::item::{Change, Item, Verdict};
use crate::setting::{EthtoolValue, Setting};

pub(crate) static CHANNELS: Entry = Entry {
    name: "channels",
    area: Area::Interface,
    by: By::Us,
    rule: "as many as there are processors, as far as the card has them",
    why: "The card spreads flows over its channels, and each can be served by a processor of its \
          own (on some cards the link goes down for a second while this changes).",
};

pub(crate) static RX_RING: Entry = Entry {
    name: "rx-ring",
    area: Area::Interface,
    by: By::Us,
    rule: "at least 4096, as far as the card has it",
    why: "Packets wait in the ring until a processor fetches them, and what comes while it is full \
          is lost.",
};

pub(crate) static TX_RING: Entry = Entry {
    name: "tx-ring",
    area: Area::Interface,
    by: By::Us,
    rule: "at least 1024, as far as the card has it",
    why: "A batch of the relay is some hundred packets, and the ring should hold several of them.",
};

pub(crate) static TX_QUEUE_LENGTH: Entry = Entry {
    name: "txqueuelen",
    area: Area::Interface,
    by: By::Us,
    rule: "at least 1000",
    why: "Packets that the ring has no room for wait here, and beyond it they are dropped.",
};

/// Descriptors in a receive ring: 4 ms at a million packets a second, the time for which a processor
/// may be busy with something else.
const RX_RING_LEAST: u64 = 4096;

/// Descriptors in a transmit ring: 16 full GSO sends of 64 segments.
const TX_RING_LEAST: u64 = 1024;

/// Packets that may wait for the ring: what the kernel gives to every Ethernet card.
const TX_QUEUE_LEAST: u64 = 1000;

pub(crate) fn look(host: &Host, interface: &Interface) -> Vec<Item> {
    if interface.no_card.is_some() {
        let all = [&CHANNELS, &RX_RING, &TX_RING];
        return all.into_iter().filter_map(|entry| interface.skip(entry)).collect();
    }
    let rings = host.ethtool(&["-g", &interface.name]);
    let ring = |entry, value, name, least| match &rings {
        Ok(text) => ring(interface, entry, (value, name, least), &ethtool::amounts(text)),
        Err(complaint) => Item::cannot(entry, "", complaint),
    };
    vec![
        channels(host, interface),
        ring(&RX_RING, EthtoolValue::RxRing, "RX", RX_RING_LEAST),
        ring(&TX_RING, EthtoolValue::TxRing, "TX", TX_RING_LEAST),
    ]
}

fn channels(host: &Host, interface: &Interface) -> Item {
    let amounts = match host.ethtool(&["-l", &interface.name]) {
        Ok(text) => ethtool::amounts(&text),
        Err(complaint) => return Item::cannot(&CHANNELS, "", complaint),
    };
    let cpus = host.cpus().len() as u64;
    let (mut now, mut advised, mut changes) = (Vec::new(), Vec::new(), Vec::new());
    for (value, name, word) in [
        (EthtoolValue::CombinedChannels, "Combined", ""),
        (EthtoolValue::RxChannels, "RX", " rx"),
        (EthtoolValue::TxChannels, "TX", " tx"),
    ] {
        let (Some(most), Some(current)) = (amounts.most(name), amounts.current(name)) else {
            continue;
        };
        // Cards with combined channels have none apart, though some may be given them.
        if most == 0 || value != EthtoolValue::CombinedChannels && !now.is_empty() {
            continue;
        }
        now.push(format!("{current}{word} of {most}"));
        let wanted = most.min(cpus);
        if current < wanted {
            advised.push(format!("{wanted}{word}"));
            let setting = Setting::Ethtool { interface: interface.name.clone(), value };
            changes.push(Change { setting, to: wanted.to_string() });
        }
        if value == EthtoolValue::CombinedChannels {
            break;
        }
    }
    let now = now.join(", ");
    if now.is_empty() {
        return Item::cannot(&CHANNELS, now, "the driver does not show its channels");
    }
    if changes.is_empty() {
        return Item::good(&CHANNELS, now);
    }
    Item::new(&CHANNELS, now, Verdict::Change { advised: advised.join(", "), changes })
}

fn ring(
    interface: &Interface,
    entry: &'static Entry,
    (value, name, least): (EthtoolValue, &str, u64),
    amounts: &Amounts,
) -> Item {
    let (Some(most), Some(current)) = (amounts.most(name), amounts.current(name)) else {
        return Item::cannot(entry, "", "the driver does not show its rings");
    };
    let wanted = least.min(most);
    let now = format!("{current} of {most}");
    if current >= wanted {
        return Item::good(entry, now);
    }
    let setting = Setting::Ethtool { interface: interface.name.clone(), value };
    let changes = vec![Change { setting, to: wanted.to_string() }];
    Item::new(entry, now, Verdict::Change { advised: wanted.to_string(), changes })
}

/// The queue in front of the card.
pub(crate) fn tx_queue_length(host: &Host, interface: &Interface) -> Item {
    if interface.no_card.is_some() {
        return Item::cannot(&TX_QUEUE_LENGTH, "", "it is virtual, and sends without a queue");
    }
    let read = host.read(&format!("{}/tx_queue_len", directory(&interface.name)));
    let Some(now) = read.ok().and_then(|text| text.parse::<u64>().ok()) else {
        return Item::cannot(&TX_QUEUE_LENGTH, "", "the kernel does not show it");
    };
    if now >= TX_QUEUE_LEAST {
        return Item::good(&TX_QUEUE_LENGTH, now.to_string());
    }
    let setting = Setting::TxQueueLength { interface: interface.name.clone() };
    let changes = vec![Change { setting, to: TX_QUEUE_LEAST.to_string() }];
    let advised = TX_QUEUE_LEAST.to_string();
    Item::new(&TX_QUEUE_LENGTH, now.to_string(), Verdict::Change { advised, changes })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Fake, advised};

    #[test]
    fn channels_and_rings_grow_as_far_as_the_card_has_them() {
        let fake = Fake::whole();
        let eth0 = Interface::read(fake.host(), "eth0");
        let expect = |expected: [Option<&str>; 3]| {
            let items = look(fake.host(), &eth0);
            let found: Vec<_> = items.iter().map(advised).collect();
            assert_eq!(found, expected.map(|text| text.map(str::to_owned)), "{items:?}");
        };
        // The fake card has 8 channels of which 1 is used, 2 processors, and rings of 256 of 4096.
        expect([Some("2"), Some("4096"), Some("1024")]);
        fake.put("/sys/devices/system/cpu/online", "0-15");
        expect([Some("8"), Some("4096"), Some("1024")]);
        fake.set("eth0", "combined", "8");
        fake.set("eth0", "rx-ring", "4096");
        fake.set("eth0", "tx-ring", "2048");
        expect([None, None, None]);
        fake.put("/sys/devices/system/cpu/online", "0-1");
        expect([None, None, None]);
    }

    #[test]
    fn what_the_driver_refuses_is_passed_on() {
        let fake = Fake::whole();
        let unknown = Interface { name: "eth9".into(), ..Interface::read(fake.host(), "eth0") };
        for item in look(fake.host(), &unknown) {
            let Verdict::Cannot { reason } = item.verdict else { panic!("{item:?}") };
            assert_eq!(reason, "No such device");
        }
    }

    #[test]
    fn a_short_queue_is_lengthened() {
        let fake = Fake::whole();
        let eth0 = Interface::read(fake.host(), "eth0");
        for (now, expected) in [("500", Some("1000")), ("1000", None), ("10000", None)] {
            fake.put("/sys/class/net/eth0/tx_queue_len", now);
            assert_eq!(advised(&tx_queue_length(fake.host(), &eth0)).as_deref(), expected);
        }
    }
}
