//! RFC 7635: access tokens of an authorization server instead of passwords.

use aes_gcm::aead::{Aead, Payload};
use aes_gcm::{Aes128Gcm, Aes256Gcm, KeyInit as _};
use stun_wire::*;
use turn_proto::limits::{TOKEN_BYTES_MAX, TOKEN_MAC_KEY_BYTES_MIN};
use turn_proto::{EndReason, Policy, Refusal, TokenAlgorithm, TokenAuthority, TokenKey};
use turn_types::{Secret, Transport, UnixSeconds};

use crate::support::client::Token;
use crate::support::forge::Forge;
use crate::support::*;

const SERVER: &str = "turn1.example.org";
const KEY_256: [u8; 32] = [0x25; 32];
const KEY_128: [u8; 16] = [0x12; 16];
const AES_256: TokenAlgorithm = TokenAlgorithm::Aes256Gcm(Secret::new(KEY_256));
const AES_128: TokenAlgorithm = TokenAlgorithm::Aes128Gcm(Secret::new(KEY_128));

/// Takes tokens under the keys `long` (AES-256-GCM) and `short` (AES-128-GCM), and passwords.
fn taking_tokens() -> Policy {
    let key = |kid: &str, algorithm| TokenKey { kid: kid.into(), algorithm };
    let keys = vec![key("long", AES_256), key("short", AES_128)];
    let mut policy = policy();
    policy.auth.tokens =
        Some(TokenAuthority { server_name: SERVER.into(), keys, coturn_clients: false });
    policy
}

fn world() -> World {
    World::with(taking_tokens())
}

/// The content of a token.
#[derive(Clone)]
struct Mint {
    algorithm: TokenAlgorithm,
    server: &'static str,
    mac_key: Vec<u8>,
    made: u64,
    lifetime: u32,
}

impl Mint {
    /// A token made this moment for an hour.
    fn at(now: UnixSeconds) -> Self {
        let mac_key = vec![0x3C; 20];
        Self { algorithm: AES_256, server: SERVER, mac_key, made: now.0, lifetime: 3600 }
    }

    fn token(&self) -> Token {
        let block = AccessTokenBlock {
            mac_key: &self.mac_key,
            timestamp: (self.made << 16) | 0x1234,
            lifetime_secs: self.lifetime,
        };
        let mut plain = [0; 600];
        let len = block.write(&mut plain).unwrap();
        self.sealing(&plain[..len])
    }

    /// Returns a token that contains these bytes.
    fn sealing(&self, plain: &[u8]) -> Token {
        let nonce = *b"twelve bytes";
        let payload = Payload { msg: plain, aad: self.server.as_bytes() };
        let sealed = match &self.algorithm {
            TokenAlgorithm::Aes256Gcm(key) => {
                Aes256Gcm::new(key.expose().into()).encrypt(&nonce.into(), payload).unwrap()
            }
            TokenAlgorithm::Aes128Gcm(key) => {
                Aes128Gcm::new(key.expose().into()).encrypt(&nonce.into(), payload).unwrap()
            }
        };
        let mut bytes = vec![0, 12];
        bytes.extend_from_slice(&nonce);
        bytes.extend_from_slice(&sealed);
        Token { bytes, mac_key: self.mac_key.clone() }
    }
}

/// Why an Allocate with this token is refused with 401.
fn refusal(world: &mut World, kid: &'static str, token: Token) -> Refusal {
    refusal_at(world, 1000, kid, token)
}

fn refusal_at(world: &mut World, port: u16, kid: &'static str, token: Token) -> Refusal {
    let mut client = Client::new(port).with_token(kid, token);
    let reply = client.try_allocate(world, |_| ());
    assert_eq!((reply.code(), reply.sealed), (Some(401), false));
    world.refusals().pop().unwrap()
}

/// 7635-4-01, 7635-6.1-01: if tokens are accepted, a 401 names this server for the authorization
/// server, next to the attributes for passwords. A 438 does not.
#[test]
fn a_401_says_what_to_ask_a_token_for() {
    let mut world = world();
    let mut client = Client::new(1000);
    let bare = client.bare(Method::ALLOCATE, |_| ());
    let reply = client.exchange(&mut world, &bare);
    assert_eq!(reply.code(), Some(401));
    let name = reply.first(AttributeType::THIRD_PARTY_AUTHORIZATION).unwrap();
    assert_eq!(value::third_party_authorization(name), Ok(SERVER));
    assert!(reply.has(AttributeType::REALM) && reply.has(AttributeType::NONCE));

    client.nonce = Some("never given".to_owned());
    let stale = client.try_allocate(&mut world, |_| ());
    assert_eq!(stale.code(), Some(438));
    assert!(!stale.has(AttributeType::THIRD_PARTY_AUTHORIZATION));
}

#[test]
fn nobody_is_told_of_tokens_where_none_are_taken() {
    let mut world = World::new();
    let mut client = Client::new(1000);
    let bare = client.bare(Method::ALLOCATE, |_| ());
    let reply = client.exchange(&mut world, &bare);
    assert!(!reply.has(AttributeType::THIRD_PARTY_AUTHORIZATION));
    // An attribute that must be understood, and is not.
    let token = Mint::at(world.now.unix).token();
    let reply = client.try_allocate(&mut world, |builder| {
        builder.attribute(AttributeType::ACCESS_TOKEN, &token.bytes);
    });
    assert_eq!(reply.refused(420).unknown(), [AttributeType::ACCESS_TOKEN]);
}

/// 7635-6.2-01, 7635-4-02, 7635-5-01: both ciphers, with both kinds of integrity. The response is
/// sealed with the session key, and so are the following requests without a token.
#[test]
fn a_token_lets_its_client_in() {
    for (kid, algorithm) in [("long", AES_256), ("short", AES_128)] {
        for sealing in [Sealing::Md5, Sealing::Sha256] {
            let mut world = world();
            let token = Mint { algorithm: algorithm.clone(), ..Mint::at(world.now.unix) }.token();
            let mut client = Client::new(1000).with_token(kid, token).sealing(sealing);
            client.try_allocate(&mut world, |_| ()).success();
            client.permit(&mut world, &[PEER]).success();
            client.bind(&mut world, 0x4000, PEER).success();
            assert_eq!(*world.record().user, *kid);
            assert_eq!(world.looked_up, 0, "nobody is asked");
        }
    }
}

/// 7635-5-01: MESSAGE-INTEGRITY-SHA256 without password algorithms, which tokens do not use.
#[test]
fn an_answer_has_the_integrity_of_its_request() {
    let mut world = world();
    let token = Mint { mac_key: vec![7; 32], ..Mint::at(world.now.unix) }.token();
    let mut client = Client::new(1000).with_token("long", token.clone());
    let key = client.key();
    let request = Forge::new(&mut client, &mut world, Method::ALLOCATE)
        .with(AttributeType::ACCESS_TOKEN, token.bytes)
        .sealed(IntegrityKind::Sha256, &key);
    let answer = world.from_client(&client.path, &request).reply();
    let answer = Message::parse(&answer).unwrap();
    assert_eq!(answer.class(), Class::Success);
    assert!(answer.verify(&key) && answer.integrity().sha1.is_none());
}

/// Clients written for coturn seal with the first 16 bytes of the session key. This is accepted
/// only if configured.
#[test]
fn coturns_clients_are_let_in_where_that_was_said() {
    let mut policy = taking_tokens();
    policy.auth.tokens.as_mut().unwrap().coturn_clients = true;
    let mut world = World::with(policy);
    let whole = Mint::at(world.now.unix).token();
    let short = Token { mac_key: whole.mac_key[..16].to_vec(), ..whole.clone() };
    let mut client = Client::new(1000).with_token("long", short);
    client.try_allocate(&mut world, |_| ()).success();
    client.permit(&mut world, &[PEER]).success();
    let mut other = Client::new(1001).with_token("long", whole.clone());
    other.try_allocate(&mut world, |_| ()).success();

    let shorter = Token { mac_key: whole.mac_key[..15].to_vec(), ..whole.clone() };
    assert_eq!(refusal_at(&mut world, 1002, "long", shorter), Refusal::WrongPassword);
    let short = Token { mac_key: whole.mac_key[..16].to_vec(), ..whole };
    assert_eq!(refusal(&mut self::world(), "long", short), Refusal::WrongPassword);
}

/// 7635-7-01: tokens that cannot be opened, or not by us.
#[test]
fn a_token_of_somebody_else_is_refused() {
    let mut world = world();
    let mint = Mint::at(world.now.unix);
    assert_eq!(refusal(&mut world, "nobody", mint.token()), Refusal::UnknownTokenKey);
    // The right name, and a token sealed with another key, or by another cipher.
    assert_eq!(refusal(&mut world, "short", mint.token()), Refusal::BadToken);
    let other = TokenAlgorithm::Aes256Gcm(Secret::new([0x26; 32]));
    let token = Mint { algorithm: other, ..mint.clone() }.token();
    assert_eq!(refusal(&mut world, "long", token), Refusal::BadToken);
    // A request that was not sealed with the session key.
    let stolen = Token { mac_key: vec![0; 20], ..mint.token() };
    assert_eq!(refusal(&mut world, "long", stolen), Refusal::WrongPassword);
    assert_eq!(world.server.allocation_count(), 0);
}

/// 7635-6.2-02: the server's name is authenticated with the token.
#[test]
fn a_token_for_another_server_is_refused() {
    let mut world = world();
    for server in ["turn2.example.org", "", "turn1.example.org."] {
        let token = Mint { server, ..Mint::at(world.now.unix) }.token();
        assert_eq!(refusal(&mut world, "long", token), Refusal::BadToken);
    }
}

/// 7635-9-01: no byte of a token can be changed, and wrong content is refused as well.
#[test]
fn an_altered_token_is_refused() {
    let mut world = world();
    let mint = Mint::at(world.now.unix);
    let sound = mint.token();
    for at in 0..sound.bytes.len() {
        let mut token = sound.clone();
        token.bytes[at] ^= 0x10;
        assert_eq!(refusal(&mut world, "long", token), Refusal::BadToken, "byte {at}");
    }
    for len in 0..sound.bytes.len() {
        let token = Token { bytes: sound.bytes[..len].to_vec(), ..sound.clone() };
        assert_eq!(refusal(&mut world, "long", token), Refusal::BadToken, "length {len}");
    }
    for plain in [&[][..], &[0, 20], &[0xFF; 40], &[0; 14]] {
        assert_eq!(refusal(&mut world, "long", mint.sealing(plain)), Refusal::BadToken);
    }
    // A session key that could be guessed, and a token of excessive length.
    let weak = Mint { mac_key: vec![1; 15], ..mint.clone() }.token();
    assert_eq!(refusal(&mut world, "long", weak), Refusal::BadToken);
    let long = mint.sealing(&[0; 600]);
    assert_eq!(refusal(&mut world, "long", long), Refusal::BadToken);
}

#[test]
fn the_shortest_session_key_and_the_longest_token_are_taken() {
    let mut world = world();
    let mint = |len| Mint { mac_key: vec![0x3C; len], ..Mint::at(world.now.unix) };
    let shortest = mint(TOKEN_MAC_KEY_BYTES_MIN).token();
    // The length of the other fields does not depend on the key.
    let longest = TOKEN_BYTES_MAX - (mint(100).token().bytes.len() - 100);
    let (longer, longest) = (mint(longest + 1).token(), mint(longest).token());
    assert_eq!(longest.bytes.len(), TOKEN_BYTES_MAX);
    for (port, token) in [(2000, shortest), (2001, longest)] {
        let mut client = Client::new(port).with_token("long", token);
        client.try_allocate(&mut world, |_| ()).success();
    }
    assert_eq!(refusal(&mut world, "long", longer), Refusal::BadToken);
}

/// 7635-9-01: only the token decides about a request with a token, even if the password is right.
#[test]
fn nothing_falls_back_to_a_password() {
    let mut world = world();
    let mut client = Client::new(1000);
    let bad = Mint::at(world.now.unix).token();
    let reply = client.try_allocate(&mut world, |builder| {
        builder.attribute(AttributeType::ACCESS_TOKEN, &bad.bytes);
    });
    assert_eq!(reply.code(), Some(401));
    assert_eq!(world.refusals(), [Refusal::NoCredentials, Refusal::UnknownTokenKey]);
    client.try_allocate(&mut world, |_| ()).success();
}

/// Nothing is decrypted without a nonce that was given to the address (docs/adr/0002).
#[test]
fn a_stranger_has_nothing_decrypted() {
    let mut world = world();
    let token = Mint::at(world.now.unix).token();
    let mut client = Client::new(1000).with_token("long", token);
    client.log_in(&mut world);
    let mut elsewhere = Client::new(1001);
    (elsewhere.user, elsewhere.token) = (client.user, client.token.clone());
    elsewhere.nonce = client.nonce.clone();
    assert_eq!(elsewhere.try_allocate(&mut world, |_| ()).code(), Some(438));
    assert_eq!(world.refusals().last(), Some(&Refusal::InvalidNonce));
}

/// 7635-7-02: the clocks may be five seconds apart, either way.
#[test]
fn a_token_is_good_around_its_time() {
    for (age, good) in [
        (0, true),
        (3604, true),
        (3605, false),
        (1_000_000, false),
        (-5, true),
        (-3604, true),
        (-3605, false),
    ] {
        let mut world = world();
        let made = world.now.unix.0.checked_add_signed(-age).unwrap();
        let token = Mint { made, ..Mint::at(world.now.unix) }.token();
        if good {
            let mut client = Client::new(1000).with_token("long", token);
            client.try_allocate(&mut world, |_| ()).success();
        } else {
            let reason = refusal(&mut world, "long", token);
            assert_eq!(reason, Refusal::CredentialExpired, "{age}");
        }
    }
}

/// 7635-7-03: no lifetime exceeds the token, and the allocation expires with the token.
#[test]
fn an_allocation_does_not_outlive_its_token() {
    let mut world = world();
    let token = Mint { lifetime: 400, ..Mint::at(world.now.unix) }.token();
    let mut client = Client::new(1000).with_token("long", token);
    let reply = client.try_allocate(&mut world, |b| {
        b.lifetime(3600);
    });
    assert_eq!(reply.success().lifetime(), 400);
    world.advance(secs(300));
    // 5 s for the clocks: 400 + 5 - 300.
    assert_eq!(client.refresh(&mut world, Some(3600)).success().lifetime(), 105);
    world.advance(secs(106));
    assert_eq!(world.ends(), [EndReason::Expired]);
}

/// 7635-7-03: another token of any key in the configuration prolongs the allocation. From then on
/// the content of this token provides the integrity key.
#[test]
fn a_newer_token_prolongs() {
    let mut world = world();
    let first = Mint { lifetime: 700, ..Mint::at(world.now.unix) };
    let mut client = Client::new(1000).with_token("long", first.token());
    client.try_allocate(&mut world, |_| ()).success();
    for (kid, algorithm, byte) in [("long", AES_256, 1), ("short", AES_128, 2)] {
        world.advance(secs(500));
        let made = world.now.unix.0;
        let mint = Mint { algorithm, made, mac_key: vec![byte; 20], ..first.clone() };
        client = client.with_token(kid, mint.token());
        assert_eq!(client.refresh(&mut world, Some(3600)).success().lifetime(), 700);
        client.permit(&mut world, &[PEER]).success();
        assert_eq!(*world.record().user, *kid);
    }
    // An expired token does not prolong the allocation, and can still delete it.
    world.advance(secs(100));
    client = client.with_token("long", Mint { made: 5, ..first }.token());
    assert_eq!(client.refresh(&mut world, Some(3600)).code(), Some(401));
    client.refresh(&mut world, Some(0)).success();
    assert_eq!(world.server.allocation_count(), 0);
}

/// 7635-7-03: a Refresh without a token, sealed with the session key, lasts until the expiry of the
/// last token, while the key of the token is configured.
#[test]
fn a_refresh_without_a_token_goes_no_further_than_the_last_one() {
    let mut world = world();
    let token = Mint { lifetime: 900, ..Mint::at(world.now.unix) }.token();
    let mut client = Client::new(1000).with_token("long", token);
    client.try_allocate(&mut world, |_| ()).success();
    world.advance(secs(500));
    let key = client.key();
    let mut refresh = |world: &mut World| {
        let request = Forge::new(&mut client, world, Method::REFRESH);
        let request = request.sealed(IntegrityKind::Sha1, &key);
        client.exchange(world, &request)
    };
    assert_eq!(refresh(&mut world).success().lifetime(), 400);
    let mut policy = world.policy.clone();
    policy.auth.tokens.as_mut().unwrap().keys.remove(0);
    world.apply(policy);
    assert_eq!(refresh(&mut world).code(), Some(401));
    assert_eq!(world.refusals().last(), Some(&Refusal::UnknownTokenKey));
}

/// 7635-7-04: tokens and passwords do not mix on an allocation, regardless of the names.
#[test]
fn an_allocation_stays_with_who_made_it() {
    let mut world = world();
    world.users.insert("long", "winded");
    let token = Mint::at(world.now.unix).token();
    let mut by_token = Client::new(1000).with_token("long", token.clone());
    by_token.try_allocate(&mut world, |_| ()).success();
    let mut by_password = Client::new(1000);
    (by_password.user, by_password.password) = ("long", "winded");
    by_password.refresh(&mut world, None).refused(441);

    let mut alice = Client::new(1001);
    alice.allocate(&mut world);
    let mut other = Client::new(1001).with_token("long", token);
    other.refresh(&mut world, None).refused(441);
}

/// A key is shared by all clients; quotas count by token.
#[test]
fn quotas_count_by_token() {
    let mut policy = taking_tokens();
    policy.quotas.allocations_per_user = 1;
    let mut world = World::with(policy);
    let mint = Mint::at(world.now.unix);
    let mut first = Client::new(1000).with_token("long", mint.token());
    first.try_allocate(&mut world, |_| ()).success();
    let mut again = Client::new(1001).with_token("long", mint.token());
    again.try_allocate(&mut world, |_| ()).refused(486);
    let mint = Mint { mac_key: vec![9; 20], ..mint };
    let mut second = Client::new(1002).with_token("long", mint.token());
    second.try_allocate(&mut world, |_| ()).success();
}

/// 7635-9-01 with RFC 6062 §5.4: a ConnectionBind arrives on a separate connection without a known
/// user. The token of the allocation authenticates it from any address, and another token does not.
#[test]
fn a_token_binds_connections() {
    let policy = Policy { tcp_relaying: true, ..taking_tokens() };
    let mut world = World::with(policy);
    let token = Mint::at(world.now.unix).token();
    let mut control = Client::new(1000).over(Transport::Tcp).with_token("long", token.clone());
    control
        .ask(&mut world, Method::ALLOCATE, |b| {
            b.requested_transport(6);
        })
        .success();
    let id = {
        let reply = control.ask(&mut world, Method::CONNECT, |b| {
            b.xor_address(AttributeType::XOR_PEER_ADDRESS, addr(PEER));
        });
        let id = reply.success();
        id.first(AttributeType::CONNECTION_ID).unwrap().to_vec()
    };
    let other = Mint { mac_key: vec![0x77; 20], ..Mint::at(world.now.unix) }.token();
    let elsewhere = || Client::at("198.51.100.99:2000").over(Transport::Tcp);
    let bind = |world: &mut World, mut client: Client| {
        client.ask(world, Method::CONNECTION_BIND, |b| {
            b.attribute(AttributeType::CONNECTION_ID, &id);
        })
    };
    bind(&mut world, elsewhere().with_token("long", other)).refused(400);
    bind(&mut world, elsewhere().with_token("long", token)).success();
}
