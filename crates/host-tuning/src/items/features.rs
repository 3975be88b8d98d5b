//! Work that the card or the driver takes off the processors.

use crate::ethtool::{self, Feature};
use crate::interface::Interface;
use crate::item::{Found, Looked, by_hand, cannot, good, set};
use crate::setting::EthtoolValue;

/// A feature that should be on.
pub(crate) fn wanted(interface: &Interface, value: EthtoolValue) -> Looked {
    match read(interface, value.name())? {
        None => Err(cannot("", "this kernel does not know it")),
        Some(feature) if feature.on => Ok(good("on")),
        Some(feature) if feature.fixed => {
            Err(cannot("off", "the card or its driver cannot: the kernel does the work"))
        }
        Some(_) => Ok(set("off", interface.setting(value), "on")),
    }
}

/// A feature that should be off. An operator who turned it on had a reason.
pub(crate) fn unwanted(interface: &Interface, name: &str) -> Looked {
    match read(interface, name)? {
        None => Ok(good("not in this kernel")),
        Some(feature) if feature.on => {
            let commands = [format!("ethtool -K {} {name} off", interface.name)];
            let how = "unless this host forwards UDP between networks as well";
            Ok(by_hand("on", "off", how, &commands))
        }
        Some(_) => Ok(good("off")),
    }
}

fn read(interface: &Interface, name: &str) -> Result<Option<Feature>, Found> {
    let text = interface.features.as_ref().map_err(|complaint| cannot("", complaint))?;
    Ok(ethtool::feature(text, name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::item::Verdict;
    use crate::testing::{Fake, advised};

    #[test]
    fn features_are_turned_on_where_the_card_can() {
        let fake = Fake::whole();
        fake.set("eth0", "tx-udp-segmentation", "off [fixed]");
        fake.set("eth0", "rx-checksumming", "on [fixed]");
        fake.set("eth0", "rx-udp-gro-forwarding", "on");
        let eth0 = Interface::read(fake.host(), "eth0");
        for (value, expected) in [
            (EthtoolValue::Gro, Some("on")),
            (EthtoolValue::Gso, None),
            (EthtoolValue::TxChecksums, Some("on")),
        ] {
            assert_eq!(advised(wanted(&eth0, value)).as_deref(), expected, "{value:?}");
        }
        assert!(wanted(&eth0, EthtoolValue::UdpSegmentation).is_err());
        assert_eq!(wanted(&eth0, EthtoolValue::RxChecksums), Ok(good("on")));
        let found = unwanted(&eth0, "rx-udp-gro-forwarding").unwrap();
        let Verdict::ByHand { commands, .. } = &found.verdict else { panic!("{found:?}") };
        assert_eq!(commands, &["ethtool -K eth0 rx-udp-gro-forwarding off"]);
        assert_eq!(unwanted(&eth0, "rx-gro-list"), Ok(good("off")));
    }
}
