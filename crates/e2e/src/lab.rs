//! Three hosts in a row, each in its own network namespace.

use std::fs::File;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// A program that is started has copies of this process's descriptors for less than that.
const PORTS_FREE_WITHIN: Duration = Duration::from_secs(2);

/// One of the hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Host {
    /// Host of TURN clients.
    Client,
    /// Host of Turnpike.
    Server,
    /// Host of the peers.
    Peer,
}

impl Host {
    const ALL: [Self; 3] = [Self::Client, Self::Server, Self::Peer];

    const fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Server => "server",
            Self::Peer => "peer",
        }
    }
}

/// The addresses of one family.
#[derive(Clone, Copy, Debug)]
pub struct Addresses {
    /// The client.
    pub client: IpAddr,
    /// The server, on the link to the client: where it listens.
    pub listen: IpAddr,
    /// The server, on the link to the peer: where it relays.
    pub relay: IpAddr,
    /// The peer.
    pub peer: IpAddr,
}

/// Three hosts, two links: client - server - peer. The server does not forward packets.
#[derive(Debug)]
pub struct Lab {
    id: String,
    /// IPv4 addresses, all of 10.77.0.0/16.
    pub v4: Addresses,
    /// IPv6 addresses, all of fd77::/16.
    pub v6: Addresses,
}

/// Features of links that behave like cards, for `ethtool -K`: the far end accepts whole frames
/// (`gro`), and checksums are complete (`tx`).
const CARD: [&str; 4] = ["gro", "on", "tx", "off"];

static COUNTER: AtomicU32 = AtomicU32::new(0);

/// Next port of UDP in this process. No port is used twice: the server would take a client at the
/// port of an earlier one for that client.
static NEXT_PORT: AtomicU16 = AtomicU16::new(10_000);

/// Replaces port 0.
fn with_port((ip, port): (IpAddr, u16)) -> SocketAddr {
    let port = if port == 0 { NEXT_PORT.fetch_add(1, Ordering::Relaxed) } else { port };
    SocketAddr::new(ip, port)
}

impl Lab {
    /// Builds the hosts and links.
    ///
    /// # Errors
    /// Why this machine does not let us: a reason to skip the test.
    pub fn new() -> Result<Self, String> {
        let id = format!("tp{}-{}", std::process::id(), COUNTER.fetch_add(1, Ordering::Relaxed));
        let lab = Self {
            id,
            v4: addresses(["10.77.1.2", "10.77.1.1", "10.77.2.1", "10.77.2.2"]),
            v6: addresses(["fd77:1::2", "fd77:1::1", "fd77:2::1", "fd77:2::2"]),
        };
        for host in Host::ALL {
            add_namespace(&lab.namespace(host))
                .map_err(|error| format!("network namespaces cannot be made here ({error})"))?;
            lab.without_duplicate_detection(host)?;
        }
        lab.link(
            (Host::Client, lab.v4.client, lab.v6.client),
            (Host::Server, lab.v4.listen, lab.v6.listen),
        )?;
        lab.link_to_peer()?;
        Ok(lab)
    }

    /// Addresses of links are usable at once, and do not change a second later: a browser gives up
    /// what it loads when an address of its host changes.
    fn without_duplicate_detection(&self, host: Host) -> Result<(), String> {
        let set = "echo 0 >/proc/sys/net/ipv6/conf/default/accept_dad";
        match self.command(host, "sh").args(["-c", set]).output() {
            Ok(out) if out.status.success() => Ok(()),
            Ok(out) => Err(String::from_utf8_lossy(&out.stderr).trim().to_owned()),
            Err(error) => Err(format!("a command in a namespace: {error}")),
        }
    }

    /// Makes the link between server and peer, in [`Lab::new`] and after a test deleted it.
    ///
    /// # Errors
    /// The output of `ip`.
    pub fn link_to_peer(&self) -> Result<(), String> {
        self.link(
            (Host::Server, self.v4.relay, self.v6.relay),
            (Host::Peer, self.v4.peer, self.v6.peer),
        )
    }

    /// The name of the link's end at one host that leads to another: at the client it is
    /// "to-server".
    #[must_use]
    pub fn end_towards(host: Host) -> String {
        format!("to-{}", host.name())
    }

    /// The name of a host's namespace.
    #[must_use]
    pub fn namespace(&self, host: Host) -> String {
        format!("{}-{}", self.id, host.name())
    }

    /// A command that runs in a host.
    pub fn command(&self, host: Host, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.namespace(host)]).arg(program);
        command
    }

    /// Runs a command in a host to its end, and returns its output.
    ///
    /// # Panics
    /// The command cannot be run, or fails.
    #[track_caller]
    pub fn run(&self, host: Host, program: &str, arguments: &[&str]) -> String {
        let out = self.command(host, program).args(arguments).output();
        let out = out.unwrap_or_else(|error| panic!("{program}: {error}"));
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        let complaint = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success(), "{program} {arguments:?}: {text}{complaint}");
        text
    }

    /// A UDP socket of a host, bound to one of its addresses; port 0 is a new one.
    ///
    /// # Panics
    /// The socket cannot be opened.
    #[must_use]
    #[track_caller]
    pub fn socket(&self, host: Host, at: (IpAddr, u16)) -> UdpSocket {
        self.open(host, move || UdpSocket::bind(with_port(at)))
    }

    /// A UDP socket of a host that sends bursts in one call, bound to one of its addresses; port 0
    /// is a new one.
    ///
    /// # Panics
    /// The socket cannot be opened.
    #[must_use]
    #[track_caller]
    pub fn burst_socket(&self, host: Host, at: (IpAddr, u16)) -> linux_net::UdpSocket {
        let options = linux_net::UdpOptions::default();
        let bind = move || linux_net::UdpSocket::bind(with_port(at), &options);
        self.open(host, bind).0
    }

    /// A connection from a host.
    ///
    /// # Panics
    /// The port is closed.
    #[must_use]
    pub fn connect(&self, host: Host, to: SocketAddr) -> TcpStream {
        self.open(host, move || TcpStream::connect(to))
    }

    /// A listener of a host.
    ///
    /// # Panics
    /// The socket cannot be opened.
    #[must_use]
    pub fn listener(&self, host: Host, at: (IpAddr, u16)) -> TcpListener {
        self.open(host, move || TcpListener::bind(SocketAddr::from(at)))
    }

    /// Opens a socket, which belongs to the namespace of the thread that opens it.
    ///
    /// A port that was closed just now may still be in use for a moment: a program that another
    /// test starts has copies of all descriptors of this process until it is executed.
    fn open<T: Send + 'static>(
        &self,
        host: Host,
        open: impl Fn() -> io::Result<T> + Send + 'static,
    ) -> T {
        let path = format!("/run/netns/{}", self.namespace(host));
        let opened = std::thread::spawn(move || {
            lab_net::enter_network_namespace(File::open(path)?)?;
            let deadline = Instant::now() + PORTS_FREE_WITHIN;
            loop {
                match open() {
                    Err(error)
                        if error.kind() == io::ErrorKind::AddrInUse
                            && Instant::now() < deadline =>
                    {
                        std::thread::sleep(Duration::from_millis(10));
                    }
                    opened => return opened,
                }
            }
        });
        match opened.join() {
            Ok(Ok(socket)) => socket,
            Ok(Err(error)) => panic!("a socket of the {}: {error}", host.name()),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }

    /// Makes all links behave as network cards do for a program in the kernel: frames come one by
    /// one, with complete checksums, and a driver's program may send to them. Call it again for
    /// links made later.
    ///
    /// # Errors
    /// A reason to skip the test.
    pub fn behave_as_cards(&self) -> Result<(), String> {
        // The server is notified of changes of its interfaces only, and the features of these
        // depend on the interfaces of the other hosts.
        for (host, end) in [
            (Host::Client, Host::Server),
            (Host::Peer, Host::Server),
            (Host::Server, Host::Client),
            (Host::Server, Host::Peer),
        ] {
            self.behave_as_card(host, &Self::end_towards(end))?;
        }
        Ok(())
    }

    /// The same for one end of a link.
    ///
    /// # Errors
    /// As of [`Lab::behave_as_cards`].
    pub fn behave_as_card(&self, host: Host, end: &str) -> Result<(), String> {
        match self.command(host, "ethtool").args(["-K", end]).args(CARD).output() {
            Ok(out) if out.status.success() => Ok(()),
            Ok(out) => Err(String::from_utf8_lossy(&out.stderr).trim().to_owned()),
            Err(error) => Err(format!("ethtool is not installed: {error}")),
        }
    }

    fn link(&self, a: (Host, IpAddr, IpAddr), b: (Host, IpAddr, IpAddr)) -> Result<(), String> {
        let (end_a, end_b) = (Self::end_towards(b.0), Self::end_towards(a.0));
        ip(&[
            "link",
            "add",
            &end_a,
            "netns",
            &self.namespace(a.0),
            "type",
            "veth",
            "peer",
            "name",
            &end_b,
            "netns",
            &self.namespace(b.0),
        ])?;
        for ((host, v4, v6), end) in [(a, end_a), (b, end_b)] {
            let namespace = self.namespace(host);
            ip(&["-n", &namespace, "addr", "add", &format!("{v4}/24"), "dev", &end])?;
            // No duplicate address detection: the address is usable at once.
            ip(&["-n", &namespace, "addr", "add", &format!("{v6}/64"), "dev", &end, "nodad"])?;
            ip(&["-n", &namespace, "link", "set", "lo", "up"])?;
            ip(&["-n", &namespace, "link", "set", &end, "up"])?;
        }
        Ok(())
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        for host in Host::ALL {
            drop(ip(&["netns", "delete", &self.namespace(host)]));
        }
    }
}

fn addresses([client, listen, relay, peer]: [&str; 4]) -> Addresses {
    let read = |text: &str| text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
    Addresses { client: read(client), listen: read(listen), relay: read(relay), peer: read(peer) }
}

/// Adds a namespace. One of a killed test with the same process id is deleted first.
fn add_namespace(name: &str) -> Result<(), String> {
    ip(&["netns", "add", name]).or_else(|error| {
        if !error.contains("File exists") {
            return Err(error);
        }
        ip(&["netns", "delete", name])?;
        ip(&["netns", "add", name])
    })
}

fn ip(arguments: &[&str]) -> Result<(), String> {
    match Command::new("ip").args(arguments).output() {
        Ok(Output { status, .. }) if status.success() => Ok(()),
        Ok(Output { stderr, .. }) => Err(String::from_utf8_lossy(&stderr).trim().to_owned()),
        Err(error) => Err(format!("the command ip: {error}")),
    }
}
