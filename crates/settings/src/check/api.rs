//! Checks of `[api]`.

use crate::document::Document;
use crate::error::Errors;
use crate::file::File;
use crate::limits::HTTP_LISTENERS_MAX;
use crate::value::Endpoint;

const LISTEN: &str = "api.listen";
const AUTHORITIES: &str = "api.client_authorities";

/// Returns whether the server has a certificate, or would have one but for a slip that is told.
pub(super) fn has_certificate(file: &File, document: &Document) -> bool {
    !file.tls.certificates.is_empty()
        || !file.acme.names.is_empty()
        || document.is_refused("tls.certificates")
        || document.is_refused("acme.names")
}

pub(super) fn check(file: &File, document: &Document, errors: &mut Errors) {
    let listen = &file.api.listen;
    if listen.len() > HTTP_LISTENERS_MAX {
        let error = format!("the list has {} listeners", listen.len());
        let help = format!("write at most {HTTP_LISTENERS_MAX}");
        errors.add(document.place(LISTEN), LISTEN, error, help);
    }
    let has_certificate = has_certificate(file, document);
    for (index, Endpoint(address)) in listen.iter().enumerate() {
        let place = || document.entry_place(LISTEN, index);
        if listen[..index].contains(&Endpoint(*address)) {
            let error = format!("\"{address}\" is there twice");
            errors.add(place(), LISTEN, error, "remove one of them");
        }
        if !address.ip().is_loopback() && !has_certificate {
            errors.add(
                place(),
                LISTEN,
                format!("\"{address}\" can be reached by other hosts, and there is no certificate for TLS"),
                format!(
                    "add tls.certificates or acme.names, or write \"127.0.0.1:{port}\" and reach it by `ssh -L \
                     {port}:127.0.0.1:{port} HOST`",
                    port = address.port()
                ),
            );
        }
    }
    let encrypted = listen.iter().any(|endpoint| !endpoint.0.ip().is_loopback());
    if file.api.client_authorities.is_some() && !encrypted && !document.is_refused(LISTEN) {
        errors.add(
            document.place(AUTHORITIES),
            AUTHORITIES,
            "no listener of api.listen speaks TLS, so that no client could present a certificate",
            "add an address that is not loopback to api.listen, or remove the key",
        );
    }
}
