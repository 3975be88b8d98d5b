//! Flaws of a certificate chain that keep clients away although the server can use the chain.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use turn_session::with_usual_labels;
use x509_parser::prelude::{FromDer as _, GeneralName, X509Certificate};
use x509_parser::public_key::PublicKey;

use super::WARN_BEFORE;
use crate::findings::Severity;
use crate::{authorities, output};

/// Minimum number of bits of an RSA key. Browsers refuse shorter keys (CA/Browser Forum, Baseline
/// Requirements §6.1.5).
const RSA_BITS_MIN: usize = 2048;

/// Maximum number of bits of an RSA key with quick signatures. Longer keys take several
/// milliseconds of a worker.
const RSA_BITS_QUICK: usize = 2048;

/// Object identifiers of signatures with broken hash functions.
const BROKEN_SIGNATURES: [(&str, &str); 4] = [
    ("1.2.840.113549.1.1.4", "MD5"),
    ("1.2.840.113549.1.1.5", "SHA-1"),
    ("1.2.840.10045.4.1", "SHA-1"),
    ("1.2.840.10040.4.3", "SHA-1"),
];

/// Object identifier of Ed25519 (RFC 8410 §3).
const ED25519: &str = "1.3.101.112";

/// Flaw of a certificate chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// A certificate of the chain expired `ago`.
    Expired { subject: String, ago: Duration },
    /// A certificate of the chain is not valid for another `until`.
    NotYetValid { subject: String, until: Duration },
    /// A certificate of the chain expires soon.
    ExpiresSoon { subject: String, left: Duration },
    /// The file has one certificate, and this host trusts no authority with the issuer's name.
    MissingIntermediate { issuer: String },
    /// A certificate of the file is not the issuer of the preceding certificate.
    WrongOrder { subject: String, issuer: String },
    /// The only certificate signs itself.
    SelfSigned,
    /// The server's certificate is a certificate of an authority.
    Authority,
    /// The certificate has no subject alternative name.
    NoNames,
    /// A certificate is signed with a broken hash function.
    BrokenSignature { subject: String, hash: &'static str },
    /// A key or signature is of Ed25519, which browsers do not verify.
    Ed25519,
    /// The RSA key is too short.
    ShortKey { bits: usize },
    /// The RSA key is long, with slow signatures.
    SlowKey { bits: usize },
}

impl Flaw {
    pub(crate) const fn severity(&self) -> Severity {
        match self {
            Self::ExpiresSoon { .. }
            | Self::SelfSigned
            | Self::Authority
            | Self::SlowKey { .. } => Severity::Warning,
            Self::Expired { .. }
            | Self::NotYetValid { .. }
            | Self::MissingIntermediate { .. }
            | Self::WrongOrder { .. }
            | Self::NoNames
            | Self::BrokenSignature { .. }
            | Self::Ed25519
            | Self::ShortKey { .. } => Severity::Problem,
        }
    }

    /// Returns true for flaws about expiry, which a running server also monitors.
    pub(crate) const fn is_about_expiry(&self) -> bool {
        matches!(self, Self::Expired { .. } | Self::ExpiresSoon { .. })
    }

    /// Returns true if the key is too short.
    pub(crate) const fn is_about_key(&self) -> bool {
        matches!(self, Self::ShortKey { .. })
    }

    /// Describes the flaw.
    pub(crate) fn what(&self) -> String {
        match self {
            Self::Expired { subject, ago } => {
                format!("the certificate {subject} expired {} ago", output::duration(*ago))
            }
            Self::NotYetValid { subject, until } => format!(
                "the certificate {subject} is not valid for another {}",
                output::duration(*until)
            ),
            Self::ExpiresSoon { subject, left } => {
                format!("the certificate {subject} expires in {}", output::duration(*left))
            }
            Self::MissingIntermediate { issuer } => format!(
                "an intermediate certificate is missing: the file ends with a certificate by \
                 {issuer}, which is no authority that this host trusts"
            ),
            Self::WrongOrder { subject, issuer } => {
                format!("the certificate {subject} does not follow: the one before is by {issuer}")
            }
            Self::SelfSigned => "the certificate signs itself: clients refuse it unless they were given it".into(),
            Self::Authority => "the certificate is one of an authority (CA:TRUE), which some clients refuse".into(),
            Self::NoNames => {
                "the certificate has no subject alternative name, and clients ignore the common name".into()
            }
            Self::BrokenSignature { subject, hash } => {
                format!("the certificate {subject} is signed with {hash}, which clients refuse")
            }
            Self::Ed25519 => "the certificate is of Ed25519, which browsers refuse".into(),
            Self::ShortKey { bits } => format!("the RSA key has {bits} bits, which clients refuse"),
            Self::SlowKey { bits } => format!(
                "the RSA key has {bits} bits: a handshake takes a worker several milliseconds, in \
                 which it relays nothing, and strangers can start one"
            ),
        }
    }

    /// Returns advice on the flaw.
    pub(crate) const fn help(&self) -> &'static str {
        match self {
            Self::Expired { .. } | Self::ExpiresSoon { .. } => {
                "renew it; a running server reloads the new file automatically"
            }
            Self::NotYetValid { .. } => {
                "compare the clock of this host (`timedatectl`) with its date"
            }
            Self::MissingIntermediate { .. } => {
                "name the file with the whole chain (fullchain.pem, not cert.pem)"
            }
            Self::WrongOrder { .. } => {
                "order the file: the server's certificate, its issuer, the issuer of that"
            }
            Self::SelfSigned | Self::Authority => {
                "get one for a server from an authority, such as Let's Encrypt"
            }
            Self::NoNames => "get one with the host name of the server as subject alternative name",
            Self::BrokenSignature { .. } => "get one that is signed with SHA-256",
            Self::Ed25519 => "get one of ECDSA P-256, or add one to tls.certificates",
            Self::ShortKey { .. } => "get one of ECDSA P-256, or of RSA with 2048 bits or more",
            Self::SlowKey { .. } => "get one of ECDSA P-256, or of RSA with 2048 bits",
        }
    }
}

/// Certificate chain as received by clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Inspection {
    /// Names and addresses that the certificate is valid for.
    pub(crate) names: Vec<String>,
    pub(crate) flaws: Vec<Flaw>,
}

/// Inspects a chain in PEM, with the server's certificate first.
pub(crate) fn inspect(pem: &[u8], now: SystemTime) -> Inspection {
    let chain: Vec<CertificateDer<'static>> =
        CertificateDer::pem_slice_iter(&with_usual_labels(pem)).filter_map(Result::ok).collect();
    inspect_chain(&chain, now)
}

/// Inspects a chain with the server's certificate first.
pub(crate) fn inspect_chain(chain: &[CertificateDer<'_>], now: SystemTime) -> Inspection {
    let chain: Vec<X509Certificate<'_>> = chain
        .iter()
        .filter_map(|der| X509Certificate::from_der(der).ok().map(|(_, parsed)| parsed))
        .collect();
    let Some(own) = chain.first() else {
        return Inspection { names: Vec::new(), flaws: Vec::new() };
    };
    let names = names(own);
    let mut flaws: Vec<Flaw> = chain.iter().filter_map(|one| dates(one, now)).collect();
    flaws.extend(issuers(&chain));
    if own.is_ca() {
        flaws.push(Flaw::Authority);
    }
    if names.is_empty() {
        flaws.push(Flaw::NoNames);
    }
    flaws.extend(chain.iter().filter_map(signature));
    if chain.iter().any(is_ed25519) {
        flaws.push(Flaw::Ed25519);
    }
    flaws.extend(rsa_key(own));
    Inspection { names, flaws }
}

fn names(own: &X509Certificate<'_>) -> Vec<String> {
    let names = own.subject_alternative_name().ok().flatten();
    let names = names.iter().flat_map(|names| &names.value.general_names);
    names
        .filter_map(|name| {
            if let GeneralName::DNSName(name) = name {
                return Some((*name).to_owned());
            }
            let GeneralName::IPAddress(bytes) = name else { return None };
            linux_net::netlink::ip(bytes).map(|ip| ip.to_string())
        })
        .collect()
}

fn dates(one: &X509Certificate<'_>, now: SystemTime) -> Option<Flaw> {
    let subject = subject(one);
    let [begins, ends] = [one.validity().not_before, one.validity().not_after]
        .map(|date| UNIX_EPOCH + Duration::from_secs(u64::try_from(date.timestamp()).unwrap_or(0)));
    if let Ok(until) = begins.duration_since(now) {
        return (!until.is_zero()).then_some(Flaw::NotYetValid { subject, until });
    }
    match ends.duration_since(now) {
        Ok(left) if left > WARN_BEFORE => None,
        Ok(left) => Some(Flaw::ExpiresSoon { subject, left }),
        Err(error) => Some(Flaw::Expired { subject, ago: error.duration() }),
    }
}

fn issuers(chain: &[X509Certificate<'_>]) -> Option<Flaw> {
    for pair in chain.windows(2) {
        let [one, next] = pair else { continue };
        if one.issuer() != next.subject() {
            let (subject, issuer) = (subject(next), one.issuer().to_string());
            return Some(Flaw::WrongOrder { subject, issuer });
        }
    }
    let last = chain.last()?;
    if last.issuer() == last.subject() {
        return (chain.len() == 1).then_some(Flaw::SelfSigned);
    }
    // An operator's authority may have intermediates that this host does not know. Only a file
    // without any intermediate is reported to lack one.
    let unknown = chain.len() == 1 && !authorities::knows(last.issuer().as_raw());
    unknown.then(|| Flaw::MissingIntermediate { issuer: last.issuer().to_string() })
}

fn signature(one: &X509Certificate<'_>) -> Option<Flaw> {
    // Clients do not verify the signature of a root.
    if one.issuer() == one.subject() && one.is_ca() {
        return None;
    }
    let algorithm = one.signature_algorithm.algorithm.to_id_string();
    let (_, hash) = BROKEN_SIGNATURES.into_iter().find(|(id, _)| *id == algorithm)?;
    Some(Flaw::BrokenSignature { subject: subject(one), hash })
}

fn is_ed25519(one: &X509Certificate<'_>) -> bool {
    one.signature_algorithm.algorithm.to_id_string() == ED25519
        || one.public_key().algorithm.algorithm.to_id_string() == ED25519
}

fn rsa_key(own: &X509Certificate<'_>) -> Option<Flaw> {
    let Ok(PublicKey::RSA(key)) = own.public_key().parsed() else { return None };
    match key.key_size() {
        bits if bits < RSA_BITS_MIN => Some(Flaw::ShortKey { bits }),
        bits if bits > RSA_BITS_QUICK => Some(Flaw::SlowKey { bits }),
        _ => None,
    }
}

fn subject(one: &X509Certificate<'_>) -> String {
    let subject = one.subject().to_string();
    if subject.is_empty() { "without a subject".to_owned() } else { format!("\"{subject}\"") }
}

#[cfg(test)]
mod tests {
    use openssl::asn1::Asn1Time;
    use openssl::ec::{EcGroup, EcKey};
    use openssl::hash::MessageDigest;
    use openssl::nid::Nid;
    use openssl::pkey::{PKey, Private};
    use openssl::rsa::Rsa;
    use openssl::x509::extension::{BasicConstraints, SubjectAlternativeName};
    use openssl::x509::{X509, X509NameBuilder};

    use super::*;

    const NOW: i64 = 1_800_000_000;
    const DAY: i64 = 86_400;

    struct Made<'a> {
        subject: &'a str,
        issuer: &'a str,
        /// First and last day of validity, counted from today.
        days: (i64, i64),
        key: PKey<Private>,
        digest: MessageDigest,
        names: &'a [&'a str],
        is_ca: bool,
    }

    impl Default for Made<'_> {
        fn default() -> Self {
            Self {
                subject: "turn.example.org",
                issuer: "Some Intermediate",
                days: (-1, 60),
                key: ecdsa(),
                digest: MessageDigest::sha256(),
                names: &["turn.example.org"],
                is_ca: false,
            }
        }
    }

    fn ecdsa() -> PKey<Private> {
        let group = EcGroup::from_curve_name(Nid::X9_62_PRIME256V1).unwrap();
        PKey::from_ec_key(EcKey::generate(&group).unwrap()).unwrap()
    }

    impl Made<'_> {
        fn pem(&self) -> Vec<u8> {
            let name = |text| {
                let mut name = X509NameBuilder::new().unwrap();
                name.append_entry_by_text("CN", text).unwrap();
                name.build()
            };
            let at = |days| Asn1Time::from_unix(NOW + days * DAY).unwrap();
            let mut made = X509::builder().unwrap();
            made.set_version(2).unwrap();
            made.set_subject_name(&name(self.subject)).unwrap();
            made.set_issuer_name(&name(self.issuer)).unwrap();
            made.set_not_before(&at(self.days.0)).unwrap();
            made.set_not_after(&at(self.days.1)).unwrap();
            made.set_pubkey(&self.key).unwrap();
            let mut constraints = BasicConstraints::new();
            if self.is_ca {
                constraints.ca();
            }
            made.append_extension(constraints.build().unwrap()).unwrap();
            if !self.names.is_empty() {
                let mut names = SubjectAlternativeName::new();
                for name in self.names {
                    names.dns(name);
                }
                let names = names.build(&made.x509v3_context(None, None)).unwrap();
                made.append_extension(names).unwrap();
            }
            made.sign(&self.key, self.digest).unwrap();
            made.build().to_pem().unwrap()
        }

        fn intermediate() -> Vec<u8> {
            let (subject, issuer) = ("Some Intermediate", "Some Root");
            Made { subject, issuer, is_ca: true, names: &[], ..Made::default() }.pem()
        }
    }

    fn inspected(pem: &[u8]) -> Inspection {
        inspect(pem, UNIX_EPOCH + Duration::from_secs(NOW as u64))
    }

    fn flaws(own: &Made<'_>) -> Vec<Flaw> {
        inspected(&[own.pem(), Made::intermediate()].concat()).flaws
    }

    #[test]
    fn a_whole_chain_has_no_flaw() {
        let found = inspected(&[Made::default().pem(), Made::intermediate()].concat());
        assert_eq!(found, Inspection { names: vec!["turn.example.org".into()], flaws: Vec::new() });
    }

    #[test]
    fn a_missing_intermediate_is_named() {
        let issuer = "CN=Some Intermediate".to_owned();
        assert_eq!(inspected(&Made::default().pem()).flaws, [Flaw::MissingIntermediate { issuer }]);
        let wrong = inspected(&[Made::default().pem(), Made::default().pem()].concat()).flaws;
        assert!(matches!(wrong.as_slice(), [Flaw::WrongOrder { .. }]), "{wrong:?}");
        let own = Made { issuer: "turn.example.org", ..Made::default() };
        assert_eq!(inspected(&own.pem()).flaws, [Flaw::SelfSigned]);
    }

    #[test]
    fn dates_are_compared() {
        let subject = || "\"CN=turn.example.org\"".to_owned();
        let day = |days: u64| Duration::from_secs(days * 86_400);
        for (days, expected) in [
            ((-90, -2), Flaw::Expired { subject: subject(), ago: day(2) }),
            ((3, 90), Flaw::NotYetValid { subject: subject(), until: day(3) }),
            ((-80, 10), Flaw::ExpiresSoon { subject: subject(), left: day(10) }),
        ] {
            assert_eq!(flaws(&Made { days, ..Made::default() }), [expected]);
        }
    }

    #[test]
    fn keys_and_signatures_that_clients_refuse_or_that_are_slow_are_found() {
        let sha1 = flaws(&Made { digest: MessageDigest::sha1(), ..Made::default() });
        assert!(
            matches!(sha1.as_slice(), [Flaw::BrokenSignature { hash: "SHA-1", .. }]),
            "{sha1:?}"
        );
        let rsa = |bits| {
            let key = PKey::from_rsa(Rsa::generate(bits).unwrap()).unwrap();
            flaws(&Made { key, ..Made::default() })
        };
        assert_eq!(rsa(1024), [Flaw::ShortKey { bits: 1024 }]);
        assert_eq!(rsa(2048), []);
        assert_eq!(rsa(3072), [Flaw::SlowKey { bits: 3072 }]);
        let (key, digest) = (PKey::generate_ed25519().unwrap(), MessageDigest::null());
        assert_eq!(flaws(&Made { key, digest, ..Made::default() }), [Flaw::Ed25519]);
    }

    #[test]
    fn names_and_purpose_are_checked() {
        assert_eq!(flaws(&Made { names: &[], ..Made::default() }), [Flaw::NoNames]);
        assert_eq!(flaws(&Made { is_ca: true, ..Made::default() }), [Flaw::Authority]);
    }

    #[test]
    fn damaged_chains_are_left_to_others() {
        assert_eq!(inspected(b"no certificate").flaws, []);
    }
}
