//! TLS: whole certificates, and its listeners.

use std::net::SocketAddr;

use crate::document::Document;
use crate::error::Errors;
use crate::file::{File, TlsVersion};

const CERTIFICATES: &str = "tls.certificates";

pub(super) fn check(file: &File, document: &Document, errors: &mut Errors) {
    let tls = &file.tls;
    negotiation(file, document, errors);
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

/// DTLS is 1.2: a choice that leaves nothing of it is for TLS alone.
fn negotiation(file: &File, document: &Document, errors: &mut Errors) {
    let suites = &file.tls.cipher_suites;
    let groups = &file.tls.key_exchange;
    let of_12 = |key: &str| match key {
        "tls.cipher_suites" => suites.is_empty() || suites.iter().any(|suite| suite.is_of_12()),
        _ => groups.is_empty() || groups.iter().any(|group| group.is_of_12()),
    };
    let needs_12 = file.dtls.enabled || file.tls.minimum_version == TlsVersion::V12;
    for key in ["tls.cipher_suites", "tls.key_exchange"] {
        if needs_12 && !of_12(key) {
            let help =
                "add one of 1.2, or set tls.minimum_version = \"1.3\" and dtls.enabled = false";
            errors.add(document.place(key), key, "it has none of TLS and DTLS 1.2", help);
        }
    }
    let has_13 = suites.is_empty() || suites.iter().any(|suite| !suite.is_of_12());
    if file.tls.minimum_version == TlsVersion::V13 && !has_13 {
        let key = "tls.cipher_suites";
        let what = "it has none of TLS 1.3, which tls.minimum_version requires";
        errors.add(document.place(key), key, what, "add one, such as \"TLS_AES_128_GCM_SHA256\"");
    }
}

/// Listeners besides those of `listen`, where TLS is recognised by its first bytes; none without a
/// certificate.
pub(super) fn listeners(file: &File) -> Vec<SocketAddr> {
    if file.tls.certificates.is_empty() && file.acme.names.is_empty() {
        return Vec::new();
    }
    let more = file.tls.listen.iter().filter(|endpoint| !file.listen.contains(endpoint));
    more.map(|endpoint| endpoint.0).collect()
}
