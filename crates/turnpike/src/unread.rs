//! Parts of the configuration that cannot be read, and without which the server serves.

use control::UnreadParts;
use settings::Settings;

use crate::certificates::CertificateReloader;

/// Facts for operators. `tables` is the failure of the tables of the user database.
pub(crate) fn parts(
    settings: &Settings,
    certificates: &CertificateReloader,
    tables: Option<String>,
) -> UnreadParts {
    let needs_tls = settings.listen.is_empty() && !certificates.errors().is_empty();
    let are_all = needs_tls && certificates.infos().is_empty()
        || tables.is_some() && settings.database_rules().is_unread;
    let tables = tables.map(|why| format!("The tables of the user database cannot be read: {why}"));
    UnreadParts { certificates: certificates.errors().to_vec(), tables, are_all }
}
