//! The table of items.

use crate::entry::By::{Hand, Us};
use crate::entry::Entry;
use crate::entry::Look::{self, AtLeast, Card, Feature, Interface, NoFeature, Shown, Tracked};
use crate::items::{coalescing, conntrack, host, irq, queues, steering, sysctl};
use crate::ranges;
use crate::setting::{EthtoolValue, Setting, is_interface};

/// Channels of a card: set before the others, since they make queues and interrupts.
pub(crate) const CHANNELS: &str = "channels";

macro_rules! entries {
    ($($name:literal $by:ident $look:expr; $rule:literal; $why:literal)*) => {
        &[$(Entry { name: $name, by: $by, rule: $rule, why: $why, look: $look }),*]
    };
}

/// All items, in the order in which they are shown and set.
pub static ALL: &[Entry] = entries! {
    "net.core.rmem_max" Us AtLeast(|_, wants| wants.receive_buffer);
        "at least sockets.receive_buffer";
        "Without CAP_NET_ADMIN the server is granted no larger receive buffer than this, and a burst beyond it is lost."
    "net.core.wmem_max" Us AtLeast(|_, wants| wants.send_buffer);
        "at least sockets.send_buffer";
        "Without CAP_NET_ADMIN the server is granted no larger send buffer than this, and a batch beyond it is cut short."
    "net.core.rmem_default" Hand Shown;
        "any";
        "Turnpike sets the size of each buffer, so the default is for other programs only."
    "net.ipv4.udp_mem" Us Look::Host(sysctl::udp_mem);
        "third number: room for every listener's full receive buffer and 16 full relay sockets per worker, within a quarter of the memory";
        "Past the third number (in pages, for all UDP sockets together) the kernel drops packets even if a socket's own buffer has room."
    // 8 ms at a million packets a second: a whole softirq round
    "net.core.netdev_max_backlog" Us AtLeast(|_, _| 8192);
        "at least 8192";
        "Packets that RPS moves to another processor, and all packets of virtual interfaces, wait in this queue; 8192 are 8 ms at a million packets a second."
    "net.core.netdev_budget" Us AtLeast(|_, _| 600); // twice the default
        "at least 600";
        "This is the number of packets in one softirq round; at high rates the default of 300 ends rounds while the card's ring fills."
    // two ticks of a kernel with 250 a second
    "net.core.netdev_budget_usecs" Us AtLeast(|_, _| 8000);
        "at least 8000";
        "A softirq round ends after this time too; the default is two ticks of the kernel's clock, 2 ms on many kernels."
    "net.core.rps_sock_flow_entries" Hand Shown;
        "any";
        "This table steers packets to the processor that last read a connected socket, and Turnpike's sockets are not connected: it has no effect."
    "net.ipv4.ip_local_reserved_ports" Us Look::Host(sysctl::reserved_ports);
        "the ports reserved now, and the relay ports and listeners";
        "Reserved ports are not assigned to programs that bind any port, so that none of them takes a relay port; binding one by number still works."
    "net.ipv4.ip_local_port_range" Hand Look::Host(sysctl::port_range);
        "at least 8192 ports of it outside the relay ports";
        "Programs that bind any port get one of this range, less the reserved ones, and connections fail when none is left."
    "net.netfilter.nf_conntrack_max" Us Tracked(Some(conntrack::flows));
        "at least 4 per relayed address that may be live";
        "Each call is several flows in the connection table, and when it is full the kernel drops the packets of new ones."
    "net.netfilter.nf_conntrack_buckets" Us Tracked(Some(conntrack::buckets));
        "at least a quarter of nf_conntrack_max";
        "With more than a few flows in each bucket the lookup of every packet walks a long list."
    "net.netfilter.nf_conntrack_udp_timeout" Hand Tracked(None);
        "any";
        "It is for flows without an answer, and a short one is right: a flood of them leaves the table soon."
    "net.netfilter.nf_conntrack_udp_timeout_stream" Us Tracked(Some(|_, _| conntrack::PERMISSION_SECONDS));
        "at least 300 (seconds)";
        "A permission lasts 300 seconds (RFC 8656 section 9), and a stateful firewall with the default of 120 forgets a quiet peer sooner."
    "notrack" Hand Look::Host(conntrack::notrack);
        "no connection tracking for the relay ports and listeners";
        "Turnpike has its own table of permissions, and the kernel's costs a lookup per packet and an entry per flow."
    "fs.file-max" Us AtLeast(|_, wants| wants.files.saturating_mul(2));
        "at least twice the open files of the server";
        "It bounds the open files of the whole machine, and each relayed address is one."
    "fs.nr_open" Us AtLeast(|_, wants| wants.files);
        "at least the open files of the server";
        "No process can be granted more open files than this, whatever its own limit is."
    "open-files" Hand Look::Host(host::open_files);
        "a hard limit of at least the open files of the server";
        "The server raises its own limit of open files as far as the hard limit, and an allocation beyond it is refused."
    "governor" Hand Look::Host(host::governor);
        "performance";
        "A processor that has to speed up first is late for the first packets of every burst."
    "steal" Hand Look::Host(host::steal);
        "below 1 %";
        "While the hypervisor runs something else packets wait and rings overflow, and nothing inside the virtual machine can change that."
    "irqbalance" Hand Look::Host(host::irqbalance);
        "not running, or kept away from the card's interrupts";
        "irqbalance moves interrupts between processors every few seconds, and undoes the affinity that is set here."
    "channels" Us Card(queues::channels);
        "as many as there are processors, as far as the card has them";
        "The card spreads flows over its channels, and each can be served by a processor of its own (on some cards the link goes down for a second while this changes)."
    "rx-ring" Us Card(|_, interface| queues::ring(interface, EthtoolValue::RxRing, queues::RX_RING_LEAST));
        "at least 4096, as far as the card has it";
        "Packets wait in the ring until a processor fetches them, and those that arrive while it is full are lost."
    "tx-ring" Us Card(|_, interface| queues::ring(interface, EthtoolValue::TxRing, queues::TX_RING_LEAST));
        "at least 1024, as far as the card has it";
        "A batch of the relay is some hundred packets, and the ring should hold several of them."
    "coalescing" Us Card(coalescing::look);
        "adaptive, or rx-usecs of 10 and more";
        "Packets that are fetched together can be joined (GRO) and cost a fraction each, and an interrupt for every packet leaves nothing to join."
    "gro" Us Feature(EthtoolValue::Gro);
        "on";
        "Packets of one flow that are fetched together pass the kernel once instead of once each, and Turnpike receives them joined."
    "gso" Us Feature(EthtoolValue::Gso);
        "on";
        "A send of several packets stays in one piece down to the driver."
    "tx-udp-segmentation" Us Feature(EthtoolValue::UdpSegmentation);
        "on, where the card can";
        "The card cuts a send of several packets into packets; otherwise the kernel does."
    "rx-checksumming" Us Feature(EthtoolValue::RxChecksums);
        "on, where the card can";
        "Without it the kernel reads every byte of every packet to verify its checksum."
    "tx-checksumming" Us Feature(EthtoolValue::TxChecksums);
        "on, where the card can";
        "Without it the kernel reads every byte of every packet to write its checksum, and GSO is of less use."
    "rx-udp-gro-forwarding" Hand NoFeature;
        "off";
        "It joins packets for sockets that did not ask for it, which the kernel then cuts apart again; Turnpike's sockets ask."
    "rx-gro-list" Hand NoFeature;
        "off";
        "It joins packets as lists for forwarding, which the kernel cuts apart again in front of a socket."
    "irq-affinity" Us Card(irq::look);
        "the interrupts of each queue to a processor of their own, evenly";
        "Queues that interrupt the same processor are received by that one alone, and the others idle."
    "rps" Us Interface(steering::rps);
        "all processors, where there are fewer receive queues than processors";
        "With fewer receive queues than processors some of them would receive nothing; RPS spreads flows over all."
    "rps-flow-cnt" Hand Interface(steering::flows);
        "any";
        "It is for net.core.rps_sock_flow_entries, which is of no use to Turnpike's sockets: they are not connected."
    "xps" Us Card(steering::xps);
        "the processors divided among the transmit queues";
        "Each processor sends by a queue of its own, and waits for no other's lock."
    "txqueuelen" Us Interface(queues::tx_queue_length);
        "at least 1000";
        "Packets that the ring has no room for wait here, and beyond it they are dropped."
};

/// The entry of this name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Entry> {
    ALL.iter().find(|entry| entry.name == name)
}

impl Setting {
    /// Returns whether this crate sets it, and may set it to `value`: the check of all that is read
    /// from a state file.
    pub(crate) fn allows(&self, value: &str) -> bool {
        let plain =
            value.bytes().all(|byte| byte.is_ascii_alphanumeric() || b" ,-".contains(&byte));
        plain
            && match self {
                Self::Sysctl { name } => {
                    name.contains('.') && find(name).is_some_and(|entry| entry.by == Us)
                }
                Self::IrqAffinity { .. } => ranges::parse(value, ranges::CPUS).is_some(),
                Self::Queue { interface, queue, .. } => {
                    let number = queue.strip_prefix("rx-").or_else(|| queue.strip_prefix("tx-"));
                    is_interface(interface)
                        && number.is_some_and(|number| number.parse::<u16>().is_ok())
                        && ranges::parse_mask(value).is_some()
                }
                Self::TxQueueLength { interface } => {
                    is_interface(interface) && value.parse::<u32>().is_ok()
                }
                Self::Ethtool { interface, value: kind } => {
                    is_interface(interface) && kind.is_value(value)
                }
            }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::setting::QueueFile;

    #[test]
    fn names_are_unique_and_sentences_are_sentences() {
        for (i, entry) in ALL.iter().enumerate() {
            assert!(ALL[..i].iter().all(|other| other.name != entry.name), "{}", entry.name);
            assert!(entry.why.ends_with('.') && !entry.why.contains('\n'), "{}", entry.name);
        }
        assert!(find(CHANNELS).is_some());
    }

    #[test]
    fn only_settings_of_this_crate_are_allowed() {
        let queue = |interface: &str, queue: &str| Setting::Queue {
            interface: interface.into(),
            queue: queue.into(),
            file: QueueFile::RpsCpus,
        };
        let length = |interface: &str| Setting::TxQueueLength { interface: interface.into() };
        for (allowed, setting, value) in [
            (true, Setting::sysctl("net.core.rmem_max"), "4194304"),
            (true, Setting::sysctl("net.ipv4.ip_local_reserved_ports"), ""),
            (true, Setting::sysctl("net.ipv4.ip_local_reserved_ports"), "8080,49152-65535"),
            (true, Setting::IrqAffinity { irq: 38 }, "0-1"),
            (true, queue("eth0", "rx-0"), "3"),
            (true, length("enp3s0f0np0"), "1000"),
            (false, Setting::sysctl("kernel.core_pattern"), "x"),
            (false, Setting::sysctl("net/../kernel.core_pattern"), "x"),
            (false, Setting::sysctl("net.ipv4.ip_local_port_range"), "1 2"),
            (false, Setting::sysctl("gro"), "on"),
            (false, Setting::sysctl("net.core.rmem_max"), "1\n2"),
            (false, Setting::IrqAffinity { irq: 38 }, "|x"),
            (false, queue("../../x", "rx-0"), "3"),
            (false, queue("eth0", "rx-0/../../.."), "3"),
            (false, queue("eth0", "rx-0"), "mask"),
            (false, length(".."), "1"),
            (false, length("-i"), "1"),
            (false, length("a-name-too-long0"), "1"),
            (false, length("eth0"), "on"),
        ] {
            assert_eq!(setting.allows(value), allowed, "{setting:?} {value}");
        }
    }
}
