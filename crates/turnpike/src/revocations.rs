//! Revocations in effect, stored in a file of the data directory across restarts. Each change
//! replaces the file atomically. For a secret or key the file contains a hash, so another secret or
//! key of the same name is not refused.

mod hashes;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::anyhow;
use control::{OperatorError, OperatorErrorKind, Revocable, Revocation, RevokeWish, RevokedKind};
use serde::{Deserialize, Serialize};
use turn_proto::{AuthPolicy, Policy, Revoked, UserName, UserNameError};
use turn_types::{Instant, Now, Realm};

use self::hashes::{auth_of, hash_of, key_hash, names_of_key};
use crate::failure::{Failure, Result};
use crate::file_writer::{FileWriter, Written};

/// Maximum number of revocations. Each takes a few hundred bytes in memory, and in a file that each
/// change replaces.
const REVOCATIONS_MAX: usize = 10_000;

/// Maximum number of revocations made with tokens for one realm, in all realms together. The
/// remaining entries are reserved for the server's operator.
const TENANTS_REVOCATIONS_MAX: usize = REVOCATIONS_MAX / 4 * 3;

/// Maximum number of revocations made with tokens for one realm, in that realm.
const TENANT_REVOCATIONS_MAX: usize = REVOCATIONS_MAX / 4;

/// Maximum size of the file in bytes: [`REVOCATIONS_MAX`] of the longest entries.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// Time after the start during which no revocation is removed. A host that starts with a wrong
/// clock corrects the clock within some minutes.
const KEPT_AFTER_START: Duration = Duration::from_mins(10);

/// Numbers in a name that are interpreted as times: the years 2001 to 2286.
const TIMES: std::ops::Range<u64> = 1_000_000_000..10_000_000_000;

/// Revocations in effect, and their file.
#[derive(Debug)]
pub(crate) struct Revocations {
    file: FileWriter,
    all: Vec<Entry>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Entry {
    kind: Kind,
    realm: String,
    name: String,
    /// First half of the SHA-256 of a secret or key, in hexadecimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sha256: Option<String>,
    since_unix: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    until_unix: Option<u64>,
    /// True if the revocation was made with a token for this realm only.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    by_tenant: bool,
    /// Monotonic time before which the revocation is not removed, regardless of `until_unix`.
    #[serde(skip)]
    kept_until: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    Name,
    Secret,
    TokenKey,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct Content {
    revocations: Vec<Entry>,
}

impl Revocations {
    /// Reads the file, which need not exist.
    ///
    /// # Errors
    /// The file cannot be read or parsed. The server must not start, because it would accept
    /// revoked credentials.
    pub(crate) fn read(path: PathBuf, now: Now) -> Result<Self> {
        let mut all = match atomic_file::read_state(&path, FILE_BYTES_MAX) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Ok(bytes) => {
                let content: Content = serde_json::from_slice(&bytes)
                    .map_err(|error| broken(&path, &error.to_string()))?;
                content.revocations
            }
            Err(error) => return Err(broken(&path, &error.to_string())),
        };
        for entry in &mut all {
            let kept_until = kept_until(now, entry.until_unix);
            entry.kept_until = kept_until.max(now.instant + KEPT_AFTER_START);
        }
        Ok(Self { file: FileWriter::new(path), all })
    }

    /// Returns the revocations, the oldest first.
    pub(crate) fn list(&self) -> Vec<Revocation> {
        self.all.iter().map(Entry::public).collect()
    }

    /// Returns a policy that refuses the revoked credentials.
    pub(crate) fn put_in(&self, mut policy: Policy) -> Policy {
        let mut revoked = Revoked::default();
        for Entry { kind, realm, name, sha256, .. } in &self.all {
            match (kind, sha256) {
                (Kind::Name, _) => {
                    // Stored names were validated when added.
                    if let Ok(name) = UserName::new(name) {
                        revoked.refuse_name(realm.as_str().into(), &name);
                    }
                }
                // The key may have other names now.
                (Kind::TokenKey, Some(hash)) => {
                    for kid in names_of_key(&policy, realm, hash) {
                        revoked.refuse_token_key(realm.as_str().into(), kid);
                    }
                }
                (Kind::TokenKey, None) | (Kind::Secret, _) => {}
            }
        }
        policy.revoked = Arc::new(revoked);
        let own = policy.realm.clone();
        self.without_secrets(&own, &mut policy.auth);
        policy.realms =
            policy.realms.map(|realm| self.without_secrets(&realm.name.clone(), &mut realm.auth));
        policy
    }

    /// Adds a revocation. The caller must [store](Self::store) the change. A second revocation of a
    /// credential does not shorten the first, because the role with permission to revoke may not
    /// restore.
    ///
    /// # Errors
    /// The realm, secret or key does not exist, the name is invalid, or the table is full.
    pub(crate) fn add(
        &mut self,
        policy: &Policy,
        wish: &RevokeWish,
        now: Now,
        until_unix: Option<u64>,
    ) -> Result<Revocation, OperatorError> {
        let RevokeWish { ref what, by_tenant, .. } = *wish;
        let realm = realm(policy, what)?;
        let sha256 = hash(policy, &realm, what)?;
        let name = match what.kind {
            // A kid is sent in the user name of a token.
            RevokedKind::Name | RevokedKind::TokenKey => {
                UserName::new(&what.name).map(UserName::into_string)
            }
            RevokedKind::Secret if what.name.len() > UserName::BYTES_MAX => {
                Err(UserNameError::TooLong(what.name.len()))
            }
            RevokedKind::Secret => Ok(what.name.clone()),
        };
        let name = name.map_err(|error| {
            let hint = "no client can have such a name: write it as `turnpike sessions` shows it";
            invalid(format!("the name {error}"), hint)
        })?;
        let (kind, realm) = (what.kind.into(), realm.to_string());
        let is_same = |one: &Entry| {
            one.kind == kind && one.realm == realm && one.name == name && one.sha256 == sha256
        };
        if let Some(one) = self.all.iter_mut().find(|one| is_same(one)) {
            one.until_unix = one.until_unix.zip(until_unix).map(|(own, other)| own.max(other));
            one.kept_until = one.kept_until.max(kept_until(now, until_unix));
            one.by_tenant &= by_tenant;
            return Ok(one.public());
        }
        self.has_room(&realm, by_tenant)?;
        let (since_unix, kept_until) = (now.unix.0, kept_until(now, until_unix));
        let entry =
            Entry { kind, realm, name, sha256, since_unix, until_unix, by_tenant, kept_until };
        let public = entry.public();
        self.all.push(entry);
        Ok(public)
    }

    /// Removes a revocation. The caller must [store](Self::store) the change.
    ///
    /// # Errors
    /// The credential is not revoked.
    pub(crate) fn remove(
        &mut self,
        policy: &Policy,
        what: &Revocable,
    ) -> Result<Revocation, OperatorError> {
        let realm = what.realm.as_deref().unwrap_or(&policy.realm);
        let kind = what.kind.into();
        let name = match what.kind {
            RevokedKind::Name | RevokedKind::TokenKey => UserName::form_of(&what.name),
            RevokedKind::Secret => what.name.as_str().into(),
        };
        let is_it = |one: &Entry| one.kind == kind && one.realm == realm && one.name == name;
        let first = self.all.iter().find(|one| is_it(one)).map(Entry::public);
        self.all.retain(|one| !is_it(one));
        first.ok_or_else(|| OperatorError {
            kind: OperatorErrorKind::NotFound,
            error: format!("\"{}\" is not revoked in realm {realm}", what.name),
            hint: "`turnpike user revoked` lists what is".to_owned(),
        })
    }

    /// Removes revocations that have expired by both clocks. Returns true if any was removed. The
    /// monotonic clock protects against a wall clock that jumps ahead, which would readmit revoked
    /// credentials.
    pub(crate) fn prune(&mut self, now: Now) -> bool {
        let before = self.all.len();
        self.all.retain(|one| {
            one.until_unix.is_none_or(|until| now.unix.0 < until || now.instant < one.kept_until)
        });
        self.all.len() < before
    }

    /// Replaces the file, on another thread.
    pub(crate) fn store(&mut self) -> Written {
        let content = Content { revocations: self.all.clone() };
        // Serialisation of strings and numbers cannot fail.
        self.file.replace(serde_json::to_vec_pretty(&content).unwrap_or_default())
    }

    /// Returns an error if no revocation can be added.
    fn has_room(&self, realm: &str, by_tenant: bool) -> Result<(), OperatorError> {
        if self.all.len() >= REVOCATIONS_MAX {
            let error = format!("{REVOCATIONS_MAX} credentials are revoked, which is the maximum");
            let hint = "restore some (`turnpike user revoked` lists them), or change the shared secret instead";
            return Err(invalid(error, hint));
        }
        let by_tenants = || self.all.iter().filter(|one| one.by_tenant);
        let error = if !by_tenant {
            return Ok(());
        } else if by_tenants().filter(|one| one.realm == realm).count() >= TENANT_REVOCATIONS_MAX {
            format!(
                "{TENANT_REVOCATIONS_MAX} credentials are revoked by tokens for the realm {realm} alone, which is the \
                 maximum"
            )
        } else if by_tenants().count() >= TENANTS_REVOCATIONS_MAX {
            format!(
                "{TENANTS_REVOCATIONS_MAX} credentials are revoked by tokens for one realm each, which is the maximum"
            )
        } else {
            return Ok(());
        };
        let hint = "restore some (DELETE /v1/revocations, role admin), change the shared secret instead, or ask the \
                    server's operator to revoke";
        Err(invalid(error, hint))
    }

    fn without_secrets(&self, realm: &Realm, auth: &mut AuthPolicy) {
        let is_revoked = |hash: &str| {
            self.all.iter().any(|one| {
                one.kind == Kind::Secret
                    && one.realm == **realm
                    && one.sha256.as_deref() == Some(hash)
            })
        };
        if self.all.iter().any(|one| one.kind == Kind::Secret) {
            auth.secrets.retain(|secret| !is_revoked(&hash_of(secret.secret.expose())));
        }
    }
}

impl Entry {
    fn public(&self) -> Revocation {
        let Self { kind, realm, name, since_unix, until_unix, .. } = self.clone();
        let kind = match kind {
            Kind::Name => RevokedKind::Name,
            Kind::Secret => RevokedKind::Secret,
            Kind::TokenKey => RevokedKind::TokenKey,
        };
        Revocation { kind, realm, name, since_unix, until_unix }
    }
}

impl From<RevokedKind> for Kind {
    fn from(kind: RevokedKind) -> Self {
        match kind {
            RevokedKind::Name => Self::Name,
            RevokedKind::Secret => Self::Secret,
            RevokedKind::TokenKey => Self::TokenKey,
        }
    }
}

/// Returns the end of a revocation on the monotonic clock, computed from its remaining time on the
/// wall clock.
fn kept_until(now: Now, until_unix: Option<u64>) -> Instant {
    let left = until_unix.map_or(0, |until| until.saturating_sub(now.unix.0));
    now.instant + Duration::from_secs(left)
}

/// Returns the end of a revocation with a duration. Returns `None`, which means no end, while the
/// host's clock has not been set since boot (before 2001). Otherwise the revocation would expire
/// too early, once the clock is set.
pub(crate) fn end_after(now: u64, lasts: Duration) -> Option<u64> {
    TIMES.contains(&now).then(|| now.saturating_add(lasts.as_secs()))
}

/// Returns the end of a name's revocation, from the expiry time in the name. If both parts of the
/// name may be times, the later time is returned. Returns `None` without such a part, or if the
/// time has passed: the name then belongs to a user. A name that consists only of digits is a user
/// name as well, because user ids may look like times.
pub(crate) fn end_of_name(name: &str, separator: char, now: u64) -> Option<u64> {
    let parts = [
        name.split_once(separator).map(|(time, _)| time),
        name.rsplit_once(separator).map(|(_, time)| time),
    ];
    let digits = |text: &&str| text.bytes().all(|byte| byte.is_ascii_digit());
    let times = parts.into_iter().flatten().filter(digits).filter_map(|text| text.parse().ok());
    times.filter(|time| TIMES.contains(time) && *time > now).max()
}

fn realm(policy: &Policy, what: &Revocable) -> Result<Realm, OperatorError> {
    let Some(name) = what.realm.as_deref() else { return Ok(policy.realm.clone()) };
    if auth_of(policy, name).is_some() {
        return Ok(name.into());
    }
    let others = policy.realms.iter().map(|realm| format!(", {}", &*realm.name));
    Err(OperatorError {
        kind: OperatorErrorKind::NotFound,
        error: format!("there is no realm {name}"),
        hint: format!("this server has: {}{}", &*policy.realm, others.collect::<String>()),
    })
}

/// Returns the hash of the named secret or key, or `None` for a user name.
///
/// # Errors
/// No secret or key of this name exists.
fn hash(policy: &Policy, realm: &str, what: &Revocable) -> Result<Option<String>, OperatorError> {
    let Some(auth) = auth_of(policy, realm) else { return Ok(None) };
    let (found, noun, known): (_, _, Vec<&str>) = match what.kind {
        RevokedKind::Name => return Ok(None),
        RevokedKind::Secret => {
            let found = auth.secrets.iter().find(|secret| secret.name == what.name);
            let known = auth.secrets.iter().map(|secret| secret.name.as_str()).collect();
            (found.map(|secret| hash_of(secret.secret.expose())), "shared secret", known)
        }
        RevokedKind::TokenKey => {
            let keys = auth.tokens.iter().flat_map(|tokens| &tokens.keys);
            (
                key_hash(auth, &what.name),
                "key of access tokens",
                keys.map(|key| &*key.kid).collect(),
            )
        }
    };
    let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
    found.map(Some).ok_or_else(|| OperatorError {
        kind: OperatorErrorKind::NotFound,
        error: format!("there is no {noun} \"{}\" in realm {realm}", what.name),
        hint: format!("in force there: {known}; one that is revoked already is not among them"),
    })
}

fn invalid(error: String, hint: &str) -> OperatorError {
    OperatorError { kind: OperatorErrorKind::Invalid, error, hint: hint.to_owned() }
}

fn broken(path: &Path, why: &str) -> Failure {
    Failure::failed(anyhow!("cannot read the revoked credentials in {}: {why}", path.display()))
        .hint("mend or remove it; without it the server accepts what was revoked")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use turn_proto::{AlternateServers, RealmPolicy, Realms, SharedSecret};
    use turn_types::{Secret, UnixSeconds};

    use super::*;

    fn by_operator(what: &Revocable) -> RevokeWish {
        RevokeWish { what: what.clone(), lasts: None, by_tenant: false }
    }

    fn policy() -> Policy {
        let mut auth = AuthPolicy::new(Secret::new([7; 32]));
        for (name, text) in [("web", "0123456789abcdef"), ("app", "fedcba9876543210")] {
            let secret = Secret::new(text.as_bytes().into());
            auth.secrets.push(SharedSecret { name: name.into(), secret });
        }
        Policy::new("example.org".into(), auth)
    }

    /// Returns the time on a host whose clocks have run together since 1970.
    fn at(seconds: u64) -> Now {
        let instant = Instant::ZERO + Duration::from_secs(seconds);
        Now { instant, unix: UnixSeconds(seconds) }
    }

    fn what(kind: RevokedKind, name: &str) -> Revocable {
        Revocable { kind, realm: None, name: name.to_owned() }
    }

    #[tokio::test]
    async fn a_restart_forgets_none_and_time_ends_them() {
        let directory = crate::testing::Directory::new("revocations");
        let path = directory.path().join("revoked.json");
        let mut revocations = Revocations::read(path.clone(), at(100)).unwrap();
        let (alice, web) = (what(RevokedKind::Name, "alice"), what(RevokedKind::Secret, "web"));
        revocations.add(&policy(), &by_operator(&alice), at(100), Some(200)).unwrap();
        revocations.add(&policy(), &by_operator(&web), at(100), None).unwrap();
        revocations.add(&policy(), &by_operator(&alice), at(150), Some(300)).unwrap();
        revocations.store().wait().await.unwrap();

        let mut again = Revocations::read(path.clone(), at(100)).unwrap();
        assert_eq!(again.list(), revocations.list());
        assert_eq!(again.list()[0].until_unix, Some(300), "again: a later end");
        let text = fs::read_to_string(&path).unwrap();
        assert!(!text.contains("0123456789abcdef"), "no secret is in the file: {text}");

        let stripped = again.put_in(policy());
        assert_eq!(stripped.auth.secrets.len(), 1);
        assert_eq!(stripped.auth.secrets[0].name, "app");
        let later = at(100 + KEPT_AFTER_START.as_secs());
        assert!(!again.prune(at(699)) && again.prune(later) && !again.prune(later));
        assert_eq!(*again.put_in(policy()).revoked, Revoked::default());
        let error = again.remove(&policy(), &alice).unwrap_err();
        assert_eq!(error.kind, OperatorErrorKind::NotFound);
        again.remove(&policy(), &web).unwrap();
        assert_eq!(again.put_in(policy()).auth.secrets.len(), 2);

        fs::write(&path, "{").unwrap();
        assert!(
            Revocations::read(path, at(100)).is_err(),
            "a broken file is not taken for an empty one"
        );
    }

    #[test]
    fn a_jump_of_the_wall_clock_lets_no_revoked_credential_in() {
        let mut revocations =
            Revocations { file: FileWriter::new(PathBuf::new()), all: Vec::new() };
        let alice = what(RevokedKind::Name, "alice");
        revocations.add(&policy(), &by_operator(&alice), at(100), Some(200)).unwrap();
        let jumped = |seconds| Now { unix: UnixSeconds(4_000_000_000), ..at(seconds) };
        assert!(!revocations.prune(jumped(101)) && !revocations.prune(jumped(199)));
        // The clock was set correctly, and the time has passed.
        assert!(!revocations.prune(at(199)) && revocations.prune(at(200)));
        // After a jump back the wall clock retains the revocation.
        revocations.add(&policy(), &by_operator(&alice), at(1000), Some(1100)).unwrap();
        assert!(!revocations.prune(Now { unix: UnixSeconds(0), ..at(5000) }));
    }

    /// A host without a battery-backed clock starts in 1970, and sets the clock later.
    #[test]
    fn a_clock_that_was_not_set_ends_no_revocation() {
        let day = Duration::from_secs(86_400);
        assert_eq!(end_after(1_700_000_000, day), Some(1_700_086_400));
        let mut revocations =
            Revocations { file: FileWriter::new(PathBuf::new()), all: Vec::new() };
        let alice = what(RevokedKind::Name, "alice");
        revocations.add(&policy(), &by_operator(&alice), at(60), end_after(60, day)).unwrap();
        let set = Now { unix: UnixSeconds(1_800_000_000), ..at(120 + day.as_secs()) };
        assert!(!revocations.prune(set));
        // The time in a name is the expiry of the credential.
        let name = what(RevokedKind::Name, "1900000000:bob");
        let end = end_of_name("1900000000:bob", ':', 60);
        revocations.add(&policy(), &by_operator(&name), at(60), end).unwrap();
        assert!(!revocations.prune(set));
        assert_eq!(revocations.list().len(), 2);
    }

    #[test]
    fn another_secret_of_the_name_is_not_refused() {
        let mut revocations =
            Revocations { file: FileWriter::new(PathBuf::new()), all: Vec::new() };
        let web = what(RevokedKind::Secret, "web");
        revocations.add(&policy(), &by_operator(&web), at(1), None).unwrap();
        let mut changed = policy();
        changed.auth.secrets[0].secret = Secret::new(b"another secret!!".as_slice().into());
        assert_eq!(revocations.put_in(changed).auth.secrets.len(), 2);
        let unknown = what(RevokedKind::Secret, "wbe");
        let error = revocations.add(&policy(), &by_operator(&unknown), at(1), None).unwrap_err();
        assert!(error.hint.contains("web, app"), "{error:?}");
        let realm = Some("elsewhere".to_owned());
        let error = revocations
            .add(&policy(), &by_operator(&Revocable { realm, ..web }), at(1), None)
            .unwrap_err();
        assert!(error.hint.contains("example.org"), "{error:?}");
    }

    #[test]
    fn their_number_is_bounded() {
        let mut revocations =
            Revocations { file: FileWriter::new(PathBuf::new()), all: Vec::new() };
        for number in 0..REVOCATIONS_MAX {
            let name = what(RevokedKind::Name, &format!("user{number}"));
            revocations.add(&policy(), &by_operator(&name), at(1), None).unwrap();
        }
        let one_more = what(RevokedKind::Name, "one-more");
        let error = revocations.add(&policy(), &by_operator(&one_more), at(1), None).unwrap_err();
        assert_eq!(error.kind, OperatorErrorKind::Invalid);
    }

    /// The role with permission to revoke may not restore.
    #[test]
    fn no_second_revocation_ends_the_first_one_earlier() {
        let mut revocations =
            Revocations { file: FileWriter::new(PathBuf::new()), all: Vec::new() };
        for (first, second, end) in [
            (None, Some(2), None),
            (Some(2), None, None),
            (Some(500), Some(2), Some(500)),
            (Some(2), Some(500), Some(500)),
        ] {
            let alice = what(RevokedKind::Name, "alice");
            revocations.add(&policy(), &by_operator(&alice), at(1), first).unwrap();
            let again = RevokeWish { by_tenant: true, ..by_operator(&alice) };
            let answer = revocations.add(&policy(), &again, at(1), second).unwrap();
            assert_eq!(answer.until_unix, end, "{first:?}, {second:?}");
            assert!(!revocations.prune(at(499)), "{first:?}, {second:?}");
            assert_eq!(revocations.prune(at(500)), end.is_some(), "{first:?}, {second:?}");
            let _restored = revocations.remove(&policy(), &alice);
        }
    }

    /// A stolen token for a realm, or a faulty script of its owner, can fill only a part of the
    /// table.
    #[tokio::test]
    async fn tenants_leave_room_for_each_other_and_the_operator() {
        let directory = crate::testing::Directory::new("tenants");
        let path = directory.path().join("revoked.json");
        let names = ["a", "b", "c", "d"];
        let own = policy();
        let realms = names.map(|name| RealmPolicy {
            name: name.into(),
            origins: Vec::new(),
            server_names: Vec::new(),
            listeners: Vec::new(),
            software: None,
            auth: own.auth.clone(),
            lifetimes: own.lifetimes,
            quotas: own.quotas,
            peer_rules: own.peer_rules.clone(),
            alternates: AlternateServers::default(),
        });
        let policy = Policy { realms: Realms::new(realms.to_vec()), ..own };
        let mut revocations = Revocations::read(path.clone(), at(1)).unwrap();
        let add = |to: &mut Revocations, realm: &str, number: usize, by_tenant| {
            let name = format!("user{number}");
            let what = Revocable { kind: RevokedKind::Name, realm: Some(realm.to_owned()), name };
            to.add(&policy, &RevokeWish { what, lasts: None, by_tenant }, at(1), None)
        };
        for number in 0..REVOCATIONS_MAX / 4 {
            add(&mut revocations, "a", number, true).unwrap();
        }
        let full = add(&mut revocations, "a", 2500, true).unwrap_err();
        assert_eq!(full.kind, OperatorErrorKind::Invalid);
        assert!(full.error.contains("2500") && full.error.contains("realm a"), "{full:?}");
        assert!(full.hint.contains("the server's operator"), "{full:?}");
        add(&mut revocations, "a", 0, true).expect("one that is there already");
        revocations.store().wait().await.unwrap();
        let mut revocations = Revocations::read(path, at(1)).unwrap();
        add(&mut revocations, "a", 2500, true).expect_err("after a restart");
        for realm in ["b", "c"] {
            for number in 0..REVOCATIONS_MAX / 4 {
                add(&mut revocations, realm, number, true).expect("another realm");
            }
        }
        let full = add(&mut revocations, "d", 0, true).unwrap_err();
        assert!(full.error.contains("7500"), "{full:?}");
        for number in 5000..5000 + REVOCATIONS_MAX / 4 {
            add(&mut revocations, "a", number, false).expect("room for the operator");
        }
        add(&mut revocations, "a", 1, false).unwrap();
        add(&mut revocations, "a", 9999, false).unwrap_err();
    }

    #[test]
    fn only_a_time_to_come_ends_the_revocation_of_a_name() {
        for (name, end) in [
            ("alice", None),
            ("42", None),
            ("42:alice", None),
            ("1700000000:alice", None),
            ("1900000000:alice", Some(1_900_000_000)),
            ("alice:1900000000", Some(1_900_000_000)),
            ("1900000000:42", Some(1_900_000_000)),
            ("1900000000:2000000000", Some(2_000_000_000)),
            ("1900000000", None),
            ("1900000000-alice", None),
        ] {
            assert_eq!(end_of_name(name, ':', 1_800_000_000), end, "{name}");
        }
    }
}
