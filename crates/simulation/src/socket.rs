//! UDP sockets of the seam, simulated.

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::rc::Rc;

use dataplane::io::UdpIo;
use linux_net::{Received, RxBatch, SocketError};
use turn_types::IpMeta;

use crate::host::SimHost;
use crate::udp::UdpState;

/// A UDP socket.
#[derive(Debug)]
pub struct SimUdp {
    pub(crate) state: Rc<RefCell<UdpState>>,
    pub(crate) host: SimHost,
}

impl SimUdp {
    /// Opens a socket, which shares its address with others if `shared`.
    ///
    /// # Errors
    /// The address is in use, or a fault.
    pub(crate) fn bind(
        host: &SimHost,
        at: SocketAddr,
        shared: bool,
        coalesce: bool,
    ) -> io::Result<Self> {
        Ok(Self { state: host.bind(at, shared, coalesce)?, host: host.clone() })
    }

    /// Another descriptor of the same socket.
    pub(crate) fn twin(&self) -> Self {
        Self { state: Rc::clone(&self.state), host: self.host.clone() }
    }
}

impl UdpIo for SimUdp {
    fn local_addr(&self) -> SocketAddr {
        self.state.borrow().local
    }

    fn receive(&self, rx: &mut RxBatch, most: usize) -> io::Result<Range<usize>> {
        let first = rx.len();
        let mut state = self.state.borrow_mut();
        let wildcard = state.local.ip().is_unspecified();
        while rx.len() - first < most && rx.room() > 0 {
            let Some((from, to, segment_size, data)) = state.take() else { break };
            let kernel_drops = state.lost;
            let truncated = self.host.truncates();
            rx.push(&Received {
                from,
                to: wildcard.then_some(to),
                meta: IpMeta::DEFAULT,
                segment_size,
                data: &data,
                truncated,
                kernel_drops,
            });
        }
        Ok(first..rx.len())
    }

    fn take_errors(&self, mut report: impl FnMut(SocketError)) -> io::Result<()> {
        let errors = self.state.borrow_mut().take_errors();
        errors.into_iter().for_each(&mut report);
        Ok(())
    }

    fn allow_fragments(&self) {}

    fn coalesce(&self, on: bool) {
        self.state.borrow_mut().coalesce = on;
    }

    fn stop_coalescing(&self) -> bool {
        let mut state = self.state.borrow_mut();
        state.coalesce = state.is_readable();
        !state.coalesce
    }
}
