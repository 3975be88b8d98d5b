//! TLS: whole certificates, and its listeners.

use std::net::SocketAddr;

use crate::document::Document;
use crate::error::Errors;
use crate::file::{File, Tls};

const CERTIFICATES: &str = "tls.certificates";

pub(super) fn check(tls: &Tls, document: &Document, errors: &mut Errors) {
    for (index, entry) in tls.certificates.iter().enumerate() {
        let missing = match (&entry.chain, &entry.key) {
            (Some(_), Some(_)) => continue,
            (None, _) => "chain",
            (Some(_), None) => "key",
        };
        errors.add(
            document.entry_place(CERTIFICATES, index),
            CERTIFICATES,
            format!("entry {}: there is no {missing}", index + 1),
            format!("add {missing} = \"...\", a file with it as PEM"),
        );
    }
}

/// Listeners besides those of `listen`, where TLS is recognised by its first bytes; none without a certificate.
pub(super) fn listeners(file: &File) -> Vec<SocketAddr> {
    if file.tls.certificates.is_empty() && file.acme.names.is_empty() {
        return Vec::new();
    }
    let more = file.tls.listen.iter().filter(|endpoint| !file.listen.contains(endpoint));
    more.map(|endpoint| endpoint.0).collect()
}
