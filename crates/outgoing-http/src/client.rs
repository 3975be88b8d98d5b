//! The client.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::body::Bytes;
use hyper::header::{ACCEPT, CONTENT_TYPE, HeaderName, HeaderValue, USER_AGENT};
use hyper::{Method, Request};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client as Pool;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::ClientConfig;
use rustls::crypto::aws_lc_rs;

use crate::error::HttpError;
use crate::roots::Roots;
use crate::url::Url;

/// Time for which a connection is kept for the next request: shorter than what web servers commonly
/// allow, so that the server is seldom the first to close it.
const IDLE: Duration = Duration::from_secs(20);

/// Idle connections that are kept for each host.
const IDLE_CONNECTIONS: usize = 4;

/// Attempts at a request whose connections the service closes: more than there are idle connections
/// that it may have closed.
const ATTEMPTS: usize = IDLE_CONNECTIONS + 2;

/// Name of the program in requests.
const AGENT: HeaderValue =
    HeaderValue::from_static(concat!("turnpike/", env!("CARGO_PKG_VERSION")));

/// The type of JSON bodies.
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// A client for HTTP. Cheap to clone; clones share their connections. Requests need a tokio runtime
/// with input, output and time.
#[derive(Clone)]
pub struct Client(Pool<HttpsConnector<HttpConnector>, Full<Bytes>>);

/// Bounds of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Longest time from the request to the last byte of the response, with the name's resolution
    /// and handshakes.
    pub deadline: Duration,
    /// Largest body, in bytes.
    pub body: usize,
}

/// The response of a service, whatever its status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// Status: 200 to 299 is success.
    pub status: u16,
    /// The `Cache-Control` header, with which key sets say for how long they are valid.
    pub cache_control: Option<String>,
    /// The body, complete.
    pub body: Vec<u8>,
}

impl Response {
    /// True for a status of 200 to 299.
    #[must_use]
    pub const fn is_success(&self) -> bool {
        matches!(self.status, 200..=299)
    }
}

impl Client {
    /// A client that trusts `roots`.
    ///
    /// # Errors
    /// The TLS library refuses its configuration, which it does not.
    pub fn new(roots: &Roots) -> Result<Self, HttpError> {
        let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| HttpError::Tls(error.to_string()))?
            .with_root_certificates(roots.store())
            .with_no_client_auth();
        // Plain HTTP is bounded by `Url`.
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(config)
            .https_or_http()
            .enable_http1()
            .build();
        let pool = Pool::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            .pool_max_idle_per_host(IDLE_CONNECTIONS)
            .build(connector);
        Ok(Self(pool))
    }

    /// Gets a document within `bounds`. Headers are pairs of a name and a value.
    ///
    /// # Errors
    /// No response, or none within the bounds. A status other than 2xx is no error.
    pub async fn get(
        &self,
        url: &Url,
        headers: &[(&str, &str)],
        bounds: Bounds,
    ) -> Result<Response, HttpError> {
        let mut request = Request::new(Full::default());
        *request.uri_mut() = url.uri();
        add_headers(&mut request, headers)?;
        self.answer(request, bounds).await
    }

    /// Posts a document of JSON, within `bounds`. The request may arrive twice if the connection
    /// breaks: bodies should be recognisable to their receiver.
    ///
    /// # Errors
    /// As of [`Client::get`]; the service may have the document nevertheless.
    pub async fn post_json(
        &self,
        url: &Url,
        headers: &[(&str, &str)],
        body: Vec<u8>,
        bounds: Bounds,
    ) -> Result<Response, HttpError> {
        let mut request = Request::new(Full::from(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = url.uri();
        request.headers_mut().insert(CONTENT_TYPE, JSON);
        add_headers(&mut request, headers)?;
        self.answer(request, bounds).await
    }

    async fn answer(
        &self,
        mut request: Request<Full<Bytes>>,
        bounds: Bounds,
    ) -> Result<Response, HttpError> {
        request.headers_mut().entry(ACCEPT).or_insert(JSON);
        let response = self.send_again(request, bounds).await?;
        let cache_control = response.headers().get(hyper::header::CACHE_CONTROL);
        let cache_control = cache_control.and_then(|value| value.to_str().ok()).map(str::to_owned);
        Ok(Response {
            status: response.status().as_u16(),
            cache_control,
            body: response.into_body().into(),
        })
    }

    /// Sends a request, and sends it again where the service closes the connection instead of an
    /// answer: it may close a connection that it has kept at any time (RFC 9112 §9.5).
    async fn send_again(
        &self,
        request: Request<Full<Bytes>>,
        bounds: Bounds,
    ) -> Result<hyper::Response<Bytes>, HttpError> {
        let attempts = async {
            for _ in 1..ATTEMPTS {
                match self.send(request.clone(), bounds).await {
                    Err(HttpError::BrokenOff(_)) => {}
                    outcome => return outcome,
                }
            }
            self.send(request, bounds).await
        };
        tokio::time::timeout(bounds.deadline, attempts).await.map_err(|_| HttpError::TooSlow)?
    }

    /// Sends a request of the caller's own making, within `bounds`. Its URI has to come from a
    /// [`Url`], or begin with `https://`.
    ///
    /// # Errors
    /// As of [`Client::get`].
    pub async fn send(
        &self,
        mut request: Request<Full<Bytes>>,
        bounds: Bounds,
    ) -> Result<hyper::Response<Bytes>, HttpError> {
        request.headers_mut().entry(USER_AGENT).or_insert(AGENT);
        let exchange = async {
            let response = self.0.request(request).await;
            let response = response.map_err(|error| HttpError::without_response(&error))?;
            let (parts, body) = response.into_parts();
            let body = Limited::new(body, bounds.body).collect().await.map_err(|error| {
                if error.is::<LengthLimitError>() {
                    HttpError::TooLarge(bounds.body)
                } else {
                    HttpError::unreachable(&*error)
                }
            })?;
            Ok(hyper::Response::from_parts(parts, body.to_bytes()))
        };
        tokio::time::timeout(bounds.deadline, exchange).await.map_err(|_| HttpError::TooSlow)?
    }
}

fn add_headers(
    request: &mut Request<Full<Bytes>>,
    headers: &[(&str, &str)],
) -> Result<(), HttpError> {
    for (name, value) in headers {
        let refused = || HttpError::Header((*name).to_owned());
        let key = HeaderName::from_bytes(name.as_bytes()).map_err(|_| refused())?;
        let mut value = HeaderValue::from_str(value).map_err(|_| refused())?;
        value.set_sensitive(true);
        request.headers_mut().insert(key, value);
    }
    Ok(())
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Client")
    }
}
