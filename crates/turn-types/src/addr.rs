//! Addresses named for their owners.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The two IP families, as the address-family numbers of RFC 8656 §18.6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum IpFamily {
    /// IPv4, 0x01 on the wire.
    V4,
    /// IPv6, 0x02 on the wire.
    V6,
}

impl IpFamily {
    /// Both families, in the order of their wire numbers.
    pub const ALL: [Self; 2] = [Self::V4, Self::V6];

    /// The family of an address.
    #[must_use]
    pub const fn of(ip: IpAddr) -> Self {
        match ip {
            IpAddr::V4(_) => Self::V4,
            IpAddr::V6(_) => Self::V6,
        }
    }

    /// Position in an array of one element per family: that of [`Self::ALL`].
    #[must_use]
    pub const fn index(self) -> usize {
        match self {
            Self::V4 => 0,
            Self::V6 => 1,
        }
    }

    /// The metric label and the word in logs: `ipv4` or `ipv6`.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::V4 => "ipv4",
            Self::V6 => "ipv6",
        }
    }

    /// The number used in STUN attributes: 1 or 2 (RFC 8489 §14.1).
    #[must_use]
    pub const fn wire(self) -> u8 {
        match self {
            Self::V4 => 1,
            Self::V6 => 2,
        }
    }

    /// The family with this wire number, if there is one.
    #[must_use]
    pub const fn from_wire(number: u8) -> Option<Self> {
        match number {
            1 => Some(Self::V4),
            2 => Some(Self::V6),
            _ => None,
        }
    }

    /// The other family.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::V4 => Self::V6,
            Self::V6 => Self::V4,
        }
    }

    /// The unspecified address of this family (`0.0.0.0` or `::`).
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
            /// The IP address.
            #[must_use]
            pub const fn ip(&self) -> IpAddr {
                self.0.ip()
            }

            /// The port.
            #[must_use]
            pub const fn port(&self) -> u16 {
                self.0.port()
            }

            /// The family of the address.
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
    /// Source address of a client's packets, as the server sees it (its server-reflexive address).
    ClientAddr
}
whose! {
    /// The address and port of ours that a client talks to.
    ServerAddr
}
whose! {
    /// An address and port allocated for a client (RFC 8656 §2). This is the *local* one, which the
    /// relay socket is bound to; behind 1:1 NAT clients are told its public form.
    RelayedAddr
}
whose! {
    /// The far end of a relay.
    PeerAddr
}
