//! Use of the host: threads, sockets, the kernel path, confinement.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::section::section;
use crate::value::{Bytes, Count, InterfaceName, Text, WorkerCount};

section! {
    /// The threads that relay.
    Workers {
        /// Number of workers, 256 at most; `"auto"` is one per processor that the server may run
        /// on, and no more than the CPU time that its cgroup grants (`cpu.max`), rounded up.
        #[schemars(example = 4)]
        restart count: WorkerCount = WorkerCount::Auto;
        /// Pins each worker to a processor of its own, where there are as many workers as
        /// processors that the server may use and its cgroup grants the time of all. Fewer workers
        /// are left to the scheduler, since another server could have chosen the same processors.
        /// To pin fewer, give the server these processors alone (`AllowedCPUs=` in systemd, a
        /// cpuset, `taskset`).
        restart pin: bool = true;
    }
}

section! {
    /// Options of UDP sockets.
    Sockets {
        /// Receive buffer of each socket. The kernel grants no more than `net.core.rmem_max`.
        restart receive_buffer: Bytes<{ 64 << 10 }, { 256 << 20 }> = Bytes::new(4 << 20);
        /// Send buffer of each socket. The kernel grants no more than `net.core.wmem_max`.
        restart send_buffer: Bytes<{ 64 << 10 }, { 256 << 20 }> = Bytes::new(4 << 20);
        /// Network interface of clients: listeners receive from it and answer by it alone, whatever
        /// the routes are, as in a VRF or with two providers. By default all interfaces. A server
        /// that starts before the interface exists waits for it.
        #[schemars(example = &"eth0")]
        restart listen_device: Option<InterfaceName> = None;
        /// Network interface of peers: relayed addresses receive from it and send by it alone.
        /// While the host lacks it, allocations are refused with 508 (`relay_address_absent`). With
        /// `relay.prefixes` a server that starts before the interface exists waits for it.
        #[schemars(example = &"eth1")]
        restart relay_device: Option<InterfaceName> = None;
        /// Receives several packets of one sender at once (UDP GRO), at sockets where packets of
        /// one sender follow each other or that have more than they can take. Off costs speed; for
        /// finding faults of a network card or its driver. Where a program at tc relays (see
        /// `offload.mode`) sockets use it only while they still receive many packets.
        restart gro: bool = true;
        /// Sends several packets to one receiver at once (UDP GSO). Off costs speed; for finding
        /// faults of a network card or its driver.
        restart gso: bool = true;
    }
}

section! {
    /// The kernel path: a BPF program at the network interfaces relays the data of bound channels
    /// (ChannelData, and what peers send back) without the server's threads. All other packets, and
    /// all that the program is not sure of, go to the sockets.
    Offload {
        /// Hook that the program is attached to. `xdp` is in the driver of the network card;
        /// `xdp-generic` is the same behind the driver, slower, and with any driver; `tc` is
        /// traffic control, which every interface with Ethernet frames has. `auto` chooses for each
        /// interface. `off` leaves all packets to the sockets.
        ///
        /// It needs the capabilities CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON; without them the
        /// server logs it and relays by sockets.
        ///
        /// Firewall rules of this host (nftables, iptables) see one packet of each flow and
        /// direction in two seconds, which takes the slow path through them and the sockets. Their
        /// verdict decides about the others: a ban stops a flow within five seconds. Counters and
        /// rate limits miss the others. Where such rules have to see every packet, write `off`.
        #[schemars(example = &"off")]
        restart mode: OffloadMode = OffloadMode::Auto;
        /// Network interfaces to attach the program to, by name, 64 at most. By default the ones
        /// that carry the traffic of the listeners and of the relayed addresses. Sockets relay the
        /// packets of others.
        #[schemars(example = serde_json::json!(["eth0", "eth1"]))]
        restart interfaces: Vec<InterfaceName> = Vec::new();
        /// Channels that the kernel relays at a time; sockets relay the others. Each takes about
        /// 0.7 KiB of the kernel's memory, and 64 bytes for each processor that is online: by
        /// default 11 MiB, and 1 MiB for each processor.
        #[schemars(example = 131_072)]
        restart flows: Count<1024, 1_048_576> = Count::new(16_384);
    }
}

/// Hook of the kernel path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub enum OffloadMode {
    /// The best hook of each interface.
    Auto,
    /// The driver of the network card.
    Xdp,
    /// Behind the driver.
    XdpGeneric,
    /// Ingress of traffic control.
    Tc,
    /// None: sockets relay everything.
    Off,
}

impl OffloadMode {
    /// The word in the file.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Xdp => "xdp",
            Self::XdpGeneric => "xdp-generic",
            Self::Tc => "tc",
            Self::Off => "off",
        }
    }
}

section! {
    /// Confinement of the running server: it gives up rights when it starts, so that an attacker
    /// gains little by taking it over. `turnpike status` shows the state.
    Confinement {
        /// Confines files by landlock: none is executed; the data directory, that of the control
        /// socket and that of `users.database` are writable; the directories of the configuration,
        /// secrets and certificates, and the targets of their symbolic links, are readable.
        restart landlock: bool = true;
        /// Refuses system calls that a server never makes (seccomp, with the error EPERM).
        restart seccomp: bool = true;
        /// More readable directories, with all below them: for a later configuration or a renewed
        /// certificate that lies elsewhere than at the start.
        #[schemars(example = serde_json::json!(["/etc/letsencrypt"]))]
        restart readable: Vec<Text<1, 4096>> = Vec::new();
    }
}
