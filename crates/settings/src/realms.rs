//! From the entries of `realms` to the rules of each.

use turn_proto::{
    AlternateServers, AuthPolicy, Lifetimes, NonceKey, PeerRules, Policy, Quotas, RealmPolicy,
    Realms, RelayAddress,
};
use turn_types::Prefix;

use crate::file::{self, RealmEntry};
use crate::merged::MergedRealm;
use crate::redirects::Redirects;
use crate::settings::Settings;

impl Settings {
    /// Returns whether a realm is the server's own or another one that it has, of the configuration
    /// or of the database.
    #[must_use]
    pub fn has_realm(&self, name: &str) -> bool {
        *self.realm == *name
            || self.realms.iter().any(|entry| entry.name.as_deref() == Some(name))
            || self.database_rules().realms.contains_key(name)
    }

    /// The rules of the realms beside the server's own. `own` and `relay` are as for
    /// [`Settings::peer_rules`].
    #[must_use]
    pub fn realm_policies(
        &self,
        own: &[Prefix],
        relay: &[RelayAddress],
        nonce_key: NonceKey,
        previous: Option<&Policy>,
    ) -> Realms {
        let realm = |realm: &MergedRealm<'_>| {
            let MergedRealm { entry, tenant, .. } = realm;
            RealmPolicy {
                name: realm.name.into(),
                origins: tenant.origins.clone(),
                server_names: tenant.server_names.clone(),
                listeners: tenant.listeners.clone(),
                software: entry.software.as_deref().or(self.software.as_deref()).map(Into::into),
                auth: self.realm_auth(realm, nonce_key, previous),
                lifetimes: entry.lifetimes(&self.lifetimes),
                quotas: entry.quotas(&self.quotas),
                peer_rules: self.peer_rules_of(Some(realm), own, relay),
                alternates: Some(entry.alternate_servers())
                    .filter(|own| !own.is_empty())
                    .unwrap_or_else(|| self.alternate_servers()),
            }
        };
        let own_max = self.own_of_database().and_then(|own| own.allocations_total);
        Realms::new(self.merged_realms().iter().map(realm).collect())
            .with_own_allocations_max(own_max.unwrap_or(0))
    }

    /// The peer rules of each of them, in their order.
    #[must_use]
    pub fn realm_peer_rules(&self, own: &[Prefix], relay: &[RelayAddress]) -> Vec<PeerRules> {
        let realms = self.merged_realms();
        realms.iter().map(|realm| self.peer_rules_of(Some(realm), own, relay)).collect()
    }

    fn realm_auth(
        &self,
        realm: &MergedRealm<'_>,
        nonce_key: NonceKey,
        previous: Option<&Policy>,
    ) -> AuthPolicy {
        let users = realm.entry.users.unwrap_or(self.auth.users);
        let known = |previous: &Policy| {
            previous.realms.named(realm.name).is_some_and(|old| old.auth.sha256)
        };
        let token_keys = realm.database.map_or(&[][..], |database| &database.token_keys);
        let server_name = realm.entry.token_server_name.as_deref();
        let server_name = server_name.or(self.auth.server_name.as_deref()).unwrap_or(realm.name);
        AuthPolicy {
            users,
            secrets: realm.tenant.secrets.clone(),
            separator: self.separator(),
            limits_in_names: self.auth.limits_in_names,
            authorizer: self.when_silent(),
            expiry_at_refresh: self.auth.expiry_at_refresh,
            // Known from the user store at the start; a realm that is new since may have users with
            // MD5 keys alone.
            sha256: previous.is_none_or(known),
            userhash: self.auth.userhash
                && users
                && realm.tenant.secrets.is_empty()
                && !self.user_database().has_coturn_layout(),
            tokens: self
                .token_authority(server_name, realm.tenant.token_keys.iter().chain(token_keys)),
            incomplete: self.of_database.is_incomplete,
            ..AuthPolicy::new(nonce_key)
        }
    }
}

impl RealmEntry {
    /// Its lifetimes over those of the server.
    pub(crate) fn lifetimes(&self, server: &file::Lifetimes) -> Lifetimes {
        let (own, server) = (&self.lifetimes, Lifetimes::from(server));
        Lifetimes {
            allocation_default: own
                .allocation_default
                .map_or(server.allocation_default, |it| it.get()),
            allocation_max: own.allocation_max.map_or(server.allocation_max, |it| it.get()),
            nonce: own.nonce.map_or(server.nonce, |it| it.get()),
            ..server
        }
    }

    fn quotas(&self, server: &file::Quotas) -> Quotas {
        let (own, server) = (&self.quotas, Quotas::from(server));
        Quotas {
            allocations_per_user: own
                .allocations_per_user
                .map_or(server.allocations_per_user, |it| it.get()),
            allocations_total: own.allocations_total.map_or(0, |it| it.get()),
            permissions: own.permissions.map_or(server.permissions, |it| it.get()),
            channels: own.channels.map_or(server.channels, |it| it.get()),
            bytes_per_second: own.bytes_per_second.map_or(server.bytes_per_second, |it| it.get()),
            bytes_per_second_total: own.bytes_per_second_total.map_or(0, |it| it.get()),
            ..server
        }
    }

    /// The servers that its clients are redirected to; none are the server's.
    pub(crate) fn alternate_servers(&self) -> AlternateServers {
        Redirects::of_realm(&self.redirect).alternate_servers()
    }
}
