//! Pinning the work of a link to the cores of the host at its end.
//!
//! A virtual link has no card and no interrupts: by default packets are received on the core that
//! sent them, and a server would be measured with half of its work done by the clients' core. So
//! each end receives as the driver of a card does: in a kernel thread (threaded NAPI) that is
//! pinned to the host's core and, like an interrupt, runs before programs.
//!
//! Cards moderate interrupts under load, and drivers coalesce packets (GRO); so do these ends. GSO
//! packets of clients and peer are segmented before the link, so that packets arrive one by one as
//! from a wire. Those of the server cross whole to sockets, as to a card that segments; XDP
//! programs accept only single packets, so before them the server's link segments, at the server's
//! cost, as in front of a card that cannot.

use std::fs;

use anyhow::{Context as _, bail};

use super::Network;
use crate::compare::host::Host;
use crate::traffic::Backend;

/// Wait of an end for further packets after it took all that had arrived, in nanoseconds, where
/// packets are sent one by one: 20 000 interrupts per second, to which drivers of common cards
/// limit themselves. Packets that might be followed by others to be merged with wait that long too.
const MODERATION_NS: u32 = 50_000;

/// Makes an end work as described above, on the cores of its host.
pub(super) fn steer(
    network: &Network,
    host: Host,
    end: &str,
    backend: Backend,
) -> anyhow::Result<()> {
    // Packets of local programs take the way of a driver only where TCP segmentation is off: who
    // sends by TCP has its segments cut by the stack, as in front of a card that cannot, which is
    // the same for all servers.
    let cut = match host {
        Host::Client | Host::Peer => " tx-udp-segmentation off",
        Host::Server => "",
    };
    network
        .shell(host, &format!("ethtool -K {end} tso off{cut} gro on"))
        .context("ethtool (Debian's package ethtool has it)")?;
    let (moderation, defer) = match (backend, host) {
        // They come in clumps, as from a card that held its interrupt back.
        (Backend::Frames, Host::Server) => (0, 0),
        // An end that has nothing to do would be woken by every packet, at the cost of the core
        // that sent it: four tenths of what a server needs for one. A card has nobody to be woken.
        (Backend::Frames, Host::Client | Host::Peer) | (Backend::Sockets, _) => (MODERATION_NS, 1),
    };
    let class = format!("/sys/class/net/{end}");
    network
        .shell(
            host,
            &format!(
                "echo {moderation} >{class}/gro_flush_timeout; \
             echo {defer} >{class}/napi_defer_hard_irqs; echo 1 >{class}/threaded"
            ),
        )
        .context("the kernel's threads for links (Linux 5.12 or newer has them)")?;

    let threads = threads_of(end);
    if threads.is_empty() {
        bail!("the kernel's threads for {end} cannot be seen: run outside of a container");
    }
    for (thread, core) in threads.into_iter().zip(network.cores().of(host).iter().cycle()) {
        lab_net::pin_thread(thread, *core).context("keeping a thread on its core")?;
        lab_net::run_first(thread).context("letting a thread run first")?;
    }
    Ok(())
}

/// The kernel's threads that take packets from an interface, in the order of its queues.
fn threads_of(end: &str) -> Vec<u32> {
    let prefix = format!("napi/{end}-");
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut threads: Vec<u32> = processes
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|id| {
            fs::read_to_string(format!("/proc/{id}/comm")).is_ok_and(|name| {
                // Kernels before 5.17 show 15 bytes.
                let name = name.trim_end();
                name.starts_with(&prefix) || (name.len() == 15 && prefix.starts_with(name))
            })
        })
        .collect();
    threads.sort_unstable();
    threads
}
