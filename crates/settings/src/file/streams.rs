//! Connections and encryption: TCP, TLS, DTLS.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::section::section;
use crate::value::{Count, Endpoint, Prefix, Text, WebPrefix};

section! {
    /// Clients over TCP, as in networks that block UDP.
    Tcp {
        /// Accepts clients over TCP, at the addresses and ports of `listen`. Off leaves TLS at `tls.listen`,
        /// where connections without TLS are refused then.
        restart enabled: bool = true;
        /// Connections at a time; 0 is no limit. More are closed at once. Each is an open file.
        restart connections: Count<0, 1_000_000> = Count::new(20_000);
        /// Connections of one address, or one /64 of IPv6, at a time; 0 is no limit. A whole company may
        /// share one address.
        restart connections_per_address: Count<0, 1_000_000> = Count::new(1000);
        /// Relays TCP connections as well as datagrams for clients over TCP and TLS (RFC 6062): to peers
        /// that `peers` allows, and from peers that the client has permitted, by ports of `relay.ports`.
        /// Calls do not need it. Each connection is two open files. Connections that are open when it is
        /// switched off stay open.
        live relaying: bool = false;
        /// Load balancers that send the client's address by the PROXY protocol, version 1 or 2: every
        /// connection from these networks has to begin with it, before TLS as well, and no other may.
        #[schemars(example = serde_json::json!(["10.0.0.0/24"]))]
        restart proxy_protocol: Vec<Prefix> = Vec::new();
        /// URL to redirect a certificate authority to when it verifies this host (ACME, HTTP-01): the token
        /// is appended. Without it every web client gets status 400.
        #[schemars(example = "http://acme.example.org/.well-known/acme-challenge/")]
        restart acme_redirect: Option<WebPrefix> = None;
    }
}

section! {
    /// Clients over UDP, as most are.
    Udp {
        /// Accepts clients over UDP, at the addresses and ports of `listen`. Off leaves DTLS at `tls.listen`,
        /// where datagrams without DTLS are dropped then.
        restart enabled: bool = true;
    }
}

section! {
    /// TLS, for clients in networks that block everything else; on once there is a certificate.
    Tls {
        /// Accepts clients over TLS, once there is a certificate.
        restart enabled: bool = true;
        /// Lowest version that clients may speak, `"1.2"` or `"1.3"`. With `"1.3"` turn `dtls.enabled` off as well:
        /// DTLS is 1.2.
        restart minimum_version: TlsVersion = TlsVersion::V12;
        /// More addresses and ports, for TLS over TCP and (see `[dtls]`) DTLS over UDP: both are served at
        /// `listen` as well, where `tcp.enabled` and `udp.enabled` are on. Not used without a certificate. Port 443 passes most firewalls.
        #[schemars(example = serde_json::json!(["203.0.113.7:443"]))]
        restart listen: Vec<Endpoint> = Endpoint::everywhere(5349); // RFC 8489 §8.1
        /// Certificates, each with its key. A client gets the one for the name that it requests, of a kind
        /// that it can verify; the first is for all others. The files are checked every few seconds and
        /// reloaded automatically, for new connections; existing ones stay open.
        #[schemars(
            example = serde_json::json!([{ "chain": "/etc/turnpike/fullchain.pem", "key": "/etc/turnpike/privkey.pem" }])
        )]
        live certificates: Vec<CertificateEntry> = Vec::new();
        /// PEM file with the certificates of authorities: every client over TLS has to present a
        /// certificate that one of them signed, in addition to its password. Without it none is requested.
        #[schemars(example = "/etc/turnpike/clients-ca.pem")]
        restart client_authorities: Option<Text<1, 4096>> = None;
    }
}

section! {
    /// DTLS, which is TLS over UDP; on once there is a certificate, at all addresses of `listen` and of
    /// `tls.listen`.
    Dtls {
        /// Accepts clients over DTLS 1.2. Off where `tls.client_authorities` requires client certificates,
        /// which only TLS requests.
        restart enabled: bool = true;
        /// DTLS sessions at a time; 0 is no limit. More are not answered. Each takes about 45 KB.
        restart sessions: Count<0, 1_000_000> = Count::new(10_000); // 450 MB
        /// DTLS sessions of one address, or one /64 of IPv6, at a time; 0 is no limit. A whole company may
        /// share one address.
        restart sessions_per_address: Count<0, 1_000_000> = Count::new(1000);
    }
}

/// A version of TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub enum TlsVersion {
    /// RFC 5246.
    #[serde(rename = "1.2")]
    V12,
    /// RFC 8446.
    #[serde(rename = "1.3")]
    V13,
}

/// An entry of `tls.certificates`. Paths are relative to the configuration file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CertificateEntry {
    /// PEM file with the certificate chain, the server's own certificate first.
    pub chain: Option<PathBuf>,
    /// PEM file with the private key, not encrypted.
    pub key: Option<PathBuf>,
}
