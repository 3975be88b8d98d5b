//! HTTPS to a certificate authority.

use std::future::Future;
use std::pin::Pin;

use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper::{Request, Response};
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};
use outgoing_http::{Bounds, Client, Roots};

use crate::error::AcmeError;
use crate::limits::{ANSWER_BYTES_MAX, REQUEST};

/// Bounds of an answer.
const BOUNDS: Bounds = Bounds { deadline: REQUEST, body: ANSWER_BYTES_MAX };

/// A client for HTTPS alone: the settings take no other URL of a directory.
pub(crate) struct Https(Client);

impl Https {
    pub(crate) fn new(roots: &Roots) -> Result<Self, AcmeError> {
        let client = Client::new(roots).map_err(|error| AcmeError::Authority(error.to_string()))?;
        Ok(Self(client))
    }
}

impl HttpClient for Https {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        let client = self.0.clone();
        Box::pin(async move {
            if request.uri().scheme_str() != Some("https") {
                return Err(Error::Str("the authority names a URL without https://"));
            }
            let (parts, body) = request.into_parts();
            let Ok(body) = body.collect().await;
            let request = Request::from_parts(parts, Full::new(body.to_bytes()));
            let answer = client.send(request, BOUNDS).await;
            let (parts, body) = answer.map_err(|error| Error::Other(Box::new(error)))?.into_parts();
            Ok(BytesResponse::from(Response::from_parts(parts, Full::new(body))))
        })
    }
}
