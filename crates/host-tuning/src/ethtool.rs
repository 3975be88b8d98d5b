//! The output of `ethtool`. Its text is read and not its JSON: every version prints the same text,
//! and those of supported distributions have JSON for features only.

use std::collections::BTreeMap;

/// Numbers with a maximum, as `ethtool -l` and `ethtool -g` print them.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Amounts {
    most: BTreeMap<String, u64>,
    current: BTreeMap<String, u64>,
}

impl Amounts {
    /// The maximum of the card.
    pub(crate) fn most(&self, name: &str) -> Option<u64> {
        self.most.get(name).copied()
    }

    /// The value now.
    pub(crate) fn current(&self, name: &str) -> Option<u64> {
        self.current.get(name).copied()
    }
}

/// Reads numbers with a maximum; the ones that the card does not have (`n/a`) are left out.
pub(crate) fn amounts(text: &str) -> Amounts {
    let mut amounts = Amounts::default();
    let mut of_now = false;
    for line in text.lines() {
        if line.starts_with("Current hardware settings") {
            of_now = true;
        }
        let Some((name, value)) = line.split_once(':') else { continue };
        if let Ok(value) = value.trim().parse() {
            let part = if of_now { &mut amounts.current } else { &mut amounts.most };
            part.insert(name.trim().to_owned(), value);
        }
    }
    amounts
}

/// A feature, as `ethtool -k` prints it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Feature {
    /// True if it is on.
    pub(crate) on: bool,
    /// True if it cannot be changed.
    pub(crate) fixed: bool,
}

/// A feature by its name.
pub(crate) fn feature(text: &str, name: &str) -> Option<Feature> {
    let value = value(text, name)?;
    let mut words = value.split_whitespace();
    let on = match words.next()? {
        "on" => true,
        "off" => false,
        _ => return None,
    };
    Some(Feature { on, fixed: value.contains("[fixed]") })
}

/// State of adaptive coalescing of received packets.
pub(crate) fn adaptive_rx(text: &str) -> Option<bool> {
    // One line has both directions: "Adaptive RX: off  TX: n/a".
    match value(text, "Adaptive RX")?.split_whitespace().next()? {
        "on" => Some(true),
        "off" => Some(false),
        _ => None,
    }
}

/// Microseconds of coalescing of received packets.
pub(crate) fn rx_usecs(text: &str) -> Option<u64> {
    value(text, "rx-usecs")?.parse().ok()
}

fn value<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = text.lines().filter_map(|line| line.split_once(':'));
    lines.find(|(key, _)| key.trim() == name).map(|(_, value)| value.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maxima_and_current_numbers_differ() {
        let text = "Channel parameters for eth0:\nPre-set maximums:\nRX:\t\tn/a\nCombined:\t8\n\
                    Current hardware settings:\nRX:\t\tn/a\nCombined:\t2\n";
        let amounts = amounts(text);
        assert_eq!((amounts.most("Combined"), amounts.current("Combined")), (Some(8), Some(2)));
        assert_eq!((amounts.most("RX"), amounts.current("RX")), (None, None));
    }

    #[test]
    fn features_and_coalescing_are_read() {
        let text = "Features for eth0:\nrx-checksumming: on [fixed]\n\ttx-checksum-ipv4: off\n\
                    rx-gro-list: on [requested off]\n";
        let read = |name| feature(text, name).map(|feature| (feature.on, feature.fixed));
        assert_eq!(read("rx-checksumming"), Some((true, true)));
        assert_eq!(read("tx-checksum-ipv4"), Some((false, false)));
        assert_eq!(read("rx-gro-list"), Some((true, false)));
        assert_eq!(read("rx-gro"), None);
        let text = "Coalesce parameters for eth0:\nAdaptive RX: off  TX: n/a\n\nrx-usecs: 50\n";
        assert_eq!((adaptive_rx(text), rx_usecs(text)), (Some(false), Some(50)));
        let text = "Adaptive RX: n/a  TX: n/a\nrx-usecs: n/a\n";
        assert_eq!((adaptive_rx(text), rx_usecs(text)), (None, None));
    }
}
