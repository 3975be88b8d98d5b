//! Keys of access tokens, from the file to the rules.

use std::path::Path;

use settings::{Environment, HostAddresses, Settings, load, parse};
use turn_proto::{Policy, TokenAlgorithm};
use turn_types::Secret;

const KEY: &str = "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE";

fn good(text: &str) -> Settings {
    parse(Path::new("turnpike.toml"), text, &Environment::empty())
        .unwrap_or_else(|errors| panic!("{errors}"))
}

fn policy(settings: &Settings) -> Policy {
    let host = HostAddresses::new(vec!["192.0.2.1".parse().expect("an address")]);
    settings.policy(&host, &[], Secret::new([0; 32]), None)
}

#[test]
fn no_tokens_are_taken_unless_there_is_a_key() {
    assert_eq!(policy(&good("")).auth.tokens, None);
    assert_eq!(policy(&good("auth.server_name = 'turn1'")).auth.tokens, None);
}

#[test]
fn keys_are_read_in_both_alphabets_of_base64() {
    let text = format!(
        "realm = 'example.org'\n\
         [[auth.token_keys]]\nkid = 'one'\nkey = '{KEY}='\n\
         [[auth.token_keys]]\nkid = 'two'\nalgorithm = 'A128GCM'\nkey = '-_-_-_-_-_-_-_-_-_-_-g'\n"
    );
    let tokens = policy(&good(&text)).auth.tokens.expect("keys");
    assert_eq!(&*tokens.server_name, "example.org", "the realm, as nothing else was said");
    let [one, two] = tokens.keys.as_slice() else { panic!("{tokens:?}") };
    assert_eq!((&*one.kid, &*two.kid), ("one", "two"));
    let expected = *b"01234567890123456789012345678901";
    assert_eq!(one.algorithm, TokenAlgorithm::Aes256Gcm(Secret::new(expected)));
    let TokenAlgorithm::Aes128Gcm(key) = &two.algorithm else { panic!("{two:?}") };
    assert_eq!(key.expose()[..3], [0xFB, 0xFF, 0xBF]);

    let named = policy(&good(&format!("auth.server_name = 'turn1'\n{text}")));
    assert_eq!(&*named.auth.tokens.expect("keys").server_name, "turn1");
}

#[test]
fn a_key_may_stand_in_a_file_of_its_own() {
    let directory = std::env::temp_dir().join(format!("turnpike-tokens-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("a directory");
    std::fs::write(directory.join("key"), format!("{KEY}\n")).expect("a key");
    let file = directory.join("turnpike.toml");
    std::fs::write(&file, "[[auth.token_keys]]\nkid = 'one'\nkey_file = 'key'\n").expect("a file");
    let settings = load(Some(&file), &Environment::empty());
    std::fs::remove_dir_all(&directory).expect("the directory goes");
    let settings = settings.unwrap_or_else(|errors| panic!("{errors}"));
    assert_eq!(settings.auth.token_keys.len(), 1);
    // Neither as text nor as a list of bytes.
    let shown = format!("{settings:?}");
    let bytes = format!("{:?}", b"0123456789");
    assert!(!shown.contains("0123456789") && !shown.contains(bytes.trim_end_matches(']')));
    assert!(shown.contains("<secret>"), "the key is there: {shown}");
}
