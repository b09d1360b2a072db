//! What is kept of sets that models score, such as a run's public samples: many models score them,
//! and learn from them with other labels.

use crate::bins::Binned;
use crate::bits::Bits;
use fl_core::{Inputs, Samples};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Sets that are kept. The one that was used longest ago makes room.
const SETS: usize = 4;
/// The most bytes that a set's bins and ids may take.
const MOST: usize = 1 << 24;

/// Those of this process.
pub static SCORED: ScoredSets = ScoredSets(Mutex::new(Vec::new()));

/// Sets that were scored, that of the last use first.
pub struct ScoredSets(Mutex<Vec<Set>>);

struct Set {
    /// No other inputs can have this address while this exists, and the inputs may be dropped.
    inputs: Weak<Inputs>,
    ids: Vec<u32>,
    bits: Option<Arc<Bits>>,
    /// With the number of bins that was asked for.
    binned: Option<(usize, Arc<Binned>)>,
}

impl ScoredSets {
    /// Returns the bits of samples to score, if they can be laid out so, and keeps them.
    pub fn bits(&self, x: &Samples) -> Option<Arc<Bits>> {
        if let Some(set) = find(&mut self.lock(), x) {
            return set.bits.clone();
        }
        // meanwhile other threads use the others
        let bits = Bits::new(x).map(Arc::new);
        let bytes = x.len().saturating_mul(x.width() + size_of::<u32>());
        let mut sets = self.lock();
        if bytes <= MOST && find(&mut sets, x).is_none() {
            sets.retain(|set| set.inputs.strong_count() > 0);
            sets.truncate(SETS - 1);
            let set = Set {
                inputs: Arc::downgrade(x.inputs()),
                ids: x.ids().to_vec(),
                bits: bits.clone(),
                binned: None,
            };
            sets.insert(0, set);
        }
        bits
    }

    /// Returns the bins of samples to learn from, and keeps them if a model has scored these
    /// samples: a client's own examples are learnt from only once.
    pub fn binned(&self, x: &Samples, bins: usize) -> Arc<Binned> {
        let kept = find(&mut self.lock(), x).and_then(|set| set.binned.clone());
        if let Some((_, binned)) = kept.filter(|(of, _)| *of == bins) {
            return binned;
        }
        let binned = Arc::new(Binned::new(x, bins));
        if let Some(set) = find(&mut self.lock(), x) {
            set.binned = Some((bins, binned.clone()));
        }
        binned
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Set>> {
        // a panic of another thread leaves each set whole
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    pub fn new() -> Self {
        Self(Mutex::default())
    }
}

/// Returns what is kept of `x`, moved to the front.
fn find<'a>(sets: &'a mut [Set], x: &Samples) -> Option<&'a mut Set> {
    let same = |set: &Set| {
        std::ptr::eq(set.inputs.as_ptr(), Arc::as_ptr(x.inputs())) && set.ids == x.ids()
    };
    let at = sets.iter().position(same)?;
    sets[..=at].rotate_right(1);
    sets.first_mut()
}
