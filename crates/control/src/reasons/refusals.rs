//! Advice about refused requests.

use turn_proto::Refusal;

use super::{Reason, Subject};

pub(super) const fn reason(refusal: Refusal) -> Reason {
    Reason {
        subject: Subject::Request,
        name: refusal.label(),
        code: Some(refusal.code()),
        meaning: refusal.meaning(),
        advice: advice(refusal),
    }
}

/// Advice about a refused request; empty where nothing is to be done.
#[expect(clippy::too_many_lines, reason = "a table with an entry for each refusal")]
pub(super) const fn advice(refusal: Refusal) -> &'static str {
    match refusal {
        Refusal::NoCredentials => "",
        Refusal::IncompleteCredentials => {
            "Update the client: it leaves out an attribute that RFC 8489 demands."
        }
        Refusal::PasswordAlgorithms => {
            "Something between client and server alters packets, or the client repeats the list of algorithms wrongly."
        }
        Refusal::WrongRealm => {
            "The client keeps a realm of its own: let it take the one of the 401, or set `realm` to it."
        }
        Refusal::InvalidUsername => {
            "Let the application hand out names without control, invisible and private characters, of at most 508 \
             bytes: such names could be neither listed nor revoked."
        }
        Refusal::UnknownUser => {
            "Check the name with `turnpike user list`, and its realm. A name of the form `1700000000:alice` is a \
             time-limited one: it needs `auth.secret`, and one that is not revoked (`turnpike user revoked`)."
        }
        Refusal::WrongPassword => {
            "The client has another password than the user in the database: `turnpike user password NAME` sets a new one."
        }
        Refusal::WrongSecret => {
            "The application mints with another secret than `auth.secret`: compare with what `turnpike credentials` \
             prints. While secrets change, `auth.secrets` takes the old and the new one."
        }
        Refusal::BadToken => {
            "Give the authorization server and this one the same key (`auth.token_keys`) and the same `auth.server_name`."
        }
        Refusal::UnknownTokenKey => {
            "Add the key that the client names to `auth.token_keys`, or let the authorization server use one of these."
        }
        Refusal::CredentialExpired => {
            "The application hands out credentials too early or with too short a life, or the clocks of its host and \
             this one differ. Or the name has two times, as with a user id of ten digits: the earlier one may count; put \
             a letter before such ids."
        }
        Refusal::CredentialRevoked => {
            "`turnpike user revoked` lists the revoked ones; `turnpike user restore` accepts one again."
        }
        Refusal::UnreadableLimits => {
            "The application writes limits into the name that this server cannot read: see `auth.limits_in_names`."
        }
        Refusal::NotAuthorized => {
            "The service of `authorizer.url` said no: its own log has the reason."
        }
        Refusal::AuthorizerUnavailable => {
            "See the log for the error of the service at `authorizer.url`, or for what is wrong with its response. \
             While it is silent or fails for all, `authorizer.when_silent` decides what becomes of clients."
        }
        Refusal::AuthorizerOverloaded => {
            "The service of `authorizer.url` answers too slowly for so many clients, limits their rate (429), or one \
             account has taken its share: see `turnpike sessions`. `authorizer.when_silent` does not apply."
        }
        Refusal::StaleNonce => "",
        Refusal::InvalidNonce => {
            "Clients whose address changed are told so once. Often: a load balancer spreads one client over several \
             servers, or a proxy sends each packet of a client from another port; let it keep clients at one."
        }
        Refusal::UserDatabaseUnavailable => {
            "See the log for the error of the database, and `users.database`."
        }
        Refusal::UserLookupsOverloaded => {
            "More clients log in than the database (`users.database`) can look up, or one network floods the server with \
             names. Clients try again."
        }
        Refusal::UnknownAttributes => {
            "The client demands an extension that this server does not have; the response names it."
        }
        Refusal::NoCookie => "The client is older than RFC 5389: it cannot be served over DTLS.",
        Refusal::BadRequest => {
            "The client breaks the protocol; `turnpike log-level debug` shows its address and method."
        }
        Refusal::ChannelNumber => "Set `compatibility.rfc5766_clients` for such clients.",
        Refusal::NoAllocation => {
            "Its allocation ended: see the lines `allocation ended` of this client. Often the client was silent for \
             longer than its lifetime, or the server was restarted."
        }
        Refusal::AllocationExists => {
            "The client uses one port for two allocations, or a NAT gave the port of a client that is gone to another."
        }
        Refusal::WrongUser => {
            "The client changed its user during an allocation; it has to begin a new one."
        }
        Refusal::UnsupportedTransport => {
            "For UDP set `udp.relaying`. For TCP to peers (RFC 6062) set `tcp.relaying`; the client itself has to come over TCP or TLS."
        }
        Refusal::RelayProtocol => "The client mixes requests for UDP and for TCP (RFC 6062).",
        Refusal::ConnectionExists => "",
        Refusal::ConnectionFailed => {
            "The peer does not listen, or a firewall between this server and the peer forbids it."
        }
        Refusal::UnknownConnection => {
            "The client came more than 30 s after the connection was made, or with another user."
        }
        Refusal::ConnectionLimit => {
            "A client has more connections with peers than an allocation may have."
        }
        Refusal::DontFragment => "",
        Refusal::FamilyUnsupported => {
            "Add an address of that family to `relay.addresses`; most clients go on with the other one."
        }
        Refusal::PeerFamilyMismatch => {
            "The client has to ask for a relayed address of the peer's family (RFC 8656 REQUESTED-ADDRESS-FAMILY)."
        }
        Refusal::BadReservationToken => {
            "The client came too late (`lifetimes.reservation`), or to another server behind the same name."
        }
        Refusal::PortsExhausted => {
            "Widen `relay.ports`, or add relay addresses or a prefix (`relay.prefixes`); where a warning at the start says \
             that files are too few, raise that limit (LimitNOFILE under systemd)."
        }
        Refusal::PortsShare => {
            "Fewer than an eighth of the ports are free (of fewer than 64 up to a quarter), and the rest is for other networks and users: widen `relay.ports`, \
             or add relay addresses, or allow more open files where a warning at the start says so. `turnpike sessions` shows who has most: lower `quotas.allocations_per_address` or \
             `allocations_per_user` against abuse. Where an address or a user name is many customers', set that limit to 0."
        }
        Refusal::RelayAddressAbsent => {
            "The host does not have an address of `relay.addresses` or the interface of `sockets.relay_device` now, or no address \
             that `auto` takes: `ip address` lists what it has, and `turnpike status` what the server relays from. The server takes it as soon as it is there."
        }
        Refusal::SystemExhausted => {
            "Raise the limit of open files (LimitNOFILE under systemd), or look for the lack of memory."
        }
        Refusal::UserQuota => {
            "Raise `quotas.allocations_per_user`, or the limit `allocations` of the credential or the authorizer where it is \
             lower; or look with `turnpike sessions --user NAME` why the user has so many."
        }
        Refusal::AddressQuota => {
            "Many clients behind one NAT: raise `quotas.allocations_per_address`. Otherwise somebody tries to take all ports."
        }
        Refusal::RealmQuota => "Raise `quotas.allocations_total` of this entry of `realms`.",
        Refusal::BandwidthQuota => {
            "Raise `quotas.bytes_per_second_total`, here or in the entry of `realms`, lower `bytes_per_second`, or add a server."
        }
        Refusal::QuotaShare => {
            "Less than an eighth of a total quota is left, and the rest is for other networks and users: raise it, or add a \
             server. Where an address or a user name is many customers', set `quotas.allocations_per_address` or \
             `allocations_per_user` to 0."
        }
        Refusal::ConnectionShare => {
            "Seven eighths of `tcp.connections` and of `dtls.sessions` may have an allocation, less with `tcp.relaying`, and \
             of the last eighth of these each network, account and realm has a share: raise the setting of the client's \
             transport, or lower `quotas.allocations_per_user`."
        }
        Refusal::TotalQuota => "Raise `quotas.allocations_total`, or add a server.",
        Refusal::PermissionLimit => "Raise `quotas.permissions` for clients with so many peers.",
        Refusal::NewPeerLimit => {
            "Raise `quotas.new_peers_per_second` for clients with so many peers; otherwise somebody scans a network \
             through this server."
        }
        Refusal::ChannelLimit => "Raise `quotas.channels` for clients with so many peers.",
        Refusal::ChannelConflict => {
            "The client breaks RFC 8656 §12.2: a channel is for one peer as long as it lives."
        }
        Refusal::PeerForbidden => {
            "If clients are to reach this network, add it to `peers.allow`; private networks and this host are refused \
             by default. Often a client only tries its peer's private address, and the call works all the same."
        }
        Refusal::TunnelClient => "The client has to come over its own IPv4 or IPv6 address.",
        Refusal::Draining => {
            "The server is about to stop: `turnpike drain --cancel` takes it back."
        }
        Refusal::MobilityForbidden => {
            "Set `mobility = true` if clients are to keep allocations when they move."
        }
        Refusal::BadTicket => {
            "The allocation ended, the ticket was used before, or the server was restarted: the client begins anew."
        }
        Refusal::MoveUnavailable => "A worker is overloaded; clients try again.",
        Refusal::Redirected => "",
    }
}
