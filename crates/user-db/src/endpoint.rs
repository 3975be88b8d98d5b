//! Hosts that a database driver connects to, taken from the driver's parsed configuration.

use std::net::IpAddr;

/// Endpoint of a database connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Endpoint {
    /// Unix socket.
    Socket,
    /// Host name or IP address.
    Host(String),
}

impl Endpoint {
    /// Creates the endpoint of a host name or IP address. An IPv6 address may have brackets.
    pub(crate) fn host(name: &str) -> Self {
        let bare = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
        Self::Host(bare.to_owned())
    }

    /// Returns the host if packets to the endpoint leave this host. Any name except `localhost` is
    /// treated as remote, because the addresses of a name may change.
    pub(crate) fn elsewhere(&self) -> Option<&str> {
        match self {
            Self::Socket => None,
            Self::Host(host) => {
                let ip = host.parse().map(|ip: IpAddr| ip.to_canonical());
                let is_here =
                    ip.is_ok_and(|ip| ip.is_loopback()) || host.eq_ignore_ascii_case("localhost");
                (!is_here).then_some(host)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_and_sockets_are_this_host() {
        assert_eq!(Endpoint::Socket.elsewhere(), None);
        for host in ["127.0.0.1", "127.8.8.8", "::1", "[::1]", "::ffff:127.0.0.1", "localhost"] {
            assert_eq!(Endpoint::host(host).elsewhere(), None, "{host}");
        }
        for host in ["10.0.0.1", "127.1", "db", "localhost.example.org", "", "::", "0.0.0.0"] {
            assert_eq!(Endpoint::host(host).elsewhere(), Some(host));
        }
    }
}
