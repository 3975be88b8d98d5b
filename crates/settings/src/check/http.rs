//! Checks of `[http]`.

use super::too_long;
use crate::document::Document;
use crate::error::Errors;
use crate::file::Http;
use crate::limits::HTTP_LISTENERS_MAX;
use crate::value::HttpListen;

const KEY: &str = "http.listen";

pub(super) fn check(http: &Http, document: &Document, errors: &mut Errors) {
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
