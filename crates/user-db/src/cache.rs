//! Bounded cache of a store's answers. The caller provides the time.

use std::collections::HashMap;
use std::hash::Hash;
use std::mem;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::limits::{CACHE_KNOWN_MAX, CACHE_UNKNOWN_MAX};
use crate::store::{UserQuery, UserRecord};

/// Key of a cached look-up.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Question {
    pub(crate) realm: Arc<str>,
    pub(crate) user: UserQuery,
}

/// Cache of users that exist, and separately of names without a user.
#[derive(Debug)]
pub(crate) struct Cache {
    known: Generations<Question, UserRecord>,
    unknown: Generations<Question, ()>,
    times: Times,
}

/// Validity times of cached answers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    /// Validity of a user.
    pub(crate) known_for: Duration,
    /// Validity of a name without a user.
    pub(crate) unknown_for: Duration,
}

impl Cache {
    pub(crate) fn new(times: Times) -> Self {
        Self {
            known: Generations::new(CACHE_KNOWN_MAX),
            unknown: Generations::new(CACHE_UNKNOWN_MAX),
            times,
        }
    }

    /// Sets the validity times, also for existing answers.
    pub(crate) fn set_times(&mut self, times: Times) {
        self.times = times;
    }

    /// Returns a valid answer. `None`: the store must be queried. `Some(None)`: no such user
    /// exists.
    pub(crate) fn find(&mut self, now: Instant, question: &Question) -> Option<Option<UserRecord>> {
        if let Some(user) = self.known.find(now, question, self.times.known_for) {
            return Some(Some(user));
        }
        self.unknown.find(now, question, self.times.unknown_for).map(|()| None)
    }

    /// Returns a user whom the store has confirmed within the last `within`, for use while the
    /// store fails.
    pub(crate) fn last_known(
        &mut self,
        now: Instant,
        question: &Question,
        within: Duration,
    ) -> Option<UserRecord> {
        self.known.last(now, question, within)
    }

    pub(crate) fn keep(&mut self, now: Instant, question: Question, answer: Option<&UserRecord>) {
        match answer {
            Some(user) => {
                self.unknown.forget(&question);
                self.known.keep(question, user.clone(), now);
            }
            None => {
                self.known.forget(&question);
                self.unknown.keep(question, (), now);
            }
        }
    }

    /// Returns the last record of a user, of any age.
    pub(crate) fn kept(&self, question: &Question) -> Option<&UserRecord> {
        self.known.peek(question)
    }

    /// Returns true if the last answer, of any age, was that no such user exists.
    pub(crate) fn is_unknown(&self, question: &Question) -> bool {
        self.unknown.peek(question).is_some()
    }

    /// Removes a user from valid and last known answers.
    pub(crate) fn forget(&mut self, question: &Question) {
        self.known.forget(question);
        self.unknown.forget(question);
    }

    /// Invalidates all earlier answers, because users have changed. The answers remain available as
    /// the last known ones.
    pub(crate) fn outdate(&mut self) {
        self.known.era += 1;
        self.unknown.era += 1;
    }
}

/// Bounded map that evicts entries not used since the map last became half full.
///
/// The map consists of two maps, and new entries are added to the younger map. When the younger map
/// is full, it replaces the older map, and the older entries are dropped. Eviction therefore needs
/// no search or sorting.
#[derive(Debug)]
struct Generations<K, V> {
    young: HashMap<K, Entry<V>>,
    old: HashMap<K, Entry<V>>,
    half: usize,
    /// Number of invalidations of all entries.
    era: u64,
}

#[derive(Debug)]
struct Entry<V> {
    value: V,
    kept: Instant,
    era: u64,
}

impl<V> Entry<V> {
    fn is_good(&self, now: Instant, good_for: Duration) -> bool {
        now.saturating_duration_since(self.kept) < good_for
    }
}

impl<K: Hash + Eq + Clone, V: Clone> Generations<K, V> {
    fn new(max: usize) -> Self {
        Self { young: HashMap::new(), old: HashMap::new(), half: (max / 2).max(1), era: 0 }
    }

    fn find(&mut self, now: Instant, key: &K, good_for: Duration) -> Option<V> {
        let era = self.era;
        let entry = self.used(key)?;
        (entry.era == era && entry.is_good(now, good_for)).then(|| entry.value.clone())
    }

    /// Returns the last value, even if invalidated.
    fn last(&mut self, now: Instant, key: &K, good_for: Duration) -> Option<V> {
        let entry = self.used(key)?;
        entry.is_good(now, good_for).then(|| entry.value.clone())
    }

    /// Returns a requested entry, and retains it: an entry that is too old may be the last known
    /// answer.
    fn used(&mut self, key: &K) -> Option<&Entry<V>> {
        if let Some(entry) = self.old.remove(key) {
            self.put(key.clone(), entry);
        }
        self.young.get(key)
    }

    fn peek(&self, key: &K) -> Option<&V> {
        self.young.get(key).or_else(|| self.old.get(key)).map(|entry| &entry.value)
    }

    fn keep(&mut self, key: K, value: V, kept: Instant) {
        // An older value would replace this one at its next use.
        self.old.remove(&key);
        self.put(key, Entry { value, kept, era: self.era });
    }

    fn put(&mut self, key: K, entry: Entry<V>) {
        if self.young.len() >= self.half && !self.young.contains_key(&key) {
            self.old = mem::take(&mut self.young);
        }
        self.young.insert(key, entry);
    }

    fn forget(&mut self, key: &K) {
        self.young.remove(key);
        self.old.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_good_until_its_time_is_over() {
        let begin = Instant::now(); // any instant: only differences matter
        let times =
            Times { known_for: Duration::from_secs(60), unknown_for: Duration::from_secs(10) };
        let mut cache = Cache::new(times);
        let question = Question { realm: "r".into(), user: UserQuery::Name("nobody".into()) };
        assert_eq!(cache.find(begin, &question), None);
        cache.keep(begin, question.clone(), None);
        assert_eq!(cache.find(begin + Duration::from_millis(9_999), &question), Some(None));
        assert_eq!(cache.find(begin + Duration::from_secs(10), &question), None);
        cache.keep(begin, question.clone(), None);
        cache.outdate();
        assert_eq!(cache.find(begin, &question), None);
        cache.keep(begin, question.clone(), None);
        assert_eq!(cache.find(begin, &question), Some(None));
    }

    #[test]
    fn it_never_holds_more_than_its_bound_and_keeps_what_is_asked_for() {
        let now = Instant::now();
        let good_for = Duration::from_secs(1);
        let mut cache = Generations::new(100);
        cache.keep(0, "asked for all the time", now);
        for key in 1..10_000 {
            cache.keep(key, "asked for once", now);
            assert!(cache.find(now, &0, good_for).is_some(), "after {key} others");
            assert!(cache.young.len() + cache.old.len() <= 100);
        }
        assert_eq!(cache.find(now, &1, good_for), None);
        assert!(cache.find(now, &9_999, good_for).is_some());
    }

    #[test]
    fn a_value_replaces_an_older_one_of_the_older_half() {
        let now = Instant::now();
        let mut cache = Generations::new(4);
        for (key, value) in [(0, "old"), (1, ""), (2, ""), (0, "new")] {
            cache.keep(key, value, now);
        }
        assert_eq!(cache.peek(&0), Some(&"new"));
        assert_eq!(cache.find(now, &0, Duration::from_secs(1)), Some("new"));
    }

    #[test]
    fn names_without_a_user_do_not_evict_users() {
        let now = Instant::now();
        let minute = Duration::from_secs(60);
        let mut cache = Cache::new(Times { known_for: minute, unknown_for: minute });
        let question =
            |name: String| Question { realm: "r".into(), user: UserQuery::Name(name.into()) };
        let user = UserRecord {
            name: "alice".into(),
            keys: crate::store::UserKeys { md5: turn_types::Secret::new([1; 16]), sha256: None },
            allocations_max: None,
        };
        cache.keep(now, question("alice".to_owned()), Some(&user));
        for number in 0..2 * CACHE_UNKNOWN_MAX + CACHE_KNOWN_MAX {
            cache.keep(now, question(number.to_string()), None);
        }
        assert_eq!(cache.find(now, &question("alice".to_owned())), Some(Some(user.clone())));

        let later = now + minute;
        assert_eq!(cache.find(later, &question("alice".to_owned())), None);
        let hour = 60 * minute;
        let alice = question("alice".to_owned());
        assert_eq!(
            cache.last_known(later, &alice, hour),
            Some(user.clone()),
            "while the store fails"
        );
        assert_eq!(cache.last_known(now + hour, &alice, hour), None);
        cache.outdate();
        assert_eq!(cache.last_known(later, &alice, hour), Some(user), "others may have changed");
        cache.keep(later, alice.clone(), None);
        assert_eq!(cache.last_known(later, &alice, hour), None, "the store says there is none");
    }
}
