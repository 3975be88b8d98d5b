//! Work that the card or the driver takes off the processors.

use super::interface::Interface;
use crate::entry::{Area, By, Entry};
use crate::ethtool;
use crate::host::Host;
use crate::item::{Change, Item, Verdict};
use crate::setting::{EthtoolValue, Setting};

pub(crate) static GRO: Entry = Entry {
    name: "gro",
    area: Area::Interface,
    by: By::Us,
    rule: "on",
    why: "Packets of one flow that are fetched together pass the kernel once instead of once each, \
          and Turnpike takes them joined.",
};

pub(crate) static GSO: Entry = Entry {
    name: "gso",
    area: Area::Interface,
    by: By::Us,
    rule: "on",
    why: "What Turnpike sends in one piece stays in one piece down to the driver.",
};

pub(crate) static UDP_SEGMENTATION: Entry = Entry {
    name: "tx-udp-segmentation",
    area: Area::Interface,
    by: By::Us,
    rule: "on, where the card can",
    why: "The card cuts what Turnpike sends in one piece into packets; otherwise the kernel does.",
};

pub(crate) static RX_CHECKSUMS: Entry = Entry {
    name: "rx-checksumming",
    area: Area::Interface,
    by: By::Us,
    rule: "on, where the card can",
    why: "Without it the kernel reads every byte of every packet to verify its checksum.",
};

pub(crate) static TX_CHECKSUMS: Entry = Entry {
    name: "tx-checksumming",
    area: Area::Interface,
    by: By::Us,
    rule: "on, where the card can",
    why: "Without it the kernel reads every byte of every packet to write its checksum, and GSO is \
          of less use.",
};

pub(crate) static GRO_FORWARDING: Entry = Entry {
    name: "rx-udp-gro-forwarding",
    area: Area::Interface,
    by: By::Hand,
    rule: "off",
    why: "It joins packets for sockets that did not ask for it, which the kernel then cuts apart \
          again; Turnpike's sockets ask.",
};

pub(crate) static GRO_LIST: Entry = Entry {
    name: "rx-gro-list",
    area: Area::Interface,
    by: By::Hand,
    rule: "off",
    why: "It joins packets as lists for forwarding, which the kernel cuts apart again in front of a \
          socket.",
};

/// Features that should be on: their item, their name in `ethtool -k`, and how they are set.
const WANTED: [(&Entry, &str, EthtoolValue); 5] = [
    (&GRO, "generic-receive-offload", EthtoolValue::Gro),
    (&GSO, "generic-segmentation-offload", EthtoolValue::Gso),
    (&UDP_SEGMENTATION, "tx-udp-segmentation", EthtoolValue::UdpSegmentation),
    (&RX_CHECKSUMS, "rx-checksumming", EthtoolValue::RxChecksums),
    (&TX_CHECKSUMS, "tx-checksumming", EthtoolValue::TxChecksums),
];

/// Features that should be off; whoever turned one on had a reason, and is told.
const UNWANTED: [&Entry; 2] = [&GRO_FORWARDING, &GRO_LIST];

pub(crate) fn look(host: &Host, interface: &Interface) -> Vec<Item> {
    let entries = WANTED.iter().map(|(entry, ..)| *entry).chain(UNWANTED);
    if interface.no_card.is_some() {
        return entries.filter_map(|entry| interface.skip(entry)).collect();
    }
    let text = match host.ethtool(&["-k", &interface.name]) {
        Ok(text) => text,
        Err(complaint) => {
            return entries.map(|entry| Item::cannot(entry, "", complaint.clone())).collect();
        }
    };
    let wanted = WANTED.iter().map(|(entry, name, value)| {
        wanted(interface, entry, *value, ethtool::feature(&text, name))
    });
    let unwanted = UNWANTED.iter().map(|entry| unwanted(interface, entry, &text));
    wanted.chain(unwanted).collect()
}

fn wanted(
    interface: &Interface,
    entry: &'static Entry,
    value: EthtoolValue,
    feature: Option<ethtool::Feature>,
) -> Item {
    match feature {
        None => Item::cannot(entry, "", "this kernel does not know it"),
        Some(feature) if feature.on => Item::good(entry, "on"),
        Some(feature) if feature.fixed => {
            Item::cannot(entry, "off", "the card or its driver cannot: the kernel does the work")
        }
        Some(_) => {
            let setting = Setting::Ethtool { interface: interface.name.clone(), value };
            let changes = vec![Change { setting, to: "on".to_owned() }];
            Item::new(entry, "off", Verdict::Change { advised: "on".to_owned(), changes })
        }
    }
}

fn unwanted(interface: &Interface, entry: &'static Entry, text: &str) -> Item {
    match ethtool::feature(text, entry.name) {
        None => Item::good(entry, "not in this kernel"),
        Some(feature) if feature.on => {
            let how = "unless this host forwards UDP between networks as well".to_owned();
            let commands = vec![format!("ethtool -K {} {} off", interface.name, entry.name)];
            Item::new(entry, "on", Verdict::ByHand { advised: "off".to_owned(), how, commands })
        }
        Some(_) => Item::good(entry, "off"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Fake, advised};

    #[test]
    fn features_are_turned_on_where_the_card_can() {
        let fake = Fake::whole();
        let eth0 = Interface::read(fake.host(), "eth0");
        fake.set("eth0", "tx-udp-segmentation", "off [fixed]");
        fake.set("eth0", "rx-checksumming", "on [fixed]");
        fake.set("eth0", "rx-udp-gro-forwarding", "on");
        let items = look(fake.host(), &eth0);
        let found: Vec<_> = items.iter().map(advised).collect();
        let on = Some("on".to_owned());
        assert_eq!(found, [on.clone(), None, None, None, on, None, None]);
        assert!(matches!(items[2].verdict, Verdict::Cannot { .. }));
        assert_eq!(items[3].verdict, Verdict::Good);
        let Verdict::ByHand { commands, .. } = &items[5].verdict else { panic!("{:?}", items[5]) };
        assert_eq!(commands, &["ethtool -K eth0 rx-udp-gro-forwarding off"]);
        assert_eq!(items[6].verdict, Verdict::Good);
    }
}
