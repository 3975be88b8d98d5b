//! NAT behaviour discovery, as it is written.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::value::{Count, Endpoint, Host};

/// `[discovery]`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Discovery {
    /// Two addresses of this host of one family, or two of each: on all of them the server listens at
    /// both of `ports`, beside `listen`, and tells clients of the others. Without addresses, discovery is
    /// off. Clients may then ask for answers from another of the four addresses, at another port of their
    /// own (from 1024), and as long as their request (up to 1.5 KiB).
    #[schemars(
        example = serde_json::json!(["203.0.113.7", "203.0.113.8"]),
        extend("x-applied" = "restart")
    )]
    pub addresses: Vec<Host>,
    /// The two ports.
    #[schemars(extend("x-applied" = "restart"))]
    pub ports: Vec<Count<1, 65_535>>,
    /// Behind 1:1 NAT: what clients are told for each of the four addresses and ports, all four of a
    /// family.
    #[schemars(
        example = serde_json::json!([
            { "local": "10.0.0.5:3478", "public": "203.0.113.7:3478" },
            { "local": "10.0.0.5:3479", "public": "203.0.113.7:3479" },
            { "local": "10.0.0.6:3478", "public": "203.0.113.8:3478" },
            { "local": "10.0.0.6:3479", "public": "203.0.113.8:3479" }
        ]),
        extend("x-applied" = "restart")
    )]
    pub external: Vec<ExternalEndpoint>,
}

/// An entry of `discovery.external`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ExternalEndpoint {
    /// The address of this host.
    pub local: Option<Endpoint>,
    /// The address that clients are told.
    pub public: Option<Endpoint>,
}

impl Default for Discovery {
    fn default() -> Self {
        Self {
            addresses: Vec::new(),
            ports: vec![Count::new(3478), Count::new(3479)],
            external: Vec::new(),
        }
    }
}
