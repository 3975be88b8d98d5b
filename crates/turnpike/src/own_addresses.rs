//! Current list of the addresses that the host delivers to itself. Clients must not reach these
//! addresses as peers, and the server relays from some of them.
//!
//! The list fails closed. A known address is removed only if a complete reading does not contain
//! it.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use linux_net::{Clock, interface_addresses, own_prefixes};
use settings::HostAddresses;
use turn_types::{Instant, Prefix};

use crate::failure::{OrFail as _, Result};
use crate::host;

/// Interval of log lines about a lasting failure.
const COMPLAIN_EVERY: Duration = Duration::from_secs(60);

/// Maximum number of prefixes in a log line. Further prefixes are only counted.
const NAMED_MAX: usize = 8;

/// Time for which allocations on a missing address are retained. A network manager that restarts
/// restores its addresses within this time. The next check of the host after this time removes the
/// address.
const LEAVING_FOR: Duration = Duration::from_secs(60);

/// Addresses that the host delivers to itself, as last read.
#[derive(Debug)]
pub(crate) struct OwnAddresses {
    /// Known prefixes, sorted and without duplicates.
    known: Vec<Prefix>,
    bindable: Bindable,
    /// Bindable addresses that are missing, with the time of the loss.
    leaving: Vec<(IpAddr, Instant)>,
    /// True if the last reading was complete.
    is_whole: bool,
    /// True if the rules in effect refuse all known addresses.
    is_in_force: bool,
    complained: Option<Instant>,
}

impl OwnAddresses {
    /// Reads the addresses at the start, before the first rules are built.
    ///
    /// # Errors
    /// The addresses cannot be read. A server that cannot protect its host does not start.
    pub(crate) fn read() -> Result<Self> {
        let Reading { found, bindable, failed } = Reading::now();
        failed.map_or(Ok(()), Err).or_fail("cannot read which addresses are this host's own")?;
        Ok(Self { known: found, bindable, ..Self::of_nothing() })
    }

    /// Creates the list of a host without addresses.
    pub(crate) const fn of_nothing() -> Self {
        Self {
            known: Vec::new(),
            bindable: Bindable { usable: Vec::new(), routed: Vec::new() },
            leaving: Vec::new(),
            is_whole: true,
            is_in_force: true,
            complained: None,
        }
    }

    /// Returns the addresses to relay from.
    pub(crate) fn host(&self) -> HostAddresses {
        let leaving = self.leaving.iter().map(|(ip, _)| *ip).collect();
        let Bindable { usable, routed } = self.bindable.clone();
        HostAddresses::new(usable).with_routed(routed).with_leaving(leaving)
    }

    /// Returns the prefixes to refuse as peers.
    pub(crate) fn prefixes(&self) -> &[Prefix] {
        &self.known
    }

    /// Reads the addresses again, and logs the differences.
    pub(crate) fn refresh(&mut self) {
        self.take(Reading::now(), Clock::instant());
    }

    fn take(&mut self, reading: Reading, now: Instant) {
        let Reading { mut found, bindable, failed } = reading;
        self.is_whole = failed.is_none();
        if self.is_whole {
            self.take_bindable(bindable, now);
        }
        if let Some(error) = failed {
            found.extend(&self.known);
            found.sort_unstable();
            found.dedup();
            if self.complained.is_none_or(|at| now >= at + COMPLAIN_EVERY) {
                self.complained = Some(now);
                tracing::error!(
                    %error,
                    "cannot read which addresses are this host's own: those known before stay \
                     refused as peers, and new ones may be missing; it is tried again"
                );
            }
        }
        let gained = missing_from(&self.known, &found);
        let lost = missing_from(&found, &self.known);
        if gained.is_empty() && lost.is_empty() {
            return;
        }
        self.known = found;
        self.is_in_force = false;
        tracing::info!(
            gained = named(&gained),
            lost = named(&lost),
            "the addresses of this host changed: peer rules follow"
        );
    }

    fn take_bindable(&mut self, bindable: Bindable, now: Instant) {
        let is_back = |ip: &IpAddr| bindable.usable.contains(ip);
        let still = |(ip, since): &(IpAddr, Instant)| !is_back(ip) && now < *since + LEAVING_FOR;
        let before = self.leaving.len();
        self.leaving.retain(still);
        let is_over = self.leaving.len() != before;
        let gone = self.bindable.usable.iter().filter(|ip| !is_back(ip));
        self.leaving.extend(gone.map(|ip| (*ip, now)));
        if is_over || self.bindable != bindable {
            self.bindable = bindable;
            self.is_in_force = false;
        }
    }

    /// Records that the rules in effect contain the addresses.
    pub(crate) const fn put_in_force(&mut self) {
        self.is_in_force = true;
    }

    /// Returns true if new rules are needed.
    pub(crate) const fn is_waiting(&self) -> bool {
        !self.is_in_force
    }

    /// Returns true if the addresses are completely known, and the rules in effect contain them.
    pub(crate) const fn is_current(&self) -> bool {
        self.is_whole && self.is_in_force
    }
}

/// Addresses that sockets can be bound to.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Bindable {
    /// Addresses of interfaces, most suitable for a relay first.
    usable: Vec<IpAddr>,
    /// Prefixes that routes deliver to the host.
    routed: Vec<Prefix>,
}

/// Reads the current addresses of this host.
///
/// # Errors
/// The addresses cannot be read.
pub(crate) fn host_addresses() -> Result<HostAddresses> {
    Ok(OwnAddresses::read()?.host())
}

/// Result of a reading: prefixes in sorted order, and addresses to bind to. `failed` is the reason
/// why they may be incomplete.
struct Reading {
    found: Vec<Prefix>,
    bindable: Bindable,
    failed: Option<io::Error>,
}

impl Reading {
    /// Reads the routes to the host itself, and the addresses of its interfaces. Interfaces that
    /// are down have no route yet, but get a route as soon as they are up.
    fn now() -> Self {
        let mut failed = None;
        let mut found = own_prefixes().unwrap_or_else(|error| {
            failed = Some(error);
            Vec::new()
        });
        let interfaces = interface_addresses().unwrap_or_else(|error| {
            failed = Some(error);
            Vec::new()
        });
        let is_unusable = |prefix: &Prefix| {
            let mut unusable = interfaces.iter().filter(|one| !one.state.is_usable());
            unusable.any(|one| Prefix::host(one.address) == *prefix)
        };
        let routed = found.iter().filter(|prefix| !is_unusable(prefix)).copied().collect();
        found.extend(interfaces.iter().map(|interface| Prefix::host(interface.address)));
        found.sort_unstable();
        found.dedup();
        let bindable = Bindable { usable: host::usable(interfaces), routed };
        Self { found, bindable, failed }
    }
}

/// Returns the prefixes of `there` that are missing from `here`. Both are sorted.
fn missing_from(here: &[Prefix], there: &[Prefix]) -> Vec<Prefix> {
    there.iter().copied().filter(|prefix| here.binary_search(prefix).is_err()).collect()
}

/// Formats prefixes for the log.
fn named(prefixes: &[Prefix]) -> String {
    let mut names: Vec<String> = prefixes.iter().take(NAMED_MAX).map(ToString::to_string).collect();
    if prefixes.len() > NAMED_MAX {
        names.push(format!("{} more", prefixes.len() - NAMED_MAX));
    }
    names.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefixes(texts: &[&str]) -> Vec<Prefix> {
        let mut prefixes: Vec<Prefix> = texts.iter().map(|text| text.parse().unwrap()).collect();
        prefixes.sort_unstable();
        prefixes
    }

    fn own(known: &[&str]) -> OwnAddresses {
        let known = prefixes(known);
        OwnAddresses { known, ..OwnAddresses::of_nothing() }
    }

    fn whole(found: &[&str]) -> Reading {
        let bindable = OwnAddresses::of_nothing().bindable;
        Reading { found: prefixes(found), bindable, failed: None }
    }

    fn failed(found: &[&str]) -> Reading {
        Reading { failed: Some(io::Error::other("no memory")), ..whole(found) }
    }

    #[test]
    fn what_changed_waits_to_be_put_in_force() {
        let mut own = own(&["192.0.2.1/32"]);
        own.take(whole(&["192.0.2.1/32"]), Instant::ZERO);
        assert!(!own.is_waiting() && own.is_current());
        own.take(whole(&["192.0.2.1/32", "10.9.0.0/24"]), Instant::ZERO);
        assert!(own.is_waiting() && !own.is_current());
        // Nothing is new since, but the change still waits.
        own.take(whole(&["192.0.2.1/32", "10.9.0.0/24"]), Instant::ZERO);
        assert!(own.is_waiting());
        own.put_in_force();
        assert!(own.is_current());
        own.take(whole(&["10.9.0.0/24"]), Instant::ZERO);
        assert_eq!(own.prefixes(), prefixes(&["10.9.0.0/24"]));
    }

    #[test]
    fn what_cannot_be_read_again_stays_refused() {
        let mut own = own(&["10.9.0.0/24", "192.0.2.1/32"]);
        own.take(failed(&[]), Instant::ZERO);
        assert_eq!(own.prefixes(), prefixes(&["10.9.0.0/24", "192.0.2.1/32"]));
        assert!(!own.is_current(), "it is to be tried again");
        // Addresses of an incomplete reading are added.
        own.take(failed(&["192.0.2.2/32"]), Instant::ZERO);
        let all = prefixes(&["10.9.0.0/24", "192.0.2.1/32", "192.0.2.2/32"]);
        assert_eq!(own.prefixes(), all);
        own.take(whole(&["192.0.2.2/32"]), Instant::ZERO);
        assert_eq!(own.prefixes(), prefixes(&["192.0.2.2/32"]));
    }

    #[test]
    fn it_complains_once_a_minute() {
        let mut own = own(&[]);
        for (after, complained) in [(0, 0), (59, 0), (60, 60), (61, 60)] {
            let at = |seconds| Instant::ZERO + Duration::from_secs(seconds);
            own.take(failed(&[]), at(after));
            assert_eq!(own.complained, Some(at(complained)), "{after} s");
        }
    }

    #[test]
    fn the_loopback_is_one_of_ours() {
        let own = OwnAddresses::read().unwrap();
        for ip in ["127.0.0.1", "127.1.2.3"] {
            assert!(own.prefixes().iter().any(|prefix| prefix.contains(ip.parse().unwrap())));
        }
    }

    #[test]
    fn an_address_that_is_gone_is_leaving_for_a_minute() {
        let ip = |text: &str| -> IpAddr { text.parse().unwrap() };
        let at = |seconds| Instant::ZERO + Duration::from_secs(seconds);
        let reading = |usable: &[&str]| {
            let usable = usable.iter().map(|text| ip(text)).collect();
            Reading { bindable: Bindable { usable, routed: Vec::new() }, ..whole(&[]) }
        };
        let mut own = own(&[]);
        let mut take = |usable: &[&str], seconds| {
            own.take(reading(usable), at(seconds));
            let is_news = own.is_waiting();
            own.put_in_force();
            let host = own.host();
            (is_news, host.has(ip("10.0.0.5")), host.had(ip("10.0.0.5")))
        };
        assert_eq!(take(&["10.0.0.5"], 0), (true, true, false));
        assert_eq!(take(&["10.0.0.6"], 10), (true, false, true));
        assert_eq!(take(&["10.0.0.6"], 69), (false, false, true));
        assert_eq!(take(&["10.0.0.6", "10.0.0.5"], 69), (true, true, false), "it is back");
        assert_eq!(take(&["10.0.0.6"], 70), (true, false, true));
        assert_eq!(take(&["10.0.0.6"], 130), (true, false, false));
    }

    #[test]
    fn a_line_of_the_log_stays_short() {
        let many: Vec<Prefix> =
            (0..=9).map(|last| format!("10.0.0.{last}").parse().unwrap()).collect();
        assert!(named(&many).ends_with("10.0.0.7/32 2 more"), "{}", named(&many));
        assert_eq!(named(&[]), "");
    }
}
