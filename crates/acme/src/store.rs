//! Files of the account and of the certificate, in a directory of the server's own.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use atomic_file::Access;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use x509_parser::extensions::GeneralName;
use x509_parser::parse_x509_certificate;

use crate::error::AcmeError;

/// The certificate chain and its key, in one file: they are replaced together.
const CERTIFICATE: &str = "acme-certificate.pem";

/// The account: its URL and its key.
const ACCOUNT: &str = "acme-account.json";

/// Maximum size of a file in bytes. A chain with its key has some KiB.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The account's and the certificate's files.
#[derive(Clone, Debug)]
pub struct Store(PathBuf);

/// Time of the next order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Renewal {
    /// There is no certificate for the wanted names.
    Now(&'static str),
    /// A third of the certificate's lifetime is left then.
    At(SystemTime),
}

impl Store {
    /// The files in a directory, which exists.
    #[must_use]
    pub fn new(directory: &Path) -> Self {
        Self(directory.to_owned())
    }

    /// Path of the file with the certificate chain and its key, as PEM. It exists once a
    /// certificate was issued.
    #[must_use]
    pub fn certificate(&self) -> PathBuf {
        self.0.join(CERTIFICATE)
    }

    /// Time of the next order, judged by the stored certificate: it is for exactly these names, and
    /// two thirds of its lifetime have not passed.
    #[must_use]
    pub fn renewal(&self, names: &[String], now: SystemTime) -> Renewal {
        let Ok(pem) = atomic_file::read_state(&self.certificate(), FILE_BYTES_MAX) else {
            return Renewal::Now("there is none yet");
        };
        let Some(stored) = read(&pem) else {
            return Renewal::Now("the stored one cannot be read");
        };
        if stored.names != in_order(names) {
            return Renewal::Now("the stored one is for other names");
        }
        if stored.renewal <= now {
            return Renewal::Now("a third of the stored one's lifetime is left");
        }
        Renewal::At(stored.renewal)
    }

    /// Returns true if the stored certificate is for exactly these names and expires after this
    /// time.
    pub(crate) fn outlasts(&self, names: &[String], ends: SystemTime) -> bool {
        let stored = atomic_file::read_state(&self.certificate(), FILE_BYTES_MAX).ok();
        stored
            .and_then(|pem| read(&pem))
            .is_some_and(|stored| stored.names == in_order(names) && stored.ends > ends)
    }

    /// The stored account at the authority with this directory URL.
    pub(crate) fn account(&self, directory: &str) -> Option<serde_json::Value> {
        let text = atomic_file::read_state(&self.0.join(ACCOUNT), FILE_BYTES_MAX).ok()?;
        let account: serde_json::Value = serde_json::from_slice(&text).ok()?;
        (account.get("directory")?.as_str()? == directory).then_some(account)
    }

    pub(crate) fn save_account(&self, account: &serde_json::Value) -> Result<(), AcmeError> {
        self.save(ACCOUNT, account.to_string().as_bytes())
    }

    pub(crate) fn save_certificate(&self, chain: &str, key: &str) -> Result<(), AcmeError> {
        self.save(CERTIFICATE, format!("{}\n{}", key.trim_end(), chain).as_bytes())
    }

    /// Writes a file that only its owner may read, and puts it in the place of the previous one.
    fn save(&self, name: &str, bytes: &[u8]) -> Result<(), AcmeError> {
        let path = self.0.join(name);
        atomic_file::replace(&path, bytes, Access::PRIVATE)
            .map_err(|error| AcmeError::Store { path, error })
    }
}

/// The first certificate of a chain.
struct Stored {
    /// Sorted names in lower case.
    names: Vec<String>,
    /// Time at which a third of the lifetime is left.
    renewal: SystemTime,
    ends: SystemTime,
}

fn in_order(names: &[String]) -> Vec<String> {
    let mut names: Vec<_> = names.iter().map(|name| name.to_ascii_lowercase()).collect();
    names.sort_unstable();
    names
}

fn read(pem: &[u8]) -> Option<Stored> {
    let own = CertificateDer::from_pem_slice(pem).ok()?;
    let (_, own) = parse_x509_certificate(&own).ok()?;
    let names = &own.subject_alternative_name().ok()??.value.general_names;
    let names: Vec<String> = names
        .iter()
        .filter_map(|name| {
            let GeneralName::DNSName(name) = name else { return None };
            Some((*name).to_owned())
        })
        .collect();
    let validity = own.validity();
    let (from, to) = (validity.not_before.timestamp(), validity.not_after.timestamp());
    let at = |seconds| Some(UNIX_EPOCH + Duration::from_secs(u64::try_from(seconds).ok()?));
    let renewal = at(from + (to - from) / 3 * 2)?;
    Some(Stored { names: in_order(&names), renewal, ends: at(to)? })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]
mod tests {
    use std::fs;
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    struct Directory(PathBuf);

    impl Drop for Directory {
        fn drop(&mut self) {
            drop(fs::remove_dir_all(&self.0));
        }
    }

    fn store(test: &str) -> (Directory, Store) {
        let directory = std::env::temp_dir().join(format!("acme-{test}-{}", std::process::id()));
        drop(fs::remove_dir_all(&directory));
        fs::create_dir_all(&directory).unwrap();
        let store = Store::new(&directory);
        (Directory(directory), store)
    }

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn a_certificate_is_renewed_when_a_third_is_left_or_the_names_differ() {
        let (_directory, store) = store("renewal");
        let now = SystemTime::now();
        let wanted = names(&["turn.example.org", "Stun.example.org"]);
        assert_eq!(store.renewal(&wanted, now), Renewal::Now("there is none yet"));

        let mut params =
            rcgen::CertificateParams::new(names(&["turn.example.org", "stun.example.org"]))
                .unwrap();
        params.not_before = rcgen::date_time_ymd(2026, 1, 1);
        params.not_after = rcgen::date_time_ymd(2026, 4, 1); // 90 days
        let key = rcgen::KeyPair::generate().unwrap();
        let chain = params.self_signed(&key).unwrap().pem();
        store.save_certificate(&chain, &key.serialize_pem()).unwrap();
        assert_eq!(fs::metadata(store.certificate()).unwrap().mode() & 0o777, 0o600);

        // Day 0 is 2026-01-01.
        let day = |days: u64| UNIX_EPOCH + Duration::from_secs((20_454 + days) * 86_400);
        assert_eq!(store.renewal(&wanted, day(10)), Renewal::At(day(60)));
        assert!(matches!(store.renewal(&wanted, day(60)), Renewal::Now(_)));
        // It ends on day 90.
        assert!(store.outlasts(&wanted, day(89)) && !store.outlasts(&wanted, day(91)));
        assert!(!store.outlasts(&names(&["turn.example.org"]), day(89)));
        let other = store.renewal(&names(&["turn.example.org"]), day(10));
        assert_eq!(other, Renewal::Now("the stored one is for other names"));

        fs::write(store.certificate(), "no certificate").unwrap();
        assert_eq!(store.renewal(&wanted, day(10)), Renewal::Now("the stored one cannot be read"));
    }

    #[test]
    fn an_account_is_of_one_authority() {
        let (_directory, store) = store("account");
        let account = serde_json::json!({ "directory": "https://a.example/dir", "id": "1" });
        store.save_account(&account).unwrap();
        store.save_account(&account).unwrap();
        assert_eq!(store.account("https://a.example/dir"), Some(account));
        assert_eq!(store.account("https://b.example/dir"), None);
    }
}
