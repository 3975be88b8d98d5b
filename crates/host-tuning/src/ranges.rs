//! Sets of processors or ports as the kernel writes them: lists (`0-3,8`) and masks (`ff`,
//! `1,00000000`).

use std::collections::BTreeSet;

/// Processors: as many as Linux can be built for (`CONFIG_NR_CPUS`).
pub(crate) const CPUS: usize = 8192;

/// Ports.
pub(crate) const PORTS: usize = 1 << 16;

/// The numbers of a list such as `0-3,8`; `None` where it is none, or one is not below `limit`.
pub(crate) fn parse(text: &str, limit: usize) -> Option<BTreeSet<usize>> {
    let mut set = BTreeSet::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        if last >= limit || first > last {
            return None;
        }
        set.extend(first..=last);
    }
    Some(set)
}

/// The processors of a mask such as `f` or `1,00000000`; `None` where it is none.
pub(crate) fn parse_mask(text: &str) -> Option<BTreeSet<usize>> {
    let digits: Vec<char> = text.trim().chars().filter(|c| *c != ',').collect();
    if digits.len() > CPUS / 4 {
        return None;
    }
    let mut cpus = BTreeSet::new();
    for (place, digit) in digits.iter().rev().enumerate() {
        let digit = digit.to_digit(16)?;
        cpus.extend((0..4).filter(|bit| digit >> bit & 1 == 1).map(|bit| place * 4 + bit));
    }
    Some(cpus)
}

/// A mask as the kernel takes it: groups of eight digits, the highest first, no leading zeros.
pub(crate) fn mask(cpus: &BTreeSet<usize>) -> String {
    let mut words = vec![0u32; cpus.last().map_or(1, |last| last / 32 + 1)];
    for cpu in cpus {
        words[cpu / 32] |= 1 << (cpu % 32);
    }
    let groups = words.iter().enumerate().rev().map(|(i, word)| {
        if i + 1 == words.len() { format!("{word:x}") } else { format!("{word:08x}") }
    });
    groups.collect::<Vec<_>>().join(",")
}

/// A list as the kernel writes it: `0-3,8`.
pub(crate) fn list(set: &BTreeSet<usize>) -> String {
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for number in set {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == *number => *last = *number,
            Some(_) | None => ranges.push((*number, *number)),
        }
    }
    let range = |(first, last): (usize, usize)| {
        if first == last { first.to_string() } else { format!("{first}-{last}") }
    };
    ranges.into_iter().map(range).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_masks_agree() {
        for (cpus, as_list, as_mask) in [
            (&[][..], "", "0"),
            (&[0], "0", "1"),
            (&[0, 1, 2, 8], "0-2,8", "107"),
            (&[31, 32, 33], "31-33", "3,80000000"),
            (&[64], "64", "1,00000000,00000000"),
        ] {
            let cpus = cpus.iter().copied().collect();
            assert_eq!((list(&cpus).as_str(), mask(&cpus).as_str()), (as_list, as_mask));
            assert_eq!(parse(as_list, CPUS).unwrap(), cpus);
            assert_eq!(parse_mask(as_mask).unwrap(), cpus);
        }
        assert_eq!(parse_mask("00000000,00000003\n").unwrap(), BTreeSet::from([0, 1]));
    }

    #[test]
    fn other_texts_are_refused() {
        for text in ["a", "1-", "-3", "5-3", "0-99999999", "8192"] {
            assert_eq!(parse(text, CPUS), None, "{text}");
        }
        assert_eq!(parse_mask("xyz"), None);
        assert_eq!(parse_mask(&"f".repeat(5000)), None);
    }
}
