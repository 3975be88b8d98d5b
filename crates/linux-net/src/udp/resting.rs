//! TTL and traffic class as options of a socket. Datagrams with equal fields then need no control
//! messages, each of which costs the kernel time.

use std::cell::Cell;
use std::os::fd::BorrowedFd;

use libc::c_int;
use turn_types::{IpFamily, IpMeta};

use crate::abi::sys::set_option;

/// Number of consecutive datagrams with equal fields that differ from the socket's, after which
/// these fields become socket options. A client that mixes classes would otherwise change the
/// options with each datagram. Such changes cost more than control messages.
const STRANGERS_MAX: u8 = 16;

/// TTL and traffic class of a datagram. TTL 0 means the system's default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Fields {
    ttl: u8,
    tos: u8,
}

impl Fields {
    const SYSTEM: Self = Self { ttl: 0, tos: 0 };

    const fn of(meta: IpMeta) -> Self {
        Self { ttl: meta.ttl, tos: meta.tos }
    }
}

/// Fields that a datagram must carry as control messages, because the socket options differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unsaid {
    pub(crate) ttl: Option<u8>,
    pub(crate) tos: Option<u8>,
}

impl Unsaid {
    /// No control message is needed: the socket options are equal to the fields.
    const NOTHING: Self = Self { ttl: None, tos: None };
}

/// TTL and traffic class options of one socket.
#[derive(Debug)]
pub(super) struct Resting {
    /// True if the options adapt to the sent datagrams.
    adapts: bool,
    given: Cell<Given>,
}

#[derive(Clone, Copy, Debug)]
struct Given {
    /// Options that the socket has now. `None` if another process or handle may have changed them.
    fields: Option<Fields>,
    /// Fields of the latest datagrams that differed from the options.
    others: Fields,
    strangers: u8,
}

impl Resting {
    /// Creates the state of a new socket, which has the system's defaults.
    pub(super) const fn new(adapts: bool) -> Self {
        Self::with(adapts, Some(Fields::SYSTEM))
    }

    /// Creates the state of a socket that another owner used before. The options of an adapting
    /// socket are unknown.
    pub(super) const fn taken_over(adapts: bool) -> Self {
        Self::with(adapts, if adapts { None } else { Some(Fields::SYSTEM) })
    }

    const fn with(adapts: bool, fields: Option<Fields>) -> Self {
        let given = Given { fields, others: Fields::SYSTEM, strangers: 0 };
        Self { adapts, given: Cell::new(given) }
    }

    /// Creates the state of another handle of the socket. The two handles do not share later
    /// changes.
    pub(super) const fn of_other_handle(&self) -> Self {
        Self::taken_over(self.adapts)
    }

    /// Returns true if a datagram with these fields can be sent with the present options. Control
    /// messages cannot request the default TTL.
    pub(super) fn can_send(&self, meta: IpMeta) -> bool {
        meta.ttl > 0 || self.given.get().fields.is_some_and(|fields| fields.ttl == 0)
    }

    /// Changes the options if `next` cannot be sent otherwise, or if the latest datagrams make a
    /// change worthwhile. Called only between two send calls, since the options apply to all
    /// datagrams of a call.
    pub(super) fn settle(&self, fd: BorrowedFd<'_>, family: IpFamily, next: IpMeta) {
        let given = self.given.get();
        let wanted = if !self.can_send(next) {
            Fields::of(next)
        } else if given.strangers >= STRANGERS_MAX {
            given.others
        } else {
            return;
        };
        // If the kernel rejects the options, datagrams continue to carry control messages.
        let fields = if set(fd, family, given.fields, wanted) { Some(wanted) } else { None };
        self.given.set(Given { fields, others: wanted, strangers: 0 });
    }

    /// Returns the fields that a datagram must carry as control messages.
    pub(super) fn unsaid(&self, meta: IpMeta) -> Unsaid {
        let (fields, mut given) = (Fields::of(meta), self.given.get());
        if given.fields == Some(fields) {
            if given.strangers > 0 {
                self.given.set(Given { strangers: 0, ..given });
            }
            return Unsaid::NOTHING;
        }
        if self.adapts {
            let more = if given.others == fields { given.strangers.saturating_add(1) } else { 1 };
            (given.others, given.strangers) = (fields, more);
            self.given.set(given);
        }
        let differs = |of: fn(Fields) -> u8| given.fields.map(of) != Some(of(fields));
        Unsaid {
            ttl: (fields.ttl > 0 && differs(|fields| fields.ttl)).then_some(fields.ttl),
            tos: differs(|fields| fields.tos).then_some(fields.tos),
        }
    }
}

/// Sets the options that differ. Returns false if the kernel rejects an option.
fn set(fd: BorrowedFd<'_>, family: IpFamily, before: Option<Fields>, wanted: Fields) -> bool {
    let (level, ttl, tos) = match family {
        IpFamily::V4 => (libc::IPPROTO_IP, libc::IP_TTL, libc::IP_TOS),
        IpFamily::V6 => (libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS, libc::IPV6_TCLASS),
    };
    // -1 selects the system's default.
    let hops = if wanted.ttl == 0 { -1 } else { c_int::from(wanted.ttl) };
    let same_ttl = before.is_some_and(|before| before.ttl == wanted.ttl);
    let same_tos = before.is_some_and(|before| before.tos == wanted.tos);
    (same_ttl || set_option(fd, level, ttl, hops).is_ok())
        && (same_tos || set_option(fd, level, tos, c_int::from(wanted.tos)).is_ok())
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;

    use super::*;
    use crate::abi::sys::option;
    use crate::udp::open;

    const fn meta(ttl: u8, tos: u8) -> IpMeta {
        IpMeta { ttl, tos, dont_fragment: false }
    }

    /// Passes datagrams with one call each. Returns the number of datagrams that needed control
    /// messages.
    fn send(resting: &Resting, fd: BorrowedFd<'_>, datagrams: &[IpMeta]) -> usize {
        let said = datagrams.iter().filter(|meta| {
            resting.settle(fd, IpFamily::V4, **meta);
            resting.unsaid(**meta) != Unsaid::NOTHING
        });
        said.count()
    }

    #[test]
    fn the_fields_of_many_become_those_of_the_socket_and_mixed_ones_do_not() {
        let socket = open(std::net::Ipv4Addr::LOCALHOST.into()).unwrap();
        let fd = socket.as_fd();
        let ttl = || option(fd, libc::IPPROTO_IP, libc::IP_TTL).unwrap();
        let tos = || option(fd, libc::IPPROTO_IP, libc::IP_TOS).unwrap();
        let resting = Resting::new(true);
        assert_eq!(send(&resting, fd, &[meta(0, 0); 5]), 0, "they are the system's");
        let default = ttl();

        let most = usize::from(STRANGERS_MAX);
        assert_eq!(send(&resting, fd, &[meta(63, 0xB8); 100]), most);
        assert_eq!((ttl(), tos()), (63, 0xB8));
        assert_eq!(send(&resting, fd, &[meta(63, 0), meta(63, 0xB8)].repeat(100)), 100);
        assert_eq!(tos(), 0xB8);
        assert_eq!(send(&resting, fd, &[meta(63, 0); 100]), most);
        assert_eq!((ttl(), tos()), (63, 0));

        // Control messages cannot request the default TTL, so the socket changes immediately.
        assert!(!resting.can_send(meta(0, 0)));
        assert_eq!(send(&resting, fd, &[meta(0, 0)]), 0);
        assert_eq!(ttl(), default);
    }

    #[test]
    fn a_socket_of_unknown_state_gets_both() {
        let socket = open(std::net::Ipv4Addr::LOCALHOST.into()).unwrap();
        let fd = socket.as_fd();
        assert!(set(fd, IpFamily::V4, None, Fields { ttl: 9, tos: 4 }));
        let resting = Resting::taken_over(true);
        assert_eq!(send(&resting, fd, &[meta(0, 0)]), 0);
        assert_ne!(option(fd, libc::IPPROTO_IP, libc::IP_TTL).unwrap(), 9);
        assert_eq!(option(fd, libc::IPPROTO_IP, libc::IP_TOS).unwrap(), 0);
    }

    #[test]
    fn a_socket_of_many_senders_stays_as_it_is() {
        let socket = open(std::net::Ipv4Addr::LOCALHOST.into()).unwrap();
        let fd = socket.as_fd();
        let default = option(fd, libc::IPPROTO_IP, libc::IP_TTL).unwrap();
        let resting = Resting::new(false);
        assert_eq!(send(&resting, fd, &[meta(63, 4); 100]), 100);
        assert_eq!(resting.unsaid(meta(63, 0)), Unsaid { ttl: Some(63), tos: None });
        assert_eq!(option(fd, libc::IPPROTO_IP, libc::IP_TTL).unwrap(), default);
    }
}
