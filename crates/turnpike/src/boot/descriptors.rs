//! Limits of open files. Each relayed address and each connection uses at least one.
//!
//! A table with more slots than the process may open files never fills, so the shares of its
//! clients would never apply. One account could then open the last file of the process.

use settings::Settings;
use turn_proto::limits::CONNECTIONS_MAX;

/// Number of other files of the process: the user database, the authorizer, requests of operators.
const SPARE: u64 = 256;

/// Number of connections assumed for `tcp.connections = 0`, which permits any number that the open
/// files allow.
const ANY_CONNECTIONS: u64 = 20_000;

/// Number of files per connection, because an upgrade duplicates each descriptor.
const FILES_OF_CONNECTION: u64 = 2;

/// Divisor of the client connections that defines the maximum number of connections with peers. A
/// client connection that carries a peer connection's data is not evicted. One account may have
/// most of the connections with peers.
const PART_WITH_PEERS: u64 = 4;

/// Divisor of the client connections, and of the DTLS sessions, that defines the part without
/// allocations or data of peers. This part can be evicted for new clients.
const PART_UNUSED: u32 = 8;

/// Sizes of the tables whose entries are open files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Descriptors {
    /// Maximum number of live relayed addresses.
    relayed: u64,
    /// Maximum number of client connections.
    connections: u64,
    /// Maximum number of connections with peers (RFC 6062).
    peers: u64,
    relay_addresses: u64,
}

/// Limits of the tables, within the process's limit of open files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TableLimits {
    /// Maximum number of ports in use on each relay address.
    pub(super) ports: u32,
    /// Maximum number of client connections.
    pub(super) connections: u32,
    /// Maximum number of connections with peers in one worker.
    pub(super) peer_connections: u32,
    /// Maximum number of allocations of clients with connections.
    pub(super) stream_allocations: u32,
    /// Maximum number of allocations of clients with DTLS sessions.
    pub(super) dtls_allocations: u32,
}

impl Descriptors {
    /// Returns the table sizes that the settings request.
    pub(crate) fn wanted(settings: &Settings, relay_addresses: usize, workers: usize) -> Self {
        let tcp = settings.tcp.enabled || settings.tls.enabled && settings.has_certificates();
        let connections = match settings.tcp.connections.get() {
            _ if !tcp => 0,
            0 => ANY_CONNECTIONS,
            most => most.into(),
        };
        let peers = if settings.tcp.relaying { u64::from(CONNECTIONS_MAX) } else { 0 };
        Self {
            relayed: relayed_most(settings, relay_addresses),
            connections,
            peers: (peers * workers as u64).min(connections / PART_WITH_PEERS),
            relay_addresses: relay_addresses.max(1) as u64,
        }
    }

    /// Returns the number of files needed for full tables.
    pub(crate) const fn files(&self) -> u64 {
        self.places() + SPARE
    }

    const fn places(&self) -> u64 {
        self.relayed + FILES_OF_CONNECTION * (self.connections + self.peers)
    }

    /// Returns the sizes that fit into `files` open files. A small table has its requested size,
    /// and larger tables share the remaining files equally.
    fn within(self, files: u64) -> Self {
        let mut left = files.saturating_sub(SPARE);
        if left >= self.places() {
            return self;
        }
        let Self { mut relayed, mut connections, mut peers, .. } = self;
        let mut tables = [
            (&mut relayed, 1),
            (&mut connections, FILES_OF_CONNECTION),
            (&mut peers, FILES_OF_CONNECTION),
        ];
        tables.sort_by_key(|(places, files)| **places * files);
        let sharing = [3, 2, 1];
        for ((places, files), sharing) in tables.into_iter().zip(sharing) {
            *places = (*places).min(left / sharing / files);
            left -= *places * files;
        }
        Self { relayed, connections, peers, ..self }
    }

    /// Returns the configured limits, or lower limits if `files` open files are too few.
    pub(super) fn limits(self, settings: &Settings, workers: usize, files: u64) -> TableLimits {
        let fitting = self.within(files);
        // The value 0 would mean no limit.
        let places = |number: u64| u32::try_from(number).unwrap_or(u32::MAX).max(1);
        let peers = fitting.peers.min(fitting.connections / PART_WITH_PEERS);
        let (ports, connections) = if fitting == self {
            let left = files.saturating_sub(self.files()) / FILES_OF_CONNECTION;
            let connections = match settings.tcp.connections.get() {
                0 => places(self.connections + left),
                most => most,
            };
            (u32::MAX, connections)
        } else {
            (places(fitting.relayed / self.relay_addresses), places(fitting.connections))
        };
        TableLimits {
            ports,
            connections,
            peer_connections: places(peers / workers.max(1) as u64),
            stream_allocations: places(u64::from(used_part(connections)).saturating_sub(peers)),
            dtls_allocations: match settings.dtls.sessions.get() {
                0 => u32::MAX,
                sessions => used_part(sessions),
            },
        }
    }

    /// Returns a warning if `files` open files are too few.
    pub(super) fn warning(&self, files: u64) -> Option<String> {
        let (wanted, fitting) = (self.files(), self.within(files));
        let Self { relayed, connections, .. } = self;
        (files < wanted).then(|| {
            format!(
                "the process may open {files} files, and its settings allow {relayed} relayed addresses \
                 and {connections} connections, so that it takes {} and {} of them: raise the limit \
                 (`ulimit -Hn {wanted}`, or LimitNOFILE={wanted} under systemd), or lower \
                 quotas.allocations_total or tcp.connections",
                fitting.relayed, fitting.connections
            )
        })
    }
}

/// Returns the part of a table of connections or sessions that may have allocations.
const fn used_part(size: u32) -> u32 {
    size - size / PART_UNUSED
}

/// Returns the maximum number of live relayed addresses, on `relay_addresses` relay addresses.
pub(crate) fn relayed_most(settings: &Settings, relay_addresses: usize) -> u64 {
    let ports = u64::from(settings.relay.ports.max - settings.relay.ports.min) + 1;
    let on_each = match settings.quotas.allocations_total.get() {
        0 => ports,
        quota => ports.min(u64::from(quota)),
    };
    on_each * relay_addresses as u64
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use settings::Environment;

    use super::*;

    const TEXT: &str = "
        relay = { addresses = ['192.0.2.1'], ports = '50000-50999' }
        tcp = { connections = 100 }
    ";

    fn settings(text: &str) -> Settings {
        settings::parse(Path::new("t.toml"), text, &Environment::empty()).unwrap()
    }

    #[test]
    fn too_few_files_are_warned_about_with_the_number_needed() {
        let unbounded = Descriptors::wanted(&settings(TEXT), 1, 1);
        assert_eq!(unbounded.warning(1456), None);
        let warning = unbounded.warning(1024).unwrap();
        assert!(warning.contains("LimitNOFILE=1456"), "{warning}");
        let bounded = settings(&format!("{TEXT}\nquotas = {{ allocations_total = 500 }}\n"));
        assert_eq!(Descriptors::wanted(&bounded, 1, 1).warning(1024), None);
    }

    /// Shares apply: one account or network cannot fill a table.
    #[test]
    fn tables_together_have_no_more_places_than_there_are_files() {
        let relaying = TEXT.replace("connections = 100", "connections = 100, relaying = true");
        let any = TEXT.replace("connections = 100", "connections = 0");
        for (text, relay_addresses) in [(TEXT, 1), (&relaying, 2), (&any, 3)] {
            let settings = settings(text);
            for files in [0, 256, 300, 1024, 4096, 65_536] {
                let wanted = Descriptors::wanted(&settings, relay_addresses, 2);
                let limits = wanted.limits(&settings, 2, files);
                let ports = if files >= wanted.files() {
                    assert_eq!(limits.ports, u32::MAX);
                    1000
                } else {
                    limits.ports
                };
                let relayed = u64::from(ports) * relay_addresses as u64;
                let peers = if settings.tcp.relaying { limits.peer_connections * 2 } else { 0 };
                assert!(peers <= (limits.connections / 4).max(2), "a quarter of them carry data");
                let unused = limits.connections.saturating_sub(limits.stream_allocations + peers);
                assert!(unused >= limits.connections / 8, "{files}: an eighth makes room");
                let used = relayed + u64::from(limits.connections + peers) * FILES_OF_CONNECTION;
                // Each table has at least one slot.
                assert!(used <= files.saturating_sub(SPARE).max(12), "{files}: {limits:?}");
            }
        }
    }

    #[test]
    fn a_small_table_has_all_its_places() {
        let few_ports = TEXT.replace("50000-50999", "50000-50009").replace("100", "20000");
        let limits = Descriptors::wanted(&settings(&few_ports), 1, 1);
        let limits = limits.limits(&settings(&few_ports), 1, 20_000);
        assert_eq!((limits.ports, limits.connections), (10, 9867));
    }

    #[test]
    fn enough_files_change_no_limit() {
        let relaying = TEXT.replace("connections = 100", "connections = 100, relaying = true");
        let settings = settings(&format!("{relaying}\nquotas = {{ allocations_total = 500 }}\n"));
        let limits = Descriptors::wanted(&settings, 1, 1).limits(&settings, 1, 2048);
        let expected = TableLimits {
            ports: u32::MAX,
            connections: 100,
            peer_connections: 25,
            stream_allocations: 63,
            dtls_allocations: 8750,
        };
        assert_eq!(limits, expected);
    }
}
