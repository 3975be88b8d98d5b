//! Reading the configuration again: one function behind two doors, SIGHUP and the control socket.
//! Either everything that can be applied is, or nothing is.

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use anyhow::anyhow;
use control::{Change, ConfiguredKey, Handle, ReloadReport, Series};
use dataplane::PseudonymKey;
use settings::{KeyInForce, LogLevel, RelayPair, Settings, diff, keys_in_force};
use tracing_subscriber::filter::LevelFilter;
use turn_proto::Policy;

use crate::alternates::Silent;
use crate::boot::{self, Reloadable};
use crate::certificates::{CertificateReloader, Unusable};
use crate::confinement::Confinement;
use crate::external::{self, Answers};
use crate::failure::{Failure, Result};
use crate::host;
use crate::logging;
use crate::own_addresses::OwnAddresses;
use crate::revocations::Revocations;
use crate::tables::Tables;
use crate::{sockets, users};

/// State that a reload changes.
pub(crate) struct InForce {
    /// The configuration; keys that need a restart have the values that the server started with.
    pub(crate) settings: Settings,
    /// The rules that the workers go by.
    pub(crate) policy: Arc<Policy>,
    /// Changes the level of the log.
    pub(crate) log: logging::LogLevel,
    /// Key of pseudonyms in the log.
    pub(crate) pseudonyms: PseudonymKey,
    /// The certificates.
    pub(crate) certificates: CertificateReloader,
    /// Addresses that this host delivers to itself.
    pub(crate) own: OwnAddresses,
    /// Files that this process may read.
    pub(crate) confinement: Option<Confinement>,
    /// Credentials that are refused.
    pub(crate) revocations: Revocations,
    /// No STUN server has answered at the last attempt, which was logged.
    pub(crate) external_is_silent: bool,
    /// Servers that no client is redirected to.
    pub(crate) silent: Silent,
}

impl InForce {
    /// State at the start.
    pub(crate) fn new(
        settings: Settings,
        log: logging::LogLevel,
        confinement: Confinement,
        reloadable: Reloadable,
    ) -> Self {
        let Reloadable { policy, revocations, pseudonyms, certificates, own } = reloadable;
        Self {
            settings,
            policy,
            log,
            pseudonyms,
            certificates,
            own,
            confinement: Some(confinement),
            revocations,
            external_is_silent: false,
            silent: Silent::default(),
        }
    }

    /// Applies a configuration that was read, and reports each difference. With `end_sessions`
    /// sessions end whose secret or key counts no longer.
    pub(crate) async fn reload(
        &mut self,
        handle: &Handle,
        file: Option<&Path>,
        loaded: Result<Settings>,
        end_sessions: bool,
    ) -> ReloadReport {
        let outcome = match loaded {
            Ok(settings) => self.apply(handle, settings, end_sessions).await,
            Err(failure) => match self.confinement.as_ref().and_then(|one| one.reason(file)) {
                Some(why) => Err(failure.hint(why)),
                None => Err(failure),
            },
        };
        let report = outcome.unwrap_or_else(|failure| ReloadReport {
            refused: Some(failure.reason()),
            ..ReloadReport::default()
        });
        tell(&report);
        report
    }

    async fn apply(
        &mut self,
        handle: &Handle,
        new: Settings,
        end_sessions: bool,
    ) -> Result<ReloadReport> {
        // The same key: nobody has to log in again.
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
        for relay in &policy.relay {
            if self.policy.relay.iter().all(|known| known.local != relay.local) {
                sockets::check_relay(relay.local)?;
            }
        }
        // From here on the configuration is in effect, even with an unusable certificate.
        let certificates_kept = self.refresh_certificates(handle, &kept);
        let policy = Arc::new(self.silent.put_in(self.revocations.put_in(policy)));
        let known = boot::advice(&self.policy, &self.settings);
        let told = handle.workers.apply(Arc::clone(&policy)).await;
        // Also when a worker did not answer: the others go by it, and what is made next begins
        // here.
        self.policy = Arc::clone(&policy);
        told.map_err(|error| {
            Failure::failed(error)
                .hint("some workers may go by the new rules already: reload again")
        })?;
        self.own.put_in_force();
        for warning in boot::advice(&policy, &kept) {
            if !known.contains(&warning) {
                tracing::warn!("{warning}");
            }
        }
        self.log.set(level(kept.log.level));
        self.pseudonyms.put_in_force(kept.address_key.as_ref());
        let mut info = (*handle.info()).clone();
        info.realm = policy.realm.to_string();
        info.realms = boot::realm_names(&policy);
        info.relay = boot::relay_info(&policy);
        info.certificates = self.certificates.infos().to_vec();
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
    /// Finds public addresses of addresses that have none yet.
    async fn find_new_addresses(&self, settings: &mut Settings) -> Result<()> {
        let found = settings.found_external();
        let has = |local: &IpAddr| found.iter().any(|pair| pair.local == *local);
        if settings.addresses_behind_nat(&host::addresses()?).iter().all(has) {
            return Ok(());
        }
        let answers = external::ask(settings).await?;
        let found = external::kept(settings.found_external(), &answers);
        settings.put_found_external(found);
        Ok(())
    }

    /// Puts changed public addresses in force, for new allocations.
    pub(crate) async fn follow_external(&mut self, handle: &Handle, answers: &Answers) {
        let known = self.settings.found_external();
        let is_silent = !answers.failed.is_empty();
        if is_silent && !self.external_is_silent {
            let (local, why) = &answers.failed[0];
            tracing::warn!(
                "no public address is found for {local} now ({why}): its last public address stays in force"
            );
        }
        let found = external::kept(known, answers);
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

    /// Redirects no client to servers that do not answer.
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

    /// Puts the rules of a database in force. An error of a worker leaves them waiting.
    pub(crate) async fn follow_tables(&mut self, handle: &Handle, tables: &mut Tables) {
        let Some(rules) = tables.waiting() else { return };
        let mut settings = self.settings.clone();
        if let Err(why) = settings.put_database_rules(rules.clone()) {
            tracing::error!("{why}: the last known rules of the database stay in force");
            return tables.done();
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
        tables.done();
    }

    /// Applies settings that the server has found elsewhere than in its configuration.
    async fn apply_found(&mut self, handle: &Handle, settings: Settings) -> Result<()> {
        let (own_key, workers) = (self.policy.ticket_key, handle.workers.count());
        let policy = boot::rules(&settings, &self.own, own_key, Some(&self.policy), workers)?;
        for relay in &policy.relay {
            if self.policy.relay.iter().all(|known| known.local != relay.local) {
                sockets::check_relay(relay.local)?;
            }
        }
        let policy = Arc::new(self.silent.put_in(self.revocations.put_in(policy)));
        self.policy = Arc::clone(&policy);
        self.settings = settings;
        handle.workers.apply(Arc::clone(&policy)).await.map_err(Failure::failed)?;
        let mut info = (*handle.info()).clone();
        info.relay = boot::relay_info(&policy);
        info.realms = boot::realm_names(&policy);
        info.redirects = self.silent.infos(&self.settings);
        handle.set_info(info);
        Ok(())
    }

    /// Looks whether there are new certificates.
    pub(crate) fn watch_certificates(&mut self, handle: &Handle) {
        if self.certificates.is_due(&self.settings) {
            self.reload_certificates(handle);
        }
    }

    /// Reads the certificates again, changed or not.
    pub(crate) fn reload_certificates(&mut self, handle: &Handle) {
        let settings = self.settings.clone();
        if self.refresh_certificates(handle, &settings).is_empty() {
            tracing::info!("new certificates are in force");
        }
        let mut info = (*handle.info()).clone();
        info.certificates = self.certificates.infos().to_vec();
        handle.set_info(info);
    }

    /// Reads the certificates of a configuration again. Returns the reasons for those not in
    /// effect, with remedies; they are logged and counted.
    fn refresh_certificates(&mut self, handle: &Handle, settings: &Settings) -> Vec<String> {
        let errors = self.certificates.refresh(settings);
        let files = settings.certificates().into_iter();
        let files = files.flat_map(|one| [one.chain, one.key].into_iter().chain(one.password));
        let confined = || self.confinement.as_ref()?.reason_of(files);
        let confined = if errors.is_empty() { None } else { confined() };
        let shown: Vec<String> = errors
            .into_iter()
            .map(|Unusable { what, help }| {
                format!("{what}: {}", confined.as_deref().unwrap_or(help))
            })
            .collect();
        for error in &shown {
            tracing::warn!("a certificate cannot be used, the previous one stays: {error}");
        }
        handle.workers.control_plane().add(Series::CertificatesRefused, shown.len() as u64);
        shown
    }

    /// Reads the addresses that the host delivers to itself, and has workers refuse them: an
    /// address of our own must not be a peer like any other. Relay addresses stay as they are until
    /// a reload. False when it is to be tried again.
    pub(crate) async fn follow_own_addresses(&mut self, handle: &Handle) -> bool {
        self.own.refresh();
        if self.own.is_waiting() {
            let peer_rules = self.settings.peer_rules(self.own.prefixes(), &self.policy.relay);
            let (own, relay) = (self.own.prefixes(), &self.policy.relay);
            let mut rules = self.settings.realm_peer_rules(own, relay).into_iter();
            let realms = self.policy.realms.clone().map(|realm| {
                if let Some(rules) = rules.next() {
                    realm.peer_rules = rules;
                }
            });
            self.policy = Arc::new(Policy { peer_rules, realms, ..(*self.policy).clone() });
            match handle.workers.apply(Arc::clone(&self.policy)).await {
                Ok(()) => self.own.put_in_force(),
                Err(error) => tracing::error!(
                    %error,
                    "the addresses of this host changed; a worker did not answer, and is notified again"
                ),
            }
        }
        self.own.is_current()
    }
}

/// The keys of the configuration in force, for operators.
pub(crate) fn in_force(settings: &Settings) -> Vec<ConfiguredKey> {
    let key = |key: KeyInForce| ConfiguredKey {
        key: key.key.to_owned(),
        value: key.value,
        origin: key.place.map(|place| place.to_string()),
        is_live: key.is_live,
    };
    keys_in_force(settings).into_iter().map(key).collect()
}

/// The level as the log knows it.
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

/// Logs the outcome, for SIGHUP and for the record.
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
mod tests {
    use std::sync::Mutex;
    use std::sync::mpsc::channel;

    use control::{OffloadInfo, Request, Wake, WorkerCounters, Workers, mailbox};
    use settings::Environment;
    use turn_types::Secret;
    use user_db::NewUser;

    use super::*;

    const BASE: &str = "listen = [\"127.0.0.1:3478\"]\n[relay]\naddresses = [\"127.0.0.1\"]\n";

    fn settings(tables: &str) -> Settings {
        let text = format!("{BASE}{tables}");
        settings::parse(Path::new("test.toml"), &text, &Environment::empty()).unwrap()
    }

    /// A worker that applies whatever it is told and remembers the last policy.
    fn worker() -> (Handle, Arc<Mutex<Option<Arc<Policy>>>>) {
        struct Knock(std::sync::mpsc::Sender<()>);
        impl Wake for Knock {
            fn wake(&self) {
                let _ = self.0.send(());
            }
        }
        let (knock, knocks) = channel();
        let (mailbox, inbox) = mailbox(4, Arc::new(Knock(knock)));
        let applied = Arc::new(Mutex::new(None));
        let seen = Arc::clone(&applied);
        std::thread::spawn(move || {
            while knocks.recv().is_ok() {
                match inbox.take() {
                    Some(Request::Apply { policy, done }) => {
                        *seen.lock().unwrap() = Some(policy);
                        done(());
                    }
                    other => panic!("a reload applies and nothing else: {other:?}"),
                }
            }
        });
        let workers = Workers::new(vec![(mailbox, Arc::new(WorkerCounters::new()))]);
        let policy = policy(&settings(""));
        let listeners = vec![([127, 0, 0, 1], 3478).into()];
        let info = boot::info(&policy, &settings(""), listeners, (1, true), OffloadInfo::default());
        (Handle::new(workers, info).0, applied)
    }

    fn policy(settings: &Settings) -> Policy {
        let own = OwnAddresses::read().unwrap();
        boot::rules(settings, &own, Secret::new([7; 32]), None, 1).unwrap()
    }

    fn in_force() -> InForce {
        let settings = settings("");
        let policy = Arc::new(policy(&settings));
        let certificates = CertificateReloader::new(&settings).unwrap();
        InForce {
            settings,
            policy,
            log: logging::LogLevel::default(),
            pseudonyms: PseudonymKey::new(Secret::new([7; 32])),
            certificates,
            own: OwnAddresses::read().unwrap(),
            confinement: None,
            revocations: Revocations::read("nowhere/revoked.json".into(), linux_net::Clock::now())
                .unwrap(),
            external_is_silent: false,
            silent: Silent::default(),
        }
    }

    fn keys(changes: &[Change]) -> Vec<&str> {
        changes.iter().map(|change| change.key.as_str()).collect()
    }

    #[tokio::test]
    async fn addresses_that_the_host_has_now_are_protected() {
        let (handle, applied) = worker();
        let mut in_force = in_force();
        assert!(in_force.follow_own_addresses(&handle).await);
        assert!(applied.lock().unwrap().is_none(), "nothing changed");

        // As if all had come since, on a host that has lost the addresses that it relays from.
        in_force.own = OwnAddresses::of_nothing();
        let elsewhere = "[relay]\naddresses = [\"auto\"]\nexternal = \"2001:db8::1\"\n";
        in_force.settings =
            settings::parse(Path::new("t"), elsewhere, &Environment::empty()).unwrap();
        assert!(in_force.follow_own_addresses(&handle).await);
        let policy = applied.lock().unwrap().take().unwrap();
        for ip in host::addresses().unwrap() {
            assert_ne!(policy.peer_rules.judge(ip), turn_proto::PeerAccess::Allowed, "{ip}");
        }
        assert!(in_force.follow_own_addresses(&handle).await);
        assert!(applied.lock().unwrap().is_none(), "once for each change");
    }

    #[tokio::test]
    async fn applies_what_it_can_and_says_what_has_to_wait() {
        let (handle, applied) = worker();
        let mut in_force = in_force();
        let new = || Ok(settings("[quotas]\nchannels = 9\n[workers]\ncount = 7\n"));
        let report = in_force.reload(&handle, None, new(), false).await;
        assert_eq!(report.refused, None);
        assert_eq!(keys(&report.applied), ["quotas.channels"]);
        assert_eq!(keys(&report.needs_restart), ["workers.count"]);
        let policy = applied.lock().unwrap().clone().unwrap();
        assert_eq!(policy.quotas.channels, 9);
        assert_eq!(*policy.auth.nonce_key.expose(), [7; 32], "nobody has to log in again");
        let before = Arc::clone(&policy.relay[0].ports);

        let report = in_force.reload(&handle, None, new(), false).await;
        assert_eq!(keys(&report.applied), [""; 0]);
        assert_eq!(keys(&report.needs_restart), ["workers.count"], "it still waits");
        let policy = applied.lock().unwrap().clone().unwrap();
        assert!(Arc::ptr_eq(&before, &policy.relay[0].ports), "ports in use stay known");
    }

    /// Clients must not be told addresses without a listener.
    #[tokio::test]
    async fn discovery_waits_for_a_restart() {
        let (handle, applied) = worker();
        let mut in_force = in_force();
        let on = "[discovery]\naddresses = [\"127.0.0.1\", \"127.0.0.2\"]\n";
        let report = in_force.reload(&handle, None, Ok(settings(on)), false).await;
        assert_eq!(keys(&report.needs_restart), ["discovery.addresses"]);
        assert_eq!(applied.lock().unwrap().clone().unwrap().discovery, []);
    }

    #[tokio::test]
    async fn whatever_is_wrong_leaves_everything_as_it_was() {
        let (handle, applied) = worker();
        let mut in_force = in_force();
        let broken = || Err(Failure::usage(anyhow!("line 3: no")));
        let report = in_force.reload(&handle, None, broken(), false).await;
        assert!(report.refused.unwrap().contains("line 3"));

        let elsewhere = || {
            let text = "realm = \"x\"\n[relay]\naddresses = [\"192.0.2.1\"]\n";
            Ok(settings::parse(Path::new("t"), text, &Environment::empty()).unwrap())
        };
        let report = in_force.reload(&handle, None, elsewhere(), false).await;
        assert!(report.refused.unwrap().contains("192.0.2.1"), "not an address of this host");
        assert!(report.applied.is_empty());
        assert!(applied.lock().unwrap().is_none());
        assert_eq!(in_force.settings, settings(""));
    }

    #[tokio::test]
    async fn a_reload_sees_which_keys_users_have() {
        let directory = crate::testing::Directory::new("keys-at-reload");
        let (handle, applied) = worker();
        let mut in_force = in_force();
        in_force.settings.set_data_directory(directory.path().to_owned());
        let new = || {
            let mut new = settings("[[realms]]\nname = \"b\"\n[[realms]]\nname = \"c\"\n");
            new.set_data_directory(directory.path().to_owned());
            Ok(new)
        };
        let mut store = users::editor(&in_force.settings.user_database()).unwrap();
        let password = Secret::new("secret-of-bob".to_owned());
        store.add(&NewUser::new("b", "bob", &password, None).unwrap()).unwrap();
        store.add(&NewUser::with_md5("c", "carol", Secret::new([7; 16]), None).unwrap()).unwrap();
        let report = in_force.reload(&handle, None, new(), false).await;
        assert_eq!(report.refused, None);
        let policy = applied.lock().unwrap().clone().unwrap();
        let offers = |name: &str| policy.realms.named(name).unwrap().auth.sha256;
        assert_eq!((offers("b"), offers("c"), policy.auth.sha256), (true, false, true));
    }

    /// Both directions: switched off, no client may ask for TCP any more.
    #[tokio::test]
    async fn relaying_of_tcp_is_switched_off_and_on() {
        let (handle, applied) = worker();
        let mut in_force = in_force();
        for on in [true, false, true] {
            let new = || Ok(settings(&format!("[tcp]\nrelaying = {on}\n")));
            let report = in_force.reload(&handle, None, new(), false).await;
            assert_eq!(keys(&report.applied), ["tcp.relaying"]);
            assert_eq!(applied.lock().unwrap().clone().unwrap().tcp_relaying, on);
        }
    }

    /// The listeners stay until a restart: their ports are not allocated.
    #[tokio::test]
    async fn ports_that_are_listened_at_now_are_not_relayed_from() {
        let (handle, applied) = worker();
        let mut in_force = in_force();
        let elsewhere = || {
            let text = "listen = [\"127.0.0.1:1\"]\n[relay]\naddresses = [\"127.0.0.1\"]\n\
                        ports = \"3000-4000\"\n";
            Ok(settings::parse(Path::new("t"), text, &Environment::empty()).unwrap())
        };
        let refused = in_force.reload(&handle, None, elsewhere(), false).await.refused.unwrap();
        assert!(refused.contains("relay.ports: port 3478 of 3000-4000"), "{refused}");
        assert!(applied.lock().unwrap().is_none());
    }
}
