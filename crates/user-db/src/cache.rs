//! Valid answers of a store. Bounded; knows no clock.

use std::collections::HashMap;
use std::hash::Hash;
use std::mem;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::limits::{CACHE_KNOWN_MAX, CACHE_UNKNOWN_MAX};
use crate::store::{UserQuery, UserRecord};

/// Key of a look-up.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Question {
    pub(crate) realm: Arc<str>,
    pub(crate) user: UserQuery,
}

/// Users that exist, and names without a user, apart from each other.
#[derive(Debug)]
pub(crate) struct Cache {
    known: Generations<Question, UserRecord>,
    unknown: Generations<Question, ()>,
    known_for: Duration,
    unknown_for: Duration,
}

impl Cache {
    pub(crate) fn new(known_for: Duration, unknown_for: Duration) -> Self {
        Self {
            known: Generations::new(CACHE_KNOWN_MAX),
            unknown: Generations::new(CACHE_UNKNOWN_MAX),
            known_for,
            unknown_for,
        }
    }

    /// `None`: the store has to look. `Some(None)`: there is no such user.
    pub(crate) fn find(&mut self, now: Instant, question: &Question) -> Option<Option<UserRecord>> {
        if let Some(user) = self.known.find(now, question) {
            return Some(Some(user));
        }
        self.unknown.find(now, question).map(|()| None)
    }

    pub(crate) fn keep(&mut self, now: Instant, question: Question, answer: Option<&UserRecord>) {
        match answer {
            Some(user) => self.known.keep(question, user.clone(), now + self.known_for),
            None => self.unknown.keep(question, (), now + self.unknown_for),
        }
    }

    pub(crate) fn clear(&mut self) {
        self.known.clear();
        self.unknown.clear();
    }
}

/// A bounded map that evicts entries that were not used since the map last filled up by half: two maps, of
/// which the younger one is filled; when it is full it becomes the older one, and the older one is dropped.
/// Eviction searches and sorts nothing.
#[derive(Debug)]
struct Generations<K, V> {
    young: HashMap<K, Entry<V>>,
    old: HashMap<K, Entry<V>>,
    half: usize,
}

#[derive(Debug)]
struct Entry<V> {
    value: V,
    until: Instant,
}

impl<K: Hash + Eq + Clone, V: Clone> Generations<K, V> {
    fn new(max: usize) -> Self {
        Self { young: HashMap::new(), old: HashMap::new(), half: (max / 2).max(1) }
    }

    fn find(&mut self, now: Instant, key: &K) -> Option<V> {
        if let Some(entry) = self.young.get(key) {
            return (now < entry.until).then(|| entry.value.clone());
        }
        let entry = self.old.remove(key).filter(|entry| now < entry.until)?;
        let value = entry.value.clone();
        self.keep(key.clone(), entry.value, entry.until);
        Some(value)
    }

    fn keep(&mut self, key: K, value: V, until: Instant) {
        if self.young.len() >= self.half && !self.young.contains_key(&key) {
            self.old = mem::take(&mut self.young);
        }
        self.young.insert(key, Entry { value, until });
    }

    fn clear(&mut self) {
        self.young.clear();
        self.old.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_good_until_its_time_is_over() {
        let begin = Instant::now(); // any instant: only differences count
        let mut cache = Cache::new(Duration::from_secs(60), Duration::from_secs(10));
        let question = Question { realm: "r".into(), user: UserQuery::Name("nobody".into()) };
        assert_eq!(cache.find(begin, &question), None);
        cache.keep(begin, question.clone(), None);
        assert_eq!(cache.find(begin + Duration::from_millis(9_999), &question), Some(None));
        assert_eq!(cache.find(begin + Duration::from_secs(10), &question), None);
        cache.keep(begin, question.clone(), None);
        cache.clear();
        assert_eq!(cache.find(begin, &question), None);
    }

    #[test]
    fn it_never_holds_more_than_its_bound_and_keeps_what_is_asked_for() {
        let now = Instant::now();
        let until = now + Duration::from_secs(1);
        let mut cache = Generations::new(100);
        cache.keep(0, "asked for all the time", until);
        for key in 1..10_000 {
            cache.keep(key, "asked for once", until);
            assert!(cache.find(now, &0).is_some(), "after {key} others");
            assert!(cache.young.len() + cache.old.len() <= 100);
        }
        assert_eq!(cache.find(now, &1), None);
        assert!(cache.find(now, &9_999).is_some());
    }

    #[test]
    fn names_without_a_user_do_not_evict_users() {
        let now = Instant::now();
        let mut cache = Cache::new(Duration::from_secs(60), Duration::from_secs(60));
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
        assert_eq!(cache.find(now, &question("alice".to_owned())), Some(Some(user)));
    }
}
