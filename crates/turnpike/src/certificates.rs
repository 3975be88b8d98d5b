//! Certificates of the server: reading, detection of changed files, and warnings before expiry.

pub(crate) mod inspection;
mod tls_rules;

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::anyhow;
use control::CertificateInfo;
use inspection::{Flaw, inspect};
use rustls::ServerConfig;
use settings::file::WhenUnusable;
use settings::{CertificateFiles, Settings};
use turn_session::dtls::{CookieHandler, Cookies, DtlsConfig};
use turn_session::{
    Certificate, CertificateError, Certificates, ClientAuthorities, TlsConfig, TlsRules,
    https_config, tls_config,
};

use crate::failure::{Failure, OrFail as _, Result};
use crate::findings::Finding;
use crate::{output, renewal};

/// Time before a certificate's expiry at which warnings start. Automatic renewal happens earlier.
const WARN_BEFORE: Duration = Duration::from_hours(14 * 24);

/// Interval of warnings.
const TOLD_EVERY: Duration = Duration::from_hours(24);

/// Time after which certificates are read again if one could not be used. Changed files are read
/// immediately, but a change of permissions of a directory, or of the clock, changes no file.
const AGAIN_AFTER: Duration = Duration::from_mins(10);

/// Maximum size of a certificate's file in bytes. A chain has a few certificates of some KiB.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Certificates in effect, with the state of their files.
#[derive(Debug)]
pub(crate) struct CertificateReloader {
    in_force: Arc<Certificates>,
    config: TlsConfig,
    rules: TlsRules,
    /// Certificates in effect.
    current: Vec<(CertificateFiles, Certificate)>,
    /// Versions of the files at the last check.
    seen: Vec<Option<FileVersions>>,
    infos: Vec<CertificateInfo>,
    /// Certificates of the last attempt that cannot be used.
    errors: Vec<String>,
    /// Files of the configured certificates.
    configured: Vec<CertificateFiles>,
    told: Option<SystemTime>,
    /// Time of the last attempt, if a certificate could not be used then.
    failed: Option<Instant>,
}

/// Versions of a certificate's files, for the detection of changes.
type FileVersions = Vec<[i64; 4]>;

impl CertificateReloader {
    /// Reads the certificates of a configuration.
    pub(crate) fn new(settings: &Settings) -> Result<Self> {
        let in_force = Arc::new(Certificates::default());
        let authorities = read_authorities(settings.client_authorities().as_deref())?;
        let rules = tls_rules::of(&settings.tls);
        let config =
            tls_config(Arc::clone(&in_force), authorities, &rules).or_fail("cannot set up TLS")?;
        let mut keeper = Self {
            in_force,
            config,
            rules,
            current: Vec::new(),
            seen: files(settings).iter().map(look_at).collect(),
            infos: Vec::new(),
            errors: Vec::new(),
            configured: settings.certificates(),
            told: None,
            failed: None,
        };
        let (certificates, errors) = read_usable(settings)?;
        keeper.put_in_force(certificates);
        for Unusable { what, help } in &errors {
            tracing::warn!(
                "a certificate cannot be used, and the server waits for it: {what}: {help}"
            );
        }
        keeper.note_errors(&errors);
        Ok(keeper)
    }

    /// Returns the TLS configuration.
    pub(crate) fn config(&self) -> TlsConfig {
        self.config.clone()
    }

    /// Returns the DTLS configuration. `secret` protects the cookies of clients.
    pub(crate) fn dtls_config(&self, secret: &[u8; 32]) -> Result<DtlsConfig> {
        let front = CookieHandler::new(Cookies::new(secret));
        DtlsConfig::new(Arc::clone(&self.in_force), front, &self.rules)
            .or_fail("cannot set up DTLS")
    }

    /// Returns the certificates in effect, with the challenges of an authority that verifies a
    /// name.
    pub(crate) fn in_force(&self) -> Arc<Certificates> {
        Arc::clone(&self.in_force)
    }

    /// Returns the TLS configuration of HTTP. With a file of `authorities`, each client must
    /// present a certificate that is signed by an authority in the file.
    pub(crate) fn https_config(&self, authorities: Option<&Path>) -> Result<Arc<ServerConfig>> {
        let authorities = read_authorities(authorities)?;
        https_config(&self.in_force, authorities).or_fail("cannot set up TLS for HTTP")
    }

    /// Returns facts about the certificates in effect.
    pub(crate) fn infos(&self) -> &[CertificateInfo] {
        &self.infos
    }

    /// Returns a clause about each certificate that cannot be used.
    pub(crate) fn errors(&self) -> &[String] {
        &self.errors
    }

    fn note_errors(&mut self, errors: &[Unusable]) {
        let clause = |error: &Unusable| format!("A certificate cannot be used: {}", error.what);
        self.errors = errors.iter().map(clause).collect();
        self.failed = (!errors.is_empty()).then(Instant::now);
    }

    /// Returns a reader of the certificate files that can be used on another thread.
    pub(crate) fn reader(&self) -> CertificateReader {
        CertificateReader {
            current: self.current.clone(),
            configured: self.configured.clone(),
            seen: self.seen.clone(),
            is_due: self.failed.is_some_and(|failed| failed.elapsed() >= AGAIN_AFTER),
        }
    }

    /// Puts certificates read by a [`reader`](Self::reader) into effect. Returns the errors.
    pub(crate) fn take(&mut self, read: CertificateReading) -> Vec<Unusable> {
        (self.seen, self.configured) = (read.seen, read.configured);
        self.put_in_force(read.certificates);
        self.note_errors(&read.errors);
        read.errors
    }

    fn put_in_force(&mut self, read: Vec<(CertificateFiles, Certificate)>) {
        let info = |(files, certificate): &(CertificateFiles, Certificate)| CertificateInfo {
            file: files.chain.display().to_string(),
            expires: at(certificate.expires()),
        };
        self.infos = read.iter().map(info).collect();
        self.in_force.replace(read.iter().map(|(_, certificate)| certificate.clone()).collect());
        self.current = read;
        self.told = None;
    }

    /// Logs a warning about each certificate that expires soon, once a day.
    pub(crate) fn warn_of_expiry(&mut self) {
        let now = SystemTime::now();
        if self
            .told
            .is_none_or(|told| now.duration_since(told).is_ok_and(|past| past >= TOLD_EVERY))
        {
            for warning in ending(&self.infos, now) {
                tracing::warn!("{warning}");
                self.told = Some(now);
            }
        }
    }
}

/// Reader of certificates, with the certificates in effect at its creation.
#[derive(Debug)]
pub(crate) struct CertificateReader {
    current: Vec<(CertificateFiles, Certificate)>,
    configured: Vec<CertificateFiles>,
    seen: Vec<Option<FileVersions>>,
    /// True if a certificate could not be used [`AGAIN_AFTER`] ago.
    is_due: bool,
}

/// Result of reading all certificates, for [`CertificateReloader::take`].
#[derive(Debug)]
pub(crate) struct CertificateReading {
    certificates: Vec<(CertificateFiles, Certificate)>,
    configured: Vec<CertificateFiles>,
    seen: Vec<Option<FileVersions>>,
    errors: Vec<Unusable>,
}

impl CertificateReading {
    /// Returns true if every certificate was read.
    pub(crate) const fn is_complete(&self) -> bool {
        self.errors.is_empty()
    }
}

impl CertificateReader {
    /// Returns the files of the certificates in effect, and of configured certificates that are not
    /// usable yet.
    pub(crate) fn files(&self) -> Vec<CertificateFiles> {
        let in_effect = self.current.iter().map(|(files, _)| files);
        in_effect.chain(&self.configured).cloned().collect()
    }

    /// Reads the certificates if their files have changed, or if a certificate could not be used
    /// [`AGAIN_AFTER`] ago. May block.
    pub(crate) fn read_changed(&self, settings: &Settings) -> Option<CertificateReading> {
        let seen: Vec<_> = files(settings).iter().map(look_at).collect();
        (self.is_due || seen != self.seen).then(|| self.read(settings))
    }

    /// Reads the certificates. The previous certificate remains if the new certificate cannot be
    /// used. It also remains if only the previous certificate is valid now. May block.
    pub(crate) fn read(&self, settings: &Settings) -> CertificateReading {
        let mut files = files(settings);
        let seen = files.iter().map(look_at).collect();
        // An issued certificate is valid even if its file is missing.
        let issued = renewal::store(settings).certificate();
        if settings.acme_challenge.is_some() && files.iter().all(|one| one.chain != issued) {
            let known = self.current.iter().find(|(files, _)| files.chain == issued);
            files.extend(known.map(|(files, _)| files.clone()));
        }
        let now = SystemTime::now();
        let (mut certificates, mut errors) = (Vec::new(), Vec::new());
        for files in files {
            let before = self.current.iter().find(|(known, _)| known.chain == files.chain);
            let before = before.map(|(_, certificate)| certificate);
            let read = read_one(&files).and_then(|new| match before {
                Some(before) => new_is_valid(&files, new, before, now),
                None => Ok(new),
            });
            let in_force = read.map_err(|error| errors.push(error)).ok();
            certificates.extend(
                in_force.or_else(|| before.cloned()).map(|certificate| (files, certificate)),
            );
        }
        CertificateReading { certificates, configured: settings.certificates(), seen, errors }
    }
}

/// Returns the files of each configured certificate, and of the certificate that an authority
/// issued.
fn files(settings: &Settings) -> Vec<CertificateFiles> {
    settings.certificates().into_iter().chain(issued(settings)).collect()
}

/// Returns the file of the issued certificate, if it exists.
fn issued(settings: &Settings) -> Option<CertificateFiles> {
    let file = renewal::store(settings).certificate();
    (settings.acme_challenge.is_some() && file.exists()).then(|| CertificateFiles {
        chain: file.clone(),
        key: file,
        password: None,
    })
}

/// Usable certificates with their files.
type Usable = Vec<(CertificateFiles, Certificate)>;

/// Reads all certificates. Returns the usable certificates, and the errors of the others. An
/// unusable issued certificate is not an error, because the authority issues a replacement.
///
/// # Errors
/// A configured certificate cannot be used, and the configuration does not permit waiting for it.
fn read_usable(settings: &Settings) -> Result<(Usable, Vec<Unusable>), Unusable> {
    let (mut all, mut errors) = (Vec::new(), Vec::new());
    for files in settings.certificates() {
        match (read_one(&files), settings.tls.when_unusable) {
            (Ok(certificate), _) => all.push((files, certificate)),
            (Err(unusable), WhenUnusable::Wait) => errors.push(unusable),
            (Err(unusable), WhenUnusable::Refuse) => return Err(unusable),
        }
    }
    if let Some(files) = issued(settings) {
        match read_one(&files) {
            Ok(certificate) => all.push((files, certificate)),
            Err(unusable) => tracing::warn!("{}", unusable.what),
        }
    }
    Ok((all, errors))
}

/// Refuses a new certificate that is not valid now if the previous certificate is valid.
fn new_is_valid(
    files: &CertificateFiles,
    new: Certificate,
    before: &Certificate,
    now: SystemTime,
) -> Result<Certificate, Unusable> {
    let is_valid = |one: &Certificate| at(one.starts()) <= now && now < at(one.expires());
    if is_valid(&new) || !is_valid(before) {
        return Ok(new);
    }
    let why = if now < at(new.expires()) { "is not valid yet" } else { "has expired" };
    Err(Unusable {
        what: format!("the new certificate {} {why}, by this host's clock", files.chain.display()),
        help: "put a valid one in its place, and see whether this host's clock is right",
    })
}

/// Error about an unusable certificate, with advice.
#[derive(Debug)]
pub(crate) struct Unusable {
    pub(crate) what: String,
    pub(crate) help: &'static str,
}

impl From<Unusable> for Failure {
    fn from(Unusable { what, help }: Unusable) -> Self {
        Self::usage(anyhow!(what)).hint(help)
    }
}

/// Reads the authorities that sign clients' certificates, if a file is configured.
pub(crate) fn read_authorities(file: Option<&Path>) -> Result<Option<ClientAuthorities>, Unusable> {
    let Some(file) = file else { return Ok(None) };
    let read = ClientAuthorities::read(&read(file)?);
    read.map(Some).map_err(|error| Unusable {
        what: format!("the authorities {} cannot be used: {error}", file.display()),
        help: "name a file with the certificates of who signs those of clients, as PEM",
    })
}

/// Returns findings about the certificates of a configuration, each with true if it concerns
/// expiry.
pub(crate) fn findings(settings: &Settings, now: SystemTime) -> Vec<(bool, Finding)> {
    const KEY: &str = "tls.certificates";
    let files = settings.certificates();
    let flaws: Vec<Vec<Flaw>> = files
        .iter()
        // An unreadable certificate is reported as an error of the configuration.
        .map(|files| read(&files.chain).map_or_else(|_| Vec::new(), |pem| inspect(&pem, now).flaws))
        .collect();
    // If other certificates exist, clients that cannot verify Ed25519 get another certificate.
    let only_ed25519 = flaws.iter().all(|flaws| flaws.contains(&Flaw::Ed25519));
    let mut all = Vec::new();
    for (index, (files, flaws)) in files.iter().zip(flaws).enumerate() {
        for flaw in flaws.into_iter().filter(|flaw| only_ed25519 || *flaw != Flaw::Ed25519) {
            let what = format!("{}: {}", files.chain.display(), flaw.what());
            let finding = Finding::problem(settings, KEY, what, flaw.help());
            let finding = Finding { severity: flaw.severity(), ..finding };
            let place = settings.entry_place(KEY, index);
            all.push((flaw.is_about_expiry(), finding.at(place)));
        }
    }
    all
}

/// Reads and checks one certificate.
pub(crate) fn read_one(files: &CertificateFiles) -> Result<Certificate, Unusable> {
    let (pem, key) = (read(&files.chain)?, read(&files.key)?);
    let certificate = match &files.password {
        Some(password) => Certificate::read_encrypted(&pem, &key, read(password)?.trim_ascii_end()),
        None => Certificate::read(&pem, &key),
    };
    certificate.map_err(|error| {
        let (chain, key) = (files.chain.display(), files.key.display());
        let what = format!("the certificate {chain} with the key {key} cannot be used: {error}");
        if matches!(error, CertificateError::Encrypted) {
            let help = "name a file with its password: password_file, beside chain and key";
            return Unusable { what, help };
        }
        if matches!(error, CertificateError::Password) {
            let help = "password_file holds the password alone, with or without a line break";
            return Unusable { what, help };
        }
        let short = inspect(&pem, SystemTime::now()).flaws.into_iter().find(Flaw::is_about_key);
        if let Some(flaw) = short {
            return Unusable { what: format!("{chain}: {}", flaw.what()), help: flaw.help() };
        }
        Unusable {
            what,
            help: "name the file with the whole chain, and the file with its key, both as PEM",
        }
    })
}

pub(crate) fn read(path: &Path) -> Result<Vec<u8>, Unusable> {
    let unreadable = |why: &dyn std::fmt::Display| Unusable {
        what: format!("{} cannot be read: {why}", path.display()),
        help: "the file needs to be readable by the user that the server runs as",
    };
    atomic_file::read(path, FILE_BYTES_MAX).map_err(|error| {
        if error.kind() != ErrorKind::NotFound {
            return unreadable(&error);
        }
        let help = if path.is_absolute() {
            "correct the path, or put the file there"
        } else {
            "paths are relative to the configuration file"
        };
        Unusable { what: format!("there is no file {}", path.display()), help }
    })
}

/// Returns the versions of a certificate's files, or `None` if a file is missing. The version
/// contains the inode's change time. A new owner or mode, the usual remedy for an unreadable file,
/// changes it.
fn look_at(files: &CertificateFiles) -> Option<FileVersions> {
    let look = |path: &Path| {
        let meta = fs::metadata(path).ok()?;
        Some([meta.ctime(), meta.ctime_nsec(), meta.size().cast_signed(), meta.ino().cast_signed()])
    };
    [&files.chain, &files.key].into_iter().chain(&files.password).map(|path| look(path)).collect()
}

fn at(seconds: i64) -> SystemTime {
    // A time before 1970 has expired, too.
    UNIX_EPOCH + Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
}

/// Returns warnings about certificates that expire soon, or have expired.
fn ending(infos: &[CertificateInfo], now: SystemTime) -> Vec<String> {
    let tell = |info: &CertificateInfo| match info.expires.duration_since(now) {
        Ok(left) if left > WARN_BEFORE => None,
        Ok(left) => Some(format!(
            "the certificate {} expires in {}: renew it (the server reloads the new file automatically)",
            info.file,
            output::duration(left)
        )),
        Err(_) => Some(format!("the certificate {} has expired: clients refuse it", info.file)),
    };
    infos.iter().filter_map(tell).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expiry_is_warned_of_two_weeks_ahead() {
        let now = at(1_000_000_000);
        let day = |days: i64| CertificateInfo {
            file: "chain.pem".to_owned(),
            expires: at(1_000_000_000 + days * 86_400),
        };
        assert_eq!(ending(&[day(15)], now), [""; 0]);
        assert!(ending(&[day(13)], now)[0].contains("chain.pem expires in 13 d"));
        assert!(ending(&[day(-1)], now)[0].contains("has expired"));
    }

    /// Writes a certificate chain and its key to a directory. The certificate is valid in these
    /// years.
    fn put(directory: &Path, years: [i32; 2]) {
        let mut params = rcgen::CertificateParams::new(["turn.example.org".to_owned()]).unwrap();
        params.not_before = rcgen::date_time_ymd(years[0], 1, 1);
        params.not_after = rcgen::date_time_ymd(years[1], 1, 1);
        let key = rcgen::KeyPair::generate().unwrap();
        fs::write(directory.join("x.pem"), params.self_signed(&key).unwrap().pem()).unwrap();
        fs::write(directory.join("x.key"), key.serialize_pem()).unwrap();
    }

    #[test]
    fn a_certificate_that_cannot_be_used_leaves_the_one_before_in_force() {
        let directory = crate::testing::Directory::new("certificates");
        let (path, shown) = (directory.path(), directory.path().display());
        put(path, [2020, 2090]);
        let text = format!(
            "listen = [\"127.0.0.1:3478\"]\n[tls]\ncertificates = [{{ chain = \"{shown}/x.pem\", key = \"{shown}/x.key\" }}]\n"
        );
        let environment = settings::Environment::empty();
        let settings = settings::parse(Path::new("test.toml"), &text, &environment).unwrap();
        let mut reloader = CertificateReloader::new(&settings).unwrap();
        let expires = |reloader: &CertificateReloader| reloader.infos()[0].expires;
        let before = expires(&reloader);
        let refused = |reloader: &mut CertificateReloader, why: &str| {
            let errors = reloader.take(reloader.reader().read(&settings));
            assert!(errors.len() == 1 && errors[0].what.contains(why), "{errors:?}");
            assert_eq!((expires(reloader), reloader.in_force.is_empty()), (before, false));
        };

        let key = fs::read(path.join("x.key")).unwrap();
        put(path, [2020, 2091]);
        fs::write(path.join("x.key"), key).unwrap();
        refused(&mut reloader, "cannot be used");
        fs::write(path.join("x.pem"), "maintenance").unwrap();
        refused(&mut reloader, "no certificate");
        put(path, [2020, 2021]);
        refused(&mut reloader, "has expired");
        put(path, [2080, 2091]);
        refused(&mut reloader, "is not valid yet");
        fs::remove_file(path.join("x.pem")).unwrap();
        refused(&mut reloader, "there is no file");
        let made = std::process::Command::new("mkfifo").arg(path.join("x.pem")).status();
        assert!(made.unwrap().success());
        refused(&mut reloader, "it is a named pipe");
        fs::remove_file(path.join("x.pem")).unwrap();
        put(path, [2020, 2091]);
        let read = reloader.reader().read_changed(&settings).unwrap();
        assert!(reloader.take(read).is_empty() && expires(&reloader) > before);
        assert!(reloader.reader().read_changed(&settings).is_none());
    }

    /// The usual remedy for an unreadable key is another owner or mode.
    #[test]
    fn another_mode_of_a_file_is_a_change() {
        use std::os::unix::fs::PermissionsExt as _;
        let directory = crate::testing::Directory::new("modes");
        fs::create_dir_all(directory.path()).unwrap();
        let chain = directory.path().join("chain.pem");
        fs::write(&chain, "a").unwrap();
        let files = CertificateFiles { chain: chain.clone(), key: chain.clone(), password: None };
        let before = look_at(&files);
        assert_eq!(look_at(&files), before);
        test_support::eventually("the clock of the files", || {
            fs::set_permissions(&chain, fs::Permissions::from_mode(0o600)).unwrap();
            look_at(&files) != before
        });
    }
}
