//! How long a card gathers packets before it interrupts.

use super::interface::{Interface, directory};
use crate::entry::{Area, By, Entry};
use crate::ethtool;
use crate::host::Host;
use crate::item::{Change, Item, Verdict};
use crate::setting::{EthtoolValue, Setting};

pub(crate) static ADAPTIVE: Entry = Entry {
    name: "coalescing",
    area: Area::Interface,
    by: By::Us,
    rule: "adaptive, or rx-usecs of 10 and more",
    why: "Packets that are fetched together can be joined (GRO) and cost a fraction each, and an \
          interrupt for every packet leaves nothing to join.",
};

/// Microseconds of gathering, below which hardly two packets of a flow come together.
const USECS_LEAST: u64 = 10;

/// What is said where only a fixed time can be set: long enough to gather, too short to be heard.
const USECS_SAID: u64 = 30;

/// The bit by which a virtual card offers to moderate each queue (VIRTIO_NET_F_VQ_NOTF_COAL).
const VIRTIO_NOTF_COAL: usize = 52;

pub(crate) fn look(host: &Host, interface: &Interface) -> Vec<Item> {
    vec![interface.skip(&ADAPTIVE).unwrap_or_else(|| coalescing(host, interface))]
}

fn coalescing(host: &Host, interface: &Interface) -> Item {
    let text = match host.ethtool(&["-c", &interface.name]) {
        Ok(text) => text,
        Err(complaint) => return Item::cannot(&ADAPTIVE, "", complaint),
    };
    let usecs = ethtool::rx_usecs(&text);
    let now = usecs.map_or_else(|| "fixed".to_owned(), |usecs| format!("rx-usecs {usecs}"));
    match (ethtool::adaptive_rx(&text), usecs) {
        (Some(true), _) => Item::good(&ADAPTIVE, "adaptive"),
        (_, Some(usecs)) if usecs >= USECS_LEAST => Item::good(&ADAPTIVE, now),
        (Some(false), _) if !offers_it(host, interface) => {
            let reason = "the host of this virtual machine does not offer it for this card";
            Item::cannot(&ADAPTIVE, now, reason)
        }
        (Some(false), _) => {
            let value = EthtoolValue::AdaptiveRx;
            let setting = Setting::Ethtool { interface: interface.name.clone(), value };
            let changes = vec![Change { setting, to: "on".to_owned() }];
            Item::new(&ADAPTIVE, now, Verdict::Change { advised: "adaptive".to_owned(), changes })
        }
        (None, Some(_)) => {
            let how = "each packet is late by as much at most".to_owned();
            let advised = format!("rx-usecs {USECS_SAID}");
            let commands = vec![format!("ethtool -C {} {advised}", interface.name)];
            Item::new(&ADAPTIVE, now, Verdict::ByHand { advised, how, commands })
        }
        (None, None) => Item::cannot(&ADAPTIVE, "", "the driver does not show it"),
    }
}

/// Whether a card that says it could moderate really can: virtio's says so always.
fn offers_it(host: &Host, interface: &Interface) -> bool {
    let device = format!("{}/device", directory(&interface.name));
    if host.link_name(&format!("{device}/driver")).is_none_or(|driver| driver != "virtio_net") {
        return true;
    }
    let features = host.read(&format!("{device}/features")).unwrap_or_default();
    features.as_bytes().get(VIRTIO_NOTF_COAL) == Some(&b'1')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Fake, advised};

    #[test]
    fn an_interrupt_for_every_packet_is_advised_against() {
        let fake = Fake::whole();
        let eth0 = Interface::read(fake.host(), "eth0");
        let item = |adaptive, usecs| {
            fake.set("eth0", "adaptive-rx", adaptive);
            fake.set("eth0", "rx-usecs", usecs);
            coalescing(fake.host(), &eth0)
        };
        assert_eq!(advised(&item("off", "0")).as_deref(), Some("adaptive"));
        assert_eq!(item("off", "50").verdict, Verdict::Good);
        assert_eq!(item("on", "0").verdict, Verdict::Good);
        let Verdict::ByHand { commands, .. } = item("n/a", "3").verdict else { panic!("by hand") };
        assert_eq!(commands, ["ethtool -C eth0 rx-usecs 30"]);
        assert!(matches!(item("n/a", "n/a").verdict, Verdict::Cannot { .. }));
    }

    #[test]
    fn a_virtual_card_has_to_offer_it() {
        let fake = Fake::whole();
        let eth0 = Interface::read(fake.host(), "eth0");
        fake.link("/sys/class/net/eth0/device/driver", "../drivers/virtio_net");
        fake.put("/sys/class/net/eth0/device/features", &"0".repeat(64));
        assert!(matches!(coalescing(fake.host(), &eth0).verdict, Verdict::Cannot { .. }));
        let features = format!("{}1{}", "0".repeat(52), "0".repeat(11));
        fake.put("/sys/class/net/eth0/device/features", &features);
        assert_eq!(advised(&coalescing(fake.host(), &eth0)).as_deref(), Some("adaptive"));
    }
}
