//! A router: forwards each packet by its destination.

use turn_types::Prefix;

use crate::packet::Packet;

/// Routes by longest prefix. Packets without a route are dropped.
#[derive(Clone, Debug, Default)]
pub struct Router {
    routes: Vec<(Prefix, usize)>,
}

impl Router {
    /// Sends `prefix` out of `port` from now on.
    pub(crate) fn add_route(&mut self, prefix: Prefix, port: usize) {
        self.routes.retain(|(known, _)| *known != prefix);
        self.routes.push((prefix, port));
    }

    /// The port for this packet.
    pub(crate) fn route(&self, packet: &Packet) -> Option<usize> {
        self.routes
            .iter()
            .filter(|(prefix, _)| prefix.contains(packet.dst.ip()))
            .max_by_key(|(prefix, _)| prefix.len_128())
            .map(|(_, port)| *port)
    }
}
