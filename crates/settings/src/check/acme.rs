//! Checks of `[acme]`.

use crate::document::Document;
use crate::error::Errors;
use crate::file::{AcmeChallenge, File};
use crate::limits::ACME_NAMES_MAX;

const KEY: &str = "acme.names";

/// Checks the names, and returns the means of their verification: `None` without names, never
/// [`Auto`](AcmeChallenge::Auto).
pub(super) fn check(
    file: &File,
    document: &Document,
    errors: &mut Errors,
) -> Option<AcmeChallenge> {
    let names = &file.acme.names;
    if names.is_empty() {
        return None;
    }
    if names.len() > ACME_NAMES_MAX {
        let error = format!("the list has {} names", names.len());
        let help = format!("write at most {ACME_NAMES_MAX}");
        errors.add(document.place(KEY), KEY, error, help);
    }
    for (index, name) in names.iter().enumerate() {
        if names[..index].contains(name) {
            let error = format!("\"{name}\" is there twice");
            errors.add(document.entry_place(KEY, index), KEY, error, "remove one of them");
        }
    }
    let chosen = match file.acme.challenge {
        AcmeChallenge::Auto => by_ports(file),
        named @ (AcmeChallenge::TlsAlpn01 | AcmeChallenge::Http01) => Some(named),
    };
    let refused = ["listen", "tls.listen"].iter().any(|key| document.is_refused(key));
    if chosen.is_none() && !refused {
        errors.add(
            document.place(KEY),
            KEY,
            "the authority verifies the names at port 443 or 80, and no listener for TCP has one of them",
            "add \"0.0.0.0:443\" and \"[::]:443\" to tls.listen, or name acme.challenge where a router forwards the port",
        );
    }
    chosen
}

/// The means whose port has a listener: port 443 is of use to clients as well.
fn by_ports(file: &File) -> Option<AcmeChallenge> {
    let plain = file.listen.iter().filter(|_| file.tcp.enabled);
    let has = |port| plain.clone().chain(&file.tls.listen).any(|at| at.0.port() == port);
    if has(443) { Some(AcmeChallenge::TlsAlpn01) } else { has(80).then_some(AcmeChallenge::Http01) }
}
