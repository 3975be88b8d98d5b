//! TLS: whole certificates, and where it is spoken.

use crate::document::Document;
use crate::error::Errors;
use crate::file;
use crate::settings::{CertificateFiles, Tls};

const CERTIFICATES: &str = "tls.certificates";

pub(super) fn check(file: &file::File, document: &Document, errors: &mut Errors) -> Tls {
    let mut certificates = Vec::new();
    for (index, entry) in file.tls.certificates.iter().enumerate() {
        let beside = |path: &String| document.directory().join(path);
        match (&entry.chain, &entry.key) {
            (Some(chain), Some(key)) => {
                certificates.push(CertificateFiles { chain: beside(chain), key: beside(key) });
            }
            (chain, _) => {
                let missing = if chain.is_none() { "chain" } else { "key" };
                errors.add(
                    document.entry_place(CERTIFICATES, index),
                    CERTIFICATES,
                    format!("entry {}: there is no {missing}", index + 1),
                    format!("add {missing} = \"...\", a file with it as PEM"),
                );
            }
        }
    }
    let listen = file.tls.listen.iter().map(|endpoint| endpoint.0);
    let more = |at: &std::net::SocketAddr| !file.listen.iter().any(|known| known.0 == *at);
    let listen = if certificates.is_empty() { Vec::new() } else { listen.filter(more).collect() };
    let listen_unused =
        certificates.is_empty() && document.is_written("tls.listen") && !file.tls.listen.is_empty();
    let authorities = file.tls.client_authorities.as_ref();
    let client_authorities = authorities.map(|path| document.directory().join(path.as_str()));
    Tls { listen, listen_unused, certificates, client_authorities }
}
