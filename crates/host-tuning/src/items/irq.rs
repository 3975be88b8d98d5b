//! Processors that serve the interrupts of queues.

use std::collections::{BTreeMap, BTreeSet};

use crate::host::Host;
use crate::interface::{Interface, directory};
use crate::item::{Change, Looked, cannot, change, good};
use crate::ranges::{CPUS, list, parse};
use crate::setting::Setting;

/// Parts of the names of interrupts that are about the card and not about packets.
const NOT_A_QUEUE: [&str; 12] = [
    "config", "async", "misc", "mgmnt", "mgmt", "ctrl", "control", "event", "cmd", "pages", "lsc",
    "fdir",
];

pub(crate) fn look(host: &Host, interface: &Interface) -> Looked {
    let queues = queues(host, interface);
    let cpus: Vec<usize> = host.cpus().into_iter().collect();
    if queues.is_empty() {
        return Err(cannot("", "its interrupts were not found in /proc/interrupts"));
    }
    if queues.len() == 1 || cpus.len() == 1 {
        let one = if queues.len() == 1 { "one queue" } else { "one processor" };
        return Ok(good(format!("{one}, nothing to spread")));
    }
    let first = |irqs: &Vec<u32>| irqs.first().and_then(|irq| serving(host, *irq));
    let served: Vec<Option<BTreeSet<usize>>> = queues.values().map(first).collect();
    let now = describe(&served);
    if is_even(&served, cpus.len()) {
        return Ok(good(now));
    }
    // The kernel may know better processors for a queue (near the card's memory); an even spread
    // matters more.
    let placed = queues.values().zip(cpus.iter().cycle());
    let changes: Vec<Change> = placed
        .flat_map(|(irqs, cpu)| irqs.iter().map(move |irq| (*irq, cpu.to_string())))
        .filter(|(irq, cpu)| allowed(host, *irq).as_deref() != Some(cpu))
        .map(|(irq, to)| Change { setting: Setting::IrqAffinity { irq }, to })
        .collect();
    let spread = cpus.iter().cycle().take(queues.len());
    let advised: Vec<_> = spread.map(|cpu| Some(BTreeSet::from([*cpu]))).collect();
    Ok(change(now, &describe(&advised), changes))
}

/// Returns whether no processor has more queues than another must have.
fn is_even(served: &[Option<BTreeSet<usize>>], cpus: usize) -> bool {
    let mut queues: BTreeMap<usize, usize> = BTreeMap::new();
    for cpus in served {
        match cpus.as_ref().and_then(|cpus| cpus.first().filter(|_| cpus.len() == 1)) {
            Some(cpu) => *queues.entry(*cpu).or_default() += 1,
            None => return false,
        }
    }
    queues.values().all(|count| *count <= served.len().div_ceil(cpus))
}

/// The processors that serve each queue, in the order of the queues.
fn describe(served: &[Option<BTreeSet<usize>>]) -> String {
    let lists = served.iter().map(|cpus| cpus.as_ref().map_or_else(|| "?".to_owned(), list));
    format!("queues at CPU {}", lists.collect::<Vec<_>>().join(" "))
}

/// The processors that serve an interrupt.
fn serving(host: &Host, irq: u32) -> Option<BTreeSet<usize>> {
    let effective = host.read(&format!("/proc/irq/{irq}/effective_affinity_list")).ok();
    let effective = effective.filter(|list| !list.is_empty()).or_else(|| allowed(host, irq));
    parse(&effective?, CPUS)
}

/// The processors that may serve it.
fn allowed(host: &Host, irq: u32) -> Option<String> {
    Setting::IrqAffinity { irq }.read(host).ok()
}

/// The interrupts of each queue, in the order of the queues.
fn queues(host: &Host, interface: &Interface) -> BTreeMap<u64, Vec<u32>> {
    let device = format!("{}/device", directory(&interface.name));
    // A virtio card is a device on the PCI device that has the interrupts.
    let own =
        [host.names(&format!("{device}/msi_irqs")), host.names(&format!("{device}/../msi_irqs"))];
    let own: BTreeSet<u32> = own.iter().flatten().filter_map(|irq| irq.parse().ok()).collect();
    let mut queues: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
    for line in host.read("/proc/interrupts").unwrap_or_default().lines() {
        let Some((irq, rest)) = line.split_once(':') else { continue };
        let Ok(irq) = irq.trim().parse::<u32>() else { continue };
        let Some(action) = rest.split_whitespace().last() else { continue };
        let named = action.split('-').any(|part| part == interface.name);
        let is_own = if own.is_empty() { named } else { own.contains(&irq) };
        if let Some(queue) = queue(action, &interface.name).filter(|_| is_own) {
            queues.entry(queue).or_default().push(irq);
        }
    }
    queues
}

/// The number of the queue that an interrupt of this name belongs to: `eth0-TxRx-3`,
/// `virtio2-input.0`, `mlx5_comp7@pci:0000:01:00.0`.
fn queue(action: &str, interface: &str) -> Option<u64> {
    let name = action.split('@').next().unwrap_or(action);
    let lower = name.to_ascii_lowercase();
    if name == interface || NOT_A_QUEUE.iter().any(|word| lower.contains(word)) {
        return None;
    }
    name[name.trim_end_matches(|c: char| c.is_ascii_digit()).len()..].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::item::Verdict;
    use crate::testing::Fake;

    #[test]
    fn names_of_interrupts_tell_their_queue() {
        for (name, expected) in [
            ("eth0-TxRx-3", Some(3)),
            ("i40e-eth0-TxRx-12", Some(12)),
            ("virtio2-input.0", Some(0)),
            ("mlx5_comp7@pci:0000:01:00.0", Some(7)),
            ("eth0-Tx-Rx-1", Some(1)),
            ("gve-ntfy-blk4@pci:0000:00:04.0", Some(4)),
            ("eth0", None),
            ("virtio2-config", None),
            ("mlx5_async0@pci:0000:01:00.0", None),
            ("ena-mgmnt@pci:0000:00:05.0", None),
        ] {
            assert_eq!(queue(name, "eth0"), expected, "{name}");
        }
    }

    fn with_interrupts(affinities: [&str; 4]) -> (Fake, Interface) {
        let fake = Fake::whole();
        let mut text = "       CPU0  CPU1\n 30:  0  0  PCI-MSI  0-edge  other-rx-0\n".to_owned();
        for (irq, list) in (40..).zip(affinities) {
            fake.put(&format!("/proc/irq/{irq}/smp_affinity_list"), list);
            fake.put(&format!("/sys/class/net/eth0/device/msi_irqs/{irq}"), "msix");
            let name = ["eth0-rx-0", "eth0-tx-0", "eth0-rx-1", "eth0-tx-1"][irq - 40];
            text.push_str(&format!(" {irq}:  1  2  PCI-MSI  {irq}-edge  {name}\n"));
        }
        fake.put("/proc/interrupts", &format!("{text}NMI:  0  0  Non-maskable\n"));
        let interface = Interface::read(fake.host(), "eth0");
        (fake, interface)
    }

    #[test]
    fn queues_on_one_processor_are_spread() {
        let (fake, interface) = with_interrupts(["0", "0-1", "0", "1"]);
        let item = look(fake.host(), &interface).unwrap();
        assert_eq!(item.now, "queues at CPU 0 0");
        let Verdict::Change { advised, changes } = item.verdict else { panic!("{item:?}") };
        assert_eq!(advised, "queues at CPU 0 1");
        let to: Vec<_> = changes.iter().map(|c| (c.setting.to_string(), c.to.clone())).collect();
        let path = |irq: u32| format!("/proc/irq/{irq}/smp_affinity_list");
        assert_eq!(to, [(path(41), "0".to_owned()), (path(42), "1".to_owned())]);
    }

    #[test]
    fn an_even_spread_is_kept() {
        let (fake, interface) = with_interrupts(["1", "0-1", "0", "0-1"]);
        assert_eq!(look(fake.host(), &interface).unwrap().verdict, Verdict::Good);
        // Free to go anywhere, and in effect at two processors.
        let (fake, interface) = with_interrupts(["0-1", "0-1", "0-1", "0-1"]);
        assert!(matches!(look(fake.host(), &interface).unwrap().verdict, Verdict::Change { .. }));
        fake.put("/proc/irq/40/effective_affinity_list", "0");
        fake.put("/proc/irq/42/effective_affinity_list", "1");
        assert_eq!(look(fake.host(), &interface).unwrap().verdict, Verdict::Good);
    }
}
