//! [`ByAddress`]: what was made of values that a program shares, by their addresses.

use std::collections::BTreeMap;

/// Values by the addresses of what they were made of. What is here keeps its address, so nothing
/// else is taken for it.
pub(super) struct ByAddress<K, T> {
    known: BTreeMap<K, (T, Alive)>,
    /// Values made of what is no more are looked for at this number of values.
    full: usize,
}

/// Is all that a value was made of still here?
pub(super) type Alive = Box<dyn Fn() -> bool + Send>;

impl<K: Ord, T> ByAddress<K, T> {
    pub const fn new() -> Self {
        Self {
            known: BTreeMap::new(),
            full: 0,
        }
    }

    /// The value at these addresses, which `make` makes if there is none.
    pub fn get(&mut self, key: K, make: impl FnOnce() -> (T, Alive)) -> &T {
        if self.known.len() >= self.full {
            self.known.retain(|_, (_, alive)| alive());
            self.full = (2 * self.known.len()).max(64);
        }
        &self.known.entry(key).or_insert_with(make).0
    }
}
