//! Answers of a server.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use turn_client::{AllocateOptions, Client, ClientConfig, Event};
use turn_types::ServerAddr;

use super::configuration::Credential;

/// Longest time for an answer.
const PATIENCE: Duration = Duration::from_secs(4);

/// Longest datagram of an answer.
const DATAGRAM_MAX: usize = 2048;

/// Peers of every class: in the networks of the lab, of this host, of private and public networks.
const PEERS: [&str; 11] = [
    "10.77.2.2",
    "10.77.1.1",
    "127.0.0.1",
    "192.168.7.7",
    "172.16.7.7",
    "100.64.7.7",
    "169.254.7.7",
    "224.0.0.9",
    "8.8.8.8",
    "9.9.9.9",
    "9.9.9.77",
];

/// Outcome of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Success, with an address where there is one.
    Granted(Option<IpAddr>),
    /// An error code.
    Refused(u16),
    /// No authentic answer.
    Silence(String),
}

/// All that was seen of a server.
#[derive(Clone, Debug, Default)]
pub struct Observation {
    /// The server runs.
    pub is_up: bool,
    /// The outcome of a Binding request.
    pub binding: Option<Outcome>,
    /// Outcomes of Allocate requests, in the order of the credentials.
    pub allocations: Vec<Outcome>,
    /// Outcomes of permissions for peers, of the first credential with an allocation.
    pub peers: BTreeMap<IpAddr, Outcome>,
    /// Output of the server.
    pub output: String,
}

impl Observation {
    /// Asks a server that runs. `socket` opens a socket of the client's host.
    #[must_use]
    pub fn of(
        server: SocketAddr,
        credentials: &[Credential],
        socket: &dyn Fn() -> UdpSocket,
    ) -> Self {
        let mut seen = Self { is_up: true, ..Self::default() };
        seen.binding = Some(Asker::new(socket(), server, ("", "")).bind());
        for credential in credentials {
            let (name, password) = name_and_password(credential);
            let mut asker = Asker::new(socket(), server, (&name, &password));
            let outcome = asker.allocate();
            if seen.peers.is_empty() && matches!(outcome, Outcome::Granted(_)) {
                let peers =
                    PEERS.map(|peer| peer.parse::<IpAddr>().unwrap_or_else(|_| unreachable!()));
                seen.peers = peers.into_iter().map(|peer| (peer, asker.permit(peer))).collect();
            }
            seen.allocations.push(outcome);
        }
        seen
    }
}

/// Name and password by a credential; by a secret they are good for an hour.
fn name_and_password(credential: &Credential) -> (String, String) {
    match credential {
        Credential::User { name, password } => (name.clone(), password.clone()),
        Credential::Secret(secret) => {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let name = format!("{}:alice", now.as_secs() + 3600);
            let password = stun_wire::time_limited_password(secret, &name);
            (name, password)
        }
    }
}

/// A client that asks and takes each answer.
struct Asker {
    client: Client,
    socket: UdpSocket,
    start: Instant,
}

impl Asker {
    fn new(socket: UdpSocket, server: SocketAddr, (name, password): (&str, &str)) -> Self {
        socket.connect(server).unwrap_or_else(|error| panic!("{server}: {error}"));
        let mut seed = [9; 32];
        let port = socket.local_addr().map_or(0, |at| at.port());
        seed[..2].copy_from_slice(&port.to_be_bytes());
        let config = ClientConfig::new(ServerAddr(server), name, password, seed);
        Self { client: Client::new(config), socket, start: Instant::now() }
    }

    fn bind(&mut self) -> Outcome {
        let now = self.now();
        self.client.binding(now).unwrap_or_else(|error| panic!("{error}"));
        self.outcome(|event| {
            let Event::Bound { mapped } = event else { return None };
            Some(Outcome::Granted(Some(mapped.0.ip().to_canonical())))
        })
    }

    fn allocate(&mut self) -> Outcome {
        let now = self.now();
        let options = AllocateOptions { lifetime_secs: Some(60), ..AllocateOptions::default() };
        self.client.allocate(now, options).unwrap_or_else(|error| panic!("{error}"));
        self.outcome(|event| {
            let Event::Allocated(allocation) = event else { return None };
            let relayed = allocation.relayed.into_iter().flatten().next();
            Some(Outcome::Granted(relayed.map(|relayed| relayed.0.ip())))
        })
    }

    fn permit(&mut self, peer: IpAddr) -> Outcome {
        let now = self.now();
        if let Err(error) = self.client.permit(now, peer) {
            return Outcome::Silence(error.to_string());
        }
        self.outcome(|event| {
            let is_ready =
                matches!(event, Event::PermissionReady { peer: ready } if *ready == peer);
            is_ready.then_some(Outcome::Granted(None))
        })
    }

    fn now(&self) -> turn_types::Instant {
        turn_types::Instant::ZERO + self.start.elapsed()
    }

    fn outcome(&mut self, wanted: impl Fn(&Event) -> Option<Outcome>) -> Outcome {
        let deadline = Instant::now() + PATIENCE;
        let mut datagram = [0; DATAGRAM_MAX];
        while Instant::now() < deadline {
            while let Some(bytes) = self.client.poll_transmit() {
                drop(self.socket.send(bytes));
            }
            while let Some(event) = self.client.poll_event() {
                if let Some(found) = wanted(&event) {
                    return found;
                }
                if let Event::Refused { code, .. } = event {
                    return Outcome::Refused(code);
                }
                if let Event::Failed { failure, .. } = event {
                    return Outcome::Silence(format!("{failure:?}"));
                }
            }
            let step = Some(Duration::from_millis(20));
            self.socket.set_read_timeout(step).unwrap_or_else(|error| panic!("{error}"));
            if let Ok(len) = self.socket.recv(&mut datagram) {
                let now = self.now();
                let _: turn_client::Incoming<'_> =
                    self.client.handle_datagram(now, &datagram[..len]);
            }
            let now = self.now();
            self.client.handle_timeout(now);
        }
        Outcome::Silence("no answer".to_owned())
    }
}
