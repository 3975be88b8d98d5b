//! Slots of the kernel path are for channels with traffic.

use std::net::SocketAddr;

use e2e::{Account, Caller, Host};
use stun_wire::ChannelNumber;
use turn_types::IpFamily;

use super::scene::{Scene, of, wait_until};

/// Smallest permitted value of `offload.flows`.
const SLOTS: usize = 1024;

/// Default of `quotas.channels`.
const CHANNELS: usize = 128;

#[test]
fn channels_without_data_take_no_slot() {
    let Some(scene) = Scene::new("tc", |_, _| {}) else { return };
    let mut caller = caller(&scene, 0, IpFamily::V4);
    let channels = bind(&scene, &mut caller, 20);
    let session = scene.session(&caller);
    assert_eq!(session["channels"], 20, "{session:#}");
    assert_eq!(session["offload"]["reason"], "silent", "{session:#}");

    caller.send(channels[3], b"first");
    let what = || format!("one channel has a slot: {:#}", scene.session(&caller));
    wait_until(what, || slots(&scene, &caller) == 1);
}

#[test]
fn a_greedy_account_leaves_slots_and_gives_back_those_it_does_not_use() {
    let started = Scene::new("tc", |_, config| {
        config.tables += &format!("flows = {SLOTS}\n");
        config.accounts.push(Account { name: "bob", password: "another-long-password" });
    });
    let Some(scene) = started else { return };
    let mut greedy: Vec<_> =
        (0..SLOTS / CHANNELS).map(|_| caller(&scene, 0, IpFamily::V4)).collect();
    let mut refused = None;
    for caller in &mut greedy {
        for channel in bind(&scene, caller, CHANNELS) {
            caller.send(channel, b"x");
            refused = Some(channel);
        }
    }
    let (last, refused) = (greedy.last().expect("eight callers"), refused.expect("a channel"));
    let what = || format!("all data is relayed: {:#}", scene.session(last));
    wait_until(what, || scene.session(last)["to_peers"]["packets"] == CHANNELS);
    let share = slots(&scene, last);
    assert!(share < CHANNELS as u64, "{:#}", scene.session(last));

    let mut other = caller(&scene, 1, IpFamily::V6);
    let channel = bind(&scene, &mut other, 1)[0];
    other.send(channel, b"x");
    let what = || format!("an account elsewhere gets a slot: {:#}", scene.session(&other));
    wait_until(what, || slots(&scene, &other) == 1);

    // The channels with slots are silent now. A refused channel has traffic.
    let of_greedy = || greedy.iter().map(|caller| slots(&scene, caller)).sum::<u64>();
    let what = || format!("silent channels give slots back: {}", of_greedy());
    wait_until(what, || {
        last.send(refused, b"x");
        of_greedy() < SLOTS as u64 / 2
    });
    let what = || format!("a refused channel gets a slot: {:#}", scene.session(last));
    wait_until(what, || {
        last.send(refused, b"x");
        slots(&scene, last) > 0
    });
}

/// A client of an account, at an address of a family.
fn caller(scene: &Scene, account: usize, family: IpFamily) -> Caller {
    let addresses = of(&scene.lab, family);
    let socket = scene.lab.socket(Host::Client, (addresses.client, 0));
    let server = SocketAddr::new(addresses.listen, 3478);
    Caller::allocate(socket, server, scene.config.accounts[account], IpFamily::V4)
}

/// Binds channels to successive ports of the peer.
fn bind(scene: &Scene, caller: &mut Caller, channels: usize) -> Vec<ChannelNumber> {
    let ports = (5000..).take(channels);
    ports.map(|port| caller.bind(SocketAddr::new(scene.lab.v4.peer, port))).collect()
}

/// Slots of a client's channels.
fn slots(scene: &Scene, caller: &Caller) -> u64 {
    scene.session(caller)["offload"]["channels"].as_u64().unwrap_or(0)
}
