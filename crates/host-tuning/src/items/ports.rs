//! Ports that other programs must not be given.

use super::sysctl;
use crate::entry::{Area, By, Entry};
use crate::host::Host;
use crate::item::{Item, Verdict};
use crate::wants::Wants;

pub(crate) static RESERVED: Entry = Entry {
    name: "net.ipv4.ip_local_reserved_ports",
    area: Area::Host,
    by: By::Us,
    rule: "what is reserved now, and the relay ports and listeners",
    why: "Reserved ports are not given to programs that ask for any port, so that none of them \
          takes a port of the relay; who names a port still gets it.",
};

pub(crate) static RANGE: Entry = Entry {
    name: "net.ipv4.ip_local_port_range",
    area: Area::Host,
    by: By::Hand,
    rule: "at least 8192 ports of it outside the relay ports",
    why: "Programs that ask for any port get one of this range, less the reserved ones, and \
          connections fail when none is left.",
};

/// Ports that the host's other programs should have left: a busy resolver or proxy has some thousand
/// connections at a time.
const LEFT_LEAST: usize = 8192;

/// Every port.
const PORTS: usize = 1 << 16;

pub(crate) fn look(host: &Host, wants: &Wants) -> Vec<Item> {
    vec![reserved(host, wants), range(host, wants)]
}

fn reserved(host: &Host, wants: &Wants) -> Item {
    let now = match sysctl::read(host, &RESERVED) {
        Ok(now) => now,
        Err(item) => return *item,
    };
    let Some(mut ports) = parse(&now) else {
        return Item::cannot(&RESERVED, now, "it is not the list of ports it should be");
    };
    let before = ports.clone();
    for port in ours(wants) {
        ports[usize::from(port)] = true;
    }
    let shown = if now.is_empty() { "none" } else { &now };
    if ports == before {
        return Item::good(&RESERVED, shown);
    }
    let item = sysctl::to(host, &RESERVED, &now, &list(&ports));
    Item { now: shown.to_owned(), ..item }
}

/// Ports of the server.
fn ours(wants: &Wants) -> impl Iterator<Item = u16> {
    let (first, last) = wants.relay_ports;
    (first..=last).chain(wants.listen_ports.iter().copied())
}

fn range(host: &Host, wants: &Wants) -> Item {
    let now = match sysctl::read(host, &RANGE) {
        Ok(now) => now,
        Err(item) => return *item,
    };
    let numbers: Vec<u16> = now.split(' ').filter_map(|number| number.parse().ok()).collect();
    let &[first, last] = numbers.as_slice() else {
        return Item::cannot(&RANGE, now, "it is not the two ports it should be");
    };
    let (relay_first, relay_last) = wants.relay_ports;
    let left = (first..=last).filter(|port| !(relay_first..=relay_last).contains(port)).count();
    if left >= LEFT_LEAST {
        return Item::good(&RANGE, now);
    }
    let how = format!(
        "only {left} ports of it are outside the relay ports {relay_first}-{relay_last}: give other \
         programs more, or relay from fewer ports (relay.ports)"
    );
    let advised = format!("{LEFT_LEAST} ports besides the relay's");
    Item::new(&RANGE, now, Verdict::ByHand { advised, how, commands: Vec::new() })
}

/// Which ports are in a list such as `8080,9000-9100`.
fn parse(text: &str) -> Option<Vec<bool>> {
    let mut ports = vec![false; PORTS];
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u16, u16) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        ports.get_mut(usize::from(first)..=usize::from(last))?.fill(true);
    }
    Some(ports)
}

/// The list of ports, with runs as ranges: so the kernel writes it, too.
fn list(ports: &[bool]) -> String {
    let mut parts: Vec<String> = Vec::new();
    let mut port = 0;
    while let Some(first) = (port..ports.len()).find(|port| ports[*port]) {
        let end = (first..ports.len()).find(|port| !ports[*port]).unwrap_or(ports.len());
        let last = end - 1;
        parts.push(if first == last { first.to_string() } else { format!("{first}-{last}") });
        port = end;
    }
    parts.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Fake, advised, wants};

    #[test]
    fn what_was_reserved_before_stays_so() {
        let fake = Fake::whole();
        for (now, expected) in [
            ("", Some("3478,49152-65535")),
            ("8080,9148-9150", Some("3478,8080,9148-9150,49152-65535")),
            ("50000-60000", Some("3478,49152-65535")),
            ("3000-65535", None),
        ] {
            fake.put("/proc/sys/net/ipv4/ip_local_reserved_ports", now);
            let item = reserved(fake.host(), &wants());
            assert_eq!(advised(&item).as_deref(), expected, "{now}");
        }
    }

    #[test]
    fn few_ports_for_others_are_told_and_not_changed() {
        let fake = Fake::whole();
        let path = "/proc/sys/net/ipv4/ip_local_port_range";
        fake.put(path, "32768\t60999");
        assert_eq!(range(fake.host(), &wants()).verdict, Verdict::Good);
        fake.put(path, "49152\t65535");
        let item = range(fake.host(), &wants());
        let Verdict::ByHand { how, .. } = item.verdict else { panic!("{item:?}") };
        assert!(how.contains("only 0 ports"), "{how}");
    }

    #[test]
    fn lists_are_read_and_written() {
        for text in ["", "0", "1-3,65535", "8080,9000-9100"] {
            assert_eq!(list(&parse(text).unwrap()), text);
        }
        for text in ["x", "5-3", "70000"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
