//! Differential test: the program and the rules process every frame. The program must follow the
//! rules or pass the frame.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use turn_proto::{DropReason, Policy, Route, RouteId};
use turn_types::{Instant, Now, WorkerId};
use xdp_relay::device::Hook;
use xdp_relay::{
    EgressContext, Flow, FlowCounters, FlowId, FrameContext, KernelPath, Link, Options, Proof,
    Routes, Verdict,
};

use super::frame::{
    Check, Datagram, ETHERNET, IPV4, IPV6, Mac, Macs, Seen, TYPE_V4, TYPE_V6, read,
};
use super::network::{MTU, Network, OWN_V4, OWN_V6, address};
use super::oracle::{self, Fate, Leg, Oracle, Relayed, Told};

pub const HOOKS: [Hook; 2] = [Hook::Xdp, Hook::Tc];

/// Port of the listeners.
pub const PORT: u16 = 3478;

/// Link-layer address of the loopback, the inbound device of a run.
pub const LOOPBACK: Mac = [0; 6];

/// Inbound device of the frames of a run: a link where XDP receives partial checksums.
pub const INBOUND: Link =
    Link { index: 1, mac: LOOPBACK, leave_xdp: false, leave_tc: false, partial_at_xdp: true };

/// Returns an outbound device for relayed frames, at either hook.
pub const fn outbound(index: u32, mac: Mac) -> Link {
    Link { index, mac, leave_xdp: true, leave_tc: true, partial_at_xdp: false }
}

/// Addresses of an inbound frame: from the link, and to this host.
pub const COMES: Macs = Macs { to: LOOPBACK, from: [2, 0xEE, 0, 0, 0, 1] };

pub struct World {
    pub network: Network,
    pub path: KernelPath,
    pub routes: Routes,
    pub oracle: Oracle,
    /// Flow labels, by flow and direction of the packets.
    labels: BTreeMap<(FlowId, bool), u32>,
    /// The kernel's counts for each flow.
    pub carried: BTreeMap<FlowId, FlowCounters>,
    /// True if the lease is renewed before each frame.
    pub renew: bool,
    /// True if a relayed packet may be counted as `overtaken`. The programs count so when packets
    /// stay in the stack for 50 ms, for example because the test is slow.
    pub may_overtake: bool,
}

/// Outcome of a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judged {
    pub verdict: Verdict,
    /// Counter of passed packets that rose.
    pub passed: Option<&'static str>,
    /// True if the rules relay the frame, with or without a ChannelData header, and the network
    /// accepts the result.
    pub may_be_relayed: bool,
    /// Outbound frame.
    pub frame: Vec<u8>,
}

/// Returns the flow of a route, as the data plane installs it.
pub fn flow(route: &Route) -> Flow {
    Flow {
        client: route.five_tuple.client.0,
        server: route.five_tuple.server.0,
        channel: route.id.channel,
        relayed: route.relayed.0,
        peer: route.peer.0,
        hairpin: route.own,
        to_peer_until: route.to_peer_until,
        to_client_until: route.to_client_until,
        bytes_per_second: route.bytes_per_second,
    }
}

const fn flow_id(id: RouteId) -> FlowId {
    FlowId { allocation: id.allocation, channel: id.channel }
}

impl World {
    /// Creates a world with a start in the past.
    pub fn new(ago: Duration) -> Self {
        Self::with(ago, Proof::NOT_REQUIRED, |_| {})
    }

    pub fn with(ago: Duration, proof: Proof, change: impl FnOnce(&mut Policy)) -> Self {
        let network = Network::make();
        let options = Options { flows: 1024, look_up_from: 1, proof };
        let mut path = KernelPath::make(options).unwrap();
        path.set_link(INBOUND).unwrap();
        for (index, mac) in network.indices.into_iter().zip(network.macs) {
            path.set_link(outbound(index, mac)).unwrap();
        }
        let routes = path.routes(WorkerId(3)).unwrap();
        let own = [OWN_V4, OWN_V6].concat().into_iter().map(address).collect::<Vec<_>>();
        // Relays are on the link of peers. Packets of clients arrive there as well.
        let mut policy = oracle::policy(&[own[1], own[3]], &own);
        change(&mut policy);
        let listeners = own.iter().map(|ip| SocketAddr::new(*ip, PORT)).collect();
        let now = linux_net::Clock::now();
        let began = Instant::from_nanos(now.instant.as_nanos() - ago.as_nanos() as u64);
        let oracle = Oracle::new(policy, Now { instant: began, ..now }, listeners);
        let (labels, carried) = (BTreeMap::new(), BTreeMap::new());
        Self { network, path, routes, oracle, labels, carried, renew: true, may_overtake: false }
    }

    /// Sets the rules' clock to the present time. The clock does not advance.
    pub fn present(&mut self) {
        self.oracle.now = linux_net::Clock::now();
    }

    /// Applies changes of routes to the kernel.
    pub fn tell(&mut self) {
        let now = linux_net::Clock::instant();
        for told in self.oracle.told() {
            match told {
                Told::Set(route) => self.routes.set(now, flow_id(route.id), &flow(&route)).unwrap(),
                Told::Removed(id) => self.add(flow_id(id)),
            }
        }
    }

    fn add(&mut self, id: FlowId) {
        let carried = self.routes.remove(id);
        assert!(carried.is_zero(), "{id:?} carried {carried:?} that was not swept");
    }

    pub fn judge(&mut self, hook: Hook, bytes: &[u8]) -> Judged {
        self.judge_as(hook, bytes, FrameContext::Alone)
    }

    /// Processes a frame that the kernel must relay. Returns the outbound frame.
    pub fn relayed(&mut self, hook: Hook, bytes: &[u8]) -> Vec<u8> {
        let judged = self.judge(hook, bytes);
        assert_eq!((judged.verdict, judged.passed), (Verdict::Redirect, None), "{}", hex(bytes));
        judged.frame
    }

    /// Processes a frame that the kernel must not relay. Returns the counter that rose.
    pub fn passed(&mut self, hook: Hook, bytes: &[u8]) -> Option<&'static str> {
        let judged = self.judge(hook, bytes);
        assert_eq!(judged.verdict, Verdict::Pass, "{}", hex(bytes));
        judged.passed
    }

    /// Makes datagrams of a flow leave through the stack, as sent by the server. They leave by the
    /// expected interface, or by the other interface. Several datagrams are segments of one packet.
    pub fn leave(&self, datagrams: &[Datagram], other: bool) {
        let mut leaves = datagrams[0].clone();
        let bytes = leaves.payload.len() as u32;
        leaves.payload = datagrams.iter().flat_map(|one| one.payload.clone()).collect();
        let macs = self.network.way(leaves.to.ip()).unwrap();
        let link = self.network.macs.iter().position(|mac| *mac == macs.from).unwrap();
        let by = self.network.indices[if other { 1 - link } else { link }];
        let count = datagrams.len() as u32;
        let segments = if count > 1 { (count, bytes) } else { (0, 0) };
        let leaving = EgressContext { by, segments, ..EgressContext::default() };
        self.path.run_tap(&leaves.frame(macs, Check::Right), leaving).unwrap();
    }

    /// Processes a frame with the program and the rules.
    ///
    /// # Panics
    /// The program altered or counted the frame against the rules.
    pub fn judge_as(&mut self, hook: Hook, bytes: &[u8], comes: FrameContext) -> Judged {
        self.tell();
        if self.renew {
            self.routes.renew(linux_net::Clock::instant());
        }
        let before = self.path.passed();
        let ran = self.path.run_as(hook, bytes, 1, comes).unwrap();
        let counters: Vec<&str> = self.path.passed().iter().zip(&before).flat_map(rose).collect();
        let mut carried = BTreeMap::new();
        self.routes.sweep(linux_net::Clock::instant(), usize::MAX, |id, what| {
            carried.insert(id, what);
        });
        for (id, what) in &carried {
            sum_up(self.carried.entry(*id).or_default(), what);
        }

        let front = match comes {
            FrameContext::Behind(len) => len as usize,
            FrameContext::Alone | FrameContext::Merged(..) => 0,
        };
        let (bytes, left) = (&bytes[front..], &ran.frame[front..]);
        let seen = read(bytes).filter(|seen| seen.macs.to == LOOPBACK);
        let fate = seen.as_ref().map_or(Fate::Other, |seen| self.oracle.take(&seen.datagram));
        let what = || {
            let rules = match &fate {
                Fate::Relayed(Relayed { legs, datagram }) => {
                    let Datagram { from, to, .. } = datagram;
                    format!("from {from} to {to} with {:?} by {legs:?}", datagram.meta())
                }
                other => format!("{other:?}"),
            };
            let verdict = ran.verdict;
            format!("{hook} made {verdict:?} of\n{}\nrules: {rules}", hex(bytes))
        };
        let wanted = match (&seen, &fate) {
            (Some(seen), Fate::Relayed(relayed)) => self.wanted(hook, seen, relayed, left),
            _ => None,
        };
        match ran.verdict {
            Verdict::Pass => {
                assert!(left == bytes, "passed, but changed to\n{}\n{}", hex(left), what());
                assert!(carried.is_empty(), "passed, but counted {carried:?}\n{}", what());
                assert!(counters.len() <= 1, "{counters:?}\n{}", what());
            }
            Verdict::Redirect => {
                let Some(wanted) = &wanted else { panic!("relayed\n{}\n{}", hex(left), what()) };
                let (Some(seen), Fate::Relayed(relayed)) = (&seen, &fate) else {
                    panic!("{}", what())
                };
                // A frame may be longer than the datagram, because of inbound trailing bytes and
                // the padding of ChannelData.
                let beyond = left.strip_prefix(&wanted.frame[..]);
                let padding = |bytes: &[u8]| bytes.len() < 4 && bytes.iter().all(|byte| *byte == 0);
                assert!(
                    beyond.is_some_and(|b| padding(b.strip_suffix(&seen.trailer[..]).unwrap_or(b))),
                    "is\n{}\nnot\n{}\n{}",
                    hex(left),
                    hex(&wanted.frame),
                    what()
                );
                self.check_label(left, relayed);
                assert_eq!(carried, counted(&relayed.legs), "{}", what());
                let is_expected = |counter: &&str| self.may_overtake && *counter == "overtaken";
                assert!(counters.iter().all(is_expected), "{counters:?}\n{}", what());
            }
            Verdict::Drop => {
                let Fate::Dropped(DropReason::Bandwidth, legs) = &fate else {
                    panic!("{}", what())
                };
                assert_eq!(without_over(&carried), counted(legs), "{}", what());
                let over: u64 = carried.values().map(|c| c.to_peer_over + c.to_client_over).sum();
                assert_eq!(over, 1, "{carried:?}\n{}", what());
                assert!(counters.is_empty(), "{counters:?}\n{}", what());
            }
            Verdict::Tried | Verdict::Other(_) => panic!("{}", what()),
        }
        Judged {
            verdict: ran.verdict,
            passed: counters.first().copied(),
            may_be_relayed: wanted.is_some(),
            frame: left.to_vec(),
        }
    }

    /// Returns the expected outbound frame, or `None` if the kernel must not relay the frame. Free
    /// fields (the identification of IPv4, the label of IPv6) are as in `like`.
    fn wanted(
        &self,
        hook: Hook,
        seen: &Seen,
        relayed: &Relayed,
        like: &[u8],
    ) -> Option<OffloadConfig> {
        let mut datagram = relayed.datagram.clone();
        let like = |at: usize| like.get(at).copied().unwrap_or(0);
        let is_v4_to_v4 = seen.datagram.is_v4() && datagram.is_v4();
        datagram.id = u16::from_be_bytes([like(18), like(19)]);
        datagram.label = u32::from_be_bytes([0, like(15) & 0xF, like(16), like(17)]);
        let check = match seen {
            _ if seen.check == 0 && is_v4_to_v4 => Check::Zero,
            _ if seen.check == 0 => return None,
            // The checksum may be partial. At tc the kernel knows that the test's packet has a
            // complete checksum.
            _ if seen.is_partial() && hook == Hook::Xdp => Check::Right,
            // An invalid checksum stays invalid.
            _ => Check::Wrong(seen.datagram.error(seen.check)),
        };
        // Not relayed: an unknown time to live, a Data indication, or a packet too long for the
        // link.
        let is_plain = datagram.ttl != 0 && relayed.legs.iter().all(|leg| leg.channel.is_some());
        let macs = self.network.way(datagram.to.ip())?;
        (is_plain && datagram.ip_len() <= MTU)
            .then(|| OffloadConfig { frame: datagram.frame(macs, check) })
    }

    /// Checks that all packets of a flow have one label.
    fn check_label(&mut self, left: &[u8], relayed: &Relayed) {
        let Some(left) = read(left).filter(|_| !relayed.datagram.is_v4()) else { return };
        let label = left.datagram.label;
        let leg = relayed.legs.last().unwrap();
        let first = *self.labels.entry((leg.flow().unwrap(), leg.to_client)).or_insert(label);
        assert_eq!(label, first, "the flow label to {}", relayed.datagram.to);
    }
}

/// Formats a frame for people: the headers, and the length.
pub fn hex(frame: &[u8]) -> String {
    const SHOWN: usize = 74;
    let shown = &frame[..frame.len().min(SHOWN)];
    format!("{shown:02x?} of {}", frame.len())
}

struct OffloadConfig {
    frame: Vec<u8>,
}

/// Returns true if the kernel runs the program of a hook on such a frame. The kernel builds no
/// packet for tc from a truncated IP header.
pub fn is_runnable(hook: Hook, frame: &[u8]) -> bool {
    let header = match (hook, frame.get(12..14)) {
        (Hook::Tc, Some(kind)) if kind == TYPE_V4 => IPV4,
        (Hook::Tc, Some(kind)) if kind == TYPE_V6 => IPV6,
        (Hook::Tc, _) => 1,
        _ => 0,
    };
    frame.len() >= ETHERNET + header
}

/// Returns the names of counters, once for each increment.
fn rose(
    ((name, after), (_, before)): (&(&'static str, u64), &(&'static str, u64)),
) -> impl Iterator<Item = &'static str> + use<> {
    std::iter::repeat_n(*name, (after - before) as usize)
}

/// Returns the counts that the kernel must have for a packet with these legs.
pub fn counted(legs: &[Leg]) -> BTreeMap<FlowId, FlowCounters> {
    let mut all = BTreeMap::<FlowId, FlowCounters>::new();
    for leg in legs {
        let carried = all.entry(leg.flow().unwrap()).or_default();
        if leg.to_client {
            carried.to_client_packets += 1;
            carried.to_client_bytes += leg.bytes;
        } else {
            carried.to_peer_packets += 1;
            carried.to_peer_bytes += leg.bytes;
        }
    }
    all
}

fn without_over(carried: &BTreeMap<FlowId, FlowCounters>) -> BTreeMap<FlowId, FlowCounters> {
    carried
        .iter()
        .map(|(id, what)| (*id, FlowCounters { to_peer_over: 0, to_client_over: 0, ..*what }))
        .filter(|(_, what)| !what.is_zero())
        .collect()
}

fn sum_up(sum: &mut FlowCounters, more: &FlowCounters) {
    sum.to_peer_packets += more.to_peer_packets;
    sum.to_peer_bytes += more.to_peer_bytes;
    sum.to_client_packets += more.to_client_packets;
    sum.to_client_bytes += more.to_client_bytes;
    sum.to_peer_over += more.to_peer_over;
    sum.to_client_over += more.to_client_over;
}
