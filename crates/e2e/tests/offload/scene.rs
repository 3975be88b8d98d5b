//! A lab whose server relays in the kernel, and calls through it.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use e2e::{Caller, Config, Host, Lab, Server, require};
use serde_json::Value;
use stun_wire::ChannelNumber;
use turn_types::IpFamily;

/// Longest time for an expected event. The machine may be busy.
const PATIENCE: Duration = Duration::from_secs(20);

/// Longest transit time of a datagram.
pub(crate) const ON_ITS_WAY: Duration = Duration::from_secs(2);

/// A lab with a server in it.
pub(crate) struct Scene {
    pub(crate) lab: Lab,
    pub(crate) config: Config,
    pub(crate) server: Server,
}

impl Scene {
    /// A server that relays by a hook, or by sockets for the mode "off"; `None`: skipped.
    pub(crate) fn new(mode: &str, change: impl FnOnce(&Lab, &mut Config)) -> Option<Self> {
        require(capable())?;
        let lab = require(Lab::new())?;
        require(lab.behave_as_cards())?;
        let mut config = Config::for_lab(&lab);
        config.tables = format!("[offload]\nmode = \"{mode}\"\n");
        change(&lab, &mut config);
        let server = Server::start(&lab, &config);
        let scene = Self { lab, config, server };
        if mode != "off" {
            scene.assert_attached(mode);
        }
        Some(scene)
    }

    /// Every interface has a program, by this hook.
    #[track_caller]
    pub(crate) fn assert_attached(&self, hook: &str) {
        let offload = &self.server.json(&["status"])["offload"];
        let interfaces = offload["interfaces"].as_array().expect("interfaces");
        let is_so = |interface: &Value| interface["hook"] == hook;
        assert!(!interfaces.is_empty() && interfaces.iter().all(is_so), "{offload:#}");
    }

    /// Traffic since the start relayed by a part of the server: `by_kernel`, `by_sockets`.
    pub(crate) fn traffic(&self, part: &str) -> Value {
        self.server.json(&["status"])["offload"][part].clone()
    }

    /// Packets of known flows that the kernel left to the sockets for a reason.
    #[track_caller]
    pub(crate) fn passed(&self, reason: &str) -> u64 {
        let passed = self.traffic("passed");
        passed[reason].as_u64().unwrap_or_else(|| panic!("no {reason} in {passed:#}"))
    }

    /// Reloads a new configuration; returns the number of keys applied.
    #[track_caller]
    pub(crate) fn reload(&self) -> usize {
        self.server.rewrite(&self.config);
        let report = self.server.json(&["reload"]);
        let applied = report["applied"].as_array().map_or(0, Vec::len);
        assert!(applied > 0, "{report:#}");
        applied
    }

    /// A call whose client and relayed address are of these families.
    #[track_caller]
    pub(crate) fn call(&self, client: IpFamily, relay: IpFamily) -> Call {
        let peer = self.lab.socket(Host::Peer, (of(&self.lab, relay).peer, 0));
        self.call_to(client, peer)
    }

    /// A call to a peer.
    #[track_caller]
    pub(crate) fn call_to(&self, client: IpFamily, peer: UdpSocket) -> Call {
        let addresses = of(&self.lab, client);
        let server = SocketAddr::new(addresses.listen, 3478);
        self.call_between(addresses.client, server, peer)
    }

    /// A call from an address of the client's host by a listener to a peer.
    #[track_caller]
    pub(crate) fn call_between(&self, client: IpAddr, server: SocketAddr, peer: UdpSocket) -> Call {
        let mut caller = self.caller(client, server, IpFamily::of(ip(&peer)));
        let channel = caller.bind(local(&peer));
        peer.connect(caller.relayed()).expect("the relayed address has the peer's family");
        Call { caller, channel, peer }
    }

    /// A client with an allocation.
    #[track_caller]
    pub(crate) fn caller(&self, client: IpAddr, server: SocketAddr, relay: IpFamily) -> Caller {
        let socket = self.lab.socket(Host::Client, (client, 0));
        Caller::allocate(socket, server, self.config.accounts[0], relay)
    }

    /// The server's record of a client's session.
    #[track_caller]
    pub(crate) fn session(&self, caller: &Caller) -> Value {
        let client = local(&caller.socket).to_string();
        let sessions = self.server.json(&["sessions"])["sessions"].take();
        let found = sessions.as_array().into_iter().flatten().find(|one| one["client"] == *client);
        found.unwrap_or_else(|| panic!("no session of {client}: {sessions:#}")).clone()
    }

    /// Sends datagrams of a call in both directions until the kernel relays both.
    #[track_caller]
    pub(crate) fn wait_for_kernel(&self, call: &Call) {
        const DATAGRAMS: u64 = 10;
        // Every two seconds, each processor shows one packet of each direction to the sockets, and
        // the next ones follow. A busy machine takes seconds for these datagrams.
        let mostly = |before: u64| self.by_kernel(&call.caller) >= before + DATAGRAMS / 2;
        let what = || {
            let status = &self.server.json(&["status"])["offload"];
            format!("the kernel relays both ways: {:#} {status:#}", self.session(&call.caller))
        };
        wait_until(what, || {
            // Datagrams of an earlier attempt that came too late are not answers to this one.
            call.drain();
            let before = self.by_kernel(&call.caller);
            // Different ones: by XDP a complete checksum may look like a partial one, which goes to
            // the sockets.
            let there = (0..DATAGRAMS).all(|number| call.to_peer(&number.to_be_bytes()));
            if !there || !mostly(before) {
                return false;
            }
            let before = self.by_kernel(&call.caller);
            (0..DATAGRAMS).all(|number| call.to_client(&number.to_be_bytes())) && mostly(before)
        });
    }

    /// Packets of a client's session that the kernel relayed.
    #[track_caller]
    pub(crate) fn by_kernel(&self, caller: &Caller) -> u64 {
        self.session(caller)["offload"]["packets"].as_u64().expect("packets")
    }
}

/// The lab's addresses of a family.
pub(crate) fn of(lab: &Lab, family: IpFamily) -> e2e::Addresses {
    match family {
        IpFamily::V4 => lab.v4,
        IpFamily::V6 => lab.v6,
    }
}

/// The address of a socket.
pub(crate) fn local(socket: &UdpSocket) -> SocketAddr {
    socket.local_addr().expect("a bound socket")
}

fn ip(socket: &UdpSocket) -> IpAddr {
    local(socket).ip()
}

/// Checks that this process has the privileges of a kernel path.
fn capable() -> Result<(), String> {
    let missing = xdp_relay::device::missing_capabilities();
    let reason = || format!("BPF programs want {}", missing.join(" and "));
    missing.is_empty().then_some(()).ok_or_else(reason)
}

/// A client and its peer, on a channel.
pub(crate) struct Call {
    pub(crate) caller: Caller,
    pub(crate) channel: ChannelNumber,
    /// Connected to the relayed address.
    pub(crate) peer: UdpSocket,
}

impl Call {
    /// Sends a payload to the peer; true if it arrived.
    pub(crate) fn to_peer(&self, payload: &[u8]) -> bool {
        self.caller.send(self.channel, payload);
        self.receive_at_peer(ON_ITS_WAY).as_deref() == Some(payload)
    }

    /// Sends a payload to the client; true if it arrived.
    pub(crate) fn to_client(&self, payload: &[u8]) -> bool {
        // An ICMP error of an earlier datagram is returned to the next send.
        drop(self.peer.send(payload).or_else(|_| self.peer.send(payload)));
        self.caller.receive(ON_ITS_WAY).as_deref() == Some(payload)
    }

    /// Receives what is on its way to either end.
    pub(crate) fn drain(&self) {
        const STEP: Duration = Duration::from_millis(5);
        while self.receive_at_peer(STEP).is_some() {}
        while self.caller.receive(STEP).is_some() {}
    }

    /// The next datagram received by the peer within `patience`.
    pub(crate) fn receive_at_peer(&self, patience: Duration) -> Option<Vec<u8>> {
        let mut datagram = vec![0; 65_535];
        self.peer.set_read_timeout(Some(patience)).expect("a wait");
        let len = self.peer.recv(&mut datagram).ok()?;
        datagram.truncate(len);
        Some(datagram)
    }

    /// Sends in both directions as long as something arrives in either; returns the time to the
    /// peer, and to the client.
    ///
    /// # Panics
    /// It takes longer than a test waits.
    #[track_caller]
    pub(crate) fn still_open(&self) -> [Duration; 2] {
        const QUIET: Duration = Duration::from_secs(1);
        const STEP: Duration = Duration::from_millis(2);
        let start = Instant::now();
        let mut last = [Duration::ZERO; 2];
        while start.elapsed() < *last.iter().max().expect("two") + QUIET {
            assert!(start.elapsed() < PATIENCE, "it stays open: {last:?}");
            self.caller.send(self.channel, b"to the peer");
            drop(self.peer.send(b"to the client"));
            while self.receive_at_peer(STEP).is_some() {
                last[0] = start.elapsed();
            }
            while self.caller.receive(STEP).is_some() {
                last[1] = start.elapsed();
            }
        }
        last
    }
}

/// Does a test by XDP and by tc, at the same time: most of it is waiting.
pub(crate) fn by_xdp_and_tc(test: impl Fn(&str) + Sync) {
    let current = std::thread::current();
    std::thread::scope(|scope| {
        let threads = ["xdp", "tc"].map(|mode| {
            // The name identifies a skipped test.
            let thread =
                std::thread::Builder::new().name(current.name().unwrap_or(mode).to_owned());
            let test = &test;
            thread.spawn_scoped(scope, move || test(mode)).expect("a thread")
        });
        for thread in threads {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        }
    });
}

/// Retries until the condition holds.
///
/// # Panics
/// It takes longer than a test waits.
#[track_caller]
pub(crate) fn wait_until(what: impl Fn() -> String, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "not in {PATIENCE:?}: {}", what());
        std::thread::sleep(Duration::from_millis(20));
    }
}
