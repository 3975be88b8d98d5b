//! `turnpike` and `turnpike run`: starts the server and logs a summary.

mod control_sockets;
mod user_database;

use std::iter;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;

use acme::Order;
use admin::routes::Routes;
use admin::{HttpListener, Other, PassedOn, Router, SocketFile};
use anyhow::anyhow;
use control::{Handle, Series, ServerInfo, TookOverInfo};
use linux_net::Clock;
use settings::value::HttpListen;
use settings::{Settings, SignalAction};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use turn_session::Certificates;

use self::control_sockets::ControlSockets;
use self::user_database::UserDatabase;
use crate::accounts::DatabaseAccounts;
use crate::alternates::Alternates;
use crate::boot::{self, Prepared, Started};
use crate::cli::PathOptions;
use crate::confinement::Confinement;
use crate::coturn::CoturnReport;
use crate::failure::{Failure, Result};
use crate::first_start::{self, Shown};
use crate::handover::{
    self, Changes, CopiedBeside, HandoverReport, Handovers, KeeperLink, Predecessor, Retiring,
    ServerExport, Wire,
};
use crate::host_watch::HostWatch;
use crate::listener_test::OwnListeners;
use crate::logging::{self, LogLevel};
use crate::offload::{Beginning, KernelPath, changes_of_host};
use crate::paths::{self, Configuration};
use crate::process::{self, ProcessOptions};
use crate::reload::{self, InForce};
use crate::reload_job::ReloadJob;
use crate::requests::Requests;
use crate::server::{Server, Threads};
use crate::service_manager::ServiceManager;
use crate::signals::{Signal, Signals};
use crate::tables::Tables;
use crate::{
    control_group, devices, external, output, port_sharers, renewal, restart, start_facts,
    upgrade_command,
};

pub(crate) fn run(paths: &PathOptions) -> Result<()> {
    let configuration = paths::load(paths)?;
    let manager = ServiceManager::connect(paths::takes_over());
    let group = control_group::id(&configuration.settings).map_err(|one| {
        Failure::usage(anyhow!("{}: {}: {}", one.place, one.key, one.what)).hint(one.help)
    })?;
    start_facts::open_own();
    upgrade_command::open();
    let confinement = Confinement::begin(&configuration)?;
    let log = &configuration.settings.log;
    // The thread that writes log lines must start before the process drops its capabilities.
    let level = confinement
        .without_privileges(|| {
            logging::start(log.format.into(), reload::level(log.level), &paths.process.log)
        })?
        .map_err(Failure::failed)?;
    // The control plane needs no further threads. Slow operations run in the workers and in the
    // user directory.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let outcome =
        runtime.block_on(serve(paths, configuration, confinement, level, (manager, group)));
    // A stuck worker must not keep the process alive.
    runtime.shutdown_background();
    outcome
}

async fn serve(
    paths: &PathOptions,
    configuration: Configuration,
    confinement: Confinement,
    log: LogLevel,
    (mut manager, group): (ServiceManager, Option<u32>),
) -> Result<()> {
    let Configuration { file, coturn: _, process, settings } = configuration;
    let takes_over = paths::takes_over();
    let found = manager.take_found();
    let is_restart = found.is_some();
    // After this line signals do not kill the process, but are handled as configured.
    let mut signals = Signals::new()?;
    let (settings, mut predecessor) = if takes_over {
        if upgrade_command::is_abandoned() {
            return Err(Failure::failed(anyhow!(
                "the `turnpike upgrade` of this process has ended"
            ))
            .hint("the running server goes on as before; upgrade again"));
        }
        let predecessor = Predecessor::meet(&handover::socket(&settings.control_socket()))?;
        // The predecessor does not reload after `meet`. A previous reload may be newer than the
        // first load.
        (paths::load(paths)?.settings, Some(predecessor))
    } else {
        if !is_restart {
            restart::wait_for_exit(&settings.control_socket());
        }
        let predecessor = restart::predecessor(found, &settings);
        (settings, predecessor)
    };
    let coturn = paths.coturn.as_ref().and_then(|coturn| coturn.tell(&settings.data.directory));
    let end = End::during_start(predecessor.as_ref(), &settings);
    if predecessor.is_none() {
        let interfaces = async {
            devices::wait_for_permanent(&settings).await;
            Ok(())
        };
        if end.unless_told(interfaces, &mut signals).await?.is_none() {
            tracing::info!("told to end during the start");
            return Ok(());
        }
    }
    let other = if takes_over { Other::IsReplaced } else { Other::Stays };
    let sockets = ControlSockets::bind(&settings, group, other, predecessor.as_mut())?;
    let mut users = UserDatabase::open(&settings, file.is_some())?;
    let order = renewal::order(&settings).map_err(Failure::usage)?;
    let mut launch = Launch {
        paths,
        process,
        settings,
        confinement,
        log,
        manager,
        signals,
        end,
        takes_over,
        is_restart,
        tables: Tables::default(),
        coturn,
    };
    if !launch.find_public_addresses().await? {
        return Ok(());
    }
    launch.put_first_rules(predecessor.as_ref()).await?;
    let (editor, confinement) = (users.editor.take(), Some(&mut launch.confinement));
    let mut prepared = boot::prepare(&launch.settings, editor, confinement, predecessor)?;
    prepared.info.confinement = launch.confinement.info();
    let path = (&prepared.kernel_path, prepared.beginning);
    announce(file.as_deref(), &launch.settings, &prepared.info, path);
    launch.warn(&prepared.warnings, group, users.warning.as_deref());
    users.warn_later(&launch.settings);
    launch.start(sockets, users, order, prepared).await
}

/// Process that starts a server: inputs, and parts that wait for the server.
struct Launch<'a> {
    paths: &'a PathOptions,
    process: ProcessOptions,
    settings: Settings,
    confinement: Confinement,
    log: LogLevel,
    manager: ServiceManager,
    signals: Signals,
    /// Effect of a shutdown signal until the workers have started.
    end: End,
    /// True if `turnpike upgrade` has started the process.
    takes_over: bool,
    /// True if the service manager has stored a predecessor's state.
    is_restart: bool,
    tables: Tables,
    /// Facts about coturn's configuration, if the server runs from it.
    coturn: Option<CoturnReport>,
}

impl Launch<'_> {
    /// Queries the public addresses, if the settings request it. Returns false if a signal stops
    /// the server.
    async fn find_public_addresses(&mut self) -> Result<bool> {
        if !self.settings.is_external_auto() {
            return Ok(true);
        }
        let finding = external::find(&self.settings);
        let Some(found) = self.end.unless_told(finding, &mut self.signals).await? else {
            tracing::info!("told to end during the start");
            return Ok(false);
        };
        for pair in &found {
            tracing::info!("the public address of {} is {}", pair.local, pair.public);
        }
        self.settings.put_found_external(found);
        Ok(true)
    }

    /// Puts rules of the user database into effect: the rules last read by the predecessor, or
    /// those in the database now.
    async fn put_first_rules(&mut self, predecessor: Option<&Predecessor>) -> Result<()> {
        self.tables = Tables::of(&self.settings);
        match predecessor.and_then(Predecessor::tables) {
            Some(rows) => self.tables.go_on_from(rows),
            None => self.tables.read_first(&self.settings).await,
        }
        let put = self.tables.put_first_rules(&mut self.settings);
        put.map_err(|why| Failure::failed(anyhow!(why)))
    }

    /// Logs the warnings of the start. `prepared` are warnings of the workers' preparation, and
    /// `users` is a warning about the user database.
    fn warn(&self, prepared: &[String], group: Option<u32>, users: Option<&str>) {
        let confinement = self.confinement.warnings(&self.settings);
        for warning in prepared.iter().chain(&confinement).chain(&self.manager.warnings) {
            tracing::warn!("{warning}");
        }
        let unreachable =
            group.and_then(|group| control_group::unreachable_by(group, &self.settings));
        if let Some(finding) = unreachable {
            tracing::warn!("{}", finding.line());
        }
        if let Some(warning) = users {
            tracing::warn!("{warning}");
        }
    }

    /// Returns the routes of operators and those of monitoring, and publishes the displayed facts.
    fn routes(
        &self,
        handle: &Handle,
        kernel_path: &KernelPath,
        accounts: Option<Arc<DatabaseAccounts>>,
    ) -> (Routes, Router) {
        handle.set_configuration(reload::in_force(&self.settings));
        if let Some(coturn) = &self.coturn {
            coturn.show(handle);
        }
        let (clock, offload) = (|| Clock::now().instant, kernel_path.watch());
        let mut operators = Routes::new(handle.clone(), clock, offload.clone(), self.log.recent());
        if let Some(accounts) = accounts {
            operators = operators.with_accounts(accounts);
        }
        let listeners = Arc::new(OwnListeners::new(&self.settings, handle.clone()));
        let path = &self.settings.http.metrics_path;
        let monitoring = admin::monitoring::router(handle.clone(), clock, offload, listeners, path);
        (operators, monitoring)
    }

    /// Notifies the service manager and waiting processes that the server is ready.
    fn tell_ready(&self) -> Result<()> {
        self.manager.ready();
        if self.is_restart {
            self.manager.forget();
        }
        self.process.ready()?;
        if self.takes_over {
            process::tell_ready()?;
        }
        Ok(())
    }

    /// Starts the workers and the control plane, and runs the server until it stops.
    async fn start(
        mut self,
        mut sockets: ControlSockets,
        users: UserDatabase,
        order: Option<Order>,
        prepared: Prepared,
    ) -> Result<()> {
        let (handle, requests) = Handle::new(prepared.workers, prepared.info);
        let handle = handle.with_traces(prepared.traces).with_users(prepared.users);
        let handle = handle.with_lost_lines(self.log.lines_lost());
        let (operators, monitoring) = self.routes(&handle, &prepared.kernel_path, users.accounts);
        let certificates = &prepared.reloadable.certificates;
        let mut served = sockets.route(&self.settings, certificates, &operators, &monitoring)?;
        let records = prepared.records.map(|records| records.keep(&handle, &self.settings));
        self.tables.watch(&self.settings)?;
        let alternates = Alternates::watch(&self.settings);
        // The last step that can fail. After it only this process has the calls.
        let starting = prepared.starting.begin();
        let Some(mut started) = self.end.unless_told(starting, &mut self.signals).await? else {
            tracing::info!("told to end during the start");
            return Ok(());
        };
        go_on_from(&mut started, &handle);
        if let Some(records) = &records {
            records.report_survivors();
        }
        let paths = put_in_place(&mut sockets.handover_file, &mut served);
        let serve =
            |(listener, routes)| tokio::spawn(admin::serve(listener, routes)).abort_handle();
        let serving = served.into_iter().map(serve).collect();
        if let Some(order) = order {
            start_renewal(order, &self.settings, &handle, certificates.in_force());
        }
        port_sharers::start(&prepared.export.listeners, &handle);
        let orders = started.retiring.as_ref().map(Retiring::orders).cloned().unwrap_or_default();
        let given = match started.retiring {
            Some(retiring) => begin_kernel_path(retiring, &prepared.kernel_path).await,
            None => None,
        };
        let changes = Changes::default();
        let export = ServerExport {
            workers: prepared.export,
            services: sockets.services,
            serving,
            paths,
            kernel_path: prepared.kernel_path.clone(),
            handle: handle.clone(),
            tables: self.tables.last_read(),
            changes: changes.clone(),
        };
        let (done, handed_over) = unbounded_channel();
        let successor = (sockets.handover, done, started.took_over.is_some());
        let keeper = handover::keeper_socket(&self.settings.control_socket());
        let (handovers, keeper) = offer_calls(export, successor, (keeper, given));
        tracing::info!("ready");
        self.tell_ready()?;
        if let Some(user) = users.first_user {
            show(&user, &handle.info(), &self.settings)?;
        }
        let server = Server {
            paths: self.paths.clone(),
            in_force: InForce::new(
                self.settings,
                self.log,
                self.confinement.readable(),
                prepared.reloadable,
            ),
            handle,
            requests: Requests::new(requests, changes),
            orders,
            signals: self.signals,
            manager: self.manager,
            reload_refused: false,
            threads: Threads::watch(started.threads),
            records,
            kernel_path: prepared.kernel_path,
            host: HostWatch::new(prepared.monitor),
            tables: self.tables,
            alternates,
            handed_over,
            handovers,
            keeper,
            _handover_socket: sockets.handover_file,
            reload_job: ReloadJob::new(),
        };
        server.run().await
    }
}

/// Starts the task that orders certificates of the server.
fn start_renewal(
    order: Order,
    settings: &Settings,
    handle: &Handle,
    certificates: Arc<Certificates>,
) {
    let store = renewal::store(settings);
    let counters = Arc::clone(handle.workers.control_plane());
    let refused = move || counters.add(Series::CertificatesRefused, 1);
    tokio::spawn(renewal::renew(order, store, certificates, refused));
}

/// Continues the predecessor's counters, and reports the allocations that were taken over.
fn go_on_from(started: &mut Started, handle: &Handle) {
    if let Some(retiring) = &started.retiring {
        // Commands may have changed users after the predecessor's offer.
        handle.distrust_users(&retiring.orders().unconfirmed);
    }
    if let Some(totals) = started.retiring.as_mut().and_then(Retiring::take_totals) {
        handle.workers.go_on_from(totals);
    }
    if let Some(TookOverInfo { process, allocations, pause }) = started.took_over {
        let pause_us = pause.as_micros() as u64;
        tracing::info!(process, allocations, pause_us, "goes on with the allocations of a process");
        handle.set_info(ServerInfo { took_over: started.took_over, ..(*handle.info()).clone() });
    }
}

/// Starts the kernel path after the predecessor has released it. Returns the connection with the
/// keeper that the calls were imported from.
async fn begin_kernel_path(retiring: Retiring, kernel_path: &KernelPath) -> Option<Wire> {
    let kernel_path = kernel_path.clone();
    let begin = move || {
        let keeper = retiring.wait();
        kernel_path.begin();
        keeper
    };
    // After this step the service manager accepts notifications of this process.
    tokio::task::spawn_blocking(begin).await.ok().flatten()
}

/// Accepts hand-overs to a successor at the listener `successor`, and sends copies to a keeper at
/// the socket `keeper`. The server continues if either cannot be started.
fn offer_calls(
    export: ServerExport,
    (successor, done, is_behind_a_pause): (UnixListener, UnboundedSender<HandoverReport>, bool),
    keeper: (PathBuf, Option<Wire>),
) -> (Option<Handovers>, Option<KeeperLink>) {
    let channels = export.workers.channels.clone();
    let others = CopiedBeside {
        kernel_path: export.kernel_path.downgrade(),
        handle: export.handle.clone(),
        tables: export.tables.clone(),
    };
    let handovers = export
        .start(successor, done, is_behind_a_pause)
        .inspect_err(|error| tracing::error!("this server takes no upgrades: {error}"))
        .ok();
    let link =
        handovers.as_ref().map(|handovers| KeeperLink::start(keeper, handovers, channels, others));
    // A failure must not stop the server, which has taken over calls.
    let link = link.transpose().unwrap_or_else(|error| {
        tracing::error!("no keeper gets copies: cannot start a thread: {error}");
        None
    });
    (handovers, link)
}

/// Prints the generated user of a first start.
fn show(user: &Shown, info: &ServerInfo, settings: &Settings) -> Result<()> {
    let program = std::env::current_exe().unwrap_or_else(|_| "turnpike".into());
    output::print(&first_start::banner(user, info, &program, &settings.data.directory))
}

/// Replaces the predecessor's Unix sockets, and returns the owners of the socket files. A failure
/// is only logged, because calls continue without the sockets.
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

/// Effect of a shutdown signal during the start.
#[derive(Clone, Copy, Debug)]
enum End {
    /// A signal aborts the start. SIGUSR1 and SIGUSR2 also do, if their configured actions, given
    /// here, are drains.
    AtOnce([SignalAction; 2]),
    /// The server starts, and then shuts down as usual. Only this process can continue the waiting
    /// calls.
    WhenServing,
}

impl End {
    fn during_start(predecessor: Option<&Predecessor>, settings: &Settings) -> Self {
        match predecessor.and_then(Predecessor::silent_since) {
            Some(_) => Self::WhenServing,
            None => Self::AtOnce([settings.signals.usr1, settings.signals.usr2]),
        }
    }

    /// Waits for `starting`. Returns `None` if a signal aborts the start.
    async fn unless_told<T>(
        self,
        starting: impl Future<Output = Result<T>>,
        signals: &mut Signals,
    ) -> Result<Option<T>> {
        let [usr1, usr2] = match self {
            // The signal remains queued for the server's loop.
            Self::WhenServing => return starting.await.map(Some),
            Self::AtOnce(meanings) => meanings,
        };
        let mut starting = pin!(starting);
        loop {
            tokio::select! {
                biased;
                signal = signals.next() => match signal {
                    Signal::End => return Ok(None),
                    // Nothing is served yet, so a drain has nothing to wait for.
                    Signal::User1 if usr1 == SignalAction::Drain => return Ok(None),
                    Signal::User2 if usr2 == SignalAction::Drain => return Ok(None),
                    // The first load of the files is still in progress.
                    Signal::Reload | Signal::User1 | Signal::User2 => {}
                },
                started = &mut starting => return started.map(Some),
            }
        }
    }
}

/// Logs a summary of the server in a few lines.
fn announce(
    file: Option<&Path>,
    settings: &Settings,
    info: &ServerInfo,
    (path, beginning): (&KernelPath, Beginning),
) {
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
    for relay in info.relay.iter().filter(|relay| relay.is_present) {
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
        }
    }
    let on = path.watch().map(|watch| watch.settings()).unwrap_or_default();
    if info.offload.off_because.is_none() || !on.is_empty() {
        tracing::info!("kernel path: {}", changes_of_host(&on));
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
        most(settings.quotas.allocations_total.get(), "as many as ports and open files allow"),
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
        // The server's loop receives the signal.
        assert!(matches!(signals.next().await, Signal::End));
        raise().unwrap();
        let end = End::AtOnce([SignalAction::Ignore; 2]);
        let ended = end.unless_told(std::future::pending::<Result<()>>(), &mut signals).await;
        assert_eq!(ended.unwrap(), None);
    }
}
