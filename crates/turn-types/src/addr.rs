//! Address types by owner: client, server, relay, peer.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// IP family, with the address-family numbers of RFC 8656 §18.6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum IpFamily {
    /// IPv4, 0x01 on the wire.
    V4,
    /// IPv6, 0x02 on the wire.
    V6,
}

impl IpFamily {
    /// Both families, sorted by wire number.
    pub const ALL: [Self; 2] = [Self::V4, Self::V6];

    /// Returns the family of an address.
    #[must_use]
    pub const fn of(ip: IpAddr) -> Self {
        match ip {
            IpAddr::V4(_) => Self::V4,
            IpAddr::V6(_) => Self::V6,
        }
    }

    /// Returns the index of the family in [`Self::ALL`], for arrays with one element per family.
    #[must_use]
    pub const fn index(self) -> usize {
        match self {
            Self::V4 => 0,
            Self::V6 => 1,
        }
    }

    /// Returns the metric label, which is also the name in logs: `ipv4` or `ipv6`.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::V4 => "ipv4",
            Self::V6 => "ipv6",
        }
    }

    /// Returns the number used in STUN attributes: 1 or 2 (RFC 8489 §14.1).
    #[must_use]
    pub const fn wire(self) -> u8 {
        match self {
            Self::V4 => 1,
            Self::V6 => 2,
        }
    }

    /// Returns the family with this wire number, or `None` for an unknown number.
    #[must_use]
    pub const fn from_wire(number: u8) -> Option<Self> {
        match number {
            1 => Some(Self::V4),
            2 => Some(Self::V6),
            _ => None,
        }
    }

    /// Returns the other family.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::V4 => Self::V6,
            Self::V6 => Self::V4,
        }
    }

    /// Returns the unspecified address of this family (`0.0.0.0` or `::`).
    #[must_use]
    pub const fn unspecified(self) -> IpAddr {
        match self {
            Self::V4 => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            Self::V6 => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        }
    }
}

impl fmt::Display for IpFamily {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        })
    }
}

macro_rules! whose {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub SocketAddr);

        impl $name {
            /// Returns the IP address.
            #[must_use]
            pub const fn ip(&self) -> IpAddr {
                self.0.ip()
            }

            /// Returns the port.
            #[must_use]
            pub const fn port(&self) -> u16 {
                self.0.port()
            }

            /// Returns the family of the address.
            #[must_use]
            pub const fn family(&self) -> IpFamily {
                IpFamily::of(self.0.ip())
            }
        }

        impl From<SocketAddr> for $name {
            fn from(addr: SocketAddr) -> Self {
                Self(addr)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

whose! {
    /// Source address of a client's packets, as received by the server (server-reflexive address).
    ClientAddr
}
whose! {
    /// Address and port of the server that a client sends to.
    ServerAddr
}
whose! {
    /// Address and port allocated for a client (RFC 8656 §2). This is the *local* address of the
    /// relay socket. With 1:1 NAT, clients receive the public address instead.
    RelayedAddr
}
whose! {
    /// Address and port of a peer, the remote side of a relay.
    PeerAddr
}
