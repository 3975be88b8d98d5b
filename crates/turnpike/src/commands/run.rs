//! `turnpike` and `turnpike run`: starts the server and logs a summary.

use std::iter;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;

use admin::api::Access;
use admin::{AccessError, HttpListener, Other, PassedOn, SocketFile, UnixSocket};
use anyhow::anyhow;
use control::{Handle, ServerInfo};
use linux_net::Clock;
use settings::value::HttpListen;
use settings::{Settings, SignalAction};
use tokio::sync::mpsc::unbounded_channel;
use user_db::{Page, UserEditor};

use crate::accounts::DatabaseAccounts;
use crate::alternates::Alternates;
use crate::cli::PathOptions;
use crate::commands::user::realm;
use crate::confinement::{self, Confinement};
use crate::failure::{Failure, Result};
use crate::handover::{Giving, KeeperLink, Predecessor, Retiring};
use crate::host_watch::HostWatch;
use crate::listener_test::OwnListeners;
use crate::logging::{self, LogLevel};
use crate::offload::Beginning;
use crate::paths::{self, Configuration};
use crate::reload::{self, InForce};
use crate::server::{Server, Threads};
use crate::service_manager::ServiceManager;
use crate::signals::{Signal, Signals};
use crate::tables::Tables;
use crate::{
    boot, control_group, external, first_start, handover, listeners, output, process, renewal,
    restart, signed_tokens, users,
};

pub(crate) fn run(paths: &PathOptions) -> Result<()> {
    let configuration = paths::load(paths)?;
    let manager = ServiceManager::connect(paths::takes_over());
    let group = control_group::id(&configuration.settings).map_err(|one| {
        Failure::usage(anyhow!("{}: {}: {}", one.place, one.key, one.what)).hint(one.help)
    })?;
    let confinement = Confinement::begin(&configuration)?;
    let log = &configuration.settings.log;
    // The thread that writes lines is there before capabilities go.
    let level = confinement::without_capabilities(|| {
        logging::start(log.format.into(), reload::level(log.level), &paths.process.log)
    })?
    .map_err(Failure::failed)?;
    // The control plane needs no threads of its own: what takes long happens in the workers and in
    // the user directory.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let outcome =
        runtime.block_on(serve(paths, configuration, confinement, level, (manager, group)));
    // A worker that is stuck must not keep the process.
    runtime.shutdown_background();
    outcome
}

async fn serve(
    paths: &PathOptions,
    configuration: Configuration,
    mut confinement: Confinement,
    log: LogLevel,
    (mut manager, group): (ServiceManager, Option<u32>),
) -> Result<()> {
    let Configuration { file, coturn: _, process, mut settings } = configuration;
    let handovers = handover::socket(&settings.control_socket());
    let takes_over = paths::takes_over();
    let found = manager.take_found();
    let is_restart = found.is_some();
    // From here on the server ends as it is told to, and not within a system call.
    let mut signals = Signals::new()?;
    let mut predecessor = if takes_over {
        Some(Predecessor::meet(&handovers)?)
    } else {
        restart::predecessor(found, &settings)
    };
    let other = if takes_over { Other::IsReplaced } else { Other::Stays };
    if let Some(coturn) = &paths.coturn {
        coturn.tell(&settings.data.directory);
    }
    let end = End::during_start(predecessor.as_ref(), &settings);
    let socket = UnixSocket::control(&settings.control_socket(), group, other)
        .map_err(control_socket_failed)?;
    let (next, mut next_file) =
        UnixSocket::waiting(&handovers, other).map_err(control_socket_failed)?;
    let mut services = listeners::Services::new();
    let monitoring =
        listeners::monitoring(&settings, predecessor.as_mut(), other, &mut services).await?;
    let api = listeners::api(&settings, predecessor.as_mut(), &mut services).await?;
    let mut store = open_users(&settings)?;
    let relays_for_users_only = settings.needs_users()
        && !settings.takes_secrets_or_tokens()
        && !settings.auth.open_relay.is_open();
    let (mut first_user, mut warning) = (None, None);
    if let Some(store) = store.as_mut().filter(|_| relays_for_users_only) {
        // A server's database is shared with others, who have their own users.
        if file.is_none() && !settings.user_database().has_coturn_layout() {
            first_user = first_start::prepare(&settings, &mut **store)?;
        }
        warning = match without_users(&settings, &mut **store) {
            // It may come later than this server; users are found when it is there.
            Err(failure) if settings.user_database().has_coturn_layout() => {
                Some(format!("the user database does not answer yet: {}", failure.reason()))
            }
            warning => warning?,
        };
    }

    let order = renewal::order(&settings).map_err(Failure::usage)?;
    if settings.is_external_auto() {
        let finding = external::find(&settings);
        let Some(found) = end.unless_told(finding, &mut signals).await? else {
            tracing::info!("told to end during the start");
            return Ok(());
        };
        for pair in &found {
            tracing::info!("the public address of {} is {}", pair.local, pair.public);
        }
        settings.put_found_external(found);
    }
    settings
        .put_database_rules(Tables::before(&settings))
        .map_err(|why| Failure::failed(anyhow!(why)))?;
    let has_users = store.is_some();
    let mut running = boot::prepare(&settings, store, Some(&mut confinement), predecessor)?;
    running.info.confinement = confinement.info();
    announce(file.as_deref(), &settings, &running.info, running.beginning);
    let confinement_warnings = confinement.warnings(&settings);
    for warning in running.warnings.iter().chain(&confinement_warnings).chain(&manager.warnings) {
        tracing::warn!("{warning}");
    }
    let unreachable = group.and_then(|group| control_group::unreachable_by(group, &settings));
    if let Some(finding) = unreachable {
        tracing::warn!("{}", finding.line());
    }
    if let Some(warning) = warning {
        tracing::warn!("{warning}");
    }

    let (handle, requests) = Handle::new(running.workers, running.info);
    let handle = handle.with_traces(running.traces);
    let (clock, offload) = (|| Clock::now().instant, running.kernel_path.watch());
    handle.set_configuration(reload::in_force(&settings));
    let mut routes =
        admin::routes::Routes::new(handle.clone(), clock, offload.clone(), log.recent());
    if has_users {
        routes = routes.with_accounts(Arc::new(DatabaseAccounts::of(&settings)));
    }
    let mut doors = vec![(HttpListener::Control(socket), admin::api::control(&routes))];
    if !api.is_empty() {
        let authorities = settings.api_client_authorities();
        let tls = running.reloadable.certificates.https_config(authorities.as_deref())?;
        let origins = settings.api.credential_origins.iter().map(ToString::to_string).collect();
        let access = Access::new(settings.api_tokens()).with_origins(origins);
        let access = match signed_tokens::start(&settings)? {
            Some(verifier) => access.with_signed_tokens(verifier),
            None => access,
        };
        let routes = admin::api::router(&routes, access);
        for listener in api {
            let (listener, is_loopback) = listener;
            let tls = (!is_loopback).then(|| Arc::clone(&tls));
            doors.push((HttpListener::Api(listener, tls), routes.clone()));
        }
    }
    let listeners = Arc::new(OwnListeners::new(&settings, &handle.info()));
    let routes = {
        let path = &settings.http.metrics_path;
        admin::monitoring::router(handle.clone(), clock, offload, listeners, path)
    };
    let tls = settings
        .http
        .tls
        .then(|| running.reloadable.certificates.https_config(None))
        .transpose()?;
    for listener in monitoring {
        let listener = match &tls {
            Some(tls) => listener.over_tls(tls),
            None => listener,
        };
        doors.push((listener, routes.clone()));
    }
    let records = running.records.map(|records| records.keep(&handle, &settings));
    let tables = Tables::watch(&settings)?;
    let alternates = Alternates::watch(&settings);
    let (done, handed_over) = unbounded_channel();
    // The last step that may fail: behind it this process alone has the calls.
    let starting = running.starting.begin();
    let Some(mut started) = end.unless_told(starting, &mut signals).await? else {
        tracing::info!("told to end during the start");
        return Ok(());
    };
    if let Some(totals) = started.retiring.as_mut().and_then(Retiring::take_totals) {
        handle.workers.go_on_from(totals);
    }
    if started.took_over.is_some() {
        handle.set_info(ServerInfo { took_over: started.took_over, ..(*handle.info()).clone() });
    }
    let unix_paths = put_in_place(&mut next_file, &mut doors);
    let serve = |(listener, routes)| tokio::spawn(admin::serve(listener, routes)).abort_handle();
    let serving = doors.into_iter().map(serve).collect();
    if let Some(order) = order {
        tokio::spawn(renewal::renew(
            order,
            renewal::store(&settings),
            running.reloadable.certificates.in_force(),
        ));
    }
    if let Some(retiring) = started.retiring {
        let kernel_path = running.kernel_path.clone();
        let begin = move || {
            retiring.wait();
            kernel_path.begin();
        };
        // From then on the service manager hears this process.
        drop(tokio::task::spawn_blocking(begin).await);
    }
    let kernel_path = running.kernel_path.clone();
    let channels = running.to_give.channels.clone();
    let giving = Giving {
        workers: running.to_give,
        services,
        serving,
        paths: unix_paths,
        kernel_path,
        counted: handle.workers.clone(),
    };
    let handovers = giving
        .start(next, done, started.took_over.is_some())
        .inspect_err(|error| tracing::error!("this server takes no upgrades: {error}"));
    let keeper = handovers.as_ref().ok().map(|handovers| {
        let socket = handover::keeper_socket(&settings.control_socket());
        let copied = (channels, running.kernel_path.downgrade());
        KeeperLink::start(socket, handovers, copied, handle.clone())
    });
    // Calls that were taken over do not end for it.
    let keeper = keeper.transpose().unwrap_or_else(|error| {
        tracing::error!("no keeper gets copies: cannot start a thread: {error}");
        None
    });
    tracing::info!("ready");
    manager.ready();
    if is_restart {
        manager.forget();
    }
    process.ready()?;
    if takes_over {
        process::tell_ready()?;
    }
    if let Some(user) = first_user {
        let program = std::env::current_exe().unwrap_or_else(|_| "turnpike".into());
        output::print(&first_start::banner(
            &user,
            &handle.info(),
            &program,
            &settings.data.directory,
        ))?;
    }

    let server = Server {
        paths: paths.clone(),
        in_force: InForce::new(settings, log, confinement, running.reloadable),
        handle,
        requests,
        signals,
        manager,
        reload_refused: false,
        threads: Threads::watch(started.threads),
        records,
        kernel_path: running.kernel_path,
        host: HostWatch::new(running.monitor),
        tables,
        alternates,
        handed_over,
        handovers: handovers.ok(),
        keeper,
        _handover_socket: next_file,
    };
    server.run().await
}

/// Puts Unix sockets in place of those of the process before. Nothing else is wrong without them: calls go on. Returns their paths'
/// owners.
fn put_in_place<R>(next: &mut SocketFile, doors: &mut [(HttpListener, R)]) -> Vec<PassedOn> {
    let doors = doors.iter_mut().filter_map(|(listener, _)| match listener {
        HttpListener::Unix(socket) | HttpListener::Control(socket) => Some(socket.file()),
        HttpListener::Tcp(..) | HttpListener::Api(..) => None,
    });
    let put = |file: &mut SocketFile| {
        if let Err(error) = file.put_in_place() {
            tracing::error!("{error}");
        }
        file.passed_on()
    };
    iter::once(next).chain(doors).map(put).collect()
}

/// The effect of a signal that ends the server, while it starts.
#[derive(Clone, Copy, Debug)]
enum End {
    /// It ends the start; these signals may mean the same.
    AtOnce([SignalAction; 2]),
    /// The server starts, and then ends as ever: calls wait for it, which no other process has.
    WhenServing,
}

impl End {
    fn during_start(predecessor: Option<&Predecessor>, settings: &Settings) -> Self {
        match predecessor.and_then(Predecessor::silent_since) {
            Some(_) => Self::WhenServing,
            None => Self::AtOnce([settings.signals.usr1, settings.signals.usr2]),
        }
    }

    /// The result of `starting`; `None` when a signal ends the server before.
    async fn unless_told<T>(
        self,
        starting: impl Future<Output = Result<T>>,
        signals: &mut Signals,
    ) -> Result<Option<T>> {
        let [usr1, usr2] = match self {
            // A signal waits for the server's loop.
            Self::WhenServing => return starting.await.map(Some),
            Self::AtOnce(meanings) => meanings,
        };
        let mut starting = pin!(starting);
        loop {
            tokio::select! {
                biased;
                signal = signals.next() => match signal {
                    Signal::End => return Ok(None),
                    // Nothing is served yet: a drain has nothing to wait for.
                    Signal::User1 if usr1 == SignalAction::Drain => return Ok(None),
                    Signal::User2 if usr2 == SignalAction::Drain => return Ok(None),
                    // The files are being read for the first time.
                    Signal::Reload | Signal::User1 | Signal::User2 => {}
                },
                started = &mut starting => return started.map(Some),
            }
        }
    }
}

fn control_socket_failed(error: AccessError) -> Failure {
    let advice = "name a directory that belongs to you with --data, or run the server as the user \
                  that this one belongs to; it has to be a member of control.group";
    match error {
        AccessError::Io { .. } => Failure::failed(error).hint(advice),
        AccessError::InUse(_) | AccessError::NotASocket(_) | AccessError::TooLong(_) => {
            Failure::failed(error)
        }
    }
}

/// Opens the user database; `None` if it cannot be opened and nobody needs it, as on a read-only file system.
fn open_users(settings: &Settings) -> Result<Option<Box<dyn UserEditor>>> {
    match users::editor(&settings.user_database()) {
        Ok(store) => Ok(Some(store)),
        Err(error) if !settings.needs_users() => {
            tracing::info!("no user database ({error}): auth.users = true needs a restart");
            Ok(None)
        }
        Err(error) => Err(Failure::failed(error).hint(
            "the data directory has to be writable for the server; name another with --data or data.directory, set \
             users.database, or auth.users = false for a server without users",
        )),
    }
}

/// Warning for a realm without users: other realms that have some.
fn without_users(settings: &Settings, store: &mut dyn UserEditor) -> Result<Option<String>> {
    let any = Page { realm: Some(settings.realm.to_string()), after: None, limit: 1 };
    if !store.list(&any)?.is_empty() {
        return Ok(None);
    }
    let elsewhere = store.realms()?;
    if elsewhere.is_empty() {
        return Ok(Some(
            "no client may relay yet: add a user with `turnpike user add NAME`".to_owned(),
        ));
    }
    Ok(Some(format!(
        "no client may relay: the realm is {}, and the database has {}; keys are made of name, realm and \
         password, so that these users need the old `realm`, or have to be added again",
        settings.realm,
        realm::counted(&elsewhere)
    )))
}

/// Summary of the server, in a few lines.
fn announce(file: Option<&Path>, settings: &Settings, info: &ServerInfo, beginning: Beginning) {
    let file = file.map_or_else(|| "defaults".to_owned(), |file| file.display().to_string());
    tracing::info!(
        "turnpike {}, configuration {file}, data {}",
        info.version,
        settings.data.directory.display()
    );
    let transports = match (settings.udp.enabled, settings.tcp.enabled) {
        (true, true) => "udp and tcp",
        (true, false) => "udp",
        (false, _) => "tcp",
    };
    for listener in &info.listeners {
        tracing::info!("listening on {transports} {listener}");
    }
    for listener in &info.tls_listeners {
        let spoken = match (settings.tls.enabled, settings.serves_dtls()) {
            (true, true) => "tcp and udp, for TLS and DTLS,",
            (true, false) => "tcp, for TLS,",
            (false, _) => "udp, for DTLS,",
        };
        tracing::info!("listening on {spoken} {listener}");
    }
    for certificate in &info.certificates {
        let left = certificate.expires.duration_since(info.started).unwrap_or_default();
        tracing::info!("certificate {} expires in {}", certificate.file, output::duration(left));
    }
    for listen in &settings.http.listen {
        let over = match listen {
            HttpListen::Tcp(_) if settings.http.tls => "HTTPS",
            HttpListen::Tcp(_) | HttpListen::Unix(_) => "HTTP",
        };
        tracing::info!("metrics and health over {over} at {listen}");
    }
    for listen in settings.api.listen.iter().map(|endpoint| endpoint.0) {
        let scheme = if listen.ip().is_loopback() { "http" } else { "https" };
        tracing::info!("operators' page and interface at {scheme}://{listen}/");
    }
    for relay in &info.relay {
        let here = if relay.local == relay.public {
            String::new()
        } else {
            format!(" (here {})", relay.local)
        };
        let (first, last) = info.relay_ports;
        tracing::info!("relaying from {}{here}, ports {first}-{last}", relay.public);
    }
    for prefix in &info.relay_prefixes {
        let ports: Vec<String> = prefix.ports().map(|port| port.to_string()).collect();
        let (network, ports) = (prefix.network(), ports.join(", "));
        tracing::info!("relaying from {network}, an address for each allocation, port {ports}");
    }
    match &info.offload.off_because {
        Some(why) => tracing::info!("kernel path: off, {why}"),
        None if info.offload.interfaces.is_empty() => {
            tracing::info!("kernel path: {}", beginning.waits_for());
        }
        None => {
            for interface in &info.offload.interfaces {
                let by = interface.hook.as_deref().unwrap_or("sockets");
                let colon = if interface.why.is_empty() { "" } else { ": " };
                tracing::info!("kernel path: {} by {by}{colon}{}", interface.name, interface.why);
            }
            tracing::info!("kernel path: {}", output::PAST_THE_FIREWALL);
        }
    }
    let most = |number: u32, unlimited: &str| match number {
        0 => unlimited.to_owned(),
        number => format!("at most {}", output::grouped(u64::from(number))),
    };
    tracing::info!(
        "{} worker{}; allocations: {} per user, {} in all",
        info.workers,
        if info.workers == 1 { "" } else { "s" },
        most(settings.quotas.allocations_per_user.get(), "any number"),
        most(settings.quotas.allocations_total.get(), "as many as ports allow"),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_signal_ends_a_start_unless_calls_wait_for_it() {
        let mut signals = Signals::new().unwrap();
        let raise = || {
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::TERM)
        };
        raise().unwrap();
        let starting = async { Ok(1) };
        let started = End::WhenServing.unless_told(starting, &mut signals).await;
        assert_eq!(started.unwrap(), Some(1));
        // The server's loop hears it.
        assert!(matches!(signals.next().await, Signal::End));
        raise().unwrap();
        let end = End::AtOnce([SignalAction::Ignore; 2]);
        let ended = end.unless_told(std::future::pending::<Result<()>>(), &mut signals).await;
        assert_eq!(ended.unwrap(), None);
    }
}
