//! Sysctls: buffers, ports.

use std::collections::BTreeSet;

use super::Wants;
use crate::host::Host;
use crate::item::{Found, Looked, by_hand, cannot, good, set};
use crate::ranges::{PORTS, list, parse};
use crate::setting::{Setting, SettingError};

/// Reason for values that a network namespace lacks or may not change.
const ELSEWHERE: &str = "it belongs to the whole machine, and this network namespace may only read \
                         it: run this on the machine itself";

/// Relay sockets per worker whose receive buffers may be full at the same time: a worker that is
/// late is late for all of its sockets, but few of them carry most of the traffic.
const FULL_RELAYS_PER_WORKER: u64 = 16;

/// The kernel counts its own bookkeeping as well, and doubles the size that a socket requests
/// (socket(7)).
const KERNEL_SHARE: u64 = 2;

/// A page on every machine that Rust's Linux targets of this server have; larger pages grant more
/// memory than needed, which does no harm.
const PAGE_BYTES: u64 = 4096;

/// Ports for the host's other programs: a busy resolver or proxy has some thousand connections at a
/// time.
const LEFT_LEAST: usize = 8192;

/// The value of a sysctl.
pub(super) fn read(host: &Host, name: &str) -> Result<String, Found> {
    Setting::sysctl(name).read(host).map_err(|error| match error {
        SettingError::Absent => cannot("", "this kernel or network namespace does not have it"),
        SettingError::Kernel(_) | SettingError::Ethtool { .. } => cannot("", error),
    })
}

/// A sysctl of any value.
pub(crate) fn shown(host: &Host, name: &str) -> Looked {
    read(host, name).map(good)
}

/// The value of a sysctl that is a number.
pub(super) fn number(host: &Host, name: &str) -> Result<u64, Found> {
    let now = read(host, name)?;
    now.parse().map_err(|_| cannot(now, "it is not a number"))
}

/// A sysctl that should be no less than `least`.
pub(crate) fn at_least(host: &Host, name: &str, least: u64) -> Looked {
    let now = number(host, name)?;
    if now >= least { Ok(good(now)) } else { to(host, name, &now.to_string(), least) }
}

fn to(host: &Host, name: &str, now: &str, to: impl ToString) -> Looked {
    let (setting, to) = (Setting::sysctl(name), to.to_string());
    if host.is_read_only(&setting.path()) {
        return Err(cannot(now, format!("{to} is advised, but {ELSEWHERE}")));
    }
    Ok(set(now, setting, to))
}

pub(crate) fn udp_mem(host: &Host, wants: &Wants) -> Looked {
    const NAME: &str = "net.ipv4.udp_mem";
    let now = read(host, NAME)?;
    let numbers: Vec<u64> = now.split(' ').filter_map(|number| number.parse().ok()).collect();
    let &[low, pressure, most] = numbers.as_slice() else {
        return Err(cannot(now, "it is not three numbers"));
    };
    let full = wants.listeners() + wants.workers.saturating_mul(FULL_RELAYS_PER_WORKER);
    let bytes = full.saturating_mul(wants.receive_buffer).saturating_mul(KERNEL_SHARE);
    let wanted = bytes.min(host.memory() / 4).div_ceil(PAGE_BYTES);
    if most >= wanted {
        return Ok(good(now));
    }
    to(host, NAME, &now, format!("{low} {pressure} {wanted}"))
}

pub(crate) fn reserved_ports(host: &Host, wants: &Wants) -> Looked {
    const NAME: &str = "net.ipv4.ip_local_reserved_ports";
    let now = read(host, NAME)?;
    let Some(reserved) = parse(&now, PORTS) else {
        return Err(cannot(now, "it is not a list of ports"));
    };
    let (first, last) = wants.relay_ports;
    let ours = (first..=last).chain(wants.listen_ports.iter().copied()).map(usize::from);
    let all: BTreeSet<usize> = reserved.iter().copied().chain(ours).collect();
    let shown = if now.is_empty() { "none".to_owned() } else { now.clone() };
    if all == reserved {
        return Ok(good(shown));
    }
    let (Ok(found) | Err(found)) = to(host, NAME, &now, list(&all));
    Ok(Found { now: shown, ..found })
}

pub(crate) fn port_range(host: &Host, wants: &Wants) -> Looked {
    let now = read(host, "net.ipv4.ip_local_port_range")?;
    let numbers: Vec<u16> = now.split(' ').filter_map(|number| number.parse().ok()).collect();
    let &[first, last] = numbers.as_slice() else {
        return Err(cannot(now, "it is not two ports"));
    };
    let (relay_first, relay_last) = wants.relay_ports;
    let left = (first..=last).filter(|port| !(relay_first..=relay_last).contains(port)).count();
    if left >= LEFT_LEAST {
        return Ok(good(now));
    }
    let how = format!(
        "only {left} ports of it are outside the relay ports {relay_first}-{relay_last}: give other \
         programs more, or relay from fewer ports (relay.ports)"
    );
    Ok(by_hand(now, &format!("{LEFT_LEAST} ports besides the relay's"), &how, &[]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::item::Verdict;
    use crate::testing::{Fake, advised, wants};

    #[test]
    fn buffers_are_raised_and_never_lowered() {
        let fake = Fake::whole();
        for (now, expected) in [("212992", Some("4194304")), ("4194304", None), ("8388608", None)] {
            fake.put("/proc/sys/net/core/rmem_max", now);
            let looked = at_least(fake.host(), "net.core.rmem_max", 4 << 20);
            assert_eq!(advised(looked).as_deref(), expected, "{now}");
        }
    }

    #[test]
    fn values_of_the_machine_are_not_offered_in_a_namespace() {
        let fake = Fake::whole();
        fake.read_only("/proc/sys/net/core/rmem_max");
        let found = at_least(fake.host(), "net.core.rmem_max", 4 << 20).unwrap_err();
        let Verdict::Cannot { reason } = found.verdict else { panic!("{found:?}") };
        assert!(reason.contains("4194304") && reason.contains("machine itself"), "{reason}");
    }

    #[test]
    fn memory_for_all_sockets_is_within_a_quarter_of_the_whole() {
        let fake = Fake::whole();
        let path = "/proc/sys/net/ipv4/udp_mem";
        // 2 workers with a listener and 16 relays each, 8 MiB in each of the 34.
        fake.put(path, "100\t200\t300\n");
        assert_eq!(advised(udp_mem(fake.host(), &wants())).unwrap(), "100 200 69632");
        fake.put("/proc/meminfo", "MemTotal:  524288 kB\n");
        assert_eq!(advised(udp_mem(fake.host(), &wants())).unwrap(), "100 200 32768");
        fake.put(path, "100\t200\t32768\n");
        assert_eq!(advised(udp_mem(fake.host(), &wants())), None);
    }

    #[test]
    fn reserved_ports_stay_reserved() {
        let fake = Fake::whole();
        for (now, expected) in [
            ("", Some("3478,49152-65535")),
            ("8080,9148-9150", Some("3478,8080,9148-9150,49152-65535")),
            ("50000-60000", Some("3478,49152-65535")),
            ("3000-65535", None),
        ] {
            fake.put("/proc/sys/net/ipv4/ip_local_reserved_ports", now);
            let looked = reserved_ports(fake.host(), &wants());
            assert_eq!(advised(looked).as_deref(), expected, "{now}");
        }
    }

    #[test]
    fn few_ports_for_others_are_reported_and_not_changed() {
        let fake = Fake::whole();
        let path = "/proc/sys/net/ipv4/ip_local_port_range";
        fake.put(path, "32768\t60999");
        assert_eq!(port_range(fake.host(), &wants()).unwrap().verdict, Verdict::Good);
        fake.put(path, "49152\t65535");
        let found = port_range(fake.host(), &wants()).unwrap();
        let Verdict::ByHand { how, .. } = found.verdict else { panic!("{found:?}") };
        assert!(how.contains("only 0 ports"), "{how}");
    }
}
