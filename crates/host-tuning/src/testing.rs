//! A host of a test's own: a directory for `/`, and a script for `ethtool` that keeps its values in
//! files.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::host::Host;
use crate::item::{Looked, Verdict};
use crate::items::Wants;
use crate::state::State;
use crate::survey::Item;

/// Answers as ethtool does, from files named for the values in a directory named for the card.
const ETHTOOL: &str = r#"#!/bin/sh
here=$(dirname "$0")/cards/$2
[ -d "$here" ] || { echo "netlink error: No such device" >&2; exit 1; }
of() { cat "$here/$1" 2>/dev/null || echo "$2"; }
case $1 in
-l) [ -e "$here/channels" ] && exec cat "$here/channels"
    printf 'Channel parameters for %s:\nPre-set maximums:\nRX:\t\tn/a\nCombined:\t8\n' "$2"
    printf 'Current hardware settings:\nRX:\t\tn/a\nCombined:\t%s\n' "$(of combined 1)" ;;
-g) printf 'Ring parameters for %s:\nPre-set maximums:\nRX:\t\t4096\nTX:\t\t4096\n' "$2"
    printf 'Current hardware settings:\nRX:\t\t%s\nTX:\t\t%s\n' "$(of rx-ring 256)" "$(of tx-ring 256)" ;;
-c) printf 'Adaptive RX: %s  TX: n/a\nrx-usecs: %s\n' "$(of adaptive-rx off)" "$(of rx-usecs 0)" ;;
-k) for name in rx-checksumming tx-checksumming tx-udp-segmentation rx-udp-gro-forwarding rx-gro-list
    do printf '%s: %s\n' $name "$(of $name off)"; done
    printf 'generic-segmentation-offload: %s\n' "$(of gso on)"
    printf 'generic-receive-offload: %s\n' "$(of gro off)" ;;
-L) echo "$4" >"$here/combined" ;;
-G) [ -e "$here/rounds" ] && [ "$3" = rx ] && set -- "$1" "$2" "$3" "$(cat "$here/rounds")"
    echo "$4" >"$here/$3-ring" ;;
-C) echo "$4" >"$here/$3" ;;
-K) [ "$(of refuse none)" = "$3" ] && { echo "Could not change any device features" >&2; exit 1; }
    case $3 in rx|tx) echo "$4" >"$here/$3-checksumming" ;; *) echo "$4" >"$here/$3" ;; esac ;;
*) echo "ethtool: bad command line argument(s)" >&2; exit 1 ;;
esac
"#;

/// A host of a test's own, gone when the test is.
pub(crate) struct Fake {
    directory: PathBuf,
    host: Host,
}

impl Fake {
    /// A host with nothing in it.
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("turnpike-tuning-{}-{next}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir_all(directory.join("root")).unwrap();
        fs::create_dir_all(directory.join("cards")).unwrap();
        let ethtool = directory.join("ethtool");
        fs::write(&ethtool, ETHTOOL).unwrap();
        fs::set_permissions(&ethtool, fs::Permissions::from_mode(0o755)).unwrap();
        let host = Host::at(&directory.join("root"), &ethtool);
        let fake = Self { directory, host };
        fake.put("/proc/sys/kernel/random/boot_id", "first");
        fake.link("/proc/self/ns/net", "net:[1]");
        fake
    }

    /// A host with two processors and one card, whose values are Linux's defaults.
    pub(crate) fn whole() -> Self {
        let fake = Self::new();
        for (name, value) in [
            ("net/core/rmem_max", "212992"),
            ("net/core/wmem_max", "212992"),
            ("net/core/rmem_default", "212992"),
            ("net/core/netdev_max_backlog", "1000"),
            ("net/core/netdev_budget", "300"),
            ("net/core/netdev_budget_usecs", "2000"),
            ("net/core/rps_sock_flow_entries", "0"),
            ("net/ipv4/udp_mem", "100\t200\t300"),
            ("net/ipv4/ip_local_port_range", "32768\t60999"),
            ("net/ipv4/ip_local_reserved_ports", ""),
            ("net/netfilter/nf_conntrack_count", "7"),
            ("net/netfilter/nf_conntrack_max", "32768"),
            ("net/netfilter/nf_conntrack_buckets", "8192"),
            ("net/netfilter/nf_conntrack_udp_timeout", "30"),
            ("net/netfilter/nf_conntrack_udp_timeout_stream", "120"),
            ("fs/file-max", "16000"),
            ("fs/nr_open", "1048576"),
        ] {
            fake.put(&format!("/proc/sys/{name}"), &format!("{value}\n"));
        }
        fake.put("/proc/meminfo", "MemTotal:       16000000 kB\n");
        fake.put("/proc/stat", "cpu  700 0 100 200 0 0 0 0 0 0\n");
        fake.put("/sys/devices/system/cpu/online", "0-1\n");
        let route = "Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT\n\
                     eth0 00000000 010200C0 0003 0 0 0 00000000 0 0 0\n";
        fake.put("/proc/net/route", route);
        fake.card("eth0");
        let directory = "/sys/class/net/eth0";
        fake.put(&format!("{directory}/tx_queue_len"), "500\n");
        fake.put(&format!("{directory}/queues/rx-0/rps_cpus"), "0\n");
        fake.put(&format!("{directory}/queues/rx-0/rps_flow_cnt"), "0\n");
        for queue in 0..2 {
            fake.put(&format!("{directory}/queues/tx-{queue}/xps_cpus"), "0\n");
        }
        let mut interrupts = "     CPU0  CPU1\n".to_owned();
        for (irq, queue) in [(40, 0), (41, 1)] {
            fake.put(&format!("/proc/irq/{irq}/smp_affinity_list"), "0\n");
            interrupts.push_str(&format!(" {irq}:  1  2  PCI-MSI  0-edge  eth0-TxRx-{queue}\n"));
        }
        fake.put("/proc/interrupts", &interrupts);
        fake
    }

    pub(crate) fn host(&self) -> &Host {
        &self.host
    }

    /// Writes a file of the host, with the directories it is in.
    pub(crate) fn put(&self, path: &str, text: &str) {
        let path = self.host.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Puts a symbolic link in place.
    pub(crate) fn link(&self, path: &str, target: &str) {
        let path = self.host.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let _ = fs::remove_file(&path);
        symlink(target, path).unwrap();
    }

    /// Removes all write permissions of a file.
    pub(crate) fn read_only(&self, path: &str) {
        fs::set_permissions(self.host.path(path), fs::Permissions::from_mode(0o444)).unwrap();
    }

    /// Removes a directory of the host.
    pub(crate) fn remove(&self, path: &str) {
        fs::remove_dir_all(self.host.path(path)).unwrap();
    }

    /// Adds a card without queues.
    pub(crate) fn card(&self, name: &str) {
        self.put(&format!("/sys/class/net/{name}/flags"), "0x1003\n");
        self.put(&format!("/sys/class/net/{name}/device/vendor"), "0x1af4\n");
        fs::create_dir_all(self.directory.join("cards").join(name)).unwrap();
    }

    /// Takes a card away from `ethtool`.
    pub(crate) fn remove_card(&self, name: &str) {
        fs::remove_dir_all(self.directory.join("cards").join(name)).unwrap();
    }

    /// Sets a value of the fake `ethtool`.
    pub(crate) fn set(&self, card: &str, value: &str, to: &str) {
        fs::write(self.directory.join("cards").join(card).join(value), to).unwrap();
    }

    pub(crate) fn state_path(&self) -> PathBuf {
        self.directory.join("state/tune.json")
    }

    pub(crate) fn state(&self) -> State {
        State::open(&self.state_path(), &self.host).unwrap()
    }

    /// Every value of the host, as `check` sees it.
    pub(crate) fn snapshot(&self) -> BTreeMap<PathBuf, String> {
        let mut files = BTreeMap::new();
        collect(&self.host.path("/"), &mut files);
        let shown = ["-l", "-g", "-c", "-k"].map(|flag| {
            let answer = self.host.ethtool(&[flag, "eth0"]);
            (PathBuf::from(flag), answer.unwrap_or_default())
        });
        files.extend(shown);
        files
    }
}

fn collect(directory: &Path, files: &mut BTreeMap<PathBuf, String>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, files);
        } else if let Ok(text) = fs::read_to_string(&path) {
            let words: Vec<&str> = text.split_whitespace().collect();
            files.insert(path, words.join(" "));
        }
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// A server with two workers and the default ports.
pub(crate) fn wants() -> Wants {
    Wants {
        receive_buffer: 4 << 20,
        send_buffer: 4 << 20,
        relay_ports: (49_152, 65_535),
        listen_ports: vec![3478],
        workers: 2,
        relayed: 16_384,
        files: 16_640,
    }
}

/// An item or the outcome of a look.
pub(crate) trait Advice {
    fn verdict(self) -> Verdict;
}

impl Advice for Looked {
    fn verdict(self) -> Verdict {
        let (Ok(found) | Err(found)) = self;
        found.verdict
    }
}

impl Advice for &Item {
    fn verdict(self) -> Verdict {
        self.verdict.clone()
    }
}

/// The value that `apply` would set, if any.
pub(crate) fn advised(advice: impl Advice) -> Option<String> {
    match advice.verdict() {
        Verdict::Change { advised, .. } => Some(advised),
        Verdict::Good | Verdict::ByHand { .. } | Verdict::Cannot { .. } => None,
    }
}
