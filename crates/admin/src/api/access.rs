//! Callers over the network: by the token of a request, or by the cookie of a browser that signed
//! in with one.

use std::collections::VecDeque;
use std::fs;
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use fair_share::{CLIENTS, Claimant, Meter, system_hasher};
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::timeout;

use crate::api::queries::Queries;
use crate::api::tokens::{self, Token, TokenFile};
use crate::holder::Holder;
use crate::limits::{SIGNED_IN, SIGNED_IN_MAX, TOKENS_READ_WITHIN, WRONG_TOKENS_PER_MINUTE};
use crate::role::Role;
use crate::signed::{SignedTokenError, SignedTokens};

/// Interval in which wrong tokens are counted.
const MINUTE: Duration = Duration::from_mins(1);

/// Why a caller is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unknown {
    /// No token, or a wrong or expired one.
    Wrong,
    /// The same, once more after many.
    TooMany,
}

/// Reason why a signed token has no holder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SignedRefusal {
    /// The token is wrong.
    Denied(Unknown, String),
    /// Nothing can be said about it at this time.
    Unavailable(String),
}

/// The tokens in force, the browsers that signed in, and wrong tokens by source.
#[derive(Debug)]
pub struct Access {
    file: TokenFile,
    tokens: Mutex<Known>,
    reading: tokio::sync::Mutex<Option<Reading>>,
    browsers: Mutex<VecDeque<Browser>>,
    wrong: Mutex<Meter>,
    /// Epoch of the meter.
    started: Instant,
    signed: Option<Arc<dyn SignedTokens>>,
    /// Sites of which pages may ask for credentials.
    origins: Vec<String>,
    queries: Queries,
    changes: Queries,
}

/// The tokens of the file as it was.
#[derive(Debug, Default)]
struct Known {
    seen: Option<FileVersion>,
    tokens: Vec<Token>,
}

/// Inode, length and time of the last change.
type FileVersion = (u64, u64, SystemTime);

/// Read of the file on another thread.
#[derive(Debug)]
struct Reading {
    started: Instant,
    read: JoinHandle<Option<Known>>,
}

#[derive(Debug)]
struct Browser {
    /// Hash of its cookie.
    cookie: String,
    /// Hash of the token that it signed in with.
    token: String,
    until: Instant,
}

impl Access {
    /// The tokens in the file at `path`. It is read again when it has changed.
    #[must_use]
    pub fn new(path: PathBuf) -> Self {
        Self {
            file: TokenFile::new(path),
            tokens: Mutex::default(),
            reading: tokio::sync::Mutex::default(),
            browsers: Mutex::default(),
            wrong: Mutex::new(Meter::new(&CLIENTS, system_hasher())),
            started: Instant::now(),
            signed: None,
            origins: Vec::new(),
            queries: Queries::default(),
            changes: Queries::default(),
        }
    }

    /// Running and waiting queries.
    pub(crate) const fn queries(&self) -> &Queries {
        &self.queries
    }

    /// Running and waiting changes.
    pub(crate) const fn changes(&self) -> &Queries {
        &self.changes
    }

    /// The same that lets pages of other sites ask for credentials, with a token that they show
    /// themselves. An origin is written as browsers send it (RFC 6454 §6.2).
    #[must_use]
    pub fn with_origins(self, origins: Vec<String>) -> Self {
        Self { origins, ..self }
    }

    /// Returns true if pages of this origin may ask for credentials.
    pub(crate) fn takes_origin(&self, origin: &str) -> bool {
        self.origins.iter().any(|one| one == origin)
    }

    /// The same that takes signed tokens for credentials as well.
    #[must_use]
    pub fn with_signed_tokens(self, verifier: Arc<dyn SignedTokens>) -> Self {
        Self { signed: Some(verifier), ..self }
    }

    /// Returns true if a text may be a signed token, and these are taken.
    pub(crate) fn takes_signed(&self, text: &str) -> bool {
        self.signed.is_some() && text.bytes().filter(|byte| *byte == b'.').count() == 2
    }

    /// The holder of a signed token, who may ask for a credential and for nothing else.
    pub(crate) fn by_signed_token(
        &self,
        text: &str,
        from: IpAddr,
    ) -> Result<Holder, SignedRefusal> {
        let Some(verifier) = &self.signed else {
            return Err(SignedRefusal::Denied(Unknown::Wrong, String::new()));
        };
        match verifier.verify(text) {
            Ok(signed) => Ok(Holder {
                // No token has a blank in its name, nor so its rate.
                name: format!("signed token of {}", signed.user),
                role: Role::Mint,
                realm: None,
                signed: Some(Arc::new(signed)),
            }),
            Err(SignedTokenError::Denied(why)) => {
                Err(SignedRefusal::Denied(self.count_wrong(from), why))
            }
            Err(SignedTokenError::Unavailable(why)) => Err(SignedRefusal::Unavailable(why)),
        }
    }

    /// The holder of a token.
    pub(crate) fn by_token(&self, text: &str, from: IpAddr) -> Result<Holder, Unknown> {
        let now = SystemTime::now();
        let known = lock(&self.tokens);
        let valid = tokens::find(&known.tokens, text).filter(|token| !token.is_expired(now));
        match valid {
            Some(token) => Ok(holder(token)),
            None => Err(self.count_wrong(from)),
        }
    }

    /// The holder of the token that a browser signed in with. One that was removed or has expired
    /// ends it.
    pub(crate) fn by_cookie(&self, cookie: &str) -> Result<Holder, Unknown> {
        let hash = tokens::hash_of(cookie);
        let token = {
            let mut browsers = lock(&self.browsers);
            browsers.retain(|browser| browser.until > Instant::now());
            // Of a secret only its hash is compared, of which nobody can choose the beginning.
            let browser = browsers.iter().find(|browser| browser.cookie == hash);
            browser.map(|browser| browser.token.clone()).ok_or(Unknown::Wrong)?
        };
        let now = SystemTime::now();
        let known = lock(&self.tokens);
        let valid = known.tokens.iter().find(|one| one.hash() == token && !one.is_expired(now));
        valid.map(holder).ok_or(Unknown::Wrong)
    }

    /// Signs a browser in. Returns the value of its cookie and the holder of the token.
    pub(crate) fn sign_in(&self, text: &str, from: IpAddr) -> Result<(String, Holder), Unknown> {
        let holder = self.by_token(text, from)?;
        // Without randomness there is no secret.
        let cookie = tokens::random_text().map_err(|_| Unknown::Wrong)?;
        let mut browsers = lock(&self.browsers);
        if browsers.len() >= SIGNED_IN_MAX {
            let place = oldest_of_the_busiest_token(&browsers);
            browsers.remove(place);
            tracing::info!(
                by = holder.name,
                "api: a browser signed in, and another was signed out, as there are as many as may be"
            );
        }
        browsers.push_back(Browser {
            cookie: tokens::hash_of(&cookie),
            token: tokens::hash_of(text),
            until: Instant::now() + SIGNED_IN,
        });
        Ok((cookie, holder))
    }

    /// Forgets a browser.
    pub(crate) fn sign_out(&self, cookie: &str) {
        let hash = tokens::hash_of(cookie);
        lock(&self.browsers).retain(|browser| browser.cookie != hash);
    }

    /// Reads the tokens on another thread if the file has changed. A file that cannot be read has
    /// none. Must precede each use of a token.
    ///
    /// There is one read at a time. While a disk hangs, no token is accepted, and only the first
    /// request waits.
    pub(crate) async fn refresh(&self) {
        let mut reading = self.reading.lock().await;
        // A read in progress may be from before a change.
        if let Some(earlier) = &mut *reading
            && !self.finish(earlier).await
        {
            return;
        }
        let (file, seen) = (self.file.clone(), lock(&self.tokens).seen);
        let read = spawn_blocking(move || read_changed(&file, seen));
        let next = reading.insert(Reading { started: Instant::now(), read });
        if self.finish(next).await {
            *reading = None;
        }
    }

    /// Waits for a read, and puts its tokens into effect. Returns false at the deadline.
    async fn finish(&self, Reading { started, read }: &mut Reading) -> bool {
        let left = TOKENS_READ_WITHIN.saturating_sub(started.elapsed());
        match timeout(left, read).await {
            Ok(Ok(None)) => true,
            Ok(Ok(Some(known))) => {
                *lock(&self.tokens) = known;
                true
            }
            Ok(Err(_)) => {
                *lock(&self.tokens) = Known::default();
                true
            }
            Err(_) => {
                let known = std::mem::take(&mut *lock(&self.tokens));
                if !known.tokens.is_empty() {
                    tracing::error!("no token is accepted: the disk does not return their file");
                }
                false
            }
        }
    }

    /// Counts a wrong token of a source. A valid one of the same source is still accepted: behind a
    /// tunnel or a NAT it is not the same person, and tokens cannot be guessed.
    fn count_wrong(&self, from: IpAddr) -> Unknown {
        let now = turn_types::Instant::ZERO + self.started.elapsed();
        let cost = MINUTE / WRONG_TOKENS_PER_MINUTE;
        let is_within = lock(&self.wrong).spend(now, &Claimant::at(from), cost, MINUTE);
        if is_within { Unknown::Wrong } else { Unknown::TooMany }
    }
}

/// Returns the index of the oldest browser of the token with most browsers. One token's holder
/// signs out no other holder.
fn oldest_of_the_busiest_token(browsers: &VecDeque<Browser>) -> usize {
    let count_of = |token: &str| browsers.iter().filter(|browser| browser.token == token).count();
    // Of equal ones the last of the reversed: the oldest.
    let counts = browsers.iter().map(|browser| count_of(&browser.token)).enumerate();
    counts.rev().max_by_key(|(_, count)| *count).map_or(0, |(place, _)| place)
}

/// Reads a file that has changed. Blocks.
fn read_changed(file: &TokenFile, seen: Option<FileVersion>) -> Option<Known> {
    let meta = fs::metadata(file.path()).ok();
    let now = meta.and_then(|meta| Some((meta.ino(), meta.len(), meta.modified().ok()?)));
    if now == seen {
        return None;
    }
    let tokens = file.read().unwrap_or_else(|error| {
        tracing::error!(%error, "no token is accepted: their file cannot be read");
        Vec::new()
    });
    Some(Known { seen: now, tokens })
}

fn holder(token: &Token) -> Holder {
    Holder { name: token.name.clone(), role: token.role, realm: token.realm.clone(), signed: None }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;

    use super::*;
    use crate::api::tokens::Rights;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn access(name: &str) -> (Access, TokenFile) {
        let name = format!("turnpike-access-{name}-{}.json", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = fs::remove_file(&path);
        (Access::new(path.clone()), TokenFile::new(path))
    }

    #[tokio::test]
    async fn a_removed_token_ends_its_browsers() {
        let (access, file) = access("browsers");
        let token = file.add("page", Rights::of(Role::Read), SystemTime::now()).unwrap();
        access.refresh().await;
        let (cookie, holder) = access.sign_in(&token, HERE).unwrap();
        let expected = Holder { name: "page".into(), role: Role::Read, realm: None, signed: None };
        assert_eq!(holder, expected);
        assert_eq!(access.by_cookie(&cookie), Ok(holder));
        assert_eq!(access.by_cookie(&token), Err(Unknown::Wrong));
        file.remove("page").unwrap();
        file.add("page", Rights::of(Role::Admin), SystemTime::now()).unwrap();
        access.refresh().await;
        assert_eq!(access.by_cookie(&cookie), Err(Unknown::Wrong), "another token of this name");
        assert_eq!(access.by_token(&token, HERE), Err(Unknown::Wrong));
        fs::remove_file(file.path()).unwrap();
    }

    #[tokio::test]
    async fn an_expired_token_is_refused_and_a_signed_out_browser_too() {
        let (access, file) = access("expired");
        let past = SystemTime::now() - Duration::from_secs(20);
        let old = file
            .add("old", Rights::of(Role::Read).lasting(Some(Duration::from_secs(10))), past)
            .unwrap();
        let token = file.add("new", Rights::of(Role::Read), past).unwrap();
        access.refresh().await;
        assert_eq!(access.by_token(&old, HERE), Err(Unknown::Wrong));
        let (cookie, _) = access.sign_in(&token, HERE).unwrap();
        access.sign_out(&cookie);
        assert_eq!(access.by_cookie(&cookie), Err(Unknown::Wrong));
        let cookies: Vec<_> =
            (0..=SIGNED_IN_MAX).map(|_| access.sign_in(&token, HERE).unwrap().0).collect();
        assert_eq!(access.by_cookie(&cookies[0]), Err(Unknown::Wrong), "the oldest makes room");
        assert!(access.by_cookie(&cookies[SIGNED_IN_MAX]).is_ok());
        fs::remove_file(file.path()).unwrap();
    }

    #[tokio::test]
    async fn a_token_with_many_browsers_signs_out_only_its_own() {
        let (access, file) = access("shares");
        let add = |name| file.add(name, Rights::of(Role::Read), SystemTime::now()).unwrap();
        let (token, other) = (add("page"), add("other"));
        access.refresh().await;
        let (cookie, _) = access.sign_in(&token, HERE).unwrap();
        let others: Vec<_> =
            (0..2 * SIGNED_IN_MAX).map(|_| access.sign_in(&other, HERE).unwrap().0).collect();
        assert!(access.by_cookie(&cookie).is_ok());
        assert_eq!(access.by_cookie(&others[0]), Err(Unknown::Wrong));
        assert!(access.by_cookie(&others[2 * SIGNED_IN_MAX - 1]).is_ok());
        fs::remove_file(file.path()).unwrap();
    }

    #[tokio::test]
    async fn many_wrong_tokens_are_told_so_and_a_right_one_is_accepted() {
        let (access, file) = access("wrong");
        let token = file.add("page", Rights::of(Role::Read), SystemTime::now()).unwrap();
        access.refresh().await;
        for _ in 0..WRONG_TOKENS_PER_MINUTE {
            assert_eq!(access.by_token("guess", HERE), Err(Unknown::Wrong));
        }
        assert_eq!(access.by_token("guess", HERE), Err(Unknown::TooMany));
        assert!(access.by_token(&token, HERE).is_ok());
        assert_eq!(access.by_token("guess", "192.0.2.1".parse().unwrap()), Err(Unknown::Wrong));
        // A site with many addresses is refused as well, and no other client.
        let site =
            |number: u128| IpAddr::V6(Ipv6Addr::from_bits(0x2001_0db8_0001 << 80 | number << 64));
        let told = (0..2000)
            .filter(|number| access.by_token("guess", site(*number)) == Err(Unknown::TooMany));
        assert!(told.count() > 1500);
        for other in ["192.0.2.2", "2001:db9::1", "203.0.113.1"] {
            assert_eq!(access.by_token("guess", other.parse().unwrap()), Err(Unknown::Wrong));
        }
        fs::remove_file(file.path()).unwrap();
    }

    /// Tokens may have been removed while the disk hangs.
    #[tokio::test]
    async fn a_disk_that_hangs_denies_everybody_and_blocks_nobody() {
        let (access, file) = access("hangs");
        let token = file.add("page", Rights::of(Role::Read), SystemTime::now()).unwrap();
        access.refresh().await;
        assert!(access.by_token(&token, HERE).is_ok());
        let (release, hangs) = std::sync::mpsc::channel::<()>();
        let read = spawn_blocking(move || {
            let _ = hangs.recv();
            None
        });
        let started = Instant::now() - TOKENS_READ_WITHIN;
        *access.reading.lock().await = Some(Reading { started, read });
        for _ in 0..3 {
            access.refresh().await;
            assert_eq!(access.by_token(&token, HERE), Err(Unknown::Wrong));
        }
        drop(release);
        while access.by_token(&token, HERE).is_err() {
            access.refresh().await;
        }
        fs::remove_file(file.path()).unwrap();
    }
}
