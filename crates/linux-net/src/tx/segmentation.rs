//! Knowledge about destinations that do not accept runs, learnt from refusals.
//!
//! A segment larger than the MTU is refused, not fragmented, and the MTU is a property of the path.
//! A refusal is therefore stored per socket and destination, and costs one failed call. No remote
//! host can disable runs for others.

use std::net::IpAddr;

use libc::c_int;

use super::grouping::hash_address;
use super::types::{Flow, SendSocket};

/// Maximum number of stored refusals. A hash selects the slot. A newer refusal replaces an older
/// refusal.
const SLOTS: usize = 64;

/// Number of refusals with `EIO` after which all runs are disabled. `EIO` means that an interface
/// supports no runs of any size. Refusals are first stored per destination. This many refusals
/// indicate that the host has no other interface.
const MAX_IO_REFUSALS: u32 = 256;

#[derive(Clone, Copy)]
struct Refusal {
    socket: SendSocket,
    to: IpAddr,
    /// Smallest refused segment size in bytes. Runs with larger segments are refused as well.
    size: usize,
}

pub(crate) struct Segmentation {
    on: bool,
    refusals: [Option<Refusal>; SLOTS],
    io_refusals: u32,
}

impl Segmentation {
    /// Creates a state without refusals. `on` is false if the kernel does not support runs.
    pub(crate) const fn new(on: bool) -> Self {
        Self { on, refusals: [None; SLOTS], io_refusals: 0 }
    }

    /// Returns true if a run with segments of `size` bytes may be tried on the flow.
    pub(crate) fn allows(&self, flow: &Flow, size: usize) -> bool {
        self.on
            && match self.refusals[slot(flow)] {
                Some(refusal) => !refusal.is_of(flow) || size < refusal.size,
                None => true,
            }
    }

    /// Records a refused run, so `allows` returns false for that run from now on. Returns true if
    /// this refusal disabled all runs.
    pub(crate) fn refused(&mut self, flow: &Flow, size: usize, errno: c_int) -> bool {
        let place = &mut self.refusals[slot(flow)];
        let known = place.filter(|refusal| refusal.is_of(flow)).map_or(size, |r| r.size);
        // A path that refuses runs with `EIO` refuses runs of every size.
        let size = if errno == libc::EIO { 0 } else { size.min(known) };
        *place = Some(Refusal { socket: flow.socket, to: flow.to.ip(), size });
        self.io_refusals += u32::from(errno == libc::EIO);
        if self.on && self.io_refusals == MAX_IO_REFUSALS {
            self.on = false;
            return true;
        }
        false
    }
}

impl Refusal {
    fn is_of(&self, flow: &Flow) -> bool {
        self.socket == flow.socket && self.to == flow.to.ip()
    }
}

/// Returns the slot for a socket and a destination. Collisions only cost failed calls.
fn slot(flow: &Flow) -> usize {
    let address = hash_address(flow.to.ip());
    let mixed = (address ^ flow.socket.0.rotate_left(32)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed >> 32) as usize % SLOTS
}

#[cfg(test)]
mod tests {
    use super::*;
    use turn_types::IpMeta;

    fn flow(socket: u64, host: u8) -> Flow {
        let to = ([192, 0, 2, host], 9).into();
        Flow { socket: SendSocket(socket), to, from: None, meta: IpMeta::DEFAULT }
    }

    #[test]
    fn a_refusal_binds_its_destination_socket_and_size() {
        let mut known = Segmentation::new(true);
        assert!(!known.refused(&flow(1, 1), 1400, libc::EMSGSIZE));
        assert!(!known.allows(&flow(1, 1), 1400));
        assert!(!known.allows(&flow(1, 1), 1500));
        assert!(known.allows(&flow(1, 1), 1399));
        assert!(known.allows(&flow(1, 2), 1400), "another destination");
        assert!(known.allows(&flow(2, 1), 1400), "another socket");
        known.refused(&flow(1, 1), 1300, libc::EINVAL);
        known.refused(&flow(1, 1), 1450, libc::EMSGSIZE);
        assert!(!known.allows(&flow(1, 1), 1300), "the smallest refused size counts");
    }

    #[test]
    fn a_way_that_cannot_do_runs_is_not_tried_with_smaller_ones() {
        let mut known = Segmentation::new(true);
        known.refused(&flow(1, 1), 1000, libc::EIO);
        assert!(!known.allows(&flow(1, 1), 10));
        assert!(known.allows(&flow(1, 2), 10));
    }

    #[test]
    fn runs_end_when_every_way_refuses_and_that_is_said_once() {
        let mut known = Segmentation::new(true);
        let said = (0..2 * MAX_IO_REFUSALS)
            .filter(|&n| known.refused(&flow(u64::from(n), 1), 100, libc::EIO))
            .count();
        assert_eq!(said, 1);
        assert!(!known.allows(&flow(9999, 9), 100));
    }

    #[test]
    fn sizes_that_do_not_fit_never_switch_runs_off() {
        let mut known = Segmentation::new(true);
        for n in 0..10_000 {
            assert!(!known.refused(&flow(n, 1), 1400, libc::EMSGSIZE));
        }
        assert!(known.allows(&flow(10_001, 2), 1400));
    }
}
