//! Options of coturn, and the keys that replace them.

/// Options of coturn with the keys that replace them. Units and forms differ, so that they are not
/// accepted as aliases.
pub(crate) const COTURN: [(&str, &str); 18] = [
    ("allowed-peer-ip", "peers.allow"),
    ("alt-listening-port", "discovery.ports"),
    ("denied-peer-ip", "peers.deny"),
    ("external-ip", "relay.external"),
    ("listening-ip", "listen"),
    ("listening-port", "listen"),
    ("max-bps", "quotas.bytes_per_second"),
    ("max-port", "relay.ports"),
    ("min-port", "relay.ports"),
    ("oauth", "auth.token_keys"),
    ("relay-ip", "relay.addresses"),
    ("rfc3489-compatibility", "compatibility.rfc3489_clients"),
    ("rfc5780", "discovery.addresses"),
    ("server-name", "auth.server_name"),
    ("static-auth-secret", "auth.secret"),
    ("total-quota", "quotas.allocations_total"),
    ("use-auth-secret", "auth.secret"),
    ("user-quota", "quotas.allocations_per_user"),
];

/// The key that replaces an option of coturn.
pub(crate) fn coturns(name: &str) -> Option<&'static str> {
    COTURN.iter().find(|(theirs, _)| *theirs == name).map(|(_, ours)| *ours)
}
