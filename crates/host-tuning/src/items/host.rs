//! Open files and processors.

use std::collections::BTreeSet;

use super::Wants;
use crate::host::Host;
use crate::item::{Looked, by_hand, cannot, good};

/// Stolen time that is reported, in hundredths of a per cent.
const STEAL_REPORTED: u64 = 100;

/// The limit of this process, which a server started from here would have.
pub(crate) fn open_files(host: &Host, wants: &Wants) -> Looked {
    let limits = host.read("/proc/self/limits").unwrap_or_default();
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"));
    let Some(hard) = line.and_then(|line| line.split_whitespace().nth(1)) else {
        return Err(cannot("", "the kernel does not show this process's limits"));
    };
    let (now, wanted) = (format!("{hard} (hard limit)"), wants.files);
    if hard == "unlimited" || hard.parse::<u64>().is_ok_and(|hard| hard >= wanted) {
        return Ok(good(now));
    }
    let how = format!(
        "LimitNOFILE={wanted} under [Service] of the server's systemd unit; for a login \
         `* hard nofile {wanted}` in /etc/security/limits.conf"
    );
    Ok(by_hand(now, &wanted.to_string(), &how, &[]))
}

pub(crate) fn governor(host: &Host, _: &Wants) -> Looked {
    let governors = host.cpus().into_iter().filter_map(|cpu| {
        let path = format!("/sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor");
        host.read(&path).ok()
    });
    let governors: BTreeSet<String> = governors.collect();
    if governors.is_empty() {
        let reason = "this system does not control the frequency (usual in virtual machines)";
        return Err(cannot("", reason));
    }
    let now = Vec::from_iter(governors).join(", ");
    if now == "performance" {
        return Ok(good(now));
    }
    let commands = ["cpupower frequency-set -g performance".to_owned()];
    Ok(by_hand(now, "performance", "costs power; lasts until the next start", &commands))
}

pub(crate) fn steal(host: &Host, _: &Wants) -> Looked {
    let text = host.read("/proc/stat").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("cpu "));
    let times = line.into_iter().flat_map(str::split_whitespace);
    // The ninth and tenth are guests' time, which is part of the first two (proc_stat(5)).
    let times: Vec<u64> = times.take(8).filter_map(|time| time.parse().ok()).collect();
    let &[.., stolen] = times.as_slice() else {
        return Err(cannot("", "the kernel does not show processor times"));
    };
    let share = stolen.saturating_mul(10_000) / times.iter().sum::<u64>().max(1);
    let now = format!("{}.{:02} % since the start", share / 100, share % 100);
    if times.len() < 8 || share < STEAL_REPORTED {
        return Ok(good(now));
    }
    let how = "ask for processors of your own (dedicated or pinned) where the machine is hosted";
    Ok(by_hand(now, "below 1 %", how, &[]))
}

pub(crate) fn irqbalance(host: &Host, _: &Wants) -> Looked {
    if !host.runs("irqbalance") {
        return Ok(good("not running"));
    }
    let how = "or keep it away from the card's interrupts with --banirq (irqbalance(1))";
    let commands = ["systemctl disable --now irqbalance".to_owned()];
    Ok(by_hand("running", "not running", how, &commands))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::item::Verdict;
    use crate::testing::{Fake, wants};

    fn is_by_hand(looked: Looked) -> bool {
        matches!(looked.unwrap().verdict, Verdict::ByHand { .. })
    }

    #[test]
    fn a_small_limit_is_reported_with_the_line_for_systemd() {
        let fake = Fake::new();
        let look = |hard: &str| {
            let line = "Max open files            1024                 HARD               files\n";
            let text = format!("Limit  Soft Limit  Hard Limit  Units\n{line}");
            fake.put("/proc/self/limits", &text.replace("HARD", hard));
            open_files(fake.host(), &wants()).unwrap().verdict
        };
        assert_eq!(look("16640"), Verdict::Good);
        assert_eq!(look("unlimited"), Verdict::Good);
        let Verdict::ByHand { how, .. } = look("4096") else { panic!("too few") };
        assert!(how.contains("LimitNOFILE=16640"), "{how}");
    }

    #[test]
    fn governors_are_reported() {
        let fake = Fake::new();
        fake.put("/sys/devices/system/cpu/online", "0-1");
        assert!(governor(fake.host(), &wants()).is_err());
        let path = |cpu| format!("/sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor");
        fake.put(&path(0), "performance");
        fake.put(&path(1), "performance");
        assert_eq!(governor(fake.host(), &wants()).unwrap(), good("performance"));
        fake.put(&path(1), "powersave");
        let found = governor(fake.host(), &wants());
        assert_eq!(found.clone().unwrap().now, "performance, powersave");
        assert!(is_by_hand(found));
    }

    #[test]
    fn stolen_time_is_a_share_of_all_time() {
        let fake = Fake::new();
        fake.put("/proc/stat", "cpu  700 0 100 190 0 0 0 10 0 0\ncpu0 1 2 3\n");
        let found = steal(fake.host(), &wants());
        assert_eq!(found.clone().unwrap().now, "1.00 % since the start");
        assert!(is_by_hand(found));
        fake.put("/proc/stat", "cpu  700 0 100 191 0 0 0 9 500 0\n");
        assert!(!is_by_hand(steal(fake.host(), &wants())));
    }

    #[test]
    fn irqbalance_is_found_by_its_name() {
        let fake = Fake::new();
        fake.put("/proc/17/comm", "bash\n");
        assert!(!is_by_hand(irqbalance(fake.host(), &wants())));
        fake.put("/proc/18/comm", "irqbalance\n");
        assert!(is_by_hand(irqbalance(fake.host(), &wants())));
    }
}
