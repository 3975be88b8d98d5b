//! Every item there is: what it is called, what it is for, and who sets it. The items' files hold
//! their entries; this is the list.

use crate::entry::Entry;
use crate::items::{backlog, irq, steering};
use crate::items::{buffers, coalescing, conntrack, files, offloads, ports, processors, queues};

/// Every item, in the order in which they are shown and set.
pub const ALL: [&Entry; 37] = [
    &buffers::RMEM_MAX,
    &buffers::WMEM_MAX,
    &buffers::RMEM_DEFAULT,
    &buffers::UDP_MEM,
    &backlog::MAX_BACKLOG,
    &backlog::BUDGET,
    &backlog::BUDGET_USECS,
    &backlog::FLOW_ENTRIES,
    &ports::RESERVED,
    &ports::RANGE,
    &conntrack::MAX,
    &conntrack::BUCKETS,
    &conntrack::UDP_TIMEOUT,
    &conntrack::STREAM_TIMEOUT,
    &conntrack::NOTRACK,
    &files::FILE_MAX,
    &files::NR_OPEN,
    &files::OPEN_FILES,
    &processors::GOVERNOR,
    &processors::STEAL,
    &processors::IRQBALANCE,
    &queues::CHANNELS,
    &queues::RX_RING,
    &queues::TX_RING,
    &coalescing::ADAPTIVE,
    &offloads::GRO,
    &offloads::GSO,
    &offloads::UDP_SEGMENTATION,
    &offloads::RX_CHECKSUMS,
    &offloads::TX_CHECKSUMS,
    &offloads::GRO_FORWARDING,
    &offloads::GRO_LIST,
    &irq::AFFINITY,
    &steering::RPS,
    &steering::RFS,
    &steering::XPS,
    &queues::TX_QUEUE_LENGTH,
];

/// The entry of this name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Entry> {
    ALL.into_iter().find(|entry| entry.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_sentences_are_sentences() {
        for (i, entry) in ALL.iter().enumerate() {
            assert!(ALL[..i].iter().all(|other| other.name != entry.name), "{}", entry.name);
            assert!(entry.why.ends_with('.') && !entry.why.contains('\n'), "{}", entry.name);
            assert_eq!(find(entry.name), Some(*entry));
        }
    }
}
