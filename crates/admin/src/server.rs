//! Serves routes on the control socket and for monitoring, within bounds.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::pending;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::response::IntoResponse;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tower_service::Service;

use crate::access::UnixSocket;
use crate::limits::{
    API_CONNECTION, API_CONNECTIONS_MAX, CONNECTIONS_MAX, CONNECTIONS_PER_ADDRESS_MAX,
    HANDSHAKE_DEADLINE, HEAD_BYTES_MAX, HEAD_DEADLINE, MONITORING_CONNECTION, ROUTE_DEADLINE,
    UNKNOWN_CONNECTION,
};
use crate::peer::{Peer, network};
use crate::problem::Problem;

/// Pause before accepting again when the process is out of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A bound listener for HTTP.
#[derive(Debug)]
pub enum HttpListener {
    /// The control socket.
    Control(UnixSocket),
    /// A Unix socket for monitoring.
    Unix(UnixSocket),
    /// A TCP port for monitoring.
    Tcp(TcpListener, Option<Arc<ServerConfig>>),
    /// A TCP port for operators; without encryption on loopback alone.
    Api(TcpListener, Option<Arc<ServerConfig>>),
}

/// Connections that are served, and the number of each source over the network.
#[derive(Debug)]
struct Places {
    free: Arc<Semaphore>,
    by_source: Mutex<BTreeMap<IpAddr, usize>>,
    /// Closed when they are served no more: another process has the listener.
    served: watch::Receiver<()>,
}

/// The place of a connection; free again when it is dropped.
struct Place {
    _permit: OwnedSemaphorePermit,
    of: Option<(Arc<Places>, IpAddr)>,
    served: watch::Receiver<()>,
}

impl Places {
    fn new(most: usize, served: watch::Receiver<()>) -> Arc<Self> {
        let free = Arc::new(Semaphore::new(most));
        Arc::new(Self { free, by_source: Mutex::default(), served })
    }

    /// The place of a connection from any source.
    fn of_any(&self, permit: OwnedSemaphorePermit) -> Place {
        Place { _permit: permit, of: None, served: self.served.clone() }
    }

    fn sources(&self) -> MutexGuard<'_, BTreeMap<IpAddr, usize>> {
        self.by_source.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The place of one more connection of a source; `None` if it has as many as it may.
    fn of(self: &Arc<Self>, permit: OwnedSemaphorePermit, source: IpAddr) -> Option<Place> {
        let source = network(source);
        let mut sources = self.sources();
        let count = sources.entry(source).or_default();
        // Loopback is an SSH tunnel, or a local user who could as well take all ports.
        if *count >= CONNECTIONS_PER_ADDRESS_MAX && !source.is_loopback() {
            return None;
        }
        *count += 1;
        drop(sources);
        let mut place = self.of_any(permit);
        place.of = Some((Arc::clone(self), source));
        Some(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some((places, source)) = &self.of {
            let mut sources = places.sources();
            if let Some(count) = sources.get_mut(source) {
                *count -= 1;
                if *count == 0 {
                    sources.remove(source);
                }
            }
        }
    }
}

/// Serves `routes` on a listener until the future is dropped. Its connections end then, behind the
/// request that is being answered: the next one is for the process that has the listener.
pub async fn serve(listener: HttpListener, routes: Router) -> Infallible {
    let most = match listener {
        HttpListener::Api(..) => API_CONNECTIONS_MAX,
        HttpListener::Control(_) | HttpListener::Unix(_) | HttpListener::Tcp(..) => CONNECTIONS_MAX,
    };
    let (_serving, served) = watch::channel(());
    let places = Places::new(most, served);
    loop {
        // The semaphore is never closed, so there is always a permit to wait for.
        let Ok(permit) = Arc::clone(&places.free).acquire_owned().await else { continue };
        if let Err(error) = accept(&listener, &routes, &places, permit).await {
            tracing::warn!(%error, "cannot accept a connection for HTTP");
            sleep(ACCEPT_PAUSE).await;
        }
    }
}

/// Accepts a connection and serves it in a task of its own.
async fn accept(
    listener: &HttpListener,
    routes: &Router,
    places: &Arc<Places>,
    permit: OwnedSemaphorePermit,
) -> io::Result<()> {
    let routes = routes.clone();
    match listener {
        HttpListener::Control(socket) => {
            let (stream, _) = socket.listener.accept().await?;
            let peer = Peer::Unix(stream.peer_cred().ok().map(|user| user.uid()));
            let place = places.of_any(permit);
            tokio::spawn(serve_connection(stream, routes, peer, Stay::Unbounded, place));
        }
        HttpListener::Unix(socket) => {
            let (stream, _) = socket.listener.accept().await?;
            let place = places.of_any(permit);
            tokio::spawn(serve_connection(stream, routes, Peer::Unix(None), Stay::Short, place));
        }
        HttpListener::Tcp(listener, tls) => {
            let (stream, address) = listener.accept().await?;
            let place = places.of_any(permit);
            serve_over(stream, tls.clone(), routes, (address, Stay::Short), place);
        }
        HttpListener::Api(listener, tls) => {
            let (stream, address) = listener.accept().await?;
            // Answers and events are small: none waits for more.
            let _ = stream.set_nodelay(true);
            let Some(place) = places.of(permit, address.ip()) else { return Ok(()) };
            serve_over(stream, tls.clone(), routes, (address, Stay::Known), place);
        }
    }
    Ok(())
}

/// Serves a connection in a task of its own, over TLS where it is configured.
fn serve_over(
    stream: TcpStream,
    tls: Option<Arc<ServerConfig>>,
    routes: Router,
    (address, stay): (SocketAddr, Stay),
    place: Place,
) {
    let peer = Peer::tcp(address, tls.is_some());
    let Some(tls) = tls else {
        tokio::spawn(serve_connection(stream, routes, peer, stay, place));
        return;
    };
    tokio::spawn(async move {
        let handshake = TlsAcceptor::from(tls).accept(stream);
        match timeout(HANDSHAKE_DEADLINE, handshake).await {
            Ok(Ok(stream)) => serve_connection(stream, routes, peer, stay, place).await,
            Ok(Err(error)) => tracing::debug!(%peer, %error, "http: no TLS handshake"),
            Err(_) => tracing::debug!(%peer, "http: no TLS handshake in time"),
        }
    });
}

impl HttpListener {
    /// The same, over TLS if it is a TCP port for monitoring.
    #[must_use]
    pub fn over_tls(self, config: &Arc<ServerConfig>) -> Self {
        match self {
            Self::Tcp(listener, _) => Self::Tcp(listener, Some(Arc::clone(config))),
            Self::Control(_) | Self::Unix(_) | Self::Api(..) => self,
        }
    }
}

/// Time that a connection may stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stay {
    Unbounded,
    Short,
    /// Short, and longer once it has shown a token.
    Known,
}

impl Stay {
    async fn over(self, peer: &Peer) {
        match self {
            Self::Unbounded => pending().await,
            Self::Short => sleep(MONITORING_CONNECTION).await,
            Self::Known => {
                sleep(UNKNOWN_CONNECTION).await;
                if peer.is_known() {
                    sleep(API_CONNECTION).await;
                }
            }
        }
    }
}

/// Serves a connection. When it may stay no longer it takes no more requests, and ends even if
/// nobody reads the answer.
async fn serve_connection(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    routes: Router,
    peer: Peer,
    stay: Stay,
    mut place: Place,
) {
    let of = peer.clone();
    let service = service_fn(move |request| answer(routes.clone(), of.clone(), request));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_DEADLINE)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    let over = async {
        tokio::select! {
            () = stay.over(&peer) => {}
            _ = place.served.changed() => {}
        }
    };
    let outcome = tokio::select! {
        outcome = connection.as_mut() => outcome,
        () = over => {
            connection.as_mut().graceful_shutdown();
            timeout(ROUTE_DEADLINE, connection).await.unwrap_or(Ok(()))
        }
    };
    if let Err(error) = outcome {
        tracing::debug!(%error, "a connection for HTTP ended badly");
    }
}

async fn answer(
    mut routes: Router,
    peer: Peer,
    request: hyper::Request<Incoming>,
) -> Result<axum::response::Response, Infallible> {
    let mut request: Request = request.map(axum::body::Body::new);
    request.extensions_mut().insert(peer);
    // A router is always ready.
    match timeout(ROUTE_DEADLINE, routes.call(request)).await {
        Ok(answer) => answer,
        Err(_) => Ok(Problem::timed_out().into_response()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_does_not_take_all_places() {
        let places = Places::new(CONNECTIONS_MAX, watch::channel(()).1);
        let place = |source: &str| {
            let permit = Arc::clone(&places.free).try_acquire_owned().ok()?;
            places.of(permit, source.parse().ok()?)
        };
        let mut held: Vec<_> = (0..CONNECTIONS_PER_ADDRESS_MAX)
            .map(|n| place(&format!("2001:db8::{n:x}")).unwrap())
            .collect();
        assert!(place("2001:db8::ffff").is_none(), "of the same /64");
        assert!(place("192.0.2.1").is_some());
        held.pop();
        assert!(place("2001:db8::ffff").is_some());
        drop(held);
        assert!(places.sources().is_empty());
        assert_eq!(places.free.available_permits(), CONNECTIONS_MAX);
    }
}
