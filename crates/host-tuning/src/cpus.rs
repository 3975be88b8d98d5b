//! Processors as the kernel writes them: lists (`0-3,8`) and masks (`ff`, `1,00000000`).

use std::collections::BTreeSet;

/// The most processors looked at: as many as Linux can be built for (`CONFIG_NR_CPUS`, 8192).
const CPUS_MAX: usize = 8192;

/// The processors of a list such as `0-3,8`; `None` where it is not one.
pub(crate) fn parse_list(text: &str) -> Option<BTreeSet<usize>> {
    let mut cpus = BTreeSet::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        if last >= CPUS_MAX {
            return None;
        }
        cpus.extend(first..=last);
    }
    Some(cpus)
}

/// The processors of a mask such as `f` or `1,00000000`; `None` where it is not one.
pub(crate) fn parse_mask(text: &str) -> Option<BTreeSet<usize>> {
    let digits: Vec<char> = text.trim().chars().filter(|c| *c != ',').collect();
    if digits.len() > CPUS_MAX / 4 {
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
    let groups = cpus.last().map_or(1, |last| last / 32 + 1);
    let mut words = vec![0u32; groups];
    for cpu in cpus {
        words[cpu / 32] |= 1 << (cpu % 32);
    }
    let mut text = String::new();
    for word in words.iter().rev() {
        if text.is_empty() {
            text = format!("{word:x}");
        } else {
            text.push_str(&format!(",{word:08x}"));
        }
    }
    text
}

/// A list as the kernel writes it: `0-3,8`.
pub(crate) fn list(cpus: &BTreeSet<usize>) -> String {
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for cpu in cpus {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == *cpu => *last = *cpu,
            Some(_) | None => ranges.push((*cpu, *cpu)),
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

    fn set(cpus: &[usize]) -> BTreeSet<usize> {
        cpus.iter().copied().collect()
    }

    #[test]
    fn lists_and_masks_say_the_same() {
        for (cpus, as_list, as_mask) in [
            (set(&[]), "", "0"),
            (set(&[0]), "0", "1"),
            (set(&[0, 1, 2, 8]), "0-2,8", "107"),
            (set(&[31, 32, 33]), "31-33", "3,80000000"),
            (set(&[64]), "64", "1,00000000,00000000"),
        ] {
            assert_eq!(list(&cpus), as_list);
            assert_eq!(mask(&cpus), as_mask);
            assert_eq!(parse_list(as_list).unwrap(), cpus);
            assert_eq!(parse_mask(as_mask).unwrap(), cpus);
        }
        assert_eq!(parse_mask("00000000,00000003\n").unwrap(), set(&[0, 1]));
    }

    #[test]
    fn what_is_neither_is_refused() {
        for text in ["a", "1-", "-3", "0-99999999"] {
            assert_eq!(parse_list(text), None, "{text}");
        }
        assert_eq!(parse_mask("xyz"), None);
        assert_eq!(parse_mask(&"f".repeat(5000)), None);
    }
}
