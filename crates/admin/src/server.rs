//! Serves routes on the control socket and for monitoring, within bounds.

use std::convert::Infallible;
use std::future::pending;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::response::IntoResponse;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};
use tower_service::Service;

use crate::access::UnixSocket;
use crate::limits::{
    CONNECTIONS_MAX, HEAD_BYTES_MAX, HEAD_DEADLINE, MONITORING_CONNECTION, ROUTE_DEADLINE,
};
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
    Tcp(TcpListener),
}

/// Serves `routes` on a listener until the future is dropped. Connections in progress end
/// with the runtime.
pub async fn serve(listener: HttpListener, routes: Router) -> Infallible {
    let free = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        // The semaphore is never closed, so there is always a permit to wait for.
        let Ok(permit) = Arc::clone(&free).acquire_owned().await else { continue };
        let routes = routes.clone();
        let accepted = match &listener {
            HttpListener::Control(socket) => socket.listener.accept().await.map(|(stream, _)| {
                tokio::spawn(serve_connection(stream, routes, None, permit));
            }),
            HttpListener::Unix(socket) => socket.listener.accept().await.map(|(stream, _)| {
                tokio::spawn(serve_connection(stream, routes, Some(MONITORING_CONNECTION), permit));
            }),
            HttpListener::Tcp(listener) => listener.accept().await.map(|(stream, _)| {
                tokio::spawn(serve_connection(stream, routes, Some(MONITORING_CONNECTION), permit));
            }),
        };
        if let Err(error) = accepted {
            tracing::warn!(%error, "cannot accept a connection for HTTP");
            sleep(ACCEPT_PAUSE).await;
        }
    }
}

/// Serves a connection. When it may stay no longer it takes no more requests, and ends even if nobody reads the answer.
async fn serve_connection(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    routes: Router,
    stay: Option<Duration>,
    _permit: OwnedSemaphorePermit,
) {
    let service = service_fn(move |request| answer(routes.clone(), request));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_DEADLINE)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    let outcome = tokio::select! {
        outcome = connection.as_mut() => outcome,
        () = async { if let Some(stay) = stay { sleep(stay).await } else { pending().await } } => {
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
    request: hyper::Request<Incoming>,
) -> Result<axum::response::Response, Infallible> {
    let request: Request = request.map(axum::body::Body::new);
    // A router is always ready.
    match timeout(ROUTE_DEADLINE, routes.call(request)).await {
        Ok(answer) => answer,
        Err(_) => Ok(Problem::timed_out().into_response()),
    }
}
