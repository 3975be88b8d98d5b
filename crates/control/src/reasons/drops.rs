//! Advice about dropped packets.

use turn_proto::DropReason;

const UNAUTHENTICATED: &str = "The log names the network: an attack with forged addresses, or very many clients behind one NAT; for \
     these raise `quotas.unauthenticated_responses_per_second`.";

const PROVED_ADDRESS: &str = "The log names the address: a client in a loop, or very many behind one NAT; for these raise \
     `quotas.unauthenticated_responses_per_second`.";

const ALL_NETWORKS: &str = "A flood from thousands of networks, perhaps with forged addresses. Clients repeat their requests; those over TCP, TLS \
     and DTLS are not concerned. More workers (`workers.count`) respond to more.";

const REQUEST: &str =
    "The log names the address: a client in a loop, or an attack with valid credentials.";

/// Advice about dropped packets; empty where nothing is to be done.
pub(super) const fn advice(reason: DropReason) -> &'static str {
    match reason {
        DropReason::NotStun => {
            "Scanners and other protocols; check that no other service is expected at this port."
        }
        DropReason::MalformedStun | DropReason::BadFingerprint => {
            "Scanners, or something on the way alters packets (an application-level gateway of a router)."
        }
        DropReason::UnexpectedMethod
        | DropReason::UnexpectedResponse
        | DropReason::BindingIndication
        | DropReason::UnknownAttribute
        | DropReason::AlreadyPending
        | DropReason::Moving
        | DropReason::RelayClosed
        | DropReason::IcmpIgnored
        | DropReason::StreamClosed
        | DropReason::DtlsStray
        | DropReason::DtlsCookieUsed
        | DropReason::DtlsRefused => "",
        DropReason::UnauthenticatedBudget => UNAUTHENTICATED,
        DropReason::ProvedAddressBudget => PROVED_ADDRESS,
        DropReason::AllNetworksBudget => ALL_NETWORKS,
        DropReason::VerificationBudget => {
            "The log names the address: somebody tries passwords, or an application there mints with the wrong secret."
        }
        DropReason::RequestBudget => REQUEST,
        DropReason::TooManyPending => {
            "The user database is slow: see the log and `users.database`."
        }
        DropReason::NoAllocation => {
            "Clients whose allocation ended send on for a while; after a restart of the server there are many."
        }
        DropReason::MalformedChannelData | DropReason::MalformedSend => {
            "The client breaks the protocol."
        }
        DropReason::ChannelNotBound => {
            "The client did not refresh its channel within `lifetimes.channel`, or breaks the protocol."
        }
        DropReason::NoPermission => {
            "Packets from peers that the client has not named; common while ICE checks. With no sound in a call: the \
             client does not refresh its permissions."
        }
        DropReason::RelaysTcp => "The client mixes UDP and TCP (RFC 6062).",
        DropReason::PeerFamily => "The client has no relayed address of the peer's family.",
        DropReason::OwnAddress => {
            "A client tries to reach this server through itself; only live relayed addresses can be reached so."
        }
        DropReason::Bandwidth => "The allocation sends more than `quotas.bytes_per_second`.",
        DropReason::TtlExpired => "A routing loop between this server and a client or peer.",
        DropReason::TooLong => "A peer sends larger datagrams than can be relayed.",
        DropReason::Checksum => "A network device or a driver damages packets: see `ethtool -S`.",
        DropReason::UdpNotServed => {
            "`udp.enabled` is false: clients have to use DTLS, TLS or TCP. Otherwise set it to true."
        }
        DropReason::Truncated => "A datagram larger than any that is relayed.",
        DropReason::SendBufferFull => {
            "The interface is slower than the traffic: raise `sockets.send_buffer`, see `turnpike tune`."
        }
        DropReason::SendRefused => {
            "See the host's routes and firewall: the kernel refuses to send to a client or peer."
        }
        DropReason::StreamBacklog => {
            "The client's connection is slower than its data: nothing can be done here."
        }
        DropReason::DtlsHelloInPieces => {
            "A few are normal, and clients repeat them. Many come from floods, or from a client with a first message of more than 2,048 bytes."
        }
        DropReason::DtlsMalformed => "Scanners, or a broken client.",
        DropReason::DtlsNoPlace => {
            "Raise `dtls.sessions` or `dtls.sessions_per_address`; `turnpike_dtls_sessions_refused_total` has the reasons."
        }
        DropReason::DtlsBusy => {
            "More DTLS handshakes than processor time: add workers, or look for the address that makes so many."
        }
        DropReason::TooBigForLink => {
            "The client asked not to fragment (path MTU discovery), and was told: nothing is to be done."
        }
    }
}
