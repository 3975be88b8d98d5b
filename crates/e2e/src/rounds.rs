//! Bursts between a client and its peers by all ways of data at once: each packet has to arrive
//! once, unaltered, and in the order of its flow.

use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use stun_wire::ChannelNumber;
use turn_client::Families;
use turn_types::IpFamily;

use crate::{Caller, Config, Host, Lab};

/// Longest time for a packet: longer than any pause of a server.
const PATIENCE: Duration = Duration::from_secs(20);

/// Packets of a flow in each direction on their way at once.
const BURST: u32 = 16;

/// A peer of the client.
#[derive(Debug)]
struct Flow {
    /// Connected to the relayed address.
    socket: UdpSocket,
    address: SocketAddr,
    /// The channel; none: Send and Data indications.
    channel: Option<ChannelNumber>,
}

/// A client, and two peers for each of its relayed addresses: one by a channel, one by indications.
#[derive(Debug)]
pub struct Rounds {
    /// The client.
    pub caller: Caller,
    flows: Vec<Flow>,
    next: u32,
}

impl Rounds {
    /// An allocation of the first user of a server in the lab, which the client makes over this
    /// family.
    ///
    /// # Panics
    /// The server refuses it.
    #[must_use]
    pub fn new(lab: &Lab, config: &Config, over: IpFamily, families: Families) -> Self {
        let (client, listen) = match over {
            IpFamily::V4 => (lab.v4.client, lab.v4.listen),
            IpFamily::V6 => (lab.v6.client, lab.v6.listen),
        };
        let (socket, server) = (lab.socket(Host::Client, (client, 0)), (listen, 3478).into());
        let caller = Caller::with_families(socket, server, config.accounts[0], families);
        let mut rounds = Self { caller, flows: Vec::new(), next: 0 };
        for (family, peer) in [(IpFamily::V4, lab.v4.peer), (IpFamily::V6, lab.v6.peer)] {
            let Some(relayed) = rounds.caller.relayed_of(family) else { continue };
            // Before the channel, which has a permission as well.
            rounds.caller.permit(peer);
            for by_channel in [false, true] {
                let socket = lab.socket(Host::Peer, (peer, 0));
                socket.connect(relayed).expect("the relayed address");
                socket.set_read_timeout(Some(PATIENCE)).expect("a time");
                let address = socket.local_addr().expect("an address");
                let channel = by_channel.then(|| rounds.caller.bind(address));
                rounds.flows.push(Flow { socket, address, channel });
            }
        }
        rounds
    }

    /// Sends a burst by each flow in both directions, and waits for all of it.
    ///
    /// # Panics
    /// A packet is lost, altered, out of order, or comes by another way.
    #[track_caller]
    pub fn exchange(&mut self) {
        let numbers = self.next..self.next + BURST;
        self.next += BURST;
        for number in numbers.clone() {
            for flow in &self.flows {
                match flow.channel {
                    Some(channel) => self.caller.send(channel, &packet(number, b'c')),
                    None => self.caller.indicate(flow.address, &packet(number, b'c')),
                }
                flow.socket.send(&packet(number, b'p')).expect("sent");
            }
        }
        for (flow, number) in
            self.flows.iter().flat_map(|flow| numbers.clone().map(move |n| (flow, n)))
        {
            let mut bytes = [0; 2000];
            let len = flow.socket.recv(&mut bytes);
            let len = len.unwrap_or_else(|error| panic!("{number} at {flow:?}: {error}"));
            assert_eq!(bytes[..len], packet(number, b'c'), "{number} at {flow:?}");
        }
        let mut expected = vec![numbers.start; self.flows.len()];
        for _ in 0..numbers.len() * self.flows.len() {
            let data = self.caller.data(PATIENCE);
            let data =
                data.unwrap_or_else(|| panic!("at the client: up to {expected:?} of {numbers:?}"));
            let at = self.flows.iter().position(|flow| flow.address == data.peer).expect("a peer");
            assert_eq!(data.channel, self.flows[at].channel, "from {:?}", self.flows[at]);
            assert_eq!(data.payload, packet(expected[at], b'p'), "from {:?}", self.flows[at]);
            expected[at] += 1;
        }
    }
}

/// All lengths up to 700 bytes occur, with all paddings.
fn packet(number: u32, from: u8) -> Vec<u8> {
    let mut bytes = number.to_be_bytes().to_vec();
    bytes.resize(4 + (number % 700) as usize, from);
    bytes
}
