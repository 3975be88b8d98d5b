//! Bounds in number and in time.

use crate::section::section;
use crate::value::{Bytes, Count, Duration};

section! {
    /// Bounds for users, for clients of one address, and for unauthenticated sources.
    Quotas {
        /// Allocations of one user at a time; 0 is no limit. A client has two or three for each
        /// call. The default keeps one leaked credential from taking every port, and leaves room
        /// for services with one user for all clients; where each person is a user of their own, 20
        /// is enough. A time-limited name counts without its time, so that a service that issues
        /// bare times, or access tokens, is bounded by `allocations_per_address` alone. More are
        /// refused with 486.
        #[schemars(example = 20)]
        live allocations_per_user: Count<0, 10_000_000> = Count::new(1000);
        /// Allocations of all clients of one address (a /64 of IPv6) at a time, whatever their
        /// users; 0 is no limit. The default is some 700 simultaneous calls from behind one NAT:
        /// more than the largest offices and carriers put behind one address, and an eighth of the
        /// ports. Set 0 where a proxy that does not speak the PROXY protocol, or the NAT of a
        /// cluster, stands in front of all clients. More are refused with 486. While fewer than an
        /// eighth of the ports, or of a total quota, are free, networks and users with many
        /// allocations get no more (508), and others do; with 0 no network is limited so, and no
        /// user with `allocations_per_user = 0`.
        #[schemars(example = 200)]
        live allocations_per_address: Count<0, 10_000_000> = Count::new(2000);
        /// Allocations at a time; 0 is as many as there are ports. Each port in use is an open
        /// file: a process that may open too few uses fewer, and says how many at its start.
        #[schemars(example = 5000)]
        live allocations_total: Count<0, 10_000_000> = Count::new(0);
        /// Permissions (peer addresses that may send) of one allocation.
        live permissions: Count<1, { turn_proto::limits::PERMISSIONS_MAX }> = Count::new(128);
        /// Channels of one allocation.
        live channels: Count<1, { turn_proto::limits::CHANNELS_MAX }> = Count::new(128);
        /// New peer addresses per second for all clients of one address (a /64 of IPv6), whatever
        /// their users; 0 is no limit. A minute's worth may be used at once: with the default 6,000
        /// addresses, where a WebRTC client has 5 to 20 for each call, so that a whole office may
        /// reconnect at the same time. It keeps a leaked credential from scanning the Internet
        /// through this host. A user has twenty times as much over all addresses. More are refused
        /// with 508.
        #[schemars(example = 5)]
        live new_peers_per_second: Count<0, 1_000_000> = Count::new(100);
        /// Bytes per second of one allocation in each direction, counting 28 bytes of headers for
        /// each packet sent over IPv4 and 48 over IPv6; `"0 B"` is no limit.
        #[schemars(example = &"2 MiB")]
        live bytes_per_second: Bytes<0, { 1 << 40 }> = Bytes::new(0);
        /// The most that the `bytes_per_second` of all allocations add up to, in each direction,
        /// such as `"120 MiB"`, what the host's connection carries; `"0 B"` is no limit. An
        /// allocation takes its `bytes_per_second` as long as it lives, whether it uses them or
        /// not. More are refused with 508.
        live bytes_per_second_total: Bytes<0, { 1 << 40 }> = Bytes::new(0);
        /// Responses per second to unauthenticated requests from one network of clients (a /24 of
        /// IPv4, a /48 of IPv6); 0 is no limit. It bounds the traffic that forged source addresses
        /// make this host send to others: with the default, about 2 Mbit/s to any network. One half
        /// is for STUN Binding, the other for the first step of a login (401, 438), so that neither
        /// uses up the other's. Of each half, a half is kept for addresses that send few requests:
        /// when some addresses of a network send too many, each of the others still gets about two
        /// responses a second.
        ///
        /// Clients whose address cannot be forged (over TCP, TLS or DTLS, or with a nonce that was
        /// sent to their address) are not counted there. They have as many responses for each
        /// address (a /64 of IPv6), and a twentieth of it for requests with wrong credentials:
        /// beyond that nothing from that address is verified for a moment, except for clients that
        /// have an allocation. `turnpike status` counts packets dropped by an exhausted budget as
        /// `unauthenticated_budget`, `proved_address_budget` or `verification_budget`, and the log
        /// names the network once a minute.
        ///
        /// All networks of possibly forged addresses together get at most 49,152 responses per
        /// second and worker (`all_networks_budget`), so that a flood from thousands of networks
        /// does not delay calls. Authenticated requests are limited for each address to a
        /// thirty-second of a worker's time, some 1,600 per second, for each account to an eighth,
        /// for each /24 to a quarter, for each /16 and each of several realms to half
        /// (`request_budget`). With 0 both are unlimited too.
        live unauthenticated_responses_per_second: Count<0, 1_000_000> = Count::new(2000);
    }
}

section! {
    /// Lifetimes of allocations, permissions, channels, nonces and reservations.
    Lifetimes {
        /// Of an allocation whose client requests none, or a shorter one (RFC 8656 §7.2).
        live allocation_default: Duration<60, 3600> = Duration::seconds(600);
        /// Longest lifetime that one request can get; clients refresh their allocation as needed.
        live allocation_max: Duration<60, 86_400> = Duration::seconds(3600);
        /// Of a permission. RFC 8656 §9 sets 5 minutes, and clients rely on no less.
        live permission: Duration<300, 3600> = Duration::seconds(300);
        /// Of a channel. RFC 8656 §12 sets 10 minutes, and clients rely on no less.
        live channel: Duration<600, 3600> = Duration::seconds(600);
        /// Of a nonce; clients that use it later get a new one with 438 (RFC 8656 §5: an hour at
        /// most).
        live nonce: Duration<60, 3600> = Duration::seconds(600);
        /// Of a port reserved for a client's next request (RFC 8656 §7.2: 30 seconds at least).
        live reservation: Duration<30, 300> = Duration::seconds(30);
    }
}

impl From<&Quotas> for turn_proto::Quotas {
    fn from(quotas: &Quotas) -> Self {
        Self {
            allocations_per_user: quotas.allocations_per_user.get(),
            allocations_per_customer: quotas.allocations_per_address.get(),
            allocations_total: quotas.allocations_total.get(),
            stream_allocations: u32::MAX,
            dtls_allocations: u32::MAX,
            peer_connections: turn_proto::limits::CONNECTIONS_MAX,
            permissions: quotas.permissions.get(),
            channels: quotas.channels.get(),
            new_peers_per_second: quotas.new_peers_per_second.get(),
            bytes_per_second: quotas.bytes_per_second.get(),
            bytes_per_second_total: quotas.bytes_per_second_total.get(),
        }
    }
}

impl From<&Lifetimes> for turn_proto::Lifetimes {
    fn from(lifetimes: &Lifetimes) -> Self {
        Self {
            allocation_default: lifetimes.allocation_default.get(),
            allocation_max: lifetimes.allocation_max.get(),
            permission: lifetimes.permission.get(),
            channel: lifetimes.channel.get(),
            nonce: lifetimes.nonce.get(),
            reservation: lifetimes.reservation.get(),
        }
    }
}
