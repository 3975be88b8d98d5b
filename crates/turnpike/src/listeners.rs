//! Listeners for HTTP: bound while the process may still use ports below 1024.

use std::net::SocketAddr;

use admin::{AccessError, HttpListener, UnixSocket};
use anyhow::anyhow;
use settings::Settings;
use settings::value::HttpListen;
use tokio::net::TcpListener;

use crate::failure::{Failure, Result};

/// The listeners for monitoring.
pub(crate) async fn monitoring(settings: &Settings) -> Result<Vec<HttpListener>> {
    let mut listeners = Vec::new();
    for listen in &settings.http.listen {
        listeners.push(match listen {
            HttpListen::Unix(path) => {
                HttpListener::Unix(UnixSocket::monitoring(path).map_err(socket_failed)?)
            }
            HttpListen::Tcp(address) => {
                HttpListener::Tcp(bind(*address, "http.listen").await?, None)
            }
        });
    }
    Ok(listeners)
}

/// The listeners for operators; true for those on loopback.
pub(crate) async fn api(settings: &Settings) -> Result<Vec<(TcpListener, bool)>> {
    let mut listeners = Vec::new();
    for address in settings.api.listen.iter().map(|endpoint| endpoint.0) {
        listeners.push((bind(address, "api.listen").await?, address.ip().is_loopback()));
    }
    Ok(listeners)
}

async fn bind(address: SocketAddr, key: &str) -> Result<TcpListener> {
    TcpListener::bind(address).await.map_err(|error| {
        Failure::failed(anyhow!("cannot listen for HTTP on {address}: {error}")).hint(format!(
            "name an address of this host and a free port in {key}; see who has it with `ss -ltnp`"
        ))
    })
}

fn socket_failed(error: AccessError) -> Failure {
    Failure::failed(error).hint("name a path in a directory of the server's own in http.listen")
}
