//! The kernel path.

use control::{KernelPathTotals, OffloadInfo, OffloadWatch};

use super::Metric;

pub(super) fn metrics(
    path: &OffloadInfo,
    watch: Option<&dyn OffloadWatch>,
    totals: &KernelPathTotals,
) -> Vec<Metric> {
    let mut metrics = vec![
        Metric::gauge(
            "turnpike_kernel_channels_max",
            "Channels that the kernel path may relay at once",
        )
        .with(path.flows_max.into()),
        Metric::gauge("turnpike_kernel_path_memory_bytes", "Kernel memory of the kernel path")
            .with(path.memory_bytes),
    ];
    let Some(watch) = watch else { return metrics };
    let mut interfaces = Metric::gauge(
        "turnpike_kernel_path_interface",
        "1 for each interface, by hook: xdp, xdp-generic, tc, or none where the program is not attached",
    );
    for interface in watch.interfaces() {
        let hook = interface.hook.as_deref().unwrap_or("none");
        interfaces = interfaces.labelled([("interface", &interface.name), ("hook", hook)], 1);
    }
    let mut passed = Metric::counter(
        "turnpike_kernel_path_passed",
        "Packets of channels in the kernel that it left to the sockets, by reason",
    );
    for (reason, count) in &totals.passed {
        passed = passed.labelled([("reason", reason)], *count);
    }
    let partial = Metric::counter(
        "turnpike_kernel_path_partial_checksums",
        "Packets that the kernel path took from senders on the same machine, with partial checksums",
    )
    .with(totals.partial_checksums);
    metrics.extend([interfaces, passed, partial]);
    metrics.extend(totals.redirects_lost.map(|lost| {
        Metric::counter(
            "turnpike_kernel_path_redirects_lost",
            "Frames that XDP redirected and that did not leave, of all programs of the host",
        )
        .with(lost)
    }));
    metrics
}
