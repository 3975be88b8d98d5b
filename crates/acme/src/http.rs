//! HTTPS to a certificate authority.

use std::future::Future;
use std::pin::Pin;

use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper::{Request, Response};
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};
use outgoing_http::{Bounds, Client, Roots};

use crate::error::AcmeError;
use crate::http_failure::HttpFailure;
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
            let (parts, body) = answer.map_err(HttpFailure::of_exchange)?.into_parts();
            if let Some(failure) = HttpFailure::of_response(parts.status, &parts.headers, &body) {
                return Err(failure.into());
            }
            Ok(BytesResponse::from(Response::from_parts(parts, Full::new(body))))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use hyper::StatusCode;
    use hyper::header::RETRY_AFTER;

    use super::*;

    fn of(status: u16, retry_after: Option<&str>, body: &str) -> Option<AcmeError> {
        let status = StatusCode::from_u16(status).expect("a status");
        let retry_after = retry_after.map(|value| (RETRY_AFTER, value.parse().expect("a value")));
        let headers = retry_after.into_iter().collect();
        let failure = HttpFailure::of_response(status, &headers, body.as_bytes())?;
        Some(Error::from(failure).into())
    }

    #[test]
    fn an_overloaded_authority_has_refused_nothing_and_is_no_outage() {
        let problem = r#"{"type":"urn:ietf:params:acme:error:rateLimited","detail":"too many"}"#;
        let html = "<html>maintenance</html>";
        for (status, after, body, wanted) in [
            (429, Some("7200"), problem, ("too many (rateLimited)", Some(7200))),
            (503, None, html, ("it answers with status 503", None)),
            (
                503,
                Some("Wed, 21 Oct 2026 07:28:00 GMT"),
                html,
                ("it answers with status 503", None),
            ),
        ] {
            let error = of(status, after, body);
            let Some(AcmeError::Overloaded { what, retry_after }) = error else {
                panic!("{error:?}");
            };
            assert_eq!((&*what, retry_after), (wanted.0, wanted.1.map(Duration::from_secs)));
        }
    }

    #[test]
    fn a_refusal_is_no_overload() {
        assert!(of(403, Some("7200"), "{}").is_none(), "the library reads it");
        let problem = serde_json::from_str(r#"{"type":"x:unauthorized","detail":"no"}"#);
        let error = AcmeError::from(Error::Api(problem.expect("a problem")));
        assert!(matches!(error, AcmeError::Authority(_)), "{error:?}");
    }

    #[tokio::test]
    async fn an_authority_out_of_reach_is_an_outage() {
        // Nothing listens there.
        let https = Https::new(&Roots::public()).expect("a client");
        let request = Request::get("https://127.0.0.1:1/").body(BodyWrapper::from(Vec::new()));
        let result = https.request(request.expect("a request")).await;
        let error = AcmeError::from(result.err().expect("an error"));
        assert!(matches!(error, AcmeError::Unreachable(_)), "{error:?}");
    }
}
