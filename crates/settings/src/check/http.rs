//! Checks of `[http]`.

use super::{api, too_long};
use crate::document::Document;
use crate::error::Errors;
use crate::file::File;
use crate::limits::HTTP_LISTENERS_MAX;
use crate::value::HttpListen;

const KEY: &str = "http.listen";

/// Paths of the same listeners that answer whether the server works.
const HEALTH: [&str; 2] = ["/healthz", "/readyz"];

pub(super) fn check(file: &File, document: &Document, errors: &mut Errors) {
    let http = &file.http;
    if HEALTH.contains(&&*http.metrics_path) {
        const PATH: &str = "http.metrics_path";
        let what = format!("\"{}\" answers whether the server works", &*http.metrics_path);
        errors.add(document.place(PATH), PATH, what, "write another path");
    }
    if http.tls && !api::has_certificate(file, document) {
        const TLS: &str = "http.tls";
        let what = "there is no certificate for TLS";
        errors.add(document.place(TLS), TLS, what, "add tls.certificates or acme.names");
    }
    if http.listen.len() > HTTP_LISTENERS_MAX {
        let error = format!("the list has {} listeners", http.listen.len());
        let help = format!("write at most {HTTP_LISTENERS_MAX}");
        errors.add(document.place(KEY), KEY, error, help);
    }
    for (index, listener) in http.listen.iter().enumerate() {
        let place = || document.entry_place(KEY, index);
        if http.listen[..index].contains(listener) {
            errors.add(
                place(),
                KEY,
                format!("\"{listener}\" is there twice"),
                "remove one of them",
            );
        }
        if let HttpListen::Unix(path) = listener
            && let Some(error) = too_long(path)
        {
            errors.add(
                place(),
                KEY,
                error,
                "use a shorter one, such as \"unix:/run/turnpike/http.sock\"",
            );
        }
    }
}
