//! The services for clients: there is at least one, and none that another key switches off.

use crate::document::Document;
use crate::error::Errors;
use crate::file::File;

pub(super) fn check(file: &File, document: &Document, errors: &mut Errors) {
    const RELAYING: &str = "udp.relaying";
    const BINDING: &str = "binding";
    if file.relay.enabled && !file.udp.relaying && !file.tcp.relaying {
        let help = "set tcp.relaying = true; for a STUN server alone relay.enabled = false";
        let what = "nothing would be relayed: tcp.relaying is off as well";
        errors.add(document.place(RELAYING), RELAYING, what, help);
    }
    if file.binding {
        return;
    }
    if !file.relay.enabled {
        let what = "no request would be answered: relay.enabled is off as well";
        errors.add(document.place(BINDING), BINDING, what, "remove one of them");
    }
    for (key, is_set) in [
        ("discovery.addresses", !file.discovery.addresses.is_empty()),
        ("compatibility.rfc3489_clients", file.compatibility.rfc3489_clients),
        ("auth.binding", file.auth.binding),
    ] {
        if is_set {
            let what = format!("it is off, and {key} is about Binding requests");
            errors.add(document.place(BINDING), BINDING, what, "remove one of them");
        }
    }
}
