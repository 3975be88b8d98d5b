//! The public format: the keys of the configuration file. The comments on the keys are the
//! reference page (`docs/configuration.md`) and the JSON schema: they are written for operators.
//!
//! Each key has a default, so that an empty file is a valid one.

mod accounting;
mod acme;
mod auth;
mod authorizer;
mod clients;
mod host;
mod operation;
mod quotas;
mod realms;
mod relay;
mod signed_tokens;
mod streams;
mod tls;

pub use accounting::Accounting;
pub use acme::{Acme, AcmeChallenge};
pub use auth::{Auth, SecretEntry, TokenCipher, TokenKeyEntry};
pub use authorizer::{Authorizer, WhenSilent};
pub use clients::{Compatibility, Discovery, ExternalEndpoint, Redirect};
pub use host::{Confinement, Offload, OffloadMode, Sockets, Workers};
pub use operation::{
    Api, Control, Data, DatabaseTable, Http, Log, LogAddresses, LogFormat, LogLevel, Shutdown,
    SignalAction, Signals, Users, WhenUnwritable,
};
pub use quotas::{Lifetimes, Quotas};
pub use realms::{RealmEntry, RealmLifetimes, RealmPeers, RealmQuotas, RealmRedirect};
pub use relay::{CloudMetadata, DefaultFamily, Peers, Relay};
pub use signed_tokens::SignedTokens;
pub use streams::{Tcp, Udp};
pub use tls::{CertificateEntry, CipherSuite, Dtls, KeyExchange, Tls, TlsVersion, WhenUnusable};

use crate::section::section;
use crate::value::{Endpoint, Text};

section! {
    /// The configuration of Turnpike.
    File {
        /// Authentication realm, usually the domain of the service. It is part of every user's key:
        /// users added under another realm have to be added again.
        #[schemars(example = &"example.org")]
        live realm: Text<1, 127> = Text::fixed("turnpike");
        /// More realms, for organisations that share this server: each has users, secrets, rules
        /// and limits of its own, and nothing of one is of use in another. A client gets the realm
        /// that it names; before it has named one, that of its web page, of the server name that it
        /// asked for over TLS, or of the listener that it came to; otherwise `realm`.
        #[schemars(
            example = serde_json::json!([{ "name": "b.example.org", "origins": ["https://meet.b.example.org"] }])
        )]
        live realms: Vec<RealmEntry> = Vec::new();
        /// Addresses and ports to listen at, for UDP (see `[udp]`) and TCP (see `[tcp]`). A
        /// wildcard (`0.0.0.0`, `[::]`) is every address of its family, and `[::]` is IPv6 alone.
        /// An empty list leaves `tls.listen`. At an address that the host lacks, clients are served
        /// as soon as the host has it.
        #[schemars(example = serde_json::json!(["203.0.113.7:3478"]))]
        restart listen: Vec<Endpoint> = Endpoint::everywhere(3478);
        /// SOFTWARE attribute of responses to authenticated clients; others never get one. None by
        /// default.
        #[schemars(example = &"Turnpike")]
        live software: Option<Text<1, 127>> = None;
        /// Lets clients keep their allocation when their address changes (RFC 8016), as that of a
        /// phone does when it leaves a wireless network. Such an allocation outlives its
        /// connection, until its lifetime ends. Where mobility is off, requests for it are refused
        /// with 405.
        live mobility: bool = false;
        /// Answers Binding requests, by which clients find their public address and keep NATs open.
        /// Off leaves TURN alone: Binding requests are dropped, those of clients with an allocation
        /// as well.
        restart binding: bool = true;
    }
    tables {
        relay: Relay,
        auth: Auth,
        authorizer: Authorizer,
        signed_tokens: SignedTokens,
        peers: Peers,
        quotas: Quotas,
        lifetimes: Lifetimes,
        compatibility: Compatibility,
        discovery: Discovery,
        redirect: Redirect,
        workers: Workers,
        udp: Udp,
        tcp: Tcp,
        tls: Tls,
        dtls: Dtls,
        acme: Acme,
        sockets: Sockets,
        offload: Offload,
        confinement: Confinement,
        log: Log,
        control: Control,
        http: Http,
        api: Api,
        data: Data,
        accounting: Accounting,
        users: Users,
        shutdown: Shutdown,
        signals: Signals,
    }
}
