//! Requests to web services: certificate authorities, key sets, webhooks.
//!
//! A [`Client`] trusts [`Roots`] and keeps connections for later requests. Each request has a
//! deadline and a bound for the body of its response. Redirects are not followed, and proxies are
//! not used. Plain HTTP reaches this host alone: see [`Url`].
//!
//! ```no_run
//! # use std::time::Duration;
//! # use outgoing_http::{Bounds, Client, HttpError, Roots, Url};
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let client = Client::new(&Roots::public())?;
//! let url = Url::parse("https://billing.example.org/records")?;
//! let headers = [("authorization", "Bearer 1234")];
//! let body = br#"{"a": 1}"#.to_vec();
//! let bounds = Bounds { deadline: Duration::from_secs(5), body: 64 * 1024 };
//! let answer = client.post_json(&url, &headers, body, bounds).await?;
//! if !answer.is_success() {
//!     return Err(HttpError::Status(answer.status).into());
//! }
//! # Ok(())
//! # }
//! ```

mod client;
mod error;
mod roots;
mod url;

pub use client::{Bounds, Client, Response};
pub use error::HttpError;
pub use roots::{Roots, RootsError};
pub use url::{Url, UrlError};
