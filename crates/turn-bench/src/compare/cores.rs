//! Cores of each role.

use anyhow::{Context as _, bail};

use super::host::Host;

/// The cores of each role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cores {
    /// The server's alone.
    pub(crate) server: Vec<usize>,
    /// The clients'.
    pub(crate) client: Vec<usize>,
    /// The peer's: the clients' where there are too few.
    pub(crate) peer: Vec<usize>,
}

impl Cores {
    /// Divides the cores of this process.
    ///
    /// # Errors
    /// Fewer than the server's and one.
    pub(crate) fn assign(servers: usize) -> anyhow::Result<Self> {
        let allowed = linux_net::allowed_cores().context("asking for the cores of this process")?;
        Self::split(&allowed, servers)
    }

    /// The first core, the default for interrupts, is the clients'.
    /// The next are the server's; clients and peer halve the rest.
    fn split(allowed: &[usize], servers: usize) -> anyhow::Result<Self> {
        if servers == 0 || allowed.len() <= servers {
            bail!(
                "a comparison wants {} cores, {servers} for the server alone and one for the \
                 clients and the peer, and this process may use {}",
                servers + 1,
                allowed.len()
            );
        }
        let (first, rest) = allowed.split_at(1);
        let (server, rest) = rest.split_at(servers);
        let (clients, peer) = rest.split_at(rest.len() / 2);
        let client = [first, clients].concat();
        let peer = if peer.is_empty() { client.clone() } else { peer.to_vec() };
        Ok(Self { server: server.to_vec(), client, peer })
    }

    /// Cores of a host.
    pub(crate) fn of(&self, host: Host) -> &[usize] {
        match host {
            Host::Client => &self.client,
            Host::Server => &self.server,
            Host::Peer => &self.peer,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cores(text: &str) -> Vec<usize> {
        text.split(' ').map(|core| core.parse().unwrap()).collect()
    }

    #[test]
    fn the_server_has_its_cores_alone() {
        let cases = [
            ("0 1", 1, "1", "0", "0"),
            ("0 1 2", 1, "1", "0", "2"),
            ("4 5 6 7", 1, "5", "4 6", "7"),
            ("0 1 2 3", 2, "1 2", "0", "3"),
            ("0 1 2 3", 3, "1 2 3", "0", "0"),
        ];
        for (allowed, servers, server, client, peer) in cases {
            let given = Cores::split(&cores(allowed), servers).unwrap();
            let expected =
                Cores { server: cores(server), client: cores(client), peer: cores(peer) };
            assert_eq!(given, expected, "{allowed}");
        }
    }

    #[test]
    fn too_few_cores_are_an_error() {
        for (allowed, servers) in [(&[0][..], 1), (&[0, 1][..], 2), (&[0, 1][..], 0)] {
            assert!(Cores::split(allowed, servers).is_err(), "{allowed:?} {servers}");
        }
    }
}
