//! Safe wrappers of the kernel's interfaces for sockets, time and the host. The crate does not know
//! STUN.
//!
//! The crate serves workers that are one thread each, with separate sockets. [`Epoll`] reports
//! readable sockets. [`RxBatch`] receives datagrams by `recvmmsg`, merged into super-packets by
//! `UDP_GRO`. [`TxBatch`] collects datagrams and sends them by `sendmmsg`, with runs of equal
//! datagrams as one message (`UDP_SEGMENT`). Payload is sent directly from the receive buffers:
//! user space copies no payload.
//!
//! This crate contains all `unsafe` of the product for sockets, each block with its proof. Control
//! messages and socket addresses are written and read as bytes of the kernel's ABI, without
//! `unsafe`.
//!
//! After warm-up the packet path does not allocate. The crate does not log. Warnings for the
//! operator are returned ([`Applied`], [`Warning`], counters).
//!
//! Example: one iteration of a worker that echoes every datagram with a prefix of one byte:
//!
//! ```
//! use linux_net::{Flow, Part, RxBatch, SendSocket, SendStats, TxBatch, UdpOptions, UdpSocket};
//!
//! # fn main() -> std::io::Result<()> {
//! let address = "127.0.0.1:0".parse().unwrap();
//! let (socket, _applied) = UdpSocket::bind(address, &UdpOptions::default())?;
//! let (mut rx, mut tx, mut stats) = (RxBatch::new(32), TxBatch::new(), SendStats::default());
//!
//! for message in 0..rx.recv(&socket)? {
//!     let received = rx.message(message);
//!     let (to, from, meta) = (received.from, received.to, received.meta);
//!     for (start, segment) in received.segments() {
//!         let payload = Part::Rx { message, start, len: segment.len() };
//!         // Neither arena nor batch can be full here: both have space for the responses to a
//!         // complete receive batch. Other programs flush and try again.
//!         let Ok(header) = tx.arena_write(b"!") else { break };
//!         let flow = Flow { socket: SendSocket(0), to, from, meta };
//!         let _ = tx.push(flow, &[header, payload], 0);
//!     }
//! }
//! tx.flush(&rx, &socket, &mut stats, |_tag, error| eprintln!("not sent: {error:?}"));
//! # Ok(())
//! # }
//! ```

mod abi;
mod host;
pub mod netlink;
mod occupancy;
mod rx;
mod tcp;
mod tx;
mod udp;
mod wait;

pub use abi::errno::SendError;
pub use abi::socket::{is_of_own_network, message_pair};
pub use host::{
    AddressState, Clock, HostChanges, HostMonitor, InterfaceAddress, PortUser, allowed_cores,
    gain_no_privileges, interface_addresses, interface_index, own_prefixes, passed_descriptors,
    pin_current_thread, raise_open_files, random_bytes, refuse_executable_gain,
    refuses_executable_gain, source_address_towards, thread_cpu_time, users_of_udp_port,
};
pub use occupancy::Occupancy;
pub use rx::{FILL_BYTES, Received, RecvStats, RxBatch};
pub use tcp::{ConnectOptions, ReadOutcome, TcpListener, TcpOptions, TcpStream};
pub use tx::{ArenaFull, Flow, Full, Part, SendSocket, SendStats, SocketTable, TxBatch, Warning};
pub use udp::{
    Applied, Capabilities, IcmpReport, OPTION_SET, SocketError, UdpOptions, UdpSocket,
    capabilities, force_receive_buffer, set_send_buffer,
};
pub use wait::{Epoll, Event, Events, Interest, WakeReceiver, Waker};
