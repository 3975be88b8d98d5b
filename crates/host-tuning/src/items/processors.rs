//! The processors themselves: how fast they run, whether they are there when they are needed, and who
//! moves interrupts between them.

use crate::entry::{Area, By, Entry};
use crate::host::Host;
use crate::item::{Item, Verdict};

pub(crate) static GOVERNOR: Entry = Entry {
    name: "governor",
    area: Area::Host,
    by: By::Hand,
    rule: "performance",
    why: "A processor that has to speed up first is late for the first packets of every burst.",
};

pub(crate) static STEAL: Entry = Entry {
    name: "steal",
    area: Area::Host,
    by: By::Hand,
    rule: "below 1 %",
    why: "Time that the host of a virtual machine takes away is time in which packets wait and \
          rings overflow, and nothing inside the machine can mend it.",
};

pub(crate) static IRQBALANCE: Entry = Entry {
    name: "irqbalance",
    area: Area::Host,
    by: By::Hand,
    rule: "not running, or kept away from the card's interrupts",
    why: "irqbalance moves interrupts between processors every few seconds, and undoes the \
          affinity that is set here.",
};

/// Hundredths of a per cent of time stolen, from which it is worth telling.
const STEAL_TOLD: u64 = 100;

pub(crate) fn look(host: &Host) -> Vec<Item> {
    vec![governor(host), steal(host), irqbalance(host)]
}

fn governor(host: &Host) -> Item {
    let governors = host.cpus().into_iter().filter_map(|cpu| {
        let path = format!("/sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor");
        host.read(&path).ok()
    });
    let mut governors: Vec<String> = governors.collect();
    governors.sort();
    governors.dedup();
    if governors.is_empty() {
        let reason = "the frequency is not for this system to choose (usual in virtual machines)";
        return Item::cannot(&GOVERNOR, "", reason);
    }
    let now = governors.join(", ");
    if now == "performance" {
        return Item::good(&GOVERNOR, now);
    }
    let how = "costs power; lasts until the next start".to_owned();
    let commands = vec!["cpupower frequency-set -g performance".to_owned()];
    Item::new(&GOVERNOR, now, Verdict::ByHand { advised: "performance".to_owned(), how, commands })
}

fn steal(host: &Host) -> Item {
    let text = host.read("/proc/stat").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("cpu "));
    let times = line.into_iter().flat_map(str::split_whitespace);
    // The ninth and tenth are guests' time, which the first two hold already (proc_stat(5)).
    let times: Vec<u64> = times.take(8).filter_map(|time| time.parse().ok()).collect();
    let &[.., stolen] = times.as_slice() else {
        return Item::cannot(&STEAL, "", "the kernel does not show how time was spent");
    };
    let share = stolen.saturating_mul(10_000) / times.iter().sum::<u64>().max(1);
    let now = format!("{}.{:02} % since the start", share / 100, share % 100);
    if times.len() < 8 || share < STEAL_TOLD {
        return Item::good(&STEAL, now);
    }
    let how = "ask for processors of your own (dedicated or pinned) where the machine is hosted";
    let (advised, how) = ("below 1 %".to_owned(), how.to_owned());
    let verdict = Verdict::ByHand { advised, how, commands: Vec::new() };
    Item::new(&STEAL, now, verdict)
}

fn irqbalance(host: &Host) -> Item {
    if !host.runs("irqbalance") {
        return Item::good(&IRQBALANCE, "not running");
    }
    let how = "or keep it away from the card's interrupts with --banirq (irqbalance(1))".to_owned();
    let commands = vec!["systemctl disable --now irqbalance".to_owned()];
    let verdict = Verdict::ByHand { advised: "not running".to_owned(), how, commands };
    Item::new(&IRQBALANCE, "running", verdict)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Fake;

    #[test]
    fn governors_are_told() {
        let fake = Fake::new();
        fake.put("/sys/devices/system/cpu/online", "0-1");
        assert!(matches!(governor(fake.host()).verdict, Verdict::Cannot { .. }));
        let path = |cpu| format!("/sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor");
        fake.put(&path(0), "performance");
        fake.put(&path(1), "performance");
        assert_eq!(governor(fake.host()).verdict, Verdict::Good);
        fake.put(&path(1), "powersave");
        let item = governor(fake.host());
        assert_eq!(item.now, "performance, powersave");
        assert!(matches!(item.verdict, Verdict::ByHand { .. }));
    }

    #[test]
    fn stolen_time_is_a_share_of_all_time() {
        let fake = Fake::new();
        fake.put("/proc/stat", "cpu  700 0 100 190 0 0 0 10 0 0\ncpu0 1 2 3\n");
        let item = steal(fake.host());
        assert_eq!(item.now, "1.00 % since the start");
        assert!(matches!(item.verdict, Verdict::ByHand { .. }));
        fake.put("/proc/stat", "cpu  700 0 100 191 0 0 0 9 500 0\n");
        assert_eq!(steal(fake.host()).verdict, Verdict::Good);
    }

    #[test]
    fn irqbalance_is_found_by_its_name() {
        let fake = Fake::new();
        fake.put("/proc/17/comm", "bash\n");
        assert_eq!(irqbalance(fake.host()).verdict, Verdict::Good);
        fake.put("/proc/18/comm", "irqbalance\n");
        assert!(matches!(irqbalance(fake.host()).verdict, Verdict::ByHand { .. }));
    }
}
