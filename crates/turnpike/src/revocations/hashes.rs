//! Hashes of secrets and token keys. With a hash a revocation also applies to a renamed secret or
//! key.

use std::sync::Arc;

use sha2::{Digest as _, Sha256};
use turn_proto::{AuthPolicy, Policy, TokenAlgorithm};

pub(super) fn auth_of<'a>(policy: &'a Policy, realm: &str) -> Option<&'a AuthPolicy> {
    if *policy.realm == *realm {
        return Some(&policy.auth);
    }
    policy.realms.named(realm).map(|realm| &realm.auth)
}

/// Returns the names of the token keys with this hash in a realm.
pub(super) fn names_of_key(policy: &Policy, realm: &str, hash: &str) -> Vec<Arc<str>> {
    let Some(auth) = auth_of(policy, realm) else { return Vec::new() };
    let kids = auth.tokens.iter().flat_map(|tokens| &tokens.keys).map(|key| &key.kid);
    kids.filter(|kid| key_hash(auth, kid).is_some_and(|has| has == hash)).cloned().collect()
}

pub(super) fn key_hash(auth: &AuthPolicy, kid: &str) -> Option<String> {
    let key = auth.tokens.as_ref()?.key(kid)?;
    Some(match &key.algorithm {
        TokenAlgorithm::Aes128Gcm(key) => hash_of(key.expose()),
        TokenAlgorithm::Aes256Gcm(key) => hash_of(key.expose()),
    })
}

/// Returns the first half of the SHA-256 of a secret, in hexadecimal digits.
pub(super) fn hash_of(secret: &[u8]) -> String {
    Sha256::digest(secret)[..16].iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use turn_proto::{TokenAuthority, TokenKey};
    use turn_types::Secret;

    use super::*;

    #[test]
    fn a_key_is_known_under_all_its_names() {
        let key = |kid: &str, byte| TokenKey {
            kid: kid.into(),
            algorithm: TokenAlgorithm::Aes128Gcm(Secret::new([byte; 16])),
        };
        let mut auth = AuthPolicy::new(Secret::new([7; 32]));
        auth.tokens = Some(TokenAuthority {
            server_name: "turn.example.org".into(),
            keys: vec![key("2027", 1), key("alias", 1), key("2028", 2)],
            coturn_clients: false,
        });
        let policy = Policy::new("example.org".into(), auth);
        let hash = key_hash(&policy.auth, "2027").unwrap();
        let names = names_of_key(&policy, "example.org", &hash);
        assert_eq!(names.iter().map(|name| &**name).collect::<Vec<_>>(), ["2027", "alias"]);
        assert!(names_of_key(&policy, "elsewhere.example", &hash).is_empty());
    }
}
