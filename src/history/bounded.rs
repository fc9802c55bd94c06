//! A map that holds so much and no more.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

/// A map of at most [`Bounded::MAX`] entries; over that the oldest goes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<(K, V)>", into = "Vec<(K, V)>")]
#[serde(
    bound = "K: Ord + Clone + Serialize + serde::de::DeserializeOwned, V: Clone + Serialize + serde::de::DeserializeOwned"
)]
pub(super) struct Bounded<K: Ord + Clone, V: Clone> {
    entries: BTreeMap<K, V>,
    oldest_first: VecDeque<K>,
}

impl<K: Ord + Clone, V: Clone> Default for Bounded<K, V> {
    fn default() -> Bounded<K, V> {
        Bounded { entries: BTreeMap::new(), oldest_first: VecDeque::new() }
    }
}

impl<K: Ord + Clone, V: Clone> From<Vec<(K, V)>> for Bounded<K, V> {
    fn from(entries: Vec<(K, V)>) -> Bounded<K, V> {
        let mut bounded = Bounded::default();
        entries.into_iter().for_each(|(key, value)| drop(bounded.insert(key, value)));
        bounded
    }
}

impl<K: Ord + Clone, V: Clone> From<Bounded<K, V>> for Vec<(K, V)> {
    fn from(mut bounded: Bounded<K, V>) -> Vec<(K, V)> {
        bounded.take_all()
    }
}

impl<K: Ord + Clone, V: Clone> Bounded<K, V> {
    /// Entries that it holds.
    pub(super) const MAX: usize = 4_096;

    /// Puts a value in; gives the one that had this key, or the oldest where there were too many.
    pub(super) fn insert(&mut self, key: K, value: V) -> Option<V> {
        let before = self.entries.insert(key.clone(), value);
        if before.is_none() {
            self.oldest_first.push_back(key);
        }
        if self.oldest_first.len() > Self::MAX {
            let oldest = self.oldest_first.pop_front()?;
            return self.entries.remove(&oldest);
        }
        before
    }

    pub(super) fn get(&self, key: &K) -> Option<&V> {
        self.entries.get(key)
    }

    pub(super) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.entries.get_mut(key)
    }

    pub(super) fn remove(&mut self, key: &K) -> Option<V> {
        let value = self.entries.remove(key)?;
        self.oldest_first.retain(|kept| kept != key);
        Some(value)
    }

    /// Takes out those that `is_meant`, oldest first.
    pub(super) fn take_if(&mut self, mut is_meant: impl FnMut(&K, &V) -> bool) -> Vec<(K, V)> {
        let meant: Vec<K> = self
            .oldest_first
            .iter()
            .filter(|key| self.entries.get(key).is_some_and(|value| is_meant(key, value)))
            .cloned()
            .collect();
        meant.into_iter().filter_map(|key| Some((key.clone(), self.remove(&key)?))).collect()
    }

    /// Takes out all, oldest first.
    pub(super) fn take_all(&mut self) -> Vec<(K, V)> {
        let Bounded { mut entries, oldest_first } = std::mem::take(self);
        oldest_first.into_iter().filter_map(|key| entries.remove(&key).map(|value| (key, value))).collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// All of them, oldest first.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.oldest_first.iter().filter_map(|key| self.entries.get_key_value(key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_goes_and_all_can_be_stored() {
        let mut bounded = Bounded::default();
        (0..Bounded::<usize, usize>::MAX).for_each(|number| assert_eq!(bounded.insert(number, number), None));
        assert_eq!(bounded.insert(7, 70), Some(7));
        assert_eq!(bounded.insert(9_999, 1), Some(0));
        assert_eq!(bounded.remove(&7), Some(70));
        assert_eq!(bounded.take_if(|key, _| *key < 3), [(1, 1), (2, 2)]);
        let stored = serde_json::to_string(&bounded).expect("plain data");
        let again: Bounded<usize, usize> = serde_json::from_str(&stored).expect("as it was stored");
        assert_eq!(again, bounded);
    }
}
