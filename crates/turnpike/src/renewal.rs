//! The certificate of `[acme]`: ordered when there is none, and renewed.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use acme::{AcmeError, Challenge, Order, Renewal, Roots, Store};
use settings::{AcmeChallenge, Settings};
use tokio::time::sleep;
use turn_session::Certificates;

use crate::output;

/// Longest interval of checks for a renewal: a suspended host or a changed clock does not matter.
const LOOK: Duration = Duration::from_hours(1);

/// First pause after a failed order; each one is twice the pause before. Let's Encrypt permits five
/// failed verifications of a name in an hour.
const PAUSE_MIN: Duration = Duration::from_mins(5);

/// Longest pause after failed orders: several attempts remain in the last third of a certificate's
/// lifetime, even where that is six days.
const PAUSE_MAX: Duration = Duration::from_hours(6);

/// The certificate's store. Its file exists once a certificate was issued.
pub(crate) fn store(settings: &Settings) -> Store {
    Store::new(&settings.data.directory)
}

/// The order of a configuration; `None` without names.
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

/// Orders and renews until the future is dropped. The certificate watch puts the stored file in
/// force.
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
        let why = match store.renewal(&order.names, SystemTime::now()) {
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
                if let Renewal::Now(why) = store.renewal(&order.names, SystemTime::now()) {
                    // Ordering at once again would not end.
                    tracing::error!("the certificate that was issued is of no use: {why}");
                    sleep(PAUSE_MAX).await;
                }
            }
            Err(error) => {
                if matches!(error, AcmeError::Unusable(_)) {
                    refused();
                }
                let again = output::duration(pause);
                tracing::error!(
                    "no certificate for {names}, the next attempt is in {again}: {error}; {}",
                    advice(&order, &error)
                );
                sleep(pause).await;
                pause = (pause * 2).min(PAUSE_MAX);
            }
        }
    }
}

/// A remedy.
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
        (AcmeError::Authority(_) | AcmeError::Nonce(_) | AcmeError::TooSlow, _) => {
            "this host has to reach the authority over HTTPS, and to resolve its name (a resolv.conf that was replaced \
             since the start is seen after a restart)"
        }
    }
}
