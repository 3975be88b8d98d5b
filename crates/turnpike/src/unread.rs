//! Unreadable parts of the configuration, without which the server still serves.

use control::{ServerInfo, UnreadParts};
use settings::Settings;

use crate::certificates::CertificateReloader;

/// Publishes the certificates in effect, and the parts that cannot be read. `tables` is the reason
/// why the database's tables cannot be read.
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
