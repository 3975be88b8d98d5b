//! The program run on single frames without a link.

use super::super::testing::{DROP, PASS, REDIRECT, flow, frame, privileged, read, run};
use super::super::{FrameFlow, Port};
use super::*;
use crate::packet::Header;

const RUN: u32 = 5;
const SIZE: u16 = 100;

fn watch() -> Watch {
    Watch { run: RUN, flows: 10, size: SIZE, reflect: false, window: 1000..2000 }
}

fn watching() -> Port {
    let port = Port::load().unwrap();
    port.watch(&watch()).unwrap();
    port
}

/// Verdict of the program on a frame, and the frame afterwards.
fn arrive(port: &Port, frame: &[u8]) -> (u32, Vec<u8>) {
    run(port.object(), "port", frame)
}

const HEADER: Header = Header { run: RUN, flow: 3, sequence: 0, sent: 1500 };

fn packet(header: Header) -> Vec<u8> {
    frame(&flow(3, false, false), header, SIZE)
}

/// Counters: delivered, duplicates, reordered, damaged, outside, other run.
fn counts(port: &Port) -> [u64; 6] {
    let tally = port.tally().unwrap();
    [
        tally.delivered,
        tally.duplicates,
        tally.reordered,
        tally.damaged,
        tally.outside,
        tally.other_run,
    ]
}

#[test]
fn packets_of_the_run_are_counted_and_taken() {
    if !privileged() {
        return;
    }
    for (ipv6, channel) in [(false, false), (false, true), (true, false), (true, true)] {
        let port = watching();
        for size in [24, 25, 100, 1400] {
            port.watch(&Watch { size, ..watch() }).unwrap();
            let flow = flow(3, ipv6, channel);
            assert_eq!(arrive(&port, &frame(&flow, HEADER, size)).0, DROP);
            assert_eq!(counts(&port), [1, 0, 0, 0, 0, 0], "{ipv6} {channel} {size}");
            assert_eq!(port.tally().unwrap().bytes, u64::from(size));
        }
    }
}

#[test]
fn latency_is_from_the_time_in_the_packet() {
    if !privileged() {
        return;
    }
    let port = Port::load().unwrap();
    let now = || linux_net::Clock::now().instant.as_nanos();
    for ago in [0, 40, 5_000, 70_000_000, 3_000_000_000] {
        port.watch(&Watch { window: 0..u64::MAX, ..watch() }).unwrap();
        let sent = now() - ago;
        arrive(&port, &packet(Header { sent, ..HEADER }));
        let most = now() - sent;
        let latency = port.tally().unwrap().latency;
        assert_eq!(latency.len(), 1);
        // Never less than it was, and at most a digit more.
        assert!((ago..=most + most / 50).contains(&latency.max()), "{ago} {latency:?} {most}");
    }

    // From a clock that is ahead nothing can be told.
    port.watch(&Watch { window: 0..u64::MAX, ..watch() }).unwrap();
    arrive(&port, &packet(Header { sent: now() + 1_000_000_000, ..HEADER }));
    assert_eq!((port.tally().unwrap().latency.len(), counts(&port)[0]), (0, 1));
}

#[test]
fn padded_channel_data_is_whole() {
    if !privileged() {
        return;
    }
    let port = watching();
    for (padding, expected) in
        [(1, [1, 0, 0, 0, 0, 0]), (3, [2, 0, 0, 0, 0, 0]), (4, [2, 0, 0, 1, 0, 0])]
    {
        let flow = flow(3, false, true);
        let mut frame = frame(&flow, Header { sequence: padding, ..HEADER }, SIZE);
        let length = SIZE + 4 + 8 + u16::try_from(padding).unwrap();
        frame[38..40].copy_from_slice(&length.to_be_bytes());
        frame[16..18].copy_from_slice(&(length + 20).to_be_bytes());
        frame.resize(34 + usize::from(length), 0);
        assert_eq!(arrive(&port, &frame).0, DROP);
        assert_eq!(counts(&port), expected, "{padding}");
    }
}

#[test]
fn order_and_window_are_told_apart() {
    if !privileged() {
        return;
    }
    let port = watching();
    let at = |sequence: u32, sent: u64| packet(Header { sequence, sent, ..HEADER });
    for (frame, expected) in [
        (at(0, 999), [0, 0, 0, 0, 1, 0]),
        (at(1, 1000), [1, 0, 0, 0, 1, 0]),
        (at(4, 1999), [2, 0, 0, 0, 1, 0]),
        (at(3, 1500), [3, 0, 1, 0, 1, 0]),
        (at(3, 1500), [3, 1, 1, 0, 1, 0]),
        (at(4, 1999), [3, 2, 1, 0, 1, 0]),
        (at(5, 2000), [3, 2, 1, 0, 2, 0]),
        (at(69, 1500), [4, 2, 1, 0, 2, 0]),
        // 64 behind: whether it came before is not known any more.
        (at(5, 1500), [5, 2, 2, 0, 2, 0]),
        (at(6, 1500), [6, 2, 3, 0, 2, 0]),
        (at(6, 1500), [6, 3, 3, 0, 2, 0]),
        (at(1000, 1500), [7, 3, 3, 0, 2, 0]),
        (at(1000, 1500), [7, 4, 3, 0, 2, 0]),
    ] {
        assert_eq!(arrive(&port, &frame).0, DROP);
        assert_eq!(counts(&port), expected);
    }
    // Another flow has an order of its own.
    let other = frame(&flow(4, false, false), Header { flow: 4, ..HEADER }, SIZE);
    arrive(&port, &other);
    assert_eq!(counts(&port), [8, 4, 3, 0, 2, 0]);
}

#[test]
fn a_new_run_begins_from_nothing() {
    if !privileged() {
        return;
    }
    let port = watching();
    arrive(&port, &packet(HEADER));
    port.watch(&Watch { run: RUN + 1, ..watch() }).unwrap();
    assert_eq!(counts(&port), [0; 6]);
    assert_eq!(arrive(&port, &packet(HEADER)).0, PASS, "a straggler");
    assert_eq!(counts(&port), [0, 0, 0, 0, 0, 1]);
    arrive(&port, &packet(Header { run: RUN + 1, ..HEADER }));
    assert_eq!(counts(&port), [1, 0, 0, 0, 0, 1], "the number was of another run");
    port.unwatch().unwrap();
    assert_eq!(arrive(&port, &packet(HEADER)).0, PASS, "nothing is watched");
}

#[test]
fn changed_packets_are_damaged() {
    if !privileged() {
        return;
    }
    let plain = flow(3, false, false);
    let channel = flow(3, false, true);
    let change = |mut frame: Vec<u8>, at: usize, bytes: &[u8]| {
        frame[at..at + bytes.len()].copy_from_slice(bytes);
        frame
    };
    let cases = [
        ("longer", frame(&plain, HEADER, SIZE + 1)),
        ("shorter", frame(&plain, HEADER, SIZE - 1)),
        ("of no flow", packet(Header { flow: 10, ..HEADER })),
        ("UDP length", change(packet(HEADER), 38, &[0, 50])),
        ("UDP length of nothing", change(packet(HEADER), 38, &[0, 0])),
        ("IP length", change(packet(HEADER), 16, &[0, 150])),
        ("channel length", change(frame(&channel, HEADER, SIZE), 44, &[0, 50])),
        ("cut off", packet(HEADER)[..100].to_vec()),
    ];
    for (name, frame) in cases {
        let port = watching();
        assert_eq!(arrive(&port, &frame).0, DROP, "{name}");
        assert_eq!(counts(&port), [0, 0, 0, 1, 0, 0], "{name}");
    }
}

#[test]
fn other_packets_pass_untouched() {
    if !privileged() {
        return;
    }
    let port = watching();
    let plain = flow(3, false, false);
    let channel = flow(3, true, true);
    let change = |mut frame: Vec<u8>, at: usize, bytes: &[u8]| {
        frame[at..at + bytes.len()].copy_from_slice(bytes);
        frame
    };
    let data = |flow: &FrameFlow| frame(flow, HEADER, SIZE);
    let stun = [0, 1, 0, 0, 0x21, 0x12, 0xa4, 0x42];
    let cases = [
        ("an order", change(data(&plain), 45, &[1])),
        ("an order by a channel", change(data(&channel), 54 + 8 + 4 + 3, &[1])),
        ("STUN", change(data(&plain), 42, &stun)),
        ("foreign ChannelData", change(data(&channel), 54 + 8 + 4, b"RTP")),
        ("no ChannelData", change(data(&channel), 54 + 8, &[0x50])),
        ("too short", data(&plain)[..65].to_vec()),
        ("too short by a channel", data(&channel)[..89].to_vec()),
        ("ARP", change(data(&plain), 12, &[0x08, 0x06])),
        ("tagged", change(data(&plain), 12, &[0x81, 0x00])),
        ("TCP", change(data(&plain), 23, &[6])),
        ("TCP by IPv6", change(data(&channel), 20, &[6])),
        ("IP options", change(data(&plain), 14, &[0x46])),
        ("a first fragment", change(data(&plain), 20, &[0x20, 0])),
        ("a later fragment", change(data(&plain), 20, &[0, 1])),
        ("the shortest frame", vec![0; 14]),
    ];
    for (name, frame) in cases {
        let (verdict, out) = arrive(&port, &frame);
        assert_eq!(verdict, PASS, "{name}");
        assert_eq!(out, frame, "{name}");
    }
    assert_eq!(counts(&port), [0; 6]);
}

#[test]
fn an_echo_is_counted_and_goes_back() {
    if !privileged() {
        return;
    }
    for (ipv6, channel) in [(false, false), (false, true), (true, false), (true, true)] {
        for size in [24, 25, 1400] {
            let port = watching();
            port.watch(&Watch { reflect: true, size, ..watch() }).unwrap();
            let mut there = frame(&flow(3, ipv6, channel), HEADER, size);
            let sent = read(&there);
            // A local sender leaves part of the checksum to the link.
            let checksum = if ipv6 { 60 } else { 40 };
            there[checksum..checksum + 2].copy_from_slice(&[0x12, 0x34]);
            let (verdict, back) = arrive(&port, &there);
            assert_eq!(verdict, REDIRECT);
            let back = read(&back);
            assert_eq!((back.source, back.destination), (sent.destination, sent.source));
            assert_eq!(back.source_mac, sent.destination_mac);
            assert_eq!(back.destination_mac, sent.source_mac);
            assert_eq!(back.payload, sent.payload);
            assert_eq!(counts(&port), [1, 0, 0, 0, 0, 0]);
        }
    }
    let port = watching();
    port.watch(&Watch { reflect: true, ..watch() }).unwrap();
    let other = packet(Header { run: 6, ..HEADER });
    assert_eq!(arrive(&port, &other).0, PASS, "another run is not sent back");
}

#[test]
fn a_checksum_of_zero_is_sent_as_all_ones() {
    if !privileged() {
        return;
    }
    let port = watching();
    port.watch(&Watch { reflect: true, size: 24, ..watch() }).unwrap();
    // One of 65,535 sequence numbers in a row has it.
    let header = |sequence| Header { sequence, ..HEADER };
    let frames =
        (0..=u32::from(u16::MAX)).map(|number| frame(&flow(3, false, false), header(number), 24));
    let found: Vec<_> = frames.filter(|frame| frame[40..42] == [0xff, 0xff]).collect();
    assert!(!found.is_empty());
    for there in found {
        let (_, back) = arrive(&port, &there);
        assert_eq!(back[40..42], [0xff, 0xff]);
        read(&back);
    }
}

#[test]
fn runs_that_cannot_be_watched_are_refused() {
    if !privileged() {
        return;
    }
    let port = Port::load().unwrap();
    assert!(port.watch(&Watch { run: 0, ..watch() }).is_err());
    assert!(port.watch(&Watch { flows: FLOWS_MAX + 1, ..watch() }).is_err());
    assert!(Port::attach("no such link").unwrap_err().to_string().contains("no interface"));
}
