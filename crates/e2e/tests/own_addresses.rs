//! The host's own addresses are refused as peers, whatever their origin.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use e2e::{Config, Host, Lab, Server, require};
use stun_wire::{AttributeType, Class, Message, MessageBuilder, Method, TransactionId, value};
use turn_types::IpFamily;

/// Longest time for an answer or an expected event: the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(20);

/// Time after which a datagram counts as dropped.
const QUIET: Duration = Duration::from_millis(500);

/// Forbidden (RFC 8656 §19).
const FORBIDDEN: Option<u16> = Some(403);

const UDP: u8 = 17;
const TCP: u8 = 6;

/// A client of an open relay, without credentials.
enum Client {
    Datagrams(UdpSocket),
    Stream(TcpStream),
}

impl Client {
    fn by_udp(lab: &Lab, relay: IpFamily) -> Self {
        let socket = lab.socket(Host::Client, (lab.v4.client, 0));
        socket.connect((lab.v4.listen, 3478)).expect("connected");
        socket.set_read_timeout(Some(PATIENCE)).expect("a wait");
        let mut client = Self::Datagrams(socket);
        client.allocate(UDP, relay);
        client
    }

    fn by_tcp(lab: &Lab, relay: IpFamily) -> Self {
        let stream = lab.connect(Host::Client, (lab.v4.listen, 3478).into());
        stream.set_read_timeout(Some(PATIENCE)).expect("a wait");
        let mut client = Self::Stream(stream);
        client.allocate(TCP, relay);
        client
    }

    fn allocate(&mut self, protocol: u8, relay: IpFamily) {
        let family = if relay == IpFamily::V4 { 1 } else { 2 };
        let refused = self.ask(Method::ALLOCATE, |request| {
            request.requested_transport(protocol).requested_address_family(family);
        });
        assert_eq!(refused, None, "an open relay grants an allocation");
    }

    /// Error code of a request, if the server refuses it.
    fn ask(&mut self, method: Method, fill: impl Fn(&mut MessageBuilder<'_>)) -> Option<u16> {
        let mut bytes = [0; 256];
        let mut request =
            MessageBuilder::new(&mut bytes, Class::Request, method, TransactionId([7; 12]));
        fill(&mut request);
        let len = request.finish().expect("it fits");
        let mut answer = [0; 1024];
        let len = match self {
            Self::Datagrams(socket) => {
                socket.send(&bytes[..len]).expect("sent");
                socket.recv(&mut answer).expect("an answer")
            }
            Self::Stream(stream) => {
                stream.write_all(&bytes[..len]).expect("sent");
                stream.read_exact(&mut answer[..20]).expect("an answer");
                let len = usize::from(u16::from_be_bytes([answer[2], answer[3]]));
                stream.read_exact(&mut answer[20..20 + len]).expect("an answer");
                20 + len
            }
        };
        let answer = Message::parse(&answer[..len]).expect("a message");
        match answer.class() {
            Class::Success => None,
            Class::Error => {
                let error = answer.first(AttributeType::ERROR_CODE).expect("its code");
                Some(value::error_code(error).expect("a code").0)
            }
            Class::Request | Class::Indication => panic!("no answer: {answer:?}"),
        }
    }

    /// Error code of a permission for a peer, if the server refuses it.
    fn permission(&mut self, peer: IpAddr) -> Option<u16> {
        let peer = SocketAddr::new(peer, 0);
        self.ask(Method::CREATE_PERMISSION, |request| {
            request.xor_address(AttributeType::XOR_PEER_ADDRESS, peer);
        })
    }

    /// Error code of a connection to a peer, if it does not come about.
    fn connection(&mut self, peer: SocketAddr) -> Option<u16> {
        self.ask(Method::CONNECT, |request| {
            request.xor_address(AttributeType::XOR_PEER_ADDRESS, peer);
        })
    }

    /// Sends a datagram to a peer.
    fn send(&self, peer: SocketAddr) {
        let Self::Datagrams(socket) = self else { panic!("by UDP alone") };
        let mut bytes = [0; 256];
        let mut send = MessageBuilder::new(
            &mut bytes,
            Class::Indication,
            Method::SEND,
            TransactionId([8; 12]),
        );
        send.xor_address(AttributeType::XOR_PEER_ADDRESS, peer).data(b"to the host itself");
        let len = send.finish().expect("it fits");
        socket.send(&bytes[..len]).expect("sent");
    }
}

/// A lab whose server is an open relay, except to its own addresses.
fn scene() -> Option<(Lab, Server)> {
    let lab = require(Lab::new())?;
    let mut config = Config::for_lab(&lab);
    config.accounts.clear();
    config.allow.push("fd77:2::/64".to_owned());
    config.tables =
        "[auth]\nopen_relay = \"yes, relay for anyone\"\n[tcp]\nrelaying = true\n".to_owned();
    let server = Server::start(&lab, &config);
    Some((lab, server))
}

/// True if a datagram arrives at a service of the host.
fn comes(service: &UdpSocket, within: Duration) -> bool {
    service.set_read_timeout(Some(within)).expect("a wait");
    service.recv(&mut [0; 64]).is_ok()
}

/// Neither a datagram nor a connection of a client gets to services of the server's host at `ip`.
fn assert_refused(lab: &Lab, ip: IpAddr) {
    let family = IpFamily::of(ip);
    let service = lab.socket(Host::Server, (family.unspecified(), 5000));
    let _listener = lab.listener(Host::Server, (family.unspecified(), 5001));
    let mut client = Client::by_udp(lab, family);
    assert_eq!(client.permission(ip), FORBIDDEN, "a permission for {ip}");
    client.send(SocketAddr::new(ip, 5000));
    assert!(!comes(&service, QUIET), "a datagram reached the host itself at {ip}");
    let mut client = Client::by_tcp(lab, family);
    let refused = client.connection(SocketAddr::new(ip, 5001));
    assert_eq!(refused, FORBIDDEN, "a connection to {ip}");
    // Others reach the service.
    let other = lab.socket(Host::Server, (family.unspecified(), 0));
    other.send_to(b"from the host", (ip, 5000)).expect("sent");
    assert!(comes(&service, PATIENCE), "the service hears at {ip}");
}

#[test]
fn prefixes_that_are_routed_to_the_host() {
    // 8656-policy-01
    let Some((lab, _server)) = scene() else { return };
    lab.run(Host::Server, "ip", &["route", "add", "local", "9.9.9.0/24", "dev", "lo"]);
    lab.run(Host::Server, "ip", &["-6", "route", "add", "local", "2a0c:77::/64", "dev", "lo"]);
    wait_until_refused(&lab, "9.9.9.77");
    wait_until_refused(&lab, "2a0c:77::77");
    assert_refused(&lab, "9.9.9.77".parse().expect("an address"));
    assert_refused(&lab, "2a0c:77::77".parse().expect("an address"));
}

#[test]
fn the_subnet_router_anycast_address() {
    // RFC 4291 §2.6.1: of each prefix of a router.
    let Some((lab, _server)) = scene() else { return };
    lab.run(Host::Server, "sysctl", &["-w", "net.ipv6.conf.all.forwarding=1"]);
    wait_until_refused(&lab, "fd77:2::");
    assert_refused(&lab, "fd77:2::".parse().expect("an address"));
}

#[test]
fn an_address_that_becomes_the_hosts_while_a_client_sends_to_it() {
    let Some((lab, _server)) = scene() else { return };
    let ip: IpAddr = "9.9.8.8".parse().expect("an address");
    let at = |host, command: &str| {
        let words: Vec<_> = command.split(' ').collect();
        lab.run(host, "ip", &words);
    };
    at(Host::Peer, "addr add 9.9.8.8/32 dev lo");
    at(Host::Server, &format!("route add 9.9.8.8/32 via {}", lab.v4.peer));
    let peer = lab.socket(Host::Peer, (ip, 5000));
    let service = lab.socket(Host::Server, (IpFamily::V4.unspecified(), 5000));
    let mut client = Client::by_udp(&lab, IpFamily::V4);
    assert_eq!(client.permission(ip), None);
    client.send(SocketAddr::new(ip, 5000));
    assert!(comes(&peer, PATIENCE));

    at(Host::Server, "addr add 9.9.8.8/32 dev lo");
    let deadline = Instant::now() + PATIENCE;
    while client.permission(ip) != FORBIDDEN {
        assert!(Instant::now() < deadline, "it became the host's own address");
        std::thread::sleep(Duration::from_millis(20));
    }
    // Datagrams sent before, and after.
    while comes(&service, QUIET) {}
    client.send(SocketAddr::new(ip, 5000));
    assert!(!comes(&service, QUIET), "its permission is gone");
    assert!(!comes(&peer, QUIET));

    at(Host::Server, "addr del 9.9.8.8/32 dev lo");
    let deadline = Instant::now() + PATIENCE;
    while client.permission(ip).is_some() {
        assert!(Instant::now() < deadline, "it is the host's no more");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Waits until a client is refused a permission for an address.
#[track_caller]
fn wait_until_refused(lab: &Lab, ip: &str) {
    let ip: IpAddr = ip.parse().expect("an address");
    let mut client = Client::by_udp(lab, IpFamily::of(ip));
    let deadline = Instant::now() + PATIENCE;
    while client.permission(ip) != FORBIDDEN {
        assert!(Instant::now() < deadline, "{ip} is the host's own");
        std::thread::sleep(Duration::from_millis(20));
    }
}
