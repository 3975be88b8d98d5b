//! The kernel as safe values, knowing nothing of STUN.
//!
//! It serves a worker that is one thread with its own sockets: [`Epoll`] says which socket is
//! readable, [`RxBatch`] takes what is there (`recvmmsg`, super-packets by `UDP_GRO`), [`TxBatch`]
//! gathers what is to be sent and sends it (`sendmmsg`, runs of equal datagrams by `UDP_SEGMENT`)
//! straight out of the receive buffers: user space copies no payload.
//!
//! All socket `unsafe` of the product is here, each block with its proof. Control messages and
//! socket addresses are written and read as bytes of the kernel's ABI, without any.
//!
//! After warm-up nothing on the path of a packet allocates. Nothing here logs: what an operator
//! should know is returned ([`Applied`], [`Warning`], counters).
//!
//! One turn of a worker that sends everything back with a byte in front:
//!
//! ```
//! use linux_net::{Flow, Part, RxBatch, SendSocket, SendStats, TxBatch, UdpOptions, UdpSocket};
//!
//! # fn main() -> std::io::Result<()> {
//! let (socket, _applied) = UdpSocket::bind("127.0.0.1:0".parse().unwrap(), &UdpOptions::default())?;
//! let (mut rx, mut tx, mut stats) = (RxBatch::new(32), TxBatch::new(), SendStats::default());
//!
//! for message in 0..rx.recv(&socket)? {
//!     let received = rx.message(message);
//!     let (to, from, marks) = (received.from, received.to, received.marks);
//!     for (start, segment) in received.segments() {
//!         let payload = Part::Rx { message, start, len: segment.len() };
//!         // Neither can be full here: both hold the answer to a whole receive batch. Where they
//!         // can, flush and do it again.
//!         let Ok(header) = tx.arena_write(b"!") else { break };
//!         let flow = Flow { socket: SendSocket(0), to, from, marks };
//!         let _ = tx.push(flow, &[header, payload], 0);
//!     }
//! }
//! tx.flush(&rx, &socket, &mut stats, |_tag, error| eprintln!("not sent: {error:?}"));
//! # Ok(())
//! # }
//! ```

mod address;
mod affinity;
pub mod allocations;
mod child;
mod clock;
mod cmsg;
mod connected;
mod epoll;
mod errno;
mod error_queue;
mod flush;
mod grouping;
mod headers;
mod heap;
mod host_monitor;
mod interfaces;
mod namespace;
pub mod netlink;
mod occupancy;
mod own_addresses;
mod priority;
mod privileges;
mod probe;
mod random;
mod raw;
mod rlimit;
mod rx;
mod segmentation;
mod sys;
mod tcp;
mod transmission;
mod tx;
mod udp;
#[cfg(feature = "io-uring")]
mod uring;
mod waker;
mod warning;
mod wire;

pub use affinity::{allowed_cores, pin_current_thread, pin_thread};
pub use child::tie_to_parent;
pub use clock::{Clock, process_cpu_time, thread_cpu_time};
pub use epoll::{Epoll, Event, Events, Interest};
pub use errno::SendError;
pub use error_queue::{IcmpReport, SocketError};
pub use flush::{SendStats, SocketTable};
pub use host_monitor::{HostChanges, HostMonitor};
pub use interfaces::{
    InterfaceAddress, interface_addresses, interface_index, source_address_towards,
};
pub use namespace::{enter_network_namespace, new_network_namespace};
pub use occupancy::Occupancy;
pub use own_addresses::own_prefixes;
pub use priority::{run_first, run_when_idle};
pub use privileges::gain_no_privileges;
pub use probe::{Capabilities, capabilities};
pub use random::random_bytes;
pub use raw::{Heard, RAW_PAYLOAD_MAX, RawUdpSocket};
pub use rlimit::raise_open_files;
pub use rx::{FILL_BYTES, Received, RecvStats, RxBatch};
pub use tcp::{ConnectOptions, ReadOutcome, TcpListener, TcpOptions, TcpStream};
pub use transmission::{Flow, Part, SendSocket};
pub use tx::{ArenaFull, Full, TxBatch};
pub use udp::{Applied, UdpOptions, UdpSocket};
#[cfg(feature = "io-uring")]
pub use uring::{UringStats, UringUdp};
pub use waker::{WakeReceiver, Waker};
pub use warning::Warning;
