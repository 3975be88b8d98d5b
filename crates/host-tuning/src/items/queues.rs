//! The queues of a card: their number and length.

use crate::ethtool::amounts;
use crate::host::Host;
use crate::interface::{Interface, directory};
use crate::item::{Change, Looked, cannot, change, good, set};
use crate::setting::{EthtoolValue, Setting};

/// Descriptors in a receive ring: 4 ms at a million packets a second, the time for which a
/// processor may be busy with something else.
pub(crate) const RX_RING_LEAST: u64 = 4096;

/// Descriptors in a transmit ring: 16 full GSO sends of 64 segments.
pub(crate) const TX_RING_LEAST: u64 = 1024;

/// Packets that may wait for the ring: the kernel's default for Ethernet cards.
const TX_QUEUE_LEAST: u64 = 1000;

pub(crate) fn channels(host: &Host, interface: &Interface) -> Looked {
    let text = interface.channels.as_ref().map_err(|complaint| cannot("", complaint))?;
    let (amounts, cpus) = (amounts(text), host.cpus().len() as u64);
    let (mut now, mut advised, mut changes) = (Vec::new(), Vec::new(), Vec::new());
    for (value, word) in [
        (EthtoolValue::CombinedChannels, ""),
        (EthtoolValue::RxChannels, " rx"),
        (EthtoolValue::TxChannels, " tx"),
    ] {
        let known = (amounts.most(value.name()), amounts.current(value.name()));
        let (Some(most @ 1..), Some(current)) = known else { continue };
        now.push(format!("{current}{word} of {most}"));
        let wanted = most.min(cpus);
        if current < wanted {
            advised.push(format!("{wanted}{word}"));
            changes.push(Change { setting: interface.setting(value), to: wanted.to_string() });
        }
        // Cards with combined channels have no separate ones, though some show them.
        if value == EthtoolValue::CombinedChannels {
            break;
        }
    }
    if now.is_empty() {
        return Err(cannot("", "the driver does not show its channels"));
    }
    Ok(change(now.join(", "), &advised.join(", "), changes))
}

pub(crate) fn ring(interface: &Interface, value: EthtoolValue, least: u64) -> Looked {
    let text = interface.rings.as_ref().map_err(|complaint| cannot("", complaint))?;
    let amounts = amounts(text);
    let (Some(most), Some(current)) = (amounts.most(value.name()), amounts.current(value.name()))
    else {
        return Err(cannot("", "the driver does not show its rings"));
    };
    let (now, wanted) = (format!("{current} of {most}"), least.min(most));
    if current >= wanted {
        return Ok(good(now));
    }
    Ok(set(now, interface.setting(value), wanted))
}

/// The queue in front of the card.
pub(crate) fn tx_queue_length(host: &Host, interface: &Interface) -> Looked {
    if interface.no_card.is_some() {
        return Err(cannot("", "it is virtual, and sends without a queue"));
    }
    let text = host.read(&format!("{}/tx_queue_len", directory(&interface.name)));
    match text.ok().and_then(|text| text.parse::<u64>().ok()) {
        None => Err(cannot("", "the kernel does not show it")),
        Some(now) if now >= TX_QUEUE_LEAST => Ok(good(now)),
        Some(now) => {
            let setting = Setting::TxQueueLength { interface: interface.name.clone() };
            Ok(set(now, setting, TX_QUEUE_LEAST))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Fake, advised};

    fn look(fake: &Fake, card: &str) -> [Looked; 3] {
        let card = Interface::read(fake.host(), card);
        [
            channels(fake.host(), &card),
            ring(&card, EthtoolValue::RxRing, RX_RING_LEAST),
            ring(&card, EthtoolValue::TxRing, TX_RING_LEAST),
        ]
    }

    #[test]
    fn channels_and_rings_grow_as_far_as_the_card_has_them() {
        let fake = Fake::whole();
        let expect = |expected: [Option<&str>; 3]| {
            assert_eq!(
                look(&fake, "eth0").map(advised),
                expected.map(|text| text.map(str::to_owned))
            );
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
    fn a_card_without_combined_channels_gets_more_in_each_direction() {
        let fake = Fake::whole();
        for (rx, tx, expected) in
            [(1, 1, Some("2 rx, 2 tx")), (2, 1, Some("2 tx")), (1, 2, Some("2 rx")), (2, 4, None)]
        {
            let most = "Pre-set maximums:\nRX:\t\t4\nTX:\t\t4\nCombined:\t0\n";
            let now =
                format!("Current hardware settings:\nRX:\t\t{rx}\nTX:\t\t{tx}\nCombined:\t0\n");
            fake.set("eth0", "channels", &format!("{most}{now}"));
            let looked = channels(fake.host(), &Interface::read(fake.host(), "eth0"));
            assert_eq!(advised(looked).as_deref(), expected, "{rx} and {tx}");
        }
    }

    #[test]
    fn refusals_of_the_driver_are_passed_on() {
        let fake = Fake::whole();
        fake.put("/sys/class/net/eth9/device/vendor", "");
        for looked in look(&fake, "eth9") {
            assert_eq!(looked, Err(cannot("", "No such device")));
        }
    }

    #[test]
    fn a_short_queue_is_lengthened() {
        let fake = Fake::whole();
        let eth0 = Interface::read(fake.host(), "eth0");
        for (now, expected) in [("500", Some("1000")), ("1000", None), ("10000", None)] {
            fake.put("/sys/class/net/eth0/tx_queue_len", now);
            assert_eq!(advised(tx_queue_length(fake.host(), &eth0)).as_deref(), expected);
        }
    }
}
