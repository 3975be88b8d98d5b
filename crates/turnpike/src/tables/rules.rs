//! Conversion of the rows of coturn's tables to rules.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use settings::{DatabasePeers, DatabaseRealm, DatabaseRules};
use user_db::{Row, Table};

/// Rules found in rows, with warnings.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) rules: DatabaseRules,
    /// Unused rows, with the reason. Contains no secrets.
    pub(crate) warnings: BTreeSet<String>,
    /// Next time at which a key's validity starts or expires.
    pub(super) due: Option<SystemTime>,
    /// Value of `compatibility.short_secrets`.
    short_secrets: bool,
}

/// Converts rows to the rules at time `now`. `short_secrets` is `compatibility.short_secrets`.
pub(crate) fn of(rows: &[(Table, Row)], now: SystemTime, short_secrets: bool) -> Found {
    let mut found = Found { short_secrets, ..Found::default() };
    for (table, row) in rows {
        let row: Vec<&str> = row.iter().map(|value| value.trim()).collect();
        if let Err(why) = found.take(*table, &row, now) {
            found.warnings.insert(format!("{}: {why}", table.name()));
        }
    }
    found
}

impl Found {
    fn take(&mut self, table: Table, row: &[&str], now: SystemTime) -> Result<(), String> {
        match (table, row) {
            (Table::Secrets, [realm, value]) => {
                let may_be_short = self.short_secrets;
                let added = self.realm(realm)?.add_secret(value, may_be_short);
                added.map_err(|why| format!("realm {realm}: {why}"))
            }
            (Table::Origins, [origin, realm]) => self.origin(origin, realm),
            (Table::Options, [realm, option, value]) => self.option(realm, option, value),
            (Table::AllowedPeers, [realm, range]) => {
                let networks = networks(range)?;
                self.peers(realm)?.allow.extend(networks);
                Ok(())
            }
            (Table::DeniedPeers, [realm, range]) => {
                let networks = networks(range)?;
                self.peers(realm)?.deny.extend(networks);
                Ok(())
            }
            (Table::TokenKeys, [kid, key, begin, lifetime, algorithm, realm]) => {
                if !self.is_valid(begin, lifetime, now) {
                    return Ok(());
                }
                self.realm(realm)?.add_token_key(kid, key, algorithm)
            }
            _ => Ok(()),
        }
    }

    fn realm(&mut self, name: &str) -> Result<&mut DatabaseRealm, String> {
        if name.is_empty() {
            return Err("the realm is empty".to_owned());
        }
        if name.len() > turn_proto::limits::REALM_BYTES_MAX {
            return Err("the realm is too long".to_owned());
        }
        Ok(self.rules.realms.entry(name.to_owned()).or_default())
    }

    /// Returns the peer rules of a realm. An empty name selects the rules of all realms.
    fn peers(&mut self, realm: &str) -> Result<&mut DatabasePeers, String> {
        if realm.is_empty() { Ok(&mut self.rules.peers) } else { Ok(&mut self.realm(realm)?.peers) }
    }

    fn origin(&mut self, text: &str, realm: &str) -> Result<(), String> {
        let no_origin = |_| format!("\"{text}\" is no origin of a web page");
        let origin = text.parse::<turn_proto::Origin>().map_err(no_origin)?;
        if self.rules.realms.values().any(|other| other.origins.contains(&origin)) {
            return Err(format!("{origin} is there twice, in two spellings"));
        }
        self.realm(realm)?.origins.push(origin);
        Ok(())
    }

    fn option(&mut self, realm: &str, option: &str, value: &str) -> Result<(), String> {
        let number: i64 = value
            .parse()
            .map_err(|_| format!("realm {realm}: {option} is \"{value}\", and no number"))?;
        // As in coturn, a negative number sets no limit of the realm.
        let Ok(number) = u64::try_from(number) else { return Ok(()) };
        let count = u32::try_from(number).unwrap_or(u32::MAX);
        let limits = self.realm(realm)?;
        match option {
            "max-bps" => limits.bytes_per_second = Some(number),
            "total-quota" => limits.allocations_total = Some(count),
            "user-quota" => limits.allocations_per_user = Some(count),
            _ => return Err(format!("realm {realm}: the option {option} is not known")),
        }
        Ok(())
    }

    /// Returns true if a key is valid now, and records the next change of its validity. A key
    /// without a lifetime does not expire.
    fn is_valid(&mut self, begin: &str, lifetime: &str, now: SystemTime) -> bool {
        let seconds = |text: &str| text.parse().unwrap_or(0_u64).min(u64::from(u32::MAX));
        let (begin, lifetime) = (seconds(begin), seconds(lifetime));
        if lifetime == 0 {
            return true;
        }
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let (begin, end) = (at(begin), at(begin + lifetime));
        let next = if now < begin { begin } else { end };
        if now < next {
            self.due = Some(self.due.map_or(next, |due| due.min(next)));
        }
        begin <= now && now < end
    }
}

fn networks(range: &str) -> Result<Vec<turn_types::Prefix>, String> {
    let no_range = || format!("\"{range}\" is no range of addresses");
    let networks = coturn_config::networks(range).ok_or_else(no_range)?;
    networks.iter().map(|text| text.parse().map_err(|_| no_range())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row<const N: usize>(table: Table, values: [&str; N]) -> (Table, Row) {
        (table, values.map(str::to_owned).to_vec())
    }

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn rows_become_rules() {
        let found = of(
            &[
                row(Table::Secrets, ["a", "0123456789abcdef"]),
                row(Table::Origins, ["https://a.example", "a"]),
                row(Table::Options, ["a", "max-bps", "1000"]),
                row(Table::Options, ["a", "total-quota", "-1"]),
                row(Table::Options, ["a", "user-quota", "12"]),
                row(Table::AllowedPeers, ["a", "10.0.0.0-10.255.255.255"]),
                row(Table::DeniedPeers, ["", "192.0.2.1"]),
            ],
            at(0),
            false,
        );
        assert!(found.warnings.is_empty(), "{:?}", found.warnings);
        let a = &found.rules.realms["a"];
        assert_eq!((a.secrets.len(), a.origins.len()), (1, 1));
        assert_eq!(a.bytes_per_second, Some(1000));
        assert_eq!((a.allocations_total, a.allocations_per_user), (None, Some(12)));
        assert_eq!(a.peers.allow, ["10.0.0.0/8".parse().unwrap()]);
        assert_eq!(found.rules.peers.deny, ["192.0.2.1/32".parse().unwrap()]);
    }

    #[test]
    fn rows_that_cannot_be_used_are_named_without_secrets() {
        let found = of(
            &[
                row(Table::Secrets, ["a", "hush"]),
                row(Table::Secrets, ["", "0123456789abcdef"]),
                row(Table::Origins, ["a.example", "a"]),
                row(Table::Options, ["a", "max-bps", "many"]),
                row(Table::DeniedPeers, ["", "10.0.0.9-10.0.0.1"]),
                row(Table::TokenKeys, ["k", "aHVzaA==", "0", "0", "", "a"]),
            ],
            at(0),
            false,
        );
        assert_eq!(found.warnings.len(), 6);
        let all = format!("{:?}", found.warnings);
        assert!(!all.contains("hush") && !all.contains("0123456789abcdef"), "{all}");
        assert!(all.contains("denied_peer_ip: \\\"10.0.0.9-10.0.0.1\\\" is no range"), "{all}");
    }

    #[test]
    fn a_key_has_a_time() {
        let key = "MTIzNDU2Nzg5MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTI=";
        let rows = [
            row(Table::TokenKeys, ["always", key, "0", "0", "", "a"]),
            row(Table::TokenKeys, ["later", key, "100", "50", "A256GCM", "a"]),
        ];
        for (now, keys, due) in
            [(99, 1, Some(100)), (100, 2, Some(150)), (149, 2, Some(150)), (150, 1, None)]
        {
            let found = of(&rows, at(now), false);
            assert_eq!(found.rules.realms["a"].token_keys.len(), keys, "{now}");
            assert_eq!(found.due, due.map(at), "{now}");
        }
    }
}
