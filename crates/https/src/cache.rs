//! Answers that are kept for a while.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// Answers by what was asked, each until its time is over. No more than so many.
#[derive(Debug)]
pub(crate) struct Cache<K, V> {
    most: usize,
    entries: Mutex<BTreeMap<K, (V, Instant)>>,
}

// === impl Cache ===

impl<K: Ord + Clone, V: Clone> Cache<K, V> {
    pub(crate) fn new(most: usize) -> Self {
        Self { most, entries: Mutex::default() }
    }

    /// The answer, if its time is not over.
    pub(crate) fn get(&self, key: &K) -> Option<V> {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.get(key).filter(|(_, until)| *until > Instant::now()).map(|(value, _)| value.clone())
    }

    /// Keeps an answer for that long. Of too many the one that would be dropped next goes.
    pub(crate) fn put(&self, key: K, value: V, lasts: Duration) {
        if lasts.is_zero() {
            return;
        }
        let now = Instant::now();
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        if entries.len() >= self.most && !entries.contains_key(&key) {
            entries.retain(|_, (_, until)| *until > now);
            let first = entries.iter().min_by_key(|(_, (_, until))| *until).map(|(key, _)| key.clone());
            if let Some(first) = first.filter(|_| entries.len() >= self.most) {
                entries.remove(&first);
            }
        }
        entries.insert(key, (value, now + lasts));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CLU-38
    #[tokio::test(start_paused = true)]
    async fn an_answer_is_kept_for_its_time_and_no_longer() {
        let cache = Cache::new(8);
        cache.put("a", 1, Duration::from_secs(10));
        cache.put("never", 2, Duration::ZERO);
        assert_eq!((cache.get(&"a"), cache.get(&"never"), cache.get(&"b")), (Some(1), None, None));
        tokio::time::advance(Duration::from_secs(9)).await;
        assert_eq!(cache.get(&"a"), Some(1));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(cache.get(&"a"), None);
    }

    /// CLU-42
    #[tokio::test(start_paused = true)]
    async fn there_are_only_so_many_answers() {
        let cache = Cache::new(3);
        for (key, seconds) in [(1, 30), (2, 10), (3, 20), (4, 40), (5, 50)] {
            cache.put(key, key, Duration::from_secs(seconds));
        }
        assert_eq!([1, 2, 3, 4, 5].map(|key| cache.get(&key)), [Some(1), None, None, Some(4), Some(5)]);
    }
}
