//! A host that tests NAT behaviour discovery (RFC 5780, RFC 3489): each response comes from the
//! address, and goes to the port, that its request names, and tells the host its address.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use netsim::{Body, Outbox, Packet, Rng};
use stun_wire::{
    AttributeType, ChangeRequest, Class, Message, MessageBuilder, Method, TransactionId, value,
};
use turn_proto::DiscoverySockets;
use turn_types::{Instant, Now};

/// Requests of which the responses are remembered.
const REMEMBERED_MAX: usize = 64;

/// Bytes of a response beyond those of its request.
const OVERHEAD_MAX: usize = 64;

/// Longest pause between two requests.
const PAUSE_MAX: Duration = Duration::from_secs(12);

/// A request, as it was sent.
#[derive(Clone, Copy, Debug)]
struct Sent {
    /// Source of a success, and of an error.
    from: SocketAddr,
    to: SocketAddr,
    /// Port of the host that a success goes to.
    port: u16,
    /// Bytes of the request: a response has at most as many and a fixed part.
    len: usize,
}

/// A host that tests NAT behaviour discovery.
#[derive(Debug)]
pub struct ProbeHost {
    me: SocketAddr,
    sockets: DiscoverySockets,
    rng: Rng,
    sent: BTreeMap<[u8; 12], Sent>,
    acts_at: Instant,
    until: Instant,
    /// Successes received.
    pub answered: u64,
    /// The first wrong response.
    pub violation: Option<String>,
}

impl ProbeHost {
    /// A host at this address, without a NAT, of a server with these sockets.
    #[must_use]
    pub fn new(me: SocketAddr, sockets: DiscoverySockets, rng: Rng, until: Instant) -> Self {
        let (sent, acts_at) = (BTreeMap::new(), Instant::ZERO);
        Self { me, sockets, rng, sent, acts_at, until, answered: 0, violation: None }
    }

    /// Time at which it acts next.
    #[must_use]
    pub fn next_wake(&self) -> Option<Instant> {
        (self.acts_at < self.until).then_some(self.acts_at)
    }

    /// Sends a request.
    pub fn wake(&mut self, now: Now, out: &mut Outbox) {
        self.acts_at =
            now.instant + Duration::from_millis(100) + self.rng.duration_below(PAUSE_MAX);
        let [ip, port] = [0, 0].map(|_| self.rng.index(2));
        let flag = |rng: &mut Rng| rng.below(3) == 0;
        let [change_ip, change_port] = [0, 0].map(|_| flag(&mut self.rng));
        let is_classic = flag(&mut self.rng);
        let reply_port = (!is_classic && flag(&mut self.rng)).then(|| self.me.port() + 1);
        let padding = (!is_classic && reply_port.is_none() && flag(&mut self.rng))
            .then(|| 4 * self.rng.index(300));

        let mut id = [0; 16];
        id.copy_from_slice(&self.rng.bytes(16));
        let key: [u8; 12] = *id.last_chunk().expect("16 bytes");
        let mut request = [0; 1500];
        let mut builder = if is_classic {
            MessageBuilder::new_classic(&mut request, Class::Request, Method::BINDING, id)
        } else {
            let id = TransactionId(key);
            MessageBuilder::new(&mut request, Class::Request, Method::BINDING, id)
        };
        if change_ip || change_port {
            builder.change_request(ChangeRequest { change_ip, change_port });
        }
        if let Some(port) = reply_port {
            builder.response_port(port);
        }
        if let Some(len) = padding {
            builder.attribute(AttributeType::PADDING, &[0; 1200][..len]);
        }
        let len = builder.finish().expect("room");
        let local = &self.sockets.local;
        let to = local[ip][port];
        let from = local[ip ^ usize::from(change_ip)][port ^ usize::from(change_port)];
        let port = reply_port.unwrap_or_else(|| self.me.port());
        if self.sent.len() >= REMEMBERED_MAX {
            self.sent.pop_first();
        }
        self.sent.insert(key, Sent { from, to, port, len });
        out.send(Packet::udp(self.me, to, request[..len].to_vec()));
    }

    /// Takes a packet.
    pub fn receive(&mut self, packet: &Packet) {
        let Body::Udp(bytes) = &packet.body else { return };
        if let Err(why) = self.check(packet, bytes) {
            self.violation.get_or_insert(why);
        }
    }

    fn check(&mut self, packet: &Packet, bytes: &[u8]) -> Result<(), String> {
        let key: Option<[u8; 12]> = bytes.get(8..20).and_then(|id| id.try_into().ok());
        let Some(sent) = key.and_then(|key| self.sent.get(&key)).copied() else { return Ok(()) };
        let is_success = bytes[..2] == [0x01, 0x01];
        let (from, port) =
            if is_success { (sent.from, sent.port) } else { (sent.to, self.me.port()) };
        if (packet.src, packet.dst.port()) != (from, port) {
            return Err(format!("{sent:?} was answered by {} to {}", packet.src, packet.dst));
        }
        if bytes.len() > sent.len + OVERHEAD_MAX {
            return Err(format!("{sent:?} was answered by {} bytes", bytes.len()));
        }
        if is_success {
            self.answered += 1;
            let mapped = mapped(bytes);
            if mapped != Some(self.me) {
                return Err(format!("{} is told that it is {mapped:?}", self.me));
            }
        }
        Ok(())
    }
}

/// The address of the host in a response.
fn mapped(response: &[u8]) -> Option<SocketAddr> {
    let value = match Message::parse(response) {
        Ok(message) => {
            let value = message.first(AttributeType::XOR_MAPPED_ADDRESS)?;
            return value::xor_address(value, message.transaction_id()).ok();
        }
        Err(_) => Message::parse_classic(response).ok()?.first(AttributeType::MAPPED_ADDRESS)?,
    };
    value::address(value).ok()
}
