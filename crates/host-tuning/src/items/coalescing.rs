//! Interrupt coalescing of a card.

use crate::ethtool;
use crate::host::Host;
use crate::interface::{Interface, directory};
use crate::item::{Change, Looked, by_hand, cannot, change, good};
use crate::setting::EthtoolValue;

/// Microseconds, below which hardly two packets of a flow come together.
const USECS_LEAST: u64 = 10;

/// Advised microseconds where only a fixed time can be set: long enough to gather, too short to be
/// heard.
const USECS_ADVISED: u64 = 30;

/// Feature bit by which a virtual card offers to moderate each queue (VIRTIO_NET_F_VQ_NOTF_COAL).
const VIRTIO_NOTF_COAL: usize = 52;

pub(crate) fn look(host: &Host, interface: &Interface) -> Looked {
    let text = interface.coalescing.as_ref().map_err(|complaint| cannot("", complaint))?;
    let usecs = ethtool::rx_usecs(text);
    let now = usecs.map_or_else(|| "fixed".to_owned(), |usecs| format!("rx-usecs {usecs}"));
    match (ethtool::adaptive_rx(text), usecs) {
        (Some(true), _) => Ok(good("adaptive")),
        (_, Some(usecs)) if usecs >= USECS_LEAST => Ok(good(now)),
        (Some(false), _) if !is_offered(host, interface) => {
            Err(cannot(now, "the hypervisor does not offer it for this card"))
        }
        (Some(false), _) => {
            let setting = interface.setting(EthtoolValue::AdaptiveRx);
            Ok(change(now, "adaptive", vec![Change { setting, to: "on".to_owned() }]))
        }
        (None, Some(_)) => {
            let advised = format!("rx-usecs {USECS_ADVISED}");
            let commands = [format!("ethtool -C {} {advised}", interface.name)];
            Ok(by_hand(now, &advised, "delays each packet by as much at most", &commands))
        }
        (None, None) => Err(cannot("", "the driver does not show it")),
    }
}

/// Returns whether a card that claims moderation has it: virtio's claims it always.
fn is_offered(host: &Host, interface: &Interface) -> bool {
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
    use crate::item::Verdict;
    use crate::testing::{Fake, advised};

    fn look(fake: &Fake) -> Looked {
        super::look(fake.host(), &Interface::read(fake.host(), "eth0"))
    }

    #[test]
    fn an_interrupt_for_every_packet_is_advised_against() {
        let fake = Fake::whole();
        let look = |adaptive, usecs| {
            fake.set("eth0", "adaptive-rx", adaptive);
            fake.set("eth0", "rx-usecs", usecs);
            look(&fake)
        };
        assert_eq!(advised(look("off", "0")).as_deref(), Some("adaptive"));
        assert_eq!(look("off", "50"), Ok(good("rx-usecs 50")));
        assert_eq!(look("on", "0"), Ok(good("adaptive")));
        let Verdict::ByHand { commands, .. } = look("n/a", "3").unwrap().verdict else {
            panic!("by hand")
        };
        assert_eq!(commands, ["ethtool -C eth0 rx-usecs 30"]);
        assert!(look("n/a", "n/a").is_err());
    }

    #[test]
    fn a_virtual_card_has_to_offer_it() {
        let fake = Fake::whole();
        fake.link("/sys/class/net/eth0/device/driver", "../drivers/virtio_net");
        fake.put("/sys/class/net/eth0/device/features", &"0".repeat(64));
        assert!(look(&fake).is_err());
        let features = format!("{}1{}", "0".repeat(52), "0".repeat(11));
        fake.put("/sys/class/net/eth0/device/features", &features);
        assert_eq!(advised(look(&fake)).as_deref(), Some("adaptive"));
    }
}
