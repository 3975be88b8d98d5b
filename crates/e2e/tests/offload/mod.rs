//! The kernel path of the real binary: it relays as sockets would, and ends at the same time.

mod bursts;
mod clients;
mod connections;
mod devices;
mod ends;
mod frames;
mod order;
mod paths;
mod pins;
mod prefixes;
mod privileges;
mod reloads;
mod routing;
mod rules;
mod scene;
mod slots;
mod stacked;
mod upgrades;

use self::scene::{Call, Scene, by_xdp_and_tc, wait_until};
