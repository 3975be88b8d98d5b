//! Trust in a server's certificate. Decides as a client does, and names the flaw.

use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, Error, RootCertStore};

use crate::any_certificate::provider;
use crate::authorities::authorities;
use crate::certificates::inspection::{Flaw, Inspection, inspect_chain};
use crate::findings::Severity;

/// Trust rules of a probe.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trust<'a> {
    /// Name that the certificate must contain. Also sent to the server (SNI).
    pub(super) name: &'a str,
    /// File of further authorities.
    pub(super) ca: Option<&'a Path>,
    /// True if the probe continues with an untrusted certificate.
    pub(super) insecure: bool,
}

/// Reason why clients refuse a certificate, with advice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Distrust {
    pub(super) what: String,
    pub(super) advice: String,
}

impl Trust<'_> {
    /// Returns the name in the form of TLS.
    pub(super) fn server_name(&self) -> io::Result<ServerName<'static>> {
        match self.name.parse::<IpAddr>() {
            Ok(ip) => Ok(ServerName::from(ip)),
            Err(_) => ServerName::try_from(self.name.to_owned()).map_err(io::Error::other),
        }
    }

    /// Judges the chain that a server has presented.
    ///
    /// # Errors
    /// Clients refuse the chain.
    pub(super) fn judge(&self, chain: &[CertificateDer<'_>]) -> Result<(), Distrust> {
        let verified = self.verify(chain);
        let Err(error) = verified else { return Ok(()) };
        let Inspection { names, flaws } = inspect_chain(chain, SystemTime::now());
        Err(self.explain(&error, &names, &flaws))
    }

    fn verify(&self, chain: &[CertificateDer<'_>]) -> Result<(), Error> {
        let general = |error: &dyn std::fmt::Display| Error::General(error.to_string());
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(authorities(self.ca).map_err(|error| general(&error))?);
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider())
            .build()
            .map_err(|error| general(&error))?;
        let name = self.server_name().map_err(|error| general(&error))?;
        let (own, others) = chain.split_first().ok_or(Error::NoCertificatesPresented)?;
        verifier.verify_server_cert(own, others, &name, &[], UnixTime::now()).map(drop)
    }

    fn explain(&self, error: &Error, names: &[String], flaws: &[Flaw]) -> Distrust {
        // By default, `openssl req -x509` creates such certificates.
        let is_authority = error.to_string().contains("CaUsedAsEndEntity");
        let is_other_name = matches!(
            error,
            Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. }
            )
        );
        if is_authority {
            let flaw = Flaw::Authority;
            return Distrust { what: flaw.what(), advice: flaw.help().to_owned() };
        }
        let grave = |flaw: &&Flaw| flaw.severity() == Severity::Problem;
        let self_signed = flaws.iter().find(|flaw| **flaw == Flaw::SelfSigned);
        if let Some(flaw) = flaws.iter().find(grave).or(self_signed).filter(|_| !is_other_name) {
            let advice = if *flaw == Flaw::SelfSigned {
                "name it with --ca, or get one from an authority"
            } else {
                flaw.help()
            };
            return Distrust { what: flaw.what(), advice: advice.to_owned() };
        }
        if is_other_name {
            let names = if names.is_empty() { "no name".to_owned() } else { names.join(", ") };
            return Distrust {
                what: format!("the certificate is for {names}, and not for {}", self.name),
                advice: "use a name of the certificate in the URI, name it with --server-name, or get a \
                         certificate for this one"
                    .to_owned(),
            };
        }
        let is_unknown = *error == Error::InvalidCertificate(CertificateError::UnknownIssuer);
        Distrust {
            what: if is_unknown {
                "no authority that this host trusts has signed the chain".to_owned()
            } else {
                error.to_string()
            },
            advice: "a certificate has to be for the name in the URI, unexpired, and with its chain \
                     (fullchain.pem) up to an authority that this host trusts; name another with --ca"
                .to_owned(),
        }
    }
}
