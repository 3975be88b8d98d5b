//! HTTPS to a certificate authority.

use std::fmt;
use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;

use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use hyper::{Request, Response};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};

use crate::error::AcmeError;
use crate::limits::ANSWER_BYTES_MAX;

/// Certificates that are trusted to sign the one of the authority's own web server.
#[derive(Clone)]
pub struct Roots(Arc<RootCertStore>);

impl Roots {
    /// The ones that browsers trust (Mozilla's list, as of the build).
    #[must_use]
    pub fn public() -> Self {
        Self(Arc::new(RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() }))
    }

    /// The ones of a PEM file, for an authority of one's own.
    ///
    /// # Errors
    /// The file cannot be read, or has no certificate.
    pub fn read(path: &Path) -> Result<Self, AcmeError> {
        let pem = std::fs::read(path)
            .map_err(|error| AcmeError::Store { path: path.to_owned(), error })?;
        let refused = |why: String| AcmeError::Roots { path: path.to_owned(), why };
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(&pem) {
            let certificate = certificate.map_err(|error| refused(error.to_string()))?;
            roots.add(certificate).map_err(|error| refused(error.to_string()))?;
        }
        if roots.is_empty() {
            return Err(refused("no certificate found (expected PEM)".to_owned()));
        }
        Ok(Self(Arc::new(roots)))
    }
}

impl fmt::Debug for Roots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Roots({})", self.0.len())
    }
}

/// A client for HTTPS alone.
pub(crate) struct Https(Client<HttpsConnector<HttpConnector>, BodyWrapper<Bytes>>);

impl Https {
    pub(crate) fn new(roots: &Roots) -> Result<Self, AcmeError> {
        let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| AcmeError::Authority(error.to_string()))?
            .with_root_certificates(Arc::clone(&roots.0))
            .with_no_client_auth();
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(config)
            .https_only()
            .enable_http1()
            .build();
        Ok(Self(Client::builder(TokioExecutor::new()).build(connector)))
    }
}

impl HttpClient for Https {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        let answer = self.0.request(request);
        Box::pin(async move {
            let (parts, body) =
                answer.await.map_err(|error| Error::Other(error.into()))?.into_parts();
            let body =
                Limited::new(body, ANSWER_BYTES_MAX).collect().await.map_err(Error::Other)?;
            Ok(BytesResponse::from(Response::from_parts(parts, Full::new(body.to_bytes()))))
        })
    }
}
