//! PEM certificates with OpenSSL's additional labels.

use std::borrow::Cow;

use ::openssl::base64::decode_block;
use ::openssl::x509::X509;

/// Older label of a certificate.
const OLD: &str = "X509 CERTIFICATE";

/// Label of a certificate followed by OpenSSL's trust settings.
const TRUSTED: &str = "TRUSTED CERTIFICATE";

/// Returns PEM in which every certificate has the label `CERTIFICATE` (RFC 7468 §5.1).
///
/// OpenSSL reads two more labels, and programs built on OpenSSL accept files with them. Blocks that
/// cannot be read are unchanged.
#[must_use]
pub fn with_usual_labels(pem: &[u8]) -> Cow<'_, [u8]> {
    let Ok(text) = std::str::from_utf8(pem) else { return Cow::Borrowed(pem) };
    if ![OLD, TRUSTED].iter().any(|label| text.contains(label)) {
        return Cow::Borrowed(pem);
    }
    let mut text = text.replace(&mark("BEGIN", OLD), &mark("BEGIN", "CERTIFICATE"));
    text = text.replace(&mark("END", OLD), &mark("END", "CERTIFICATE"));
    let (begin, end) = (mark("BEGIN", TRUSTED), mark("END", TRUSTED));
    let mut usual = String::with_capacity(text.len());
    let mut rest = text.as_str();
    while let Some((before, behind)) = rest.split_once(&begin) {
        let Some((block, behind)) = behind.split_once(&end) else { break };
        let Some(certificate) = without_trust(block) else { break };
        usual.extend([before, certificate.as_str()]);
        rest = behind;
    }
    usual.push_str(rest);
    Cow::Owned(usual.into_bytes())
}

/// Returns a certificate as PEM, without the trust settings that follow the DER in `block`.
fn without_trust(block: &str) -> Option<String> {
    let block: String = block.split_ascii_whitespace().collect();
    let certificate = X509::from_der(&decode_block(&block).ok()?).ok()?;
    String::from_utf8(certificate.to_pem().ok()?).ok()
}

fn mark(kind: &str, label: &str) -> String {
    format!("-----{kind} {label}-----")
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;
    use crate::Certificate;

    /// Returns OpenSSL's form of a certificate with trust settings.
    fn trusted(pem: &str) -> String {
        let mut openssl = Command::new("openssl")
            .args(["x509", "-trustout", "-addtrust", "serverAuth"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        std::io::Write::write_all(&mut openssl.stdin.take().unwrap(), pem.as_bytes()).unwrap();
        String::from_utf8(openssl.wait_with_output().unwrap().stdout).unwrap()
    }

    #[test]
    fn labels_of_openssl_are_certificates() {
        let made = rcgen::generate_simple_self_signed(["turn.example.org".to_owned()]).unwrap();
        let (usual, key) = (made.cert.pem(), made.signing_key.serialize_pem());
        let old = usual.replace("CERTIFICATE", "X509 CERTIFICATE");
        let trusted = trusted(&usual);
        assert!(trusted.contains("BEGIN TRUSTED CERTIFICATE"), "{trusted}");
        for chain in [&usual, &old, &trusted, &format!("{trusted}{old}")] {
            assert!(Certificate::read(chain.as_bytes(), key.as_bytes()).is_ok(), "{chain}");
        }
        assert!(matches!(with_usual_labels(usual.as_bytes()), Cow::Borrowed(_)));
        for damaged in [trusted.replace("END", "AND"), trusted.replace("MII", "???")] {
            assert!(Certificate::read(damaged.as_bytes(), key.as_bytes()).is_err());
        }
    }
}
