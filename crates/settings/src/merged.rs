//! The configuration and the rules of a database together.
//!
//! The configuration counts more: what an entry of `realms` says is not changed by a database, an
//! origin that is in both chooses the realm of the configuration, and the database opens nothing
//! that the configuration denies, nor this host.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::net::IpAddr;

use turn_proto::{Origin, PlacedRule};
use turn_types::Prefix;

use crate::database_rules::{DatabasePeers, DatabaseRealm, DatabaseRules, add_secrets};
use crate::file::{RealmEntry, RealmQuotas};
use crate::limits::{LIST_ENTRIES_MAX, REALMS_MAX, SECRETS_MAX};
use crate::settings::{Settings, Tenant};
use crate::value::{Bytes, Count};

/// Addresses that a database opens by no rule, however wide: link-local ones, with the metadata
/// services of most clouds, and two such services elsewhere.
const NEVER_OPENED: [&str; 4] =
    ["169.254.0.0/16", "fe80::/10", "fd00:ec2::254/128", "100.100.100.200/32"];

/// Prefix of translators whose addresses cannot be judged (RFC 8215).
const OPAQUE: &str = "64:ff9b:1::/48";

/// A realm beside the server's own, of the configuration, the database, or both.
pub(crate) struct MergedRealm<'a> {
    pub(crate) name: &'a str,
    /// Place in `realms`.
    pub(crate) index: Option<usize>,
    pub(crate) entry: Cow<'a, RealmEntry>,
    pub(crate) tenant: Cow<'a, Tenant>,
    pub(crate) database: Option<&'a DatabaseRealm>,
}

impl Settings {
    /// Puts rules of a database in force, beside those of the configuration.
    ///
    /// # Errors
    /// There are too many of them.
    pub fn put_database_rules(&mut self, rules: DatabaseRules) -> Result<(), String> {
        self.bounded(&rules)?;
        self.of_database = rules;
        Ok(())
    }

    /// Rules of the database in force.
    #[must_use]
    pub const fn database_rules(&self) -> &DatabaseRules {
        &self.of_database
    }

    fn bounded(&self, rules: &DatabaseRules) -> Result<(), String> {
        let more = |what: &str, count: usize, most: usize| {
            if count <= most {
                return Ok(());
            }
            Err(format!("the database has {count} {what}, and the most is {most}"))
        };
        let known = self.realms.iter().filter_map(|entry| entry.name.as_deref());
        let names: BTreeSet<&str> = known.chain(rules.realms.keys().map(String::as_str)).collect();
        more("realms, with those of the configuration,", names.len(), REALMS_MAX)?;
        let count = |peers: &DatabasePeers| peers.allow.len() + peers.deny.len();
        more("rules for the peers of all realms", count(&rules.peers), LIST_ENTRIES_MAX)?;
        for (name, realm) in &rules.realms {
            more(&format!("secrets in realm {name}"), realm.secrets.len(), SECRETS_MAX)?;
            let most = turn_proto::limits::TOKEN_KEYS_MAX;
            more(&format!("token keys in realm {name}"), realm.token_keys.len(), most)?;
            let rules = count(&realm.peers);
            more(&format!("rules for peers in realm {name}"), rules, LIST_ENTRIES_MAX)?;
        }
        Ok(())
    }

    /// The rules of the database for the server's own realm.
    pub(crate) fn own_of_database(&self) -> Option<&DatabaseRealm> {
        self.of_database.realms.get(&*self.realm)
    }

    /// The realms beside the server's own: those of the configuration in their order, then those of
    /// the database alone.
    pub(crate) fn merged_realms(&self) -> Vec<MergedRealm<'_>> {
        let of_database = &self.of_database.realms;
        let configured = self.realms.iter().zip(&self.tenants).enumerate();
        let mut merged: Vec<MergedRealm<'_>> = configured
            .map(|(index, (entry, tenant))| {
                let name = entry.name.as_deref().unwrap_or_default();
                let database = of_database.get(name);
                let (mut entry, mut tenant) = (Cow::Borrowed(entry), Cow::Borrowed(tenant));
                if let Some(database) = database {
                    fill(&mut entry.to_mut().quotas, database);
                    add_secrets(&mut tenant.to_mut().secrets, &database.secrets);
                }
                MergedRealm { name, index: Some(index), entry, tenant, database }
            })
            .collect();
        let known: BTreeSet<&str> = merged.iter().map(|realm| realm.name).collect();
        let more = of_database.iter().filter(|(name, _)| {
            !known.contains(name.as_str()) && **name != *self.realm && !name.is_empty()
        });
        let more: Vec<_> = more.collect();
        for (name, database) in more {
            let (mut entry, mut tenant) = (RealmEntry::default(), Tenant::default());
            fill(&mut entry.quotas, database);
            tenant.secrets.clone_from(&database.secrets);
            merged.push(MergedRealm {
                name,
                index: None,
                entry: Cow::Owned(entry),
                tenant: Cow::Owned(tenant),
                database: Some(database),
            });
        }
        self.add_origins(&mut merged);
        merged
    }

    /// Adds the origins of the database that choose no realm yet.
    fn add_origins(&self, merged: &mut [MergedRealm<'_>]) {
        let configured = self.tenants.iter().flat_map(|tenant| &tenant.origins);
        let mut known: BTreeSet<Origin> = configured.cloned().collect();
        for realm in merged {
            let Some(database) = realm.database else { continue };
            for origin in &database.origins {
                if known.insert(origin.clone()) {
                    realm.tenant.to_mut().origins.push(origin.clone());
                }
            }
        }
    }

    /// Adds the rules of the database for peers to those of the configuration.
    pub(crate) fn add_database_peers(
        &self,
        realm: Option<&DatabaseRealm>,
        own: &[Prefix],
        rules: &mut FileRules,
    ) {
        if self.of_database.is_unread {
            let everything = ["0.0.0.0/0", "::/0"];
            let place = "the database, which has not been read yet";
            everything.into_iter().filter_map(parsed).for_each(|prefix| rules.deny(prefix, place));
        }
        let all = std::iter::once(&self.of_database.peers).chain(realm.map(|realm| &realm.peers));
        let all: Vec<&DatabasePeers> = all.collect();
        let mut opened: Vec<Prefix> = all
            .iter()
            .flat_map(|peers| &peers.allow)
            .copied()
            .filter(|prefix| rules.may_be_opened(*prefix, own))
            .collect();
        if !opened.is_empty() {
            let guards = NEVER_OPENED.into_iter().filter_map(parsed);
            let guards: Vec<Prefix> = guards.filter(|guard| !rules.allows(*guard)).collect();
            guards.into_iter().for_each(|guard| rules.deny(guard, "allowed_peer_ip, never opened"));
        }
        for prefix in all.iter().flat_map(|peers| &peers.deny) {
            rules.deny(*prefix, "denied_peer_ip");
        }
        rules.allow.append(&mut opened);
    }
}

/// Rules for peers with the places of denials, as they are gathered.
#[derive(Debug, Default)]
pub(crate) struct FileRules {
    pub(crate) allow: Vec<Prefix>,
    pub(crate) deny: Vec<Prefix>,
    pub(crate) places: Vec<PlacedRule>,
}

impl FileRules {
    fn deny(&mut self, prefix: Prefix, place: &str) {
        self.deny.push(prefix);
        self.places.push(PlacedRule { prefix, place: place.into() });
    }

    /// Returns whether the database may allow a network: not one that the configuration denies as a
    /// whole, and no single address of this host or of a translator, which a rule of full length
    /// would open.
    fn may_be_opened(&self, prefix: Prefix, own: &[Prefix]) -> bool {
        let first = prefix.first();
        let is_host = prefix.len_128() == 128;
        let never = || NEVER_OPENED.into_iter().chain([OPAQUE]).filter_map(parsed);
        let is_protected = is_host
            && (first.is_loopback() || own.iter().any(|own| own.contains(first)))
            || never().any(|never| covers(never, prefix) && !self.allows(never));
        let denied = longest(&self.deny, prefix);
        let allowed = longest(&self.allow, prefix);
        !is_protected && (denied.is_none() || allowed > denied)
    }

    /// Returns whether the configuration allows a network as a whole.
    fn allows(&self, prefix: Prefix) -> bool {
        longest(&self.allow, prefix) > longest(&self.deny, prefix)
    }
}

/// Length of the longest of some networks that cover another one.
fn longest(networks: &[Prefix], prefix: Prefix) -> Option<u8> {
    networks.iter().filter(|network| covers(**network, prefix)).map(Prefix::len_128).max()
}

fn covers(network: Prefix, prefix: Prefix) -> bool {
    let is_v4 = |ip: IpAddr| ip.is_ipv4();
    is_v4(network.first()) == is_v4(prefix.first())
        && network.len_128() <= prefix.len_128()
        && network.contains(prefix.first())
}

fn parsed(text: &str) -> Option<Prefix> {
    text.parse().ok()
}

/// Fills in the limits that an entry leaves out.
fn fill(quotas: &mut RealmQuotas, database: &DatabaseRealm) {
    let or = |own: &mut Option<Count<0, 10_000_000>>, other: Option<u32>| {
        *own = own.or_else(|| other.map(Count::nearest));
    };
    or(&mut quotas.allocations_per_user, database.allocations_per_user);
    or(&mut quotas.allocations_total, database.allocations_total);
    let bytes = || database.bytes_per_second.map(Bytes::nearest);
    quotas.bytes_per_second = quotas.bytes_per_second.or_else(bytes);
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use turn_proto::{PeerAccess, PeerRules};
    use turn_types::Secret;

    use super::*;
    use crate::database_rules::DatabasePeers;
    use crate::environment::Environment;
    use crate::host_addresses::HostAddresses;

    fn settings(text: &str) -> Settings {
        let text = format!("users.database = 'redis://127.0.0.1/0'\n{text}");
        crate::parse(Path::new("t.toml"), &text, &Environment::empty()).unwrap()
    }

    fn prefixes(texts: &[&str]) -> Vec<Prefix> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn peers(allow: &[&str], deny: &[&str]) -> DatabasePeers {
        DatabasePeers { allow: prefixes(allow), deny: prefixes(deny) }
    }

    fn access(rules: &PeerRules, ip: &str) -> PeerAccess {
        rules.judge(ip.parse().unwrap())
    }

    #[test]
    fn a_database_opens_private_networks_and_never_this_host() {
        let mut settings = settings(
            "peers = { allow = ['10.1.0.0/16'], deny = ['10.0.0.0/8', '192.168.7.0/24'] }",
        );
        let allow = [
            "0.0.0.0/0",
            "::/0",
            "10.2.0.0/16",
            "10.1.2.0/24",
            "192.168.7.9",
            "127.0.0.1",
            "203.0.113.7",
            "169.254.169.254",
            "64:ff9b:1::1",
        ];
        let rules = DatabaseRules {
            peers: peers(&allow, &["198.51.100.0/24"]),
            ..DatabaseRules::default()
        };
        settings.put_database_rules(rules).unwrap();
        let own = prefixes(&["203.0.113.7/32", "127.0.0.0/8"]);
        let rules = settings.peer_rules(&own, &[]);
        for (ip, expected) in [
            ("172.16.0.1", PeerAccess::Allowed),
            ("10.1.2.3", PeerAccess::Allowed),
            ("10.2.0.1", PeerAccess::Denied),
            ("192.168.7.9", PeerAccess::Denied),
            ("127.0.0.1", PeerAccess::OwnAddress),
            ("203.0.113.7", PeerAccess::OwnAddress),
            ("169.254.169.254", PeerAccess::Denied),
            ("fe80::1", PeerAccess::Denied),
            ("100.100.100.200", PeerAccess::Denied),
            ("64:ff9b:1::1", PeerAccess::Denied),
            ("198.51.100.1", PeerAccess::Denied),
        ] {
            assert_eq!(access(&rules, ip), expected, "{ip}");
        }
        let denied = rules.denying_rule("198.51.100.1".parse().unwrap()).unwrap();
        assert_eq!(&*denied.place, "denied_peer_ip");
    }

    #[test]
    fn nothing_is_reached_until_rules_for_peers_were_read() {
        let mut settings = settings("peers = { allow = ['10.1.0.0/16'] }");
        let unread = DatabaseRules { is_unread: true, ..DatabaseRules::default() };
        settings.put_database_rules(unread).unwrap();
        let rules = settings.peer_rules(&[], &[]);
        assert_eq!(access(&rules, "192.0.2.1"), PeerAccess::Denied);
        assert_eq!(access(&rules, "10.1.0.1"), PeerAccess::Allowed);
    }

    #[test]
    fn no_credential_is_called_wrong_until_secrets_were_read() {
        let mut settings = settings("[[realms]]\nname = 'a'");
        let incomplete = |settings: &Settings| {
            let host = HostAddresses::new(vec!["192.0.2.1".parse().unwrap()]);
            let policy = settings.policy(&host, &[], Secret::new([1; 32]), None);
            let of_realm = policy.realms.named("a").unwrap().auth.incomplete;
            assert_eq!(of_realm, policy.auth.incomplete);
            of_realm
        };
        assert!(!incomplete(&settings));
        let unread = DatabaseRules { is_incomplete: true, ..DatabaseRules::default() };
        settings.put_database_rules(unread).unwrap();
        assert!(incomplete(&settings));
        settings.put_database_rules(DatabaseRules::default()).unwrap();
        assert!(!incomplete(&settings));
    }

    #[test]
    fn the_configuration_counts_more_than_the_database() {
        let mut settings = settings(
            "realm = 'own'\nquotas = { allocations_per_user = 5, bytes_per_second = '1 KiB' }\n\
             [[realms]]\nname = 'a'\norigins = ['https://a.example']\nquotas = { allocations_per_user = 7 }",
        );
        let mut a = DatabaseRealm {
            origins: vec!["https://more.example".parse().unwrap()],
            allocations_per_user: Some(100),
            allocations_total: Some(50),
            ..DatabaseRealm::default()
        };
        a.add_secret("0123456789abcdef", false).unwrap();
        assert!(a.add_secret("short", false).unwrap_err().contains("has 5 bytes"));
        let b = DatabaseRealm {
            origins: vec!["https://a.example:443".parse().unwrap()],
            bytes_per_second: Some(4096),
            peers: peers(&[], &["8.8.8.8"]),
            ..DatabaseRealm::default()
        };
        let own = DatabaseRealm {
            allocations_per_user: Some(9),
            allocations_total: Some(10),
            ..DatabaseRealm::default()
        };
        let realms = [("a", a), ("b", b), ("own", own)];
        let realms = realms.map(|(name, realm)| (name.to_owned(), realm)).into();
        settings.put_database_rules(DatabaseRules { realms, ..DatabaseRules::default() }).unwrap();
        let key = Secret::new([0; 32]);
        let host = HostAddresses::new(vec!["192.0.2.1".parse().unwrap()]);
        let policy = settings.policy(&host, &[], key, None);
        assert_eq!(policy.quotas.allocations_per_user, 9);
        let [a, b] = ["a", "b"].map(|name| policy.realms.named(name).unwrap());
        assert_eq!(a.quotas.allocations_per_user, 7, "the entry says so");
        assert_eq!((a.quotas.allocations_total, a.quotas.bytes_per_second), (50, 1024));
        assert_eq!((a.origins.len(), a.auth.secrets.len()), (2, 1));
        assert_eq!(b.quotas.allocations_per_user, 5, "the server's, not its own realm's");
        assert_eq!((b.quotas.bytes_per_second, b.origins.len()), (4096, 0));
        assert_eq!(access(&b.peer_rules, "8.8.8.8"), PeerAccess::Denied);
        assert_eq!(access(&a.peer_rules, "8.8.8.8"), PeerAccess::Allowed);
        assert_eq!(policy.realms.iter().count(), 2);

        // A reload keeps them.
        let kept = settings.reloaded(
            &crate::parse(Path::new("t"), "realm = 'own'", &Environment::empty()).unwrap(),
        );
        assert_eq!(kept.unwrap().database_rules(), settings.database_rules());
    }

    #[test]
    fn too_much_is_refused_as_a_whole() {
        let mut settings = settings("");
        let realms = (0..=REALMS_MAX).map(|n| (n.to_string(), DatabaseRealm::default())).collect();
        let error =
            settings.put_database_rules(DatabaseRules { realms, ..DatabaseRules::default() });
        assert!(error.unwrap_err().contains("the most is 4096"));
        assert_eq!(*settings.database_rules(), DatabaseRules::default());
    }
}
