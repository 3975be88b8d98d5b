//! Serves the routes on the control socket, within bounds.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::response::IntoResponse;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::UnixStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};
use tower_service::Service;

use crate::access::ControlSocket;
use crate::limits::{CONNECTIONS_MAX, HEAD_DEADLINE, ROUTE_DEADLINE};
use crate::problem::Problem;

/// Pause before accepting again when the process is out of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves `routes` on the control socket until the future is dropped. Connections in progress end
/// with the runtime.
pub async fn serve(socket: ControlSocket, routes: Router) -> Infallible {
    let free = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        // The semaphore is never closed, so there is always a permit to wait for.
        let Ok(permit) = Arc::clone(&free).acquire_owned().await else { continue };
        match socket.listener.accept().await {
            Ok((stream, _)) => {
                tokio::spawn(serve_connection(stream, routes.clone(), permit));
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection on the control socket");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn serve_connection(stream: UnixStream, routes: Router, _permit: OwnedSemaphorePermit) {
    let service = service_fn(move |request| answer(routes.clone(), request));
    let outcome = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_DEADLINE)
        .serve_connection(TokioIo::new(stream), service)
        .await;
    if let Err(error) = outcome {
        tracing::debug!(%error, "a connection on the control socket ended badly");
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
