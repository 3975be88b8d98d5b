//! Invariants of the world.

use turn_types::Transport;

use super::World;

impl World {
    /// Checks permanent invariants. Every port in use belongs to a socket, a reservation or a
    /// request on its way. Every allocation takes exactly one slot in the quota.
    pub fn check(&self) {
        self.check_population();
        if self.hold || !self.held.is_empty() || self.is_shared {
            return;
        }
        let of_prefixes: u32 = self.policy.prefixes.iter().map(|prefix| prefix.used()).sum();
        let of_ports: u32 = self.policy.relay.iter().map(|relay| relay.ports.used()).sum();
        let used = of_ports + of_prefixes;
        let registry = self.registry.0.lock().unwrap();
        let expected = self.sockets.len() + registry.reservations();
        assert_eq!(used as usize, expected, "ports in use");
        assert_eq!(registry.allocations() as usize, self.server.allocation_count(), "quota in use");
        let relayed: u32 = self.server.population().relayed.iter().sum();
        assert_eq!(relayed as usize, self.sockets.len(), "relayed addresses");
    }

    /// Allocations are counted by transport as they are listed.
    fn check_population(&self) {
        let population = self.server.population();
        let records: Vec<_> = self.server.allocations().collect();
        for transport in Transport::ALL {
            let listed = records.iter().filter(|one| one.five_tuple.transport == *transport);
            assert_eq!(population.transports[transport.index()] as usize, listed.count());
        }
        for record in &records {
            let by_reason: u64 = record.history.drops.iter().map(|(_, count)| count).sum();
            assert_eq!(by_reason, record.traffic.dropped_packets, "each drop has a reason");
        }
    }
}
