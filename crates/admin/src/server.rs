//! Serves routes on the control socket and for monitoring, within bounds.

use std::convert::Infallible;
use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::yield_now;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tower_service::Service;

use crate::access::UnixSocket;
use crate::connection_slots::{ConnectionSlot, ConnectionSlots};
use crate::limits::{
    API_CONNECTION, API_CONNECTIONS_MAX, CONNECTIONS_MAX, HANDSHAKE_DEADLINE, HEAD_BYTES_MAX,
    HEAD_BYTES_READ_MAX, HEAD_DEADLINE, MONITORING_CONNECTION, ROUTE_DEADLINE, UNKNOWN_CONNECTION,
};
use crate::pace::{Pace, Rightful};
use crate::paced::Paced;
use crate::peer::Peer;
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

/// Routes of a listener, and the pace of their answers to strangers: `None` on the control socket.
#[derive(Clone)]
struct PacedRoutes {
    routes: Router,
    pace: Option<Arc<Pace>>,
}

/// Serves `routes` on a listener until the future is dropped. Its connections end then, behind the
/// request that is being answered: the next one is for the process that has the listener.
pub async fn serve(listener: HttpListener, routes: Router) -> Infallible {
    let most = match listener {
        HttpListener::Api(..) => API_CONNECTIONS_MAX,
        HttpListener::Control(_) | HttpListener::Unix(_) | HttpListener::Tcp(..) => CONNECTIONS_MAX,
    };
    let pace = match listener {
        // Its callers may do everything.
        HttpListener::Control(_) => None,
        HttpListener::Unix(_) | HttpListener::Tcp(..) | HttpListener::Api(..) => {
            Some(Arc::new(Pace::new()))
        }
    };
    let routes = PacedRoutes { routes, pace };
    let (_serving, served) = watch::channel(());
    let slots = ConnectionSlots::new(most, served);
    loop {
        if let Err(error) = accept(&listener, &routes, &slots).await {
            tracing::warn!(%error, "cannot accept a connection for HTTP");
            sleep(ACCEPT_PAUSE).await;
        }
    }
}

/// Accepts a connection and serves it in a separate task. Further connections of a Unix socket wait
/// in its queue while all slots are taken. A connection over TCP gets a slot immediately, or is
/// closed.
async fn accept(
    listener: &HttpListener,
    routes: &PacedRoutes,
    slots: &Arc<ConnectionSlots>,
) -> io::Result<()> {
    let routes = routes.clone();
    match listener {
        HttpListener::Control(socket) => {
            let slot = slots.of_unix_socket().await;
            let (stream, _) = socket.listener.accept().await?;
            let peer = Peer::Unix(stream.peer_cred().ok().map(|user| user.uid()));
            let ConnectionSlot { slot, served, .. } = slot;
            tokio::spawn(async move {
                serve_connection(stream, routes, peer, Stay::Unbounded, served).await;
                drop(slot);
            });
        }
        HttpListener::Unix(socket) => {
            let slot = slots.of_unix_socket().await;
            let (stream, _) = socket.listener.accept().await?;
            let ConnectionSlot { slot, served, .. } = slot;
            tokio::spawn(async move {
                serve_connection(stream, routes, Peer::Unix(None), Stay::Short, served).await;
                drop(slot);
            });
        }
        HttpListener::Tcp(listener, tls) => {
            let (stream, address) = listener.accept().await?;
            serve_over(stream, tls.clone(), routes, (address, Stay::Short), slots);
        }
        HttpListener::Api(listener, tls) => {
            let (stream, address) = listener.accept().await?;
            // Answers and events are small: none waits for more.
            let _ = stream.set_nodelay(true);
            serve_over(stream, tls.clone(), routes, (address, Stay::Known), slots);
        }
    }
    Ok(())
}

/// Serves a connection in a separate task, over TLS where it is configured.
fn serve_over(
    stream: TcpStream,
    tls: Option<Arc<ServerConfig>>,
    routes: PacedRoutes,
    (address, stay): (SocketAddr, Stay),
    slots: &Arc<ConnectionSlots>,
) {
    let peer = Peer::tcp(address, tls.is_some());
    let Some(slot) = slots.of_tcp(&peer, address.ip()) else {
        return report_closed(&peer, slots);
    };
    let slots = Arc::clone(slots);
    tokio::spawn(async move {
        let ConnectionSlot { slot, evicted, served } = slot;
        let evicted_peer = peer.clone();
        let serving = async {
            let Some(tls) = tls else {
                return serve_connection(stream, routes, peer, stay, served).await;
            };
            match timeout(HANDSHAKE_DEADLINE, TlsAcceptor::from(tls).accept(Paced::new(stream)))
                .await
            {
                Ok(Ok(stream)) => serve_connection(stream, routes, peer, stay, served).await,
                Ok(Err(error)) => tracing::debug!(%peer, %error, "http: no TLS handshake"),
                Err(_) => tracing::debug!(%peer, "http: no TLS handshake in time"),
            }
        };
        tokio::select! {
            () = serving => {}
            // The slot goes to another connection.
            () = evicted => report_closed(&evicted_peer, &slots),
        }
        drop(slot);
    });
}

/// Reports a connection that is closed for want of a slot. The log has a line a minute.
fn report_closed(peer: &Peer, slots: &ConnectionSlots) {
    if let Some(connections) = slots.count_closed(Instant::now()) {
        tracing::info!(%peer, connections, "http: closed, as there are as many connections as may be");
    }
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
                if peer.holder().is_some() {
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
    routes: PacedRoutes,
    peer: Peer,
    stay: Stay,
    mut served: watch::Receiver<()>,
) {
    let of = peer.clone();
    let service = service_fn(move |request| answer(routes.clone(), of.clone(), request));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_DEADLINE)
        .max_buf_size(HEAD_BYTES_READ_MAX)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    let over = async {
        tokio::select! {
            () = stay.over(&peer) => {}
            _ = served.changed() => {}
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

/// The answer to a request, at the pace of its caller.
async fn answer(
    PacedRoutes { routes, pace }: PacedRoutes,
    peer: Peer,
    request: hyper::Request<Incoming>,
) -> Result<Response, Infallible> {
    let address = peer.ip();
    let answer = answer_now(routes, peer, request).await?;
    // Other connections have a turn between two requests of one.
    yield_now().await;
    if let Some(pace) = pace
        && answer.extensions().get::<Rightful>().is_none()
    {
        pace.next(address).await;
    }
    Ok(answer)
}

async fn answer_now(
    mut routes: Router,
    peer: Peer,
    request: hyper::Request<Incoming>,
) -> Result<Response, Infallible> {
    let mut request: Request = request.map(axum::body::Body::new);
    if head_bytes(&request) > HEAD_BYTES_MAX {
        return Ok(Problem::long_head().into_response());
    }
    request.extensions_mut().insert(peer);
    // A router is always ready.
    match timeout(ROUTE_DEADLINE, routes.call(request)).await {
        Ok(answer) => answer,
        Err(_) => Ok(Problem::timed_out().into_response()),
    }
}

/// Head bytes of a request, without its line ends.
fn head_bytes(request: &Request) -> usize {
    let path = request.uri().path_and_query().map_or(0, |path| path.as_str().len());
    let headers = request.headers().iter().map(|(name, value)| name.as_str().len() + value.len());
    path + headers.sum::<usize>()
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;

    #[tokio::test]
    async fn another_task_runs_between_two_requests_of_a_connection() {
        const REQUESTS: usize = 50;
        let (mut client, server) = duplex(1 << 20);
        let request = "GET / HTTP/1.1\r\nhost: x\r\n\r\n";
        client.write_all(request.repeat(REQUESTS).as_bytes()).await.unwrap();
        let routes = PacedRoutes { routes: Router::new(), pace: None };
        let (_serving, served) = watch::channel(());
        let serving = serve_connection(server, routes, Peer::Unix(None), Stay::Unbounded, served);
        let serving = tokio::spawn(serving);
        let (mut turns, mut text) = (0, String::new());
        while text.matches("HTTP/1.1 404").count() < REQUESTS {
            turns += 1;
            let mut bytes = [0; 1 << 16];
            let read = client.read(&mut bytes);
            if let Ok(len) = timeout(Duration::ZERO, read).await {
                text.push_str(&String::from_utf8_lossy(&bytes[..len.unwrap()]));
            }
            yield_now().await;
        }
        assert!(turns >= REQUESTS, "{turns}");
        serving.abort();
    }
}
