//! Parts of the configuration that cannot be read, and without which the server serves.

use control::{ServerInfo, UnreadParts};
use settings::Settings;

use crate::certificates::CertificateReloader;

/// Puts the certificates in force into the facts, and what cannot be read. `tables` is the failure
/// of the tables of the user database.
pub(crate) fn tell(
    info: &mut ServerInfo,
    settings: &Settings,
    certificates: &CertificateReloader,
    tables: Option<String>,
) {
    info.certificates = certificates.infos().to_vec();
    let needs_tls = settings.listen.is_empty() && !certificates.errors().is_empty();
    let are_all = needs_tls && certificates.infos().is_empty()
        || tables.is_some() && settings.database_rules().is_unread;
    let tables = tables.map(|why| format!("The tables of the user database cannot be read: {why}"));
    info.unread = UnreadParts { certificates: certificates.errors().to_vec(), tables, are_all };
}
