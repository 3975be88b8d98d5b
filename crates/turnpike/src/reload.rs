//! Reload of the configuration, by SIGHUP or through the control socket. Either all applicable
//! changes take effect, or none.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::anyhow;
use control::{Change, ConfiguredKey, Handle, ReloadReport, Series};
use dataplane::PseudonymKey;
use settings::{KeyInForce, LogLevel, RelayPair, Settings, diff, keys_in_force};
use tracing_subscriber::filter::LevelFilter;
use turn_proto::Policy;

use crate::alternates::Silent;
use crate::authorizer::WhenSilentInForce;
use crate::boot::{self, Reloadable};
use crate::certificate_watch::{CertificateWatch, ConfinedReading};
use crate::certificates::{CertificateReloader, Unusable};
use crate::confinement::ReadableFiles;
use crate::devices::Devices;
use crate::external::{self, ASKED_EVERY, ASKED_SOON, Answers};
use crate::failure::{Failure, Result};
use crate::logging;
use crate::own_addresses::OwnAddresses;
use crate::reload_job::LoadedConfiguration;
use crate::revocations::Revocations;
use crate::tables::Tables;
use crate::{relays, sockets, unread, users};

/// State that a reload changes.
pub(crate) struct InForce {
    /// Configuration in effect. Keys that need a restart retain the values of the server's start.
    pub(crate) settings: Settings,
    /// Rules that the workers apply.
    pub(crate) policy: Arc<Policy>,
    /// Handle of the log, for changes of the level.
    pub(crate) log: logging::LogLevel,
    /// Key of pseudonyms in the log.
    pub(crate) pseudonyms: PseudonymKey,
    /// Value of `authorizer.when_silent`.
    pub(crate) when_silent: WhenSilentInForce,
    /// Certificates of the server.
    pub(crate) certificates: CertificateReloader,
    /// Addresses that this host delivers to itself.
    pub(crate) own: OwnAddresses,
    /// Interfaces that the settings name.
    devices: Devices,
    /// Task that reads certificates.
    pub(crate) certificate_watch: CertificateWatch,
    /// Files that this process may read.
    pub(crate) readable: ReadableFiles,
    /// Credentials that are refused.
    pub(crate) revocations: Revocations,
    /// True if the last query of a public address failed, which was logged.
    pub(crate) external_is_silent: bool,
    /// Failure of reading the tables of the user database.
    unread_tables: Option<String>,
    /// Servers that no client is redirected to.
    pub(crate) silent: Silent,
}

impl InForce {
    /// Creates the state at the start of the server.
    pub(crate) fn new(
        settings: Settings,
        log: logging::LogLevel,
        readable: ReadableFiles,
        reloadable: Reloadable,
    ) -> Self {
        let Reloadable { policy, revocations, pseudonyms, when_silent, certificates, own, devices } =
            reloadable;
        Self {
            settings,
            policy,
            log,
            pseudonyms,
            when_silent,
            certificates,
            own,
            devices,
            certificate_watch: CertificateWatch::new(),
            readable,
            revocations,
            external_is_silent: false,
            unread_tables: None,
            silent: Silent::default(),
        }
    }

    /// Applies a configuration that was read, and reports each difference. With `end_sessions`,
    /// closes sessions whose secret or key is no longer valid.
    pub(crate) async fn reload(
        &mut self,
        handle: &Handle,
        loaded: Result<LoadedConfiguration>,
        end_sessions: bool,
    ) -> ReloadReport {
        let outcome = match loaded {
            Ok(loaded) => self.apply(handle, loaded, end_sessions).await,
            Err(failure) => Err(failure),
        };
        let report = match outcome {
            Ok(report) => report,
            Err(failure) => return refused(&failure),
        };
        tell(&report);
        report
    }

    async fn apply(
        &mut self,
        handle: &Handle,
        LoadedConfiguration { settings: new, certificates }: LoadedConfiguration,
        end_sessions: bool,
    ) -> Result<ReloadReport> {
        // The unchanged ticket key spares all clients a new authentication.
        self.own.refresh();
        let own_key = self.policy.ticket_key;
        let workers = handle.workers.count();
        let mut kept = self.settings.reloaded(&new).map_err(|errors| {
            Failure::usage(anyhow!("what would be in force does not go together:\n{errors}"))
        })?;
        self.find_new_addresses(&mut kept).await?;
        let policy = boot::rules(&kept, &self.own, own_key, Some(&self.policy), workers)?;
        // A realm may be new, and users may have other keys than at the start.
        let policy = users::offer_sha256_again(kept.user_database(), policy).await;
        for relay in relays::added(&self.policy, &policy).filter(|relay| relay.is_present) {
            sockets::check_relay(relay.local)?;
        }
        relays::refuse_exchange(&self.policy, &policy)?;
        // After this line the configuration takes effect, even with an unusable certificate.
        self.certificate_watch.forget();
        let certificates_kept =
            certificates.map_or_else(Vec::new, |read| self.put_certificates(handle, read));
        let policy = Arc::new(self.silent.put_in(self.revocations.put_in(policy)));
        let host = self.own.host();
        let known = boot::advice(&self.policy, &self.settings, &host);
        let told = handle.workers.apply(Arc::clone(&policy)).await;
        // Stored even if a worker did not acknowledge. Other workers apply the policy already, and
        // later policies are derived from it.
        self.policy = Arc::clone(&policy);
        told.map_err(|error| {
            Failure::failed(error)
                .hint("some workers may go by the new rules already: reload again")
        })?;
        self.own.put_in_force();
        for warning in boot::advice(&policy, &kept, &host) {
            if !known.contains(&warning) {
                tracing::warn!("{warning}");
            }
        }
        if kept.realm != self.settings.realm && kept.auth.users {
            tracing::warn!(
                "the realm is {} now: users of {} have to be added again, as their keys are of a realm",
                &*kept.realm,
                &*self.settings.realm
            );
        }
        self.log.set(level(kept.log.level));
        self.pseudonyms.put_in_force(kept.address_key.as_ref());
        self.when_silent.put_in_force(&kept);
        let mut info = (*handle.info()).clone();
        info.realm = policy.realm.to_string();
        info.realms = boot::realm_names(&policy);
        info.relay = boot::relay_info(&policy);
        info.missing = relays::missing(&kept, &policy, (&host, &self.devices), &info);
        unread::tell(&mut info, &kept, &self.certificates, self.unread_tables.clone());
        info.monitoring = boot::monitoring(&kept);
        info.redirects = self.silent.infos(&kept);
        info.relay_ports = (kept.relay.ports.min, kept.relay.ports.max);
        handle.set_info(info);

        handle.set_configuration(in_force(&kept));

        let ended = if end_sessions {
            Some(handle.workers.end_unaccepted(None).await.map_err(Failure::failed)?)
        } else {
            None
        };
        let changes = diff(&self.settings, &new);
        self.settings = kept;
        Ok(ReloadReport {
            applied: changes.live.into_iter().map(change).collect(),
            needs_restart: changes.needs_restart.into_iter().map(change).collect(),
            ended,
            certificates_kept,
            refused: None,
        })
    }
}

impl InForce {
    /// Queries the public addresses if a local address has no public address yet.
    async fn find_new_addresses(&self, settings: &mut Settings) -> Result<()> {
        let found = settings.found_external();
        let has = |local: &IpAddr| found.iter().any(|pair| pair.local == *local);
        if settings.addresses_behind_nat(&self.own.host()).iter().all(has) {
            return Ok(());
        }
        let answers = external::ask(settings).await?;
        let found = external::kept(settings.found_external(), &answers);
        settings.put_found_external(found);
        Ok(())
    }

    /// Returns the pause before the next query of the host's public addresses.
    pub(crate) fn external_pause(&self) -> Duration {
        let settings = &self.settings;
        let is_missing = settings.is_external_auto() && settings.found_external().is_empty();
        if is_missing { ASKED_SOON } else { ASKED_EVERY }
    }

    /// Applies changed public addresses to new allocations.
    pub(crate) async fn follow_external(&mut self, handle: &Handle, answers: Result<Answers>) {
        let answers = match answers {
            Ok(answers) => answers,
            Err(failure) => return tracing::warn!("{}", failure.reason()),
        };
        let known = self.settings.found_external();
        let is_silent = !answers.failed.is_empty();
        if is_silent && !self.external_is_silent && !known.is_empty() {
            let (local, why) = &answers.failed[0];
            tracing::warn!(
                "no public address is found for {local} now ({why}): its last public address stays in force"
            );
        }
        let found = external::kept(known, &answers);
        let changed: Vec<RelayPair> =
            found.iter().filter(|pair| !known.contains(pair)).copied().collect();
        self.external_is_silent = is_silent;
        if changed.is_empty() {
            return;
        }
        let mut settings = self.settings.clone();
        settings.put_found_external(found);
        match self.apply_found(handle, settings).await {
            Ok(()) => {
                for RelayPair { local, public } in changed {
                    tracing::warn!(
                        "the public address of {local} is {public} now, for new allocations"
                    );
                }
            }
            Err(failure) => tracing::error!(
                "the public address has changed and cannot be put in force: {}",
                failure.reason()
            ),
        }
    }

    /// Stops redirecting clients to servers that do not respond.
    pub(crate) async fn follow_alternates(&mut self, handle: &Handle, silent: Silent) {
        silent.tell(&self.silent);
        self.silent = silent;
        if let Err(failure) = self.apply_found(handle, self.settings.clone()).await {
            tracing::error!(
                "clients are redirected as before, though other servers answer now: {}",
                failure.reason()
            );
        }
    }

    /// Applies the rules of a database. After an error of a worker, the rules remain pending.
    pub(crate) async fn follow_tables(&mut self, handle: &Handle, tables: &mut Tables) {
        let Some(rules) = tables.waiting() else { return };
        let mut settings = self.settings.clone();
        if let Err(why) = settings.put_database_rules(rules.clone()) {
            tracing::error!("{why}: the last known rules of the database stay in force");
            return tables.refuse();
        }
        let is_first = self.settings.database_rules().is_unread;
        if settings.database_rules() != self.settings.database_rules() || is_first {
            if let Err(failure) = self.apply_found(handle, settings).await {
                let why = failure.reason();
                return tracing::error!("the rules of the database cannot be put in force: {why}");
            }
            let realms = self.settings.database_rules().realms.len();
            tracing::info!(realms, "the rules of the database are in force");
        }
        tables.accept();
    }

    /// Applies settings that were found by the server, not read from the configuration.
    async fn apply_found(&mut self, handle: &Handle, settings: Settings) -> Result<()> {
        let (own_key, workers) = (self.policy.ticket_key, handle.workers.count());
        let policy = boot::rules(&settings, &self.own, own_key, Some(&self.policy), workers)?;
        let policy = Arc::new(self.silent.put_in(self.revocations.put_in(policy)));
        self.policy = Arc::clone(&policy);
        self.settings = settings;
        handle.workers.apply(Arc::clone(&policy)).await.map_err(Failure::failed)?;
        let mut info = (*handle.info()).clone();
        info.relay = boot::relay_info(&policy);
        info.missing =
            relays::missing(&self.settings, &policy, (&self.own.host(), &self.devices), &info);
        info.realms = boot::realm_names(&policy);
        info.redirects = self.silent.infos(&self.settings);
        handle.set_info(info);
        Ok(())
    }

    /// Returns the addresses that are relayed from.
    pub(crate) fn relays(&self) -> Vec<IpAddr> {
        self.policy.relay.iter().map(|relay| relay.local).collect()
    }

    /// Starts to read the certificates if their files have changed, or if an operator has requested
    /// it. Does not block.
    pub(crate) fn watch_certificates(&mut self) {
        self.certificates.warn_of_expiry();
        let (reader, readable) = (self.certificates.reader(), self.readable.clone());
        self.certificate_watch.read_changed(reader, readable, &self.settings);
    }

    /// Reads the certificates again, even without a change.
    pub(crate) fn reload_certificates(&mut self) {
        self.certificate_watch.want();
        self.watch_certificates();
    }

    /// Puts certificates that were read into effect.
    pub(crate) fn take_certificates(&mut self, handle: &Handle, read: ConfinedReading) {
        if self.put_certificates(handle, read).is_empty() {
            tracing::info!("new certificates are in force");
        }
        self.tell_unread(handle);
    }

    /// Publishes the reason why the tables of the user database cannot be read.
    pub(crate) fn note_unread_tables(&mut self, handle: &Handle, why: Option<String>) {
        if self.unread_tables != why {
            self.unread_tables = why;
            self.tell_unread(handle);
        }
    }

    fn tell_unread(&self, handle: &Handle) {
        let mut info = (*handle.info()).clone();
        unread::tell(&mut info, &self.settings, &self.certificates, self.unread_tables.clone());
        handle.set_info(info);
    }

    /// Puts certificates into effect. Returns the reasons for unusable certificates, with remedies.
    /// The reasons are also logged and counted.
    fn put_certificates(&mut self, handle: &Handle, read: ConfinedReading) -> Vec<String> {
        let ConfinedReading { certificates, confined } = read;
        let errors = self.certificates.take(certificates);
        let shown: Vec<String> = errors
            .into_iter()
            .map(|Unusable { what, help }| {
                format!("{what}: {}", confined.as_deref().unwrap_or(help))
            })
            .collect();
        for error in &shown {
            tracing::warn!(
                "a certificate cannot be used, and the previous one stays, if there was one: {error}"
            );
        }
        handle.workers.control_plane().add(Series::CertificatesRefused, shown.len() as u64);
        shown
    }

    /// Reads the addresses of the host. Workers refuse these addresses as peers, because clients
    /// must not reach the host through a relay. Workers relay from the addresses that the settings
    /// name. Returns false if another attempt is needed.
    pub(crate) async fn follow_own_addresses(&mut self, handle: &Handle) -> bool {
        self.own.refresh();
        if self.own.is_waiting() {
            let before = Arc::clone(&self.policy);
            match self.apply_own_addresses(handle).await {
                Ok(()) => self.own.put_in_force(),
                Err(failure) => tracing::error!(
                    "the addresses of this host changed, and cannot be put in force; it is tried again: {}",
                    failure.reason()
                ),
            }
            relays::tell(&before, &self.policy, &self.settings, &self.own.host());
        }
        self.own.is_current()
    }

    /// Applies changed addresses of the host. Most changes affect only the peer rules, such as the
    /// start of a container.
    async fn apply_own_addresses(&mut self, handle: &Handle) -> Result<()> {
        let wanted = self.settings.relays(&self.own.host(), Some(&self.policy));
        if !relays::are_same(&wanted, &self.policy.relay) {
            return self.apply_found(handle, self.settings.clone()).await;
        }
        let (own, relay) = (self.own.prefixes(), &self.policy.relay);
        let peer_rules = self.settings.peer_rules(own, relay);
        let mut rules = self.settings.realm_peer_rules(own, relay).into_iter();
        let realms = self.policy.realms.clone().map(|realm| {
            if let Some(rules) = rules.next() {
                realm.peer_rules = rules;
            }
        });
        self.policy = Arc::new(Policy { peer_rules, realms, ..(*self.policy).clone() });
        handle.workers.apply(Arc::clone(&self.policy)).await.map_err(Failure::failed)?;
        self.tell_missing(handle);
        Ok(())
    }

    /// Checks the interfaces that the settings name.
    pub(crate) fn follow_devices(&mut self, handle: &Handle) {
        if self.devices.refresh() {
            self.tell_missing(handle);
        }
    }

    /// Publishes the addresses and interfaces that the host lacks.
    fn tell_missing(&self, handle: &Handle) {
        let host = (&self.own.host(), &self.devices);
        let mut info = (*handle.info()).clone();
        info.missing = relays::missing(&self.settings, &self.policy, host, &info);
        handle.set_info(info);
    }
}

/// Builds the report of a refused reload, and logs the reason.
pub(crate) fn refused(failure: &Failure) -> ReloadReport {
    let report = ReloadReport { refused: Some(failure.reason()), ..ReloadReport::default() };
    tell(&report);
    report
}

/// Returns the keys of the configuration in effect, for operators.
pub(crate) fn in_force(settings: &Settings) -> Vec<ConfiguredKey> {
    let key = |key: KeyInForce| ConfiguredKey {
        key: key.key.to_owned(),
        value: key.value,
        origin: key.place.map(|place| place.to_string()),
        is_live: key.is_live,
    };
    keys_in_force(settings).into_iter().map(key).collect()
}

/// Converts a configured level to the level of the log.
pub(crate) const fn level(level: LogLevel) -> LevelFilter {
    match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    }
}

fn change(change: settings::Change) -> Change {
    Change { key: change.key.to_owned(), old: change.old, new: change.new }
}

/// Logs the outcome of a reload.
fn tell(report: &ReloadReport) {
    if let Some(why) = &report.refused {
        tracing::error!("reload refused, the old configuration is still in force: {why}");
        return;
    }
    for Change { key, old, new } in &report.applied {
        tracing::info!(%key, %old, %new, "reload: {key} is in force");
    }
    for Change { key, old, new } in &report.needs_restart {
        tracing::warn!(%key, %old, %new, "reload: {key} needs a restart");
    }
    tracing::info!(
        applied = report.applied.len(),
        needs_restart = report.needs_restart.len(),
        "reloaded"
    );
}

#[cfg(test)]
mod tests;
