//! An order of a certificate: account, verification of the names, the certificate.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use instant_acme::{
    Account, AuthorizationStatus, ChallengeHandle, ChallengeType, Identifier, NewAccount, NewOrder,
    OrderStatus, RetryPolicy,
};
use outgoing_http::Roots;
use rcgen::{CertificateParams, CustomExtension, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use turn_session::{Certificate, Challenges};

use crate::error::AcmeError;
use crate::http::Https;
use crate::limits::{ORDER, ORDERS_WITH_REFUSED_NONCES_MAX, POLL, VERIFICATION};
use crate::problem::described;
use crate::store::Store;

/// Lifetime below which a new certificate does not replace a longer certificate: the shortest
/// lifetime that authorities issue is six days.
const SHORT: Duration = Duration::from_hours(24);

/// Means by which the authority verifies a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Challenge {
    /// A request to port 80 (RFC 8555 §8.3).
    Http01,
    /// A TLS handshake at port 443 (RFC 8737).
    TlsAlpn01,
}

impl Challenge {
    /// Its name in the RFCs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Http01 => "http-01",
            Self::TlsAlpn01 => "tls-alpn-01",
        }
    }

    const fn kind(self) -> ChallengeType {
        match self {
            Self::Http01 => ChallengeType::Http01,
            Self::TlsAlpn01 => ChallengeType::TlsAlpn01,
        }
    }
}

/// An order.
#[derive(Clone, Debug)]
pub struct Order {
    /// Names for the certificate.
    pub names: Vec<String>,
    /// URL of the authority's directory (RFC 8555 §7.1.1).
    pub directory: String,
    /// Mail address for the authority's messages about the account.
    pub contact: Option<String>,
    /// Authorities that sign the certificate of the authority's web server.
    pub roots: Roots,
    /// Means of verification.
    pub challenge: Challenge,
}

impl Order {
    /// Orders a certificate and stores it. Answers to challenges are pending meanwhile.
    ///
    /// # Errors
    /// The authority cannot be reached, or refuses, or cannot verify a name; a file cannot be
    /// written. The stored certificate is still the previous one then.
    pub async fn place(&self, store: &Store, challenges: &Challenges) -> Result<(), AcmeError> {
        let order = again_with_new_nonces(|| self.place_unhurried(store, challenges));
        let placed = tokio::time::timeout(ORDER, order).await;
        challenges.clear();
        placed.map_err(|_| AcmeError::TooSlow)?
    }

    async fn place_unhurried(
        &self,
        store: &Store,
        challenges: &Challenges,
    ) -> Result<(), AcmeError> {
        let account = self.account(store).await?;
        let names: Vec<_> = self.names.iter().cloned().map(Identifier::Dns).collect();
        let mut order = account.new_order(&NewOrder::new(&names)).await?;
        let mut authorizations = order.authorizations();
        while let Some(authorization) = authorizations.next().await {
            let mut authorization = authorization?;
            // A name that was verified lately need not be again.
            if authorization.status == AuthorizationStatus::Valid {
                continue;
            }
            let name = authorization.identifier().to_string();
            let mut challenge =
                authorization.challenge(self.challenge.kind()).ok_or_else(|| {
                    AcmeError::NotOffered { name: name.clone(), by: self.challenge.name() }
                })?;
            self.answer(&name, &challenge, challenges)?;
            challenge.set_ready().await?;
        }
        let polls = RetryPolicy::new().initial_delay(POLL).timeout(VERIFICATION);
        match order.poll_ready(&polls).await {
            Ok(OrderStatus::Ready) => {}
            Ok(_) | Err(instant_acme::Error::Api(_)) => return Err(self.reason(&mut order).await),
            Err(error) => return Err(error.into()),
        }
        let key = order.finalize().await?;
        let chain = order.poll_certificate(&polls).await?;
        let now = SystemTime::now();
        let ends = check(&chain, &key, &self.names, now)?;
        let (store, names) = (store.clone(), self.names.clone());
        saved(move || {
            if ends < now + SHORT && store.outlasts(&names, ends) {
                let why = "it ends within a day, and before the present one".to_owned();
                return Err(AcmeError::Unusable(why));
            }
            store.save_certificate(&chain, &key)
        })
        .await
    }

    /// The account at the authority, which is created when there is none.
    async fn account(&self, store: &Store) -> Result<Account, AcmeError> {
        let builder =
            || Ok::<_, AcmeError>(Account::builder_with_http(Box::new(Https::new(&self.roots)?)));
        let (files, directory) = (store.clone(), self.directory.clone());
        let stored = tokio::task::spawn_blocking(move || files.account(&directory)).await;
        if let Ok(Some(stored)) = stored
            && let Ok(credentials) = serde_json::from_value(stored)
        {
            return Ok(builder()?.from_credentials(credentials).await?);
        }
        let contact: Vec<String> =
            self.contact.iter().map(|mail| format!("mailto:{mail}")).collect();
        let contact: Vec<&str> = contact.iter().map(String::as_str).collect();
        let new = NewAccount {
            contact: &contact,
            terms_of_service_agreed: true,
            only_return_existing: false,
        };
        let (account, credentials) = builder()?.create(&new, self.directory.clone(), None).await?;
        let credentials = serde_json::to_value(credentials)
            .map_err(|error| AcmeError::Authority(error.to_string()))?;
        let store = store.clone();
        saved(move || store.save_account(&credentials)).await?;
        Ok(account)
    }

    /// Makes the answer to a challenge pending.
    fn answer(
        &self,
        name: &str,
        challenge: &ChallengeHandle<'_>,
        challenges: &Challenges,
    ) -> Result<(), AcmeError> {
        let authorization = challenge.key_authorization();
        match self.challenge {
            Challenge::Http01 => {
                challenges.answer_http(challenge.token.clone(), authorization.as_str().to_owned());
                Ok(())
            }
            Challenge::TlsAlpn01 => {
                let made = answer_tls(name, authorization.digest().as_ref());
                let (certificate, key) =
                    made.map_err(|error| AcmeError::Answer(error.to_string()))?;
                challenges
                    .answer_tls(name, certificate.der().clone(), key)
                    .map_err(|error| AcmeError::Answer(error.to_string()))
            }
        }
    }

    /// The authority's reason for not verifying a name.
    async fn reason(&self, order: &mut instant_acme::Order) -> AcmeError {
        let mut authorizations = order.authorizations();
        while let Some(Ok(mut authorization)) = authorizations.next().await {
            if authorization.refresh().await.is_err() {
                continue;
            }
            let failed = authorization.challenges.iter().find_map(|one| one.error.as_ref());
            if let Some(problem) = failed {
                return AcmeError::NotVerified {
                    name: authorization.identifier().to_string(),
                    by: self.challenge.name(),
                    why: described(problem),
                };
            }
        }
        AcmeError::Authority("the certificate authority found the order invalid".to_owned())
    }
}

/// Writes a file on another thread, so a disk that hangs delays only the order.
async fn saved(
    save: impl FnOnce() -> Result<(), AcmeError> + Send + 'static,
) -> Result<(), AcmeError> {
    let saved = tokio::task::spawn_blocking(save).await;
    saved.unwrap_or_else(|error| Err(AcmeError::Answer(error.to_string())))
}

/// Checks an issued certificate before the stored certificate is replaced. The chain must parse.
/// The key must belong to the first certificate, which must be valid now, name all `names`, and be
/// signed by another one of the chain. Returns the time of its end.
fn check(
    chain: &str,
    key: &str,
    names: &[String],
    now: SystemTime,
) -> Result<SystemTime, AcmeError> {
    let unusable = |why: String| AcmeError::Unusable(why);
    let certificate = Certificate::read(chain.as_bytes(), key.as_bytes())
        .map_err(|error| unusable(error.to_string()))?;
    if let Some(name) = names.iter().find(|name| !certificate.is_for(name)) {
        return Err(unusable(format!("it is not for {name}")));
    }
    let now = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let now = i64::try_from(now).unwrap_or(i64::MAX);
    if certificate.expires() <= now {
        return Err(unusable("it has expired, by this host's clock".to_owned()));
    }
    if certificate.starts() > now {
        return Err(unusable("it is not valid yet, by this host's clock".to_owned()));
    }
    if !certificate.is_signed_by_chain() {
        return Err(unusable("no other certificate of its chain has signed it".to_owned()));
    }
    Ok(UNIX_EPOCH + Duration::from_secs(certificate.expires().unsigned_abs()))
}

/// Repeats an order while the authority refuses its nonces, which says nothing about the order (RFC
/// 8555 §6.5).
async fn again_with_new_nonces<T, Placed>(mut order: impl FnMut() -> Placed) -> Result<T, AcmeError>
where
    Placed: Future<Output = Result<T, AcmeError>>,
{
    for _ in 1..ORDERS_WITH_REFUSED_NONCES_MAX {
        match order().await {
            Err(AcmeError::Nonce(_)) => {}
            done => return done,
        }
    }
    order().await
}

/// The certificate that answers a TLS-ALPN-01 challenge (RFC 8737 §3), and its key.
fn answer_tls(
    name: &str,
    digest: &[u8],
) -> Result<(rcgen::Certificate, PrivateKeyDer<'static>), rcgen::Error> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new([name.to_owned()])?;
    params.custom_extensions = vec![CustomExtension::new_acme_identifier(digest)];
    let certificate = params.self_signed(&key)?;
    Ok((certificate, PrivateKeyDer::Pkcs8(key.serialize_der().into())))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use instant_acme::Error;

    use super::*;

    /// The error of a request that was refused with this type of problem.
    fn refused(kind: &str) -> AcmeError {
        let problem = format!(r#"{{"type":"urn:ietf:params:acme:error:{kind}","detail":"no"}}"#);
        Error::Api(serde_json::from_str(&problem).expect("a problem")).into()
    }

    /// Number of orders, and the result, where the first ones are refused with these types of
    /// problems.
    async fn orders(problems: &[&str]) -> (usize, Result<(), String>) {
        let placed = Cell::new(0);
        let result = again_with_new_nonces(|| {
            placed.set(placed.get() + 1);
            let problem = problems.get(placed.get() - 1);
            std::future::ready(problem.map_or(Ok(()), |kind| Err(refused(kind))))
        });
        let result = result.await.map_err(|error| error.to_string());
        (placed.get(), result)
    }

    #[test]
    fn a_certificate_that_is_of_no_use_is_not_stored() {
        let names = ["turn.example.org".to_owned()];
        let issue = |name: &str, from: i32, to: i32| {
            let mut params = CertificateParams::new([name.to_owned()]).expect("a name");
            params.not_before = rcgen::date_time_ymd(from, 1, 1);
            params.not_after = rcgen::date_time_ymd(to, 1, 1);
            let key = KeyPair::generate().expect("a key");
            (params.self_signed(&key).expect("a certificate").pem(), key.serialize_pem())
        };
        // 2026-06-01.
        let now = UNIX_EPOCH + Duration::from_secs(1_780_272_000);
        let (chain, key) = issue("turn.example.org", 2026, 2027);
        check(&chain, &key, &names, now).expect("a usable one");
        let (_, other_key) = issue("turn.example.org", 2026, 2027);
        let [of_other, expired, future] = [
            issue("other.example.org", 2026, 2027),
            issue("turn.example.org", 2024, 2025),
            issue("turn.example.org", 2027, 2028),
        ];
        let nonsense = "<html>maintenance</html>".to_owned();
        let (foreign, foreign_key) = issue("turn.example.org", 2026, 2027);
        let foreign = foreign + &of_other.0;
        for (chain, key, why) in [
            (nonsense, key, "no certificate"),
            (chain, other_key, "keys"),
            (of_other.0, of_other.1, "not for turn.example.org"),
            (expired.0, expired.1, "has expired"),
            (future.0, future.1, "not valid yet"),
            (foreign, foreign_key, "has signed it"),
        ] {
            let error = check(&chain, &key, &names, now).expect_err(why).to_string();
            assert!(error.contains("of no use") && error.contains(why), "{error}");
        }
    }

    #[tokio::test]
    async fn an_order_is_placed_again_while_nonces_are_refused() {
        assert_eq!(orders(&[]).await, (1, Ok(())));
        assert_eq!(orders(&["badNonce"]).await, (2, Ok(())));
        assert_eq!(orders(&["badNonce"; 2]).await, (3, Ok(())));
        let (placed, result) = orders(&["badNonce"; 9]).await;
        assert_eq!((placed, result), (3, Err("refused: no (badNonce)".to_owned())));
        let (placed, result) = orders(&["rateLimited"; 9]).await;
        assert_eq!((placed, result), (1, Err("refused: no (rateLimited)".to_owned())));
    }
}
