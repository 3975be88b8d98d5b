//! Advice about ends of allocations, connections and sessions, and about connections that did not
//! begin.

use turn_proto::{EndReason, PeerRefusal};

use crate::{AssociationEnd, AssociationRefusal, StreamEnd, StreamRefusal};

pub(super) const fn allocation(reason: EndReason) -> &'static str {
    match reason {
        EndReason::Deleted
        | EndReason::EndedByOperator
        | EndReason::Revoked
        | EndReason::Shutdown
        | EndReason::RelayAddressRemoved => "",
        EndReason::ListenerRemoved => {
            "An upgrade or restart with a configuration that no longer listens there."
        }
        EndReason::Expired => {
            "Common for clients that lost their network. Often: something drops their refreshes."
        }
        EndReason::SystemExhausted => {
            "Raise the limit of open files (LimitNOFILE under systemd), or look for the lack of memory."
        }
        EndReason::ConnectionClosed => {
            "The end of the client's connection has its own reason. With `mobility` allocations outlive it."
        }
    }
}

pub(super) const fn connection_refused(reason: StreamRefusal) -> &'static str {
    match reason {
        StreamRefusal::Total => "Raise `tcp.connections`.",
        StreamRefusal::Address => {
            "Many clients behind one NAT or load balancer: raise `tcp.connections_per_address`, or name the load \
             balancer in `tcp.proxy_protocol`."
        }
        StreamRefusal::Network => {
            "Somebody fills the server from one network, or many clients come from it: raise `tcp.connections`."
        }
        StreamRefusal::Resources => "Raise the limit of open files (LimitNOFILE under systemd).",
    }
}

pub(super) const fn connection(reason: StreamEnd) -> &'static str {
    match reason {
        StreamEnd::ByClient
        | StreamEnd::ByUs
        | StreamEnd::DataDone
        | StreamEnd::PeerBroken
        | StreamEnd::AllocationEnded
        | StreamEnd::Shutdown
        | StreamEnd::Replaced
        | StreamEnd::Idle => "",
        StreamEnd::Broken => {
            "The client lost its network, or a firewall on the way forgot the connection."
        }
        StreamEnd::NoMessage => {
            "Scanners, health checks of load balancers, or a client that speaks another protocol."
        }
        StreamEnd::NoProxyHeader => {
            "Have the load balancer send a PROXY header (version 1 or 2), or take its address out of \
             `tcp.proxy_protocol`."
        }
        StreamEnd::ProxyNotListed => {
            "Add the load balancer's address, which the log has, to `tcp.proxy_protocol`; or have it send no PROXY header."
        }
        StreamEnd::TcpNotServed => {
            "`tcp.enabled` is false: clients have to use TLS (`turns:` URIs). Otherwise set it to true."
        }
        StreamEnd::TooSlow => {
            "The client's network is very slow, or somebody holds connections open."
        }
        StreamEnd::NotStun => "Scanners, or a client that speaks another protocol.",
        StreamEnd::TooLong => "Scanners, or a client that breaks the protocol.",
        StreamEnd::TlsNotServed => {
            "Name a certificate in `tls.certificates` for clients of `turns:` URIs."
        }
        StreamEnd::TlsFailed => {
            "The log has the cause: a certificate that clients do not trust (often without its intermediate), an old \
             version of TLS, or a name that no certificate has."
        }
        StreamEnd::Stuck => "The client does not read its data: its network broke, or it hangs.",
        StreamEnd::Resources => "Look for the lack of memory on this host.",
        StreamEnd::CrowdedOut => {
            "Raise `tcp.connections`, or look for the address with so many idle ones."
        }
    }
}

pub(super) const fn session_refused(reason: AssociationRefusal) -> &'static str {
    match reason {
        AssociationRefusal::Total => "Raise `dtls.sessions`.",
        AssociationRefusal::Address => {
            "Many clients behind one NAT: raise `dtls.sessions_per_address`."
        }
        AssociationRefusal::Network => {
            "Somebody fills the server from one network, or many clients come from it: raise `dtls.sessions`."
        }
        AssociationRefusal::Busy | AssociationRefusal::Share => {
            "More handshakes than processor time: add workers; certificates with ECDSA keys cost less than RSA."
        }
        AssociationRefusal::Resources => "Look for the lack of memory.",
    }
}

pub(super) const fn session(reason: AssociationEnd) -> &'static str {
    match reason {
        AssociationEnd::ByClient
        | AssociationEnd::Replaced
        | AssociationEnd::Idle
        | AssociationEnd::Shutdown => "",
        AssociationEnd::Failed => {
            "A client without trust in the certificate, without a cipher in common, or with DTLS 1.0 alone."
        }
        AssociationEnd::NotCompleted => {
            "The client left, or large packets of the certificate are lost on the way: a chain with ECDSA keys is \
             shorter."
        }
        AssociationEnd::CrowdedOut => {
            "Somebody begins handshakes, or opens sessions, and leaves them: see the log for the \
             address. With many clients of one network raise `dtls.sessions`."
        }
        AssociationEnd::Broken => "The client breaks the rules of DTLS.",
        AssociationEnd::KeysUsedUp => {
            "The client may begin anew at once; with little traffic, look for whoever forges its records."
        }
    }
}

pub(super) const fn peer(reason: PeerRefusal) -> &'static str {
    match reason {
        PeerRefusal::NoPermission => "The client has to permit the peer first (CreatePermission).",
        PeerRefusal::OwnAddress | PeerRefusal::RelayClosed => "",
        PeerRefusal::TooMany => {
            "A client has more connections with peers than an allocation may have."
        }
    }
}
