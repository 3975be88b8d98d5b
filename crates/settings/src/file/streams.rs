//! The tables about connections: `[tcp]`, `[tls]` and `[dtls]`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::value::{Count, Endpoint, Prefix, Text, WebPrefix};

/// `[tcp]`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Tcp {
    /// Whether clients may come over TCP, at the addresses and ports of `listen`.
    #[schemars(extend("x-applied" = "restart"))]
    pub enabled: bool,
    /// Connections that there may be at once; 0 is any number. More are closed as they come. Each is an
    /// open file.
    #[schemars(extend("x-applied" = "restart"))]
    pub connections: Count<0, 1_000_000>,
    /// Connections that one address, or one /64 of IPv6, may have at once; 0 is any number. A whole
    /// company may come from one address.
    #[schemars(extend("x-applied" = "restart"))]
    pub connections_per_address: Count<0, 1_000_000>,
    /// Whether clients over TCP and TLS may have TCP connections relayed as well as datagrams (RFC 6062):
    /// to peers that `peers` allows, and from such as a client has permitted, by ports of `relay.ports`.
    /// Calls do not need it. Each connection is two open files. What is relayed when it is switched off goes
    /// on to its end.
    #[schemars(extend("x-applied" = "live"))]
    pub relaying: bool,
    /// Load balancers that say who is behind them by the PROXY protocol, version 1 or 2: every connection
    /// from there has to begin with it, in front of TLS as well, and no other may.
    #[schemars(example = serde_json::json!(["10.0.0.0/24"]), extend("x-applied" = "restart"))]
    pub proxy_protocol: Vec<Prefix>,
    /// Where a certificate authority is sent that asks here for what it gave out (ACME, HTTP-01): a token
    /// is appended. Without it every web client is told with status 400 that this is no web server.
    #[schemars(
        example = "http://acme.example.org/.well-known/acme-challenge/",
        extend("x-applied" = "restart")
    )]
    pub acme_redirect: Option<WebPrefix>,
}

/// `[tls]`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Tls {
    /// More addresses and ports, for TLS over TCP and, see `[dtls]`, DTLS over UDP: it is spoken at those of `listen` as well. Not used while
    /// there is no certificate. Port 443 gets through most firewalls.
    #[schemars(example = serde_json::json!(["203.0.113.7:443"]), extend("x-applied" = "restart"))]
    pub listen: Vec<Endpoint>,
    /// The certificates, each with its key. A client gets the one for the name that it asks for, and of a
    /// kind that it can verify; the first is for all others. The files are looked at every few seconds: new
    /// ones are for new connections, and calls go on.
    #[schemars(
        example = serde_json::json!([{ "chain": "/etc/turnpike/fullchain.pem", "key": "/etc/turnpike/privkey.pem" }]),
        extend("x-applied" = "live")
    )]
    pub certificates: Vec<CertificateEntry>,
    /// A file with the certificates of authorities, as PEM: every client that speaks TLS has to show a
    /// certificate that one of them signed, besides its password. Without it none is asked for.
    #[schemars(example = "/etc/turnpike/clients-ca.pem", extend("x-applied" = "restart"))]
    pub client_authorities: Option<Text<1, 4096>>,
}

/// `[dtls]`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Dtls {
    /// Whether clients may come over DTLS 1.2. It is not spoken where `tls.client_authorities` asks clients for
    /// certificates, which is done over TLS alone.
    #[schemars(extend("x-applied" = "restart"))]
    pub enabled: bool,
    /// DTLS clients that there may be at once; 0 is any number. More are not answered. Each takes about 45 KB.
    #[schemars(extend("x-applied" = "restart"))]
    pub associations: Count<0, 1_000_000>,
    /// DTLS clients that one address, or one /64 of IPv6, may have at once; 0 is any number. A whole company may
    /// come from one address.
    #[schemars(extend("x-applied" = "restart"))]
    pub associations_per_address: Count<0, 1_000_000>,
}

/// An entry of `tls.certificates`. Paths are relative to the configuration file.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CertificateEntry {
    /// The file with the certificate and those that it is signed by, as PEM, the server's own first.
    pub chain: Option<String>,
    /// The file with its key, as PEM, not encrypted.
    pub key: Option<String>,
}

impl Default for Tcp {
    fn default() -> Self {
        Self {
            enabled: true,
            connections: Count::new(20_000),
            connections_per_address: Count::new(1000),
            relaying: false,
            proxy_protocol: Vec::new(),
            acme_redirect: None,
        }
    }
}

impl Default for Tls {
    fn default() -> Self {
        Self {
            // The port for TURN over TLS (RFC 8489 §8.1).
            listen: vec![
                Endpoint(([0, 0, 0, 0], 5349).into()),
                Endpoint((std::net::Ipv6Addr::UNSPECIFIED, 5349).into()),
            ],
            certificates: Vec::new(),
            client_authorities: None,
        }
    }
}

impl Default for Dtls {
    fn default() -> Self {
        Self {
            enabled: true,
            // 450 MB.
            associations: Count::new(10_000),
            associations_per_address: Count::new(1000),
        }
    }
}
