//! The program run on single frames, which nobody sent.

use super::super::testing::{PASS, REDIRECT, flow, frame, privileged, read, run};
use super::*;
use crate::packet::Header;

fn reflect() -> Ebpf {
    let mut object = object::open(object::REFLECT).unwrap();
    object::load(&mut object, "reflect").unwrap();
    object
}

const HEADER: Header = Header { run: 5, flow: 3, sequence: 77, sent: 0x0102_0304_0506 };

#[test]
fn packets_go_back_as_they_came() {
    if !privileged() {
        return;
    }
    let object = reflect();
    for (ipv6, channel) in [(false, false), (false, true), (true, false), (true, true)] {
        for size in [24, 25, 1400] {
            let there = frame(&flow(3, ipv6, channel), HEADER, size);
            let (verdict, back) = run(&object, "reflect", &there);
            assert_eq!(verdict, REDIRECT);
            let (there, back) = (read(&there), read(&back));
            assert_eq!((back.source, back.destination), (there.destination, there.source));
            assert_eq!(back.source_mac, there.destination_mac);
            assert_eq!(back.destination_mac, there.source_mac);
            assert_eq!(back.payload, there.payload);
        }
    }
}

#[test]
fn a_checksum_that_would_be_nothing_is_all_ones() {
    if !privileged() {
        return;
    }
    let object = reflect();
    let flow = flow(3, false, false);
    let mut header = HEADER;
    let mut found = 0;
    // One of 65,535 sequence numbers in a row has it.
    for sequence in 0..=u32::from(u16::MAX) {
        header.sequence = sequence;
        let there = frame(&flow, header, 24);
        if there[40..42] == [0xff, 0xff] {
            let (_, back) = run(&object, "reflect", &there);
            assert_eq!(back[40..42], [0xff, 0xff]);
            read(&back);
            found += 1;
        }
    }
    assert!(found > 0);
}

#[test]
fn damaged_packets_and_all_else_pass() {
    if !privileged() {
        return;
    }
    let object = reflect();
    let data = frame(&flow(3, false, false), HEADER, 100);
    for (name, at, bytes) in
        [("UDP length", 38, [0, 50]), ("an order", 44, [b'B', 1]), ("ARP", 12, [0x08, 0x06])]
    {
        let mut frame = data.clone();
        frame[at..at + 2].copy_from_slice(&bytes);
        let (verdict, out) = run(&object, "reflect", &frame);
        assert_eq!(verdict, PASS, "{name}");
        assert_eq!(out, frame, "{name}");
    }
}
