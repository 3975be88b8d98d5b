//! Server of the demo: real workers and sockets on the loopback interface, with one user and
//! without files.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use settings::Environment;

use crate::boot;
use crate::failure::{Failure, Result};
use crate::server::Threads;

/// Address of the peer. The server's default rules forbid the loopback network, so this address is
/// allowed explicitly.
pub(crate) const PEER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// Validity of the user's credential in seconds, longer than any demo.
const USER_SECONDS: u64 = 2 * 86_400;

/// Server in this process.
pub(crate) struct LocalServer {
    pub(crate) address: SocketAddr,
    pub(crate) user: String,
    pub(crate) password: String,
    workers: control::Workers,
    threads: Threads,
}

/// Starts the server.
pub(crate) async fn start() -> Result<LocalServer> {
    let secret = BASE64_URL_SAFE_NO_PAD.encode(linux_net::random_bytes::<24>());
    let text = format!(
        "listen = [\"127.0.0.1:3478\"]\n\
         [relay]\naddresses = [\"127.0.0.1\"]\n\
         [auth]\nsecret = \"{secret}\"\nusers = false\n\
         [peers]\nallow = [\"{PEER}\"]\n\
         [offload]\nmode = \"off\"\n"
    );
    let mut settings = settings::parse(Path::new("demo"), &text, &Environment::empty())
        .map_err(Failure::failed)?;
    settings.listen_at_any_port();
    let prepared = boot::prepare(&settings, None, None, None)?;
    let address = prepared.info.listeners.first().copied().ok_or_else(|| {
        Failure::failed(anyhow::anyhow!("the demo's server does not listen anywhere"))
    })?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let user = format!("{}:demo", now + USER_SECONDS);
    let password = stun_wire::time_limited_password(secret.as_bytes(), &user);
    let threads = Threads::watch(prepared.starting.begin().await?.threads);
    Ok(LocalServer { address, user, password, workers: prepared.workers, threads })
}

impl LocalServer {
    /// Stops the server.
    pub(crate) async fn stop(mut self) {
        // A worker that does not stop is harmless, because the process exits soon.
        let _ = self.workers.stop();
        self.threads.all_ended().await;
    }
}
