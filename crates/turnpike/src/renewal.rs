//! Certificate of `[acme]`: first order and renewals.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use acme::{AcmeError, Challenge, Order, Renewal, Roots, Store};
use settings::{AcmeChallenge, Settings};
use tokio::task::spawn_blocking;
use tokio::time::sleep;
use turn_session::Certificates;

use crate::output;

/// Maximum interval of checks for a renewal. A suspended host or a changed clock has little effect.
const LOOK: Duration = Duration::from_hours(1);

/// First pause after a failed order. Each further pause is twice as long. Let's Encrypt permits
/// five failed verifications of a name in an hour.
const PAUSE_MIN: Duration = Duration::from_mins(5);

/// Maximum pause after failed orders. Several attempts remain in the last third of a certificate's
/// lifetime, even if the lifetime is six days.
const PAUSE_MAX: Duration = Duration::from_hours(6);

/// Maximum pause that an overloaded authority can request. A certificate of six days is renewed two
/// days before expiry, and each attempt counts.
const RETRY_AFTER_MAX: Duration = Duration::from_hours(24);

/// Returns the certificate's store. The file exists after the first certificate was issued.
pub(crate) fn store(settings: &Settings) -> Store {
    Store::new(&settings.data.directory)
}

/// Returns the order of a configuration, or `None` if `acme.names` is empty.
///
/// # Errors
/// The file of `acme.authorities` cannot be used.
pub(crate) fn order(settings: &Settings) -> Result<Option<Order>, AcmeError> {
    let challenge = match settings.acme_challenge {
        None | Some(AcmeChallenge::Auto) => return Ok(None),
        Some(AcmeChallenge::TlsAlpn01) => Challenge::TlsAlpn01,
        Some(AcmeChallenge::Http01) => Challenge::Http01,
    };
    let roots = match settings.acme_authorities() {
        None => Roots::public(),
        Some(file) => Roots::read(&file)?,
    };
    let acme = &settings.acme;
    Ok(Some(Order {
        names: acme.names.iter().map(|name| name.to_string()).collect(),
        directory: acme.directory.as_str().to_owned(),
        contact: acme.contact.as_deref().map(str::to_owned),
        roots,
        challenge,
    }))
}

/// Orders and renews the certificate until the future is dropped. The certificate watch puts the
/// stored file into effect.
///
/// `refused` is called for each issued certificate that cannot be used.
pub(crate) async fn renew(
    order: Order,
    store: Store,
    certificates: Arc<Certificates>,
    refused: impl Fn(),
) {
    let names = order.names.join(", ");
    let mut pause = PAUSE_MIN;
    loop {
        let why = match renewal(&store, &order).await {
            Renewal::At(time) => {
                let left = time.duration_since(SystemTime::now()).unwrap_or_default();
                sleep(left.min(LOOK)).await;
                continue;
            }
            Renewal::Now(why) => why,
        };
        let (authority, by) = (&order.directory, order.challenge.name());
        tracing::info!(
            "ordering a certificate for {names} from {authority}, verified by {by}: {why}"
        );
        match order.place(&store, certificates.challenges()).await {
            Ok(()) => {
                pause = PAUSE_MIN;
                tracing::info!("a certificate for {names} was issued");
                if let Renewal::Now(why) = renewal(&store, &order).await {
                    // An immediate further order would loop forever.
                    let again = output::duration(PAUSE_MAX);
                    tracing::error!(
                        "the certificate that was issued is due for renewal already, the next order is in {again}: {why}"
                    );
                    sleep(PAUSE_MAX).await;
                }
            }
            Err(error) => {
                if matches!(error, AcmeError::Unusable(_)) {
                    refused();
                }
                let after = pause_after(&error, pause);
                let again = output::duration(after);
                tracing::error!(
                    "no certificate for {names}, the next attempt is in {again}: {error}; {}",
                    advice(&order, &error)
                );
                sleep(after).await;
                pause = (pause * 2).min(PAUSE_MAX);
            }
        }
    }
}

/// Returns the pause after a failed order: `pause`, or the time that an overloaded authority
/// requests, whichever is longer. The maximum is [`RETRY_AFTER_MAX`].
fn pause_after(error: &AcmeError, pause: Duration) -> Duration {
    let AcmeError::Overloaded { retry_after: Some(after), .. } = error else { return pause };
    pause.max(*after).min(RETRY_AFTER_MAX)
}

/// Returns the time of the next order. A disk that hangs delays only this task.
async fn renewal(store: &Store, order: &Order) -> Renewal {
    let (store, names) = (store.clone(), order.names.clone());
    let read = move || store.renewal(&names, SystemTime::now());
    spawn_blocking(read).await.unwrap_or(Renewal::Now("the stored one cannot be read"))
}

/// Returns the remedy for an error.
fn advice(order: &Order, error: &AcmeError) -> &'static str {
    match (error, order.challenge) {
        (AcmeError::NotVerified { .. }, Challenge::TlsAlpn01) => {
            "the name has to lead to this host in public DNS, and port 443 for TCP has to be open to everyone"
        }
        (AcmeError::NotVerified { .. }, Challenge::Http01) => {
            "the name has to lead to this host in public DNS, and port 80 for TCP has to be open to everyone"
        }
        (AcmeError::NotOffered { .. }, _) => "set acme.challenge to the other one",
        (AcmeError::Unusable(_), _) => {
            "the stored certificate stays in force; see whether acme.directory is the right authority, and whether \
             this host's clock is right"
        }
        (AcmeError::Store { .. }, _) => "the server has to be able to write its data directory",
        (AcmeError::Roots(_) | AcmeError::Answer(_), _) => "correct acme.authorities",
        (AcmeError::Overloaded { .. }, _) => {
            "wait; if it stays so, order fewer names at a time, or ask the authority for a higher limit"
        }
        (AcmeError::Authority(_) | AcmeError::Nonce(_), _) => {
            "correct what the authority names in [acme] or in the name's DNS"
        }
        (AcmeError::Unreachable(_) | AcmeError::TooSlow, _) => {
            "this host has to reach the authority over HTTPS, and to resolve its name (a resolv.conf that was replaced \
             since the start is seen after a restart)"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_overloaded_authority_is_asked_again_when_it_says() {
        let overloaded = |hours: Option<u64>| AcmeError::Overloaded {
            what: String::new(),
            retry_after: hours.map(Duration::from_hours),
        };
        assert_eq!(pause_after(&overloaded(None), PAUSE_MIN), PAUSE_MIN);
        assert_eq!(pause_after(&overloaded(Some(2)), PAUSE_MIN), Duration::from_hours(2));
        assert_eq!(pause_after(&overloaded(Some(2)), PAUSE_MAX), PAUSE_MAX);
        assert_eq!(pause_after(&overloaded(Some(1000)), PAUSE_MAX), RETRY_AFTER_MAX);
        for other in [AcmeError::Unreachable(String::new()), AcmeError::Authority(String::new())] {
            assert_eq!(pause_after(&other, PAUSE_MAX), PAUSE_MAX);
        }
    }

    #[test]
    fn advice_is_about_the_party_at_fault() {
        let order = Order {
            names: Vec::new(),
            directory: String::new(),
            contact: None,
            roots: Roots::public(),
            challenge: Challenge::Http01,
        };
        let overloaded = AcmeError::Overloaded { what: String::new(), retry_after: None };
        assert!(advice(&order, &overloaded).starts_with("wait"));
        assert!(advice(&order, &AcmeError::Authority(String::new())).starts_with("correct"));
        assert!(advice(&order, &AcmeError::Unreachable(String::new())).contains("reach"));
    }
}
