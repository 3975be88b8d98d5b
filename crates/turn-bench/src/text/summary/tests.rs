use super::*;
use crate::outcome::{Better, measure};

fn rounds(value: f64) -> Vec<Option<f64>> {
    vec![Some(value); 6]
}

fn example() -> Compare {
    let values = |ours, theirs| vec![rounds(ours), rounds(theirs)];
    let mixed = vec![[vec![Some(9.0); 2], rounds(2.0)[..4].to_vec()].concat(), rounds(5.0)];
    let measures = vec![
        measure("throughput at ≤ 1 % loss", "packets/s", Better::Higher, values(2e5, 1e5)),
        measure("server cores per packet, at most", "ns", Better::Lower, values(5e3, 1e4)),
        measure("latency p50", "ns", Better::Lower, values(9e4, 3e4)),
        measure("latency p99", "ns", Better::Lower, mixed),
        measure("server cores busy, at most", "%", Better::Neither, values(99.0, 80.0)),
    ];
    Compare::example(["turnpike-sockets", "coturn"], measures)
}

/// The summary on one line, without the padding of tables.
fn line(compare: Compare) -> String {
    let text = summary(&[Outcome::Compare(compare)]);
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn gains_and_losses_are_told_alike() {
    let line = line(example());
    for part in [
        "| load | server | throughput at ≤ 1 % loss |",
        "| audio, client to peer, UDP: 1 flow of 200 bytes; fixed load 50.0 k/s | Turnpike by sockets | 200 k/s ± 0.00 | 5000 ns ± 0 ns |",
        "| | coturn 1.0 | ≥ 100 k/s ± 0.00 | 10.0 µs ± 0 ns |",
        "- **audio, client to peer, UDP** (1 flow of 200 bytes): Turnpike by sockets delivers 2.00 times coturn's packets per core; \
         **behind in median latency (3.00 times)**.",
        "Behind, beyond the noise: - **audio, client to peer, UDP** (1 flow of 200 bytes): Turnpike by sockets beside coturn in median \
         latency (3.00 times). Each load:",
        "Medians of 6 rounds",
        "Holm's correction for the tests of its load, of which there are up to 3;",
        "Turnpike by sockets: 1.0 (commit not recorded)",
    ] {
        assert!(line.contains(part), "{part}\n{line}");
    }
    assert!(line.starts_with("| load"), "the table comes first");
    assert_eq!(summary(&[]), "");
}

#[test]
fn a_loss_per_core_stands_out() {
    let mut compare = example();
    compare.servers.swap(0, 1);
    let line = line(compare);
    assert!(
        line.contains("**delivers 0.50 times coturn's packets per core**; ahead in median latency (0.33 times)"),
        "{line}"
    );
    assert!(line.contains("beside coturn in core time per packet (2.00 times)."), "{line}");
}

#[test]
fn a_lower_throughput_is_told_where_it_is_no_bound() {
    let mut compare = example();
    let cell = &mut compare.cells[0];
    cell.measures.pop();
    cell.measures[0] = measure(
        "throughput at ≤ 1 % loss",
        "packets/s",
        Better::Higher,
        vec![rounds(1e5), rounds(2e5)],
    );
    assert!(line(compare.clone()).contains("**behind in throughput (0.50 times), median latency"));
    compare.cells[0].generator_limited = vec![0, 1];
    assert!(!line(compare).contains("throughput ("));
}

#[test]
fn few_rounds_are_no_difference() {
    let mut compare = example();
    for measure in &mut compare.cells[0].measures {
        measure.values.iter_mut().for_each(|values| values.truncate(3));
    }
    let line = line(compare);
    let told = "Turnpike by sockets beside coturn: too few rounds for a verdict: core time per packet (0.50 times), median latency \
                (3.00 times)";
    assert!(line.contains(told), "{line}");
    assert!(!line.contains("behind in") && !line.contains("ahead"), "{line}");
}

#[test]
fn allocations_and_memory_come_last_in_units_of_their_own() {
    let mut compare = example();
    let mut packets = compare.cells.remove(0);
    let values = vec![rounds(1000.0), rounds(20_000.0)];
    let mut cell = |name: &str, measure: Measure| {
        packets.measures = vec![measure];
        packets.name = name.into();
        packets.common_rate = None;
        compare.cells.push(packets.clone());
    };
    cell(
        "footprint",
        measure("memory of an idle allocation", "bytes", Better::Lower, values.clone()),
    );
    let core = "server cores per allocation, at most";
    cell("alloc", measure(core, "ns", Better::Lower, values.clone()));
    cell("video:2:p2c:1200", measure("latency p99", "ns", Better::Lower, values));
    let line = line(compare);
    let places = ["| video, peer", "| allocations, UDP", "| memory of an idle allocation, UDP"]
        .map(|row| line.find(row));
    assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{places:?} {line}");
    for part in [
        "| 1000 B ± 0 B |",
        "serves 20.00 times coturn's allocations per core.",
        "takes 0.05 times coturn's memory of the process.",
    ] {
        assert!(line.contains(part), "{part}\n{line}");
    }
}

#[test]
fn what_failed_and_what_is_old_is_told() {
    let mut compare = example();
    compare.failures.push("gone".into());
    compare.cells[0].refused = vec![2, 1];
    compare.servers[1].version = "4.6.1".into();
    let line = line(compare);
    for part in [
        "| coturn 4.6.1 |",
        "coturn: 4.6.1 (**an old version**), with its defaults",
        "measurements that failed; the full tables tell which: 1",
        "readings of the meter that cannot be, and were refused: 3",
    ] {
        assert!(line.contains(part), "{part}\n{line}");
    }
}

#[test]
fn several_servers_have_a_line_each() {
    let mut compare = example();
    compare.servers.push(compare.servers[1].clone());
    compare.servers[2].name = "coturn-fastest".into();
    for measure in &mut compare.cells[0].measures {
        measure.values.push(rounds(2e4));
    }
    let text = summary(&[Outcome::Compare(compare)]);
    for part in [
        "(1 flow of 200 bytes):\n  - Turnpike by sockets delivers 2.00 times coturn's",
        "\n  - Turnpike by sockets delivers 4.00 times coturn-fastest's packets per core;",
        "- coturn-fastest: 1.0, with --multiplex-peer --udp-gso\n",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
}

#[test]
fn a_loss_that_many_tests_make_uncertain_is_told_and_a_gain_is_not() {
    // Five of six rounds by 10 %, one by nothing: p = 0.004 for one test, 0.06 beside twelve
    // others.
    let told = |times: f64| {
        let mut compare = example();
        let servers = (0..12).map(|number| {
            let server = compare.servers[1].clone();
            crate::outcome::ComparedServer { name: format!("other{number}"), ..server }
        });
        let servers: Vec<_> = servers.collect();
        compare.servers.extend(servers);
        let mut values = vec![[vec![Some(times); 5], vec![Some(1.0)]].concat(), rounds(1.0)];
        values.resize(14, values[0].clone());
        compare.cells[0].measures = vec![measure("latency p50", "ns", Better::Lower, values)];
        line(compare)
    };
    let loss = told(1.1);
    assert!(loss.contains("coturn: **perhaps behind in median latency (1.10 times)**"), "{loss}");
    let gain = told(1.0 / 1.1);
    assert!(gain.contains("coturn: no difference is significant") && !gain.contains("ahead"));
    assert!(gain.contains("Behind, beyond the noise: nothing."), "{gain}");
}
