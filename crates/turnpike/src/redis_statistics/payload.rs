//! Keys, channels and messages of statistics in the form of coturn.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::time::Duration;

use control::SessionEvent;
use turn_proto::{AllocationRecord, Traffic};
use turn_types::{AllocationId, Instant, Transport};
use user_db::Publication;

/// Maximum length of a message in bytes, as in coturn.
const MESSAGE_BYTES_MAX: usize = 512;

/// Time for which a key remains after the lifetime of the allocation. A Refresh may be under way.
const STAYS: Duration = Duration::from_secs(60);

/// Maximum number of sessions whose last report is stored, more than a server has. For further
/// sessions only totals are reported.
const REPORTS_MAX: usize = 200_000;

/// Minimum interval of searches for sessions whose end was lost. Searches happen only while
/// [`REPORTS_MAX`] sessions are stored.
const FORGET_EVERY: Duration = Duration::from_secs(60);

/// Last report of each session with traffic.
#[derive(Debug, Default)]
pub(super) struct Payloads {
    reported: HashMap<AllocationId, Reported>,
    forgot: Option<Instant>,
    /// Number of traffic reports that were dropped since the last [`Self::take_left_out`].
    left_out: u64,
}

#[derive(Clone, Copy, Debug)]
struct Reported {
    traffic: Traffic,
    /// Expiry of the session. If the session is still stored later, its end event was lost.
    expires: Instant,
}

impl Payloads {
    /// Converts an event to Redis commands, in coturn's order.
    pub(super) fn of(&mut self, event: &SessionEvent) -> Vec<Publication> {
        match event {
            SessionEvent::Created(record) => {
                vec![status(record, "new", record.expires.saturating_since(record.created))]
            }
            SessionEvent::Refreshed { record, at } => {
                if let Some(last) = self.reported.get_mut(&record.id) {
                    last.expires = record.expires;
                }
                vec![status(record, "refreshed", left(record, *at))]
            }
            SessionEvent::Interim { record, at } => self.traffic(record, *at),
            SessionEvent::Survivors(_) => Vec::new(),
            SessionEvent::Ended(record) => {
                let at = record.end.map_or(record.expires, |(_, at)| at);
                let mut all = self.traffic(record, at);
                self.reported.remove(&record.id);
                let message = "deleted".to_owned();
                all.push(Publication::Delete { key: key(record, "status"), message });
                all.extend(volumes(record, "total_traffic", &record.traffic));
                all
            }
        }
    }

    /// Returns the traffic since the last report, or nothing without traffic.
    fn traffic(&mut self, record: &AllocationRecord, at: Instant) -> Vec<Publication> {
        let is_known = self.reported.contains_key(&record.id);
        if !is_known && self.reported.len() >= REPORTS_MAX {
            self.forget_expired(at);
            if self.reported.len() >= REPORTS_MAX {
                self.left_out += 1;
                return Vec::new();
            }
        }
        let report = Reported { traffic: record.traffic, expires: record.expires };
        let last = self.reported.insert(record.id, report);
        let last = last.map(|last| last.traffic).unwrap_or_default();
        let now = &record.traffic;
        let since = Traffic {
            to_peer_packets: now.to_peer_packets.saturating_sub(last.to_peer_packets),
            to_peer_bytes: now.to_peer_bytes.saturating_sub(last.to_peer_bytes),
            to_client_packets: now.to_client_packets.saturating_sub(last.to_client_packets),
            to_client_bytes: now.to_client_bytes.saturating_sub(last.to_client_bytes),
            dropped_packets: 0,
        };
        if since == Traffic::default() {
            return Vec::new();
        }
        volumes(record, "traffic", &since).to_vec()
    }

    /// Returns the number of dropped reports, and resets the number.
    pub(super) fn take_left_out(&mut self) -> u64 {
        std::mem::take(&mut self.left_out)
    }

    /// Removes sessions whose end was lost, at most once per [`FORGET_EVERY`]. A search takes
    /// milliseconds.
    fn forget_expired(&mut self, now: Instant) {
        if self.forgot.is_some_and(|at| now.saturating_since(at) < FORGET_EVERY) {
            return;
        }
        self.forgot = Some(now);
        self.reported.retain(|_, last| now <= last.expires + STAYS);
    }
}

fn left(record: &AllocationRecord, at: Instant) -> Duration {
    record.expires.saturating_since(at)
}

fn status(record: &AllocationRecord, word: &str, lifetime: Duration) -> Publication {
    let five_tuple = &record.five_tuple;
    let (kind, ssl) = match five_tuple.transport {
        Transport::Udp => ("UDP", "NONE"),
        Transport::Tcp => ("TCP", "NONE"),
        Transport::Tls => ("TLS/TCP", "TLS"),
        Transport::Dtls => ("DTLS", "DTLS"),
    };
    let cipher = if ssl == "NONE" { "NONE" } else { "unknown" };
    let seconds = lifetime.as_secs() + u64::from(lifetime.subsec_nanos() > 0);
    let value = format!(
        "{word} lifetime={seconds}, type={kind}, local={}, remote={}, ssl={ssl}, cipher={cipher}",
        five_tuple.server, five_tuple.client,
    );
    Publication::Set { key: key(record, "status"), value, expires: lifetime + STAYS }
}

/// Returns the traffic of both sides. `rcv` is traffic from the client, or from the peers.
fn volumes(record: &AllocationRecord, name: &str, traffic: &Traffic) -> [Publication; 2] {
    let of = |suffix: &str, [rcvp, rcvb, sentp, sentb]: [u64; 4]| Publication::Publish {
        channel: key(record, &format!("{name}{suffix}")),
        message: format!("rcvp={rcvp}, rcvb={rcvb}, sentp={sentp}, sentb={sentb}"),
    };
    let Traffic { to_peer_packets, to_peer_bytes, to_client_packets, to_client_bytes, .. } =
        *traffic;
    [
        of("", [to_peer_packets, to_peer_bytes, to_client_packets, to_client_bytes]),
        of("/peer", [to_client_packets, to_client_bytes, to_peer_packets, to_peer_bytes]),
    ]
}

/// Returns the key of an allocation. A slash in a name is replaced, since it would change the key.
fn key(record: &AllocationRecord, name: &str) -> String {
    let mut key = String::from("turn/");
    if !record.realm.is_empty() {
        let _ = write!(key, "realm/{}/", part(&record.realm));
    }
    let (worker, number) = (u64::from(record.id.worker().0), record.id.0 & 0xFFFF_FFFF_FFFF);
    // As in coturn, the first of the 18 digits are those of the thread.
    let _ = write!(
        key,
        "user/{}/allocation/{:018}/{name}",
        part(&record.user),
        worker * 1_000_000_000_000_000 + number
    );
    key
}

/// Cleans a name for a key, and limits the length to half of a message's maximum length.
fn part(name: &str) -> String {
    let is_plain = |c: char| if c == '/' || c.is_control() { '_' } else { c };
    name.chars().map(is_plain).take(MESSAGE_BYTES_MAX / 2).collect()
}

#[cfg(test)]
mod tests {
    use turn_proto::EndReason;

    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(seconds)
    }

    fn record(packets: u64) -> Box<AllocationRecord> {
        let traffic = Traffic {
            to_peer_packets: packets,
            to_peer_bytes: 100 * packets,
            to_client_packets: 2 * packets,
            to_client_bytes: 200 * packets,
            dropped_packets: 1,
        };
        let user = "1900000000:a/b\nc".into();
        let (created, expires) = (at(10), at(610));
        Box::new(AllocationRecord { traffic, user, created, expires, ..AllocationRecord::sample() })
    }

    fn shown(publications: &[Publication]) -> Vec<String> {
        let prefix = "turn/realm/example.org/user/1900000000:a_b_c/allocation/";
        let name = |key: &str| {
            let rest = key.strip_prefix(prefix).unwrap();
            let (id, name) = rest.split_once('/').unwrap();
            assert!(id.len() == 18 && id.bytes().all(|byte| byte.is_ascii_digit()), "{id}");
            name.to_owned()
        };
        let shown = |one: &Publication| match one {
            Publication::Set { key, value, expires } => {
                format!("set {} {value} for {}", name(key), expires.as_secs())
            }
            Publication::Delete { key, message } => format!("del {} {message}", name(key)),
            Publication::Publish { channel, message } => format!("pub {} {message}", name(channel)),
        };
        publications.iter().map(shown).collect()
    }

    #[test]
    fn sessions_whose_end_was_lost_make_room() {
        let mut payloads = Payloads::default();
        let interim = |id: u64, expires: Instant, at: Instant| {
            let record = Box::new(AllocationRecord { id: AllocationId(id), expires, ..*record(1) });
            SessionEvent::Interim { record, at }
        };
        for id in 0..REPORTS_MAX as u64 {
            let expires = if id < 10 { at(100) } else { at(2000) };
            assert_eq!(payloads.of(&interim(id, expires, at(20))).len(), 2);
        }
        // One of the ten sessions was refreshed.
        let mut refreshed = record(1);
        (refreshed.id, refreshed.expires) = (AllocationId(3), at(2000));
        payloads.of(&SessionEvent::Refreshed { record: refreshed, at: at(90) });
        let newcomer = |id| REPORTS_MAX as u64 + id;
        assert_eq!(payloads.of(&interim(newcomer(0), at(2000), at(90))).len(), 0, "no room");
        assert_eq!((payloads.take_left_out(), payloads.take_left_out()), (1, 0));
        assert_eq!(payloads.of(&interim(newcomer(0), at(2000), at(200))).len(), 2, "room for nine");
        assert_eq!(payloads.reported.len(), REPORTS_MAX - 8);
        assert!(payloads.reported.contains_key(&AllocationId(3)));
    }

    #[test]
    fn a_session_from_its_beginning_to_its_end() {
        let mut payloads = Payloads::default();
        let new = shown(&payloads.of(&SessionEvent::Created(record(0))));
        assert_eq!(new.len(), 1);
        assert!(new[0].starts_with("set status new lifetime=600, type=UDP, local="), "{new:?}");
        assert!(new[0].ends_with(", ssl=NONE, cipher=NONE for 660"), "{new:?}");
        let refreshed = SessionEvent::Refreshed { record: record(0), at: at(310) };
        let refreshed = shown(&payloads.of(&refreshed));
        assert!(refreshed[0].starts_with("set status refreshed lifetime=300, "), "{refreshed:?}");

        let interim = |packets| SessionEvent::Interim { record: record(packets), at: at(320) };
        assert_eq!(shown(&payloads.of(&interim(0))), [""; 0], "nothing was relayed");
        let since = shown(&payloads.of(&interim(10)));
        assert_eq!(
            since,
            [
                "pub traffic rcvp=10, rcvb=1000, sentp=20, sentb=2000",
                "pub traffic/peer rcvp=20, rcvb=2000, sentp=10, sentb=1000",
            ]
        );
        let mut ended = record(15);
        ended.end = Some((EndReason::Expired, at(400)));
        assert_eq!(
            shown(&payloads.of(&SessionEvent::Ended(ended))),
            [
                "pub traffic rcvp=5, rcvb=500, sentp=10, sentb=1000",
                "pub traffic/peer rcvp=10, rcvb=1000, sentp=5, sentb=500",
                "del status deleted",
                "pub total_traffic rcvp=15, rcvb=1500, sentp=30, sentb=3000",
                "pub total_traffic/peer rcvp=30, rcvb=3000, sentp=15, sentb=1500",
            ]
        );
        assert!(payloads.reported.is_empty());
    }
}
