//! Settings of clients' connections and DTLS sessions, with the certificates of a server.

use std::sync::Arc;

use dataplane::{Admission, ConnectionLimits, DtlsSettings, StreamSettings};
use linux_net::random_bytes;
use settings::Settings;

use crate::certificates::CertificateReloader;
use crate::failure::Result;

/// Returns the settings of connections over TCP and TLS.
pub(super) fn stream_settings(
    settings: &Settings,
    connections: u32,
    certificates: &CertificateReloader,
) -> StreamSettings {
    let limits = ConnectionLimits {
        total: connections,
        per_address: settings.tcp.connections_per_address.get(),
    };
    StreamSettings {
        proxies: settings.tcp.proxy_protocol.iter().map(|prefix| prefix.0).collect(),
        tls: settings.tls.enabled.then(|| certificates.config()),
        plain: settings.tcp.enabled,
        acme_redirect: settings.tcp.acme_redirect.as_ref().map(|url| url.as_str().to_owned()),
        admission: Arc::new(Admission::new(limits)),
    }
}

/// Returns the settings of DTLS sessions.
///
/// # Errors
/// OpenSSL refuses the certificates, or has no memory left.
pub(super) fn dtls_settings(
    settings: &Settings,
    certificates: &CertificateReloader,
) -> Result<DtlsSettings> {
    let limits = ConnectionLimits {
        total: settings.dtls.sessions.get(),
        per_address: settings.dtls.sessions_per_address.get(),
    };
    Ok(DtlsSettings {
        config: settings
            .serves_dtls()
            .then(|| certificates.dtls_config(&random_bytes()))
            .transpose()?,
        only: !settings.udp.enabled,
        admission: Arc::new(Admission::new(limits)),
    })
}
