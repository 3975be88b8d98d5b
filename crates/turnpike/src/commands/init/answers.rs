//! Operator's answers, and the resulting configuration.

use std::path::{Path, PathBuf};

use serde_json::Value;
use settings::Environment;

use crate::{new_files, paths};

/// Question of `turnpike init`, sorted as presented.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Question {
    /// Authentication realm.
    Realm,
    /// Public host name.
    Name,
    /// Public address with address translation.
    External,
    /// Source of credentials.
    Auth,
    /// Certificate of the server.
    Certificate,
}

/// Error about an invalid answer.
#[derive(Debug)]
pub(super) struct Wrong {
    /// Description of the error.
    pub(super) what: String,
    /// Advice on a valid answer.
    pub(super) help: String,
}

/// Complete set of answers.
#[derive(Clone, Debug, Default)]
pub(super) struct Answers {
    /// Authentication realm.
    pub(super) realm: String,
    /// Public host name.
    pub(super) name: Option<String>,
    /// Public address with address translation.
    pub(super) external: External,
    /// Source of credentials.
    pub(super) auth: Auth,
    /// Certificate of the server.
    pub(super) certificate: Certificate,
    /// True if the file is for the packaged service, whose operators share a group.
    pub(super) for_service: bool,
}

/// Public address of a host with address translation.
#[derive(Clone, Debug, Default)]
pub(super) enum External {
    /// The host has no address translation.
    #[default]
    None,
    /// The public addresses are known, with one per family.
    Addresses(Vec<String>),
    /// STUN servers that are queried for the public address.
    Auto(Vec<String>),
}

/// Source of credentials.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Auth {
    /// An application shares a secret with the server.
    Secret,
    /// The user database contains the users.
    #[default]
    Users,
}

/// Certificate of the server.
#[derive(Clone, Debug, Default)]
pub(super) enum Certificate {
    /// The server has no certificate, and TLS is off.
    #[default]
    None,
    /// A certificate is ordered for the public name.
    Acme,
    /// The certificate is in PEM files.
    Files { chain: PathBuf, key: PathBuf },
}

impl Question {
    /// All questions. The name precedes the certificate, which may need the name.
    pub(super) const ALL: [Self; 5] =
        [Self::Realm, Self::Name, Self::External, Self::Auth, Self::Certificate];

    /// Returns the flag with the answer.
    pub(super) const fn flag(self) -> &'static str {
        match self {
            Self::Realm => "--realm",
            Self::Name => "--name",
            Self::External => "--external",
            Self::Auth => "--auth",
            Self::Certificate => "--certificate",
        }
    }

    /// Returns the text of the question.
    pub(super) const fn text(self) -> &'static str {
        match self {
            Self::Realm => "Realm of the users, usually your domain, such as example.org",
            Self::Name => "Public name of this server, such as turn.example.org, or none",
            Self::External => {
                "NAT in front of this host: its public address, auto=STUN-SERVER (that server is asked) or none"
            }
            Self::Auth => {
                "Authentication: secret (your application shares a secret with the server, and mints credentials for \
                 its users) or users (each with a password)"
            }
            Self::Certificate => {
                "Certificate for TLS: acme (ordered from Let's Encrypt for the public name; agrees to its terms), \
                 CHAIN,KEY (PEM files) or none"
            }
        }
    }

    /// Returns advice on an invalid answer.
    const fn help(self) -> &'static str {
        match self {
            Self::Realm => "write a domain, such as example.org",
            Self::Name => {
                "write a host's name, such as turn.example.org, or none; international ones as xn--..."
            }
            Self::External => {
                "write an address, such as 203.0.113.7, or one per family with a comma; auto=stun.example.org, with a \
                 STUN server that you trust; or none"
            }
            Self::Auth => "write secret or users",
            Self::Certificate => {
                "write acme, none, or two files: /etc/turnpike/fullchain.pem,/etc/turnpike/privkey.pem"
            }
        }
    }

    /// Returns the default answer, which an empty line selects.
    pub(super) const fn preset(self) -> Option<&'static str> {
        match self {
            Self::Realm => None,
            Self::Auth => Some("secret"),
            Self::Name | Self::External | Self::Certificate => Some("none"),
        }
    }
}

impl Answers {
    /// Stores an answer, if it is valid together with the previous answers.
    pub(super) fn take(&mut self, question: Question, text: &str) -> Result<(), Wrong> {
        let mut next = self.clone();
        match question {
            Question::Realm => text.clone_into(&mut next.realm),
            Question::Name => next.name = (text != "none").then(|| text.to_owned()),
            Question::External => next.external = External::parse(text),
            Question::Auth => next.auth = Auth::parse(text)?,
            Question::Certificate => next.certificate = Certificate::parse(text, &next)?,
        }
        next.check(question)?;
        *self = next;
        Ok(())
    }

    /// Checks the configuration with the answers so far. The secret is left out, since its file is
    /// written last. A name must be valid for a certificate, even if none is ordered.
    fn check(&self, question: Question) -> Result<(), Wrong> {
        let mut known = Self { auth: Auth::Users, ..self.clone() };
        if known.name.is_some() && matches!(known.certificate, Certificate::None) {
            known.certificate = Certificate::Acme;
        }
        if known.realm.is_empty() && question != Question::Realm {
            // A later question sets the realm.
            known.realm = "realm".to_owned();
        }
        let text = known.toml(Path::new("/"));
        let parsed = settings::parse(Path::new("answer"), &text, &Environment::empty());
        if let Err(errors) = parsed
            && let Some(error) = errors.0.into_iter().next()
        {
            // The advice of the settings refers to TOML.
            return Err(Wrong { what: error.what, help: question.help().to_owned() });
        }
        paths::realm_slip(&known.realm).map_or(Ok(()), |(what, help)| Err(Wrong { what, help }))
    }

    /// Returns the configuration as TOML.
    pub(super) fn toml(&self, secret: &Path) -> String {
        let mut text = format!(
            "# Written by turnpike init. All keys: turnpike reference. After a change: turnpike check, then turnpike reload.\n\n\
             # Users belong to the realm: users added under another one have to be added again.\n\
             realm = {}\n",
            quoted(&self.realm)
        );
        text.push_str(&self.ports());
        text.push_str(&self.relay());
        match self.auth {
            Auth::Secret => text.push_str(&format!(
                "\n[auth]\n# Shared with the application that mints credentials.\nsecret_file = {}\n",
                quoted(&secret.display().to_string())
            )),
            Auth::Users => {
                text.push_str("\n# Users are in the database: turnpike user add NAME\n");
            }
        }
        text.push_str(&self.tls());
        if self.for_service {
            text.push_str(new_files::CONTROL_OF_SERVICE);
        }
        text
    }

    /// Returns a comment about the ports for the firewall.
    fn ports(&self) -> String {
        let host = self.name.as_deref().unwrap_or("ADDRESS");
        let (more, tls) = match self.certificate {
            Certificate::None => ("", String::new()),
            Certificate::Acme => (", 443, 5349", format!(" and turns:{host}:443?transport=tcp")),
            Certificate::Files { .. } => (", 5349", format!(" and turns:{host}")),
        };
        // Quoted together with the name, which cannot break the line then.
        let uris = quoted(&format!("turn:{host}{tls}"));
        format!(
            "# Clients use {uris}.\n# Open in the firewall: UDP and TCP 3478{more}; UDP 49152-65535 (relay.ports).\n"
        )
    }

    fn relay(&self) -> String {
        match &self.external {
            External::None => String::new(),
            External::Addresses(addresses) => format!(
                "\n[relay]\n# Public address in front of NAT, which forwards the ports above to this host.\nexternal = {}\n",
                list(addresses)
            ),
            External::Auto(servers) => format!(
                "\n[relay]\n# The public address in front of NAT is asked of these STUN servers. Until one answers \
                 the server relays nothing.\nexternal = \"auto\"\nexternal_stun = {}\n",
                list(servers)
            ),
        }
    }

    fn tls(&self) -> String {
        match &self.certificate {
            Certificate::None => String::new(),
            Certificate::Acme => format!(
                "\n[tls]\n# The authority verifies the name at port 443, which also passes most firewalls.\n\
                 listen = [\"0.0.0.0:443\", \"[::]:443\", \"0.0.0.0:5349\", \"[::]:5349\"]\n\n\
                 [acme]\n# Ordered at the start, and renewed. The name has to lead to this host in public DNS.\n\
                 names = {}\n",
                list(self.name.as_slice())
            ),
            Certificate::Files { chain, key } => {
                let [chain, key] = [chain, key].map(|path| quoted(&path.display().to_string()));
                format!(
                    "\n[tls]\n# Port 443 passes most firewalls, if no web server has it:\n\
                     #listen = [\"0.0.0.0:443\", \"[::]:443\", \"0.0.0.0:5349\", \"[::]:5349\"]\n\
                     # Renewed files are read again by themselves.\n\
                     certificates = [{{ chain = {chain}, key = {key} }}]\n"
                )
            }
        }
    }
}

impl External {
    fn parse(text: &str) -> Self {
        let items = |list: &str| list.split(',').map(|item| item.trim().to_owned()).collect();
        match text.split_once('=') {
            Some(("auto", servers)) => Self::Auto(items(servers)),
            _ if text == "auto" => Self::Auto(Vec::new()),
            _ if text == "none" => Self::None,
            _ => Self::Addresses(items(text)),
        }
    }
}

impl Auth {
    fn parse(text: &str) -> Result<Self, Wrong> {
        match text {
            "secret" => Ok(Self::Secret),
            "users" => Ok(Self::Users),
            _ => Err(Wrong {
                what: format!("\"{text}\" is no means of authentication"),
                help: Question::Auth.help().to_owned(),
            }),
        }
    }
}

impl Certificate {
    fn parse(text: &str, answers: &Answers) -> Result<Self, Wrong> {
        let wrong = |what: &str, help: &str| Wrong { what: what.to_owned(), help: help.to_owned() };
        match (text, text.split_once(',')) {
            ("none", _) => Ok(Self::None),
            ("acme", _) if answers.name.is_none() => Err(wrong(
                "a certificate is ordered for a public name, and there is none",
                "name it with --name, or answer \"none\"",
            )),
            ("acme", _) => Ok(Self::Acme),
            (_, Some((chain, key))) if !chain.trim().is_empty() && !key.trim().is_empty() => {
                // The server may be started in another directory.
                let [chain, key] = [chain, key].map(|path| {
                    std::path::absolute(path.trim()).unwrap_or_else(|_| path.trim().into())
                });
                Ok(Self::Files { chain, key })
            }
            _ => Err(wrong(
                "a certificate is \"acme\", two files or \"none\"",
                Question::Certificate.help(),
            )),
        }
    }
}

/// Quotes a text for TOML, where a JSON string is valid.
fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

fn list(items: &[String]) -> String {
    let items: Vec<String> = items.iter().map(|item| quoted(item)).collect();
    format!("[{}]", items.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Directory;

    fn answered(texts: [&str; 5]) -> Result<Answers, Wrong> {
        let mut answers = Answers::default();
        for (question, text) in Question::ALL.into_iter().zip(texts) {
            answers.take(question, text)?;
        }
        Ok(answers)
    }

    #[test]
    fn every_combination_is_a_valid_configuration() {
        let directory = Directory::new("init");
        let secret = directory.path().join("secret");
        std::fs::write(&secret, "bm9ydGgtb2YtdGhlLXdhbGwtYW5kLWJleW9uZC1pdC4=\n").unwrap();
        let mut count = 0;
        for realm in ["example.org", "caf\u{e9} \"north\" \\ wall"] {
            for name in ["none", "turn.example.org"] {
                for external in [
                    "none",
                    "203.0.113.7",
                    "203.0.113.7,2001:db8::7",
                    "auto=stun.example.org",
                    "auto=203.0.113.9:3478, [2001:db8::9]:3478",
                ] {
                    for auth in ["secret", "users"] {
                        for certificate in ["none", "acme", "chain.pem,/etc/key \"1\".pem"] {
                            for for_service in [false, true] {
                                let texts = [realm, name, external, auth, certificate];
                                if (name, certificate) == ("none", "acme") {
                                    assert!(
                                        answered(texts).unwrap_err().what.contains("public name")
                                    );
                                    continue;
                                }
                                let answers = Answers { for_service, ..answered(texts).unwrap() };
                                let text = answers.toml(&secret);
                                let read = settings::parse(
                                    Path::new("t.toml"),
                                    &text,
                                    &Environment::empty(),
                                );
                                let read = read.unwrap_or_else(|errors| panic!("{errors}\n{text}"));
                                assert_eq!(&*read.realm, realm);
                                assert_eq!(read.secrets.len(), usize::from(auth == "secret"));
                                assert_eq!(
                                    read.certificates().len(),
                                    usize::from(certificate.contains(','))
                                );
                                assert_eq!(
                                    read.acme.names.len(),
                                    usize::from(certificate == "acme")
                                );
                                assert_eq!(read.is_external_auto(), external.starts_with("auto"));
                                assert_eq!(read.relay.external.is_some(), external != "none");
                                count += 1;
                            }
                        }
                    }
                }
            }
        }
        assert_eq!(count, 2 * 5 * 2 * 2 * (2 + 3));
    }

    #[test]
    fn a_wrong_answer_says_what_to_write() {
        for (texts, part) in [
            (["", "none", "none", "users", "none"], "empty"),
            (["a\u{ad}b", "none", "none", "users", "none"], "RFC 8265"),
            (["x", "not a name", "none", "users", "none"], "not a name"),
            (["x", "a\n[auth]\nsecret = 5", "none", "users", "none"], "a host's name"),
            (["x", "none", "public", "users", "none"], "address"),
            (["x", "none", "auto", "users", "none"], "STUN"),
            (["x", "none", "auto=", "users", "none"], "auto=stun"),
            (["x", "none", "none", "password", "none"], "secret"),
            (["x", "none", "none", "users", "files"], "fullchain.pem,"),
        ] {
            let Wrong { what, help } = answered(texts).unwrap_err();
            assert!(format!("{what} {help}").contains(part), "{texts:?}: {what}; {help}");
            assert!(!what.is_empty() && !help.is_empty());
        }
    }
}
