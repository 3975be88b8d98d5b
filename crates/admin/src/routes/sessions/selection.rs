//! The page that a query selects. Sessions are compared where they are, and no more of them are
//! remembered than the page has.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use control::SessionFilter;
use tokio::task::yield_now;
use turn_proto::UserName;

use super::Which;
use super::order::{Cursor, Order};
use crate::holder::Holder;
use crate::limits::{
    FILTER_BYTES_MAX, SELECT_PAGE, SESSIONS_DEFAULT, SESSIONS_MAX, SESSIONS_WITH_PEERS_MAX,
};
use crate::problem::Problem;
use crate::roll::Gathered;
use crate::types::SessionRates;

/// A query whose parameters are valid.
#[derive(Debug)]
pub(super) struct Listing {
    which: Which,
    of_user: SessionFilter,
    /// Lower-case text that a name, an address or the id has.
    part: Option<String>,
    order: Order,
    after: Option<Cursor>,
    limit: usize,
}

/// The first sessions of the selected ones.
#[derive(Debug)]
pub(super) struct SelectedPage<'a> {
    pub(super) rows: Vec<Row<'a>>,
    /// Number of all that the query selects.
    pub(super) total: u64,
    pub(super) more: bool,
}

/// A session at its place.
#[derive(Debug)]
pub(super) struct Row<'a> {
    pub(super) place: Cursor,
    pub(super) session: &'a control::Session,
    pub(super) rates: Option<SessionRates>,
}

impl Ord for Row<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.place.cmp(&other.place)
    }
}

impl PartialOrd for Row<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Row<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.place == other.place
    }
}

impl Eq for Row<'_> {}

impl Listing {
    /// Reads the parameters of a caller.
    pub(super) fn parse(mut which: Which, caller: &Holder) -> Result<Self, Problem> {
        which.realm = caller.realm_of(which.realm)?;
        let limit = which.limit.unwrap_or(SESSIONS_DEFAULT);
        if !(1..=SESSIONS_MAX).contains(&limit) {
            let error = format!("limit is {limit}, and must be from 1 to {SESSIONS_MAX}");
            return Err(Problem::bad_request(error, "ask for the next page with after"));
        }
        let limit = if which.peers { limit.min(SESSIONS_WITH_PEERS_MAX) } else { limit };
        let order = Order::parse(which.sort.as_deref().unwrap_or_default())?;
        let after = which.after.as_deref().map(|after| order.cursor(after)).transpose()?;
        if which.filter.as_ref().is_some_and(|filter| filter.len() > FILTER_BYTES_MAX) {
            let error = format!("filter has more than {FILTER_BYTES_MAX} bytes");
            return Err(Problem::bad_request(error, "write a part of a name or an address"));
        }
        // A part of a name has the form of a name.
        let form = |name: &String| UserName::form_of(name).into_owned();
        let of_user =
            SessionFilter { user: which.user.as_ref().map(form), ..SessionFilter::default() };
        let part = which.filter.as_ref().filter(|filter| !filter.is_empty());
        let part = part.map(|part| form(part).to_lowercase());
        Ok(Self { which, of_user, part, order, after, limit })
    }

    /// The sessions of the named user.
    pub(super) const fn of_user(&self) -> &SessionFilter {
        &self.of_user
    }

    /// Returns whether the answer or its order has rates.
    pub(super) const fn has_rates(&self) -> bool {
        self.which.rates || self.order.is_by_rate()
    }

    /// Selects the page. Other requests have their turn in between: all of them share a thread.
    pub(super) async fn page<'a>(&self, gathered: &'a Gathered) -> SelectedPage<'a> {
        // The last row of the page is on top: an earlier row replaces it.
        let mut first: BinaryHeap<Row<'a>> = BinaryHeap::new();
        let mut total = 0;
        for (index, session) in gathered.sessions(self.which.realm.as_deref()).enumerate() {
            if index % SELECT_PAGE == SELECT_PAGE - 1 {
                yield_now().await;
            }
            if !self.selects(session) {
                continue;
            }
            total += 1;
            let rates = self.has_rates().then(|| gathered.rates(session.record.id)).flatten();
            let place = self.order.place(session, rates.as_ref());
            if self.after.as_ref().is_some_and(|after| place <= *after) {
                continue;
            }
            // One more than asked for tells whether there are more.
            if first.len() > self.limit {
                if first.peek().is_some_and(|last| place >= last.place) {
                    continue;
                }
                first.pop();
            }
            first.push(Row { place, session, rates });
        }
        let mut rows = first.into_sorted_vec();
        let more = rows.len() > self.limit;
        rows.truncate(self.limit);
        SelectedPage { rows, total, more }
    }

    /// Returns whether the query selects a session of its realm.
    fn selects(&self, session: &control::Session) -> bool {
        let record = &session.record;
        if !self.of_user.takes(record)
            || self.which.client.is_some_and(|ip| record.five_tuple.client.ip() != ip)
        {
            return false;
        }
        let Some(part) = &self.part else { return true };
        let has = |text: String| text.to_lowercase().contains(part);
        has(record.user.to_string())
            || record.is_by_token && has(record.latest_account().to_owned())
            || has(record.id.to_string())
            || has(record.five_tuple.client.to_string())
            || has(record.five_tuple.transport.label().to_owned())
            || record.relayed.iter().flatten().any(|relayed| has(relayed.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use control::{SessionOffload, WhyNot};
    use turn_proto::AllocationRecord;
    use turn_types::{AllocationId, WorkerId};

    use super::*;
    use crate::role::Role;

    fn session(number: u64, record: AllocationRecord) -> control::Session {
        let record = AllocationRecord { id: AllocationId::new(WorkerId(0), number), ..record };
        control::Session { record, offload: SessionOffload::Sockets(WhyNot::NoChannel) }
    }

    fn listing(which: Which) -> Listing {
        let name = "page".to_owned();
        let caller = Holder { name, role: Role::Read, realm: None, signed: None };
        Listing::parse(which, &caller).unwrap()
    }

    fn numbers(page: &SelectedPage<'_>) -> Vec<u64> {
        let number = |row: &Row<'_>| u64::from_str_radix(&row.session.record.id.to_string(), 16);
        page.rows.iter().map(|row| number(row).unwrap()).collect()
    }

    #[tokio::test]
    async fn a_filter_finds_sessions_of_tokens_by_their_account() {
        let of = |is_by_token| AllocationRecord {
            is_by_token,
            user: "key-1".into(),
            account: "Carol".into(),
            ..AllocationRecord::sample()
        };
        let other = AllocationRecord { realm: "b.example".into(), ..of(true) };
        let gathered = Gathered::fresh(vec![
            session(1, of(false)),
            session(2, of(true)),
            session(3, AllocationRecord::sample()),
            session(4, other),
        ]);
        let which = |filter: &str| Which { filter: Some(filter.to_owned()), ..Which::default() };
        for (which, found) in [
            (which("cAROl"), vec![2, 4]),
            (which("KEY-1"), vec![1, 2, 4]),
            (which("192.0.2.9"), vec![1, 2, 3, 4]),
            (which("zzz"), vec![]),
            (Which { realm: Some("b.example".to_owned()), ..which("carol") }, vec![4]),
            (Which { user: Some("Carol".to_owned()), ..Which::default() }, vec![1, 2, 4]),
            (Which { realm: Some("c.example".to_owned()), ..Which::default() }, vec![]),
        ] {
            let listing = listing(which);
            let page = listing.page(&gathered).await;
            assert_eq!(numbers(&page), found, "{listing:?}");
            assert_eq!(page.total, found.len() as u64);
        }
    }

    #[tokio::test]
    async fn pages_follow_each_other() {
        let count = SELECT_PAGE as u64 + 5;
        let sessions = (1..=count).map(|number| session(number, AllocationRecord::sample()));
        let gathered = Gathered::fresh(sessions.collect());
        for sort in ["age", "-age", "user", "traffic"] {
            let (mut after, mut seen) = (None, Vec::new());
            loop {
                let sort = Some(sort.to_owned());
                let listing = listing(Which { limit: Some(60), sort, after, ..Which::default() });
                let page = listing.page(&gathered).await;
                assert_eq!(page.total, count);
                seen.extend(numbers(&page));
                after = page.rows.last().map(|row| row.place.to_string());
                if !page.more {
                    break;
                }
            }
            assert!(seen.iter().copied().eq(1..=count), "{sort}: {seen:?}");
        }
    }
}
