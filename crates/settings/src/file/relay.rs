//! Relayed addresses, and the peers they may be used with.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::section::section;
use crate::value::{External, PortRange, Prefix, RelayEntry, StunServer};

section! {
    /// The addresses and ports that are allocated to clients.
    Relay {
        /// Relays. Off is a STUN server: clients learn their address, and requests of TURN are not
        /// answered. No user or secret is needed then.
        restart enabled: bool = true;
        /// Addresses of this host to allocate relayed addresses from: `"auto"` (of each family, the
        /// address of the default route), an address, or `{ local, public }` where clients reach
        /// the host at another address than its own. An address that the host does not have is
        /// waited for, and the rest serves: `turnpike status` names it. `"auto"` follows the host:
        /// it never takes loopback, and prefers public addresses that last to IPv6 addresses that
        /// are temporary or deprecated. Calls on an address that the host loses stay for a minute,
        /// in which it may come back.
        #[schemars(
            example = serde_json::json!(["203.0.113.7", "2001:db8::7"]),
            example = serde_json::json!([{ "local": "10.0.0.5", "public": "203.0.113.7" }])
        )]
        live addresses: Vec<RelayEntry> = vec![RelayEntry::Auto];
        /// Networks that are routed to this host for relaying alone, such as an IPv6 `/64`: each
        /// allocation gets an address of its own there, all at one port of a worker, and needs no
        /// descriptor. They come before `addresses` of their family, which serve what no address is
        /// left for. The host has to deliver them to itself:
        /// `ip -6 route add local 2001:db8:1:2::/64 dev lo`. Lengths from `/32` to `/112` of IPv6,
        /// `/8` to `/30` of IPv4.
        #[schemars(example = serde_json::json!(["2001:db8:1:2::/64"]))]
        restart prefixes: Vec<Prefix> = Vec::new();
        /// Public address, or one per family, of a host behind 1:1 NAT (as in most clouds): it
        /// replaces the host's own address in responses. Leave it out where the host has its public
        /// address. `"auto"` asks the servers of `external_stun`, or the cloud of
        /// `external_metadata`, at the start, each minute, and when an address of the host changes;
        /// new allocations get the new address. Until there is an answer, nothing is relayed.
        #[schemars(example = &"203.0.113.7")]
        live external: Option<External> = None;
        /// STUN servers of others, which are asked over UDP for the public address where `external`
        /// is `"auto"`. If they disagree, the first of the list counts.
        #[schemars(example = serde_json::json!(["stun.example.org", "203.0.113.9:3478"]))]
        live external_stun: Vec<StunServer> = Vec::new();
        /// Cloud whose metadata service is asked for the public address of IPv4 where `external` is
        /// `"auto"`: `aws`, `gcp`, `azure` or `hetzner`, over HTTP at 169.254.169.254. Its answer
        /// counts before those of `external_stun`, which may be left out then. Name the cloud that
        /// the host is in: elsewhere anything may answer at that address.
        #[schemars(example = &"aws")]
        live external_metadata: CloudMetadata = CloudMetadata::Off;
        /// Address family of a relayed address whose client names none: `"ipv4"`, as RFC 8656 has
        /// it, `"ipv6"`, or `"client"` for that of the client's own address.
        live default_family: DefaultFamily = DefaultFamily::Ipv4;
        /// UDP ports (inclusive) to allocate relayed addresses from. A firewall has to let them in.
        /// Of `prefixes` the workers have one even port each, the first ones of the range, and for
        /// pairs the odd ones behind them.
        #[schemars(example = &"50000-59999")]
        // RFC 8656 §7.2: the dynamic ports
        live ports: PortRange = PortRange { min: 49_152, max: 65_535 };
    }
}

/// Address family of a relayed address whose client names none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum DefaultFamily {
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
    /// That of the client's own address.
    Client,
}

/// Cloud with a metadata service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum CloudMetadata {
    /// None is asked.
    Off,
    /// Amazon EC2, by IMDSv2.
    Aws,
    /// Google Compute Engine.
    Gcp,
    /// Azure, also behind its load balancer.
    Azure,
    /// Hetzner Cloud, where hosts have their public addresses.
    Hetzner,
}

section! {
    /// Peer addresses that clients may reach. Without rules: every public address, and nothing
    /// private, local, reserved, or of this host itself.
    Peers {
        /// Networks that clients may reach although they could not by default, such as the network
        /// of a media server. The longest matching entry of both lists decides. An address of this
        /// host itself has to be written alone, not as part of a network.
        #[schemars(example = serde_json::json!(["10.20.0.0/16", "10.30.0.5"]))]
        live allow: Vec<Prefix> = Vec::new();
        /// Networks that clients may not reach although they could by default.
        #[schemars(example = serde_json::json!(["198.51.100.0/24"]))]
        live deny: Vec<Prefix> = Vec::new();
    }
}
