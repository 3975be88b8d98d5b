//! Tokens of operators: made at random, known to the server by their hashes alone.
//!
//! The hash is one round of SHA-256. A slow hash protects passwords, which can be guessed from it;
//! a token is 256 random bits, which cannot, and each request would have to wait for a slow one.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use atomic_file::{Access, Owner};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use crate::limits::{TOKEN_BYTES_MAX, TOKEN_FILE_BYTES_MAX, TOKEN_NAME_BYTES_MAX, TOKENS_MAX};
use crate::role::Role;

/// First characters of every token, by which scanners of leaked secrets know it.
const PREFIX: &str = "turnpike_";

/// A token as it is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Token {
    /// Its name, for operators and the log.
    pub name: String,
    /// Its rights.
    pub role: Role,
    /// The only realm that it is for; `None` is the whole server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub realm: Option<String>,
    /// SHA-256 of the whole text, in hexadecimal digits.
    sha256: String,
    /// Creation, in seconds since 1970.
    pub created_unix: u64,
    /// End, in seconds since 1970; `None` is never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_unix: Option<u64>,
}

impl Token {
    /// Returns whether it has expired.
    #[must_use]
    pub fn is_expired(&self, now: SystemTime) -> bool {
        self.expires_unix.is_some_and(|end| seconds(now) >= end)
    }

    /// Its hash, by which one that replaced another of the same name is told from it.
    pub(crate) fn hash(&self) -> &str {
        &self.sha256
    }
}

/// Rights of a new token.
#[derive(Clone, Debug)]
pub struct Rights {
    role: Role,
    realm: Option<String>,
    lifetime: Option<Duration>,
}

impl Rights {
    /// Those of a role, over the whole server and without an end.
    #[must_use]
    pub const fn of(role: Role) -> Self {
        Self { role, realm: None, lifetime: None }
    }

    /// The same, of a realm alone; `None` is the whole server.
    #[must_use]
    pub fn in_realm(self, realm: Option<&str>) -> Self {
        Self { realm: realm.map(str::to_owned), ..self }
    }

    /// The same, for a time; `None` has no end.
    #[must_use]
    pub fn lasting(self, lifetime: Option<Duration>) -> Self {
        Self { lifetime, ..self }
    }
}

/// Error of a change to the tokens.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The name is unusable.
    #[error(
        "\"{0}\" is not a name of a token: write 1 to {TOKEN_NAME_BYTES_MAX} letters, digits, '-', '_' or '.'"
    )]
    Name(String),
    /// There is one of this name.
    #[error("there is a token \"{0}\" already")]
    Exists(String),
    /// There is none of this name.
    #[error("there is no token \"{0}\"")]
    Unknown(String),
    /// There are as many as there may be.
    #[error("there are {TOKENS_MAX} tokens already")]
    Full,
    /// The file cannot be understood.
    #[error("{} is not a file of tokens: {why}", path.display())]
    Broken {
        /// The file.
        path: PathBuf,
        /// Error of its content.
        why: String,
    },
    /// The kernel refused.
    #[error("cannot {what} {}: {source}", path.display())]
    Io {
        /// The operation.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// Error of the kernel.
        source: io::Error,
    },
}

/// The file of the tokens, in the data directory, with mode 0600. Each change replaces it as a
/// whole.
#[derive(Clone, Debug)]
pub struct TokenFile {
    path: PathBuf,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct Content {
    tokens: Vec<Token>,
}

impl TokenFile {
    /// The file at `path`; it need not exist.
    #[must_use]
    pub const fn new(path: PathBuf) -> Self {
        Self { path }
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// All tokens, in the order of their creation.
    ///
    /// # Errors
    /// [`TokenError::Broken`] or [`TokenError::Io`].
    pub fn read(&self) -> Result<Vec<Token>, TokenError> {
        match atomic_file::read_state(&self.path, TOKEN_FILE_BYTES_MAX) {
            Ok(bytes) => {
                let content: Content =
                    serde_json::from_slice(&bytes).map_err(|error| self.broken(&error))?;
                Ok(content.tokens)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) if error.kind() == io::ErrorKind::FileTooLarge => Err(self.broken(&error)),
            Err(source) => Err(self.failed("read", source)),
        }
    }

    /// Makes a token and returns its text, which is not kept.
    ///
    /// # Errors
    /// [`TokenError`]; nothing is changed.
    pub fn add(&self, name: &str, rights: Rights, now: SystemTime) -> Result<String, TokenError> {
        if !is_name(name) {
            return Err(TokenError::Name(name.to_owned()));
        }
        let _lock = self.lock()?;
        let mut tokens = self.read()?;
        if tokens.iter().any(|token| token.name == name) {
            return Err(TokenError::Exists(name.to_owned()));
        }
        if tokens.len() >= TOKENS_MAX {
            return Err(TokenError::Full);
        }
        let text = format!("{PREFIX}{}", random_text().map_err(|e| self.failed("make", e))?);
        let created_unix = seconds(now);
        let expires_unix = rights.lifetime.map(|lifetime| created_unix + lifetime.as_secs());
        tokens.push(Token {
            name: name.to_owned(),
            role: rights.role,
            realm: rights.realm,
            sha256: hash_of(&text),
            created_unix,
            expires_unix,
        });
        self.replace(tokens)?;
        Ok(text)
    }

    /// Removes a token: a running server refuses it from the next request on.
    ///
    /// # Errors
    /// [`TokenError`]; nothing is changed.
    pub fn remove(&self, name: &str) -> Result<(), TokenError> {
        let _lock = self.lock()?;
        let mut tokens = self.read()?;
        let before = tokens.len();
        tokens.retain(|token| token.name != name);
        if tokens.len() == before {
            return Err(TokenError::Unknown(name.to_owned()));
        }
        self.replace(tokens)
    }

    /// Locks the directory against other commands until the file is dropped.
    fn lock(&self) -> Result<File, TokenError> {
        let directory = self.directory();
        let open = || {
            atomic_file::make_missing_directory(directory, Access::PRIVATE_DIRECTORY)?;
            let file = File::open(directory)?;
            file.lock()?;
            Ok(file)
        };
        open().map_err(|source| self.failed("lock the directory of", source))
    }

    fn directory(&self) -> &Path {
        let parent = self.path.parent().filter(|parent| !parent.as_os_str().is_empty());
        parent.unwrap_or_else(|| Path::new("."))
    }

    fn replace(&self, tokens: Vec<Token>) -> Result<(), TokenError> {
        let text =
            serde_json::to_vec_pretty(&Content { tokens }).map_err(|error| self.broken(&error))?;
        // Commands of root write it for a server that may run as another user.
        let access = Access { owner: Owner::Directory, ..Access::PRIVATE };
        atomic_file::replace(&self.path, &text, access)
            .map_err(|source| self.failed("write", source))
    }

    fn failed(&self, what: &'static str, source: io::Error) -> TokenError {
        TokenError::Io { what, path: self.path.clone(), source }
    }

    fn broken(&self, why: &dyn std::fmt::Display) -> TokenError {
        TokenError::Broken { path: self.path.clone(), why: why.to_string() }
    }
}

/// The token with this text. All are compared, each in constant time.
pub(crate) fn find<'a>(tokens: &'a [Token], text: &str) -> Option<&'a Token> {
    if text.len() > TOKEN_BYTES_MAX {
        return None;
    }
    let hash = hash_of(text);
    let mut found = None;
    for token in tokens {
        if bool::from(token.sha256.as_bytes().ct_eq(hash.as_bytes())) {
            found = Some(token);
        }
    }
    found
}

/// 256 random bits as text.
pub(crate) fn random_text() -> io::Result<String> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

/// SHA-256 of a text, in hexadecimal digits.
pub(crate) fn hash_of(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn is_name(name: &str) -> bool {
    (1..=TOKEN_NAME_BYTES_MAX).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use std::fs;

    use super::*;

    struct Directory(PathBuf);

    impl Directory {
        fn new(name: &str) -> Self {
            let name = format!("turnpike-tokens-{name}-{}", std::process::id());
            let path = std::env::temp_dir().join(name);
            let _ = fs::remove_dir_all(&path);
            Self(path)
        }

        fn file(&self) -> TokenFile {
            TokenFile::new(self.0.join("api-tokens.json"))
        }
    }

    impl Drop for Directory {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    const NOW: SystemTime = UNIX_EPOCH;

    #[test]
    fn a_token_is_kept_as_its_hash_and_found_by_its_text() {
        let directory = Directory::new("kept");
        let file = directory.file();
        let text = file.add("page", Rights::of(Role::Operate), NOW).unwrap();
        let other = file
            .add("ci", Rights::of(Role::Read).lasting(Some(Duration::from_secs(60))), NOW)
            .unwrap();
        assert!(text.starts_with(PREFIX) && text.len() == PREFIX.len() + 43 && text != other);
        let kept = fs::read_to_string(file.path()).unwrap();
        assert!(!kept.contains(&text[PREFIX.len()..]), "{kept}");
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(file.path()), mode(&directory.0)), (0o600, 0o700));

        let tokens = file.read().unwrap();
        assert_eq!(find(&tokens, &text).unwrap().name, "page");
        assert_eq!(find(&tokens, &other).unwrap().role, Role::Read);
        assert!(find(&tokens, &text[1..]).is_none() && find(&tokens, "").is_none());
        assert!(!tokens[1].is_expired(NOW + Duration::from_secs(59)));
        assert!(tokens[1].is_expired(NOW + Duration::from_secs(60)));
        assert!(!tokens[0].is_expired(NOW + Duration::from_secs(u32::MAX.into())));

        file.remove("page").unwrap();
        assert!(find(&file.read().unwrap(), &text).is_none());
    }

    #[test]
    fn slips_change_nothing() {
        let directory = Directory::new("slips");
        let file = directory.file();
        assert_eq!(file.read().unwrap(), []);
        file.add("page", Rights::of(Role::Read), NOW).unwrap();
        let before = fs::read(file.path()).unwrap();
        assert!(matches!(
            file.add("page", Rights::of(Role::Admin), NOW),
            Err(TokenError::Exists(_))
        ));
        assert!(matches!(file.remove("pag"), Err(TokenError::Unknown(_))));
        for name in ["", "a b", "a\nb", "ü", &"x".repeat(65)] {
            assert!(matches!(
                file.add(name, Rights::of(Role::Read), NOW),
                Err(TokenError::Name(_))
            ));
        }
        assert_eq!(fs::read(file.path()).unwrap(), before);
        fs::write(file.path(), "{").unwrap();
        assert!(matches!(
            file.add("other", Rights::of(Role::Read), NOW),
            Err(TokenError::Broken { .. })
        ));
        assert_eq!(fs::read(file.path()).unwrap(), b"{");
    }
}
