//! The authorizer: a web service of the operator's that decides about allocations.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::section::section;
use crate::value::{Duration, ServiceUrl};

section! {
    /// A web service that is asked about each allocation of an authenticated client, and may limit
    /// it (docs/operate/credentials.md).
    Authorizer {
        /// Address that questions are posted to. None by default: the rules alone decide.
        #[schemars(example = &"https://app.example.org/turn/authorize")]
        restart url: Option<ServiceUrl> = None;
        /// File with the value of the header `Authorization`, such as `Bearer` and a token; 16
        /// bytes or more. Relative to the configuration file.
        #[schemars(example = &"/etc/turnpike/authorizer-token")]
        restart authorization_file: Option<PathBuf> = None;
        /// Certificates of the authorities that may have signed the service's, in a PEM file; by
        /// default the ones that browsers trust.
        #[schemars(example = &"/etc/turnpike/our-ca.pem")]
        restart authorities: Option<PathBuf> = None;
        /// Longest time for an answer. Clients wait, and repeat their request meanwhile.
        restart answer_within: Duration<1, 10> = Duration::seconds(3);
        /// Time for which an answer counts for further allocations of the same user at the same
        /// address; `"0 s"` asks each time. An allocation that is there is not asked about again:
        /// see `turnpike user revoke`.
        restart keep_for: Duration<0, 3600> = Duration::seconds(10);
        /// The fate of clients while the service answers no question, or fails (500 to 599):
        /// `"refuse"` (500, and clients try again), or `"serve"` as if no service were set.
        live when_silent: WhenSilent = WhenSilent::Refuse;
    }
}

/// Values of `authorizer.when_silent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum WhenSilent {
    /// Clients get no allocation.
    Refuse,
    /// The rules alone decide.
    Serve,
}
