//! Results as text: Markdown tables for many figures, plain lines for a single run.

mod compare;
mod lab;
mod programs;
mod requests;
mod summary;
mod traffic;
mod units;

use std::fmt::Write as _;
use std::time::Duration;

use comfy_table::Table;
use comfy_table::presets::ASCII_MARKDOWN;

use crate::outcome::{Footprint, Outcome, ProcessMemory, Used};
pub(crate) use summary::summary;

/// A result for a terminal, without a line break at the end.
#[must_use]
pub fn of(outcome: &Outcome) -> String {
    let text = match outcome {
        Outcome::Traffic(traffic) => traffic::traffic(traffic),
        Outcome::FindMax(found) => traffic::find_max(found),
        Outcome::Requests(run) => requests::requests(run),
        Outcome::Hostile(hostile) => requests::hostile(hostile),
        Outcome::Footprint(run) => footprint(run),
        Outcome::Compare(run) => compare::compare(run),
        Outcome::Lab(run) => lab::lab(run),
        Outcome::Programs(run) => programs::programs(run),
    };
    text.trim_end().to_owned()
}

/// A result as Markdown: plain lines become a code block.
#[must_use]
pub fn markdown(outcome: &Outcome) -> String {
    let text = of(outcome);
    match outcome {
        Outcome::Compare(_) | Outcome::Lab(_) | Outcome::Programs(_) => format!("{text}\n\n"),
        Outcome::Traffic(_)
        | Outcome::FindMax(_)
        | Outcome::Requests(_)
        | Outcome::Hostile(_)
        | Outcome::Footprint(_) => format!("```\n{text}\n```\n\n"),
    }
}

/// A Markdown table with aligned columns.
fn table(heading: Vec<String>, rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_preset(ASCII_MARKDOWN).set_header(heading).add_rows(rows);
    format!("{table}\n")
}

/// Utilisation of the watched cores, a line each, and of the process, with its CPU time per item.
fn used(used: &Used, duration: Duration, items: Option<(u64, &str)>) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    for core in &used.cores {
        let [user, system, softirq, irq, steal, idle] = core.stat.map(|share| share * 100.0);
        let _ = writeln!(
            text,
            "core {:<5} {} {:.1} % busy; /proc/stat: user {user:.0} %, system {system:.0} %, softirq \
             {softirq:.0} %, irq {irq:.0} %, steal {steal:.0} %, idle {idle:.0} %",
            core.core,
            core.role,
            100.0 * core.busy
        );
    }
    if let Some(ran) = used.process {
        let part = 100.0 * ran.as_secs_f64() / duration.as_secs_f64();
        let _ = write!(text, "process    {part:.1} % of a core");
        if let Some((count @ 1.., item)) = items {
            let _ = write!(text, ", {} ns per {item}", ran.as_nanos() / u128::from(count));
        }
        text.push('\n');
    }
    text
}

fn footprint(footprint: &Footprint) -> String {
    let Footprint { process, transport, allocations, channels, before, after } = footprint;
    let with = if *channels { "with a channel" } else { "without channels" };
    let mib = |bytes: u64| bytes as f64 / (1024.0 * 1024.0);
    let each = |part: fn(&ProcessMemory) -> u64| footprint.per_allocation(part);
    format!(
        "{process}: {:.0} bytes of memory and {:.2} descriptors per idle allocation {with}, over {}\n  \
         over {allocations} allocations: resident {:.0} bytes each, proportional {:.0}, anonymous \
         {:.0}\n  \
         resident: {:.1} MiB before, {:.1} MiB after\n  \
         kernel memory of sockets is not included",
        each(|memory| memory.pss),
        each(|memory| memory.descriptors),
        transport.describe(),
        each(|memory| memory.rss),
        each(|memory| memory.pss),
        each(|memory| memory.anonymous),
        mib(before.rss),
        mib(after.rss),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::CoreUse;
    use crate::traffic::Transport;

    #[test]
    fn memory_is_divided_by_the_allocations() {
        let memory = |bytes, descriptors| ProcessMemory {
            rss: bytes,
            pss: bytes / 2,
            anonymous: bytes / 4,
            descriptors,
            kernel: None,
        };
        let text = footprint(&Footprint {
            process: "turnpike".to_owned(),
            transport: Transport::Udp,
            allocations: 1000,
            channels: false,
            before: memory(1 << 20, 120),
            after: memory((1 << 20) + 4_000_000, 1120),
        });
        assert!(text.starts_with("turnpike: 2000 bytes of memory and 1.00 descriptors"), "{text}");
        assert!(text.contains("resident 4000 bytes each, proportional 2000, anonymous 1000"));
    }

    #[test]
    fn utilisation_is_of_cores_and_of_the_process() {
        let core = CoreUse { role: "server".to_owned(), core: 1, busy: 0.5, stat: [0.0; 6] };
        let both = Used { cores: vec![core], process: Some(Duration::from_millis(60)) };
        let text = used(&both, Duration::from_secs(2), Some((1000, "alloc")));
        assert!(text.starts_with("core 1     server 50.0 % busy;"), "{text}");
        assert!(text.ends_with("process    3.0 % of a core, 60000 ns per alloc\n"), "{text}");
        assert_eq!(used(&Used::default(), Duration::from_secs(2), None), "");
    }
}
