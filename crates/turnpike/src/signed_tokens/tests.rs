use std::fs;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::SystemTime;

use jsonwebtoken::{Algorithm, EncodingKey, encode};
use openssl::rsa::Rsa;
use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ED25519};
use serde_json::json;

use super::*;

const SECRET: &[u8] = b"0123456789abcdef0123456789abcdef";
const ISSUER: &str = "https://login.example.org/";
const AUDIENCE: &str = "turn.example.org";

/// Key pair of the issuer.
struct Pair {
    kid: &'static str,
    algorithm: Algorithm,
    signing: EncodingKey,
    /// Public key as an entry of a key set.
    public: Value,
}

impl Pair {
    fn new(kid: &'static str, algorithm: Algorithm) -> Self {
        let text = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        let (signing, mut public) = if algorithm == Algorithm::EdDSA {
            let pair = KeyPair::generate_for(&PKCS_ED25519).unwrap();
            let public =
                json!({ "kty": "OKP", "crv": "Ed25519", "x": text(pair.public_key_raw()) });
            (EncodingKey::from_ed_der(&pair.serialize_der()), public)
        } else if algorithm == Algorithm::ES256 {
            let pair = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
            // Point as in SEC 1: a byte for the form, and both coordinates.
            let (x, y) = pair.public_key_raw()[1..].split_at(32);
            let public = json!({ "kty": "EC", "crv": "P-256", "x": text(x), "y": text(y) });
            (EncodingKey::from_ec_der(&pair.serialize_der()), public)
        } else {
            let pair = Rsa::generate(2048).unwrap();
            let public = json!({ "kty": "RSA", "n": text(&pair.n().to_vec()), "e": text(&pair.e().to_vec()) });
            (EncodingKey::from_rsa_der(&pair.private_key_to_der().unwrap()), public)
        };
        public["kid"] = kid.into();
        Self { kid, algorithm, signing, public }
    }

    fn header(&self) -> Header {
        Header { kid: Some(self.kid.to_owned()), ..Header::new(self.algorithm) }
    }

    fn sign(&self, claims: &Value) -> String {
        encode(&self.header(), claims, &self.signing).unwrap()
    }
}

fn now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs()
}

fn claims() -> Value {
    json!({ "iss": ISSUER, "aud": AUDIENCE, "sub": "alice", "exp": now() + 300 })
}

/// Returns the claims after `changes`. The value `null` removes a claim.
fn with(changes: &Value) -> Value {
    let mut claims = claims();
    for (name, value) in changes.as_object().unwrap() {
        if value.is_null() {
            claims.as_object_mut().unwrap().remove(name);
        } else {
            claims[name] = value.clone();
        }
    }
    claims
}

fn set(pairs: &[&Pair]) -> Value {
    json!({ "keys": pairs.iter().map(|pair| &pair.public).collect::<Vec<_>>() })
}

fn verifier(pairs: &[&Pair]) -> Verifier {
    let keys = Keys::read(set(pairs).to_string().as_bytes()).unwrap();
    Verifier {
        issuer: ISSUER.to_owned(),
        audience: AUDIENCE.to_owned(),
        user_claim: "sub".to_owned(),
        fixed: Keys::new(vec![Key::of_secret(SECRET)]),
        file: None,
        fetched: Some(RwLock::new(Some(FetchedKeys { keys: Arc::new(keys), at: Instant::now() }))),
        fetch_now: Notify::new(),
    }
}

fn is_denied(result: Result<Signed, SignedTokenError>) -> bool {
    matches!(result, Err(SignedTokenError::Denied(_)))
}

/// Signers list in `crit` the extensions that a verifier must understand (RFC 7515 §4.1.11). This
/// verifier supports none.
#[test]
fn a_token_with_critical_extensions_is_refused() {
    let pair = Pair::new("k", Algorithm::EdDSA);
    let verifier = verifier(&[&pair]);
    for crit in [vec![], vec!["b64".to_owned()], vec!["exp".to_owned()]] {
        let header = Header { crit: Some(crit), ..pair.header() };
        let token = encode(&header, &claims(), &pair.signing).unwrap();
        assert!(is_denied(verifier.verify(&token)), "{header:?}");
    }
    let header = URL_SAFE_NO_PAD.encode(r#"{"alg":"EdDSA","crit":null}"#);
    let signed = pair.sign(&claims());
    let token = format!("{header}{}", &signed[signed.find('.').unwrap()..]);
    let why = verifier.verify(&token).unwrap_err();
    assert!(format!("{why:?}").contains("crit"), "{why:?}");
    assert!(verifier.verify(&signed).is_ok());
}

/// A key that an issuer withdraws while its URL is silent is refused within a day.
#[test]
fn keys_of_a_silent_url_have_an_end() {
    let pair = Pair::new("k", Algorithm::EdDSA);
    let verifier = verifier(&[&pair]);
    let token = pair.sign(&claims());
    let fetched = Instant::now();
    let after = |age: Duration| verifier.verify_at(&token, fetched + age);
    assert!(after(KEYS_AGE_MAX - Duration::from_secs(60)).is_ok());
    let why = after(KEYS_AGE_MAX + Duration::from_secs(60));
    assert!(matches!(why, Err(SignedTokenError::Unavailable(_))), "{why:?}");
    // The shared secret has no age.
    let signing = EncodingKey::from_secret(SECRET);
    let token = encode(&Header::new(Algorithm::HS256), &claims(), &signing).unwrap();
    assert!(verifier.verify_at(&token, fetched + 2 * KEYS_AGE_MAX).is_ok());
}

/// A wrong token and missing keys have different outcomes.
#[test]
fn without_keys_no_token_is_called_wrong() {
    let (pair, other) = (Pair::new("k", Algorithm::EdDSA), Pair::new("o", Algorithm::EdDSA));
    let token = pair.sign(&claims());
    assert!(is_denied(verifier(&[&other]).verify(&token)), "the issuer has no such key");
    let silent = Verifier { fetched: Some(RwLock::default()), ..verifier(&[&other]) };
    let why = silent.verify(&token);
    assert!(matches!(why, Err(SignedTokenError::Unavailable(_))), "{why:?}");
    assert!(is_denied(silent.verify("a.b.c")), "no token, whatever the keys are");
    let without_url = Verifier { fetched: None, ..verifier(&[&other]) };
    assert!(is_denied(without_url.verify(&token)), "there is no URL to wait for");
}

/// A key without a name is tried with each token, and does not show that a token of another key is
/// wrong.
#[test]
fn a_key_that_may_be_meant_hides_no_outage() {
    let (known, other) = (Pair::new("k", Algorithm::EdDSA), Pair::new("o", Algorithm::EdDSA));
    let mut public = set(&[&known]);
    public["keys"][0].as_object_mut().unwrap().remove("kid");
    let keys = Keys::read(public.to_string().as_bytes()).unwrap();
    let silent = Verifier { fixed: keys, fetched: Some(RwLock::default()), ..verifier(&[&other]) };
    let why = silent.verify(&other.sign(&claims()));
    assert!(matches!(why, Err(SignedTokenError::Unavailable(_))), "{why:?}");
    assert!(silent.verify(&known.sign(&claims())).is_ok());
    assert!(is_denied(silent.verify(&known.sign(&with(&json!({ "exp": 1 }))))), "it has signed");
    // With the URL's keys the token is wrong, and the keys may have changed by now.
    let complete = Verifier { fixed: silent.fixed, ..verifier(&[&known]) };
    assert!(is_denied(complete.verify(&other.sign(&claims()))));
    // A token is forged if it names a key and another key has signed it.
    let stranger = Pair::new("k", Algorithm::EdDSA);
    assert!(is_denied(verifier(&[&known]).verify(&stranger.sign(&claims()))));
}

#[test]
fn every_algorithm_proves_its_user() {
    for algorithm in [Algorithm::EdDSA, Algorithm::ES256, Algorithm::RS256] {
        let pair = Pair::new("k", algorithm);
        let verifier = verifier(&[&pair, &Pair::new("other", Algorithm::EdDSA)]);
        assert_eq!(verifier.verify(&pair.sign(&claims())).unwrap().user, "alice", "{algorithm:?}");
        let stranger = Pair::new("k", algorithm);
        assert!(verifier.verify(&stranger.sign(&claims())).is_err(), "{algorithm:?}");
    }
    let signing = EncodingKey::from_secret(SECRET);
    let token = encode(&Header::new(Algorithm::HS256), &claims(), &signing).unwrap();
    let pair = Pair::new("k", Algorithm::EdDSA);
    assert_eq!(verifier(&[&pair]).verify(&token).unwrap().user, "alice");
}

#[test]
fn claims_have_to_be_for_us_and_now() {
    let pair = Pair::new("k", Algorithm::EdDSA);
    let verifier = verifier(&[&pair]);
    let verify = |changes: Value| verifier.verify(&pair.sign(&with(&changes)));
    assert!(verify(json!({ "aud": ["other", AUDIENCE] })).is_ok());
    assert!(verify(json!({ "exp": now() - 5 })).is_ok(), "clocks differ");
    assert_eq!(verify(json!({ "sub": 42 })).unwrap().user, "42");
    assert_eq!(verify(json!({ "sub": "zoe\u{308}" })).unwrap().user, "zo\u{eb}");
    for changes in [
        json!({ "aud": "elsewhere" }),
        json!({ "aud": null }),
        json!({ "iss": "https://login.example.org" }),
        json!({ "iss": null }),
        json!({ "exp": now() - 60 }),
        json!({ "exp": null }),
        json!({ "exp": "soon" }),
        json!({ "nbf": now() + 60 }),
        json!({ "sub": null }),
        json!({ "sub": "" }),
        json!({ "sub": "a\u{202e}b" }),
        json!({ "sub": "a\0" }),
        json!({ "sub": ["alice"] }),
        json!({ "turn": { "allocation": 2 } }),
        json!({ "turn": { "allocations": 0 } }),
        json!({ "turn": { "allocations": null } }),
        json!({ "turn": "all" }),
        json!({ "turn": [] }),
        json!({ "turn": [2] }),
        json!({ "iss": [ISSUER] }),
        json!({ "iss": ["https://elsewhere.example/", ISSUER] }),
        json!({ "nbf": "soon" }),
    ] {
        assert!(verify(changes.clone()).is_err(), "{changes}");
    }
    let limited = verify(json!({ "turn": { "allocations": 2, "peers": ["192.0.2.0/24"] } }));
    assert_eq!(limited.unwrap().limits.to_string(), "allocations=2&peers=192.0.2.0/24");
}

#[test]
fn no_other_way_of_signing_counts() {
    let pair = Pair::new("k", Algorithm::ES256);
    let verifier = verifier(&[&pair]);
    let good = pair.sign(&claims());
    assert_eq!(verifier.verify(&good).unwrap().user, "alice");
    let public = pair.public.to_string().into_bytes();
    // A public key used as the secret of HS256.
    let mut header = Header::new(Algorithm::HS256);
    header.kid = Some("k".to_owned());
    let forged = encode(&header, &claims(), &EncodingKey::from_secret(&public)).unwrap();
    assert!(verifier.verify(&forged).is_err());
    // HMAC with a stronger hash, which is not configured.
    let stronger = Header::new(Algorithm::HS512);
    let forged = encode(&stronger, &claims(), &EncodingKey::from_secret(SECRET)).unwrap();
    assert!(verifier.verify(&forged).is_err());
    let part = |value: Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let body = part(claims());
    for alg in ["none", "None", "", "HS256", "ES256"] {
        let unsigned = format!("{}.{body}.", part(json!({ "alg": alg, "typ": "JWT" })));
        assert!(verifier.verify(&unsigned).is_err(), "{alg}");
    }
    let other = part(with(&json!({ "sub": "bob" })));
    let mut parts: Vec<&str> = good.split('.').collect();
    parts[1] = &other;
    assert!(verifier.verify(&parts.join(".")).is_err(), "claims are signed");
    for text in ["", ".", "..", "a.b.c", &"a".repeat(TOKEN_BYTES_MAX + 1)] {
        assert!(verifier.verify(text).is_err());
    }
}

#[test]
fn keys_of_a_file_are_read_again() {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let name =
        format!("turnpike-keys-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let path = std::env::temp_dir().join(name);
    let [old, new] = ["old", "new"].map(|kid| Pair::new(kid, Algorithm::EdDSA));
    let write = |pairs: &[&Pair], age: u64| {
        fs::write(&path, set(pairs).to_string()).unwrap();
        let at = SystemTime::now() - Duration::from_secs(age);
        fs::File::options().write(true).open(&path).unwrap().set_modified(at).unwrap();
    };
    write(&[&old], 20);
    let verifier = Verifier {
        file: Some(KeysFile::open(path.clone()).unwrap()),
        ..verifier(&[&Pair::new("fetched", Algorithm::EdDSA)])
    };
    let look = || {
        let file = verifier.file.as_ref().unwrap();
        file.put(file.reader()());
    };
    assert!(verifier.verify(&old.sign(&claims())).is_ok());
    assert!(verifier.verify(&new.sign(&claims())).is_err());
    write(&[&new], 10);
    look();
    assert!(verifier.verify(&new.sign(&claims())).is_ok());
    assert!(verifier.verify(&old.sign(&claims())).is_err());
    fs::write(&path, "no keys").unwrap();
    look();
    assert!(verifier.verify(&new.sign(&claims())).is_ok(), "the known ones stay");
    fs::remove_file(&path).unwrap();
    look();
    assert!(verifier.verify(&new.sign(&claims())).is_ok(), "the known ones stay");
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    look();
    assert!(verifier.verify(&new.sign(&claims())).is_ok(), "a named pipe does not block");
    fs::remove_file(&path).unwrap();
}

#[test]
fn sets_without_a_key_for_us_are_refused() {
    for text in ["", "{}", "{\"keys\": [{\"kty\": \"oct\", \"k\": \"MDEyMzQ1Njc4OWFiY2RlZg\"}]}"] {
        assert!(Keys::read(text.as_bytes()).is_err(), "{text}");
    }
}

#[test]
fn an_empty_set_withdraws_all_keys() {
    let empty = Keys::read(b"{\"keys\": []}").unwrap();
    assert!(empty.is_empty());
}

/// Keys with another purpose are not used, and an unreadable key has no effect on other keys.
#[test]
fn a_key_counts_for_its_purpose_alone() {
    for (algorithm, name) in
        [(Algorithm::EdDSA, "EdDSA"), (Algorithm::ES256, "ES256"), (Algorithm::RS256, "RS256")]
    {
        let pair = Pair::new("a", algorithm);
        let is_taken = |changes: Value| {
            let mut public = set(&[&pair]);
            let key = public["keys"][0].as_object_mut().unwrap();
            key.extend(changes.as_object().unwrap().clone());
            public["keys"].as_array_mut().unwrap().insert(0, json!({ "kty": "RSA", "kid": 7 }));
            Keys::read(public.to_string().as_bytes()).is_ok()
        };
        assert!(is_taken(json!({ "alg": name, "key_ops": ["verify"], "use": "sig" })), "{name}");
        for other in
            [json!({ "alg": "RS512" }), json!({ "key_ops": ["sign"] }), json!({ "use": "enc" })]
        {
            assert!(!is_taken(other.clone()), "{name}: {other}");
        }
    }
}
