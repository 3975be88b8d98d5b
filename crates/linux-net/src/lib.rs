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

mod address;
mod affinity;
mod clock;
mod cmsg;
mod epoll;
mod errno;
mod error_queue;
mod flush;
mod headers;
mod heap;
mod interfaces;
mod occupancy;
mod probe;
mod random;
mod rlimit;
mod rx;
mod segmentation;
mod sys;
mod tx;
mod udp;
mod waker;
mod warning;
mod wire;

pub use affinity::{allowed_cores, pin_current_thread};
pub use clock::Clock;
pub use epoll::{Epoll, Event, Events, Interest};
pub use errno::SendError;
pub use error_queue::{IcmpReport, SocketError};
pub use flush::{SendStats, SocketTable};
pub use interfaces::{InterfaceAddress, interface_addresses, source_address_towards};
pub use occupancy::Occupancy;
pub use probe::{Capabilities, capabilities};
pub use random::random_bytes;
pub use rlimit::raise_open_files;
pub use rx::{Received, RecvStats, RxBatch};
pub use tx::{ArenaFull, Flow, Full, Part, SendSocket, TxBatch};
pub use udp::{Applied, UdpOptions, UdpSocket};
pub use waker::{WakeReceiver, Waker};
pub use warning::Warning;
