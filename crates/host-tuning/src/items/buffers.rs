//! Memory for packets that wait in sockets.

use super::sysctl;
use crate::entry::{Area, By, Entry};
use crate::host::Host;
use crate::item::Item;
use crate::wants::Wants;

pub(crate) static RMEM_MAX: Entry = Entry {
    name: "net.core.rmem_max",
    area: Area::Host,
    by: By::Us,
    rule: "at least sockets.receive_buffer",
    why: "A server without CAP_NET_ADMIN is granted no larger receive buffer than this, and what \
          a burst brings beyond the buffer is lost.",
};

pub(crate) static WMEM_MAX: Entry = Entry {
    name: "net.core.wmem_max",
    area: Area::Host,
    by: By::Us,
    rule: "at least sockets.send_buffer",
    why: "A server without CAP_NET_ADMIN is granted no larger send buffer than this, and a batch \
          that does not fit is cut short.",
};

pub(crate) static RMEM_DEFAULT: Entry = Entry {
    name: "net.core.rmem_default",
    area: Area::Host,
    by: By::Hand,
    rule: "any",
    why: "Turnpike asks for the size of each buffer, so the default is for other programs alone.",
};

pub(crate) static UDP_MEM: Entry = Entry {
    name: "net.ipv4.udp_mem",
    area: Area::Host,
    by: By::Us,
    rule: "third number: room for every listener's full receive buffer and 16 full relay sockets per \
           worker, within a quarter of the memory",
    why: "Past the third number (in pages, for all UDP sockets together) the kernel drops packets \
          though a socket's own buffer has room.",
};

/// Relay sockets per worker whose receive buffers may be full at the same time: a worker that is
/// late is late for all of its sockets, but few of them carry most of the traffic.
const FULL_RELAYS_PER_WORKER: u64 = 16;

/// The kernel counts its own bookkeeping as well, and doubles what a socket asks for (socket(7)).
const KERNEL_SHARE: u64 = 2;

/// A page on every machine that Rust's Linux targets of this server have; with larger pages more
/// memory is granted than was meant, which harms nothing.
const PAGE_BYTES: u64 = 4096;

pub(crate) fn look(host: &Host, wants: &Wants) -> Vec<Item> {
    vec![
        sysctl::at_least(host, &RMEM_MAX, wants.receive_buffer),
        sysctl::at_least(host, &WMEM_MAX, wants.send_buffer),
        sysctl::read(host, &RMEM_DEFAULT)
            .map_or_else(|item| *item, |now| Item::good(&RMEM_DEFAULT, now)),
        udp_mem(host, wants),
    ]
}

fn udp_mem(host: &Host, wants: &Wants) -> Item {
    let now = match sysctl::read(host, &UDP_MEM) {
        Ok(now) => now,
        Err(item) => return *item,
    };
    let numbers: Vec<u64> = now.split(' ').filter_map(|number| number.parse().ok()).collect();
    let &[low, pressure, most] = numbers.as_slice() else {
        return Item::cannot(&UDP_MEM, now, "it is not the three numbers it should be");
    };
    let full = wants.listeners() + wants.workers.saturating_mul(FULL_RELAYS_PER_WORKER);
    let bytes = full.saturating_mul(wants.receive_buffer).saturating_mul(KERNEL_SHARE);
    let wanted = bytes.min(host.memory() / 4).div_ceil(PAGE_BYTES);
    if most >= wanted {
        return Item::good(&UDP_MEM, now);
    }
    sysctl::to(host, &UDP_MEM, &now, &format!("{low} {pressure} {wanted}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::item::Verdict;
    use crate::testing::{Fake, advised, wants};

    #[test]
    fn buffers_are_raised_to_what_is_asked_for_and_never_lowered() {
        let fake = Fake::whole();
        let path = "/proc/sys/net/core/rmem_max";
        for (now, expected) in [("212992", Some("4194304")), ("4194304", None), ("8388608", None)] {
            fake.put(path, now);
            let item = sysctl::at_least(fake.host(), &RMEM_MAX, wants().receive_buffer);
            assert_eq!(advised(&item).as_deref(), expected, "{now}");
        }
    }

    #[test]
    fn what_belongs_to_the_machine_is_not_offered_in_a_namespace() {
        let fake = Fake::whole();
        fake.put("/proc/sys/net/core/rmem_max", "212992");
        fake.read_only("/proc/sys/net/core/rmem_max");
        let item = sysctl::at_least(fake.host(), &RMEM_MAX, 4 << 20);
        let Verdict::Cannot { reason } = item.verdict else { panic!("{item:?}") };
        assert!(reason.contains("4194304") && reason.contains("machine itself"), "{reason}");
    }

    #[test]
    fn memory_for_all_sockets_is_within_a_quarter_of_the_whole() {
        let fake = Fake::whole();
        let path = "/proc/sys/net/ipv4/udp_mem";
        // 2 workers with a listener and 16 relays each, 8 MiB in each of the 34.
        fake.put(path, "100\t200\t300\n");
        assert_eq!(advised(&udp_mem(fake.host(), &wants())).unwrap(), "100 200 69632");
        fake.put("/proc/meminfo", "MemTotal:  524288 kB\n");
        assert_eq!(advised(&udp_mem(fake.host(), &wants())).unwrap(), "100 200 32768");
        fake.put(path, "100\t200\t32768\n");
        assert_eq!(advised(&udp_mem(fake.host(), &wants())), None);
    }
}
