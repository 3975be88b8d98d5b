//! Conditions that need an operator.

/// Condition that needs an operator. Each condition is logged at most once in
/// [`WARNING_EVERY`](crate::limits::WARNING_EVERY).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Condition {
    /// No relay port is free.
    PortsExhausted,
    /// Few relay ports, or few allocations of a total quota, are free.
    Share,
    /// The user database does not respond.
    UserDatabase,
    /// `quotas.allocations_per_user` is reached.
    UserQuota,
    /// `quotas.allocations_per_address` is reached.
    AddressQuota,
    /// `quotas.allocations_total` is reached.
    TotalQuota,
    /// `quotas.new_peers_per_second` is reached.
    NewPeers,
    /// A relay socket cannot be opened although the port is free.
    RelaySocket,
    /// Receiving from a socket has failed.
    Receive,
    /// A receive buffer was full.
    KernelDrops,
    /// The kernel cannot relay a channel.
    KernelPath,
    /// Connections cannot be accepted.
    Accept,
    /// A load balancer sends no PROXY header.
    Proxy,
    /// A PROXY header was received from an address that does not belong to a known load balancer.
    ProxyNotListed,
    /// A worker's message queue is full.
    Move,
    /// No processor time is left for a client's handshake.
    Handshakes,
    /// A keeper or the successor cannot receive copies.
    Copies,
}

impl Condition {
    pub(super) const COUNT: usize = 17;

    pub(super) const fn text(self) -> &'static str {
        match self {
            Self::PortsExhausted => {
                "no relay port is free: clients are refused; widen relay.ports, add relay \
                 addresses, or lower the quotas"
            }
            Self::Share => {
                "few relay ports, or allocations of a total quota, are free: clients of networks and users with \
                 many allocations are refused; widen relay.ports, add relay addresses, or raise the quota"
            }
            Self::UserDatabase => "the user database does not answer: users cannot log in",
            Self::UserQuota => {
                "a user has no allocation left: their clients are refused (quotas.allocations_per_user, or a lower limit of \
                 the credential or the authorizer)"
            }
            Self::AddressQuota => {
                "an address has no allocation left: its clients are refused \
                 (quotas.allocations_per_address)"
            }
            Self::TotalQuota => {
                "no allocation is left: clients are refused (quotas.allocations_total)"
            }
            Self::NewPeers => {
                "the clients of an address begin to send to too many peers: they are refused \
                 (quotas.new_peers_per_second)"
            }
            Self::RelaySocket => "a relay socket cannot be opened: clients are refused",
            Self::Receive => "a socket cannot be received from",
            Self::KernelDrops => {
                "datagrams were lost because a receive buffer was full; raise \
                 sockets.receive_buffer, or give the server more workers"
            }
            Self::Copies => {
                "no descriptors are left for copies of sockets: a crash would end new calls, and an upgrade \
                 fails; raise the limit of open files (LimitNOFILE)"
            }
            Self::Handshakes => {
                "too many DTLS or TLS handshakes: some wait, or are dropped until the client sends again"
            }
            Self::Move => "a worker takes no messages: clients cannot move to it for now",
            Self::Proxy => {
                "a connection from tcp.proxy_protocol does not begin with a PROXY header: have the load \
                 balancer send one (version 1 or 2), or take its address out"
            }
            Self::ProxyNotListed => {
                "a connection begins with a PROXY header, and its address is not in tcp.proxy_protocol: if \
                 it is your load balancer, add it there"
            }
            Self::Accept => {
                "connections cannot be accepted: clients over TCP are refused; raise the limit of open \
                 files (LimitNOFILE)"
            }
            Self::KernelPath => {
                "the kernel does not take a channel: sockets relay it, at several times the cost"
            }
        }
    }
}
