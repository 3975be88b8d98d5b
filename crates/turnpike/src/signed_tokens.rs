//! Verification of signed tokens (JWT, RFC 7519) of an identity provider, and the provider's keys.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use admin::api::{Signed, SignedTokenError, SignedTokens};
use anyhow::anyhow;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Header, TokenData, Validation, decode, decode_header};
use outgoing_http::{Bounds, Client, Roots, Url};
use serde_json::{Map, Value};
use settings::Settings;
use tokio::sync::Notify;
use turn_proto::UserName;

use crate::authorizer::Limits;
use crate::failure::{Failure, OrFail as _, Result};
use crate::json_object::JsonObject;

mod keys;
mod keys_file;

use self::keys::{Key, Keys};
use self::keys_file::KeysFile;

/// Maximum length of a token in bytes. A token with a dozen claims has a tenth of this length.
const TOKEN_BYTES_MAX: usize = 8 << 10;

/// Tolerated difference of clocks, in seconds.
const LEEWAY: u64 = 30;

/// Interval of fetches of the issuer's keys, while fetches succeed.
const FETCH_EVERY: Duration = Duration::from_hours(1);

/// Minimum interval between two fetches. Tokens that name unknown keys cannot cause more frequent
/// fetches.
const FETCH_AGAIN_AFTER: Duration = Duration::from_mins(1);

/// Maximum age of keys while their URL is silent. An issuer's outage is over by then. A key that
/// the issuer has withdrawn is refused after this time.
const KEYS_AGE_MAX: Duration = Duration::from_hours(24);

/// Bounds of a fetch. The maximum size suffices for some hundred keys.
const FETCH: Bounds = Bounds { deadline: Duration::from_secs(10), body: 256 << 10 };

/// Creates the verifier of a configuration, and starts the tasks that update its keys. Returns
/// `None` if signed tokens are not configured.
///
/// # Errors
/// The file of keys or a certificate file cannot be read, or the client cannot be built.
pub(crate) fn start(settings: &Settings) -> Result<Option<Arc<dyn SignedTokens>>> {
    let wanted = &settings.signed_tokens;
    let (Some(issuer), Some(audience)) = (&wanted.issuer, &wanted.audience) else {
        return Ok(None);
    };
    let mut fixed = Vec::new();
    if let Some(secret) = &settings.signed_secret {
        fixed.push(Key::of_secret(secret.expose()));
    }
    let verifier = Arc::new(Verifier {
        issuer: issuer.to_string(),
        audience: audience.to_string(),
        user_claim: wanted.user_claim.to_string(),
        fixed: Keys::new(fixed),
        // An unreadable file at the start is an error of configuration. Later the known keys are
        // retained.
        file: settings.issuer_keys().map(KeysFile::open).transpose()?,
        fetched: wanted.keys_url.is_some().then(RwLock::default),
        fetch_now: Notify::new(),
    });
    if verifier.file.is_some() {
        tokio::spawn(keys_file::watch(Arc::clone(&verifier)));
    }
    if let Some(url) = &wanted.keys_url {
        let roots = match settings.issuer_authorities() {
            None => Roots::public(),
            Some(file) => Roots::read(&file).map_err(|error| {
                Failure::failed(anyhow!("signed_tokens.authorities: {error}"))
                    .hint("name a PEM file with the certificates of the authorities")
            })?,
        };
        let client = Client::new(&roots).or_fail("cannot fetch the issuer's keys")?;
        let url = Url::parse(url.as_str()).or_fail("signed_tokens.keys_url")?;
        tokio::spawn(fetch(Arc::clone(&verifier), client, url));
    }
    Ok(Some(verifier))
}

#[derive(Debug)]
struct Verifier {
    issuer: String,
    audience: String,
    user_claim: String,
    /// Shared secret, if configured.
    fixed: Keys,
    file: Option<KeysFile>,
    /// Keys of the URL. `None` without a URL. The inner `None` means that no fetch has succeeded
    /// yet.
    fetched: Option<RwLock<Option<FetchedKeys>>>,
    /// Notified if a token was signed with an unknown key.
    fetch_now: Notify,
}

/// Keys of the URL, and the time of the fetch.
#[derive(Clone, Debug)]
struct FetchedKeys {
    keys: Arc<Keys>,
    at: Instant,
}

/// Reason why a key does not verify a token.
enum ClaimsError {
    /// The signature does not match the key.
    Signature,
    /// The signature matches the key, and the claims are invalid.
    Claims(String),
}

impl SignedTokens for Verifier {
    fn verify(&self, token: &str) -> std::result::Result<Signed, SignedTokenError> {
        self.verify_at(token, Instant::now())
    }
}

impl Verifier {
    fn verify_at(
        &self,
        token: &str,
        now: Instant,
    ) -> std::result::Result<Signed, SignedTokenError> {
        let denied = |why: &str| SignedTokenError::Denied(why.to_owned());
        if token.len() > TOKEN_BYTES_MAX {
            return Err(denied(&format!("it is longer than {TOKEN_BYTES_MAX} bytes")));
        }
        let header = decode_header(token).map_err(|_| denied("it is no token of RFC 7519"))?;
        if has_critical_extensions(token) {
            return Err(denied("it has critical extensions (crit), and none is understood here"));
        }
        let of_file = self.file.as_ref().map(KeysFile::keys).unwrap_or_default();
        let fetched = self.fetched_keys(now);
        let of_url = fetched.clone().ok().flatten().unwrap_or_default();
        let sets = [&self.fixed, &of_file, &of_url];
        let mut candidates = sets.into_iter().flat_map(|keys| keys.of(&header)).peekable();
        if candidates.peek().is_none() {
            self.fetch_now.notify_one();
            fetched.map_err(|why| SignedTokenError::Unavailable(why.to_owned()))?;
            return Err(denied("it is signed with an unknown key"));
        }
        let (mut why, mut is_named) = (String::new(), false);
        for key in candidates {
            match self.claims(token, &header, key) {
                Ok(claims) => return self.read(&claims).map_err(SignedTokenError::Denied),
                Err(ClaimsError::Signature) => is_named |= key.is_named_by(&header),
                Err(ClaimsError::Claims(error)) => why = error,
            }
        }
        if !why.is_empty() {
            return Err(SignedTokenError::Denied(why));
        }
        // The token may be signed with an unknown key, unless the token names this key.
        if !is_named {
            self.fetch_now.notify_one();
            fetched.map_err(|why| SignedTokenError::Unavailable(why.to_owned()))?;
        }
        Err(denied("its signature is of no known key"))
    }

    /// Returns the keys of the URL, or `None` without a URL.
    ///
    /// # Errors
    /// The keys were never fetched, or are older than [`KEYS_AGE_MAX`].
    fn fetched_keys(&self, now: Instant) -> std::result::Result<Option<Arc<Keys>>, &'static str> {
        let Some(fetched) = &self.fetched else { return Ok(None) };
        match &*fetched.read().unwrap_or_else(PoisonError::into_inner) {
            None => Err("the keys of its issuer could not be fetched yet"),
            Some(fetched) if now.saturating_duration_since(fetched.at) > KEYS_AGE_MAX => {
                Err("the keys of its issuer could not be fetched for a day")
            }
            Some(fetched) => Ok(Some(Arc::clone(&fetched.keys))),
        }
    }

    /// Returns the claims of a token that was signed with `key`.
    fn claims(
        &self,
        token: &str,
        header: &Header,
        key: &Key,
    ) -> std::result::Result<Map<String, Value>, ClaimsError> {
        // The key's algorithm is used rather than the token's. Both are equal, because the key was
        // selected by the token's algorithm.
        let mut validation = Validation::new(key.algorithm());
        debug_assert_eq!(header.alg, key.algorithm(), "the key was chosen by it");
        validation.set_issuer(&[&self.issuer]);
        validation.set_audience(&[&self.audience]);
        validation.set_required_spec_claims(&["exp", "iss", "aud"]);
        validation.leeway = LEEWAY;
        validation.validate_nbf = true;
        let data: TokenData<Map<String, Value>> = decode(token, key.decoding(), &validation)
            .map_err(|error| {
                if matches!(error.kind(), ErrorKind::InvalidSignature) {
                    ClaimsError::Signature
                } else {
                    ClaimsError::Claims(error.to_string())
                }
            })?;
        // The library accepts a list that contains the issuer, and RFC 7519 §4.1.1 permits only a
        // string.
        if !data.claims.get("iss").is_some_and(Value::is_string) {
            return Err(ClaimsError::Claims("its claim iss is no text".to_owned()));
        }
        Ok(data.claims)
    }

    fn read(&self, claims: &Map<String, Value>) -> std::result::Result<Signed, String> {
        let user = match claims.get(&self.user_claim) {
            Some(Value::String(name)) => name.clone(),
            Some(Value::Number(number)) => number.to_string(),
            Some(_) | None => return Err(format!("its claim {} names no user", self.user_claim)),
        };
        let name = UserName::new(&user);
        let user = name.map_err(|error| format!("its claim {} {error}", self.user_claim))?;
        let limits = match claims.get("turn") {
            None => Limits::default(),
            Some(limits) => serde_json::from_value::<JsonObject<Limits>>(limits.clone())
                .map(|JsonObject(limits)| limits)
                .map_err(|error| format!("its claim turn is not understood: {error}"))?,
        };
        let limits =
            limits.read().map_err(|error| format!("its claim turn is not understood: {error}"))?;
        Ok(Signed { user: user.into_string(), limits })
    }
}

/// Returns true if the header of a token contains `crit`, with any value. The library treats `null`
/// as absent.
fn has_critical_extensions(token: &str) -> bool {
    let header = token.split('.').next().unwrap_or_default();
    let header = URL_SAFE_NO_PAD.decode(header).unwrap_or_default();
    let header: Map<String, Value> = serde_json::from_slice(&header).unwrap_or_default();
    header.contains_key("crit")
}

/// Fetches the issuer's keys at the start, at intervals, and when a token was signed with an
/// unknown key.
async fn fetch(verifier: Arc<Verifier>, client: Client, url: Url) {
    let (mut is_failing, mut is_told) = (false, false);
    loop {
        let began = Instant::now();
        let result = client.get(&url, &[], FETCH).await.map_err(|error| error.to_string());
        let keys = result.and_then(|response| match response.status {
            200 => Keys::read(&response.body),
            other => Err(format!("it answers with status {other}")),
        });
        match keys {
            Ok(keys) => {
                is_told = false;
                if std::mem::take(&mut is_failing) {
                    tracing::info!("the keys of signed tokens were fetched again");
                }
                let keys = FetchedKeys { keys: Arc::new(keys), at: began };
                if let Some(fetched) = &verifier.fetched {
                    *fetched.write().unwrap_or_else(PoisonError::into_inner) = Some(keys);
                }
            }
            Err(why) if !is_failing => {
                is_failing = true;
                tracing::warn!(
                    "the keys of signed tokens cannot be fetched from {url} ({why}): the known ones stay for a day"
                );
            }
            Err(why) if !is_told && verifier.fetched_keys(began).is_err() => {
                is_told = true;
                tracing::warn!(
                    "the keys of signed tokens cannot be fetched from {url} ({why}): no token of its keys is accepted"
                );
            }
            Err(_) => {}
        }
        let next = if is_failing { FETCH_AGAIN_AFTER } else { FETCH_EVERY };
        tokio::select! {
            () = tokio::time::sleep(next) => {}
            () = verifier.fetch_now.notified() => {}
        }
        tokio::time::sleep(FETCH_AGAIN_AFTER.saturating_sub(began.elapsed())).await;
    }
}

#[cfg(test)]
mod tests;
