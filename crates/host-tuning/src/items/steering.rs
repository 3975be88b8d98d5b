//! Spreading packets over processors where the card cannot, or not enough.

use crate::host::Host;
use crate::interface::{Interface, directory};
use crate::item::{Change, Found, Looked, cannot, change, good};
use crate::ranges::mask;
use crate::setting::{QueueFile, Setting};

/// The masks of an interface's queues.
fn masks(
    host: &Host,
    interface: &Interface,
    (queues, file): (&[String], QueueFile),
) -> Result<Vec<Change>, Found> {
    let read = |queue: &String| {
        let interface = interface.name.clone();
        let setting = Setting::Queue { interface, queue: queue.clone(), file };
        let to = setting.read(host).map_err(|error| cannot("", error))?;
        Ok(Change { setting, to })
    };
    queues.iter().map(read).collect()
}

fn joined(masks: &[Change]) -> String {
    masks.iter().map(|mask| mask.to.as_str()).collect::<Vec<_>>().join(" ")
}

pub(crate) fn rps(host: &Host, interface: &Interface) -> Looked {
    if interface.loopback {
        return Err(cannot("", "it is the loopback: packets stay on their processor"));
    }
    let (cpus, queues) = (host.cpus(), interface.rx_queues.len());
    let masks = masks(host, interface, (&interface.rx_queues, QueueFile::RpsCpus))?;
    let now = joined(&masks);
    if queues == 0 {
        return Err(cannot("", "the kernel does not show its queues"));
    }
    if queues >= cpus.len() {
        return Ok(good(format!("{now} ({queues} queues for {} processors)", cpus.len())));
    }
    let all = mask(&cpus);
    let unset = masks.into_iter().filter(|mask| mask.to == "0");
    let changes = unset.map(|mask| Change { to: all.clone(), ..mask }).collect();
    Ok(change(now, &all, changes))
}

pub(crate) fn flows(host: &Host, interface: &Interface) -> Looked {
    let counts = interface.rx_queues.iter().map(|queue| {
        host.read(&format!("{}/queues/{queue}/rps_flow_cnt", directory(&interface.name)))
    });
    match counts.collect::<Result<Vec<_>, _>>() {
        Ok(counts) if !counts.is_empty() => Ok(good(counts.join(" "))),
        Ok(_) | Err(_) => Err(cannot("", "the kernel does not show it")),
    }
}

pub(crate) fn xps(host: &Host, interface: &Interface) -> Looked {
    let queues = interface.tx_queues.len();
    if queues < 2 {
        return Ok(good("one queue, nothing to choose"));
    }
    let masks = masks(host, interface, (&interface.tx_queues, QueueFile::XpsCpus))?;
    let now = joined(&masks);
    if masks.iter().any(|mask| mask.to != "0") {
        return Ok(good(now));
    }
    let cpus: Vec<usize> = host.cpus().into_iter().collect();
    let shared = masks.into_iter().enumerate().map(|(i, unset)| {
        // A queue beyond the processors serves one that has a queue already.
        let own = cpus.iter().enumerate().filter(|(at, _)| at % queues == i % cpus.len());
        Change { to: mask(&own.map(|(_, cpu)| *cpu).collect()), ..unset }
    });
    let changes: Vec<Change> = shared.collect();
    Ok(change(now, &joined(&changes), changes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Fake, advised};

    fn host(cpus: &str, queues: usize, mask: &str) -> (Fake, Interface) {
        let fake = Fake::whole();
        fake.put("/sys/devices/system/cpu/online", cpus);
        fake.remove("/sys/class/net/eth0/queues");
        for queue in 0..queues {
            fake.put(&format!("/sys/class/net/eth0/queues/rx-{queue}/rps_cpus"), mask);
            fake.put(&format!("/sys/class/net/eth0/queues/rx-{queue}/rps_flow_cnt"), "0");
            fake.put(&format!("/sys/class/net/eth0/queues/tx-{queue}/xps_cpus"), mask);
        }
        let interface = Interface::read(fake.host(), "eth0");
        (fake, interface)
    }

    #[test]
    fn too_few_queues_are_spread_over_all_processors() {
        for (cpus, queues, mask, expected) in [
            ("0-1", 1, "0", Some("3")),
            ("0-39", 2, "00,00000000", Some("ff,ffffffff")),
            ("0-1", 2, "0", None),
            ("0-3", 1, "2", None),
            ("0", 1, "0", None),
        ] {
            let (fake, interface) = host(cpus, queues, mask);
            let looked = rps(fake.host(), &interface);
            assert_eq!(advised(looked).as_deref(), expected, "{cpus} {queues} {mask}");
        }
    }

    #[test]
    fn processors_are_shared_out_among_transmit_queues() {
        for (cpus, queues, mask, expected) in [
            ("0-3", 2, "0", Some("5 a")),
            ("0-1", 2, "0", Some("1 2")),
            ("0-1", 4, "0", Some("1 2 1 2")),
            ("0-1", 1, "0", None),
            ("0-1", 2, "3", None),
        ] {
            let (fake, interface) = host(cpus, queues, mask);
            let looked = xps(fake.host(), &interface);
            assert_eq!(advised(looked).as_deref(), expected, "{cpus} {queues} {mask}");
        }
    }
}
