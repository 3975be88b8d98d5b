//! Binding of listeners, with advice on failures.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU32;
use std::time::Duration;

use anyhow::anyhow;
use dataplane::{Listener, NetOptions, SharedSocket};
use linux_net::{Applied, TcpListener, TcpOptions, UdpOptions, UdpSocket};
use settings::{OffloadMode, Settings};
use turn_proto::Policy;
use turn_types::WorkerId;

use crate::devices::Devices;
use crate::failure::{Failure, Result};
use crate::handover::{ListenerKind, Predecessor};
use crate::output;

/// Linux error: the address family is not supported, as on a host without IPv6.
const EAFNOSUPPORT: i32 = 97;

/// Linux errors: the process, or the host, has no file descriptor left.
const EMFILE: i32 = 24;
const ENFILE: i32 = 23;

/// Bound listeners of all workers, with warnings.
pub(crate) struct Bound {
    /// Sockets of each worker.
    pub(crate) workers: Vec<WorkerSockets>,
    /// Addresses of the listeners. Port 0 is replaced by the port that the kernel has chosen.
    pub(crate) addresses: Vec<SocketAddr>,
    /// Addresses of further listeners, which are only for TLS and DTLS.
    pub(crate) tls: Vec<SocketAddr>,
    /// True if the kernel coalesces received datagrams.
    pub(crate) gro: bool,
    /// Warnings for the operator.
    pub(crate) warnings: Vec<String>,
}

/// Bound sockets of one worker.
#[derive(Debug, Default)]
pub(crate) struct WorkerSockets {
    /// UDP listeners at [`Bound::addresses`], followed by those at [`Bound::tls`].
    pub(crate) udp: Vec<Listener>,
    pub(crate) tcp: Vec<TcpListener>,
    /// Sockets that relays of prefixes share.
    pub(crate) shared: Vec<SharedSocket>,
}

/// Number of workers, and the transports that they serve.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Served {
    /// Number of workers.
    pub(crate) workers: usize,
    pub(crate) udp: bool,
    pub(crate) tcp: bool,
    pub(crate) tls: bool,
    pub(crate) dtls: bool,
}

/// Returns the options of all sockets.
pub(crate) fn options(settings: &Settings, devices: &Devices) -> NetOptions {
    // The permitted ranges of the keys fit `usize`.
    let size = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
    NetOptions {
        // With the generic hook of XDP no socket requests coalescing. The hook cannot detect
        // coalesced datagrams, and would join several datagrams to one.
        gro: settings.sockets.gro && settings.offload.mode != OffloadMode::XdpGeneric,
        gso: settings.sockets.gso,
        recv_buffer: size(settings.sockets.receive_buffer.get()),
        send_buffer: size(settings.sockets.send_buffer.get()),
        device: devices.of_listeners(),
        relay_device: devices.of_relays(),
    }
}

/// Binds every address once per worker.
pub(crate) fn bind(
    wanted: &[SocketAddr],
    tls: &[SocketAddr],
    served: Served,
    net: &NetOptions,
    mut predecessor: Option<&mut Predecessor>,
) -> Result<Bound> {
    let mut bound = Bound {
        workers: (0..served.workers).map(|_| WorkerSockets::default()).collect(),
        addresses: Vec::new(),
        tls: Vec::new(),
        gro: true,
        warnings: Vec::new(),
    };
    let mut granted = None;
    for &wanted in wanted.iter().filter(|_| served.udp || served.tcp) {
        let before = predecessor.as_deref_mut();
        match bound.bind_one(wanted, (served.udp, served.tcp), net, (&mut granted, before))? {
            Some(address) => bound.addresses.push(address),
            None => {
                bound.warnings.push(format!("not listening on {wanted}: this host has no IPv6"));
            }
        }
    }
    for &wanted in tls.iter().filter(|_| served.tls || served.dtls) {
        let before = predecessor.as_deref_mut();
        let address =
            bound.bind_one(wanted, (served.dtls, served.tls), net, (&mut granted, before))?;
        bound.tls.extend(address);
    }
    if bound.addresses.is_empty() && bound.tls.is_empty() {
        return Err(Failure::failed(anyhow!("there is no address left to listen on"))
            .hint("name one that this host has under `listen` in the configuration"));
    }
    if let Some(granted) = granted {
        bound.gro = granted.gro;
        bound.warnings.extend(small_buffers(net, granted));
        bound.warnings.extend(silent_losses(granted));
    }
    Ok(bound)
}

impl Bound {
    /// Binds an address for each worker, over UDP, TCP or both, or adopts the predecessor's
    /// sockets. Returns `None` if the host does not support the address family of a wildcard.
    fn bind_one(
        &mut self,
        wanted: SocketAddr,
        (udp, tcp): (bool, bool),
        net: &NetOptions,
        (granted, mut before): (&mut Option<Applied>, Option<&mut Predecessor>),
    ) -> Result<Option<SocketAddr>> {
        let has = |kind| before.as_ref().is_some_and(|before| before.has((kind, wanted)));
        let free = [
            ("udp", (udp && !has(ListenerKind::Udp)).then(|| is_free(wanted, net))),
            ("tcp", (tcp && !has(ListenerKind::Tcp)).then(|| is_free_for_tcp(wanted, net))),
        ];
        for (protocol, free) in free {
            match free {
                Some(Err(error)) if dispensable(wanted, &error) => return Ok(None),
                Some(Err(error)) => return Err(cannot_bind(protocol, wanted, error)),
                Some(Ok(())) | None => {}
            }
        }
        let mut address = wanted;
        for (worker, sockets) in self.workers.iter_mut().enumerate() {
            let (listeners, acceptors) = (&mut sockets.udp, &mut sockets.tcp);
            let mut take = |kind, at| before.as_mut()?.take(worker, (kind, at));
            let inherited = take(ListenerKind::Udp, address);
            if let Some(fd) = inherited.filter(|_| udp) {
                let listener = Listener::inherit(fd, address, net);
                listeners.push(listener.map_err(|error| cannot_bind("udp", address, error))?);
            } else if udp {
                let (listener, applied) = Listener::bind(address, net)
                    .map_err(|error| cannot_bind("udp", address, error))?;
                // The first bind chooses the port in place of port 0. The other workers share this
                // port.
                address = listener.local_addr();
                listeners.push(listener);
                *granted = Some(applied);
            }
            let inherited = take(ListenerKind::Tcp, address);
            if let Some(fd) = inherited.filter(|_| tcp) {
                let acceptor = TcpListener::from_fd(fd, &tcp_options(true, net.device));
                acceptors.push(acceptor.map_err(|error| cannot_bind("tcp", address, error))?);
            } else if tcp {
                let acceptor = TcpListener::bind(address, &tcp_options(true, net.device))
                    .map_err(|error| cannot_bind("tcp", address, error))?;
                acceptors.push(acceptor);
            }
        }
        Ok(Some(address))
    }
}

impl Bound {
    /// Returns the index of the interface that the UDP listeners are bound to, if any.
    pub(crate) fn device(&self) -> Option<NonZeroU32> {
        self.workers.first()?.udp.first()?.device()
    }

    /// Binds the shared sockets of relays, or adopts the predecessor's sockets.
    pub(crate) fn bind_shared(
        &mut self,
        policy: &Policy,
        net: &NetOptions,
        mut predecessor: Option<&mut Predecessor>,
    ) -> Result<()> {
        for (worker, sockets) in self.workers.iter_mut().enumerate() {
            for at in SharedSocket::addresses(policy, WorkerId(worker as u16)) {
                let mut before = predecessor.as_deref_mut();
                let inherited =
                    before.as_mut().and_then(|it| it.take(worker, (ListenerKind::Shared, at)));
                let socket = match inherited {
                    Some(fd) => SharedSocket::inherit(fd, at, net),
                    None => SharedSocket::bind(at, net),
                };
                sockets.shared.push(socket.map_err(|error| cannot_bind("udp", at, error))?);
            }
        }
        Ok(())
    }
}

/// Refuses addresses that relay sockets cannot be bound to.
pub(crate) fn check_relay(local: IpAddr) -> Result<()> {
    let options = UdpOptions { gro: false, error_queue: false, ..UdpOptions::default() };
    match UdpSocket::bind((local, 0).into(), &options) {
        Ok(_) => Ok(()),
        Err(error) if matches!(error.raw_os_error(), Some(EMFILE | ENFILE)) => {
            let (why, help) = explain("udp", (local, 0).into(), &error);
            Err(Failure::failed(anyhow!("cannot relay from {local}: {why}")).hint(help))
        }
        Err(error) => Err(Failure::failed(anyhow!("cannot relay from {local}: {error}")).hint(
            "relay.addresses must be addresses of this host (`ip address` lists them); behind NAT \
             write the host's own address there and the public one in relay.external",
        )),
    }
}

/// Checks that an address is free, with a socket that does not share the port. The workers' sockets
/// share a port (`SO_REUSEPORT`). The kernel would thus permit a second server of the same user,
/// which would receive half of the clients.
pub(crate) fn is_free(address: SocketAddr, net: &NetOptions) -> io::Result<()> {
    let device = net.device;
    let alone =
        UdpOptions { gro: false, error_queue: false, device, free: true, ..UdpOptions::default() };
    UdpSocket::bind(address, &alone).map(drop)
}

/// Checks that an address is free for a TCP listener, as [`is_free`] does for UDP.
pub(crate) fn is_free_for_tcp(address: SocketAddr, net: &NetOptions) -> io::Result<()> {
    TcpListener::bind(address, &tcp_options(false, net.device)).map(drop)
}

/// Maximum number of connections that wait to be accepted, by worker. The kernel limits the number
/// by `net.core.somaxconn`.
const CONNECTIONS_WAITING: u16 = 4096;

/// Returns the options of TCP listeners. Keepalives close connections without a peer, and their
/// allocations, after 90 seconds.
fn tcp_options(reuse_port: bool, device: Option<NonZeroU32>) -> TcpOptions {
    let keepalive = Duration::from_secs(60);
    TcpOptions {
        reuse_port,
        keepalive,
        unacknowledged: Duration::from_secs(30),
        backlog: CONNECTIONS_WAITING,
        device,
        // The host may not have the address yet.
        free: true,
    }
}

/// Returns true if a failed address can be omitted. The default configuration has IPv6 wildcards,
/// for hosts that have IPv6.
pub(crate) fn dispensable(address: SocketAddr, error: &io::Error) -> bool {
    address.is_ipv6()
        && address.ip().is_unspecified()
        && (error.raw_os_error() == Some(EAFNOSUPPORT)
            || error.kind() == ErrorKind::AddrNotAvailable)
}

fn cannot_bind(protocol: &str, address: SocketAddr, error: io::Error) -> Failure {
    let (why, help) = explain(protocol, address, &error);
    Failure::failed(anyhow!("cannot listen on {protocol} {address}: {why}")).hint(help)
}

/// Returns the reason why an address cannot be bound, and advice.
pub(crate) fn explain(protocol: &str, address: SocketAddr, error: &io::Error) -> (String, String) {
    let port = address.port();
    let kind = error.kind();
    let (why, help) = if kind == ErrorKind::AddrInUse {
        let (option, instead) = match protocol {
            "tcp" => ("-tlpn", ", or set tcp.enabled = false, or change tls.listen"),
            _ => ("-ulpn", ""),
        };
        let help = format!(
            "see who has it with `ss {option} 'sport = :{port}'` (as root); stop that, or listen on \
             another port{instead}"
        );
        ("the port is in use", help)
    } else if kind == ErrorKind::PermissionDenied {
        let program = std::env::current_exe().unwrap_or_else(|_| "turnpike".into());
        let help = format!(
            "give the binary the capability: `sudo setcap cap_net_bind_service=+ep {}`; under \
             systemd set AmbientCapabilities=CAP_NET_BIND_SERVICE; or listen on a port from 1024",
            program.display()
        );
        ("no permission for ports below 1024", help)
    } else if kind == ErrorKind::AddrNotAvailable {
        let help = "`ip address` lists the addresses of this host; behind NAT listen on 0.0.0.0 and set \
                    relay.external to the public address";
        ("this host has no such address", help.to_owned())
    } else if matches!(error.raw_os_error(), Some(EMFILE | ENFILE)) {
        let help =
            "raise the limit (`ulimit -n`, or LimitNOFILE= under systemd), or lower workers.count";
        ("too many open files", help.to_owned())
    } else {
        return (error.to_string(), "check `listen` in the configuration".to_owned());
    };
    (why.to_owned(), help)
}

/// Returns a warning if the kernel does not report how many datagrams it dropped.
fn silent_losses(granted: Applied) -> Option<String> {
    (!granted.losses).then(|| {
        "this kernel lacks the socket option SO_RXQ_OVFL: datagrams that are lost to full receive \
         buffers are not counted"
            .to_owned()
    })
}

/// Returns warnings about buffers that are smaller than configured, with the remedy.
fn small_buffers(net: &NetOptions, granted: Applied) -> Vec<String> {
    let of = |what, asked: usize, granted: usize, sysctl| {
        (granted < asked).then(|| {
            format!(
                "the kernel grants {what} buffers of {} instead of {}: packets are lost in \
                 bursts; allow more with `sysctl -w net.core.{sysctl}={asked}`",
                output::bytes(granted as u64),
                output::bytes(asked as u64)
            )
        })
    };
    let receive = of("receive", net.recv_buffer, granted.recv_buffer, "rmem_max");
    let send = of("send", net.send_buffer, granted.send_buffer, "wmem_max");
    receive.into_iter().chain(send).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOPBACK: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn bind_one(address: SocketAddr, workers: usize) -> Result<Bound> {
        let served = Served { workers, udp: true, tcp: true, tls: true, dtls: true };
        bind(&[address], &[], served, &NetOptions::default(), None)
    }

    #[test]
    fn workers_share_the_port_and_nobody_else_gets_in() {
        let bound = bind_one((LOOPBACK, 0).into(), 3).unwrap();
        let address = bound.addresses[0];
        assert_ne!(address.port(), 0);
        assert_eq!(bound.workers.len(), 3);
        for WorkerSockets { udp: listeners, tcp: acceptors, .. } in &bound.workers {
            assert!(listeners.iter().all(|l| l.local_addr() == address) && listeners.len() == 1);
            assert!(acceptors.iter().all(|a| a.local_addr() == address) && acceptors.len() == 1);
        }

        let Err(error) = bind_one(address, 1) else { panic!("a second server got in") };
        let text = error.to_string();
        assert!(text.contains(&address.to_string()), "{text}");
        assert!(text.contains(&format!("ss -ulpn 'sport = :{}'", address.port())), "{text}");
    }

    #[test]
    fn a_taken_port_of_tcp_is_told_as_that() {
        let taken = std::net::TcpListener::bind((LOOPBACK, 0)).unwrap();
        let Err(error) = bind_one(taken.local_addr().unwrap(), 1) else { panic!("bound") };
        let text = error.to_string();
        assert!(text.contains("on tcp") && text.contains("tcp.enabled"), "{text}");
    }

    #[test]
    fn addresses_of_others_are_no_relays() {
        let elsewhere: IpAddr = "192.0.2.1".parse().unwrap();
        assert!(check_relay(elsewhere).unwrap_err().to_string().contains("relay.external"));
        assert!(check_relay(LOOPBACK).is_ok());
    }

    /// Covers a start before DHCP. Clients are served once the host has the address.
    #[test]
    fn a_listener_waits_for_its_address() {
        let later = SocketAddr::from(([192, 0, 2, 1], 0));
        let bound = bind_one(later, 1).unwrap();
        assert_eq!(bound.addresses[0].ip(), later.ip());
    }

    #[test]
    fn small_buffers_name_the_sysctl() {
        let net = NetOptions { recv_buffer: 4 << 20, send_buffer: 1024, ..NetOptions::default() };
        let granted = Applied { recv_buffer: 212_992, send_buffer: 1024, gro: true, losses: true };
        let warnings = small_buffers(&net, granted);
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert!(warnings[0].contains("net.core.rmem_max=4194304"), "{warnings:?}");
        assert!(warnings[0].contains("208 KiB instead of 4.00 MiB"), "{warnings:?}");
    }

    #[test]
    fn sockets_ask_for_nothing_merged_where_the_kernel_path_cannot_see_it() {
        for (mode, gro) in [("auto", true), ("tc", true), ("xdp", true), ("xdp-generic", false)] {
            let text = format!("[offload]\nmode = \"{mode}\"\n");
            let environment = settings::Environment::empty();
            let settings = settings::parse("t.toml".as_ref(), &text, &environment).unwrap();
            assert_eq!(options(&settings, &Devices::default()).gro, gro, "{mode}");
        }
    }
}
