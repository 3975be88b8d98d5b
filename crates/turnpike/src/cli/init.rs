//! Syntax of `turnpike init`.

use std::path::PathBuf;

use clap::Args;

#[derive(Debug, Args)]
pub(crate) struct Init {
    /// Authentication realm, usually your domain
    #[arg(long, value_name = "REALM")]
    pub(crate) realm: Option<String>,
    /// Public name of this server, or "none"
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Behind NAT: the public address, or one per family (A,B); "auto=SERVER,SERVER" asks these
    /// STUN servers for it; "none" without NAT
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) external: Option<String>,
    /// "secret": your application shares a secret with the server, and mints credentials; "users":
    /// users with passwords
    #[arg(long, value_name = "secret|users")]
    pub(crate) auth: Option<String>,
    /// "acme": order a certificate for --name from Let's Encrypt, and agree to its terms;
    /// CHAIN,KEY: PEM files; "none"
    #[arg(long, value_name = "acme|CHAIN,KEY|none")]
    pub(crate) certificate: Option<String>,
    /// The new file; a secret is written beside it [default: --config, else
    /// /etc/turnpike/turnpike.toml]
    #[arg(long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Do not ask: --realm and --auth are needed, the others are "none"
    #[arg(long, short)]
    pub(crate) yes: bool,
}
