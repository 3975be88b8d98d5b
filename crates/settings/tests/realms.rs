//! Realms beside the server's own: what is left out is the server's, and nothing chooses two of
//! them.

use std::path::Path;

use settings::{Environment, HostAddresses, Settings, parse};
use turn_proto::{PeerAccess, Policy};
use turn_types::Secret;

fn read(text: &str) -> Result<Settings, String> {
    parse(Path::new("/etc/t.toml"), text, &Environment::empty())
        .map_err(|errors| errors.to_string())
}

fn policy(text: &str) -> Policy {
    let settings = read(text).unwrap();
    let host = HostAddresses::new(vec!["192.0.2.1".parse().unwrap()]);
    settings.policy(&host, &[], Secret::new([0; 32]), None)
}

const TENANT: &str = r#"
realm = "a.example.org"
software = "Ours"
listen = ["0.0.0.0:3478", "0.0.0.0:3479"]
peers.deny = ["198.51.100.0/24"]
quotas.channels = 7
quotas.bytes_per_second = "1 MiB"
auth.secret = "0123456789abcdef"

[[realms]]
name = "b.example.org"
origins = ["https://Meet.b.example.org/"]
server_names = ["TURN.b.example.org"]
listen = ["0.0.0.0:3479"]
secrets = [{ name = "web", secret = "fedcba9876543210" }]
peers = { allow = ["198.51.100.7"], deny = ["8.8.8.0/24"] }
quotas = { allocations_total = 5, channels = 3 }
lifetimes = { allocation_max = "20 min" }
redirect = { ipv4 = "192.0.2.99:3478" }

[[realms]]
name = "c.example.org"
users = false
secrets = [{ name = "web", secret = "0123456789abcdef" }]
"#;

#[test]
fn an_entry_stands_over_the_defaults_of_the_server() {
    let policy = policy(TENANT);
    let realm = policy.realms.named("b.example.org").unwrap();
    assert_eq!(realm.software.as_deref(), Some("Ours"));
    assert_eq!(realm.origins[0].as_str(), "https://meet.b.example.org:443");
    assert_eq!(realm.server_names, ["turn.b.example.org"]);
    assert_eq!((realm.quotas.channels, realm.quotas.allocations_total), (3, 5));
    assert_eq!(realm.quotas.bytes_per_second, 1 << 20, "the server's");
    assert_eq!(realm.lifetimes.allocation_max.as_secs(), 1200);
    assert_eq!(realm.lifetimes.allocation_default.as_secs(), 600);
    assert_eq!(realm.alternates.any, ["192.0.2.99:3478".parse().unwrap()]);
    let judged = |ip: &str| realm.peer_rules.judge(ip.parse().unwrap());
    assert_eq!(judged("198.51.100.7"), PeerAccess::Allowed);
    assert_eq!(judged("198.51.100.8"), PeerAccess::Denied, "by the server's rule");
    assert_eq!(judged("8.8.8.8"), PeerAccess::Denied, "by its own");
    assert_eq!(judged("10.0.0.1"), PeerAccess::Denied, "as everywhere");

    let own = policy.peer_rules.judge("8.8.8.8".parse().unwrap());
    assert_eq!(own, PeerAccess::Allowed, "the rule of a realm is not that of the server");
    assert!(policy.alternates.is_empty());
    let other = policy.realms.named("c.example.org").unwrap();
    assert_eq!((other.quotas.channels, other.auth.users), (7, false));
}

#[test]
fn secrets_are_of_one_realm() {
    let policy = policy(TENANT);
    let secret = |bytes: &[u8]| Secret::new(bytes.into());
    assert_eq!(policy.auth.secrets[0].secret, secret(b"0123456789abcdef"));
    let realm = policy.realms.named("b.example.org").unwrap();
    assert_eq!(realm.auth.secrets.len(), 1);
    assert_eq!(realm.auth.secrets[0].secret, secret(b"fedcba9876543210"));
    assert!(!realm.auth.open && realm.auth.tokens.is_none());
}

#[test]
fn keys_of_access_tokens_are_of_one_realm() {
    let key = |byte: &str| format!("{}=", byte.repeat(43));
    let (own, other) = (key("A"), key("Q"));
    let text = format!(
        "realm = 'a'\nauth.token_keys = [{{ kid = 'x', key = '{own}' }}]\n[[realms]]\nname = 'b'\nusers = false\n\
         token_keys = [{{ kid = 'x', key = '{other}' }}]\n[[realms]]\nname = 'c'\n"
    );
    let policy = policy(&text);
    let tokens = policy.auth.tokens.as_ref().unwrap();
    let realm = policy.realms.named("b").unwrap();
    let tenants = realm.auth.tokens.as_ref().unwrap();
    assert_eq!((&*tokens.server_name, &*tenants.server_name), ("a", "b"));
    assert_ne!(tokens.keys[0].algorithm, tenants.keys[0].algorithm);
    assert!(policy.realms.named("c").unwrap().auth.tokens.is_none());

    // An authorization server may know this server by one name for all realms, or by one for each.
    let name_of = |text: &str| {
        let policy = self::policy(text);
        let realm = policy.realms.named("b").unwrap();
        realm.auth.tokens.as_ref().unwrap().server_name.to_string()
    };
    let text = text.replace("auth.token_keys", "auth.server_name = 'turn'\nauth.token_keys");
    assert_eq!(name_of(&text), "turn");
    let text = text.replace("users = false", "token_server_name = 'turn-b'");
    assert_eq!(name_of(&text), "turn-b");
}

#[test]
fn a_denied_peer_is_traced_to_its_entry() {
    let policy = policy(TENANT);
    let realm = policy.realms.named("b.example.org").unwrap();
    let rule = realm.peer_rules.denying_rule("8.8.8.8".parse().unwrap()).unwrap();
    assert_eq!(&*rule.place, "/etc/t.toml:10");
}

#[test]
fn slips_are_named_with_their_entry() {
    let two = |one: &str, other: &str| {
        format!("[[realms]]\nname = 'b'\n{one}\n[[realms]]\nname = 'c'\n{other}\n")
    };
    for (text, error) in [
        ("[[realms]]\nusers = true".to_owned(), "entry 1: there is no name"),
        (two("", "token_keys = [{ kid = 'x', key = 'AAAA' }]"), "entry 2, token key 1: "),
        (two("token_keys = [{}]", ""), "entry 1, token key 1: there is no kid"),
        ("realm = 'b'\n[[realms]]\nname = 'b'".to_owned(), "\"b\" is the server's own name"),
        (two("", "").replace("'c'", "'b'"), "entry 2: \"b\" is another entry's name"),
        (two("origins = ['meet.example']", ""), "\"meet.example\" is no origin of a web page"),
        (
            two("origins = ['https://a']", "origins = ['https://A:443']"),
            "entry 2: the origin \"https://A:443\" is there twice",
        ),
        (
            two("server_names = ['t']", "server_names = ['T']"),
            "entry 2: the server name \"t\" is there twice",
        ),
        (two("listen = ['0.0.0.0:9']", ""), "the server does not listen at \"0.0.0.0:9\""),
        (
            two("listen = ['0.0.0.0:3478']", "listen = ['0.0.0.0:3478']"),
            "the listener \"0.0.0.0:3478\" is there twice",
        ),
        (two("users = false", ""), "entry 1: no client could relay"),
        (
            two("secrets = [{ name = 'n', secret = 'short' }]", ""),
            "entry 1, secret 1: the secret has 5 bytes",
        ),
        (
            two("lifetimes.allocation_max = '5 min'", ""),
            "lifetimes.allocation_max is below lifetimes.allocation_default",
        ),
        (
            two("peers = { allow = ['10.0.0.0/8'], deny = ['10.0.0.0/8'] }", ""),
            "\"10.0.0.0/8\" is in peers.allow and in peers.deny",
        ),
        (two("redirect.ipv4 = '[2001:db8::1]:1'", ""), "of the other family"),
        (
            two("redirect.domain = 'a'", ""),
            "entry 1: redirect.domain: there is a name, and no address",
        ),
        (
            two("quotas.chanels = 3", ""),
            "entry 1: there is no quotas.chanels\n    did you mean quotas.channels?",
        ),
        (
            format!("auth.open_relay = 'yes, relay for anyone'\n{}", two("", "")),
            "a realm has no use without credentials",
        ),
    ] {
        let errors = read(&text).unwrap_err();
        assert!(errors.contains(error), "{text}\n{errors}");
    }
}
