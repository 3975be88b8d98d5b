//! Interfaces to the host and to this process: cores, clocks, limits, privileges, network
//! interfaces, own addresses, and notifications of changes.

mod affinity;
mod clock;
mod interfaces;
mod monitor;
mod own_addresses;
mod passed;
mod port_users;
mod privileges;
mod random;
mod rlimit;

pub use affinity::{allowed_cores, pin_current_thread};
pub use clock::{Clock, thread_cpu_time};
pub use interfaces::{
    AddressState, InterfaceAddress, interface_addresses, interface_index, source_address_towards,
};
pub use monitor::{HostChanges, HostMonitor};
pub use own_addresses::own_prefixes;
pub use passed::passed_descriptors;
pub use port_users::{PortUser, users_of_udp_port};
pub use privileges::{gain_no_privileges, refuse_executable_gain, refuses_executable_gain};
pub use random::random_bytes;
pub use rlimit::raise_open_files;
