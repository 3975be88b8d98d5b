//! A client of TCP relaying (RFC 6062): a control connection with an allocation, and data
//! connections, by which bytes go to peers and come back.

use std::net::SocketAddr;
use std::time::Duration;

use netsim::Rng;
use stun_wire::{AttributeType, Class, Message, Method, value};
use turn_types::{Instant, Now};

use crate::asker::{Ask, Asker, Heard};
use crate::client::ClientPlan;
use crate::framing::{Board, HEADER_LEN, stream_byte, stream_header};
use crate::link::Input;
use crate::tcp::{TcpEnd, TcpNet};

/// Longest pause between two actions.
const PAUSE_MAX: Duration = Duration::from_secs(6);

/// Time for a connection to be established, and for a request to be answered.
const ANSWER_TIME: Duration = Duration::from_secs(40);

/// Data connections at a time.
const DATA_MAX: usize = 6;

/// Most bytes of one connection: more than the windows of both sides.
const BYTES_MAX: u64 = 200_000;

/// A connection of the client to the server.
#[derive(Debug)]
enum Connection {
    /// Not established.
    Connecting(TcpEnd),
    /// Messages go over it, or bytes.
    Open(Box<Asker>),
}

/// A data connection.
#[derive(Debug)]
struct Data {
    connection: Option<Connection>,
    /// CONNECTION-ID, and the first bytes.
    id: u32,
    header: [u8; HEADER_LEN],
    begun: Instant,
    bound: bool,
    /// Bytes to be sent, those that were, and those that came back.
    total: u64,
    sent: u64,
    received: u64,
    /// Reads nothing until then.
    reads_at: Instant,
    ended: bool,
}

/// A client of TCP relaying.
#[derive(Debug)]
pub struct TcpClientHost {
    plan: ClientPlan,
    tcp: TcpNet,
    board: Board,
    rng: Rng,
    control: Option<Connection>,
    control_since: Instant,
    relayed: Option<SocketAddr>,
    data: Vec<Data>,
    connections: u32,
    acts_at: Instant,
    gone: bool,
    /// Data connections over which all bytes came back.
    pub completed: u64,
    /// The first wrong byte.
    pub violation: Option<String>,
}

impl TcpClientHost {
    /// A client that has done nothing yet.
    #[must_use]
    pub const fn new(plan: ClientPlan, tcp: TcpNet, board: Board, rng: Rng) -> Self {
        Self {
            plan,
            tcp,
            board,
            rng,
            control: None,
            control_since: Instant::ZERO,
            relayed: None,
            data: Vec::new(),
            connections: 0,
            acts_at: Instant::ZERO,
            gone: false,
            completed: 0,
            violation: None,
        }
    }

    /// Serves connections, and acts when it is time.
    pub fn wake(&mut self, now: Now) {
        let at = now.instant;
        self.tcp.advance(at);
        if self.gone || at >= self.plan.until {
            self.gone = true;
            self.control = None;
            return self.data.clear();
        }
        self.serve_control(now);
        self.serve_data(now);
        if at >= self.acts_at {
            self.acts_at = at + Duration::from_millis(50) + self.rng.duration_below(PAUSE_MAX);
            self.act(at);
        }
    }

    /// Time at which it is to wake.
    #[must_use]
    pub fn next_wake(&self) -> Option<Instant> {
        if self.gone {
            return None;
        }
        let reads = self.data.iter().map(|data| data.reads_at).filter(|at| *at > self.tcp.now());
        let event = self.tcp.next_event();
        [Some(self.acts_at), event, Some(self.plan.until)].into_iter().flatten().chain(reads).min()
    }

    fn connect(&self) -> TcpEnd {
        let from = SocketAddr::new(self.plan.me.ip(), self.tcp.next_port());
        self.tcp.connect(from, self.plan.server)
    }

    fn forget(&mut self) {
        self.control = None;
        self.relayed = None;
    }

    fn serve_control(&mut self, now: Now) {
        let at = now.instant;
        let is_late = at > self.control_since + ANSWER_TIME;
        match self.control.take() {
            None => {
                self.control = Some(Connection::Connecting(self.connect()));
                self.control_since = at;
            }
            Some(Connection::Connecting(end)) if end.is_writable() => {
                self.control =
                    Some(Connection::Open(Box::new(Asker::new(&self.plan, now.unix, end))));
            }
            Some(connection @ Connection::Connecting(_)) => {
                self.control = Some(connection).filter(|_| !is_late);
            }
            Some(Connection::Open(mut asker)) => {
                asker.link.flush();
                while let Some(heard) = asker.receive(&mut self.rng) {
                    match heard {
                        Heard::Answer(ask, answer) => self.answered(at, ask, &answer),
                        Heard::Refused(Ask::Refresh(_)) | Heard::Ended => return self.forget(),
                        Heard::Refused(..) => {}
                        Heard::Indication(indication) => self.attempted(at, &indication),
                    }
                }
                self.control = Some(Connection::Open(asker));
            }
        }
    }

    fn answered(&mut self, at: Instant, ask: Ask, answer: &[u8]) {
        let Ok(message) = Message::parse(answer) else { return };
        match ask {
            Ask::Allocate => {
                let relayed = message.first(AttributeType::XOR_RELAYED_ADDRESS);
                let id = message.transaction_id();
                let relayed = relayed.and_then(|value| value::xor_address(value, id).ok());
                self.relayed = relayed;
                relayed.into_iter().for_each(|relayed| {
                    self.board.owns(self.plan.number, relayed);
                    self.board.relays_tcp(relayed);
                });
            }
            Ask::Connect(peer) => self.begin_data(at, peer, &message),
            Ask::Refresh(0) => self.relayed = None,
            Ask::Refresh(_) | Ask::Permit(_) | Ask::Bind(_) => {}
        }
    }

    /// A peer has connected.
    fn attempted(&mut self, at: Instant, indication: &[u8]) {
        let Ok(message) = Message::parse(indication) else { return };
        if (message.class(), message.method()) != (Class::Indication, Method::CONNECTION_ATTEMPT) {
            return;
        }
        let peer = message.first(AttributeType::XOR_PEER_ADDRESS);
        let id = message.transaction_id();
        let Some(Ok(peer)) = peer.map(|value| value::xor_address(value, id)) else { return };
        let known = self.plan.peers.iter().find(|known| known.ip() == peer.ip()).copied();
        // Some are not wanted.
        if let Some(peer) = known
            && self.rng.below(5) > 0
        {
            self.begin_data(at, peer, &message);
        }
    }

    fn begin_data(&mut self, at: Instant, peer: SocketAddr, message: &Message<'_>) {
        let id = message.first(AttributeType::CONNECTION_ID);
        let Some(Ok(id)) = id.map(value::connection_id) else { return };
        if self.data.len() >= DATA_MAX {
            return;
        }
        self.connections += 1;
        let most = *self.rng.pick(&[100, 5_000, BYTES_MAX]);
        self.data.push(Data {
            connection: Some(Connection::Connecting(self.connect())),
            id,
            header: stream_header(self.plan.number, peer, self.connections),
            begun: at,
            bound: false,
            total: self.rng.within(20..most),
            sent: 0,
            received: 0,
            reads_at: Instant::ZERO,
            ended: false,
        });
    }

    fn serve_data(&mut self, now: Now) {
        for mut data in std::mem::take(&mut self.data) {
            match data.serve(&self.plan, now, &mut self.rng) {
                Ok(true) => self.data.push(data),
                Ok(false) => self.completed += u64::from(data.is_complete()),
                Err(why) => {
                    self.violation.get_or_insert(why);
                }
            }
        }
    }

    fn act(&mut self, at: Instant) {
        let peer = self.plan.peers[self.rng.index(3)];
        let chance = self.rng.below(30);
        if let Some(index) = self.data.len().checked_sub(1) {
            let index = self.rng.index(index + 1);
            match chance {
                0 => drop(self.data.swap_remove(index)),
                1 => {
                    let data = self.data.swap_remove(index);
                    if let Some(Connection::Open(asker)) = data.connection {
                        asker.link.reset();
                    }
                }
                // Its window fills.
                2 | 3 => {
                    let pause = self.rng.duration_below(Duration::from_secs(120));
                    self.data[index].reads_at = at + pause;
                }
                // It has said all.
                4 => self.data[index].total = self.data[index].sent.max(HEADER_LEN as u64),
                _ => {}
            }
        }
        let Some(Connection::Open(asker)) = &mut self.control else { return };
        let ask = match (self.relayed, chance) {
            (None, _) => Ask::Allocate,
            (Some(_), 5) => return self.forget(),
            (Some(_), 6) => Ask::Refresh(0),
            (Some(_), 7..=9) => Ask::Refresh(600),
            (Some(_), 10..=16) => Ask::Permit(peer.ip()),
            // To a closed port, too.
            (Some(_), 17) => Ask::Connect(SocketAddr::new(peer.ip(), 9)),
            (Some(_), _) => Ask::Connect(peer),
        };
        asker.ask(&mut self.rng, ask);
    }
}

impl Data {
    const fn is_complete(&self) -> bool {
        self.bound && self.ended && self.received == self.total
    }

    /// Returns false when the connection has ended.
    fn serve(&mut self, plan: &ClientPlan, now: Now, rng: &mut Rng) -> Result<bool, String> {
        let at = now.instant;
        let is_late = at >= self.begun + ANSWER_TIME;
        match self.connection.take() {
            Some(Connection::Connecting(end)) if end.is_writable() => {
                let mut asker = Asker::new(plan, now.unix, end);
                asker.ask(rng, Ask::Bind(self.id));
                self.connection = Some(Connection::Open(Box::new(asker)));
            }
            Some(Connection::Connecting(end)) => {
                let fails = is_late || end.take_error().is_some();
                self.connection = Some(Connection::Connecting(end));
                return Ok(!fails);
            }
            open => self.connection = open,
        }
        let Some(Connection::Open(asker)) = &mut self.connection else { return Ok(false) };
        asker.link.flush();
        while !self.bound {
            match asker.receive(rng) {
                None => return Ok(!is_late),
                Some(Heard::Answer(..)) => self.bound = true,
                Some(Heard::Refused(..) | Heard::Ended) => return Ok(false),
                Some(Heard::Indication(_)) => {
                    return Err("an indication on a data connection".into());
                }
            }
        }
        let Self { header, sent, received, total, .. } = self;
        while *sent < *total {
            let end = (*sent + 4_000).min(*total);
            let bytes: Vec<_> = (*sent..end).map(|offset| stream_byte(header, offset)).collect();
            let written = asker.link.write_bytes(&bytes);
            *sent += written as u64;
            if written == 0 {
                break;
            }
        }
        if *sent == *total && !self.ended {
            asker.link.end_sending();
            self.ended = true;
        }
        loop {
            if at < self.reads_at {
                return Ok(true);
            }
            match asker.link.read_bytes() {
                Input::Bytes(bytes) => {
                    for byte in bytes {
                        if *received >= *sent || byte != stream_byte(header, *received) {
                            let number = plan.number;
                            return Err(format!("client {number} got a wrong byte by TCP"));
                        }
                        *received += 1;
                    }
                }
                Input::Nothing => return Ok(true),
                Input::Ended => return Ok(false),
            }
        }
    }
}
