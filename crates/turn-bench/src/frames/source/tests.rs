//! The program run on single frames without a link.

use super::super::Port;
use super::super::testing::{self, REDIRECT, flow, privileged};
use super::*;
use crate::packet::Header;

const RUN: u32 = 0x0a0b_0c0d;

fn source(flows: &[FrameFlow]) -> Source {
    Port::load().unwrap().source(flows).unwrap()
}

fn run(size: u16, burst: u32) -> SourceRun {
    SourceRun { run: RUN, size, burst, window: 0..u64::MAX, pace: Pace::AT_ONCE }
}

/// One frame, made in one that another program has used: every byte of its headers is changed.
fn make(source: &Source) -> Vec<u8> {
    let mut used = source.frame.clone();
    let metadata = source.metadata();
    used[..metadata + source.shape.headers()].fill(0xff);
    let context = context(&used, metadata);
    let program: &Xdp = source.shared.object.program("port").unwrap().try_into().unwrap();
    let mut frame = vec![0; used.len() - metadata];
    let mut options = TestRunOptions::new();
    options.data_in = Some(&used);
    options.ctx_in = Some(&context);
    options.data_out = Some(&mut frame);
    let result = program.test_run(options).unwrap();
    assert_eq!(result.return_value, REDIRECT);
    assert_eq!(result.data_size_out as usize, frame.len(), "no metadata leaves");
    frame
}

#[test]
fn frames_are_what_a_strict_receiver_takes() {
    if !privileged() {
        return;
    }
    for (ipv6, channel) in [(false, false), (false, true), (true, false), (true, true)] {
        let flows = [flow(7, ipv6, channel)];
        let mut source = source(&flows);
        for size in [24, 25, 200, 201, 1399, 1400] {
            source.begin(&run(size, 1)).unwrap();
            for sequence in 0..3 {
                let before = linux_net::Clock::now().instant.as_nanos();
                let read = testing::read(&make(&source));
                let after = linux_net::Clock::now().instant.as_nanos();

                let packet = if let Some(number) = flows[0].channel {
                    assert_eq!(read.payload[..2], number.to_be_bytes());
                    assert_eq!(read.payload[2..4], size.to_be_bytes());
                    &read.payload[4..]
                } else {
                    &read.payload[..]
                };
                let header = Header::decode(packet).unwrap();
                assert_eq!((header.run, header.flow, header.sequence), (RUN, 7, sequence));
                assert!((before..=after).contains(&header.sent), "{before} {header:?} {after}");
                assert_eq!(packet[HEADER..], vec![0; usize::from(size) - HEADER]);
                assert_eq!(
                    (read.source, read.destination),
                    (flows[0].source, flows[0].destination)
                );
                assert_eq!(read.source_mac, flows[0].source_mac);
                assert_eq!(read.destination_mac, flows[0].destination_mac);
            }
        }
    }
}

#[test]
fn flows_take_turns_and_each_counts_its_own_packets() {
    if !privileged() {
        return;
    }
    let flows = [flow(3, false, true), flow(4, false, true), flow(9, false, true)];
    let mut source = source(&flows);
    let mut order = |burst: u32, frames: usize| -> Vec<(u32, u32)> {
        source.begin(&run(100, burst)).unwrap();
        let made = (0..frames).map(|_| testing::read(&make(&source)));
        let headers = made.map(|read| Header::decode(&read.payload[4..]).unwrap());
        headers.map(|header| (header.flow, header.sequence)).collect()
    };
    assert_eq!(order(1, 5), [(3, 0), (4, 0), (9, 0), (3, 1), (4, 1)]);
    assert_eq!(
        order(2, 9),
        [(3, 0), (3, 1), (4, 0), (4, 1), (9, 0), (9, 1), (3, 2), (3, 3), (4, 2)],
        "a run begins anew"
    );
}

#[test]
fn frames_are_counted_by_the_time_they_carry() {
    if !privileged() {
        return;
    }
    let mut source = source(&[flow(0, false, false)]);
    for (window, measured) in [(0..u64::MAX, 2), (0..1, 0), (u64::MAX - 1..u64::MAX, 0)] {
        source.begin(&SourceRun { window, ..run(100, 1) }).unwrap();
        make(&source);
        make(&source);
        assert_eq!(source.made().unwrap(), Made { all: 2, measured, missed: 0 });
    }
}

#[test]
fn flows_that_do_not_fit_each_other_are_refused() {
    if !privileged() {
        return;
    }
    let port = Port::load().unwrap();
    let mut mixed = flow(1, false, false);
    mixed.destination = "[::1]:3478".parse().unwrap();
    for wrong in [
        vec![],
        vec![flow(0, false, true), flow(1, false, false)],
        vec![flow(0, false, true), flow(1, true, true)],
        vec![mixed],
    ] {
        assert!(port.source(&wrong).is_err(), "{wrong:?}");
    }
}

#[test]
fn runs_out_of_range_are_refused() {
    if !privileged() {
        return;
    }
    let mut source = source(&[flow(0, false, false)]);
    for wrong in [run(23, 1), run(1401, 1), run(100, 0)] {
        assert!(source.begin(&wrong).is_err(), "{wrong:?}");
    }
}

#[test]
fn sources_of_a_port_keep_out_of_each_others_way() {
    if !privileged() {
        return;
    }
    let port = Port::load().unwrap();
    let mut sources: Vec<Source> =
        (0..8).map(|number| port.source(&[flow(number, number > 4, true)]).unwrap()).collect();
    assert!(port.source(&[flow(8, false, true)]).is_err(), "no more");
    sources.iter_mut().for_each(|source| source.begin(&run(100, 1)).unwrap());
    for sequence in 0..2 {
        for (number, source) in (0..).zip(&sources) {
            let header = Header::decode(&testing::read(&make(source)).payload[4..]).unwrap();
            assert_eq!((header.flow, header.sequence), (number, sequence));
        }
    }
    sources.remove(3);
    assert!(port.source(&[flow(8, false, true)]).is_ok(), "a place was given back");
}

#[test]
fn nothing_leaves_before_or_after_its_time() {
    if !privileged() {
        return;
    }
    let mut source = source(&[flow(0, false, true)]);
    for (time, made) in [(0..1, 0), (u64::MAX - 1..u64::MAX, 0), (0..u64::MAX, 10)] {
        let pace = Pace { time, ..Pace::AT_ONCE };
        source.begin(&SourceRun { pace, ..run(100, 1) }).unwrap();
        look(&source, 10);
        assert_eq!(source.made().unwrap().all, made);
    }
}

#[test]
fn a_burst_is_made_when_it_is_due_and_then_whole() {
    if !privileged() {
        return;
    }
    let mut source = source(&[flow(0, false, true)]);
    // One burst is due at once, the next an hour later.
    let begin = crate::engine::now();
    let pace = Pace { time: begin..u64::MAX, clump: 1, step: (3600 * 1_000_000_000) << 8 };
    source.begin(&SourceRun { pace, ..run(100, 10) }).unwrap();
    look(&source, 25);
    assert_eq!(source.made().unwrap().all, 10);
    // Overdue bursts are skipped.
    let time = begin - 2_500_000_000..u64::MAX;
    let pace = Pace { time, clump: 1, step: 1_000_000_000 << 8 };
    source.begin(&SourceRun { pace, ..run(100, 10) }).unwrap();
    look(&source, 25);
    assert_eq!(source.made().unwrap(), Made { all: 10, measured: 10, missed: 2 });
}

#[test]
fn late_frames_leave_in_clumps_of_twice_as_many() {
    if !privileged() {
        return;
    }
    const CLUMP: u64 = 2_000_000;
    const STEP: u64 = 100_000;
    let mut source = source(&[flow(0, false, true)]);
    // Late by four clumps, of twenty each.
    let begin = crate::engine::now() - (4 * CLUMP + CLUMP / 8);
    let pace = Pace { time: begin..u64::MAX, clump: CLUMP, step: STEP << 8 };
    source.begin(&SourceRun { pace, ..run(100, 1) }).unwrap();
    look(&source, 60);
    let made = source.made().unwrap().all;
    // The machine may have stopped us for longer than a clump.
    let clumps = (crate::engine::now() - begin) / CLUMP - 3;
    assert!((1..=clumps * (2 * CLUMP / STEP + 1)).contains(&made), "{made} in {clumps}");
}

/// Runs the program `times`, and ignores the frames.
fn look(source: &Source, times: u32) {
    for _ in 0..times {
        let context = context(&source.frame, source.metadata());
        let program: &Xdp = source.shared.object.program("port").unwrap().try_into().unwrap();
        let mut options = TestRunOptions::new();
        options.data_in = Some(&source.frame);
        options.ctx_in = Some(&context);
        program.test_run(options).unwrap();
    }
}
