//! TLS and DTLS.

use std::path::Path;

use super::{Fate, NO_AUTHORITIES, Work};
use crate::syntax;
use crate::toml;

pub(super) fn translate(work: &mut Work, directory: &Path) {
    certificates(work, directory);
    dtls(work);
    if work.is_on("no-tlsv1_2") {
        work.toml.set("tls.minimum_version", toml::text("1.3"), "no-tlsv1_2");
        work.toml.set("dtls.enabled", "false".to_owned(), "no-tlsv1_2: DTLS is 1.2");
    }
    ciphers(work);
    curve(work);
}

fn certificates(work: &mut Work, directory: &Path) {
    if let Some(index) = work.last("no-tls") {
        for name in ["cert", "pkey", "pkey-pwd", "CA-file", "cipher-list", "ec-curve-name"] {
            for index in work.all(name) {
                work.set(index, Fate::SameHere("no-tls is set".to_owned()));
            }
        }
        work.set(index, Fate::Taken("no tls.certificates".to_owned()));
        return;
    }
    let file = |name: &str| work.word(name).filter(|file| !file.is_empty()).map(toml::text);
    if work.lacks_authorities() {
        for name in ["cert", "pkey"] {
            for index in work.all(name) {
                work.set(index, Fate::Unsupported(NO_AUTHORITIES.to_owned()));
            }
        }
        return;
    }
    match (file("cert"), file("pkey")) {
        (Some(chain), Some(key)) => {
            let password = password(work, directory);
            let entry = format!("[{{ chain = {chain}, key = {key}{password} }}]");
            work.toml.set("tls.certificates", entry, "cert, pkey");
        }
        (None, None) => {}
        (Some(_), None) | (None, Some(_)) => {
            let reason = "cert and pkey are needed both; coturn serves no TLS, either".to_owned();
            let fate = if work.replaces() { Fate::Unsupported } else { Fate::Unreadable };
            for index in ["cert", "pkey"].map(|name| work.all(name)).concat() {
                work.set(index, fate(reason.clone()));
            }
        }
    }
    if let Some(file) = work.word("CA-file").map(toml::text) {
        work.toml.set("tls.client_authorities", file, "CA-file");
    }
}

/// On by default here, as in coturn before 4.17.
fn dtls(work: &mut Work) {
    let off = |work: &Work, name: &str, value| {
        work.last(name).is_some_and(|index| syntax::switch(work.value(index)) == Some(value))
    };
    if off(work, "no-dtls", true) || off(work, "dtls", false) {
        work.toml.set("dtls.enabled", "false".to_owned(), "no-dtls");
    }
}

/// The password of the key goes to a file of its own.
fn password(work: &mut Work, directory: &Path) -> String {
    let Some(index) = work.last("pkey-pwd") else { return String::new() };
    let password = work.bytes(index);
    let path = directory.join("tls-key-password").display().to_string();
    let entry = format!(", password_file = {}", toml::text(&path));
    work.secrets.push((path, password));
    entry
}

/// Names of OpenSSL beside the registered ones, of the suites that are served.
const SUITES: [(&str, &str); 6] = [
    ("ECDHE-ECDSA-AES256-GCM-SHA384", "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"),
    ("ECDHE-ECDSA-AES128-GCM-SHA256", "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"),
    ("ECDHE-ECDSA-CHACHA20-POLY1305", "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256"),
    ("ECDHE-RSA-AES256-GCM-SHA384", "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"),
    ("ECDHE-RSA-AES128-GCM-SHA256", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"),
    ("ECDHE-RSA-CHACHA20-POLY1305", "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256"),
];

/// The suites of TLS 1.3, which OpenSSL's list does not govern.
const SUITES_13: [&str; 3] =
    ["TLS_AES_256_GCM_SHA384", "TLS_AES_128_GCM_SHA256", "TLS_CHACHA20_POLY1305_SHA256"];

/// Suites that the list names one by one are taken; its classes (`HIGH`, `!aNULL`, `@STRENGTH`) are
/// wider than what is served anyway.
fn ciphers(work: &mut Work) {
    let Some(index) = work.last("cipher-list") else { return };
    let list = work.value(index).to_owned();
    let words: Vec<&str> = list.split([':', ',', ' ']).filter(|word| !word.is_empty()).collect();
    let is_suite = |word: &&str| {
        word.starts_with(|first: char| first.is_ascii_uppercase()) && word.contains('-')
    };
    let known = |word: &&str| SUITES.iter().find(|(name, _)| name == word).map(|(_, suite)| *suite);
    let is_class = |word: &&str| {
        !is_suite(word) && !word.starts_with(['!', '-', '+', '@']) && known(word).is_none()
    };
    if words.iter().any(is_class) || !words.iter().any(&is_suite) {
        let reason = "the nine suites that are served have forward secrecy and authenticated encryption: `tls.cipher_suites` \
                      chooses among them";
        work.set(index, Fate::SameHere(reason.to_owned()));
        return;
    }
    let taken: Vec<&str> = words.iter().filter_map(known).collect();
    if taken.is_empty() {
        let reason =
            "none of these suites is served: they lack forward secrecy or authenticated encryption";
        work.set(index, Fate::Unsupported(reason.to_owned()));
        return;
    }
    let all: Vec<String> = SUITES_13.iter().chain(&taken).map(|suite| toml::text(suite)).collect();
    work.toml.set("tls.cipher_suites", format!("[{}]", all.join(", ")), "cipher-list");
    let left_out = words.iter().filter(|word| is_suite(word) && known(word).is_none()).count();
    if left_out > 0 {
        work.notes.push(format!(
            "cipher-list: {left_out} of its suites are not served, as they lack forward secrecy or authenticated encryption."
        ));
    }
}

fn curve(work: &mut Work) {
    let Some(index) = work.last("ec-curve-name") else { return };
    let group = match syntax::word(work.value(index)).to_ascii_lowercase().as_str() {
        "prime256v1" | "p-256" | "secp256r1" => "secp256r1",
        "secp384r1" | "p-384" => "secp384r1",
        "x25519" => "x25519",
        _ => {
            let reason = "the groups of `tls.key_exchange` are X25519MLKEM768, x25519, secp256r1 and secp384r1";
            return work.set(index, Fate::Unsupported(reason.to_owned()));
        }
    };
    work.toml.set("tls.key_exchange", format!("[{}]", toml::text(group)), "ec-curve-name");
}
