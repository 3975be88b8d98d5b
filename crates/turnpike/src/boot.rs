//! Assembly of a relaying server from its settings: limits, rules, sockets, workers.

mod connections;
mod descriptors;
mod workers;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use control::{
    ConfinementInfo, MissingAddresses, MonitoringInfo, OffloadInfo, RelayInfo, ServerInfo, Traces,
    UnreadParts, UserDirectory, WorkerCounters, Workers,
};
use dataplane::{
    LogAddresses, LogOptions, NetOptions, PseudonymKey, WorkerChannels, WorkerEndpoint,
};
use linux_net::{Clock, HostMonitor, capabilities, raise_open_files, random_bytes};
use settings::{HostAddresses, Settings, WorkerCount};
use turn_proto::{DefaultFamily, Policy, Quotas, SharedRegistry, UnauthenticatedBudget};
use turn_types::{Secret, WorkerId};
use user_db::UserEditor;
use xdp_relay::Routes;

use self::connections::{dtls_settings, stream_settings};
use self::descriptors::TableLimits;
pub(crate) use self::descriptors::{Descriptors, relayed_most};
pub(crate) use self::workers::Started;
use self::workers::{OwnParts, SharedParts, Starting};
use crate::alternates::Silent;
use crate::authorizer::WhenSilentInForce;
use crate::certificates::{self, CertificateReloader};
use crate::confinement::{self, Confinement, WorkerConfinement};
use crate::data_directory;
use crate::devices::Devices;
use crate::failure::{OrFail as _, Result};
use crate::findings::Finding;
use crate::handover::{ListenerCopies, ListenerKind, Predecessor, WorkersExport};
use crate::offload::{Beginning, KernelPath};
use crate::own_addresses::OwnAddresses;
use crate::revocations::Revocations;
use crate::session_records::{self, SessionRecords};
use crate::sockets::{Bound, Served, WorkerSockets};
use crate::users::{self, NoUsers, Users};
use crate::{authorizer, cores, relay_prefixes, relays, sockets, unread, warnings};

/// Server whose workers are ready to start.
pub(crate) struct Prepared {
    pub(crate) workers: Workers,
    pub(crate) starting: Starting,
    pub(crate) reloadable: Reloadable,
    pub(crate) info: ServerInfo,
    /// Clients and users whose events are logged in detail.
    pub(crate) traces: Arc<Traces>,
    /// Users of the database.
    pub(crate) users: Arc<dyn UserDirectory>,
    /// Records of sessions, if configured.
    pub(crate) records: Option<SessionRecords>,
    pub(crate) kernel_path: KernelPath,
    pub(crate) beginning: Beginning,
    /// Notifications of host changes since the host was examined.
    pub(crate) monitor: io::Result<HostMonitor>,
    /// Warnings for the operator.
    pub(crate) warnings: Vec<String>,
    /// Parts that a successor will request.
    pub(crate) export: WorkersExport,
}

/// Parts of a server that a reload changes.
pub(crate) struct Reloadable {
    /// Rules in effect.
    pub(crate) policy: Arc<Policy>,
    /// Revoked credentials.
    pub(crate) revocations: Revocations,
    /// Key of pseudonyms in the log.
    pub(crate) pseudonyms: PseudonymKey,
    /// Value of `authorizer.when_silent` in effect.
    pub(crate) when_silent: WhenSilentInForce,
    pub(crate) certificates: CertificateReloader,
    /// Addresses that this host delivers locally, as used by the rules.
    pub(crate) own: OwnAddresses,
    /// Network interfaces named in the settings.
    pub(crate) devices: Devices,
}

/// Prepares the workers. Without an `editor` of the user database the workers look up no users.
/// With a `predecessor` the workers continue its calls.
pub(crate) fn prepare(
    settings: &Settings,
    mut editor: Option<Box<dyn UserEditor>>,
    confinement: Option<&mut Confinement>,
    mut predecessor: Option<Predecessor>,
) -> Result<Prepared> {
    // Opened before the host is examined, to receive all later changes.
    let monitor = HostMonitor::open();
    let own = OwnAddresses::read()?;
    let nonce_key = nonce_key(predecessor.as_ref());
    let cores = cores_of(settings, predecessor.as_ref());
    let mut policy = rules(settings, &own, nonce_key, None, cores.len())?;
    if let Some(editor) = &mut editor {
        policy = users::offer_sha256(&mut **editor, policy)?;
    }
    check_relays(settings, &policy, &own, predecessor.as_ref())?;
    let revocations = Revocations::read(settings.revoked(), Clock::now())?;
    let policy = Arc::new(revocations.put_in(policy));

    let Network { net, bound, devices } =
        bind_sockets(settings, &policy, cores.len(), predecessor.as_mut())?;
    let certificates = CertificateReloader::new(settings)?;
    let (limits, few_files) = table_limits(settings, &policy, cores.len());
    let streams = stream_settings(settings, limits.connections, &certificates);
    let dtls = dtls_settings(settings, &certificates)?;
    let (workers, endpoints, counters) = mailboxes(cores.len())?;

    let beginning = beginning(predecessor.as_ref());
    let relays = policy.relay.iter().map(|relay| relay.local).collect();
    let (kernel_path, mut offload) =
        KernelPath::start(settings, &bound.addresses, relays, beginning);
    let mut routes: Vec<_> =
        (0..).map(WorkerId).map(|id| kernel_path.routes(id)).take(cores.len()).collect();
    // This is the last privileged step, and no thread serves clients yet.
    let of_workers = confine(confinement, &kernel_path, routes.iter_mut().flatten().next())?;
    let directory = user_directory(settings, editor, &workers, predecessor.as_ref())?;
    let users = Arc::clone(&directory);
    let (authorizer, when_silent) = authorizer::start(settings, &workers)?;
    let pseudonyms = PseudonymKey::new(Secret::new(random_bytes()));
    pseudonyms.put_in_force(settings.address_key.as_ref());
    let records = session_records::start(settings, &workers)?;
    let log = log_options(settings, &pseudonyms, records.as_ref());
    let export = workers_export(&endpoints, &bound.workers, nonce_key, &net)?;
    let shared = SharedParts {
        started: since_1970(),
        streams,
        dtls,
        policy: Arc::clone(&policy),
        registry: Arc::clone(workers.registry()) as Arc<dyn SharedRegistry>,
        directory,
        authorizer,
        channels: export.channels.clone(),
        net,
        log,
    };
    let parts = cores.into_iter().zip(bound.workers).zip(endpoints).zip(counters).zip(routes);
    let own_parts = parts.map(|((((core, sockets), endpoint), counters), routes)| OwnParts {
        core,
        sockets,
        endpoint,
        counters,
        routes,
    });
    let starting = Starting::new(&shared, own_parts, of_workers, predecessor);

    offload.memory_bytes = kernel_path.memory();
    let warnings = bound.warnings.into_iter().chain(few_files);
    let warnings = warnings.chain(advice(&policy, settings, &own.host())).collect();
    let mut info = info(&policy, settings, bound.addresses, (workers.count(), bound.gro), offload);
    info.tls_listeners = bound.tls;
    info.missing = relays::missing(settings, &policy, (&own.host(), &devices), &info);
    unread::tell(&mut info, settings, &certificates, None);
    let reloadable =
        Reloadable { policy, revocations, pseudonyms, when_silent, certificates, own, devices };
    Ok(Prepared {
        workers,
        users,
        starting,
        reloadable,
        info,
        traces: shared.log.traces,
        records,
        kernel_path,
        beginning,
        monitor,
        warnings,
        export,
    })
}

/// Returns the time since 1970, or 0 if the clock is earlier.
fn since_1970() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

/// Returns the key of nonces. The predecessor's key is reused, so clients need not authenticate
/// again.
fn nonce_key(before: Option<&Predecessor>) -> Secret<[u8; 32]> {
    before.map_or_else(|| Secret::new(random_bytes()), Predecessor::nonce_key)
}

/// Checks that this host can relay from the addresses and prefixes of a policy. The ports of
/// prefixes may be in use by the predecessor.
fn check_relays(
    settings: &Settings,
    policy: &Policy,
    own: &OwnAddresses,
    predecessor: Option<&Predecessor>,
) -> Result<()> {
    for relay in policy.relay.iter().filter(|relay| relay.is_present) {
        sockets::check_relay(relay.local)?;
    }
    let (addresses, tcp) = (own.host(), settings.tcp.relaying);
    let inherited = |at| predecessor.is_some_and(|before| before.has((ListenerKind::Shared, at)));
    relay_prefixes::check(&policy.prefixes, own.prefixes(), addresses.usable(), tcp, inherited)
}

/// Sockets of a server, socket options, and the interfaces that the sockets are bound to.
struct Network {
    net: NetOptions,
    bound: Bound,
    devices: Devices,
}

/// Binds the listeners of all workers, or takes them from the predecessor.
fn bind_sockets(
    settings: &Settings,
    policy: &Policy,
    workers: usize,
    mut predecessor: Option<&mut Predecessor>,
) -> Result<Network> {
    let mut devices = Devices::find(settings)?;
    let net = sockets::options(settings, &devices);
    let listeners = settings.listeners();
    // Listeners that also accept other protocols detect TLS by its first bytes.
    let tls: Vec<SocketAddr> =
        settings.tls_listen.iter().copied().filter(|at| !listeners.contains(at)).collect();
    let served = Served {
        workers,
        udp: settings.udp.enabled,
        tcp: settings.tcp.enabled,
        tls: settings.tls.enabled,
        dtls: settings.serves_dtls(),
    };
    let mut bound = sockets::bind(&listeners, &tls, served, &net, predecessor.as_deref_mut())?;
    bound.bind_shared(policy, &net, predecessor)?;
    devices.inherit_listener(bound.device());
    Ok(Network { net, bound, devices })
}

/// Returns the parts of the data plane for a successor.
fn workers_export(
    endpoints: &[WorkerEndpoint],
    sockets: &[WorkerSockets],
    nonce_key: Secret<[u8; 32]>,
    net: &NetOptions,
) -> Result<WorkersExport> {
    let copies = |of: &WorkerSockets| ListenerCopies::of(&of.udp, &of.tcp, &of.shared);
    let listeners = sockets.iter().map(copies).collect::<io::Result<_>>();
    Ok(WorkersExport {
        channels: WorkerChannels::to(endpoints),
        listeners: listeners.or_fail("cannot copy the listeners")?,
        nonce_key,
        relay_sockets: net.relay_settings(),
        receive_buffer: net.recv_buffer,
    })
}

/// Creates the mailboxes and counters of `count` workers. Returns the control plane's ends, and the
/// ends and counters of each worker.
fn mailboxes(count: usize) -> Result<(Workers, Vec<WorkerEndpoint>, Vec<Arc<WorkerCounters>>)> {
    let mut posts = Vec::new();
    let mut endpoints = Vec::new();
    for _ in 0..count {
        let (mailbox, endpoint) = dataplane::mailbox().or_fail("cannot make a worker's mailbox")?;
        posts.push((mailbox, Arc::new(WorkerCounters::new())));
        endpoints.push(endpoint);
    }
    let counters = posts.iter().map(|(_, counters)| Arc::clone(counters)).collect();
    Ok((Workers::new(posts), endpoints, counters))
}

/// Returns the start condition of the kernel path.
fn beginning(before: Option<&Predecessor>) -> Beginning {
    match before.map(Predecessor::silent_since) {
        None => Beginning::Now,
        Some(None) => Beginning::BehindAnother,
        Some(Some(_)) => Beginning::BehindCalls,
    }
}

/// Starts the look-up of users, if a user database is configured.
fn user_directory(
    settings: &Settings,
    editor: Option<Box<dyn UserEditor>>,
    workers: &Workers,
    predecessor: Option<&Predecessor>,
) -> Result<Arc<dyn UserDirectory>> {
    // Open until the function returns. While SQLite's additional files exist, they belong to the
    // directory's owner. A confined server running as root could not change the owner of new files.
    let Some(_editor) = editor else { return Ok(Arc::new(NoUsers)) };
    let users = Users::start(users::readers(settings)?, workers.clone())?;
    if let Some(before) = predecessor {
        users.distrust(before.unconfirmed());
    }
    Ok(Arc::new(users))
}

/// Returns the core of each worker. The number of workers must equal the predecessor's, because the
/// kernel distributes clients over the workers' sockets.
fn cores_of(settings: &Settings, before: Option<&Predecessor>) -> Vec<Option<usize>> {
    let (count, pin) = (settings.workers.count, settings.workers.pin);
    let cores = cores::cores(count, pin);
    let Some(fixed) = before.map(Predecessor::workers).filter(|fixed| *fixed != cores.len()) else {
        return cores;
    };
    tracing::warn!(
        workers = fixed,
        "workers.count is {} only after a restart: an upgrade keeps the number",
        cores.len()
    );
    let fixed = u16::try_from(fixed).unwrap_or(u16::MAX);
    cores::cores(WorkerCount::Fixed(fixed), pin)
}

/// Returns the workers' log options: the form of addresses, and the records of sessions.
fn log_options(
    settings: &Settings,
    pseudonyms: &PseudonymKey,
    records: Option<&SessionRecords>,
) -> LogOptions {
    let addresses = match settings.log.addresses {
        settings::LogAddresses::Whole => LogAddresses::Whole,
        settings::LogAddresses::Truncated => LogAddresses::Truncated,
        settings::LogAddresses::Pseudonym => LogAddresses::Pseudonym(pseudonyms.clone()),
    };
    let records = records.map(|records| records.events.clone());
    LogOptions { addresses, traces: Arc::default(), records }
}

/// Returns the rules for each of `workers` workers.
pub(crate) fn rules(
    settings: &Settings,
    own: &OwnAddresses,
    nonce_key: Secret<[u8; 32]>,
    previous: Option<&Policy>,
    workers: usize,
) -> Result<Policy> {
    let policy = settings.policy(&own.host(), own.prefixes(), nonce_key, previous);
    let unauthenticated =
        UnauthenticatedBudget { per_second: share(policy.unauthenticated.per_second, workers) };
    let new_peers_per_second = share(policy.quotas.new_peers_per_second, workers);
    let (limits, _) = table_limits(settings, &policy, workers);
    policy.relay.iter().for_each(|relay| relay.ports.limit(limits.ports));
    let quotas = Quotas {
        new_peers_per_second,
        peer_connections: limits.peer_connections,
        stream_allocations: limits.stream_allocations,
        dtls_allocations: limits.dtls_allocations,
        ..policy.quotas
    };
    let realms =
        policy.realms.map(|realm| realm.quotas.new_peers_per_second = new_peers_per_second);
    let prefixes = match previous {
        Some(_) => policy.prefixes,
        None => relay_prefixes::of(settings, workers)?,
    };
    Ok(Policy { unauthenticated, quotas, realms, prefixes, ..policy })
}

/// Assumed limit of open files if the limit cannot be read: the default of Linux.
const OPEN_FILES_UNREAD: u64 = 1024;

/// Returns the limits of the tables whose entries are open files, and a warning if the process may
/// open too few files for the configuration.
fn table_limits(
    settings: &Settings,
    policy: &Policy,
    workers: usize,
) -> (TableLimits, Option<String>) {
    let files = raise_open_files().unwrap_or(OPEN_FILES_UNREAD);
    let wanted = Descriptors::wanted(settings, policy.relay.len(), workers);
    (wanted.limits(settings, workers, files), wanted.warning(files))
}

/// Returns a worker's share of a rate. Each worker counts separately, and the kernel distributes
/// clients over all workers. The shares add up to the configured rate, except for rounding: a share
/// is at least 1, because 0 means no limit.
fn share(per_second: u32, workers: usize) -> u32 {
    per_second.div_ceil(u32::try_from(workers).unwrap_or(u32::MAX).max(1))
}

/// Returns the facts about a server with a policy.
pub(crate) fn info(
    policy: &Policy,
    settings: &Settings,
    listeners: Vec<SocketAddr>,
    (workers, gro): (usize, bool),
    offload: OffloadInfo,
) -> ServerInfo {
    ServerInfo {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        started: SystemTime::now(),
        realm: policy.realm.to_string(),
        realms: realm_names(policy),
        listeners,
        relay: relay_info(policy),
        missing: MissingAddresses::default(),
        unread: UnreadParts::default(),
        relay_prefixes: policy.prefixes.clone(),
        relay_ports: (settings.relay.ports.min, settings.relay.ports.max),
        workers,
        gro,
        gso: settings.sockets.gso && capabilities().gso,
        offload,
        tls_listeners: Vec::new(),
        dtls: settings.serves_dtls(),
        certificates: Vec::new(),
        confinement: ConfinementInfo::default(),
        monitoring: monitoring(settings),
        redirects: Silent::default().infos(settings),
        reload_refused: None,
        needs_restart: Vec::new(),
        took_over: None,
    }
}

/// Returns the names of the realms in addition to the server's own realm.
pub(crate) fn realm_names(policy: &Policy) -> Vec<String> {
    policy.realms.iter().map(|realm| realm.name.to_string()).collect()
}

/// Returns the settings of the monitoring responses.
pub(crate) fn monitoring(settings: &Settings) -> MonitoringInfo {
    let http = &settings.http;
    MonitoringInfo {
        coturn_metrics: http.coturn_metrics,
        ready_while_draining: http.ready_while_draining,
    }
}

/// Returns the relay addresses of a policy.
pub(crate) fn relay_info(policy: &Policy) -> Vec<RelayInfo> {
    let info = |relay: &turn_proto::RelayAddress| RelayInfo {
        local: relay.local,
        public: relay.public,
        is_present: relay.is_present,
    };
    policy.relay.iter().map(info).collect()
}

/// Returns warnings about values that are valid but probably not intended on this host.
pub(crate) fn advice(policy: &Policy, settings: &Settings, host: &HostAddresses) -> Vec<String> {
    let mut advice = relays::warnings(settings, host);
    advice.extend(unreachable_relays(policy));
    advice.extend(unserved_family(policy));
    advice.extend(unreachable_discovery(policy));
    advice.extend(data_directory::warning(&settings.data.directory));
    advice.extend(warnings::warnings(settings).iter().map(Finding::line));
    // Expiry dates are watched separately, with a warning each day.
    let certificates = certificates::findings(settings, SystemTime::now()).into_iter();
    advice.extend(certificates.filter(|(dated, _)| !dated).map(|(_, finding)| finding.line()));
    advice
}

/// Drops the capabilities that the server no longer needs.
fn confine(
    confinement: Option<&mut Confinement>,
    kernel_path: &KernelPath,
    routes: Option<&mut Routes>,
) -> Result<WorkerConfinement> {
    let Some(confinement) = confinement else { return Ok(WorkerConfinement::default()) };
    confinement.give_up_capabilities(kernel_path, maps_want_a_capability(routes)?)?;
    Ok(confinement.of_workers())
}

/// Returns true if a thread without capabilities cannot write routes. This is the case before Linux
/// 5.19 if `kernel.unprivileged_bpf_disabled` is set.
fn maps_want_a_capability(routes: Option<&mut Routes>) -> Result<bool> {
    let Some(routes) = routes else { return Ok(false) };
    confinement::without_capabilities(|| !routes.is_writable())
}

/// Returns warnings about relay addresses that clients in other networks cannot reach.
fn unreachable_relays(policy: &Policy) -> Vec<String> {
    let warning = |ip: IpAddr| {
        format!(
            "the relay address {ip} is reachable from this {} only; behind NAT \
             set relay.external to the public address",
            if ip.is_loopback() { "host" } else { "network" }
        )
    };
    // Different public addresses are covered by the warnings about the configuration.
    let own = policy.relay.iter().filter(|relay| relay.local == relay.public);
    own.map(|relay| relay.public).filter(|ip| warnings::is_private(*ip)).map(warning).collect()
}

/// Returns a warning if no relay address has the default address family. That family applies to
/// clients that request none, as most clients do.
fn unserved_family(policy: &Policy) -> Option<String> {
    let of_prefixes = policy.prefixes.iter().map(|prefix| prefix.network().first());
    let mut addresses = policy.relay.iter().map(|relay| relay.local).chain(of_prefixes);
    let mut relays_from = |is_ipv4| addresses.any(|address| address.is_ipv4() == is_ipv4);
    let (is_ipv4, lacks, other) = match policy.default_family {
        DefaultFamily::V4 => (true, "IPv4", "ipv6"),
        DefaultFamily::V6 => (false, "IPv6", "ipv4"),
        DefaultFamily::Client => return None,
    };
    (!policy.relay.is_empty() && !relays_from(is_ipv4)).then(|| {
        format!(
            "no {lacks} address is relayed from: clients that name no family are refused (440), as most clients are; set \
             relay.default_family = \"{other}\", or \"client\" for that of the client's own address"
        )
    })
}

/// Returns warnings about unreachable addresses for NAT behaviour discovery. A client would send to
/// such an address, and attribute the silence to a NAT.
fn unreachable_discovery(policy: &Policy) -> Vec<String> {
    let told =
        policy.discovery.iter().flat_map(|square| square.public.map(|[first, _]| first.ip()));
    let warning = |ip: IpAddr| {
        format!(
            "clients that ask for NAT discovery are told the address {ip}, which only this {} can \
             reach; behind NAT set discovery.external to the public addresses",
            if ip.is_loopback() { "host" } else { "network" }
        )
    };
    told.filter(|ip| warnings::is_private(*ip)).map(warning).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use settings::Environment;

    use super::*;

    fn settings(text: &str) -> Settings {
        settings::parse(Path::new("test.toml"), text, &Environment::empty()).unwrap()
    }

    fn policy(settings: &Settings) -> Policy {
        let host = HostAddresses::new(vec!["127.0.0.1".parse().unwrap()]);
        settings.policy(&host, &[], Secret::new([0; 32]), None)
    }

    #[test]
    fn workers_share_what_strangers_are_granted() {
        for (whole, workers, part) in
            [(1000, 1, 1000), (1000, 4, 250), (10, 4, 3), (1, 64, 1), (0, 4, 0), (5, 0, 5)]
        {
            assert_eq!(share(whole, workers), part, "{whole} for {workers}");
        }
        let settings = settings("[quotas]\nunauthenticated_responses_per_second = 100\n");
        let own = OwnAddresses::read().unwrap();
        let policy = rules(&settings, &own, Secret::new([0; 32]), None, 2).unwrap();
        assert_eq!(policy.unauthenticated.per_second, 50);
        assert_eq!(policy.quotas.new_peers_per_second, 50);
    }

    #[test]
    fn clients_that_name_no_family_are_thought_of() {
        for (addresses, family, warns) in [
            ("[\"2001:db8::7\"]", "ipv4", true),
            ("[\"2001:db8::7\"]", "ipv6", false),
            ("[\"2001:db8::7\"]", "client", false),
            ("[\"192.0.2.7\", \"2001:db8::7\"]", "ipv4", false),
            ("[\"192.0.2.7\"]", "ipv6", true),
        ] {
            let text = format!("[relay]\naddresses = {addresses}\ndefault_family = \"{family}\"\n");
            let warning = unserved_family(&policy(&settings(&text)));
            assert_eq!(warning.is_some(), warns, "{addresses} {family}: {warning:?}");
        }
    }

    #[test]
    fn private_relay_addresses_are_warned_about_unless_mapped() {
        for (addresses, count) in [
            (r#"["10.0.0.5", "fd00::1"]"#, 2),
            (r#"["100.64.3.4"]"#, 1),
            (r#"["203.0.113.7", "2001:db8::7"]"#, 0),
            (r#"[{ local = "10.0.0.5", public = "203.0.113.7" }]"#, 0),
        ] {
            let settings = settings(&format!("[relay]\naddresses = {addresses}\n"));
            let warnings = unreachable_relays(&policy(&settings));
            assert_eq!(warnings.len(), count, "{addresses}: {warnings:?}");
        }
    }

    #[test]
    fn private_discovery_addresses_are_warned_about_unless_mapped() {
        let on = "discovery.addresses = [\"10.0.0.5\", \"203.0.113.8\"]\n";
        let warnings = unreachable_discovery(&policy(&settings(on)));
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert!(warnings[0].contains("10.0.0.5"), "{warnings:?}");
        assert_eq!(unreachable_discovery(&policy(&settings(""))), [""; 0]);
    }
}
