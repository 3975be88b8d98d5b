//! Listeners for HTTP, bound before the process loses the permission for ports below 1024.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, OwnedFd};

use admin::{AccessError, HttpListener, Other, UnixSocket};
use anyhow::anyhow;
use rustix::net::sockopt;
use settings::Settings;
use settings::value::HttpListen;
use tokio::net::{TcpListener, TcpSocket};

use crate::failure::{Failure, Result};
use crate::handover::Predecessor;

/// HTTP listeners over TCP that a successor inherits.
pub(crate) type Services = Vec<(SocketAddr, OwnedFd)>;

/// Binds the listeners for monitoring. `other` determines the treatment of a Unix socket that
/// another server has bound.
pub(crate) fn monitoring(
    settings: &Settings,
    mut predecessor: Option<&mut Predecessor>,
    other: Other,
    services: &mut Services,
) -> Result<Vec<HttpListener>> {
    let mut listeners = Vec::new();
    for listen in &settings.http.listen {
        listeners.push(match listen {
            HttpListen::Unix(path) => {
                HttpListener::Unix(UnixSocket::monitoring(path, other).map_err(socket_failed)?)
            }
            HttpListen::Tcp(address) => {
                let inherited = predecessor.as_mut().and_then(|one| one.take_service(*address));
                HttpListener::Tcp(bind(*address, "http.listen", inherited, services)?, None)
            }
        });
    }
    Ok(listeners)
}

/// Maximum number of connections that wait to be accepted. The kernel limits the number by
/// `net.core.somaxconn`.
const CONNECTIONS_WAITING: u32 = 1024;

/// Binds the listeners for operators, each with true if the address is a loopback address.
pub(crate) fn api(
    settings: &Settings,
    mut predecessor: Option<&mut Predecessor>,
    services: &mut Services,
) -> Result<Vec<(TcpListener, bool)>> {
    let mut listeners = Vec::new();
    for address in settings.api.listen.iter().map(|endpoint| endpoint.0) {
        let inherited = predecessor.as_mut().and_then(|one| one.take_service(address));
        let listener = bind(address, "api.listen", inherited, services)?;
        listeners.push((listener, address.ip().is_loopback()));
    }
    Ok(listeners)
}

fn bind(
    address: SocketAddr,
    key: &str,
    inherited: Option<OwnedFd>,
    services: &mut Services,
) -> Result<TcpListener> {
    let listener = match inherited {
        Some(fd) => TcpListener::from_std(fd.into()),
        None => listen_at(address),
    };
    let listener = listener.and_then(|listener| {
        services.push((listener.local_addr()?, listener.as_fd().try_clone_to_owned()?));
        Ok(listener)
    });
    listener.map_err(|error| {
        Failure::failed(anyhow!("cannot listen for HTTP on {address}: {error}")).hint(format!(
            "name an address of this host and a free port in {key}; see who has it with `ss -ltnp`"
        ))
    })
}

/// Binds a listener. The host need not have the address yet.
fn listen_at(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => {
            let socket = TcpSocket::new_v4()?;
            sockopt::set_ip_freebind(&socket, true)?;
            socket
        }
        SocketAddr::V6(_) => {
            let socket = TcpSocket::new_v6()?;
            sockopt::set_ipv6_freebind(&socket, true)?;
            socket
        }
    };
    // Connections of a predecessor may still be closing.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(CONNECTIONS_WAITING)
}

fn socket_failed(error: AccessError) -> Failure {
    Failure::failed(error).hint("name a path in a directory of the server's own in http.listen")
}
