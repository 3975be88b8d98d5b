//! System calls that only the load tool and tests make. The product does not depend on this crate.
//!
//! ```text
//! namespace    network namespaces              scheduling  cores, priorities, CPU time of threads
//! child        processes tied to their parent  allocations a counting allocator
//! raw          UDP from forged addresses       uring       a relay by io_uring
//! stopped      a stopped thread of a process
//! ```

pub mod allocations;
mod child;
mod files;
mod namespace;
mod raw;
mod scheduling;
mod stopped;
mod uring;

use std::io;

pub use child::tie_to_parent;
pub use files::NoMoreFiles;
pub use namespace::{enter_network_namespace, new_network_namespace};
pub use raw::{RawUdpSocket, ReceivedHeader};
pub use scheduling::{pin_thread, process_cpu_time, run_first, run_when_idle};
pub use stopped::StoppedThread;
pub use uring::{UringStats, UringUdp};

/// The result of a call that returns -1 and sets `errno`.
fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
