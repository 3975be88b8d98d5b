//! What changed between two configurations, key by key.

use turn_proto::DiscoverySockets;

use crate::check::ports::check_in_force;
use crate::error::{Errors, SettingsErrors};
use crate::keys::{Applied, key};
use crate::settings::Settings;
use crate::value::{WorkerCount, show_bytes, show_duration};

/// A key whose value changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The key, such as `relay.ports`.
    pub key: &'static str,
    /// What it was, as it would be written; `none` when it was left out; secrets are `<secret>`.
    pub old: String,
    /// What it is now.
    pub new: String,
}

/// What changed, by when it takes effect.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Diff {
    /// A reload applies these.
    pub live: Vec<Change>,
    /// These take effect when the server is started again.
    pub needs_restart: Vec<Change>,
}

impl Diff {
    /// Whether nothing changed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.live.is_empty() && self.needs_restart.is_empty()
    }
}

/// Compares two configurations, in the order of the reference page.
#[must_use]
pub fn diff(old: &Settings, new: &Settings) -> Diff {
    let mut diff = Diff::default();
    for row in ROWS {
        let known = key(row.key);
        let change = Change { key: row.key, old: (row.show)(old), new: (row.show)(new) };
        // Parts of one field (redirect) are told apart by what is shown, secrets by what they are.
        let shows_all = known.is_some_and(|key| !key.is_secret());
        if (row.same)(old, new) || shows_all && change.old == change.new {
            continue;
        }
        let list = if is_live(row.key) { &mut diff.live } else { &mut diff.needs_restart };
        list.push(change);
    }
    diff
}

impl Settings {
    /// The configuration that a reload of `new` puts in force: what only a restart changes stays as it
    /// is. The table of [`diff()`] decides about each key, so that nothing is reported that is not done.
    ///
    /// # Errors
    /// When what stays and what is new do not go together.
    pub fn reloaded(&self, new: &Self) -> Result<Self, SettingsErrors> {
        let mut merged = new.clone();
        for row in ROWS.iter().filter(|row| !is_live(row.key)) {
            (row.put)(&mut merged, self);
        }
        let mut errors = Errors::default();
        check_in_force(&merged, &mut errors);
        errors.or(merged)
    }
}

fn is_live(name: &str) -> bool {
    key(name).is_some_and(|key| key.applied() == Applied::Live)
}

struct Row {
    key: &'static str,
    show: fn(&Settings) -> String,
    same: fn(&Settings, &Settings) -> bool,
    /// Gives the first the value of the second.
    put: fn(&mut Settings, &Settings),
}

/// One line per key: how it is shown, and the field that is compared.
macro_rules! rows {
    ($($key:literal: $field:ident $(. $more:ident)* => $show:expr,)*) => {
        &[$(Row {
            key: $key,
            show: |settings| ($show)(&settings.$field$(.$more)*),
            same: |old, new| old.$field$(.$more)* == new.$field$(.$more)*,
            put: |to, from| to.$field$(.$more)*.clone_from(&from.$field$(.$more)*),
        }),*]
    };
}

const ROWS: &[Row] = rows! {
    "realm": realm => quoted,
    "listen": listen => list,
    "software": software => |software: &Option<_>| optional(software.as_ref()),
    "mobility": mobility => bool::to_string,
    "relay.addresses": relay.addresses => list,
    "relay.external": relay.external => |external: &crate::value::External| list(&external.0),
    "relay.ports": relay.ports => |ports: &crate::value::PortRange| format!("\"{}-{}\"", ports.min, ports.max),
    "auth.secrets": auth.secrets => secrets,
    "auth.users": auth.users => bool::to_string,
    "auth.open_relay": auth.open_relay => bool::to_string,
    "auth.expiry_at_refresh": auth.expiry_at_refresh => bool::to_string,
    "auth.userhash": auth.userhash => bool::to_string,
    "auth.token_keys": auth.token_keys => token_keys,
    "auth.server_name": auth.server_name => |name: &Option<_>| optional(name.as_ref()),
    "peers.allow": peers.allow => list,
    "peers.deny": peers.deny => list,
    "quotas.allocations_per_user": quotas.allocations_per_user => u32::to_string,
    "quotas.allocations_per_address": quotas.allocations_per_customer => u32::to_string,
    "quotas.allocations_total": quotas.allocations_total => u32::to_string,
    "quotas.permissions": quotas.permissions => u32::to_string,
    "quotas.channels": quotas.channels => u32::to_string,
    "quotas.new_peers_per_second": quotas.new_peers_per_second => u32::to_string,
    "quotas.bytes_per_second": quotas.bytes_per_second => |bytes: &u64| quoted(&show_bytes(*bytes)),
    "quotas.unauthenticated_responses_per_second": unauthenticated.per_second => u32::to_string,
    "lifetimes.allocation_default": lifetimes.allocation_default => duration,
    "lifetimes.allocation_max": lifetimes.allocation_max => duration,
    "lifetimes.permission": lifetimes.permission => duration,
    "lifetimes.channel": lifetimes.channel => duration,
    "lifetimes.nonce": lifetimes.nonce => duration,
    "lifetimes.reservation": lifetimes.reservation => duration,
    "compatibility.rfc5766_clients": rfc5766_clients => bool::to_string,
    "compatibility.coturn_tokens": coturn_tokens => bool::to_string,
    "compatibility.rfc3489_clients": rfc3489_clients => bool::to_string,
    "discovery.addresses": discovery => discovery_addresses,
    "discovery.ports": discovery => discovery_ports,
    "discovery.external": discovery => discovery_external,
    "redirect.ipv4": redirect => |to: &Redirect| optional(to.as_ref().and_then(|to| to.v4)),
    "redirect.ipv6": redirect => |to: &Redirect| optional(to.as_ref().and_then(|to| to.v6)),
    "redirect.domain": redirect => |to: &Redirect| optional(to.as_ref().and_then(|to| to.domain.as_ref())),
    "workers.count": workers.count => |count: &WorkerCount| match count {
        WorkerCount::Auto => "\"auto\"".to_owned(),
        WorkerCount::Fixed(number) => number.to_string(),
    },
    "workers.pin": workers.pin => bool::to_string,
    "tcp.enabled": tcp.enabled => bool::to_string,
    "tcp.connections": tcp.connections => u32::to_string,
    "tcp.connections_per_address": tcp.connections_per_address => u32::to_string,
    "tcp.relaying": tcp.relaying => bool::to_string,
    "tcp.proxy_protocol": tcp.proxy_protocol => list,
    "tcp.acme_redirect": tcp.acme_redirect => |url: &Option<String>| optional(url.as_ref()),
    "tls.listen": tls.listen => list,
    "tls.certificates": tls.certificates => certificates,
    "tls.client_authorities": tls.client_authorities => |path: &Option<std::path::PathBuf>| optional(path.as_ref().map(|path| path.display())),
    "dtls.enabled": dtls.enabled => bool::to_string,
    "dtls.associations": dtls.associations => u32::to_string,
    "dtls.associations_per_address": dtls.associations_per_address => u32::to_string,
    "sockets.receive_buffer": sockets.receive_buffer => bytes,
    "sockets.send_buffer": sockets.send_buffer => bytes,
    "sockets.gro": sockets.gro => bool::to_string,
    "sockets.gso": sockets.gso => bool::to_string,
    "offload.mode": offload.mode => |mode: &crate::file::OffloadMode| quoted(mode.label()),
    "offload.interfaces": offload.interfaces => list,
    "offload.flows": offload.flows => u32::to_string,
    "confinement.landlock": confinement.landlock => bool::to_string,
    "confinement.seccomp": confinement.seccomp => bool::to_string,
    "confinement.readable": confinement.readable => |paths: &Vec<std::path::PathBuf>| list(&paths.iter().map(|path| path.display()).collect::<Vec<_>>()),
    "log.format": log.format => lower,
    "log.level": log.level => lower,
    "control.socket": control => |path: &Option<std::path::PathBuf>| optional(path.as_ref().map(|path| path.display())),
    "data.directory": data_directory => |path: &std::path::PathBuf| quoted(&path.display()),
    "shutdown.drain": drain => duration,
};

fn discovery_addresses(discovery: &[DiscoverySockets]) -> String {
    let rows = discovery.iter().flat_map(|square| &square.local);
    list(&rows.map(|[first, _]| first.ip()).collect::<Vec<_>>())
}

/// The ports are the same in both families.
fn discovery_ports(discovery: &[DiscoverySockets]) -> String {
    let ports = discovery.first().map_or_else(Vec::new, |square| {
        square.local[0].iter().map(|corner| corner.port().to_string()).collect()
    });
    format!("[{}]", ports.join(", "))
}

fn discovery_external(discovery: &[DiscoverySockets]) -> String {
    let corners = discovery
        .iter()
        .flat_map(|square| square.local.iter().flatten().zip(square.public.iter().flatten()));
    let differ = corners.filter(|(local, public)| local != public);
    list(&differ.map(|(local, public)| format!("{local} as {public}")).collect::<Vec<_>>())
}

type Redirect = Option<turn_proto::AlternateServer>;

fn quoted(text: &(impl std::fmt::Display + ?Sized)) -> String {
    format!("\"{text}\"")
}

fn optional(value: Option<impl std::fmt::Display>) -> String {
    value.map_or_else(|| "none".to_owned(), |value| quoted(&value))
}

fn list<T: std::fmt::Display>(values: &[T]) -> String {
    format!("[{}]", values.iter().map(|value| quoted(value)).collect::<Vec<_>>().join(", "))
}

fn secrets(secrets: &[turn_proto::SharedSecret]) -> String {
    let entries = secrets.iter().map(|secret| format!("{}: {}", secret.name, secret.secret));
    format!("[{}]", entries.collect::<Vec<_>>().join(", "))
}

fn certificates(certificates: &[crate::CertificateFiles]) -> String {
    let entries = certificates.iter().map(|one| quoted(&one.chain.display()));
    format!("[{}]", entries.collect::<Vec<_>>().join(", "))
}

fn token_keys(keys: &[turn_proto::TokenKey]) -> String {
    let entries = keys.iter().map(|key| format!("{}: <secret>", key.kid));
    format!("[{}]", entries.collect::<Vec<_>>().join(", "))
}

fn duration(duration: &std::time::Duration) -> String {
    quoted(&show_duration(*duration))
}

fn bytes(bytes: &u32) -> String {
    quoted(&show_bytes(u64::from(*bytes)))
}

fn lower(value: &impl std::fmt::Debug) -> String {
    quoted(&format!("{value:?}").to_lowercase())
}
