//! The servers that clients are redirected to, of all realms and of one.

use std::net::SocketAddr;

use turn_proto::AlternateServers;

use crate::file::{RealmRedirect, Redirect};
use crate::limits::ALTERNATES_MAX;
use crate::value::{Endpoint, Text};

/// The servers of a section or of a realm.
#[derive(Clone, Copy)]
pub(crate) struct Redirects<'a> {
    ipv4: Option<&'a Endpoint>,
    ipv6: Option<&'a Endpoint>,
    servers: &'a [Endpoint],
    udp: &'a [Endpoint],
    tcp: &'a [Endpoint],
    tls: &'a [Endpoint],
    domain: Option<&'a Text<1, 255>>,
}

/// A fault of them.
pub(crate) struct Fault {
    /// Name of the value.
    pub(crate) key: &'static str,
    pub(crate) what: String,
    pub(crate) help: String,
}

impl<'a> Redirects<'a> {
    pub(crate) fn of_all(section: &'a Redirect) -> Self {
        let Redirect { ipv4, ipv6, servers, udp, tcp, tls, domain, .. } = section;
        let (ipv4, ipv6, domain) = (ipv4.as_ref(), ipv6.as_ref(), domain.as_ref());
        Self { ipv4, ipv6, servers, udp, tcp, tls, domain }
    }

    pub(crate) fn of_realm(realm: &'a RealmRedirect) -> Self {
        let RealmRedirect { ipv4, ipv6, servers, udp, tcp, tls, domain } = realm;
        let (ipv4, ipv6, domain) = (ipv4.as_ref(), ipv6.as_ref(), domain.as_ref());
        Self { ipv4, ipv6, servers, udp, tcp, tls, domain }
    }

    pub(crate) fn alternate_servers(&self) -> AlternateServers {
        AlternateServers {
            any: addresses(self.ipv4.into_iter().chain(self.ipv6).chain(self.servers)),
            udp: addresses(self.udp),
            tcp: addresses(self.tcp),
            tls: addresses(self.tls),
            domain: self.domain.map(|domain| domain.to_string()),
        }
    }

    const fn single(&self) -> [(&'static str, Option<&'a Endpoint>, bool); 2] {
        [("ipv4", self.ipv4, true), ("ipv6", self.ipv6, false)]
    }

    const fn lists(&self) -> [(&'static str, &'a [Endpoint]); 4] {
        [("servers", self.servers), ("udp", self.udp), ("tcp", self.tcp), ("tls", self.tls)]
    }

    /// The faults of the values that could be read; `is_refused` tells which could not.
    pub(crate) fn faults(&self, is_refused: impl Fn(&str) -> bool) -> Vec<Fault> {
        let mut faults = Vec::new();
        let mut add = |key, what, help: String| faults.push(Fault { key, what, help });
        let wildcard = |Endpoint(server): &Endpoint| {
            let is_wildcard = server.ip().is_unspecified();
            is_wildcard
                .then(|| (format!("\"{server}\" is a wildcard"), "name the server's address"))
        };
        for (key, server, is_ipv4) in self.single() {
            let Some(written @ Endpoint(server)) = server else { continue };
            if server.is_ipv4() != is_ipv4 {
                let help = "clients are sent to a server of the family they came over";
                add(key, format!("\"{server}\" is of the other family"), help.to_owned());
            } else if let Some((what, help)) = wildcard(written) {
                add(key, what, help.to_owned());
            }
        }
        for (key, list) in self.lists() {
            if list.len() > ALTERNATES_MAX {
                let what = format!("the list has {} servers", list.len());
                add(key, what, format!("write at most {ALTERNATES_MAX}"));
            }
            for (what, help) in list.iter().filter_map(wildcard) {
                add(key, what, help.to_owned());
            }
        }
        let single = self.single().map(|(key, server, _)| is_refused(key) || server.is_some());
        let lists = self.lists().map(|(key, list)| is_refused(key) || !list.is_empty());
        if self.domain.is_some() && !single.iter().chain(&lists).any(|has| *has) {
            let what = "there is a name, and no address to send clients to".to_owned();
            add("domain", what, "set redirect.ipv4, redirect.ipv6 or redirect.servers".to_owned());
        }
        faults
    }
}

/// The addresses of a list, each once.
fn addresses<'a>(list: impl IntoIterator<Item = &'a Endpoint>) -> Vec<SocketAddr> {
    let mut addresses = Vec::new();
    for Endpoint(address) in list {
        if !addresses.contains(address) {
            addresses.push(*address);
        }
    }
    addresses
}
