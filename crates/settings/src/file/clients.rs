//! Features for some clients: compatibility, NAT behaviour discovery, redirection.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::section::section;
use crate::value::{Count, Endpoint, Host, Text};

section! {
    /// Features for legacy clients.
    Compatibility {
        /// Serves clients older than RFC 8656: channel numbers up to 0x7FFF, as in RFC 5766 and
        /// coturn, and dual allocations by their draft's attribute number. coturn's own test client
        /// up to 4.6 needs it; browsers and current libraries do not. Without it such a channel is
        /// refused with 400, and `turnpike status` counts it as `channel_number`.
        live rfc5766_clients: bool = false;
        /// Accepts access tokens (`auth.token_keys`) from clients made for coturn: they use the
        /// first 16 bytes of a token's session key for MESSAGE-INTEGRITY, where RFC 7635 has them
        /// use all.
        live coturn_tokens: bool = false;
        /// Answers STUN Binding requests of RFC 3489 ("classic STUN", without the magic cookie)
        /// over UDP. No software written since 2008 sends them, and other packets may look like
        /// them.
        live rfc3489_clients: bool = false;
        /// Accepts shared secrets of 1 to 15 bytes, as coturn does. One credential is enough to
        /// find such a secret by trying, and then everyone can make credentials: for the time until
        /// the applications have another secret.
        restart short_secrets: bool = false;
    }
}

section! {
    /// NAT behaviour discovery (RFC 5780): lets clients find out how the NAT in front of them
    /// behaves. The server needs two addresses for it.
    Discovery {
        /// Two addresses of this host of one family, or two of each: the server listens on all of
        /// them at both of `ports`, beside `listen`, and tells clients the others. Without
        /// addresses, discovery is off. Clients may then request responses from another of the four
        /// addresses, to another port of their own (from 1024), and as long as their request (up to
        /// 1.5 KiB).
        #[schemars(example = serde_json::json!(["203.0.113.7", "203.0.113.8"]))]
        restart addresses: Vec<Host> = Vec::new();
        /// The two ports.
        restart ports: Vec<Count<1, 65_535>> = vec![Count::new(3478), Count::new(3479)];
        /// Behind 1:1 NAT: the public address and port for each of the four local ones, all four of
        /// a family.
        #[schemars(
            example = serde_json::json!([
                { "local": "10.0.0.5:3478", "public": "203.0.113.7:3478" },
                { "local": "10.0.0.5:3479", "public": "203.0.113.7:3479" },
                { "local": "10.0.0.6:3478", "public": "203.0.113.8:3478" },
                { "local": "10.0.0.6:3479", "public": "203.0.113.8:3479" }
            ])
        )]
        restart external: Vec<ExternalEndpoint> = Vec::new();
    }
}

/// An entry of `discovery.external`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ExternalEndpoint {
    /// Address and port of this host.
    pub local: Option<Endpoint>,
    /// Public address and port in front of it.
    pub public: Option<Endpoint>,
}

section! {
    /// Redirection of every client to other servers (300, Try Alternate), instead of serving it.
    /// Off without an address.
    Redirect {
        /// Server for clients over IPv4.
        #[schemars(example = &"198.51.100.7:3478")]
        live ipv4: Option<Endpoint> = None;
        /// Server for clients over IPv6.
        #[schemars(example = &"[2001:db8::7]:3478")]
        live ipv6: Option<Endpoint> = None;
        /// More servers for clients over any transport: each client goes to one of its family, the
        /// same as long as that is there.
        #[schemars(example = serde_json::json!(["198.51.100.7:3478", "198.51.100.8:3478"]))]
        live servers: Vec<Endpoint> = Vec::new();
        /// Servers for clients over UDP, instead of the others.
        #[schemars(example = serde_json::json!(["198.51.100.7:3478"]))]
        live udp: Vec<Endpoint> = Vec::new();
        /// Servers for clients over TCP, instead of the others.
        #[schemars(example = serde_json::json!(["198.51.100.7:3478"]))]
        live tcp: Vec<Endpoint> = Vec::new();
        /// Servers for clients over TLS and DTLS, instead of the others.
        #[schemars(example = serde_json::json!(["198.51.100.7:5349"]))]
        live tls: Vec<Endpoint> = Vec::new();
        /// Asks each of these servers every 5 seconds whether it answers, and sends no client to
        /// one that does not. An error is an answer. When none of a client's family answers, the
        /// client is served here.
        live health_checks: bool = true;
        /// Name in the certificates of these servers (ALTERNATE-DOMAIN, RFC 8489 §14.16).
        #[schemars(example = &"turn2.example.org")]
        live domain: Option<Text<1, 255>> = None;
    }
}
