//! The steps of a run, and their distribution.

use std::net::{IpAddr, SocketAddr};

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use turn_types::IpFamily;

use crate::sim::setup::addr;

/// Steps in a case.
const STEPS: usize = 60;

/// Peers: the first five may be reached, the last one never.
pub(crate) const PEERS: [&str; 6] = [
    "192.0.2.10:7000",
    "192.0.2.10:7001",
    "192.0.2.11:7000",
    "192.0.2.12:7000",
    "[2001:db8:2::10]:7000",
    "10.0.0.1:7000",
];

pub(crate) fn peer(number: usize) -> SocketAddr {
    addr(PEERS[number])
}

pub(crate) fn is_forbidden(ip: IpAddr) -> bool {
    ip == peer(5).ip()
}

/// Single step of a run.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Allocate { client: usize, families: Families, lifetime: Option<u32> },
    AllocatePair { client: usize },
    Redeem { client: usize },
    Repeat { client: usize },
    Refresh { client: usize, stranger: bool, family: Option<IpFamily>, lifetime: Option<u32> },
    Permit { client: usize, stranger: bool, peers: Vec<usize> },
    Bind { client: usize, stranger: bool, channel: u16, peer: usize },
    Send { client: usize, peer: usize },
    ChannelData { client: usize, channel: u16 },
    PeerSpeaks { client: usize, family: IpFamily, peer: usize },
    Wait { secs: u64, timers: bool },
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Families {
    Unsaid,
    One(IpFamily),
    Both,
}

pub(crate) fn steps() -> impl Strategy<Value = Vec<Step>> {
    // The first client sends most, so its state lives long enough to expire.
    let client = || select(vec![0, 0, 0, 0, 1, 2]);
    let stranger = || prop::bool::weighted(0.05);
    let family = || select(&IpFamily::ALL[..]);
    let families =
        prop_oneof![Just(Families::Unsaid), family().prop_map(Families::One), Just(Families::Both)];
    let lifetime = || option::of(select(vec![0, 1, 599, 600, 700, 3_600, 4_000, u32::MAX]));
    let channel = || 0x3FFF..=0x4002_u16;
    let peer = || 0..PEERS.len();
    // Just before, at, and just after the ends of things.
    let secs = select(vec![0, 1, 29, 30, 60, 299, 300, 301, 599, 600, 601]);
    vec(
        prop_oneof![
            4 => (client(), families, lifetime()).prop_map(|(client, families, lifetime)| {
                Step::Allocate { client, families, lifetime }
            }),
            1 => client().prop_map(|client| Step::AllocatePair { client }),
            1 => client().prop_map(|client| Step::Redeem { client }),
            1 => client().prop_map(|client| Step::Repeat { client }),
            3 => (client(), stranger(), option::weighted(0.3, family()), lifetime()).prop_map(
                |(client, stranger, family, lifetime)| {
                    Step::Refresh { client, stranger, family, lifetime }
                }
            ),
            5 => (client(), stranger(), vec(peer(), 0..4)).prop_map(|(client, stranger, peers)| {
                Step::Permit { client, stranger, peers }
            }),
            6 => (client(), stranger(), channel(), peer()).prop_map(
                |(client, stranger, channel, peer)| Step::Bind { client, stranger, channel, peer }
            ),
            5 => (client(), peer()).prop_map(|(client, peer)| Step::Send { client, peer }),
            5 => (client(), channel()).prop_map(|(client, channel)| {
                Step::ChannelData { client, channel }
            }),
            8 => (client(), family(), peer()).prop_map(|(client, family, peer)| {
                Step::PeerSpeaks { client, family, peer }
            }),
            8 => (secs, any::<bool>()).prop_map(|(secs, timers)| Step::Wait { secs, timers }),
        ],
        1..STEPS,
    )
}
