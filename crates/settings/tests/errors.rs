//! Errors of a configuration, word for word.

use settings::Environment;

use crate::support::TempDir;
use crate::support::said::{check, errors};

#[test]
fn keys_that_do_not_exist() {
    check(&[
        (
            "raelm = 'example.org'",
            "turnpike.toml:1: raelm: there is no such key\n    \
             did you mean realm?",
        ),
        (
            "[relay]\nport = '50000-60000'",
            "turnpike.toml:2: relay.port: there is no such key\n    \
             did you mean ports?",
        ),
        (
            "[relays]\nports = '50000-60000'",
            "turnpike.toml:1: relays: there is no such key\n    \
             did you mean relay?",
        ),
        (
            "secret_file = '/etc/turnpike/secret'",
            "turnpike.toml:1: secret_file: there is no such key\n    \
             secret_file belongs under [auth]",
        ),
        (
            "[auth]\nrealm = 'example.org'",
            "turnpike.toml:2: auth.realm: there is no such key\n    \
             realm belongs at the top of the file, before the first [table]",
        ),
        (
            "[log]\ncolour = true",
            "turnpike.toml:2: log.colour: there is no such key\n    \
             the keys of [log] are format, level, addresses, address_key_file",
        ),
        (
            "static-auth-secret = 'x'",
            "turnpike.toml:1: static-auth-secret: there is no such key\n    \
             that is an option of coturn; here it is auth.secret",
        ),
        (
            "fingerprint = true",
            "turnpike.toml:1: fingerprint: there is no such key\n    \
             remove it; docs/configuration.md lists the keys",
        ),
        (
            "[[auth.secrets]]\nname = 'a'\nsecret_flie = '/etc/turnpike/secret'",
            "turnpike.toml:3: auth.secrets.secret_flie: there is no such key\n    \
             did you mean secret_file?",
        ),
        (
            "[relay]\naddresses = [{ local = '10.0.0.5', nat = '203.0.113.7' }]",
            "turnpike.toml:2: relay.addresses.nat: there is no such key\n    \
             an entry has local, public",
        ),
    ]);
}

#[test]
fn texts_lists_and_switches_that_cannot_be() {
    check(&[
        (
            "realm = ''",
            "turnpike.toml:1: realm: the text is empty\n    \
             write 1 to 127 bytes of text in quotes, without control characters",
        ),
        (
            &format!("realm = '{}'", "r".repeat(128)),
            "turnpike.toml:1: realm: the text has 128 bytes, and the most is 127\n    \
             write 1 to 127 bytes of text in quotes, without control characters",
        ),
        (
            "realm = \"a\\u0007b\"",
            "turnpike.toml:1: realm: the text has a control character in it\n    \
             write 1 to 127 bytes of text in quotes, without control characters",
        ),
        (
            "realm = 7",
            "turnpike.toml:1: realm: 7 is a bare number, and text in quotes is needed\n    \
             write 1 to 127 bytes of text in quotes, without control characters",
        ),
        (
            "realm = ['a', 'b']",
            "turnpike.toml:1: realm: is a list, and one value is needed\n    \
             write 1 to 127 bytes of text in quotes, without control characters",
        ),
        (
            "listen = '0.0.0.0:3478'",
            "turnpike.toml:1: listen: is text, and a list is needed\n    \
             write a list: listen = [...]; in each entry write an IP address and a port, such as \
             \"203.0.113.7:3478\" or \"[2001:db8::7]:3478\"",
        ),
        (
            "[workers]\npin = 'yes'",
            "turnpike.toml:2: workers.pin: is text, and true or false is needed\n    \
             write true or false, without quotes",
        ),
        (
            "realm = true",
            "turnpike.toml:1: realm: true is a switch, and text in quotes is needed\n    \
             write 1 to 127 bytes of text in quotes, without control characters",
        ),
        (
            "[control]\nsocket = 5",
            "turnpike.toml:2: control.socket: is a whole number, and text is needed\n    \
             write text in quotes",
        ),
        (
            "[auth]\nsecrets = ['0123456789abcdef']",
            "turnpike.toml:2: auth.secrets: entry 1: is not a table\n    \
             write a list of tables: secrets = [{ ... }]",
        ),
        (
            "log = 'debug'",
            "turnpike.toml:1: log: is text, and is a table\n    \
             write [log] on a line of its own, and its keys below",
        ),
        (
            "[auth]\nopen_relay = true",
            "turnpike.toml:2: auth.open_relay: true is not clear enough\n    \
             write \"no\", or, to relay for everyone, without authentication, \"yes, relay for anyone\"",
        ),
    ]);
}

#[test]
fn addresses_and_ports_that_cannot_be() {
    check(&[
        (
            "listen = ['0.0.0.0:3478', '203.0.113.7']",
            "turnpike.toml:1: listen: \"203.0.113.7\" has no port\n    \
             write an IP address and a port, such as \"203.0.113.7:3478\" or \"[2001:db8::7]:3478\"",
        ),
        (
            "[relay]\nports = '700-800'",
            "turnpike.toml:2: relay.ports: \"700-800\" begins below port 1024, where system services live\n    \
             write the lowest and the highest port, from 1024 to 65535, such as \"49152-65535\"",
        ),
        (
            "[relay]\nports = 50000",
            "turnpike.toml:2: relay.ports: 50000 is one port, and a range is needed\n    \
             write the lowest and the highest port, from 1024 to 65535, such as \"49152-65535\"",
        ),
        (
            "[relay]\nexternal = 'eth0'",
            "turnpike.toml:2: relay.external: \"eth0\" is a name, and an IP address is needed\n    \
             write \"auto\", the public address, such as \"203.0.113.7\", or a list of one per family, \
             [\"203.0.113.7\", \"2001:db8::7\"]",
        ),
        (
            "[relay]\naddresses = [\n  'auto',\n  '0.0.0.0',\n]",
            "turnpike.toml:4: relay.addresses: \"0.0.0.0\" is a wildcard, and one address is needed\n    \
             write \"auto\", an address of this host such as \"203.0.113.7\", or, behind 1:1 NAT, \
             { local = \"10.0.0.5\", public = \"203.0.113.7\" }",
        ),
        (
            "[peers]\nallow = ['10.1.2.3/8']",
            "turnpike.toml:2: peers.allow: \"10.1.2.3/8\" is an address in a network: the network is \"10.0.0.0/8\"\n    \
             write a network such as \"192.0.2.0/24\" or \"2001:db8::/32\", or one address",
        ),
    ]);
}

#[test]
fn numbers_and_times_that_cannot_be() {
    check(&[
        (
            "[lifetimes]\nnonce = 600",
            "turnpike.toml:2: lifetimes.nonce: 600 has no unit\n    \
             write a number and a unit (ms, s, min, h, d) such as \"90 s\" or \"10 min\", from 1 min to 1 h",
        ),
        (
            "[lifetimes]\npermission = '2 min'",
            "turnpike.toml:2: lifetimes.permission: \"2 min\" is too short: the least is 5 min\n    \
             write a number and a unit (ms, s, min, h, d) such as \"90 s\" or \"10 min\", from 5 min to 1 h",
        ),
        (
            "[sockets]\nreceive_buffer = '4 MB'",
            "turnpike.toml:2: sockets.receive_buffer: \"4 MB\" has an unknown unit \"MB\"; there are B, KiB, MiB, GiB\n    \
             write a number and a unit (B, KiB, MiB, GiB) such as \"64 MiB\", from 64 KiB to 256 MiB",
        ),
        (
            "[quotas]\npermissions = 5000",
            "turnpike.toml:2: quotas.permissions: 5000 is out of range\n    \
             write a whole number from 1 to 1024, without quotes",
        ),
        (
            "[quotas]\npermissions = '50'",
            "turnpike.toml:2: quotas.permissions: \"50\" is not a whole number\n    \
             write a whole number from 1 to 1024, without quotes",
        ),
        (
            "[workers]\ncount = 0",
            "turnpike.toml:2: workers.count: 0 is out of range\n    \
             write \"auto\" for one per processor, or a whole number from 1 to 256, the most that \
             the kernel path serves",
        ),
        (
            "[offload]\nflows = 1000",
            "turnpike.toml:2: offload.flows: 1000 is out of range\n    \
             write a whole number from 1024 to 1048576, without quotes",
        ),
    ]);
}

#[test]
fn choices_and_names_that_cannot_be() {
    check(&[
        (
            "[log]\nlevel = 'warning'",
            "turnpike.toml:2: log.level: \"warning\" is not one of the choices\n    \
             write one of \"error\", \"warn\", \"info\", \"debug\", \"trace\"",
        ),
        (
            "[log]\nformat = 'jsno'",
            "turnpike.toml:2: log.format: \"jsno\" is not one of the choices\n    \
             did you mean \"json\"? Otherwise write one of \"text\", \"logfmt\", \"json\", \"coturn\"",
        ),
        (
            "[offload]\nmode = 'xdpgeneric'",
            "turnpike.toml:2: offload.mode: \"xdpgeneric\" is not one of the choices\n    \
             did you mean \"xdp-generic\"? Otherwise write one of \"auto\", \"xdp\", \"xdp-generic\", \"tc\", \"off\"",
        ),
        (
            "[offload]\ninterfaces = ['eth0', 'eth0:1']",
            "turnpike.toml:2: offload.interfaces: \"eth0:1\" cannot be the name of an interface\n    \
             write the name of a network interface in quotes, such as \"eth0\"; `ip link` lists them",
        ),
    ]);
}

#[test]
fn what_is_not_toml() {
    check(&[
        (
            "realm = example.org",
            "turnpike.toml:1: string values must be quoted, expected literal string\n    \
             see https://toml.io for how TOML is written",
        ),
        (
            "realm = 'a'\nrealm = 'b'",
            "turnpike.toml:2: the key realm is there twice\n    \
             remove one of them; a table such as [relay] is written once",
        ),
    ]);
}

#[test]
fn listeners_that_do_not_go_together() {
    check(&[
        (
            "listen = []",
            "turnpike.toml:1: listen: there is nothing to listen on\n    \
             name an address and port, such as \"0.0.0.0:3478\", or leave the key out for port 3478 everywhere; \
             for TLS alone name tls.listen and tls.certificates",
        ),
        (
            "tcp.enabled = false\nlisten = ['0.0.0.0:443']\n[tls]\nlisten = ['0.0.0.0:443']\n\
             certificates = [{ chain = 'c', key = 'k' }]",
            "turnpike.toml:4: tls.listen: \"0.0.0.0:443\" is in listen too, which tcp.enabled = false leaves to UDP\n    \
             name another port here, or take it out of listen",
        ),
        (
            "listen = [\n'0.0.0.0:3478',\n'0.0.0.0:3478',\n]",
            "turnpike.toml:3: listen: \"0.0.0.0:3478\" is there twice\n    \
             remove one of them",
        ),
        (
            "listen = ['0.0.0.0:50000']",
            "turnpike.toml:1: listen: port 50000 is one of relay.ports (49152-65535)\n    \
             listen on another port, or take relayed addresses from other ports",
        ),
        (
            // The port once, where it is written, though two addresses have it.
            "[relay]\nports = '3000-4000'",
            "turnpike.toml:2: relay.ports: port 3478 of 3000-4000 is a listener's (listen, UDP)\n    \
             listen on another port, or take relayed addresses from other ports",
        ),
    ]);
}

#[test]
fn relay_addresses_that_do_not_go_together() {
    check(&[
        (
            "[relay]\nexternal = ['203.0.113.7', '203.0.113.8']",
            "turnpike.toml:2: relay.external: there are 2 IPv4 addresses\n    \
             write one per family; for more, relay.addresses = [{ local = \"...\", public = \"...\" }, ...]",
        ),
        (
            "[relay]\naddresses = ['10.0.0.5', '10.0.0.6']\nexternal = '203.0.113.7'",
            "turnpike.toml:3: relay.external: it does not say which IPv4 address in relay.addresses it stands for\n    \
             remove it, and write { local = \"...\", public = \"...\" } in relay.addresses",
        ),
        (
            "[relay]\naddresses = ['10.0.0.5']\nexternal = '2001:db8::7'",
            "turnpike.toml:3: relay.external: there is no IPv6 address in relay.addresses that it could stand for\n    \
             add the local one to relay.addresses, or remove it here",
        ),
        (
            "[relay]\naddresses = [{ local = '10.0.0.5', public = '2001:db8::7' }]",
            "turnpike.toml:2: relay.addresses: local 10.0.0.5 and public 2001:db8::7 are of different families\n    \
             a relay of one family cannot be reached by the other",
        ),
        (
            "[relay]\naddresses = [{ local = '10.0.0.5', public = '203.0.113.7' }, { local = '10.0.0.6', public = '203.0.113.7' }]",
            "turnpike.toml:2: relay.addresses: 203.0.113.7 is the public address of 10.0.0.5 too\n    \
             give each its own: both have the same ports",
        ),
        (
            "[relay]\naddresses = []",
            "turnpike.toml:2: relay.addresses: there is no address to relay from\n    \
             write [\"auto\"], or leave the key out",
        ),
    ]);
}

#[test]
fn relay_prefixes_that_cannot_be() {
    check(&[
        (
            "[relay]\nprefixes = ['2001:db8::/120']",
            "turnpike.toml:2: relay.prefixes: 2001:db8::/120 has too few addresses\n    \
             write a network of at most /112 (IPv6) or /30 (IPv4); for single addresses there is relay.addresses",
        ),
        (
            "[relay]\nprefixes = ['2600::/16']",
            "turnpike.toml:2: relay.prefixes: 2600::/16 has more addresses than a host is given\n    \
             write the network that is routed to this host, at least /32 (IPv6) or /8 (IPv4)",
        ),
        (
            "[relay]\nprefixes = ['127.0.0.0/8']",
            "turnpike.toml:2: relay.prefixes: 127.0.0.0/8 has no addresses that peers could reach\n    \
             write a network of unicast addresses that is routed to this host",
        ),
        (
            "[relay]\nprefixes = ['10.9.0.0/24']\naddresses = [{ local = '10.0.0.5', public = '10.9.0.7' }]",
            "turnpike.toml:2: relay.prefixes: 10.9.0.7 of relay.addresses or relay.external is one of 10.9.0.0/24\n    \
             give allocations with ports another address",
        ),
        (
            "[relay]\nprefixes = ['10.9.0.0/24', '10.9.0.128/25']",
            "turnpike.toml:2: relay.prefixes: 10.9.0.128/25 is there twice, or in part\n    \
             remove one of them",
        ),
    ]);
}

#[test]
fn keys_that_do_not_go_together() {
    check(&[
        (
            "[lifetimes]\nallocation_max = '5 min'",
            "turnpike.toml:2: lifetimes.allocation_max: 5 min is below lifetimes.allocation_default, 10 min\n    \
             raise the one or lower the other",
        ),
        (
            "[peers]\nallow = ['10.0.0.0/8']\ndeny = ['192.0.2.0/24', '10.0.0.0/8']",
            "turnpike.toml:3: peers.deny: \"10.0.0.0/8\" is in peers.allow too\n    \
             remove it from one of the lists",
        ),
        (
            "[offload]\ninterfaces = [\n'eth0',\n'eth1',\n'eth0',\n]",
            "turnpike.toml:5: offload.interfaces: \"eth0\" is there twice\n    \
             remove one of them",
        ),
        (
            "[redirect]\nipv4 = '[2001:db8::7]:3478'",
            "turnpike.toml:2: redirect.ipv4: \"[2001:db8::7]:3478\" is of the other family\n    \
             clients are sent to a server of the family they came over",
        ),
        (
            "[redirect]\ndomain = 'turn2.example.org'",
            "turnpike.toml:2: redirect.domain: there is a name, and no address to send clients to\n    \
             set redirect.ipv4, redirect.ipv6 or redirect.servers",
        ),
    ]);
}

#[test]
fn a_socket_path_that_is_too_long() {
    let path = format!("/{}", "x".repeat(107));
    assert_eq!(
        errors(&format!("[control]\nsocket = '{path}'")),
        "turnpike.toml:2: control.socket: the path has 108 bytes, and a Unix socket's has at most 107\n    \
         use a shorter one, such as \"/run/turnpike/control.sock\""
    );
}

#[test]
fn more_interfaces_than_there_may_be() {
    let list = |count: usize| {
        let names: Vec<String> = (0..count).map(|n| format!("'eth{n}'")).collect();
        format!("[offload]\ninterfaces = [{}]", names.join(", "))
    };
    assert_eq!(errors(&list(64)), "");
    assert_eq!(
        errors(&list(65)),
        "turnpike.toml:2: offload.interfaces: the list has 65 interfaces\n    write at most 64"
    );
}

#[test]
fn who_may_relay() {
    check(&[
        (
            "[auth]\nusers = false",
            "turnpike.toml:2: auth.users: no client could relay: there is no shared secret, and users of the database are \
             turned off\n    \
             set auth.secret_file, or users = true; for a STUN server alone relay.enabled = false",
        ),
        (
            "[auth]\nsecret = 'hunter2'",
            "turnpike.toml:2: auth.secret: the secret has 7 bytes, and needs 16 or more\n    \
             make one with `openssl rand -base64 32`",
        ),
        (
            "[auth]\nsecret = '0123456789abcdef'\nopen_relay = 'yes, relay for anyone'",
            "turnpike.toml:3: auth.open_relay: everyone may relay, and there are secrets that no client would need\n    \
             remove auth.open_relay, or the secrets",
        ),
        (
            "[auth]\nopen_relay = 'yes'",
            "turnpike.toml:2: auth.open_relay: \"yes\" is not clear enough\n    \
             write \"no\", or, to relay for everyone, without authentication, \"yes, relay for anyone\"",
        ),
        (
            "[auth]\nsecret = '0123456789abcdef'\nsecret_file = '/etc/turnpike/secret'",
            "turnpike.toml:2: auth.secret: there are both secret and secret_file\n    \
             keep one of them",
        ),
        (
            "[auth]\nsecret_file = '/nowhere/secret'",
            "turnpike.toml:2: auth.secret_file: /nowhere/secret could not be read: there is no such file\n    \
             the file needs to be readable by the user that the server runs as",
        ),
        (
            "[[auth.secrets]]\nsecret = '0123456789abcdef'",
            "turnpike.toml:1: auth.secrets: entry 1: there is no name\n    \
             add name = \"...\", for the logs",
        ),
        (
            "[[auth.secrets]]\nname = 'a'",
            "turnpike.toml:1: auth.secrets: entry 1: there is no secret\n    \
             add secret_file = \"...\" or secret = \"...\"",
        ),
        (
            "[[auth.secrets]]\nname = 'a'\nsecret = '0123456789abcdef'\n[[auth.secrets]]\nname = 'a'\nsecret = 'fedcba9876543210'",
            "turnpike.toml:4: auth.secrets: entry 2: another secret is called \"a\" too\n    \
             use another name",
        ),
        (
            "[[auth.secrets]]\nname = 'a'\nsecret = '0123456789abcdef'\n[[auth.secrets]]\nname = 'b'\nsecret = '0123456789abcdef'",
            "turnpike.toml:4: auth.secrets: entry 2: it is the same secret as \"a\"\n    \
             remove one of them",
        ),
    ]);
}

#[test]
fn token_keys_that_cannot_be() {
    check(&[
        (
            "[[auth.token_keys]]\nkid = 'a'",
            "turnpike.toml:1: auth.token_keys: entry 1: there is no key\n    \
             add key_file = \"...\" or key = \"...\"",
        ),
        (
            "[[auth.token_keys]]\nkey = 'MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE='",
            "turnpike.toml:1: auth.token_keys: entry 1: there is no kid\n    \
             add kid = \"...\", the name that the authorization server calls the key by",
        ),
        (
            "[[auth.token_keys]]\nkid = \"a\\u202Eb\"\nkey = 'MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE='",
            "turnpike.toml:1: auth.token_keys: entry 1: the kid has a character that RFC 8265 does not allow, such as \
             a control character\n    call the key by another name",
        ),
        (
            "[[auth.token_keys]]\nkid = 'a'\nkey = 'MDEyMzQ1Njc4OTAxMjM0NTY='",
            "turnpike.toml:1: auth.token_keys: entry 1: the key has 17 bytes, and A256GCM needs 32\n    \
             make one with `openssl rand -base64 32`",
        ),
        (
            "[[auth.token_keys]]\nkid = 'a'\nalgorithm = 'A128GCM'\nkey = 'not in base64 at all'",
            "turnpike.toml:1: auth.token_keys: entry 1: the key is not in base64\n    \
             make one with `openssl rand -base64 16`",
        ),
        (
            "[[auth.token_keys]]\nkid = 'a'\nkey = 'MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE='\n\
             [[auth.token_keys]]\nkid = 'a'\nkey = 'MTEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE='",
            "turnpike.toml:4: auth.token_keys: entry 2: another key is called \"a\" too\n    \
             remove one of them",
        ),
        (
            "auth.open_relay = 'yes, relay for anyone'\n\
             [[auth.token_keys]]\nkid = 'a'\nkey = 'MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE='",
            "turnpike.toml:1: auth.open_relay: everyone may relay, and there are token keys that no client would \
             need\n    remove auth.open_relay, or auth.token_keys",
        ),
    ]);
}

#[test]
fn everything_that_is_wrong_is_said_at_once() {
    let text = "\
raelm = 'example.org'
listen = ['0.0.0.0:3478', '0.0.0.0']
[relay]
ports = '60000-50000'
[auth]
secret = 'short'
[peers]
deny = [
  '192.0.2.0/24',
  'lan',
  '10.0.0.1/8',
]
[quotas]
permissions = 0
[log]
level = 'debug'
";
    let lines: Vec<_> =
        errors(text).lines().filter(|line| !line.starts_with(' ')).map(str::to_owned).collect();
    assert_eq!(
        lines,
        [
            "turnpike.toml:1: raelm: there is no such key",
            "turnpike.toml:2: listen: \"0.0.0.0\" has no port",
            "turnpike.toml:4: relay.ports: \"60000-50000\" ends before it begins",
            "turnpike.toml:6: auth.secret: the secret has 5 bytes, and needs 16 or more",
            "turnpike.toml:10: peers.deny: \"lan\" is not a network or an IP address",
            "turnpike.toml:11: peers.deny: \"10.0.0.1/8\" is an address in a network: the network is \"10.0.0.0/8\"",
            "turnpike.toml:14: quotas.permissions: 0 is out of range",
        ]
    );
}

#[test]
fn no_error_shows_a_secret() {
    for text in [
        "[auth]\nsecret = 'topsecret'",
        "[auth]\nsecret = ['topsecret']",
        "[auth]\nsecret = { value = 'topsecret' }",
        "[auth]\nsecrets = 'topsecret'",
        "[auth]\nsecrets = ['topsecret']",
        "[auth]\nsecrets = [{ name = 'a', secret = 'topsecret' }]",
        "[auth]\nsecrets = [{ name = 'a', secret = ['topsecret'] }]",
        "[auth]\nsecrets = [{ name = ['topsecret'], secret = '0123456789abcdef' }]",
        "[auth]\nsecrets = [{ name = 'a', secret_file = { secret = 'topsecret' } }]",
        "[auth]\nserver_name = 'a'\ntoken_keys = [{ kid = 'a', key = 'topsecret' }]",
        "[auth]\ntoken_keys = [{ kid = 'a', key = 'topsecret--------' }]",
        "[auth]\ntoken_keys = [{ kid = 'a', key = ['topsecret'] }]",
        "[auth]\nsecret = \"topsecret",
        "[auth]\nsecret = topsecret",
        "[auth]\nsecert = 'topsecret'",
        "secret = 'topsecret'",
        "auth = 'topsecret'",
    ] {
        let errors = errors(text);
        assert!(!errors.is_empty(), "{text} is wrong");
        assert!(!errors.contains("topsecret"), "{errors}");
    }
    for text in ["secret = 4815162342", "secrets = [{ name = 'a', secret = 4815162342.5 }]"] {
        let errors = errors(&format!("[auth]\n{text}"));
        assert!(!errors.is_empty() && !errors.contains("4815162342"), "{errors}");
    }
}

#[test]
fn a_secret_of_two_lines() {
    let dir = TempDir::new();
    let file = dir.write("secret", "the-first-of-two-lines\nthe-second\n");
    let text = format!("[auth]\nsecret_file = {file:?}");
    let found = errors(&text);
    assert!(found.starts_with("turnpike.toml:2: auth.secret_file: "), "{found}");
    assert!(found.contains("has 2 lines, and the secret is one"), "{found}");
    dir.write("secret", "\nthe-first-of-one-line\n");
    assert_eq!(errors(&text), "");
}

#[test]
fn a_named_pipe_does_not_block() {
    let dir = TempDir::new();
    let pipe = dir.file("pipe");
    assert!(
        std::process::Command::new("mkfifo")
            .arg(&pipe)
            .status()
            .is_ok_and(|status| status.success())
    );
    let found = errors(&format!("[auth]\nsecret_file = {pipe:?}"));
    assert!(found.contains("it is a named pipe, and a regular file is needed"), "{found}");
    let found = settings::load(Some(&pipe), &Environment::empty()).unwrap_err().to_string();
    assert!(found.contains("it is a named pipe, and a regular file is needed"), "{found}");
}

#[test]
fn a_public_address_to_be_found_needs_a_server_to_ask() {
    check(&[
        (
            "relay.external = 'auto'",
            "turnpike.toml:1: relay.external: \"auto\" has no server to ask\n    \
             add external_stun = [\"stun.example.org\"], with a STUN server that you trust, or external_metadata with your cloud",
        ),
        ("relay.external = 'auto'\nrelay.external_stun = ['stun.example.org']", ""),
        ("relay.external = 'auto'\nrelay.external_metadata = 'aws'", ""),
    ]);
}
